//! Which threads of a target run, and where: it is asked at each look, and to ask hundreds of threads takes milliseconds.
//!
//! Most threads of a large program wait for long. So all are asked now and then, and in between those that ran when they were asked last:
//! only if none of these runs, all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use procfs::process::{Process, Task};

use crate::model::Pid;

/// The most threads of a target that are asked.
const THREADS: usize = 256;
/// Of so many, all are asked each time.
const FEW: usize = 32;
/// All are asked once in so many times.
const ALL_EVERY: u32 = 16;

/// The threads of a target that run, as far as is known.
#[derive(Debug)]
pub struct Runners {
    target: Pid,
    lately: Mutex<Lately>,
}

/// What came of the last question to all.
#[derive(Debug, Default)]
struct Lately {
    ran: Vec<i32>,
    /// So many questions may be put to those alone.
    left: u32,
}

impl Runners {
    /// Of a target of which nothing is known.
    #[must_use]
    pub fn of(target: Pid) -> Self {
        Self { target, lately: Mutex::default() }
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> Pid {
        self.target
    }

    /// The CPUs on which threads run, or which they wait for.
    pub(super) fn cpus(&self) -> Vec<usize> {
        let mut lately = self.lately();
        let process = i32::try_from(self.target.0).ok().and_then(|pid| Process::new(pid).ok());
        let Some(process) = process else { return Vec::new() };
        if lately.left > 0 {
            lately.left -= 1;
            let tasks = lately.ran.iter().filter_map(|tid| process.task_from_tid(*tid).ok());
            let cpus: Vec<usize> = running(tasks).map(|(_, cpu)| cpu).collect();
            if !cpus.is_empty() {
                return cpus;
            }
        }
        let tasks: Vec<Task> = process.tasks().into_iter().flatten().flatten().take(THREADS).collect();
        let left = if tasks.len() > FEW { ALL_EVERY - 1 } else { 0 };
        let (ran, cpus) = running(tasks.into_iter()).unzip();
        *lately = Lately { ran, left };
        cpus
    }

    /// Whether a thread runs, or would if there were a CPU for it.
    #[must_use]
    pub fn want_a_cpu(&self) -> bool {
        !self.cpus().is_empty()
    }

    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks that run, and where.
fn running(tasks: impl Iterator<Item = Task>) -> impl Iterator<Item = (i32, usize)> {
    let stats = tasks.filter_map(|task| Some((task.tid, task.stat().ok()?)));
    let running = stats.filter(|(_, stat)| stat.state == 'R');
    running.filter_map(|(tid, stat)| Some((tid, usize::try_from(stat.processor?).ok()?)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Check that a thread which runs is seen where it runs, and none of a process that there is not.
    #[test]
    fn finds_who_runs() {
        let me = Runners::of(Pid(std::process::id()));
        assert!(me.want_a_cpu());
        assert!(!me.cpus().is_empty());
        let nobody = Runners::of(Pid(u32::MAX));
        assert!(nobody.cpus().is_empty() && !nobody.want_a_cpu());
    }

    /// Check that of many threads those that ran are asked in between, and all every so often and when none of those runs.
    #[test]
    fn all_are_asked_now_and_then() {
        let me = Runners::of(Pid(std::process::id()));
        let (ends, waits): (Vec<_>, Vec<_>) = (0..=FEW).map(|_| channel::<()>()).unzip();
        let threads: Vec<_> = waits.into_iter().map(|wait| thread::spawn(move || wait.recv().is_err())).collect();
        for _ in 0..2 {
            for left in (0..ALL_EVERY).rev() {
                assert!(me.want_a_cpu());
                assert_eq!(me.lately().left, left);
            }
        }
        me.lately().left = 1;
        me.lately().ran.clear();
        assert!(me.want_a_cpu());
        assert_eq!(me.lately().left, ALL_EVERY - 1);
        drop(ends);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    }
}
