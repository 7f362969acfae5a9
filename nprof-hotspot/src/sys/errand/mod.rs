//! System calls that a target can have wait for ever are errands: a runner makes them, a separate process that nprof
//! can give up.
//!
//! A page of a target may be backed by a file whose contents another program delivers (FUSE). Who reads it waits for that
//! program, and not even SIGKILL ends the wait: the thread keeps the whole process, its probes and its memory in place.
//! The same goes for opening, looking at, reading and closing such a file. A thread is therefore not enough.
//!
//! A runner that does not answer within a second and does not merely wait for a CPU is given up, and its target is held
//! back: not before the runner has ended, and then after a growing pause, is it tried again. So a target occupies one
//! runner at most.
#![expect(unsafe_code, reason = "a process that shares a piece of memory and makes raw system calls")]

mod desk;
mod raw;
mod runner;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::desk::{Desk, Place};
use self::runner::{Outcome, Runner, has_ended};
use crate::model::Pid;

/// Runners that are kept for later errands.
const KEPT: usize = 8;
/// Runners that may be stuck at a time, in all and for the processes of one user. One more could be one that the system
/// has no room for.
const STUCK: usize = 128;
const STUCK_PER_USER: usize = 32;
/// How long a target is held back at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Why an errand to a target was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrandError {
    /// It waited for something for too long.
    #[error("process {pid} does not let itself be read: what it has mapped or opened does not answer (such as FUSE)")]
    Stuck {
        /// The target.
        pid: Pid,
    },
    /// An earlier one did, and it is not tried again as yet.
    #[error("process {pid} has not let itself be read, and is left alone for now")]
    HeldBack {
        /// The target.
        pid: Pid,
    },
    /// Too many others wait.
    #[error(
        "process {pid} is not read: too many processes of its user {uid}, or of all, do not let themselves be read"
    )]
    Crowded {
        /// The target.
        pid: Pid,
        /// Whose it is.
        uid: u32,
    },
    /// No runner can be had.
    #[error("no process can be started to read process {pid}")]
    NoRunner {
        /// The target.
        pid: Pid,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// How many errands have gone wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Runners that were given up, so far.
    pub given_up: u64,
    /// Of these, those that wait still.
    pub waiting: usize,
}

/// A runner that was given up, or has been.
#[derive(Debug)]
struct Stuck {
    runner: Option<rustix::process::Pid>,
    uid: u32,
    /// When the target was started: its number may be another's later.
    started: Option<u64>,
    /// When it may be tried again.
    until: Instant,
    times: u32,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Runner>,
    stuck: HashMap<Pid, Stuck>,
    /// Runners whose targets have ended before them.
    orphans: Vec<rustix::process::Pid>,
    given_up: u64,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// Does an errand to `target`: `lay` puts it on the desk, `take` picks up what came of it.
pub(crate) fn run<L, T>(
    target: Pid,
    lay: impl FnOnce(&mut Desk) -> Option<L>,
    take: impl FnOnce(&Desk, L) -> T,
) -> Result<T, ErrandError> {
    let mut runner = lend(target)?;
    runner.desk.clear();
    let Some(laid) = lay(&mut runner.desk) else {
        give_back(runner);
        return Err(ErrandError::NoRunner { pid: target, source: io::ErrorKind::InvalidInput.into() });
    };
    match runner.run() {
        Outcome::Done => {
            let taken = take(&runner.desk, laid);
            give_back(runner);
            Ok(taken)
        }
        Outcome::Stuck => {
            pool(|pool| pool.give_up(target, runner));
            Err(ErrandError::Stuck { pid: target })
        }
        Outcome::Gone => {
            // Not waited for: nobody knows what became of it.
            pool(|pool| pool.orphans.push(runner.give_up()));
            let source = io::Error::from(io::ErrorKind::BrokenPipe);
            Err(ErrandError::NoRunner { pid: target, source })
        }
    }
}

/// How many runners were given up, and how many of them wait still.
#[must_use]
pub fn tally() -> Tally {
    pool(|pool| {
        pool.collect();
        Tally { given_up: pool.given_up, waiting: pool.waiting() }
    })
}

fn lend(target: Pid) -> Result<Runner, ErrandError> {
    let idle = pool(|pool| {
        pool.admit(target)?;
        Ok(pool.idle.pop())
    })?;
    // Not under the lock: starting one takes a moment.
    idle.map_or_else(Runner::start, Ok).map_err(|source| ErrandError::NoRunner { pid: target, source })
}

fn give_back(runner: Runner) {
    let surplus = pool(|pool| {
        if pool.idle.len() >= KEPT {
            return Some(runner);
        }
        pool.idle.push(runner);
        None
    });
    if let Some(runner) = surplus {
        runner.end();
    }
}

fn pool<T>(f: impl FnOnce(&mut Pool) -> T) -> T {
    // Whoever panicked here left the lists as they were.
    let mut pool: MutexGuard<'_, Option<Pool>> = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    f(pool.get_or_insert_default())
}

impl Pool {
    /// Whether an errand to `target` may be begun.
    fn admit(&mut self, target: Pid) -> Result<(), ErrandError> {
        if self.stuck.is_empty() && self.orphans.is_empty() {
            return Ok(());
        }
        self.collect();
        let now = Instant::now();
        if let Some(stuck) = self.stuck.get(&target).filter(|stuck| stuck.runner.is_some() || now < stuck.until) {
            if stuck.started == start_time(target) {
                return Err(ErrandError::HeldBack { pid: target });
            }
            // Another process has the number by now.
            self.orphans.extend(self.stuck.remove(&target).and_then(|stuck| stuck.runner));
        }
        let uid = owner(target);
        let of_user = self.stuck.values().filter(|stuck| stuck.runner.is_some() && Some(stuck.uid) == uid).count();
        if self.waiting() >= STUCK || of_user >= STUCK_PER_USER {
            return Err(ErrandError::Crowded { pid: target, uid: uid.unwrap_or_default() });
        }
        Ok(())
    }

    fn give_up(&mut self, target: Pid, runner: Runner) {
        self.given_up += 1;
        let times = self.stuck.get(&target).map_or(0, |stuck| stuck.times);
        let pause = FIRST_PAUSE.saturating_mul(1 << times.min(16)).min(LONGEST_PAUSE);
        tracing::debug!("process {target} does not let itself be read; it is left alone for {pause:?} at least");
        let stuck = Stuck {
            runner: Some(runner.give_up()),
            uid: owner(target).unwrap_or_default(),
            started: start_time(target),
            until: Instant::now() + pause,
            times: times + 1,
        };
        self.orphans.extend(self.stuck.insert(target, stuck).and_then(|stuck| stuck.runner));
    }

    /// Takes note of runners that have ended, and forgets targets that have.
    fn collect(&mut self) {
        self.orphans.retain(|runner| !has_ended(*runner));
        for stuck in self.stuck.values_mut() {
            stuck.runner = stuck.runner.filter(|runner| !has_ended(*runner));
        }
        self.stuck.retain(|target, stuck| stuck.runner.is_some() || owner(*target).is_some());
    }

    fn waiting(&self) -> usize {
        self.orphans.len() + self.stuck.values().filter(|stuck| stuck.runner.is_some()).count()
    }
}

/// Who owns a process: of the kernel's own file, which never has anybody wait.
fn owner(target: Pid) -> Option<u32> {
    std::fs::metadata(format!("/proc/{target}")).ok().map(|found| found.uid())
}

fn start_time(target: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{target}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An errand that takes `seconds`, and what the kernel says to it.
    fn sleep(target: Pid, seconds: u64) -> Result<io::Result<u64>, ErrandError> {
        let lay = |desk: &mut Desk| {
            let time = desk.put(&[seconds.to_le_bytes(), [0; 8]].concat())?;
            let time = desk.address(time);
            Some(desk.step(libc::SYS_nanosleep, [time, 0, 0, 0, 0, 0]))
        };
        run(target, lay, |desk, step| desk.result(step))
    }

    /// Check that what does not answer is given up and held back, that others are served meanwhile, and that the number
    /// is free again for another process.
    #[test]
    fn gives_up_and_holds_back() {
        let [stuck, other] = [(); 2].map(|()| std::process::Command::new("sleep").arg("1000").spawn().unwrap());
        let [target, served] = [&stuck, &other].map(|child| Pid(child.id()));
        let before = tally().given_up;
        assert!(matches!(sleep(target, 1000), Err(ErrandError::Stuck { pid }) if pid == target));
        assert!(matches!(sleep(target, 0), Err(ErrandError::HeldBack { .. })));
        assert!(sleep(served, 0).unwrap().is_ok());
        assert!(tally().given_up > before);
        for mut child in [stuck, other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // Whoever waits for nothing outside of the kernel has ended at once.
        let patience = Instant::now() + Duration::from_secs(60);
        while tally().waiting > 0 {
            assert!(Instant::now() < patience, "{:?}", tally());
            std::thread::yield_now();
        }
    }

    /// Check that steps pass on what they opened, that none is made behind one that fails, and that what was opened is
    /// closed all the same.
    #[test]
    fn steps_follow_each_other() {
        let own = Pid(std::process::id());
        let read = |path: &std::ffi::CStr| {
            let lay = |desk: &mut Desk| {
                let path = desk.put(path.to_bytes_with_nul())?;
                let found = desk.reserve(8)?;
                let at = libc::AT_FDCWD as u64;
                let opened = desk.step(libc::SYS_openat, [at, desk.address(path), 0, 0, 0, 0]);
                let read = desk.step_with(opened, libc::SYS_read, [0, desk.address(found), 8, 0, 0, 0]);
                desk.close(opened);
                Some((read, found))
            };
            run(own, lay, |desk, (read, found)| {
                let mut bytes = [1; 8];
                desk.copy_to(found, &mut bytes);
                desk.result(read).map(|read| (read, bytes))
            })
        };
        assert_eq!(read(c"/dev/zero").unwrap().unwrap(), (8, [0; 8]));
        assert_eq!(read(c"/dev/null").unwrap().unwrap().0, 0);
        assert_eq!(read(c"/no/such/file").unwrap().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert_eq!(read(c"/").unwrap().unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    /// Check that a runner holds neither files nor memory of nprof's.
    #[test]
    fn a_runner_holds_nothing() {
        let kept = vec![7_u8; 32 << 20];
        let runner = Runner::start().unwrap();
        assert_eq!(runner.run(), Outcome::Done);
        let process = format!("/proc/{}", runner.pid.as_raw_nonzero());
        assert_eq!(std::fs::read_dir(format!("{process}/fd")).unwrap().count(), 1);
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let kilobytes: usize = anonymous.split_whitespace().next().unwrap().parse().unwrap();
        // What the loader has written to the data of files is all that is left.
        assert!(kilobytes << 10 < kept.len() / 8, "{status}");
        runner.end();
    }
}
