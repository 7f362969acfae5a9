//! The functions of a recording as a table for people.

use std::collections::HashMap;

use super::super::grid::{Align, Elastic, Grid};
use super::super::marks::Mark;
use super::super::per_call::PerCall;
use super::super::rows::is_next_to_nothing;
use super::super::uncertain::Uncertain;
use super::super::{names, notes, units};
use crate::aggregate::open_ns;
use crate::model::{self, FunctionTotals, Method, NativeCode, Profile, VirtAddr, Weight};

/// The quantiles of bytes that are shown, as columns name them ([`model::Column::per_call`]).
const SHOWN: [f64; 2] = [0.50, 0.99];

/// Whether there is something to say of a function: of one that nobody watched, how often it was called at most.
pub(super) fn is_shown(function: &FunctionTotals) -> bool {
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

/// The same with how far it may be off.
pub(super) fn all(function: &FunctionTotals) -> Uncertain {
    within(function, all_ns(function))
}

/// Whether its threads as good as only waited in it, where that was recorded.
pub(super) fn only_waited(profile: &Profile, function: &FunctionTotals) -> bool {
    let waited_ns = function.off_cpu_ns.saturating_add(function.unseen_off_ns);
    profile.about.off_cpu && is_next_to_nothing(placed_ns(function, Weight::OnCpu), waited_ns)
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
        class: function.class.as_str().into(),
        name: function.method.as_str().into(),
        signature: function.signature.as_str().into(),
        code: NativeCode::Unbound,
    }
}

struct Column {
    title: &'static str,
    cell: Cell,
}

/// Where a cell's text comes from.
enum Cell {
    /// Of a function and the time of its open calls.
    Of(fn(&FunctionTotals, u64) -> String),
    /// What the calls have consumed.
    Consumed(&'static model::Column),
    /// How many bytes one of them has, at this quantile.
    PerCall(&'static model::Column, f64),
}

impl Cell {
    fn text(&self, function: &FunctionTotals, open_ns: u64) -> String {
        match self {
            Self::Of(text) => text(function, open_ns),
            Self::Consumed(column) => consumed(function, column),
            Self::PerCall(column, q) => per_call(function, column, *q),
        }
    }
}

/// A row for each of `functions`, whose names are `labels`.
pub(super) fn grid(profile: &Profile, functions: &[&FunctionTotals], labels: &[String]) -> Grid<'static> {
    let columns = columns(profile, functions);
    let open = Open::of(profile, Weight::Time);
    let is_estimated = functions.iter().any(|function| function.unseen.is_some());
    let row = |(function, label): (&&FunctionTotals, &String)| {
        let rate = |calls: u64| notes::per_second(calls, function.called_for(profile.about.elapsed));
        let calls = all_calls(function);
        let mut row = vec![calls.count()];
        if is_estimated {
            row.push(function.unseen.map_or_else(String::new, |_unseen| calls.error()));
        }
        row.push(calls.rate(rate));
        row.extend(columns.iter().map(|column| column.cell.text(function, open.ns(function))));
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
    let column = |title, cell| Column { title, cell: Cell::Of(cell) };
    let any = |wanted: fn(&FunctionTotals) -> bool| functions.iter().copied().any(wanted);
    let mut columns = Vec::new();
    if Weight::default_of(&profile.about) == Weight::OnCpu {
        columns.push(column("ON-CPU", |function, _| timed(function, on_cpu(function))));
    }
    columns.push(column("TOTAL", |function, _| timed(function, all(function))));
    if any(|function| function.unseen.is_some()) {
        columns.push(column("ERROR", |function, _| error_of_total(function)));
    }
    if any(|function| function.self_ns != function.total_ns) {
        columns
            .push(column("SELF", |function, _| timed(function, within(function, function.all_ns(function.self_ns)))));
    }
    columns.push(column("AVG", |function, _| timed(function, average(function))));
    columns.push(column("MAX", |function, _| seen(function, function.max_ns)));
    let collected = profile.about.collectors.columns();
    let are_known = any(|function| function.bytes_per_call.is_some());
    columns.extend(collected.flat_map(|column| self::collected(column, are_known)));
    if any(|function| function.in_flight > 0) {
        columns.push(column("IN FLIGHT", |function, _| units::count(function.in_flight)));
    }
    if !profile.open.is_empty() {
        columns.push(column("OPEN", |_, open_ns| if open_ns > 0 { units::duration(open_ns) } else { "-".to_owned() }));
    }
    columns
}

/// What calls have consumed; of bytes, where that is known, also how many each has.
fn collected(column: &'static model::Column, are_known: bool) -> impl Iterator<Item = Column> {
    let all = Column { title: column.title, cell: Cell::Consumed(column) };
    let quantiles = column.per_call.filter(|_| are_known).map(|(_, titles)| titles.into_iter().zip(SHOWN));
    let quantile = move |(title, q)| Column { title, cell: Cell::PerCall(column, q) };
    std::iter::once(all).chain(quantiles.into_iter().flatten().map(quantile))
}

/// How many bytes a call has consumed, or `-` where that is not known.
fn per_call(function: &FunctionTotals, column: &model::Column, q: f64) -> String {
    let bytes = PerCall::of_recorded(function).quantile(column, q);
    bytes.map_or_else(|| "-".to_owned(), |bytes| units::counted(bytes, column.unit))
}

/// What its calls have consumed, or `-` where that is not known.
fn consumed(function: &FunctionTotals, column: &model::Column) -> String {
    let known = function.consumed.as_deref().filter(|_| seen_timed(function));
    known.map_or_else(|| "-".to_owned(), |consumed| units::counted(column.own(consumed), column.unit))
}

/// How long threads ran in it.
fn on_cpu(function: &FunctionTotals) -> Uncertain {
    let error = error_ns(function, Weight::OnCpu).unwrap_or_default();
    Uncertain { value: placed_ns(function, Weight::OnCpu), error }
}

/// The mean of the calls that have a time.
pub(super) fn average(function: &FunctionTotals) -> Uncertain {
    let (calls, all) = (function.timed_calls(), all(function));
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
        (Some(_), Some(_)) => all(function).error(),
    }
}

/// The same of a time that is known of calls that were seen, and not estimated for others.
fn seen(function: &FunctionTotals, ns: u64) -> String {
    // Of some threads alone it is not known whose call was the longest.
    let is_known = ns > 0 || function.total_ns == 0;
    if seen_timed(function) && is_known { units::duration(ns) } else { "-".to_owned() }
}

/// Whether any of its calls was seen and timed.
fn seen_timed(function: &FunctionTotals) -> bool {
    function.seen_and_timed() > 0
}

/// The marks of these functions, of which one stands for all: nothing, or a blank and one or more symbols.
pub(super) fn marks(functions: &[&FunctionTotals]) -> String {
    Mark::symbols(|mark| functions.iter().any(|function| mark.applies_to_recorded(function)))
}

/// What the marks of these functions mean.
pub(super) fn legend(functions: &[&FunctionTotals]) -> impl Iterator<Item = String> {
    Mark::legend(|mark| functions.iter().any(|function| mark.applies_to_recorded(function)))
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
