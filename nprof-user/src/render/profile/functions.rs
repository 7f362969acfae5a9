//! The functions of a recording as a table for people.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::super::grid::{Align, Elastic, Grid};
use super::super::uncertain::Uncertain;
use super::super::{names, notes, units};
use crate::aggregate::open_ns;
use crate::model::{FunctionTotals, Method, NativeCode, Profile, VirtAddr, Weight};

/// The functions that were called, or may have been: by work, that of calls in flight included, where it was told from waiting,
/// else by total time; then most calls, then by name.
pub(super) fn ordered(profile: &Profile) -> Vec<&FunctionTotals> {
    let weight = Weight::default_of(&profile.about);
    let open = (weight == Weight::OnCpu).then(|| Open::of(profile, weight));
    let work_ns = |function: &FunctionTotals| {
        placed_ns(function, weight).saturating_add(open.as_ref().map_or(0, |open| open.ns(function)))
    };
    let mut functions: Vec<&FunctionTotals> = profile.functions.iter().filter(|function| is_shown(function)).collect();
    functions.sort_by_key(|function| (Reverse((work_ns(function), function.all_calls())), key(function)));
    functions
}

/// Whether there is something to say of a function: of one that nobody watched, how often it was called at most.
fn is_shown(function: &FunctionTotals) -> bool {
    function.calls > 0 || function.in_flight > 0 || function.unseen.is_some()
}

/// All its calls, and how far their number may be off.
pub(super) fn all_calls(function: &FunctionTotals) -> Uncertain {
    Uncertain { value: function.all_calls(), error: function.unseen.map_or(0, |unseen| unseen.error_calls) }
}

/// The time of all its calls, in nanoseconds, as far as it is measured or estimated.
pub(super) fn all_ns(function: &FunctionTotals) -> u64 {
    function.all_ns(function.total_ns)
}

/// The same, or another time of all its calls that nobody can tell from it where they were not seen, with how far it may be off.
fn within(function: &FunctionTotals, ns: u64) -> Uncertain {
    Uncertain { value: ns, error: function.estimate_error_ns().unwrap_or(0) }
}

/// The time that a function is placed by, in nanoseconds: how long threads ran in it, with [`Weight::OnCpu`], else the time of
/// all its calls.
pub(super) fn placed_ns(function: &FunctionTotals, weight: Weight) -> u64 {
    match weight {
        Weight::OnCpu => function.on_cpu_ns().saturating_add(function.unseen_on_cpu_ns()),
        _ => all_ns(function),
    }
}

/// How far [`placed_ns`] may be off; `None` where something is estimated and nobody knows.
pub(super) fn error_ns(function: &FunctionTotals, weight: Weight) -> Option<u64> {
    let Some(unseen) = function.unseen else { return Some(0) };
    let error_ns = function.estimate_error_ns()?;
    if weight != Weight::OnCpu || unseen.total_ns == 0 {
        return Some(error_ns);
    }
    let of_part = u128::from(error_ns) * u128::from(function.unseen_on_cpu_ns()) / u128::from(unseen.total_ns);
    Some(u64::try_from(of_part).unwrap_or(u64::MAX))
}

/// What tells a function from others, in another recording too.
pub(super) fn key(function: &FunctionTotals) -> (&str, &str, &str) {
    (&function.class, &function.method, &function.signature)
}

/// The names of functions as tables have them, told apart.
pub(super) fn labels(functions: &[&FunctionTotals]) -> Vec<String> {
    let methods: Vec<Method> = functions.iter().map(|function| method(function)).collect();
    names::labels(&methods.iter().collect::<Vec<_>>())
}

fn method(function: &FunctionTotals) -> Method {
    Method {
        id: VirtAddr(0),
        class: function.class.clone(),
        name: function.method.clone(),
        signature: function.signature.clone(),
        code: NativeCode::Unbound,
    }
}

struct Column {
    title: &'static str,
    /// Of a function and the time of its open calls.
    cell: fn(&FunctionTotals, u64) -> String,
}

/// A row for each of `functions`, whose names are `labels`.
pub(super) fn grid(profile: &Profile, functions: &[&FunctionTotals], labels: &[String]) -> Grid {
    let columns = columns(profile, functions);
    let open = Open::of(profile, Weight::Time);
    let is_estimated = functions.iter().any(|function| function.unseen.is_some());
    let rate = |calls: u64| notes::per_second(calls, profile.about.elapsed);
    let row = |(function, label): (&&FunctionTotals, &String)| {
        let calls = all_calls(function);
        let mut row = vec![calls.count()];
        if is_estimated {
            row.push(function.unseen.map_or_else(String::new, |_unseen| calls.error()));
        }
        row.push(calls.rate(rate));
        row.extend(columns.iter().map(|column| (column.cell)(function, open.ns(function))));
        row.extend([names::printable(&function.library).into_owned(), label.clone() + &marks(&[function])]);
        row
    };
    let mut headers = vec![("CALLS", Align::Right)];
    headers.extend(is_estimated.then_some(("ERROR", Align::Right)));
    headers.push(("CALLS/s", Align::Right));
    headers.extend(columns.iter().map(|column| (column.title, Align::Right)));
    headers.extend([("LIBRARY", Align::Left), ("METHOD", Align::Left)]);
    Grid {
        rows: functions.iter().zip(labels).map(row).collect(),
        elastic: vec![Elastic::names(headers.len() - 1)],
        headers,
        expendable: &["LIBRARY", "SELF", "AVG", "CALLS/s", "MAX"],
    }
}

/// The columns of times that say something about this recording.
fn columns(profile: &Profile, functions: &[&FunctionTotals]) -> Vec<Column> {
    let column = |title, cell| Column { title, cell };
    let any = |wanted: fn(&FunctionTotals) -> bool| functions.iter().copied().any(wanted);
    let mut columns = Vec::new();
    if Weight::default_of(&profile.about) == Weight::OnCpu {
        columns.push(column("ON-CPU", |function, _| timed(function, on_cpu(function))));
    }
    columns.push(column("TOTAL", |function, _| timed(function, within(function, all_ns(function)))));
    if any(|function| function.unseen.is_some()) {
        columns.push(column("ERROR", |function, _| error_of_total(function)));
    }
    if any(|function| function.self_ns != function.total_ns) {
        columns
            .push(column("SELF", |function, _| timed(function, within(function, function.all_ns(function.self_ns)))));
    }
    columns.push(column("AVG", |function, _| timed(function, average(function))));
    columns.push(column("MAX", |function, _| seen(function, function.max_ns)));
    if any(|function| function.in_flight > 0) {
        columns.push(column("IN FLIGHT", |function, _| units::count(function.in_flight)));
    }
    if !profile.open.is_empty() {
        columns.push(column("OPEN", |_, open_ns| if open_ns > 0 { units::duration(open_ns) } else { "-".to_owned() }));
    }
    columns
}

/// How long threads ran in it.
fn on_cpu(function: &FunctionTotals) -> Uncertain {
    let error = error_ns(function, Weight::OnCpu).unwrap_or_default();
    Uncertain { value: placed_ns(function, Weight::OnCpu), error }
}

fn average(function: &FunctionTotals) -> Uncertain {
    let (calls, all) = (function.timed_calls(), within(function, all_ns(function)));
    Uncertain {
        value: all.value.saturating_add(calls / 2).checked_div(calls).unwrap_or_default(),
        error: all.error.checked_div(calls).unwrap_or_default(),
    }
}

/// A time, or `-` for a function none of whose calls was timed.
fn timed(function: &FunctionTotals, time: Uncertain) -> String {
    if function.timed_calls() > 0 || time.is_lost() { time.duration() } else { "-".to_owned() }
}

/// How far an estimated time may be off, or `-` where nobody knows.
fn error_of_total(function: &FunctionTotals) -> String {
    match (function.unseen, function.estimate_error_ns()) {
        (None, _) => String::new(),
        (Some(_), None) => "-".to_owned(),
        (Some(_), Some(_)) => within(function, all_ns(function)).error(),
    }
}

/// The same of a time that is known of calls that were seen, and not estimated for others.
fn seen(function: &FunctionTotals, ns: u64) -> String {
    if function.calls > function.untimed.saturating_add(function.counted) {
        units::duration(ns)
    } else {
        "-".to_owned()
    }
}

const SELF_ESTIMATED: &str = "stubs counted it, which do not know who calls whom: SELF is estimated, as what the sampled stacks of native calls within it leave";

/// A property of a function that its numbers cannot be read without: the same as below the table of `trace`.
struct Mark {
    symbol: char,
    applies: fn(&FunctionTotals) -> bool,
    meaning: &'static str,
}

const MARKS: [Mark; 5] = [
    Mark { symbol: '≈', applies: |function| function.unseen.is_some(), meaning: notes::ESTIMATED },
    Mark { symbol: '!', applies: |function| function.single_stepped, meaning: notes::SINGLE_STEPPED },
    Mark { symbol: '~', applies: |function| function.self_estimated, meaning: SELF_ESTIMATED },
    Mark { symbol: '?', applies: |function| function.untimed > 0, meaning: notes::UNTIMED },
    Mark { symbol: '&', applies: |function| function.others > 0, meaning: notes::SHARED },
];

/// The marks of these functions, of which one stands for all: nothing, or a blank and one or more symbols.
pub(super) fn marks(functions: &[&FunctionTotals]) -> String {
    let applies = |mark: &&Mark| functions.iter().any(|function| (mark.applies)(function));
    let symbols: String = MARKS.iter().filter(applies).map(|mark| mark.symbol).collect();
    if symbols.is_empty() { symbols } else { format!(" {symbols}") }
}

/// What the marks of these functions mean.
pub(super) fn legend(functions: &[&FunctionTotals]) -> Vec<String> {
    let applies = |mark: &&Mark| functions.iter().any(|function| (mark.applies)(function));
    MARKS.iter().filter(applies).map(|mark| format!("{} {}", mark.symbol, mark.meaning)).collect()
}

/// The time of calls that had not returned at the end, without the traced calls that they made.
#[derive(Debug)]
pub(super) struct Open(HashMap<*const FunctionTotals, u64>);

impl Open {
    pub(super) fn of(profile: &Profile, weight: Weight) -> Self {
        Self(profile.functions.iter().map(std::ptr::from_ref).zip(open_ns(profile, weight)).collect())
    }

    /// That of one function of the profile, in nanoseconds.
    pub(super) fn ns(&self, function: &FunctionTotals) -> u64 {
        self.0.get(&std::ptr::from_ref(function)).copied().unwrap_or_default()
    }
}
