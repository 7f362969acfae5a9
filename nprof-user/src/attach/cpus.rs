//! Which CPUs nprof works on, beside a target that runs.
//!
//! As long as who takes a probe away waited for a CPU, the target would run into the probe: so that comes before all that has no real-time
//! priority. But a thread of such priority wakes up on the CPU where it was, also if the target runs there and another CPU has nothing
//! to do: a thread of the target took a fifth longer for its work while its functions were looked at.

use std::panic::resume_unwind;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::runners::Runners;
use crate::sys::priority;

/// Does something before others, on a thread of its own, which is to wait most of the time.
pub fn before_others<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    on_its_own(|| {
        priority::raise_above_all();
        work()
    })
}

/// Does something on a thread of its own, and not where a target runs, as far as there is another CPU. Threads that it starts are kept from
/// there, too.
pub fn beside<T: Send>(target: &Runners, work: impl FnOnce(&Beside<'_>) -> T + Send) -> T {
    on_its_own(|| {
        let beside = Beside { target, all: sched_getaffinity(None).ok() };
        beside.step_aside();
        work(&beside)
    })
}

/// A thread that is not to be where a target runs.
#[derive(Debug)]
pub struct Beside<'a> {
    target: &'a Runners,
    /// The CPUs that the thread may use, if that is known.
    all: Option<CpuSet>,
}

impl Beside<'_> {
    /// Leaves the CPUs where the target runs at the moment.
    pub fn step_aside(&self) {
        let left = self.all.map(|all| sched_setaffinity(None, &without(all, &self.target.cpus())));
        if let Some(Err(error)) = left {
            tracing::debug!("process {}: its CPUs are not left to it: {error}", self.target.target());
        }
    }
}

fn on_its_own<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// All CPUs but some; all if there would be none.
fn without(all: CpuSet, some: &[usize]) -> CpuSet {
    let mut others = all;
    some.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| others.unset(*cpu));
    if others.count() == 0 { all } else { others }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    /// Check that the CPUs of others are left, and that all are used where there would be none.
    #[test]
    fn leaves_what_it_can() {
        let mut all = CpuSet::new();
        [0, 1, 5].into_iter().for_each(|cpu| all.set(cpu));
        let others = without(all, &[1, 2, usize::MAX]);
        assert!(others.is_set(0) && others.is_set(5) && others.count() == 2);
        assert_eq!(without(all, &[0, 1, 5]), all);
    }

    /// Check that a thread which has left CPUs may go back there as soon as the target does not run there.
    #[test]
    fn comes_back() {
        let all = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
        beside(&Runners::of(Pid(u32::MAX)), |beside| {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            beside.step_aside();
            assert_eq!(sched_getaffinity(None).unwrap(), all);
        });
    }
}
