//! Whether a JVM's program has run: without that nothing is loaded, bound or called, and nobody need look.
//!
//! A JVM at rest uses CPU time all the same: threads of the VM wake up again and again to find that there is nothing to do.
//! Their times are subtracted from that of the process. Both are sums of the same numbers in the kernel, so that what is left
//! stands still to the nanosecond until another thread runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::Proc;
use crate::model::Pid;
use crate::sys::cpu_clock::CpuClock;

/// How the names of threads begin that run no Java code and wake up by themselves. JDK 26 shortens long names in the middle.
const OF_THE_VM: [&str; 15] = [
    "VM Thread",
    "VM Periodic Tas",
    "VM Peri..Thread",
    "Monitor Deflati",
    "Monitor..Thread",
    "Service Thread",
    "C1 Comp",
    "C2 Comp",
    "G1 ",
    "GC Thread#",
    "Shenandoah",
    "ZDirector",
    "ZDriver",
    "ZStat",
    "ZUncommitter",
];
/// More threads than a VM has of its own: it starts them first, so they come first.
const MOST_THREADS: usize = 256;
/// How often threads of the VM are looked for that have started since.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// A process that has used so much since it was last asked is at work: it need not be known which threads are.
const AT_WORK: Duration = Duration::from_millis(20);
/// What is read of a file of three numbers.
const BYTES: usize = 64;

/// What a process had done when it was last asked.
#[derive(Debug)]
pub struct Activity {
    proc: Proc,
    pid: Pid,
    clock: CpuClock,
    /// The files with the times of the VM's threads. They stay open: to open one costs four times as much as to read it.
    of_the_vm: Vec<File>,
    listed: Option<Instant>,
    /// The time of the process.
    total: Duration,
    /// Of that, what is not the VM's; `None` if it is not known.
    others: Option<Duration>,
}

impl Activity {
    pub(super) fn new(proc: Proc, pid: Pid) -> Self {
        let (of_the_vm, listed, total, others) = (Vec::new(), None, Duration::ZERO, None);
        Self { proc, pid, clock: CpuClock::of(pid), of_the_vm, listed, total, others }
    }

    /// Whether code that is not the VM's own may have run since the last call of this. `false` is certain, unless the process
    /// has named a thread like one of the VM's.
    pub fn has_run(&mut self, now: Instant) -> bool {
        let clock = self.clock;
        self.has_run_by(now, || clock.read())
    }

    /// The same by this clock of the process.
    fn has_run_by(&mut self, now: Instant, read: impl Fn() -> Option<Duration>) -> bool {
        let Some(total) = read() else { return true };
        if total.saturating_sub(self.total) >= AT_WORK {
            (self.total, self.others) = (total, None);
            return true;
        }
        // Before the time of the process: so what the VM does in between looks like the program's, and never the reverse.
        let of_the_vm = self.of_the_vm();
        let has_run = self.judge(read().unwrap_or_default(), of_the_vm);
        if has_run && self.listed.is_none_or(|listed| now.saturating_duration_since(listed) >= LIST_EVERY) {
            self.list(now);
            // What runs from here on is seen the next time.
            let of_the_vm = self.of_the_vm();
            self.judge(read().unwrap_or_default(), of_the_vm);
        }
        has_run
    }

    /// The same, by the time of the process and that of the VM's threads.
    fn judge(&mut self, total: Duration, of_the_vm: Option<Duration>) -> bool {
        self.total = total;
        let others = of_the_vm.and_then(|of_the_vm| total.checked_sub(of_the_vm));
        let before = std::mem::replace(&mut self.others, others);
        others.is_none() || others != before
    }

    fn list(&mut self, now: Instant) {
        self.listed = Some(now);
        let mut tids = self.proc.tids(self.pid).unwrap_or_default();
        tids.truncate(MOST_THREADS);
        let is_of_the_vm = |tid: &u32| {
            let name = self.proc.thread(self.pid, *tid).map(|thread| thread.name);
            name.is_some_and(|name| OF_THE_VM.iter().any(|of_the_vm| name.starts_with(of_the_vm)))
        };
        let tasks = self.proc.root.join(self.pid.to_string()).join("task");
        // What cannot be opened counts as the program's: then the JVM is never at rest.
        let file = |tid: u32| File::open(tasks.join(tid.to_string()).join("schedstat")).ok();
        self.of_the_vm = tids.into_iter().filter(is_of_the_vm).filter_map(file).collect();
    }

    /// The time of the VM's threads; `None` if one of them has ended or there are none.
    fn of_the_vm(&self) -> Option<Duration> {
        let times = self.of_the_vm.iter().map(|file| {
            let mut bytes = [0; BYTES];
            // Of a thread that has ended there is nothing to read any more.
            let read = file.read_at(&mut bytes, 0).ok()?;
            let first = str::from_utf8(&bytes[..read]).ok()?.split_whitespace().next()?;
            first.parse().ok().map(Duration::from_nanos)
        });
        (!self.of_the_vm.is_empty()).then(|| times.sum()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    /// What each of these readings says: the process's time and that of the VM's threads, in microseconds.
    fn has_run<const N: usize>(readings: [(u64, Option<u64>); N]) -> [bool; N] {
        let mut activity = Activity::new(Proc::host(), Pid(u32::MAX));
        readings.map(|(total, of_the_vm)| {
            activity.judge(Duration::from_micros(total), of_the_vm.map(Duration::from_micros))
        })
    }

    /// Check that what the VM's threads use is rest, and the least that another uses is not.
    #[test]
    fn least_activity_counts() {
        assert_eq!(
            has_run([(500, Some(100)), (500, Some(100)), (730, Some(330)), (731, Some(330)), (731, Some(330))]),
            [true, false, false, true, false]
        );
    }

    /// Check that where the times of the VM's threads are not known, or were not, there is no rest.
    #[test]
    fn unknown_is_no_rest() {
        assert_eq!(
            has_run([(5, None), (5, None), (5, Some(1)), (5, Some(1)), (5, Some(6)), (5, Some(1))]),
            [true, true, true, false, true, true]
        );
    }

    /// Check that the times of the VM's threads, and of no others, are added up, as long as all of them are there.
    #[test]
    fn threads_of_the_vm_are_found() {
        let host = TestProc::new();
        let thread = |tid: u32, name: &str, ns: u64| {
            host.file(format!("proc/7/task/{tid}/status"), format!("Name:\t{name}\n"));
            host.file(format!("proc/7/task/{tid}/schedstat"), format!("{ns} 5 9\n"));
        };
        thread(7, "java", 1_000);
        thread(8, "VM Periodic Tas", 20);
        thread(9, "C2 CompilerThre", 3);
        let mut activity = Activity::new(host.proc(), Pid(7));
        assert_eq!(activity.of_the_vm(), None, "nobody has looked for them");
        activity.list(Instant::now());
        assert_eq!(activity.of_the_vm(), Some(Duration::from_nanos(23)));
        host.file("proc/7/task/9/schedstat", String::new());
        assert_eq!(activity.of_the_vm(), None, "the kernel has nothing to say of it");
        std::fs::remove_dir_all(host.path("proc/7/task/9")).unwrap();
        activity.list(Instant::now());
        assert_eq!(activity.of_the_vm(), Some(Duration::from_nanos(20)));
    }

    /// Check that once the VM's threads are known, a process that does nothing is at rest from then on.
    #[test]
    fn rest_is_known_at_once() {
        let host = TestProc::new();
        host.file("proc/7/task/8/status", "Name:\tVM Thread\n");
        host.file("proc/7/task/8/schedstat", "1000 5 9\n");
        let mut activity = Activity::new(host.proc(), Pid(7));
        let asked =
            [500, 500, 500, 501].map(|us| activity.has_run_by(Instant::now(), || Some(Duration::from_micros(us))));
        assert_eq!(asked, [true, false, false, true]);
    }

    /// Check that a process that is gone, or has no threads of a VM, is never at rest, however little it does.
    #[test]
    fn nobody_is_no_rest() {
        let mut activity = Activity::new(TestProc::new().proc(), Pid(u32::MAX));
        let now = Instant::now();
        assert!((0..30).all(|second| activity.has_run(now + Duration::from_secs(second))));
    }
}
