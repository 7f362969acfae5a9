//! The last slow calls, one line each: when, how long, what, on which thread, called by whom.

use super::run::Run;
use super::{json, names, units};
use crate::model::{SlowCall, Snapshot};

/// How many callers are named.
const CALLERS: usize = 4;

/// A line that says how many there were, and one for each of the last `most`; nothing where nobody looks for them.
pub(super) fn lines(run: Run<'_>, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for snapshot in run.jvms {
        let Some(slow) = &snapshot.slow else { continue };
        let shown = slow.last.len().min(most);
        let last = if shown > 0 { format!(", the last {shown}:") } else { String::new() };
        let threshold = units::duration(slow.threshold_ns);
        lines.push(format!("slow calls ({threshold} or longer): {}{last}", units::count(slow.total)));
        lines.extend(slow.last.iter().take(most).map(|call| line(snapshot, call)));
    }
    lines
}

fn line(snapshot: &Snapshot, call: &SlowCall) -> String {
    let since = call.ended.duration_since(snapshot.started);
    let at = units::duration(json::nanoseconds(since.unsigned_abs()));
    let (took, method) = (units::duration(call.time_ns), names::qualified(&call.method));
    let mut line = format!(
        "  after {at}: {took} in {}, thread {} ({})",
        names::printable(&method),
        call.tid,
        names::printable(&call.thread)
    );
    let more = if call.callers.len() > CALLERS { " < ..." } else { "" };
    let callers: Vec<_> = call.callers.iter().take(CALLERS).map(|caller| names::printable(caller)).collect();
    if !callers.is_empty() {
        line.push_str(&format!(", called by {}{more}", callers.join(" < ")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SlowCalls;
    use crate::render::{Scope, samples};

    /// Check the lines of a run with slow calls: the latest, with the first callers; and that nothing from the target
    /// commands a terminal.
    #[test]
    fn the_last_slow_calls() {
        let mut snapshot = samples::snapshot();
        assert!(lines(Run::new(std::slice::from_ref(&snapshot), Scope::One), 2).is_empty());
        let call = |callers: &[&str]| SlowCall {
            ended: snapshot.started + std::time::Duration::from_millis(1500),
            method: samples::method("a.A", "read", "()V"),
            time_ns: 24_300_000,
            tid: 77,
            thread: "pool\u{1b}-1".to_owned(),
            callers: callers.iter().map(|&caller| caller.to_owned()).collect(),
        };
        let last = vec![call(&["a.B::m:1", "a.C::m:2", "a.D::m:3", "a.E::m:4", "a.F::m:5"]), call(&[]), call(&[])];
        snapshot.slow = Some(SlowCalls { threshold_ns: 10_000_000, total: 1200, last });
        let text = lines(Run::new(&[snapshot], Scope::One), 2).join("\n");
        assert_eq!(
            text,
            "slow calls (10.0 ms or longer): 1,200, the last 2:\n\
             \x20 after 1.50 s: 24.3 ms in a.A::read, thread 77 (pool\\u{1b}-1), called by a.B::m:1 < a.C::m:2 < a.D::m:3 < a.E::m:4 < ...\n\
             \x20 after 1.50 s: 24.3 ms in a.A::read, thread 77 (pool\\u{1b}-1)"
        );
    }
}
