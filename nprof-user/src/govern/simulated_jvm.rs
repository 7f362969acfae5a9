//! A JVM for tests, in simulated time: functions that are called at rates which change, traced as its governor says.

use std::time::Duration;

use super::{Budget, By, Change, Costs, Glance, Governor, HowMany, Observed, Period, Rung, StubCosts};
use crate::model::{ProbeCost, StubPrice};

/// What tracing costs, calibrated and in truth.
pub(super) const COSTS: Costs = Costs {
    timed_ns: [1_000.0, 5_500.0],
    counted_ns: [500.0, 5_000.0],
    off_ns: [450.0, 4_900.0],
    cool: [1.0; 2],
    stub: StubCosts { price: STUB, timed: HowMany::ByRung, gap_ns: 0.0 },
};

/// What stubs cost.
pub(super) const STUB: StubPrice = StubPrice {
    off_ns: 0.5,
    counted_ns: 1.75,
    passed_ns: 2.0,
    timed_ns: 28.0,
    inside_ns: 0.0,
    inside_error_ns: 0.0,
    cool: 1.0,
    cold_ns: 0.0,
};

/// How finely time runs. Rates change at its multiples.
const STEP: Duration = Duration::from_millis(10);
/// How often the caller asks for looks, in steps.
const LOOKS_ASKED: u32 = 10;
/// How often the governor decides, in steps.
const PERIOD: u32 = 50;

/// How a function is called.
#[derive(Debug, Clone, Copy)]
pub(super) enum Calls {
    /// So often per second, whatever it costs.
    PerSecond(f64),
    /// By one thread that does nothing else. A call takes so many nanoseconds, without the cost of tracing.
    Loop(f64),
}

/// A traced function.
pub(super) struct Function {
    pub(super) by: By,
    pub(super) wanted: Rung,
    pub(super) tracing: Rung,
    calls: Box<dyn Fn(Duration) -> Calls>,
    /// Calls since the start that were not made yet, less than one.
    fraction: f64,
    seen: u64,
}

impl Function {
    /// A function that is to be timed, called as `calls` says for each moment.
    pub(super) fn new(cost: ProbeCost, calls: impl Fn(Duration) -> Calls + 'static) -> Self {
        let (by, calls) = (By::Probe(cost), Box::new(calls));
        Self { by, wanted: Rung::Timed, tracing: Rung::Timed, calls, fraction: 0.0, seen: 0 }
    }

    /// The same with a stub.
    pub(super) fn stubbed(calls: impl Fn(Duration) -> Calls + 'static) -> Self {
        Self { by: By::Stub, ..Self::new(ProbeCost::Emulated, calls) }
    }

    /// A function whose rate stays as it is.
    pub(super) fn steady(calls: Calls) -> Self {
        Self::new(ProbeCost::Emulated, move |_| calls)
    }

    /// Lets `STEP` pass in the state. Gives calls, own work and cost, times in nanoseconds.
    fn step(&mut self, now: Duration, tracing: Rung) -> (u64, f64, f64) {
        let cost = COSTS.of(tracing, self.by);
        let (calls, work) = match (self.calls)(now) {
            Calls::PerSecond(rate) => (rate * STEP.as_secs_f64(), 0.0),
            Calls::Loop(work) => (STEP.as_secs_f64() * 1e9 / (work + cost), work),
        };
        let calls = calls + self.fraction;
        self.fraction = calls.fract();
        #[expect(clippy::cast_possible_truncation, reason = "a step has few calls")]
        let whole = calls.trunc() as u64;
        (whole, calls.trunc() * work, calls.trunc() * cost)
    }
}

/// What truly happened in one period, and what the governor made of it.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// When it ended.
    pub(super) now: Duration,
    /// The JVM's own work and the cost of tracing, in nanoseconds.
    pub(super) own_ns: f64,
    pub(super) cost_ns: f64,
    /// The part of the cost that was for looks.
    pub(super) looks_ns: f64,
    /// How many looks there were.
    pub(super) looks: usize,
    /// What was decided at the end.
    pub(super) changes: Vec<Change>,
}

impl Passed {
    /// By what tracing slowed the JVM down.
    pub(super) fn slowdown(&self) -> f64 {
        self.cost_ns / self.own_ns
    }
}

/// The JVM and its governor.
pub(super) struct SimulatedJvm {
    pub(super) governor: Governor,
    pub(super) functions: Vec<Function>,
    /// How many cores are busy besides the calls of [`Calls::Loop`].
    pub(super) cores: f64,
    pub(super) now: Duration,
    /// The function that is looked at in the next step, and the calls that are seen.
    look: Option<(usize, u64)>,
    /// The calls that each function has made.
    pub(super) made: Vec<u64>,
}

impl SimulatedJvm {
    pub(super) fn new(budget: f64, cores: f64, functions: Vec<Function>) -> Self {
        let governor = Governor::new(COSTS, Some(Budget::once(budget)));
        let made = vec![0; functions.len()];
        Self { governor, functions, cores, now: Duration::ZERO, look: None, made }
    }

    /// Lets time pass until `seconds` after the start.
    pub(super) fn run_until(&mut self, seconds: u64) -> Vec<Passed> {
        let mut all = Vec::new();
        while self.now < Duration::from_secs(seconds) {
            all.push(self.period());
        }
        all
    }

    fn period(&mut self) -> Passed {
        let mut passed = Passed::default();
        for step in 1..=PERIOD {
            self.step(&mut passed);
            self.tell_of_look(&mut passed);
            if step == PERIOD {
                passed.changes = self.decide(&passed);
            }
            if step % LOOKS_ASKED == 0 {
                self.start_look();
            }
        }
        passed.now = self.now;
        passed
    }

    fn step(&mut self, passed: &mut Passed) {
        passed.own_ns += self.cores * STEP.as_secs_f64() * 1e9;
        for (id, function) in self.functions.iter_mut().enumerate() {
            let look = self.look.as_mut().filter(|look| look.0 == id);
            let is_counted = function.tracing.is_watched();
            let tracing = if look.is_some() { function.wanted } else { function.tracing };
            let (calls, own_ns, cost_ns) = function.step(self.now, tracing);
            passed.own_ns += own_ns;
            passed.cost_ns += cost_ns;
            self.made[id] += calls;
            if let Some(look) = look {
                look.1 += calls;
                passed.looks_ns += cost_ns;
            }
            if is_counted {
                function.seen += calls;
            }
        }
        self.now += STEP;
    }

    fn start_look(&mut self) {
        if let Some(id) = self.governor.due_looks().first().copied() {
            let id = id as usize;
            assert!(self.look.is_none(), "more than one look at a time");
            assert!(self.functions[id].tracing < self.functions[id].wanted && self.functions[id].by != By::Stub);
            self.look = Some((id, 0));
        }
    }

    fn tell_of_look(&mut self, passed: &mut Passed) {
        let Some((place, calls)) = self.look.take() else { return };
        let function = &mut self.functions[place];
        let glance = Glance { length: STEP, calls: vec![calls], is_timed: true, ..Glance::default() };
        function.tracing = self.governor.looked(self.now, id(place), &glance);
        assert!(function.tracing <= function.wanted);
        passed.looks += 1;
    }

    fn decide(&mut self, passed: &Passed) -> Vec<Change> {
        #[expect(clippy::cast_possible_truncation, reason = "a period is short")]
        let target_cpu = Duration::from_nanos((passed.own_ns + passed.cost_ns) as u64);
        let observed: Vec<Observed> = (0..)
            .zip(&mut self.functions)
            .map(|(id, function)| {
                let Function { by, wanted, tracing, .. } = *function;
                Observed { id, by, wanted, tracing, calls: std::mem::take(&mut function.seen) }
            })
            .collect();
        let period = Period { now: self.now, length: STEP * PERIOD, target_cpu };
        let changes = self.governor.decide(period, &observed);
        for change in &changes {
            let function = &mut self.functions[change.id as usize];
            assert!(change.to != function.tracing && change.to <= function.wanted, "{change:?}");
            function.tracing = change.to;
        }
        changes
    }
}

fn id(place: usize) -> u32 {
    u32::try_from(place).expect("few functions")
}
