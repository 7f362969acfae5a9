//! What stubs cost: measured on functions of nprof's own, behind the same stubs that it loads into JVMs.
//!
//! A stub finds its CPU's part of a record in one of three ways, by what the target's C library and CPU offer, with and without a
//! lock. All that work here are measured, and each JVM has the costs of its own. In a loop of nothing else all that a stub
//! needs is in the nearest cache and its jumps are foreseen; the calls of programs that make many lie between that and many stubs in
//! turn. Where a program does other work between two calls, they cost more the more of it; most of all those that are timed, if
//! few of them are.

use std::io;
use std::sync::OnceLock;
use std::time::Instant;

use nprof_common::rows::ROWS;
use nprof_shim::clock::{Clock, is_steady};
use nprof_shim::pool::{self, Mode, configure};
use nprof_shim::records::{Records as OfStubs, Run};
use nprof_shim::sharding::Sharding;

use super::cool::{self, OtherWork};
use crate::collect::Reader;
use crate::model::StubPrice;
use crate::shim::Records;
use crate::sys::cpu_clock::CpuClock;
use crate::sys::stub_target::{self, StubTarget, bare};

/// Stubs that are called in turn: with their records they are more than a core's nearest cache holds.
const IN_TURN: u32 = 256;
/// Calls of a round: a tenth of a millisecond at most, so that few are interrupted.
const CALLS: u32 = 4 * IN_TURN;
/// Rounds of each measurement, of which the middle one counts.
const ROUNDS: usize = 15;
/// What a program does between two calls is stood in for by so many stubs that are off, one after the other. Their code, as their
/// parameters, are as much as a core's nearest caches hold, each with a jump of its own; with a line of each they take some microseconds.
const BETWEEN: usize = 1024;
/// Calls after that, of which the middle one counts.
const AFTER_WORK: usize = 512;
/// The same after work that leaves nothing in the caches that a core has for itself, which takes long.
const AFTER_MUCH_WORK: usize = 24;
/// One of so many calls is timed where some are.
const EVERY: u32 = 16;

/// How far what a call reads as may be off at least, as a share: as with probes, it takes longer while the other thread of the
/// core is busy.
const LEAST_ERROR: f64 = 0.3;

/// The prices by the number of the way in which a stub finds its CPU's part.
pub(super) type ByWay = [StubPrice; 3];

/// What stubs cost here, that collect what threads use, or do not. Measured once in the life of nprof, which takes some 30
/// milliseconds: neither the machine nor the stubs change.
pub(super) fn measure(collects: bool) -> ByWay {
    static MEASURED: [OnceLock<ByWay>; 2] = [const { OnceLock::new() }; 2];
    *MEASURED[usize::from(collects)].get_or_init(|| {
        measure_all(collects).unwrap_or_else(|error| {
            tracing::warn!("not known what stubs cost here: {error}; they are taken to cost nothing");
            ByWay::default()
        })
    })
}

fn measure_all(collects: bool) -> io::Result<ByWay> {
    let bench = Bench::new(collects)?;
    let mut prices = ByWay::default();
    // The best last, which most JVMs have: it also stands for better ones that this machine does not have.
    let ways: Vec<Sharding> = Sharding::all().collect();
    for way in ways.into_iter().rev() {
        let price = bench.price(way);
        prices.iter_mut().take(way.number() as usize + 1).for_each(|known| *known = price);
    }
    // What is out of the caches is the same whatever the way, of which the last was the best and stands first.
    let cold_ns = bench.cold_ns(prices[0]);
    prices.iter_mut().for_each(|price| price.cold_ns = cold_ns);
    tracing::debug!("what stubs cost here, by the way to their CPU's part of a record: {prices:?}");
    Ok(prices)
}

/// Stubs with records that nobody else reads.
struct Bench {
    stubs: Vec<StubTarget>,
    /// Those that are always off.
    between: Vec<extern "C" fn()>,
    reader: Reader,
    clock: CpuClock,
}

/// What a call takes in a loop, and one of many in turn.
#[derive(Debug, Clone, Copy)]
struct PerCall {
    loop_ns: f64,
    turn_ns: f64,
}

impl Bench {
    fn new(collects: bool) -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = u32::try_from(cpus).unwrap_or(u32::MAX).min(512);
        let records = Records::new(IN_TURN, shards + 1, collects.then_some(0))?;
        let file = records.memory().try_clone_to_owned()?;
        let run = Run { first: 0, records: records.records, shards, consumed: collects, bytes: 0 };
        let of_stubs = OfStubs::map_run(file, run)?;
        let of_stubs = if collects { of_stubs.with_rows(stub_target::row_of_this_thread()?, ROWS)? } else { of_stubs };
        pool::collect(of_stubs.collecting());
        let target = |index| StubTarget::new(of_stubs.place(index)?);
        let stubs: Vec<StubTarget> = (0..records.records).filter_map(target).collect();
        let off = (0..records.records).cycle().take(BETWEEN).filter_map(target);
        let between: Vec<extern "C" fn()> = off.map(StubTarget::entry).collect();
        if stubs.len() < IN_TURN as usize || between.len() < BETWEEN {
            return Err(io::Error::other("no stub is left"));
        }
        let reader = Reader::new(records.mapped(), records.mapped(), records.shards);
        let reader = reader.with_counts_at(records.first_counts());
        Ok(Self { stubs, between, reader, clock: CpuClock::of_this_thread() })
    }

    /// What calls cost where stubs find their CPU's part in this way.
    fn price(&self, way: Sharding) -> StubPrice {
        configure(way, &Clock::estimate());
        let bare = self.per_call(&vec![bare(); IN_TURN as usize]);
        let cost = |mode| {
            let with = self.with(mode);
            f64::midpoint(with.loop_ns - bare.loop_ns, with.turn_ns - bare.turn_ns).max(0.1)
        };
        let (off_ns, counted_ns) = (cost(Mode::Off), cost(Mode::Count));
        let timed_ns = if is_steady() { cost(Mode::Time) } else { counted_ns };
        let sampled_ns = if is_steady() { cost(Mode::one_of(EVERY)) } else { counted_ns };
        let [in_loop, in_turn] = self.readings();
        let cool = cool::ratio(self.after_work(Mode::Time) - self.after_work(Mode::Off) + off_ns, timed_ns);
        self.stubs.iter().for_each(|stub| stub.set_mode(Mode::Off));
        let every = f64::from(EVERY);
        StubPrice {
            off_ns,
            counted_ns,
            // One of so many was timed.
            passed_ns: ((sampled_ns - timed_ns / every) * every / (every - 1.0)).max(counted_ns),
            timed_ns,
            inside_ns: f64::midpoint(in_loop, in_turn),
            inside_error_ns: (f64::midpoint(in_loop, in_turn) * LEAST_ERROR).max((in_turn - in_loop).abs() / 2.0),
            cool: if is_steady() { cool } else { 1.0 },
            cold_ns: 0.0,
        }
    }

    /// What a timed call costs more than after a little work if there was much since the last one.
    fn cold_ns(&self, price: StubPrice) -> f64 {
        if !is_steady() {
            return 0.0;
        }
        let mut other_work = OtherWork::default();
        let [off, timed] = [Mode::Off, Mode::Time].map(|mode| {
            let stubs = self.entries(mode);
            middle_after(&stubs, AFTER_MUCH_WORK, || other_work.run())
        });
        self.stubs.iter().for_each(|stub| stub.set_mode(Mode::Off));
        (timed - off - price.timed_ns * price.cool).max(0.0)
    }

    fn with(&self, mode: Mode) -> PerCall {
        self.per_call(&self.entries(mode))
    }

    fn entries(&self, mode: Mode) -> Vec<extern "C" fn()> {
        self.stubs.iter().for_each(|stub| stub.set_mode(mode));
        self.stubs.iter().map(|stub| stub.entry()).collect()
    }

    fn per_call(&self, functions: &[extern "C" fn()]) -> PerCall {
        PerCall { loop_ns: self.middle(|| in_loop(functions[0])), turn_ns: self.middle(|| in_turn(functions)) }
    }

    /// Nanoseconds that the call of a stub takes after other work.
    fn after_work(&self, mode: Mode) -> f64 {
        middle_after(&self.entries(mode), AFTER_WORK, || self.between.iter().for_each(|off| off()))
    }

    /// What calls read as in a loop, and of many in turn: the middle ones of some rounds.
    fn readings(&self) -> [f64; 2] {
        let entries = self.entries(Mode::Time);
        let reading = |round: &dyn Fn()| {
            let mut rounds = [0.0; ROUNDS];
            for read in &mut rounds {
                let [calls, ns] = self.recorded();
                round();
                let [calls_then, ns_then] = self.recorded();
                *read = (ns_then - ns) / (calls_then - calls).max(1.0);
            }
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        };
        if is_steady() { [reading(&|| in_loop(entries[0])), reading(&|| in_turn(&entries))] } else { [0.0; 2] }
    }

    /// Nanoseconds of CPU time that a call takes in the middle one of some rounds.
    fn middle(&self, round: impl Fn()) -> f64 {
        let mut rounds = [0.0; ROUNDS];
        for taken in &mut rounds {
            let began = self.clock.read().unwrap_or_default();
            round();
            let spent = self.clock.read().unwrap_or_default().saturating_sub(began);
            *taken = spent.as_secs_f64() * 1e9 / f64::from(CALLS);
        }
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    }

    /// The calls so far, and what those that were timed read as in nanoseconds.
    fn recorded(&self) -> [f64; 2] {
        let sum = |of: &dyn Fn(u32) -> u64| (0..IN_TURN).map(of).sum::<u64>() as f64;
        [sum(&|record| self.reader.begun(record)), sum(&|record| self.reader.self_ns(record))]
    }
}

/// Nanoseconds that the middle one of so many calls takes, each after this work.
fn middle_after(stubs: &[extern "C" fn()], calls: usize, mut work: impl FnMut()) -> f64 {
    let timed = |stub: &extern "C" fn()| {
        work();
        let began = Instant::now();
        stub();
        began.elapsed().as_secs_f64() * 1e9
    };
    let mut taken: Vec<f64> = stubs.iter().cycle().take(calls).map(timed).collect();
    taken.sort_by(f64::total_cmp);
    taken[calls / 2]
}

fn in_loop(function: extern "C" fn()) {
    (0..CALLS).for_each(|_| function());
}

fn in_turn(functions: &[extern "C" fn()]) {
    (0..CALLS / IN_TURN).for_each(|_| functions.iter().for_each(|function| function()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the costs are those of instructions and not of traps, each rung costs more than the one below, and that a
    /// function that does nothing reads as next to nothing.
    #[test]
    fn costs_are_in_order() {
        for price in [false, true].into_iter().flat_map(measure) {
            let StubPrice { off_ns, counted_ns, passed_ns, timed_ns, inside_ns, .. } = price;
            assert!(off_ns > 0.0 && counted_ns > 0.0 && passed_ns >= counted_ns, "{price:?}");
            assert!(counted_ns < timed_ns && timed_ns < 10_000.0, "{price:?}");
            assert!((0.0..timed_ns).contains(&inside_ns), "{price:?}");
        }
    }
}
