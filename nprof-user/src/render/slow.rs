//! The slowest of the slow calls: how long, what, on which thread, called by whom, and what it waited for.

use std::cmp::Reverse;

use super::collected::in_words;
use super::run::Run;
use super::{Scope, arguments, json, names, units};
use crate::model::{SlowCall, SlowCalls, SlowWait, Snapshot};

/// How many patterns with thresholds of their own are named.
const PATTERNS: usize = 3;
/// How many callers are named.
const CALLERS: usize = 4;
/// How many functions of the kernel are named.
const KERNEL_FRAMES: usize = 4;
/// Functions by which each thread leaves the CPU, whatever it waits for, and by which it gets into the kernel: they begin so.
const SAY_NOTHING: [&str; 5] = ["__schedule", "schedule", "do_syscall_", "x64_sys_call", "entry_SYSCALL_"];
/// Functions by which a thread leaves the CPU that waits for nothing: it was taken from it. They begin so.
const PREEMPTED: [&str; 4] = ["irqentry_exit", "preempt_schedule", "exit_to_user_mode", "__cond_resched"];

/// A line that says how many there were, and the slowest of all JVMs, `most` of them; nothing where nobody looks for them.
pub(super) fn lines(run: Run<'_>, most: usize) -> Vec<String> {
    let slow: Vec<_> = run.jvms.iter().filter_map(|snapshot| Some((snapshot, snapshot.slow.as_ref()?))).collect();
    let Some((_, first)) = slow.first() else { return Vec::new() };
    let (total, unread) =
        slow.iter().fold((0, 0), |(total, unread), (_, slow)| (total + slow.total, unread + slow.unread));
    let mut calls: Vec<(&Snapshot, &SlowCall)> =
        slow.iter().flat_map(|(snapshot, slow)| slow.slowest.iter().map(|call| (*snapshot, call))).collect();
    calls.sort_by_key(|(_, call)| Reverse(call.time_ns));
    calls.truncate(most);
    let mut heading = format!("slow calls ({}): {}", thresholds(first), units::count(total));
    if unread > 0 {
        heading.push_str(&format!(", {} of them too fast one after the other to be looked at", units::count(unread)));
    }
    if !calls.is_empty() {
        heading.push_str(&format!(", the slowest {}:", calls.len()));
    }
    let mut lines = vec![heading];
    lines.extend(calls.iter().flat_map(|(snapshot, call)| of_call(run, snapshot, call)));
    lines
}

/// From when on calls are slow: of all methods, and of those that patterns select.
fn thresholds(slow: &SlowCalls) -> String {
    let said = |ns: Option<u64>, none: &str| ns.map_or_else(|| none.to_owned(), units::duration);
    let usual = slow.threshold_ns.map(|ns| format!("{} or longer", units::duration(ns)));
    let of_pattern = |(pattern, ns): &(String, _)| format!("{}: {}", names::printable(pattern), said(*ns, "off"));
    let more = slow.by_pattern.len().saturating_sub(PATTERNS);
    let more = (more > 0).then(|| format!("{more} more"));
    let of_patterns = slow.by_pattern.iter().rev().take(PATTERNS).map(of_pattern);
    usual.into_iter().chain(of_patterns).chain(more).collect::<Vec<_>>().join("; ")
}

/// The lines of one call.
fn of_call(run: Run<'_>, snapshot: &Snapshot, call: &SlowCall) -> Vec<String> {
    let process = if run.view.scope == Scope::All { format!(" of {}", snapshot.jvm.pid) } else { String::new() };
    let since = call.ended.duration_since(snapshot.started);
    let mut line = format!(
        "  {}{} in {}, after {}, thread {}{process} ({})",
        units::duration(call.time_ns),
        waited(call),
        names::printable(&names::qualified(&call.method)),
        units::duration(json::nanoseconds(since.unsigned_abs())),
        call.tid,
        names::printable(&call.thread)
    );
    if !call.callers.is_empty() {
        line.push_str(&format!(", called by {}", names::chain(call.callers.iter(), CALLERS)));
    }
    let consumed = consumed(snapshot, call).map(|consumed| format!("      consumed {consumed}"));
    let arguments = call.arguments.as_ref().map(|known| format!("      {}", arguments::text(known.as_deref())));
    let wait = call.wait.as_ref().map(wait);
    std::iter::once(line).chain(arguments).chain(wait).chain(consumed).collect()
}

/// The part of the time that the thread was not running.
fn waited(call: &SlowCall) -> String {
    call.off_cpu_ns.map_or_else(String::new, |off_ns| match off_ns.min(call.time_ns) {
        0 => " (working)".to_owned(),
        off_ns => format!(" ({} waiting)", units::duration(off_ns)),
    })
}

fn wait(wait: &SlowWait) -> String {
    let took = units::duration(wait.ns);
    if wait.frames.iter().any(|frame| PREEMPTED.iter().any(|by| frame.starts_with(by))) {
        return format!("      had no CPU for {took} at once");
    }
    let frames = wait.frames.iter().filter(|frame| !SAY_NOTHING.iter().any(|common| frame.starts_with(common)));
    let place = names::chain(frames, KERNEL_FRAMES);
    let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
    format!("      waited {took} at once{place}")
}

/// What was collected of a call, as far as it is not nothing.
fn consumed(snapshot: &Snapshot, call: &SlowCall) -> Option<String> {
    let words = in_words(snapshot.collectors, call.consumed.as_deref()?);
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nprof_common::Counter;

    use super::*;
    use crate::model::Collectors;
    use crate::render::samples;

    fn snapshot(times: &[u64]) -> Snapshot {
        let mut snapshot = samples::snapshot();
        let ended = snapshot.started + Duration::from_millis(1500);
        let slowest =
            times.iter().map(|time_ns| SlowCall { ended, time_ns: *time_ns, ..samples::slow_call() }).collect();
        snapshot.slow =
            Some(SlowCalls { threshold_ns: Some(10_000_000), total: 1200, slowest, ..SlowCalls::default() });
        snapshot
    }

    /// Check the lines of a run with slow calls: the first callers, and that nothing from the target commands a terminal.
    #[test]
    fn the_slowest() {
        assert!(lines(Run::new(&[samples::snapshot()], Scope::One), 2).is_empty());
        let mut snapshot = snapshot(&[24_300_000, 12_000_000, 11_000_000]);
        let calls = &mut snapshot.slow.as_mut().unwrap().slowest;
        calls[0].callers = ["a.B::m:1", "a.C::m:2", "a.D::m:3", "a.E::m:4", "a.F::m:5"].map(str::to_owned).to_vec();
        let text = lines(Run::new(&[snapshot], Scope::One), 2).join("\n");
        assert_eq!(
            text,
            "slow calls (10.0 ms or longer): 1,200, the slowest 2:\n\
             \x20 24.3 ms in a.A::read, after 1.50 s, thread 77 (pool\\u{1b}-1), called by a.B::m:1 < a.C::m:2 < a.D::m:3 < a.E::m:4 < ...\n\
             \x20 12.0 ms in a.A::read, after 1.50 s, thread 77 (pool\\u{1b}-1)"
        );
    }

    /// Check that the heading says from when on calls are slow, the patterns that count most first, and no more than there is room for.
    #[test]
    fn thresholds_by_pattern() {
        let said = |usual, by_pattern: &[(&str, Option<u64>)]| {
            let by_pattern = by_pattern.iter().map(|(pattern, ns)| ((*pattern).to_owned(), *ns)).collect();
            thresholds(&SlowCalls { threshold_ns: usual, by_pattern, ..SlowCalls::default() })
        };
        let two = [("a.*", Some(1_000_000)), ("b\u{1b}", None)];
        assert_eq!(said(Some(10_000_000), &two), "10.0 ms or longer; b\\u{1b}: off; a.*: 1.00 ms");
        assert_eq!(said(None, &[two[0]; 5]), "a.*: 1.00 ms; a.*: 1.00 ms; a.*: 1.00 ms; 2 more");
    }

    /// Check what is said of a call that is known in full: how long it waited and where, and what it consumed, but nothing of nothing.
    #[test]
    fn what_a_call_did() {
        let mut snapshot = snapshot(&[24_300_000, 12_000_000]);
        snapshot.collectors = Collectors::named(&["syscalls", "io", "locks"]).unwrap();
        let calls = &mut snapshot.slow.as_mut().unwrap().slowest;
        let (mut consumed, frames) =
            ([0; nprof_common::COUNTERS], ["__schedule", "schedule_timeout", "tcp_recvmsg", "a", "b", "c"]);
        (consumed[Counter::Syscalls as usize], consumed[Counter::ReadBytes as usize]) = (1_200, 2048);
        calls[0].consumed = Some(Box::new(consumed));
        calls[0].off_cpu_ns = Some(20_000_000);
        calls[0].wait = Some(SlowWait { ns: 19_000_000, frames: frames.map(str::to_owned).to_vec() });
        calls[1].off_cpu_ns = Some(0);
        calls[1].wait =
            Some(SlowWait { ns: 60_000, frames: vec!["schedule".to_owned(), "irqentry_exit_to_user_mode".to_owned()] });
        let text = lines(Run::new(&[snapshot], Scope::One), 2);
        assert!(text[1].starts_with("  24.3 ms (20.0 ms waiting) in a.A::read, "), "{text:?}");
        assert_eq!(text[2], "      waited 19.0 ms at once in tcp_recvmsg < a < b < c");
        assert_eq!(text[3], "      consumed read 2.00 KiB, syscalls 1,200");
        assert!(text[4].starts_with("  12.0 ms (working) in a.A::read, ") && text.len() == 6, "{text:?}");
        assert_eq!(text[5], "      had no CPU for 60.0 us at once");
    }

    /// Check that there is one list for all JVMs, the slowest first, with processes, and that what nobody looked at is said.
    #[test]
    fn of_all_jvms() {
        let (mut one, mut other) = (snapshot(&[30, 10]), snapshot(&[20]));
        (one.jvm.pid.0, other.jvm.pid.0) = (7, 8);
        other.slow.as_mut().unwrap().unread = 1500;
        let text = lines(Run::new(&[one, other], Scope::All), 5);
        let heading = "slow calls (10.0 ms or longer): 2,400, 1,500 of them too fast one after the other to be looked at, the slowest 3:";
        assert_eq!(text[0], heading);
        let told: Vec<(&str, bool)> = text[1..]
            .iter()
            .map(|line| (line.split(" in ").next().unwrap(), line.contains("thread 77 of 8")))
            .collect();
        assert_eq!(told, [("  30 ns", false), ("  20 ns", true), ("  10 ns", false)]);
    }
}
