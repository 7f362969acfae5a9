//! Keeps what telling costs a JVM within a share of its CPU time: methods that are called too often are to tell no more.
//!
//! What is counted is what threads have told, so calls outside of entry methods, which cost less, are not in it.

use std::time::{Duration, Instant};

use crate::model::{Pid, TreeEvent, TreeEventKind, TreeMethod};
use crate::sys::cpu_clock::CpuClock;

/// What a thread takes to tell one thing, in nanoseconds: up to twice what `cargo xtask bench trees` finds, since other machines read their
/// counter more slowly, and code around it is compiled worse than in a benchmark.
const EVENT_NS: f64 = 20.0;
/// How long the budget is added up before it is looked at, unless it is spent before that.
const WINDOW: Duration = Duration::from_millis(100);
/// A JVM is taken to use so many cores at least, as by the governor.
const LEAST_CORES: f64 = 0.1;
/// What is left is to take so much of the budget: who is just within it would soon be over it again.
const ROOM: f64 = 0.7;

/// What a JVM may be cost, and has been cost since the last look.
#[derive(Debug)]
pub(super) struct Budget {
    share: f64,
    clock: CpuClock,
    since: Instant,
    cpu: Duration,
    told: Vec<u64>,
}

impl Budget {
    /// With so many methods.
    pub(super) fn new(pid: Pid, share: f64, methods: usize) -> Self {
        let clock = CpuClock::of(pid);
        let cpu = clock.read().unwrap_or_default();
        Self { share, clock, since: Instant::now(), cpu, told: vec![0; methods] }
    }

    /// A thread has told something, or had no room to.
    pub(super) fn add(&mut self, event: &TreeEvent) {
        let events = if let TreeEventKind::Lost(lost) = event.kind { lost } else { 1 };
        if let Some(told) = usize::try_from(event.method).ok().and_then(|method| self.told.get_mut(method)) {
            *told = told.saturating_add(events);
        }
    }

    /// The methods that are to tell no more, if it is time to look. Threads that are in one of those that were `silenced` before tell until they
    /// leave it.
    pub(super) fn too_expensive(&mut self, methods: &[TreeMethod], silenced: &[u32]) -> Vec<u32> {
        let length = self.since.elapsed();
        for &method in silenced {
            self.told.get_mut(method as usize).into_iter().for_each(|told| *told = 0);
        }
        let told: u64 = self.told.iter().sum();
        let is_over = length >= WINDOW;
        if !is_over && told as f64 * EVENT_NS <= self.allowed_ns(WINDOW, Duration::ZERO) {
            return Vec::new();
        }
        let now = self.clock.read().unwrap_or(self.cpu);
        let allowed_ns = self.allowed_ns(length.max(WINDOW), now.saturating_sub(self.cpu));
        if !is_over && told as f64 * EVENT_NS <= allowed_ns {
            return Vec::new();
        }
        let is_fixed = |method: usize| methods.get(method).is_none_or(|method| method.is_entry);
        let excess = excess(&self.told, is_fixed, allowed_ns / EVENT_NS);
        (self.since, self.cpu) = (Instant::now(), now);
        self.told.fill(0);
        excess
    }

    /// What may be spent in a time in which the JVM has used so much CPU time.
    fn allowed_ns(&self, length: Duration, cpu: Duration) -> f64 {
        self.share * length.mul_f64(LEAST_CORES).max(cpu).as_secs_f64() * 1e9
    }
}

/// The methods that told most, as many as it takes for the rest to be within the budget.
fn excess(told: &[u64], is_fixed: impl Fn(usize) -> bool, most: f64) -> Vec<u32> {
    let mut left: u64 = told.iter().sum();
    if left as f64 <= most {
        return Vec::new();
    }
    let mut methods: Vec<(usize, u64)> = told.iter().copied().enumerate().collect();
    methods.retain(|&(method, told)| told > 0 && !is_fixed(method));
    methods.sort_by_key(|&(method, told)| (std::cmp::Reverse(told), method));
    let mut excess = Vec::new();
    for (method, told) in methods {
        if left as f64 <= most * ROOM {
            break;
        }
        left -= told;
        excess.extend(u32::try_from(method));
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that those that told most go first, no more of them than it takes, never entry methods, and none within the budget.
    #[test]
    fn who_tells_most_goes_first() {
        let told = [500, 10, 2_000, 0, 300, 2_000];
        let of = |most| excess(&told, |method| method == 0, most);
        assert_eq!(of(5_000.0), [0u32; 0]);
        assert_eq!(of(4_700.0), [2]);
        assert_eq!(of(1_500.0), [2, 5]);
        assert_eq!(of(100.0), [2, 5, 4, 1]);
    }

    /// Check that a burst is noticed before its time is over, that what was lost counts, and that a new time begins after a look.
    #[test]
    fn a_burst_is_noticed() {
        let entry = TreeMethod {
            class: "A".into(),
            method: "a".into(),
            signature: "()V".into(),
            kind: crate::model::TreeKind::Java,
            is_entry: true,
            depth: 0,
            callers: Vec::new(),
        };
        let methods = [entry.clone(), TreeMethod { is_entry: false, ..entry }];
        // Of a process that does not exist, which uses no CPU time.
        let mut budget = Budget::new(Pid(u32::MAX), 0.05, methods.len());
        let event = |kind| TreeEvent { thread: crate::model::TreeThread::Platform(1), at_ns: 0, method: 1, kind };
        budget.add(&event(TreeEventKind::Enter));
        assert_eq!(budget.too_expensive(&methods, &[]), [0u32; 0]);
        budget.add(&event(TreeEventKind::Lost(1_000_000_000)));
        assert_eq!(budget.too_expensive(&methods, &[]), [1]);
        budget.add(&event(TreeEventKind::Lost(1_000_000_000)));
        assert_eq!(budget.too_expensive(&methods, &[1]), [0u32; 0]);
        budget.add(&event(TreeEventKind::Return));
        assert_eq!(budget.too_expensive(&methods, &[]), [0u32; 0]);
    }
}
