//! What tracing has cost a JVM.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::govern::Dearer;
use crate::model::{MeanTime, Unseen};

/// What tracing has cost a JVM, estimated from the number of calls and the cost of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// In all.
    pub total: Duration,
    /// The CPU time that the JVM has used meanwhile, this cost included.
    pub cpu: Duration,
    /// The share of the JVM's time, lately.
    pub share: f64,
    /// Functions that are not traced as was asked for, or were not until the user switched them off, with their calls per second when that
    /// was decided, and why.
    pub demoted: BTreeMap<u32, (f64, String)>,
    /// How often a function was demoted, and how often one was promoted again.
    pub changes: [u64; 2],
    /// What functions did while they were detached, as far as looks at them tell.
    pub unseen: BTreeMap<u32, Unseen>,
    /// The mean time of calls that were only counted, as far as looks tell.
    pub means: BTreeMap<u32, MeanTime>,
    /// In which share of the time of these threads did not run, as far as looks tell.
    pub waited: BTreeMap<u32, f64>,
    /// How many times as much as in a loop calls have cost.
    pub dearer: Dearer,
    /// Whether it is not counted any more what threads ask allocators for, since that cost too much.
    pub allocations_end: bool,
}

impl Default for Spent {
    /// Nothing yet.
    fn default() -> Self {
        Self {
            total: Duration::ZERO,
            cpu: Duration::ZERO,
            share: 0.0,
            demoted: BTreeMap::new(),
            changes: [0; 2],
            unseen: BTreeMap::new(),
            means: BTreeMap::new(),
            waited: BTreeMap::new(),
            dearer: Dearer::default(),
            allocations_end: false,
        }
    }
}

impl Spent {
    /// What a function did while nobody watched, as far as looks tell. Where it is known of calls how long their threads ran
    /// (`off_cpu`), that is not longer than all threads of the JVM have run. What is settled stays: it only grows, and this bound may fall
    /// when a look finds that calls wait less.
    #[must_use]
    pub fn unseen_of(&self, index: u32, off_cpu: bool) -> Option<Unseen> {
        let unseen = *self.unseen.get(&index)?;
        let ran = 1.0 - self.waited.get(&index).copied().unwrap_or(0.0);
        if !off_cpu || ran <= 0.0 {
            return Some(unseen);
        }
        let most_ns = Duration::try_from_secs_f64(self.cpu.as_secs_f64() / ran).map_or(u64::MAX, whole_ns);
        let total_ns = unseen.total_ns.min(most_ns);
        // The truth lies between nothing and that.
        let farthest_ns = total_ns.max(most_ns - total_ns);
        Some(Unseen { total_ns, error_ns: unseen.error_ns.map(|ns| ns.min(farthest_ns)), ..unseen })
    }
}

fn whole_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Settled;

    /// Check that a function is not said to have run for longer than the JVM did, though its calls may have waited longer.
    #[test]
    fn nothing_runs_for_longer_than_the_jvm() {
        let settled = Settled { calls: 8, total_ns: 5_000 };
        let unseen = Unseen { calls: 10, total_ns: 6_000, error_ns: Some(9_000), settled, ..Unseen::default() };
        let spent = |cpu_ns, waited| Spent {
            cpu: Duration::from_nanos(cpu_ns),
            unseen: BTreeMap::from([(7, unseen)]),
            waited: BTreeMap::from([(7, waited)]),
            ..Spent::default()
        };
        let total_ns = |spent: Spent, off_cpu| spent.unseen_of(7, off_cpu).unwrap().total_ns;
        assert_eq!(total_ns(spent(4_000, 0.0), true), 4_000);
        assert_eq!(spent(4_000, 0.0).unseen_of(7, true).unwrap().settled, settled, "a counter may not fall");
        assert_eq!(total_ns(spent(4_000, 0.2), true), 5_000);
        let errors = [4_000, 8_000, 90_000].map(|cpu_ns| spent(cpu_ns, 0.0).unseen_of(7, true).unwrap().error_ns);
        assert_eq!(errors, [Some(4_000), Some(6_000), Some(9_000)]);
        assert_eq!(
            [(1.0, true), (0.5, true), (0.0, false)].map(|(waited, known)| total_ns(spent(4_000, waited), known)),
            [6_000; 3]
        );
        assert_eq!(spent(4_000, 0.0).unseen_of(8, true), None);
    }
}
