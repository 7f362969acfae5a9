//! What stands below a table: totals, what was not traced, what the marks beside a method mean, and the losses.

use std::collections::HashSet;
use std::time::Duration;

use super::json::nanoseconds;
use super::marks::Mark;
use super::order::Order;
use super::rows::Row;
use super::run::Run;
use super::sum::Sum;
use super::uncertain::Uncertain;
use super::{names, units, words};
use crate::model::{Collectors, Price, ProbeCost, ProgramValues, SkipReason, Snapshot, Tier};

/// How many functions with several methods are spelled out, and how many methods of each.
const ALIASES_SHOWN: usize = 5;
/// How many methods that are not traced are named.
const SKIPPED_NAMED: usize = 3;

/// The mark of a JVM that has ended.
const ENDED: char = 'x';

/// What holds for all quantiles.
const QUANTILES: &str = "~ estimates, within 10 %";

/// What holds where stubs have counted.
const STUBS: &str = "stub: counted inside the JVM: no probe is part of the times";
/// The same where they did not find out what was nested in what.
const STUBS_ALONE: &str = ", and who calls whom is not known, so there is no SELF, and the time is part of the SELF of others that made the calls";

const ON_CPU: &str = "ON-CPU is the time that threads ran, without nested traced calls; the rest they waited, for something or for a CPU";
const IN_ITS_ORDER: &str = ". Rows are in its order";

const OPEN: &str = "OPEN is the time of calls that have not returned, without nested traced ones, and OPEN ON-CPU what threads ran of it: they are in no other column, and in the order of rows";

/// The marks of a row, to stand behind its name: empty, or a blank and one or more symbols.
pub(super) fn marks(row: &Row<'_>) -> String {
    Mark::symbols(|mark| mark.applies_to(row))
}

/// The JVM's name, to stand beside its rows, with a mark if it has ended.
pub(super) fn jvm(snapshot: &Snapshot) -> String {
    let name = match snapshot.jvm.main.as_str() {
        "" => "-".into(),
        main => names::printable(main),
    };
    if snapshot.ended { format!("{name} {ENDED}") } else { name.into_owned() }
}

/// What holds for rows to which stubs have contributed, if there are some.
fn stubs(run: Run<'_>, rows: &[Row<'_>]) -> Option<String> {
    let mut stubbed = rows.iter().filter(|row| run.timed() && row.measured.tier != Tier::Kernel).peekable();
    stubbed.peek()?;
    let alone = if stubbed.all(|row| row.measured.self_ns.is_some()) { "" } else { STUBS_ALONE };
    Some(format!("{STUBS}{alone}"))
}

/// The lines below a table of `rows`, of which the first `shown` are shown; the losses are the last.
pub(super) fn lines(run: Run<'_>, rows: &[Row<'_>], shown: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if !rows.is_empty() {
        lines.push(totals(run, rows));
    }
    lines.extend(cost(run));
    if run.jvms.len() > 1 {
        lines.push(jvms(run));
    }
    lines.extend(silent(run, rows.len()));
    lines.extend(skipped(run));
    lines.extend(downcalls(run));
    let is_open = |row: &Row<'_>| row.open_ns().is_some_and(|ns| ns > 0);
    if run.timed() && rows.iter().any(|row| row.timed_calls() > 0 || is_open(row)) {
        let has_probes = rows.iter().any(|row| row.measured.tier != Tier::Stub);
        if rows.iter().any(|row| row.measured.off_cpu_ns.is_some()) {
            let in_order = if run.view.order == Order::OnCpu { IN_ITS_ORDER } else { "" };
            lines.push(format!("{ON_CPU}{in_order}"));
        }
        if rows.iter().any(is_open) {
            lines.push(OPEN.to_owned());
        }
        lines.push(if has_probes { format!("{QUANTILES} of the time with probes") } else { QUANTILES.to_owned() });
        lines.extend(taken_off(rows));
        lines.extend(collected(run.collectors()));
        if rows.iter().any(|row| row.measured.bytes_per_call.is_some()) {
            lines.push(PER_CALL.to_owned());
        }
    }
    lines.extend(programs(run.programs()));
    lines.extend(stubs(run, rows));
    let shown = &rows[..shown.min(rows.len())];
    if run.names_jvms() && shown.iter().any(|row| row.snapshot.ended) {
        lines.push(format!("{ENDED} this JVM has ended"));
    }
    lines.extend(Mark::legend(|mark| shown.iter().any(|row| mark.applies_to(row))));
    lines.extend(aliases(shown));
    lines.extend(words::losses(&run.losses()));
    lines
}

fn totals(run: Run<'_>, rows: &[Row<'_>]) -> String {
    let all: Uncertain = rows.iter().map(Row::all_calls).sum();
    let calls = |n| plural(n, "call");
    let is_estimated = rows.iter().any(|row| row.measured.unseen.is_some());
    let in_flight = |only_ended: bool| -> u64 {
        let rows = rows.iter().filter(|row| row.snapshot.ended || !only_ended);
        rows.map(|row| row.measured.in_flight).sum()
    };
    let (in_flight, cut_off) = (in_flight(false), in_flight(true));
    let elapsed = run.elapsed();
    let mut line = format!(
        "total: {} to {} in {} ({}/s)",
        if is_estimated { all.in_words(calls) } else { calls(all.value) },
        plural(rows.len() as u64, "function"),
        units::duration(nanoseconds(elapsed)),
        all.rate(|calls| per_second(calls, elapsed)),
    );
    if run.timed() {
        line.push_str(&format!(", {} spent inside them (sum over threads)", inside(rows)));
    }
    if in_flight > 0 {
        line.push_str(&format!(", {} in flight", units::count(in_flight)));
    }
    if cut_off > 0 {
        line.push_str(&format!(", {} of them when their JVM ended", units::count(cut_off)));
    }
    line
}

/// The time of all rows, in words. Own times, so that a function called by another traced one is not counted twice; where that is
/// not known, or some of the time is estimated, it has those others in it.
fn inside(rows: &[Row<'_>]) -> String {
    let own: Uncertain = rows.iter().map(|row| Sum::of(row).own).sum();
    if own.is_lost() {
        return format!("at most {}", units::duration(own.at_most()));
    }
    let is_estimated = |row: &Row<'_>| row.measured.unseen.is_some() || row.measured.estimated_ns.is_some();
    let knows_callers = |row: &Row<'_>| row.measured.self_ns.is_some() && !is_estimated(row);
    let most = if rows.iter().all(knows_callers) { "" } else { "at most " };
    let about = if rows.iter().any(is_estimated) { "about " } else { "" };
    let error = if own.error > 0 { format!(" (+- {})", units::duration(own.error)) } else { String::new() };
    format!("{most}{about}{}{error}", units::duration(own.value))
}

/// What tracing has cost the JVMs' threads, in all and of the CPU time that they have used for themselves.
pub(super) fn cost(run: Run<'_>) -> Option<String> {
    let known = run.jvms.iter().filter_map(|jvm| Some((jvm.cost?, own_time(jvm)?)));
    let (cost, own) = known.reduce(|(cost, own), (more, used)| (cost + more, own + used))?;
    let share = match own.is_zero() {
        true => String::new(),
        false => format!(", {} of what was used without it", units::percent(cost.as_secs_f64() / own.as_secs_f64())),
    };
    Some(format!("tracing cost: about {} of CPU time{share}", units::duration(nanoseconds(cost))))
}

/// The CPU time that a JVM has used for itself: a tenth of a core at least, as for the budget, so that an idle JVM is not
/// said to be slowed down by a few calls.
pub(super) fn own_time(jvm: &Snapshot) -> Option<Duration> {
    Some(jvm.cpu?.saturating_sub(jvm.cost?).max(jvm.elapsed / 10))
}

/// What the quantiles of bytes are of.
pub(super) const PER_CALL: &str = "~P50 and ~P99 of bytes are of single calls, nested ones included";

/// What the columns of what was collected are about.
pub(super) fn collected(collectors: Collectors) -> Option<String> {
    let titles: Vec<&str> = collectors.columns().map(|column| column.title).collect();
    let what = titles.join(", ");
    (!titles.is_empty()).then(|| format!("{what}: what the timed calls consumed, without nested traced calls"))
}

/// What the columns of programs of the user's are about.
fn programs(programs: &[ProgramValues]) -> Option<String> {
    let titles: Vec<&str> = programs.iter().map(|programs| programs.title.as_str()).collect();
    (!titles.is_empty()).then(|| {
        format!(
            "{}: what your programs have counted, at the calls that were watched (< and #: not at all of them)",
            titles.join(", ")
        )
    })
}

/// What is not in the times, where probes have measured them.
pub(super) fn taken_off(rows: &[Row<'_>]) -> Option<String> {
    let mut prices: Vec<(Option<ProbeCost>, Price)> = Vec::new();
    for row in rows.iter().filter(|row| row.timed_calls() > 0 && row.measured.price.inside_ns > 0) {
        let (cost, price) = (row.measured.cost, row.measured.price);
        // What programs of the user's add to the price of a call is in none of the times.
        let said = |known: &(Option<ProbeCost>, Price)| part(known.0, &known.1) == part(cost, &price);
        if !prices.iter().any(said) {
            prices.push((cost, price));
        }
    }
    prices.sort_by_key(|(cost, _)| *cost);
    let each: Vec<String> = prices.iter().map(|(cost, price)| part(*cost, price)).collect();
    (!each.is_empty()).then(|| {
        format!(
            "tracing's own part is taken off the times: {} a call, measured on this machine; < is the most that a time below this error can be",
            each.join(", ")
        )
    })
}

/// `0.61 us (+- 0.2 us)`.
fn part(cost: Option<ProbeCost>, price: &Price) -> String {
    let mark = match cost {
        Some(ProbeCost::Emulated) => "",
        Some(ProbeCost::SingleStepped) => "with ! ",
        None => "by stubs ",
    };
    format!("{mark}{} (+- {})", units::duration(price.inside_ns), units::duration(price.inside_error_ns))
}

/// `JVMs: 4 (2 ended), 1,234 functions traced`.
fn jvms(run: Run<'_>) -> String {
    let ended = match run.ended() {
        0 => String::new(),
        n => format!(" ({} ended)", units::count(n as u64)),
    };
    let traced = plural(run.traced() as u64, "function");
    format!("JVMs: {}{ended}, {traced} traced", units::count(run.jvms.len() as u64))
}

fn silent(run: Run<'_>, with_calls: usize) -> Option<String> {
    let silent = run.traced().saturating_sub(with_calls) as u64;
    (silent > 0).then(|| format!("{} had no calls", plural(silent, "traced function")))
}

fn skipped(run: Run<'_>) -> Option<String> {
    let reasons: Vec<String> = SkipReason::ALL
        .into_iter()
        .map(|reason| (run.skipped(reason), reason))
        .filter(|(n, _)| *n > 0)
        .map(|(n, reason)| format!("{} {}{}", units::count(n as u64), words::skip(reason), such_as(run, reason)))
        .collect();
    (!reasons.is_empty()).then(|| format!("not traced: {}", reasons.join(", ")))
}

/// The first methods of a reason about which the user can do something, if he knows which they are.
fn such_as(run: Run<'_>, reason: SkipReason) -> String {
    if reason != SkipReason::NoFile {
        return String::new();
    }
    let named = run.examples(reason, SKIPPED_NAMED);
    let more = if run.skipped(reason) > named.len() { ", …" } else { "" };
    let named: Vec<_> = named.iter().map(|name| names::printable(name)).collect();
    format!(" [{}{more}]", named.join(", "))
}

/// Which JVMs make calls that are not seen.
fn downcalls(run: Run<'_>) -> Option<String> {
    let mut names: Vec<String> = run.jvms.iter().filter(|jvm| jvm.downcalls).map(jvm).collect();
    names.dedup();
    let whose = if run.names_jvms() { format!(" of {}", names.join(", ")) } else { String::new() };
    (!names.is_empty()).then(|| {
        format!(
            "not seen: calls of native functions by java.lang.foreign (downcalls){whose}: no native method makes them; \
             `nprof flamegraph --on-cpu` shows what they do"
        )
    })
}

/// One line for each of the first functions that several methods share. What is the same in several JVMs is said once.
fn aliases(rows: &[Row<'_>]) -> Vec<String> {
    let mut said = HashSet::new();
    let shared = rows.iter().filter(|row| Mark::Shared.applies_to(row)).map(alias_line);
    let mut lines: Vec<String> = shared.filter(|line| said.insert(line.clone())).collect();
    let more = lines.len().saturating_sub(ALIASES_SHOWN);
    lines.truncate(ALIASES_SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more such functions (--format json lists all)"));
    }
    lines
}

fn alias_line(row: &Row<'_>) -> String {
    let methods: Vec<_> = std::iter::once(&row.first.method).chain(row.aliases()).collect();
    let shown: Vec<String> = names::labels(&methods).into_iter().take(ALIASES_SHOWN).collect();
    let more = match methods.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {} more", units::count(n as u64)),
    };
    format!("  {}{more}", shown.join(" = "))
}

/// `1 call`, `2 calls`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", units::count(n))
}

/// Calls per second; 0 where no time has passed.
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub(super) fn per_second(calls: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { calls as f64 / elapsed.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Snapshot, cost, lines};
    use crate::render::run::{Run, Scope};
    use crate::render::{order, samples};

    /// Check that the cost is of what JVMs have used for themselves, a tenth of a core at least, and that nothing is said
    /// where nobody knows.
    #[test]
    fn cost_is_of_own_time() {
        let mut jvms = [samples::probed(), samples::snapshot()];
        assert!(cost(Run::new(&jvms[1..], Scope::One)).is_none());
        (jvms[0].cost, jvms[0].cpu) = (Some(Duration::from_millis(30)), Some(Duration::from_millis(31)));
        let said = cost(Run::new(&jvms, Scope::All)).unwrap();
        assert_eq!(said, "tracing cost: about 30.0 ms of CPU time, 12 % of what was used without it");
    }

    /// The lines below a table with all rows.
    fn lines_of(jvms: &[Snapshot], scope: Scope) -> Vec<String> {
        let rows = order::all(jvms, super::Order::default());
        lines(Run::new(jvms, scope), &rows, rows.len())
    }

    /// Check that calls are told apart that were left open as their JVM ended: those go on no more.
    #[test]
    fn calls_that_ended_with_their_jvm() {
        let mut jvms = samples::several();
        jvms.iter_mut().for_each(|jvm| jvm.methods.iter_mut().for_each(|row| row.in_flight = 0));
        jvms[1].methods[0].in_flight = 3;
        let said = |jvms: &[_]| lines_of(jvms, Scope::All).remove(0);
        assert!(
            jvms[1].ended && said(&jvms).ends_with(", 3 in flight, 3 of them when their JVM ended"),
            "{}",
            said(&jvms)
        );
        jvms[0].methods[0].in_flight = 1;
        assert!(said(&jvms).ends_with(", 4 in flight, 3 of them when their JVM ended"), "{}", said(&jvms));
        jvms[1].ended = false;
        assert!(said(&jvms).ends_with(", 4 in flight"), "{}", said(&jvms));
    }

    /// Check that long lists of aliases end with how many are left out.
    #[test]
    fn abridges_aliases_and_says_so() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = (0..7)
            .map(|i| {
                let mut function = samples::function(i, &format!("p.C{i}"), 1, 0);
                function.methods =
                    (0..8).map(|m| samples::planned(&format!("p.C{i}"), &format!("m{m}"), "()V")).collect();
                function
            })
            .collect();
        let jvms = [snapshot];
        let lines = lines_of(&jvms, Scope::One);
        let spelled: Vec<&String> = lines.iter().filter(|l| l.starts_with("  ")).collect();
        assert_eq!(spelled.len(), 6);
        assert_eq!(spelled[0], "  p.C0::m0 = p.C0::m1 = p.C0::m2 = p.C0::m3 = p.C0::m4 and 3 more");
        assert_eq!(spelled[5], "  and 2 more such functions (--format json lists all)");
    }
}
