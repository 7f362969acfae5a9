//! The watch for JVMs that start, on hosts and with clocks that tests lay out.

use std::fs;
use std::time::{Duration, Instant};

use super::test_proc::{TestProc, TestProcess};
use super::watch::{
    FIRST_PAUSE, GIVE_UP_AFTER, JvmWatch, LONGEST_PAUSE, MAX_CANDIDATES, SCAN_PERIOD, SCAN_WHEN_MISSED,
};
use crate::model::{Jvm, Pid};

const PID: Pid = Pid(42);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A host and a watch on it, whose first look at all processes lies behind it.
struct Watched {
    host: TestProc,
    watch: JvmWatch,
    began: Instant,
}

impl Watched {
    fn new() -> Self {
        let (host, began) = (TestProc::new(), Instant::now());
        let mut watch = JvmWatch::new(began);
        assert_eq!(watch.look(&host.proc(), began), []);
        Self { host, watch, began }
    }

    /// A program, of the launcher's kind, that has mapped no VM.
    fn program(&self, pid: Pid) -> TestProcess<'_> {
        self.host.process(pid).maps("1000-2000 r-xp 00000000 08:01 5   /jdk/bin/java")
    }

    /// The news that a process runs a program.
    fn started(&mut self, pid: Pid, after: Duration) {
        self.watch.candidate(pid, self.began + after);
    }

    /// A look, `after` the beginning.
    fn look(&mut self, after: Duration) -> Vec<Pid> {
        pids(&self.watch.look(&self.host.proc(), self.began + after))
    }

    fn next_look(&self) -> Duration {
        self.watch.next_look() - self.began
    }

    fn end(&self, pid: Pid) {
        fs::remove_dir_all(self.host.path(format!("proc/{pid}"))).unwrap();
    }
}

fn pids(jvms: &[Jvm]) -> Vec<Pid> {
    jvms.iter().map(|jvm| jvm.pid).collect()
}

/// Check that the JVMs that are there at the start are reported by the first look, which is due at once, and never again.
#[test]
fn those_that_are_there() {
    let (host, now) = (TestProc::new(), Instant::now());
    host.process(Pid(7)).maps_libjvm().add();
    host.process(Pid(3)).maps_libjvm().add();
    host.process(Pid(4)).maps("1000-2000 r-xp 00000000 08:01 5   /bin/sh").add();
    let mut watch = JvmWatch::new(now);
    assert_eq!(watch.next_look(), now);
    assert_eq!(pids(&watch.look(&host.proc(), now)), [Pid(3), Pid(7)]);
    assert_eq!(watch.next_look(), now + SCAN_PERIOD);
    assert_eq!(watch.look(&host.proc(), now + SCAN_PERIOD), []);
}

/// Check that a program is looked at soon at first and then more rarely, never later than twice a second, and is given
/// up in the end.
#[test]
fn looks_thin_out() {
    let mut on = Watched::new();
    on.program(PID).add();
    on.started(PID, ms(0));
    let mut looks = Vec::new();
    while on.next_look() < SCAN_PERIOD {
        let at = on.next_look();
        assert_eq!(on.look(at), []);
        looks.push(at);
    }
    assert_eq!(looks[..9], [10, 20, 40, 80, 160, 300, 600, 1100, 1600].map(ms));
    assert!(looks.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST_PAUSE));
    let last = *looks.last().unwrap();
    assert!(last >= GIVE_UP_AFTER && last < GIVE_UP_AFTER + LONGEST_PAUSE, "{last:?}");
    assert_eq!(on.watch.remembered(), 0);
}

/// Check that looks at programs that started at different times come at the same moments, once they are some time apart.
#[test]
fn later_looks_are_shared() {
    let mut on = Watched::new();
    for number in 0..7 {
        on.program(Pid(50 + number)).add();
        on.started(Pid(50 + number), ms(13 * u64::from(number)));
    }
    let mut looks = Vec::new();
    while on.next_look() < ms(3000) {
        let at = on.next_look();
        on.look(at);
        looks.push(at);
    }
    let late = looks.iter().filter(|at| **at >= ms(1000));
    assert!(late.clone().all(|at| at.as_millis().is_multiple_of(100)), "{looks:?}");
    assert!(late.count() <= 20, "{looks:?}");
}

/// Check that a program with one thread is passed over without its mappings, as often as it would be looked at, and that one with
/// more is looked at.
#[test]
fn one_thread_is_no_jvm() {
    let mut on = Watched::new();
    on.program(PID).maps_libjvm().add();
    on.host.file("proc/42/task/42/status", "");
    on.started(PID, ms(0));
    for (at, next) in [(10, 20), (20, 40), (40, 80)] {
        assert!(!on.watch.must_look(&on.host.proc(), on.began + ms(at)));
        assert_eq!((on.next_look(), on.watch.remembered()), (ms(next), 1));
    }
    assert_eq!(on.look(SCAN_PERIOD), [], "by its one thread, the scan passes it over, too");
    on.started(PID, SCAN_PERIOD);
    on.host.file("proc/42/task/43/status", "");
    assert!(on.watch.must_look(&on.host.proc(), on.began + SCAN_PERIOD + FIRST_PAUSE));
    assert_eq!(on.look(SCAN_PERIOD + FIRST_PAUSE), [PID]);
    on.started(Pid(99), SCAN_PERIOD + ms(50));
    assert!(!on.watch.must_look(&on.host.proc(), on.began + SCAN_PERIOD + ms(60)));
    assert_eq!(on.watch.remembered(), 1, "one that has gone is forgotten without a look");
}

/// Check that a program that maps a VM after its start is reported at the next look, as it then is, and only once.
#[test]
fn becomes_a_jvm() {
    let mut on = Watched::new();
    on.program(PID).add();
    on.started(PID, ms(0));
    assert_eq!(on.look(ms(10)), []);
    on.program(PID).args(&["java", "com.acme.Main"]).maps_libjvm().add();
    assert_eq!(on.look(ms(15)), [], "not due");
    let found = on.watch.look(&on.host.proc(), on.began + ms(20));
    assert_eq!((found.len(), found[0].pid, found[0].main.as_str()), (1, PID, "com.acme.Main"));
    assert_eq!(on.next_look(), SCAN_PERIOD, "still looked at");
    assert_eq!(on.look(SCAN_PERIOD), []);
}

/// Check that news that comes after a look at all processes has found the JVM does not report it again.
#[test]
fn late_news() {
    let mut on = Watched::new();
    on.program(PID).maps_libjvm().add();
    assert_eq!(on.look(SCAN_PERIOD), [PID]);
    on.started(PID, SCAN_PERIOD);
    assert_eq!(on.look(SCAN_PERIOD + FIRST_PAUSE), []);
    assert_eq!(on.next_look(), SCAN_PERIOD * 2, "still looked at");
}

/// Check that a launcher that executes itself again gets its time again.
#[test]
fn launcher_that_runs_itself() {
    let mut on = Watched::new();
    on.program(PID).add();
    on.started(PID, ms(0));
    assert_eq!(on.look(ms(9_000)), []);
    on.started(PID, ms(9_100));
    assert_eq!(on.next_look(), ms(9_110));
    assert_eq!(on.look(ms(9_110)), []);
    assert_eq!(on.look(ms(12_000)), []);
    on.program(PID).maps_libjvm().add();
    let at = on.next_look();
    assert_eq!(on.look(at), [PID]);
}

/// Check that a program that ends, is a zombie or never was is not looked at again.
#[test]
fn ends_before_it_is_one() {
    let mut on = Watched::new();
    on.program(Pid(1)).add();
    on.host.process(Pid(2)).state('Z').add();
    for pid in 1..=3 {
        on.started(Pid(pid), ms(0));
    }
    on.end(Pid(1));
    assert_eq!(on.look(ms(10)), []);
    assert_eq!((on.next_look(), on.watch.remembered()), (SCAN_PERIOD, 0));
}

/// Check that a VM that a program loads late is found by the look at all processes.
#[test]
fn embedded_late() {
    let mut on = Watched::new();
    on.program(PID).add();
    on.started(PID, ms(0));
    assert_eq!(on.look(ms(11_000)), []);
    on.program(PID).maps_libjvm().add();
    assert_eq!(on.next_look(), SCAN_PERIOD);
    assert_eq!(on.look(SCAN_PERIOD), [PID]);
}

/// Check that a JVM that is found by the look at all processes is no longer a candidate.
#[test]
fn found_by_the_scan_first() {
    let mut on = Watched::new();
    on.program(PID).add();
    on.started(PID, SCAN_PERIOD - ms(10));
    on.program(PID).maps_libjvm().add();
    assert_eq!(on.look(SCAN_PERIOD), [PID]);
    assert_eq!((on.next_look(), on.watch.remembered()), (SCAN_PERIOD * 2, 1));
}

/// Check that a new process with the pid of an old one is another JVM.
#[test]
fn reused_pid() {
    let mut on = Watched::new();
    on.program(PID).maps_libjvm().add();
    on.started(PID, ms(0));
    assert_eq!(on.look(ms(10)), [PID]);
    on.program(PID).start_time(9_999).maps_libjvm().add();
    on.started(PID, ms(100));
    assert_eq!(on.look(ms(110)), [PID]);
}

/// Check that a JVM that executes itself again in its own process, as Jenkins does to restart, is reported again, though pid
/// and start time stay; also where nobody told of it.
#[test]
fn jvm_that_executes_itself_again() {
    let mut on = Watched::new();
    on.program(PID).maps_libjvm().add();
    on.started(PID, ms(0));
    assert_eq!(on.look(ms(10)), [PID]);
    on.program(PID).stack(0x7ff1_0000_0000).add();
    on.started(PID, ms(100));
    assert_eq!(on.look(ms(110)), []);
    on.program(PID).stack(0x7ff1_0000_0000).maps_libjvm().add();
    assert_eq!(on.look(ms(120)), [PID]);
    on.program(PID).stack(0x7ff2_0000_0000).maps_libjvm().add();
    assert_eq!(on.look(SCAN_PERIOD), [PID]);
    assert_eq!(on.look(SCAN_PERIOD * 2), []);
}

/// Check that more programs than are kept bring a look at all processes within a second, which finds those left out;
/// and that it is brought forward once, not put off with each.
#[test]
fn more_than_are_kept() {
    let mut on = Watched::new();
    let beyond = u32::try_from(MAX_CANDIDATES).unwrap() + 100;
    for pid in 1..=beyond {
        on.started(Pid(pid), ms(u64::from(pid) / 100));
    }
    assert_eq!(on.watch.remembered(), MAX_CANDIDATES);
    on.program(Pid(beyond)).maps_libjvm().add();
    assert_eq!(on.look(ms(60)), [], "was a candidate");
    let scan = on.next_look();
    assert_eq!(scan, ms(40) + SCAN_WHEN_MISSED);
    assert_eq!(on.look(scan), [Pid(beyond)]);
    assert_eq!(on.watch.remembered(), 1);
}

/// Check that what is said to be missed is found within a second or so.
#[test]
fn missed() {
    let mut on = Watched::new();
    on.program(PID).maps_libjvm().add();
    on.watch.missed(on.began + ms(100));
    on.watch.missed(on.began + ms(200));
    assert_eq!(on.next_look(), ms(100) + SCAN_WHEN_MISSED);
    assert_eq!(on.look(ms(100) + SCAN_WHEN_MISSED), [PID]);
}

/// Check that a thousand JVMs that have come and gone leave nothing behind.
#[test]
fn forgets_those_that_ended() {
    let mut on = Watched::new();
    for round in 0..4 {
        let start = SCAN_PERIOD * round;
        let pids: Vec<Pid> = (1..=250).map(|n| Pid(round * 250 + n)).collect();
        for &pid in &pids {
            on.program(pid).maps_libjvm().add();
            on.started(pid, start);
        }
        assert_eq!(on.look(start + FIRST_PAUSE), pids);
        pids.into_iter().for_each(|pid| on.end(pid));
        assert_eq!(on.look(start + SCAN_PERIOD), []);
        assert_eq!(on.watch.remembered(), 0);
    }
}
