//! Rows added up by the threads that made the calls.

use std::collections::HashMap;

use serde::Serialize;

use super::rows::Row;
use super::sum::{Name, Sum};
use super::uncertain::Uncertain;
use crate::model::ThreadPart;

/// Where calls are counted of which no thread is known.
pub(super) const NO_THREAD: &str = "(not known)";

/// What each thread has of each row, and what is left of the row.
pub(super) fn sums<'a>(rows: &'a [Row<'a>]) -> Vec<(Name<'a>, Sum)> {
    let names = names(rows);
    let mut sums = Vec::new();
    for row in rows {
        let mut left = Sum::of(row);
        for part in parts(row) {
            let sum = of_part(row, part);
            left = less(left, sum);
            let name = names.get(&part.tid).map_or(part.name.as_str(), |(name, _)| name);
            sums.push((Name { name, tid: Some(part.tid) }, sum));
        }
        // What is left of times without a call is what rounding leaves.
        if left.calls != Uncertain::default() {
            sums.push((NO_THREAD.into(), left));
        }
    }
    sums
}

fn parts<'a>(row: &Row<'a>) -> &'a [ThreadPart] {
    row.measured.threads.as_deref().unwrap_or_default()
}

/// One name for each thread, however often it was called something else: that of most calls.
fn names<'a>(rows: &'a [Row<'a>]) -> HashMap<u32, (&'a str, u64)> {
    let mut names: HashMap<u32, (&str, u64)> = HashMap::new();
    for part in rows.iter().flat_map(parts) {
        let known = names.entry(part.tid).or_insert((&part.name, 0));
        if part.calls > known.1 {
            *known = (&part.name, part.calls);
        }
    }
    names
}

/// One thread's part of a row: of what is estimated of counted calls as much as it has of them, of errors as much as of the timed ones.
fn of_part(row: &Row<'_>, part: &ThreadPart) -> Sum {
    let measured = row.measured;
    let error = share(measured.probe_error_ns, part.timed, row.timed_calls());
    let of_counted = |ns: Option<u64>| share(ns.unwrap_or(0), part.counted, measured.counted);
    let estimated_ns = of_counted(measured.estimated_ns);
    let error = error.saturating_add(of_counted(measured.estimated_error_ns));
    let time = |value: u64| Uncertain { value, error };
    let is_estimated = measured.unseen.is_some() || measured.estimated_ns.is_some();
    let own_ns = if is_estimated { part.total_ns.saturating_add(estimated_ns) } else { part.self_ns };
    let ran = part.off_cpu_ns.map(|off_ns| {
        let waited_ns = of_counted(measured.estimated_off_ns.filter(|_| measured.unseen.is_none()));
        part.self_ns.saturating_sub(off_ns).saturating_add(estimated_ns.saturating_sub(waited_ns))
    });
    let calls = Uncertain { value: part.calls, error: 0 };
    Sum { functions: 1, calls, ran: time(ran.unwrap_or(own_ns)), own: time(own_ns) }
}

fn share(of: u64, part: u64, all: u64) -> u64 {
    let share = u128::from(of) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What is left of a sum, which still has its function.
fn less(sum: Sum, taken: Sum) -> Sum {
    let less = |sum: Uncertain, taken: Uncertain| Uncertain {
        value: sum.value.saturating_sub(taken.value),
        error: sum.error.saturating_sub(taken.error),
    };
    Sum { calls: less(sum.calls, taken.calls), ran: less(sum.ran, taken.ran), own: less(sum.own, taken.own), ..sum }
}

/// What one thread has of a row, in JSON. What the times are of stands with the row.
#[derive(Debug, Serialize)]
pub(super) struct Thread<'a> {
    tid: u32,
    name: &'a str,
    calls: u64,
    counted: u64,
    total_ns: Option<u64>,
    self_ns: Option<u64>,
    off_cpu_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
}

/// What each thread has of a row; `None` where threads are not told apart.
pub(super) fn threads<'a>(row: &Row<'a>) -> Option<Vec<Thread<'a>>> {
    let timed = |ns: u64| row.snapshot.timed.then_some(ns);
    let thread = |part: &'a ThreadPart| Thread {
        tid: part.tid,
        name: &part.name,
        calls: part.calls,
        counted: part.counted,
        total_ns: timed(part.total_ns),
        self_ns: timed(part.self_ns),
        off_cpu_ns: part.off_cpu_ns.and_then(timed),
        on_cpu_ns: part.off_cpu_ns.and_then(|off_ns| timed(part.self_ns.saturating_sub(off_ns))),
    };
    Some(row.measured.threads.as_ref()?.iter().map(thread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MethodSnapshot, Unseen};
    use crate::render::grid::Screen;
    use crate::render::groups::{self, By};
    use crate::render::order::{self, Order};
    use crate::render::run::{Scope, View};
    use crate::render::{csv, json, samples};

    fn part(tid: u32, name: &str, calls: u64, ns: u64) -> ThreadPart {
        let (name, off_cpu_ns) = (name.to_owned(), Some(ns / 4));
        ThreadPart { tid, name, calls, counted: 0, timed: calls, total_ns: ns, self_ns: ns, off_cpu_ns }
    }

    fn snapshot() -> crate::model::Snapshot {
        let mut snapshot = samples::snapshot();
        let row = |index, class, calls, ns, threads| MethodSnapshot {
            off_cpu_ns: Some(ns / 4),
            threads: Some(threads),
            ..samples::function(index, class, calls, ns)
        };
        let both = vec![part(7, "pool-1", 6, 6_000), part(8, "pool-1", 2, 2_000)];
        snapshot.methods =
            vec![row(0, "a.A", 10, 10_000, both), row(1, "b.B", 9, 400, vec![part(8, "pool-2", 9, 400)])];
        snapshot
    }

    fn written(write: impl Fn(View, &mut Vec<u8>) -> std::io::Result<()>) -> String {
        let mut out = Vec::new();
        write(View { by: Some(By::Thread), ..View::from(Scope::One) }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check that threads of one name are two rows, that a thread that was renamed is one, and that what no thread is known of is a row
    /// of its own: in the table, in CSV and in JSON.
    #[test]
    fn each_thread_is_a_row() {
        let jvms = [snapshot()];
        let rows = order::all(&jvms, Order::default());
        let (groups, shape) = groups::of(By::Thread, Order::default(), &rows);
        let expected = [
            "CALLS  FUNCTIONS   ON-CPU    SHARE     SELF  THREAD",
            "    6          1  4.50 us  57.69 %  6.00 us  7 (pool-1)",
            "   11          2  1.80 us  23.08 %  2.40 us  8 (pool-2)",
            "    2          1  1.50 us  19.23 %  2.00 us  (not known)",
        ];
        assert_eq!(groups.grid(shape, None).0.lines(Screen::default()), expected);
        let table = written(|view, out| csv::csv(&jvms, view, out));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "thread,functions,calls,calls_error,on_cpu_ns,on_cpu_error_ns,self_ns,tid");
        assert_eq!(lines[2..], ["pool-2,2,11,0,1800,0,2400,8", "(not known),1,2,0,1500,0,2000,"]);
        let document: serde_json::Value =
            serde_json::from_str(&written(|view, out| json::json(&jvms, view, out))).unwrap();
        let first = &document["groups"][0];
        assert_eq!((&first["tid"], &first["name"], &first["calls"]), (&7.into(), &"pool-1".into(), &6.into()));
        assert_eq!(document["groups"][2].get("tid"), None);
        let of_method = &document["methods"][0]["threads"][1];
        assert_eq!((&of_method["tid"], &of_method["on_cpu_ns"]), (&8.into(), &1_500.into()));
    }

    /// Check that what nobody saw, and how far it may be off, is no thread's, and that the time of counted calls is divided as they are.
    #[test]
    fn estimates_are_divided() {
        let mut snapshot = snapshot();
        snapshot.methods.truncate(1);
        let row = &mut snapshot.methods[0];
        (row.counted, row.estimated_ns, row.estimated_error_ns) = (4, Some(800), Some(80));
        row.unseen =
            Some(Unseen { calls: 30, error_calls: 3, total_ns: 3_000, error_ns: Some(300), ..Unseen::default() });
        let threads = row.threads.as_mut().unwrap();
        (threads[0].counted, threads[0].timed) = (3, 3);
        let jvms = [snapshot];
        let rows = order::all(&jvms, Order::default());
        let found: Vec<_> = sums(&rows).into_iter().map(|(name, sum)| (name.tid, sum.calls, sum.own)).collect();
        let uncertain = |value, error| Uncertain { value, error };
        assert_eq!(found[0], (Some(7), uncertain(6, 0), uncertain(6_600, 60)));
        assert_eq!(found[2], (None, uncertain(32, 3), uncertain(13_800 - 8_600, 320)));
    }

    /// Check that nothing is said of threads where they are not told apart.
    #[test]
    fn unknown_is_left_out() {
        let jvms = [samples::snapshot()];
        assert!(!written(|view, out| json::json(&jvms, View { by: None, ..view }, out)).contains("\"threads\""));
    }
}
