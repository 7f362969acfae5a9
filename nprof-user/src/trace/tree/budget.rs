//! Keeps what telling costs a JVM within a share of its CPU time: methods that are called too often are to tell no more.
//!
//! What is counted is what threads have told, and the calls of which they tell nothing, since they are outside of entry methods: these
//! cost less, but may be many.

use std::time::{Duration, Instant};

use nprof_common::tree::{Event, EventKind, TASKS};

use crate::model::{Pid, TreeMethod};
use crate::sys::cpu_clock::CpuClock;

/// What a thread takes to tell one thing, in nanoseconds: up to twice what `cargo xtask bench trees` finds, since other machines read their
/// counter more slowly, and code around it is compiled worse than in a benchmark.
const EVENT_NS: f64 = 20.0;
/// What a call takes of which nothing is told, from its beginning to its end; likewise.
const UNTOLD_NS: f64 = 32.0;
/// Marking a task takes as long as so many of the former.
const MARK: u64 = 15;
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
    spent: Vec<Spent>,
    /// What has been told of tasks.
    tasks: Spent,
    untold: u64,
}

/// What a method has cost.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// So many times something was told of it.
    told: u64,
    /// So many calls were not told.
    untold: u64,
    /// So many of them until the last look.
    untold_before: u64,
}

impl Spent {
    fn ns(&self) -> f64 {
        self.told as f64 * EVENT_NS + self.untold as f64 * UNTOLD_NS
    }

    fn forget(&mut self) {
        (self.told, self.untold) = (0, 0);
    }
}

impl Budget {
    /// With so many methods.
    pub(super) fn new(pid: Pid, share: f64, methods: usize) -> Self {
        let clock = CpuClock::of(pid);
        let cpu = clock.read().unwrap_or_default();
        Self {
            share,
            clock,
            since: Instant::now(),
            cpu,
            spent: vec![Spent::default(); methods],
            tasks: Spent::default(),
            untold: 0,
        }
    }

    /// A thread has told something, or had no room to.
    pub(super) fn add(&mut self, event: &Event) {
        let events = match event.kind {
            EventKind::Lost => event.detail,
            EventKind::Handed => MARK,
            _ => 1,
        };
        if let Some(spent) = self.of(event.method) {
            spent.told = spent.told.saturating_add(events);
        }
    }

    fn of(&mut self, method: u32) -> Option<&mut Spent> {
        if method == TASKS { Some(&mut self.tasks) } else { self.spent.get_mut(method as usize) }
    }

    /// So many calls were not told until now, of all methods and of each.
    pub(super) fn untold(&mut self, all: u64, of: impl Fn(u32) -> u64) {
        if all == self.untold {
            return;
        }
        self.untold = all;
        let all = (0..).zip(&mut self.spent).chain([(TASKS, &mut self.tasks)]);
        for (method, spent) in all {
            let now = of(method);
            spent.untold = spent.untold.saturating_add(now.saturating_sub(spent.untold_before));
            spent.untold_before = now;
        }
    }

    /// The methods that are to tell no more, and perhaps [`TASKS`], if it is time to look. Threads that are in one of those that were `silenced` before tell until they
    /// leave it.
    pub(super) fn too_expensive(&mut self, methods: &[TreeMethod], silenced: &[u32]) -> Vec<u32> {
        let length = self.since.elapsed();
        for &method in silenced {
            self.of(method).into_iter().for_each(Spent::forget);
        }
        let ns: f64 = self.spent.iter().chain([&self.tasks]).map(Spent::ns).sum();
        let is_over = length >= WINDOW;
        if !is_over && ns <= self.allowed_ns(WINDOW, Duration::ZERO) {
            return Vec::new();
        }
        let now = self.clock.read().unwrap_or(self.cpu);
        let allowed_ns = self.allowed_ns(length.max(WINDOW), now.saturating_sub(self.cpu));
        if !is_over && ns <= allowed_ns {
            return Vec::new();
        }
        let is_fixed = |method: usize| methods.get(method).is_some_and(|method| method.is_entry);
        let spent: Vec<f64> = self.spent.iter().chain([&self.tasks]).map(Spent::ns).collect();
        let number = |place: u32| if place as usize == self.spent.len() { TASKS } else { place };
        let excess = excess(&spent, is_fixed, allowed_ns).into_iter().map(number).collect();
        (self.since, self.cpu) = (Instant::now(), now);
        self.spent.iter_mut().chain([&mut self.tasks]).for_each(Spent::forget);
        excess
    }

    /// What may be spent in a time in which the JVM has used so much CPU time.
    fn allowed_ns(&self, length: Duration, cpu: Duration) -> f64 {
        self.share * length.mul_f64(LEAST_CORES).max(cpu).as_secs_f64() * 1e9
    }
}

/// The methods that cost most, as many as it takes for the rest to be within the budget.
fn excess(spent: &[f64], is_fixed: impl Fn(usize) -> bool, most: f64) -> Vec<u32> {
    let mut left: f64 = spent.iter().sum();
    if left <= most {
        return Vec::new();
    }
    let mut methods: Vec<(usize, f64)> = spent.iter().copied().enumerate().collect();
    methods.retain(|&(method, spent)| spent > 0.0 && !is_fixed(method));
    methods.sort_by(|(method, spent), (other, more)| more.total_cmp(spent).then(method.cmp(other)));
    let mut excess = Vec::new();
    for (method, spent) in methods {
        if left <= most * ROOM {
            break;
        }
        left -= spent;
        excess.extend(u32::try_from(method));
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that those that cost most go first, no more of them than it takes, never entry methods, and none within the budget.
    #[test]
    fn who_costs_most_goes_first() {
        let spent = [500.0, 10.0, 2_000.0, 0.0, 300.0, 2_000.0];
        let of = |most| excess(&spent, |method| method == 0, most);
        assert_eq!(of(5_000.0), [0u32; 0]);
        assert_eq!(of(4_700.0), [2]);
        assert_eq!(of(1_500.0), [2, 5]);
        assert_eq!(of(100.0), [2, 5, 4, 1]);
    }

    /// An entry method, and another one, in a process that does not exist, which uses no CPU time.
    fn budget_of_two() -> ([TreeMethod; 2], Budget) {
        let entry = TreeMethod {
            class: "A".into(),
            method: "a".into(),
            signature: "()V".into(),
            kind: crate::model::TreeKind::Java,
            is_entry: true,
            depth: 0,
            callers: Vec::new(),
            callee: None,
        };
        let methods = [entry.clone(), TreeMethod { is_entry: false, ..entry }];
        let budget = Budget::new(Pid(u32::MAX), 0.05, methods.len());
        (methods, budget)
    }

    /// Check that a burst is noticed before its time is over, that what was lost counts, and that a new time begins after a look.
    #[test]
    fn a_burst_is_noticed() {
        let (methods, mut budget) = budget_of_two();
        let event = |kind, detail| Event { ticks: 0, thread: 1, method: 1, kind, detail };
        budget.add(&event(EventKind::Enter, 0));
        assert_eq!(budget.too_expensive(&methods, &[]), [0u32; 0]);
        budget.add(&event(EventKind::Lost, 1_000_000_000));
        assert_eq!(budget.too_expensive(&methods, &[]), [1]);
        budget.add(&event(EventKind::Lost, 1_000_000_000));
        assert_eq!(budget.too_expensive(&methods, &[1]), [0u32; 0]);
        budget.add(&event(EventKind::Leave, 0));
        assert_eq!(budget.too_expensive(&methods, &[]), [0u32; 0]);
    }

    /// Check that calls of which nothing is told cost as well, each once.
    #[test]
    fn untold_calls_cost() {
        let (methods, mut budget) = budget_of_two();
        let many = 1_000_000_000;
        budget.untold(many, |method| if method == 1 { many } else { 0 });
        budget.untold(many, |_| unreachable!("nothing is new"));
        assert_eq!(budget.too_expensive(&methods, &[]), [1]);
        budget.untold(many + 1, |method| if method == 1 { many + 1 } else { 0 });
        assert_eq!(budget.too_expensive(&methods, &[]), [0u32; 0]);
        assert_eq!((budget.spent[1].untold, budget.spent[0].untold), (1, 0));
    }

    /// Check that what is told of tasks counts, marking one more than the rest, and that it can be done without.
    #[test]
    fn tasks_cost() {
        let (methods, mut budget) = budget_of_two();
        let tells = |kind| Event { ticks: 0, thread: 1, method: TASKS, kind, detail: u64::MAX };
        budget.add(&tells(EventKind::Handed));
        budget.add(&tells(EventKind::Begins));
        assert_eq!((budget.tasks.told, budget.spent[1].told), (MARK + 1, 0));
        budget.untold(1_000_000_000, |method| if method == TASKS { 1_000_000_000 } else { 0 });
        assert_eq!(budget.too_expensive(&methods, &[]), [TASKS]);
        assert_eq!(budget.too_expensive(&methods, &[TASKS]), [0u32; 0]);
    }
}
