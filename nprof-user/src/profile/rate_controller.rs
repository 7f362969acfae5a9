//! How likely the stack of a call is taken, so that there are enough of every function and not too many of all.
//!
//! Half of what may be taken goes to calls as such, shared evenly: functions with few calls get all that they have, and the
//! frequent ones share what is left. The other half goes to time: a call that lasts a period is taken for certain, a
//! shorter one with a chance in proportion. Each sample carries the chance that it had, so neither favours anything.
//!
//! Where many JVMs share what may be taken, calls as such are shared evenly among them first: one that is busy leaves the
//! others what they need. Time is time, in whichever JVM.

use std::collections::HashMap;
use std::time::Duration;

/// Of what may be taken, how much is aimed at: chance overshoots.
const AIM: f64 = 0.9;
/// How much of it the calls as such get; the rest is for time.
const CALLS: f64 = 0.5;
/// How fast what was seen before is forgotten: a rate counts half after this many seconds.
const HALF_LIFE: f64 = 0.5;
/// So long a rate that was seen once is corrected by the looks that follow, in seconds: in some milliseconds a thread has a CPU for itself
/// that it shares in the long run.
const CORRECTED: f64 = 0.1;
/// What may be taken at once after a quiet time, in seconds of the pace: programs work in bursts.
const BURST: f64 = 1.0;
/// What may be taken before the first step, in seconds of the pace: calls begin at once, while this thread may still wait
/// for a CPU, and [`UNKNOWN`] chooses among them.
const FIRST: f64 = 0.1;
/// Until this many seconds have passed, what was seen is not enough to go by.
const SETTLED: f64 = 0.04;
/// The least that is worth its own period.
const MIN_PERIOD: Duration = Duration::from_micros(1);
/// The least time in native code that is reckoned with, in nanoseconds per second: a program that does nothing may begin to call all
/// the time, and what it called then would be taken because of the time that it did not need before.
const LEAST_TIME: f64 = 1e7;
/// No call that lasts this long is left out, whatever it costs.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// The chance of a function that has not been called yet: its first calls are likely to be seen, and a flood of them
/// does not use up what others need.
pub const UNKNOWN: f64 = 1.0 / 16.0;
/// The same of functions that are called by the million in a second as a rule.
pub const UNKNOWN_OF_MANY: f64 = 1.0 / 4096.0;

/// What a function has done since it was first traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The record's number in the kernel, or [`Flow::of_stub`].
    pub record: u32,
    /// Calls that have begun.
    pub calls: u64,
    /// Time of those that have ended, nested traced calls left out, in nanoseconds.
    pub self_ns: u64,
}

/// What tells records of stubs from those of the kernel.
const STUBS: u32 = 1 << 31;

impl Flow {
    /// The number of a record that stubs write: no record of the kernel has it.
    #[must_use]
    pub fn of_stub(record: u32) -> u32 {
        STUBS | record
    }

    /// The record of stubs with this number; `None` for one of the kernel.
    #[must_use]
    pub fn stub(number: u32) -> Option<u32> {
        (number & STUBS != 0).then_some(number & !STUBS)
    }
}

/// What the programs are told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Paces {
    /// Records whose chance has changed, and the new chance.
    pub probabilities: Vec<(u32, f64)>,
    /// A call that lasts this long is taken for certain.
    pub period: Duration,
    /// How many more stacks may be taken from now on.
    pub allow: u64,
}

/// Adapts to what is being called.
#[derive(Debug)]
pub struct RateController {
    /// Stacks per second, of all kinds.
    max_stacks: f64,
    /// Stacks per second of calls that return.
    of_calls: f64,
    jvms: HashMap<u64, Rates>,
    /// Stacks that may be taken, not yet allowed as whole ones.
    tokens: f64,
    /// The most of them.
    burst: f64,
    elapsed: f64,
    /// The chance of a function that has not been called yet.
    unknown: f64,
}

/// What one JVM does.
#[derive(Debug, Default)]
struct Rates {
    known: HashMap<u32, Known>,
    /// Nanoseconds of native time per second, of all functions.
    time_rate: f64,
    elapsed: f64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    flow: Flow,
    /// Calls per second.
    rate: f64,
    /// For how long that has been looked at since it was last seen to rise, in seconds.
    looked: f64,
    probability: f64,
}

impl RateController {
    /// A rate controller for so many stacks per second, `of_calls` of them of calls that return. The others are chosen elsewhere, and
    /// only allowed here.
    #[must_use]
    pub fn new(max_stacks: u32, of_calls: u32) -> Self {
        let (max_stacks, of_calls) = (f64::from(max_stacks), f64::from(of_calls));
        // Timers keep the pace by themselves. What is left out while this thread waits for a CPU would be missing from
        // their sums, and the first stacks take the longest to read: everything about them is new.
        let tokens = max_stacks * if of_calls < max_stacks { BURST } else { FIRST };
        let burst = (max_stacks * BURST).max(1.0);
        let (of_calls, unknown) = (of_calls * AIM, UNKNOWN);
        Self { max_stacks, of_calls, jvms: HashMap::new(), tokens, burst, elapsed: 0.0, unknown }
    }

    /// The same with this chance of a function that has not been called yet.
    #[must_use]
    pub fn with_unknown(self, unknown: f64) -> Self {
        Self { unknown, ..self }
    }

    /// The same where no more than this may be taken at once after a quiet time, in seconds of the pace.
    #[must_use]
    pub fn with_burst(self, seconds: f64) -> Self {
        let burst = (self.max_stacks * seconds).max(1.0);
        Self { burst, ..self }
    }

    /// What to do from now on, `passed` after the last time, where there is one JVM. `taken` stacks were taken since then.
    pub fn step(&mut self, flows: &[Flow], passed: Duration, taken: u64) -> Paces {
        self.step_all(&[(0, flows)], passed, taken).pop().unwrap_or_default()
    }

    /// The same for several JVMs, each with a number of its own. One that is not among them any more is forgotten.
    pub fn step_all(&mut self, jvms: &[(u64, &[Flow])], passed: Duration, taken: u64) -> Vec<Paces> {
        let passed = passed.as_secs_f64().max(1e-6);
        self.elapsed += passed;
        self.jvms.retain(|known, _| jvms.iter().any(|(jvm, _)| jvm == known));
        for (jvm, flows) in jvms {
            self.jvms.entry(*jvm).or_default().note_all(flows, passed);
        }
        let most = level(self.jvms.values().map(Rates::calls), self.of_calls * CALLS);
        let (period, allow) = (self.period(), self.allow(passed, taken));
        let paces = |(jvm, _): &(u64, &[Flow])| {
            let probabilities =
                self.jvms.get_mut(jvm).map(|rates| rates.probabilities(most, self.unknown)).unwrap_or_default();
            Paces { probabilities, period, allow }
        };
        jvms.iter().map(paces).collect()
    }

    fn period(&self) -> Duration {
        // Until there is something to go by, time has no say but for the longest calls.
        if self.elapsed < SETTLED {
            return MAX_PERIOD;
        }
        let per_second = self.of_calls * (1.0 - CALLS);
        let time_rate: f64 = self.jvms.values().map(|rates| rates.time_rate).sum();
        // Until a call has ended nothing is known. Then one thread is taken to be in native code all the time.
        let time_rate = if time_rate > 0.0 { time_rate.max(LEAST_TIME) } else { 1e9 };
        let ns = (time_rate / per_second).min(MAX_PERIOD.as_nanos() as f64);
        Duration::from_secs_f64(ns / 1e9).clamp(MIN_PERIOD, MAX_PERIOD)
    }

    fn allow(&mut self, passed: f64, taken: u64) -> u64 {
        self.tokens = (self.tokens - taken as f64 + self.max_stacks * passed).clamp(0.0, self.burst);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, at most max_stacks")]
        let whole = self.tokens as u64;
        whole
    }
}

impl Rates {
    /// Takes in what all functions have done.
    fn note_all(&mut self, flows: &[Flow], passed: f64) {
        self.elapsed += passed;
        let forget = 1.0 - (-passed / HALF_LIFE * std::f64::consts::LN_2).exp();
        let mut time = 0;
        for flow in flows {
            time += self.note(*flow, passed, forget);
        }
        let now = time as f64 / passed;
        // Time is known only when calls end, in bursts: at first the mean since the start says more.
        let forget = forget.max(passed / self.elapsed);
        self.time_rate += (now - self.time_rate) * forget;
    }

    /// Calls per second, of all functions.
    fn calls(&self) -> f64 {
        self.known.values().map(|known| known.rate).sum()
    }

    /// Takes in what a function has done. Returns its time since the last step.
    fn note(&mut self, flow: Flow, passed: f64, forget: f64) -> u64 {
        // A record has none until it is told.
        let unknown = Known { flow: Flow { calls: 0, self_ns: 0, ..flow }, rate: 0.0, looked: 0.0, probability: 0.0 };
        let known = self.known.entry(flow.record).or_insert(unknown);
        let calls = flow.calls.saturating_sub(known.flow.calls) as f64 / passed;
        known.looked += passed;
        if calls > known.rate {
            // What becomes faster is believed at once: too many stacks would be lost, too few are only fewer.
            (known.rate, known.looked) = (calls, passed);
        } else {
            let forget = if known.looked < CORRECTED { passed / known.looked } else { forget };
            known.rate += (calls - known.rate) * forget;
        }
        let time = flow.self_ns.saturating_sub(known.flow.self_ns);
        known.flow = flow;
        time
    }

    /// The chances that have changed, if `most` calls may be taken in a second.
    fn probabilities(&mut self, most: f64, unknown: f64) -> Vec<(u32, f64)> {
        let level = level(self.known.values().map(|known| known.rate), most);
        let mut changed = Vec::new();
        for (record, known) in &mut self.known {
            let never = known.flow.calls == 0;
            let probability = if never { unknown } else { (level / known.rate.max(f64::MIN_POSITIVE)).min(1.0) };
            // Each change is a write for each CPU.
            if (probability - known.probability).abs() > known.probability * 0.05
                || (probability == 1.0) != (known.probability == 1.0)
            {
                known.probability = probability;
                changed.push((*record, probability));
            }
        }
        changed.sort_unstable_by_key(|(record, _)| *record);
        changed
    }
}

/// The rate to which all rates have to be cut so that their sum is `budget`; infinite if it is not above it anyway.
fn level(rates: impl Iterator<Item = f64>, budget: f64) -> f64 {
    let mut rates: Vec<f64> = rates.filter(|rate| *rate > 0.0).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let (mut left, mut count) = (budget, rates.len() as f64);
    for rate in rates {
        if rate * count > left {
            return left / count;
        }
        left -= rate;
        count -= 1.0;
    }
    f64::INFINITY
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of simulated calls")]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(20);

    /// A function of a simulated JVM: calls per second, and how long each takes.
    #[derive(Clone, Copy)]
    struct Load {
        rate: f64,
        call_ns: f64,
    }

    /// Runs a rate controller for some seconds. Returns the expected stacks per second of each function in the last second, by call
    /// and by time.
    fn run(max_stacks: u32, loads: &[Load], seconds: f64) -> (RateController, Vec<f64>) {
        let mut rate_controller = RateController::new(max_stacks, max_stacks);
        let mut probabilities = vec![UNKNOWN; loads.len()];
        let mut period = MAX_PERIOD;
        let steps = (seconds / STEP.as_secs_f64()) as u64;
        for step in 1..=steps {
            let flows = |(record, load): (usize, &Load)| {
                let calls = (load.rate * STEP.as_secs_f64() * step as f64) as u64;
                Flow { record: record as u32, calls, self_ns: (calls as f64 * load.call_ns) as u64 }
            };
            let flows: Vec<Flow> = loads.iter().enumerate().map(flows).collect();
            let paces = rate_controller.step(&flows, STEP, 0);
            for (record, probability) in paces.probabilities {
                probabilities[record as usize] = probability;
            }
            period = paces.period;
        }
        let probability = |(load, probability): (&Load, &f64)| {
            load.rate * (probability + load.call_ns / period.as_nanos() as f64).min(1.0)
        };
        let stacks = loads.iter().zip(&probabilities).map(probability).collect();
        (rate_controller, stacks)
    }

    /// Check that a JVM with a flood of calls of many functions leaves another one what it needs, and takes the rest.
    #[test]
    fn jvms_share() {
        let mut rate_controller = RateController::new(100, 100);
        let flows = |functions: u32, rate: u64, step: u64| -> Vec<Flow> {
            (0..functions).map(|record| Flow { record, calls: rate * step / 50, self_ns: 0 }).collect()
        };
        let mut probabilities = [vec![0.0; 100], vec![0.0; 1]];
        for step in 1..=200 {
            let (flood, quiet) = (flows(100, 10_000, step), flows(1, 100, step));
            let all = rate_controller.step_all(&[(7, &flood), (9, &quiet)], STEP, 0);
            for (of, paces) in probabilities.iter_mut().zip(all) {
                paces.probabilities.iter().for_each(|(record, probability)| of[*record as usize] = *probability);
            }
        }
        let [flood, quiet] = probabilities.map(|of| of.iter().sum::<f64>());
        let (flood, quiet) = (flood * 10_000.0, quiet * 100.0);
        assert!((20.0..25.0).contains(&quiet) && (20.0..25.0).contains(&flood), "{flood} {quiet}");
        // What has ended is forgotten: its share goes to the other.
        let alone = rate_controller.step_all(&[(9, &flows(1, 100, 200))], STEP, 0);
        assert!(alone[0].probabilities[0].1 > 0.4, "{alone:?}");
    }

    /// Check that a rate that rises is believed at once, corrected soon by what follows, and forgotten slowly where it has stayed so.
    #[test]
    fn what_was_seen_once_is_corrected() {
        let mut rates = Rates::default();
        let mut calls = 0;
        let mut after = |more: u64, ms: f64| {
            calls += more;
            rates.note_all(&[Flow { record: 1, calls, self_ns: 0 }], ms / 1e3);
            rates.calls()
        };
        assert!((after(40, 5.0) - 8_000.0).abs() < 1.0);
        let corrected: Vec<f64> = (0..4).map(|_| after(20, 20.0)).collect();
        assert!(corrected[0] < 2_500.0 && corrected[3] < 1_500.0, "{corrected:?}");
        let steady = (0..50).map(|_| after(20, 20.0)).last();
        let ended = after(0, 20.0);
        assert!(
            steady.is_some_and(|steady| (1_000.0..1_300.0).contains(&steady)) && ended > 900.0,
            "{steady:?} {ended}"
        );
    }

    /// Check that a rare function keeps all of its calls beside a flood of others, and that the sum stays within bounds.
    #[test]
    fn rare_beside_frequent() {
        let loads =
            [Load { rate: 1e6, call_ns: 300.0 }, Load { rate: 50.0, call_ns: 1e3 }, Load { rate: 2e4, call_ns: 2e4 }];
        let (_, stacks) = run(1000, &loads, 5.0);
        assert!((stacks[1] - 50.0).abs() < 1.0, "{stacks:?}");
        let sum: f64 = stacks.iter().sum();
        assert!((700.0..=1000.0).contains(&sum), "{stacks:?}");
        // 0.3 s of native time a second against 0.4 s.
        assert!(stacks[0] > 300.0 && stacks[2] > 300.0, "{stacks:?}");
    }

    /// Check that everything is taken where there is little.
    #[test]
    fn few_calls_are_all_taken() {
        let (_, stacks) = run(1000, &[Load { rate: 100.0, call_ns: 5e3 }, Load { rate: 200.0, call_ns: 1e3 }], 3.0);
        assert_eq!(stacks, [100.0, 200.0]);
    }

    /// Check that a flood that begins suddenly is cut by the next step.
    #[test]
    fn sudden_flood() {
        let (mut rate_controller, _) = run(1000, &[Load { rate: 10.0, call_ns: 1e3 }], 3.0);
        let before = rate_controller.jvms[&0].known[&0].flow.calls;
        let paces = rate_controller.step(&[Flow { record: 0, calls: before + 20_000, self_ns: 0 }], STEP, 0);
        let [(0, probability)] = paces.probabilities[..] else { panic!("{paces:?}") };
        assert!(probability * 1e6 <= 1000.0, "{probability}");
    }

    /// Check that short calls are not all taken before the first of them has ended: they would use up what is allowed.
    #[test]
    fn start_without_knowledge() {
        let period = RateController::new(1000, 1000).step(&[Flow { record: 0, calls: 1, self_ns: 0 }], STEP, 0).period;
        assert!(period > Duration::from_millis(1), "{period:?}");
    }

    /// Check that a function that was never called is told its chance at once: calls that come before the next step, which a busy
    /// machine puts off, would have no stack at all.
    #[test]
    fn first_calls_have_a_chance() {
        let mut rate_controller = RateController::new(1000, 1000);
        let never = [Flow { record: 7, calls: 0, self_ns: 0 }];
        assert_eq!(rate_controller.step(&never, STEP, 0).probabilities, [(7, UNKNOWN)]);
        let mut of_many = RateController::new(1000, 1000).with_unknown(UNKNOWN_OF_MANY);
        assert_eq!(of_many.step(&never, STEP, 0).probabilities, [(7, UNKNOWN_OF_MANY)]);
        assert_eq!(rate_controller.step(&never, STEP, 0).probabilities, []);
    }

    /// Check that no more is allowed than the pace, a burst after quiet times aside.
    #[test]
    fn tokens() {
        let mut rate_controller = RateController::new(1000, 1000);
        assert_eq!(rate_controller.step(&[], STEP, 0).allow, 120);
        assert_eq!(rate_controller.step(&[], STEP, 120).allow, 20);
        assert_eq!(rate_controller.step(&[], STEP, 5).allow, 35);
        assert_eq!(rate_controller.step(&[], Duration::from_secs(10), 0).allow, 1000);
        assert_eq!(rate_controller.step(&[], STEP, 1000).allow, 20);
        assert_eq!(rate_controller.step(&[], STEP, 500).allow, 0);
    }

    /// Check that what timers choose is allowed besides what calls may have, also after a long wait.
    #[test]
    fn tokens_for_timers() {
        let mut rate_controller = RateController::new(1000, 500);
        assert_eq!(rate_controller.step(&[], STEP, 0).allow, 1000);
        assert_eq!(rate_controller.step(&[], STEP, 300).allow, 720);
        assert_eq!(rate_controller.step(&[], Duration::from_secs(10), 20).allow, 1000);
    }

    /// Check the level: rates below it are whole, the others are cut to it.
    #[test]
    fn water_finds_its_level() {
        assert_eq!(level([1.0, 100.0, 1000.0].into_iter(), 101.0), 50.0);
        assert_eq!(level([10.0, 20.0, 1000.0].into_iter(), 130.0), 100.0);
        assert_eq!(level([10.0, 20.0].into_iter(), 30.0), f64::INFINITY);
        assert_eq!(level(std::iter::empty(), 30.0), f64::INFINITY);
    }
}
