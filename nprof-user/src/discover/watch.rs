//! Notices JVMs that start, from the news of programs that start.
//!
//! A program is no JVM when it begins: the launcher first finds the VM's library, perhaps executes itself again, and maps it
//! tens of milliseconds later. So each is looked at again, soon at first, then ever more rarely, and given up after
//! [`GIVE_UP_AFTER`]. Most programs end soon or have one thread, and no VM has one: that is asked first, and mostly enough. A look
//! at all processes every [`SCAN_PERIOD`] finds what this misses: VMs that a program loads late or in a child that it forks, and
//! starts that nobody told of.
//!
//! Time and `/proc` come in from outside: nothing here waits.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

use super::at_once::at_once;
use super::kind::maps_a_vm;
use super::process::Program;
use super::{Error, Proc};
use crate::model::{Jvm, Pid};

/// The first look at a program that has started.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest time from one look at a program to the next: half of the second within which a JVM is noticed.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a program is expected to become a JVM.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// Where looks are so far apart they are at multiples of this: those at many programs share a wake-up.
const SHARED_WAKE_UP: Duration = Duration::from_millis(100);
/// From one look at all processes to the next.
pub(super) const SCAN_PERIOD: Duration = Duration::from_secs(30);
/// How soon all processes are looked at when starts were missed. Not at once: the VM takes its time.
pub(super) const SCAN_WHEN_MISSED: Duration = Duration::from_secs(1);
/// Programs that are waited for at a time. Each takes some tens of bytes, and a look some tens of microseconds.
pub(super) const MAX_CANDIDATES: usize = 4096;

/// The programs that may become JVMs, and the JVMs that have been found.
///
/// Its state is bounded by the processes that are there, not by those that have been.
#[derive(Debug)]
pub struct JvmWatch {
    /// From when on shared wake-ups are counted.
    began: Instant,
    candidates: HashMap<Pid, Candidate>,
    /// When to look at each candidate; in step with `candidates`.
    looks: BTreeSet<(Instant, Pid)>,
    next_scan: Instant,
    /// The JVMs that have been reported, as long as their processes are there.
    reported: HashMap<Pid, Program>,
}

/// A program that may become a JVM.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    started: Instant,
    next_look: Instant,
}

/// What a look at one process found.
enum Found {
    /// A JVM that has not been reported.
    New(Box<Jvm>, Program),
    /// One that has.
    Known,
    /// Not a JVM, as yet.
    Nothing,
    /// No process, or one that may not be looked into.
    Gone,
}

impl JvmWatch {
    /// A watch that begins with a look at all processes, at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let (candidates, looks) = (HashMap::new(), BTreeSet::new());
        Self { began: now, candidates, looks, next_scan: now, reported: HashMap::new() }
    }

    /// Takes the news that a process has begun to run a program, at `now` or shortly before.
    pub fn candidate(&mut self, pid: Pid, now: Instant) {
        self.drop_candidate(pid);
        if self.candidates.len() < MAX_CANDIDATES {
            self.schedule(pid, Candidate { started: now, next_look: now + FIRST_PAUSE });
        } else {
            tracing::debug!("process {pid} is not watched: {MAX_CANDIDATES} others are");
            self.missed(now);
        }
    }

    /// Takes the news that programs have started that nobody can name: all processes are looked at soon. However often
    /// this is said, that is not put off, and not done more than once a second.
    pub fn missed(&mut self, now: Instant) {
        let soon = now + SCAN_WHEN_MISSED;
        if self.next_scan > soon {
            tracing::debug!("all processes are looked at in {SCAN_WHEN_MISSED:?}, as starts of programs were missed");
            self.next_scan = soon;
        }
    }

    /// When to look next. There always is a time; it changes with each candidate and each look.
    #[must_use]
    pub fn next_look(&self) -> Instant {
        self.looks.first().map_or(self.next_scan, |&(at, _)| at.min(self.next_scan))
    }

    /// Whether a look has to be had at `now`. Programs that have ended or have one thread need none: that is asked here, in a few
    /// microseconds, and other than a look it never waits for the process.
    pub fn must_look(&mut self, proc: &Proc, now: Instant) -> bool {
        for pid in self.take_due(now) {
            match proc.process(pid).has_one_thread() {
                Ok(true) => self.judge_candidate(pid, Found::Nothing, now, &mut Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => drop(self.candidates.remove(&pid)),
                Ok(false) | Err(_) => self.put_back(pid, now),
            }
        }
        self.next_look() <= now
    }

    /// Looks at what is due, and returns the JVMs that have appeared since the last look: each once, whatever its kind.
    /// (Native images are not among them: they have no VM to read.) One whose process runs another program and then a
    /// VM again is a new one; its pid and its start time are the old one's.
    ///
    /// A JVM may be reported so early that its VM cannot be read yet.
    pub fn look(&mut self, proc: &Proc, now: Instant) -> Vec<Jvm> {
        let mut new = Vec::new();
        let due = self.take_due(now);
        let found = at_once(due, || (), |(), pid| (pid, self.find(proc, pid)));
        for (pid, found) in found {
            self.judge_candidate(pid, found, now, &mut new);
        }
        if now >= self.next_scan {
            self.next_scan = now + SCAN_PERIOD;
            if let Err(error) = self.scan(proc, &mut new) {
                tracing::warn!("JVMs that start may be missed: {error}");
            }
        }
        new
    }

    /// How many processes are remembered, as candidates and as JVMs: what the memory that this takes is in proportion to.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.candidates.len() + self.reported.len()
    }

    /// The candidates whose time has come. They stay candidates, with the look taken off the schedule.
    fn take_due(&mut self, now: Instant) -> Vec<Pid> {
        let mut due = Vec::new();
        while let Some(&(at, pid)) = self.looks.first()
            && at <= now
        {
            self.looks.pop_first();
            due.push(pid);
        }
        due
    }

    /// One that was due stays so.
    fn put_back(&mut self, pid: Pid, now: Instant) {
        if let Some(candidate) = self.candidates.remove(&pid) {
            self.schedule(pid, Candidate { next_look: now, ..candidate });
        }
    }

    fn judge_candidate(&mut self, pid: Pid, found: Found, now: Instant, new: &mut Vec<Jvm>) {
        let Some(candidate) = self.candidates.remove(&pid) else { return };
        match found {
            Found::New(jvm, program) => self.report(*jvm, program, new),
            Found::Known | Found::Gone => {}
            Found::Nothing => {
                let age = now.saturating_duration_since(candidate.started);
                if age < GIVE_UP_AFTER {
                    // As long again as it has run: at 10, 20, 40, 80, ... milliseconds.
                    let pause = age.clamp(FIRST_PAUSE, LONGEST_PAUSE);
                    let next_look = if pause < SHARED_WAKE_UP { now + pause } else { self.shared(now + pause) };
                    self.schedule(pid, Candidate { next_look, ..candidate });
                }
            }
        }
    }

    /// The last moment until `at` that others share.
    fn shared(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.began).as_nanos() % SHARED_WAKE_UP.as_nanos();
        at.checked_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(0))).unwrap_or(at)
    }

    /// Looks at all processes, and forgets JVMs whose processes have ended.
    fn scan(&mut self, proc: &Proc, new: &mut Vec<Jvm>) -> Result<(), Error> {
        for (pid, found) in at_once(proc.pids()?, || (), |(), pid| (pid, self.find(proc, pid))) {
            if let Found::New(jvm, program) = found {
                self.drop_candidate(pid);
                self.report(*jvm, program, new);
            }
        }
        self.reported.retain(|&pid, program| proc.start_time(pid).is_ok_and(|start| start == program.start_time));
        Ok(())
    }

    /// Looks at one process. Where there is no VM this costs one question, or one read of a program with several threads, and one that
    /// is known costs a short read.
    fn find(&self, proc: &Proc, pid: Pid) -> Found {
        let process = proc.process(pid);
        if process.has_one_thread().is_ok_and(|has_one| has_one) {
            return Found::Nothing;
        }
        let is_known = |program: &Program| self.reported.get(&pid) == Some(program);
        if self.reported.contains_key(&pid) && process.program().is_ok_and(|program| is_known(&program)) {
            return Found::Known;
        }
        match process.maps() {
            // Not even its own code: it has ended and waits to be collected, or it is a thread of the kernel.
            Ok(maps) if maps.is_empty() => return Found::Gone,
            Ok(maps) if maps_a_vm(&maps) => {}
            Ok(_) => return Found::Nothing,
            Err(Error::NoSuchProcess { .. } | Error::PermissionDenied { .. }) => return Found::Gone,
            Err(_) => return Found::Nothing,
        }
        let Ok(program) = process.program() else { return Found::Gone };
        if is_known(&program) {
            return Found::Known;
        }
        match proc.jvm(pid) {
            // What was read in between must be of one program.
            Ok(jvm) if process.program().is_ok_and(|after| after == program) => Found::New(Box::new(jvm), program),
            Err(error) if error.is_gone() => Found::Gone,
            Ok(_) | Err(_) => Found::Nothing,
        }
    }

    fn report(&mut self, jvm: Jvm, program: Program, new: &mut Vec<Jvm>) {
        self.reported.insert(jvm.pid, program);
        new.push(jvm);
    }

    fn schedule(&mut self, pid: Pid, candidate: Candidate) {
        self.looks.insert((candidate.next_look, pid));
        self.candidates.insert(pid, candidate);
    }

    fn drop_candidate(&mut self, pid: Pid) {
        if let Some(candidate) = self.candidates.remove(&pid) {
            self.looks.remove(&(candidate.next_look, pid));
        }
    }
}
