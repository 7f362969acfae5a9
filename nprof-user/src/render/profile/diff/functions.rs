//! The comparison as a table: the functions whose time changed most come first.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::super::super::grid::{Align, Elastic, Grid, Screen};
use super::super::super::json::nanoseconds;
use super::super::super::marks::Mark;
use super::super::super::{names, notes, units};
use super::super::callers;
use super::super::order::ordered;
use super::super::{functions, report};
use super::row::{Rate, Row};
use super::{Base, DiffOrder, rounded, weight};
use crate::model::{Collectors, FunctionTotals, Profile, ProfileMode, Weight};

const ESTIMATED: &str = "too expensive to watch all the time (--max-overhead): its numbers are in part estimates from short looks: in two of three cases CHANGE is off by no more than ERROR, and others are no more than what stands behind <";

/// Which rows of a comparison are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// Their order.
    pub order: DiffOrder,
    /// How many there are; all of them for 0.
    pub top: usize,
}

/// Writes the first functions of an order.
///
/// # Errors
/// Those of `out`.
pub fn table(
    (before, after): (&Profile, &Profile),
    base: &Base,
    shown: Shown,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = rows(before, after, base);
    rows.sort_by(|a, b| a.compare(b, shown.order));
    let all = rows.len();
    rows.truncate(if shown.top == 0 { all } else { shown.top });
    let has_calls = before.about.mode == ProfileMode::Calls;
    let collectors = before.about.collectors.shared_with(after.about.collectors);
    let mut grid = grid(&rows, has_calls, base, collectors);
    grid.make_room(screen);
    for line in grid.lines(screen) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    if all > rows.len() {
        writeln!(out, "and {} (--top 0 shows all)", notes::plural((all - rows.len()) as u64, "further row"))?;
    }
    if rows.iter().any(|row| row.stepped) {
        writeln!(out, "! {}", Mark::SingleStepped.meaning())?;
    }
    if rows.iter().any(|row| row.estimated) {
        writeln!(out, "≈ {ESTIMATED}")?;
    }
    writeln!(out, "{}", per_what((before, after), base))?;
    if !collectors.is_empty() {
        let titles: Vec<&str> = collectors.columns().map(|column| column.title).collect();
        writeln!(out, "{}: what the timed calls consumed themselves, in A → in B", titles.join(", "))?;
    }
    if has_calls {
        let but = match rows.iter().any(|row| row.estimated) {
            _ if !before.about.threads.is_empty() => ", as sampled calls divide it among threads",
            true => " (but for ≈)",
            false => "",
        };
        match weight(before, after) {
            Weight::OnCpu => writeln!(
                out,
                "TIME is the time that threads ran in the method itself, exact{but}; waiting is left out"
            )?,
            _ => writeln!(out, "TIME is exact wall-clock time{but}, native methods called from there included")?,
        }
    }
    Ok(())
}

/// What all numbers are of.
fn per_what((before, after): (&Profile, &Profile), base: &Base) -> String {
    let length = |profile: &Profile| units::duration(nanoseconds(profile.about.elapsed));
    match (&base.per, base.amounts.map(|amount| units::count(rounded(amount)))) {
        (None, _) => {
            format!("all numbers are per second of recording: A is {} long, B {}", length(before), length(after))
        }
        (Some(per), [old, new]) => {
            let per = names::printable(per);
            format!(
                "all numbers are per call of {per}: A has {old} of them in {}, B {new} in {}",
                length(before),
                length(after)
            )
        }
    }
}

fn rows(before: &Profile, after: &Profile, base: &Base) -> Vec<Row> {
    let by = if before.about.mode == ProfileMode::OnCpu { by_innermost_frame } else { by_function };
    by(before, after, base)
}

fn by_function(before: &Profile, after: &Profile, base: &Base) -> Vec<Row> {
    let weight = weight(before, after);
    let mut found: BTreeMap<_, (Vec<&FunctionTotals>, Rate, Rate)> = BTreeMap::new();
    let nothing = (Vec::new(), Rate::of_time(0), Rate::of_time(0));
    for (profile, is_after) in [(before, false), (after, true)] {
        let part = |value| base.of(value, is_after);
        for function in ordered(profile) {
            let (same, old, new) = found.entry(functions::key(function)).or_insert_with(|| nothing.clone());
            same.push(function);
            let rate = if is_after { new } else { old };
            // A function may be there twice, once for each library that was loaded.
            let calls = functions::all_calls(function);
            rate.calls += part(calls.value);
            rate.calls_error += part(calls.error);
            rate.time_ns = rate.time_ns.saturating_add(rounded(part(functions::placed_ns(function, weight))));
            let error_ns = functions::error_ns(function, weight).map(|error_ns| rounded(part(error_ns)));
            rate.error_ns = rate.error_ns.zip(error_ns).map(|(sum, more)| sum.saturating_add(more));
            if let Some(consumed) = &function.consumed {
                rate.consume(consumed, part);
            }
        }
    }
    let named: Vec<&FunctionTotals> = found.values().filter_map(|(same, ..)| same.first().copied()).collect();
    let labels = functions::labels(&named);
    let row = |((same, before, after), label): ((Vec<&FunctionTotals>, _, _), String)| {
        let stepped = same.iter().any(|function| function.single_stepped);
        let estimated = same.iter().any(|function| function.unseen.is_some());
        Row { label, stepped, estimated, before, after }
    };
    found.into_values().zip(labels).map(row).collect()
}

/// Samples by timer are of no function: where they were taken takes its place.
fn by_innermost_frame(before: &Profile, after: &Profile, base: &Base) -> Vec<Row> {
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (profile, is_after) in [(before, false), (after, true)] {
        let weighed = callers::weighed(profile, Weight::Time, false);
        for stack in &weighed.stacks {
            let innermost = stack.frames.last().and_then(|at| weighed.frames.get(*at as usize));
            let Some(innermost) = innermost else { continue };
            let (old, new) = found.entry(report::label(innermost)).or_default();
            let sum = if is_after { new } else { old };
            *sum = sum.saturating_add(rounded(base.of(stack.value, is_after)));
        }
    }
    let row = |(label, (old, new))| Row {
        label,
        stepped: false,
        estimated: false,
        before: Rate::of_time(old),
        after: Rate::of_time(new),
    };
    found.into_iter().map(row).collect()
}

fn grid(rows: &[Row], has_calls: bool, base: &Base, collectors: Collectors) -> Grid<'static> {
    let calls = if base.per.is_none() { ["CALLS/s A", "CALLS/s B"] } else { ["CALLS A", "CALLS B"] };
    let calls = calls.map(|title| (title, Align::Right));
    let calls = if has_calls { &calls[..] } else { &[] };
    let is_estimated = rows.iter().any(|row| row.estimated);
    let times = ["TIME A", "TIME B", "CHANGE"].map(|title| (title, Align::Right));
    let mut headers = [calls, &times[..]].concat();
    headers.extend(is_estimated.then_some(("ERROR", Align::Right)));
    headers.push(("CHANGE %", Align::Right));
    headers.extend(collectors.columns().map(|column| (column.title, Align::Right)));
    headers.push(("METHOD", Align::Left));
    let cells = |row: &Row| {
        let mut cells = Vec::new();
        if has_calls {
            cells.extend([row.before.calls(), row.after.calls()]);
        }
        cells.extend([row.before.time(), row.after.time(), row.change()]);
        cells.extend(is_estimated.then(|| row.error()));
        cells.push(row.share());
        cells.extend(collectors.columns().map(|column| row.consumed(column)));
        cells.push(row.marked());
        cells
    };
    Grid {
        rows: rows.iter().map(cells).collect(),
        elastic: vec![Elastic::names(headers.len() - 1)],
        headers,
        expendable: &["CALLS/s A", "CALLS/s B", "CALLS A", "CALLS B", "CHANGE %"],
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::Consumed;

    use super::super::super::recorded;
    use super::*;
    use crate::model::Unseen;

    fn text(before: &Profile, after: &Profile, top: usize) -> String {
        let mut out = Vec::new();
        let shown = Shown { top, ..Shown::default() };
        table((before, after), &Base::seconds(before, after), shown, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the whole table: what changed most first, per second of each recording, new and gone ones named as such.
    #[test]
    fn most_changed_first() {
        let before = recorded::profile();
        let mut after = recorded::profile();
        after.about.elapsed *= 2;
        after.functions[1].total_ns = 9_000_000;
        after.functions[0].method = "move".to_owned();
        let expected = "\
CALLS/s A  CALLS/s B  TIME A  TIME B   CHANGE  CHANGE %  METHOD
     2.00       1.00  300 us  450 us  +150 us   +50.0 %  a.N::read
     1.00          0  100 us    0 ns  -100 us      gone  a.N::copy
        0       0.50    0 ns 50.0 us +50.0 us       new  a.N::move

all numbers are per second of recording: A is 10.0 s long, B 20.0 s
TIME is exact wall-clock time, native methods called from there included
";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&text(&before, &after, 0)), squeezed(expected));
        assert!(text(&before, &after, 1).contains("and 2 further rows (--top 0 shows all)"));
    }

    /// Check that runs which did different amounts of the same work do not differ per call of it, however long they took.
    #[test]
    fn per_call() {
        let (before, mut after) = (recorded::profile(), recorded::profile());
        after.about.elapsed *= 7;
        for function in &mut after.functions {
            (function.calls, function.total_ns) = (3 * function.calls, 3 * function.total_ns);
        }
        let mut out = Vec::new();
        table((&before, &after), &Base::calls("a.N::read", [20, 60]), Shown::default(), Screen::default(), &mut out)
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().take(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "CALLS A CALLS B TIME A TIME B CHANGE CHANGE % METHOD");
        assert_eq!(rows[1].join(" "), "1.00 1.00 150 us 150 us 0 ns 0.0 % a.N::read", "{text}");
        assert_eq!(rows[2].join(" "), "0.50 0.50 50.0 us 50.0 us 0 ns 0.0 % a.N::copy", "{text}");
        assert!(text.contains("per call of a.N::read: A has 20 of them in 10.0 s, B 60 in 1.17 min"), "{text}");
    }

    /// Check that a function is marked whose probe was single-stepped in one of the recordings.
    #[test]
    fn single_stepped_functions_are_marked() {
        let mut after = recorded::profile();
        after.functions[0].single_stepped = true;
        let text = text(&recorded::profile(), &after, 0);
        assert!(text.contains("a.N::copy !\n") && !text.contains("a.N::read !"), "{text}");
        assert!(text.contains("\n! the kernel single-steps an instruction of it"), "{text}");
    }

    /// Check that estimated calls and times are compared like others, and marked.
    #[test]
    fn estimates_are_compared() {
        let mut after = recorded::profile();
        after.functions[0].unseen = Some(Unseen {
            calls: 990,
            error_calls: 100,
            total_ns: 99_000_000,
            error_ns: Some(30_000_000),
            ..Unseen::default()
        });
        let text = text(&recorded::profile(), &after, 0);
        let row = text.lines().find(|line| line.ends_with("a.N::copy ≈")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..6], ["1.00", "100", "100", "us", "10.0", "ms"], "{text}");
        assert_eq!(cells[6..11], ["+9.90", "ms", "±", "3.00", "ms"], "{text}");
        assert!(text.lines().any(|line| line.ends_with("a.N::read") && !line.contains("±")), "{text}");
        assert!(text.contains("\n≈ too expensive to watch"), "{text}");
    }

    /// Check that of a function that may not have been called at all it is said how often it was at most, and not that it is new.
    #[test]
    fn next_to_nothing_is_a_bound() {
        let few = |calls, error_calls| {
            let mut profile = recorded::profile();
            let error_ns = Some(200 * error_calls);
            let unseen = Some(Unseen { calls, error_calls, total_ns: 200 * calls, error_ns, ..Unseen::default() });
            profile.functions = vec![FunctionTotals { unseen, calls: 0, total_ns: 0, ..profile.functions[0].clone() }];
            profile
        };
        let text = text(&few(0, 1_200), &few(400, 600), 0);
        let row = text.lines().find(|line| line.ends_with("a.N::copy ≈")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..6], ["<120", "<100", "<24.0", "us", "<20.0", "us"], "{text}");
        // The root of 24 us and 12 us, squared.
        assert_eq!(cells[8..11], ["±", "26.8", "us"], "{text}");
        assert!(!text.contains("new"), "{text}");
    }

    /// Check that what both recordings have collected is compared per second, and what only one of them has is left out.
    #[test]
    fn collected() {
        let consuming = |seconds: u32, own, names: &[&str]| {
            let mut profile = recorded::profile();
            profile.about.elapsed = std::time::Duration::from_secs(seconds.into());
            profile.about.collectors = Collectors::named(names).unwrap();
            profile.functions[0].consumed =
                Some(Box::new(Consumed { own: [own; nprof_common::COUNTERS], total: [0; nprof_common::COUNTERS] }));
            profile
        };
        let text = text(&consuming(10, 50, &["syscalls", "io"]), &consuming(20, 20, &["faults", "syscalls"]), 0);
        let row = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
        assert!(row("a.N::copy").contains(" 5 → 1 ") && row("a.N::read").contains(" - → - "), "{text}");
        assert!(text.contains("\nSYSCALLS: what the timed calls") && !text.contains("FAULTS"), "{text}");
    }

    /// Check that a recording does not differ from itself.
    #[test]
    fn equal_recordings_do_not_differ() {
        let text = text(&recorded::profile(), &recorded::profile(), 0);
        assert!(text.contains("  0.0 %") && !text.contains("new") && !text.contains("gone"), "{text}");
    }

    /// Check that samples by timer are compared by where they were taken.
    #[test]
    fn samples_by_timer() {
        let mut profile = recorded::profile();
        profile.about.mode = ProfileMode::OnCpu;
        profile.inside = std::mem::take(&mut profile.calls);
        profile.functions.clear();
        let text = text(&profile, &profile, 0);
        assert!(text.contains("a.N.read") && !text.contains("CALLS"), "{text}");
    }
}
