//! A function's calls and times, divided among the threads that made the calls.

use nprof_common::ThreadCalls;

use crate::model::ThreadPart;

/// What each thread has, by its number. `probes_ns` is what has been taken off the time of all calls: each thread's part of it is as
/// large as its part of the timed calls, as far as it has own time in which it ran, less a nanosecond for each call. What it has not
/// is taken off others, so that what is taken off in all is the same.
pub(super) fn parts(calls: &[(u32, ThreadCalls)], probes_ns: u64, off_cpu: bool) -> Vec<ThreadPart> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|(tid, _)| *tid);
    let of_probes = divided(&calls, probes_ns);
    let part = |((tid, of), probe_ns): ((u32, ThreadCalls), u64)| ThreadPart {
        tid,
        name: name(&of),
        calls: of.counted + of.timed + of.untimed,
        counted: of.counted,
        timed: of.timed,
        total_ns: of.total_ns.saturating_sub(probe_ns),
        self_ns: own_ns(&of).saturating_sub(probe_ns),
        off_cpu_ns: off_cpu.then_some(of.off_ns),
    };
    calls.into_iter().zip(of_probes).map(part).collect()
}

/// Which part of `probes_ns` each thread has.
fn divided(calls: &[(u32, ThreadCalls)], probes_ns: u64) -> Vec<u64> {
    let timed: u64 = calls.iter().map(|(_, of)| of.timed).sum();
    let share = |seen: u64| {
        let share = u128::from(probes_ns) * u128::from(seen) / u128::from(timed.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    let most = |of: &ThreadCalls| own_ns(of).saturating_sub(of.off_ns).saturating_sub(of.timed);
    let (mut seen, mut taken_ns) = (0, 0);
    let mut parts: Vec<u64> = Vec::with_capacity(calls.len());
    for (_, of) in calls {
        seen += of.timed;
        let part_ns = share(seen).saturating_sub(taken_ns).min(most(of));
        taken_ns += part_ns;
        parts.push(part_ns);
    }
    // What the last have not is left.
    for (part_ns, (_, of)) in parts.iter_mut().zip(calls) {
        let more_ns = probes_ns.saturating_sub(taken_ns).min(most(of) - *part_ns);
        *part_ns += more_ns;
        taken_ns += more_ns;
    }
    parts
}

fn own_ns(of: &ThreadCalls) -> u64 {
    of.total_ns.saturating_sub(of.child_ns)
}

fn name(calls: &ThreadCalls) -> String {
    let end = calls.name.iter().position(|byte| *byte == 0).unwrap_or(calls.name.len());
    String::from_utf8_lossy(calls.name.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(timed: u64, total_ns: u64, off_ns: u64) -> ThreadCalls {
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"pool");
        ThreadCalls { timed, total_ns, off_ns, name, ..ThreadCalls::NONE }
    }

    /// Check that what is taken off for probes is divided by calls, to the nanosecond, and that no thread loses what it has not.
    #[test]
    fn probes_are_taken_off_once() {
        let of = [(9, calls(2, 1_000, 0)), (7, calls(1, 1_000, 0)), (8, calls(4, 1_000, 990))];
        let parts = parts(&of, 100, true);
        let found: Vec<_> = parts.iter().map(|part| (part.tid, part.total_ns, part.off_cpu_ns)).collect();
        assert_eq!(found, [(7, 986, Some(0)), (8, 994, Some(990)), (9, 920, Some(0))]);
        assert_eq!(parts.iter().map(|part| part.total_ns).sum::<u64>(), 2_900);
        assert!(parts.iter().all(|part| part.name == "pool"));
    }

    /// Check that what the last threads have not is taken off those before them.
    #[test]
    fn nothing_is_left() {
        let parts = parts(&[(7, calls(1, 1_000, 0)), (8, calls(4, 104, 0)), (9, calls(5, 5, 0))], 900, true);
        assert_eq!(parts.iter().map(|part| part.total_ns).collect::<Vec<_>>(), [200, 4, 5]);
    }

    /// Check that calls without a time count, and that nested time is nobody's own.
    #[test]
    fn every_call_counts() {
        let of = ThreadCalls { counted: 5, untimed: 2, child_ns: 300, ..calls(1, 1_000, 0) };
        let part = parts(&[(7, of)], 0, false).remove(0);
        assert_eq!((part.calls, part.counted, part.timed), (8, 5, 1));
        assert_eq!((part.total_ns, part.self_ns, part.off_cpu_ns), (1_000, 700, None));
    }
}
