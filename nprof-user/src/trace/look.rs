//! Short looks at functions: how often they are called, and how long calls take.
//!
//! A probe stops its callers, so what may be called too often for one is looked at for a few milliseconds, with probes and
//! records besides those that trace. Before anything is attached all functions are looked at ([`Looker::survey`]), and later
//! one by one those that are too expensive to be watched ([`Looker::look`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::leaving::Leaving;
use crate::attach::{Beside, Engine, Session, Target, before_others, beside, wants_a_cpu};
use crate::collect::Reader;
use crate::govern::Glance;
use crate::model::{Library, Probe, Tracing};
use crate::sys::cpu_clock::CpuClock;

/// Functions that are looked at together. The more, the longer are the first of them slowed.
const TOGETHER: usize = 64;
/// How long it takes to see whether a function is called all the time: after that it is so with so many calls.
const MOMENT: Duration = Duration::from_micros(50);
const MANY: u64 = 4;
/// How long such a function is looked at, unless it has cost the target [`ENOUGH`] by then.
const GLIMPSE: Duration = Duration::from_micros(500);
const ENOUGH: Duration = Duration::from_micros(200);
/// From this share of a core on a function is not left with a probe any longer than that.
const COSTLY: f64 = 0.05;
/// How long it takes to put a probe into a target, or out of it, that hits another one all the time: the kernel
/// waits for the lock of its address space, which each hit takes for a moment.
const LOCKED: Duration = Duration::from_millis(4);
/// No more than this share of the time may be lost by such looks.
const SLOWED: f64 = 0.1;
/// How much time a thread has for itself in a look at a function that is called all the time, and at most in one at a function that is
/// called less: as much as makes it cost [`ENOUGH`].
const LOOK: Duration = Duration::from_micros(500);
const LONG_LOOK: Duration = Duration::from_millis(5);
/// How much CPU time a look at many functions sees, unless it has cost [`COST`] by then.
const SURVEY: Duration = Duration::from_millis(3);
/// The longest look, and how long one waits for a target that does not get a CPU, or wants none.
const LONGEST: Duration = Duration::from_millis(10);
/// How long such a look waits for a target that wants a CPU and gets none: it would be traced without being known.
const STARVED: Duration = Duration::from_millis(100);
/// What a look at many functions may cost the target: then it is known which are expensive.
const COST: Duration = Duration::from_millis(1);
/// How often it is asked what that costs.
const ASK: Duration = Duration::from_micros(200);
/// The longest pause that such a look is paid for by.
const PAUSE: Duration = Duration::from_millis(200);
/// Of so many looks at a function one times calls, and each of the first ones until one has timed any: without that nothing is
/// known of the function's time.
const TIMED_EVERY: u32 = 8;
/// How much less of the most that looks have seen counts with each.
const FADING: f64 = 0.75;
/// How long calls that have begun in a look may go on, unless others have cost [`ENOUGH`] by then: a thread may wait for a CPU
/// in one.
const ENDING: Duration = Duration::from_millis(50);

/// Looks at functions of one target.
#[derive(Debug)]
pub(super) struct Looker {
    engine: Arc<Engine>,
    reader: Reader,
    target: Target,
    clock: CpuClock,
    /// Functions that were looked at one by one.
    looked_at: BTreeMap<u32, LookedAt>,
    /// The probes of the last look on their way out, for which the kernel takes some tens of milliseconds.
    leaving: Option<JoinHandle<()>>,
}

/// A function that was looked at.
#[derive(Debug)]
struct LookedAt {
    /// Its record for that. Frames of calls that outlasted a look refer to it.
    record: u32,
    looks: u32,
    /// Whether one has timed a call.
    has_timed: bool,
    /// The calls in the record at the end of the last look.
    calls: u64,
    /// The share of the time that its calls cost, by the last looks; nothing before the first.
    share: Option<f64>,
}

impl LookedAt {
    /// How much time a thread is to have for itself in the next look.
    fn own_time(&self) -> Duration {
        let long = self.share.map_or(LOOK, |share| ENOUGH.div_f64(share.clamp(0.01, 1.0)));
        long.clamp(LOOK, LONG_LOOK)
    }

    /// Takes note of what a look has seen. Where calls come in bursts, the most is what counts for a while.
    fn has_cost(&mut self, share: f64) {
        self.share = Some(share.max(self.share.unwrap_or(0.0) * FADING));
    }
}

/// A function that is attached to be looked at.
#[derive(Debug, Clone, Copy)]
struct Attached<'a> {
    probe: &'a Probe,
    record: u32,
    since: Instant,
    /// What a call costs the target, in nanoseconds.
    price: f64,
}

/// What came of attaching functions one by one.
struct Batch<'a> {
    /// Those that are not called all the time.
    quiet: Vec<Attached<'a>>,
    /// The one that is: its index, the share of a core that it costs, and what was seen of it.
    costly: Option<(u32, f64, Glance)>,
    /// How many were taken.
    taken: usize,
}

impl Looker {
    pub(super) fn new(engine: Arc<Engine>, reader: Reader, target: Target) -> Self {
        Self { engine, reader, target, clock: CpuClock::of(target.pid), looked_at: BTreeMap::new(), leaving: None }
    }

    /// How often each of these functions is called, counted for some milliseconds, by index. Functions that cannot be
    /// looked at are missing. A call is taken to cost `price` nanoseconds, and no more than the share `budget` of the time
    /// is spent. As long as what is returned with it is kept, functions that are not called often keep their probes.
    pub(super) fn survey(
        &self,
        libraries: &[Library],
        probes: &[Probe],
        budget: f64,
        price: impl Fn(&Probe) -> f64 + Sync,
    ) -> (BTreeMap<u32, Glance>, Leaving) {
        beside(self.target.pid, |beside| {
            before_others(|| self.survey_here(beside, (libraries, probes), budget, &price))
        })
    }

    fn survey_here(
        &self,
        beside: &Beside,
        (libraries, probes): (&[Library], &[Probe]),
        budget: f64,
        price: &impl Fn(&Probe) -> f64,
    ) -> (BTreeMap<u32, Glance>, Leaving) {
        let (mut seen, mut rest) = (BTreeMap::new(), probes);
        let leaving = Leaving::start(self.reader.clone(), self.most_kept());
        while !rest.is_empty() {
            // Where it ran before it need not run now.
            beside.step_aside();
            let mut session = Session::new(Arc::clone(&self.engine), Target { timed: false, ..self.target });
            let Batch { quiet, costly, taken } = self.attach_quiet(&mut session, libraries, rest, price);
            rest = &rest[taken..];
            let began = Instant::now();
            let glances = self.count(&quiet);
            let share_of = |(one, glance): &(Attached<'_>, Glance)| glance.calls_per_second(0.0) * one.price / 1e9;
            let costliest = glances.iter().filter(|seen| share_of(seen) >= COSTLY).map(|(one, _)| one.probe.index);
            session.drop_single(&costliest.collect::<Vec<u32>>());
            // The next batch need not wait for them.
            leaving.take(session, quiet.iter().map(|one| (one.probe.index, one.record)));
            let share: f64 = glances.iter().map(share_of).sum();
            let mut pause = began.elapsed().mul_f64((share / budget).clamp(0.0, 1e3));
            seen.extend(glances.into_iter().map(|(one, glance)| (one.probe.index, glance)));
            if let Some((index, share, glance)) = costly {
                pause = pause.max((glance.length + LOCKED).mul_f64(share.min(1.0) / SLOWED));
                seen.insert(index, glance);
            }
            thread::sleep(pause.min(PAUSE));
        }
        (seen, leaving)
    }

    /// How many functions may keep their probes when they have been counted: each has a record and an open file, which others need, too.
    fn most_kept(&self) -> usize {
        let files =
            getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        (self.engine.room() / 2).min(files / 2)
    }

    /// Attaches functions one by one, until one is called all the time: that one is looked at alone and detached before the
    /// next is attached, which would take the kernel [`LOCKED`] each time.
    fn attach_quiet<'a>(
        &self,
        session: &mut Session,
        libraries: &[Library],
        probes: &'a [Probe],
        price: &impl Fn(&Probe) -> f64,
    ) -> Batch<'a> {
        let mut batch = Batch { quiet: Vec::new(), costly: None, taken: 0 };
        for probe in probes.iter().take(TOGETHER) {
            batch.taken += 1;
            session.attach(libraries, std::slice::from_ref(probe));
            let Some(record) = session.record(probe.index) else { continue };
            let one = Attached { probe, record, since: Instant::now(), price: price(probe) };
            batch.quiet.push(one);
            thread::sleep(MOMENT);
            self.wait_for_glimpse(one);
            // One that was still when it was attached may be called all the time since.
            if let Some((place, (share, glance))) =
                batch.quiet.iter().enumerate().find_map(|(place, one)| Some((place, self.costly(*one)?)))
            {
                let index = batch.quiet.remove(place).probe.index;
                session.drop_single(&[index]);
                batch.costly = Some((index, share, glance));
                break;
            }
        }
        batch
    }

    /// Waits until enough calls of a function are seen, if it is called at all.
    fn wait_for_glimpse(&self, one: Attached<'_>) {
        if self.reader.begun(one.record) < MANY {
            return;
        }
        while one.since.elapsed() < GLIMPSE && self.cost_ns(one) < ENOUGH.as_secs_f64() * 1e9 {
            thread::sleep(MOMENT);
        }
    }

    /// What a function has cost since it was attached, in nanoseconds.
    fn cost_ns(&self, one: Attached<'_>) -> f64 {
        self.reader.begun(one.record) as f64 * one.price
    }

    /// The share of a core that a function costs, and what was seen of it, if that is too much to leave a probe there any
    /// longer.
    fn costly(&self, one: Attached<'_>) -> Option<(f64, Glance)> {
        let (length, calls) = (one.since.elapsed(), self.reader.begun_by_shard(one.record));
        let glance = Glance { length, calls, ..Glance::default() };
        let share = glance.calls_per_second(one.price) * one.price / 1e9;
        let is_called_all_the_time = glance.all() >= MANY && length < 2 * GLIMPSE && share >= COSTLY;
        (is_called_all_the_time || self.cost_ns(one) >= ENOUGH.as_secs_f64() * 1e9).then_some((share, glance))
    }

    /// Counts calls of functions that have just been attached.
    fn count<'a>(&self, batch: &[Attached<'a>]) -> Vec<(Attached<'a>, Glance)> {
        // They were attached one after the other, and called since.
        let before: Vec<Vec<u64>> = batch.iter().map(|one| self.reader.begun_by_shard(one.record)).collect();
        let calls = |(one, before): (&Attached<'a>, &Vec<u64>)| more(&self.reader.begun_by_shard(one.record), before);
        let spent_ns = || -> f64 {
            batch.iter().zip(&before).map(|seen| calls(seen).iter().sum::<u64>() as f64 * seen.0.price).sum()
        };
        let length = self.wait(SURVEY, || spent_ns() >= COST.as_secs_f64() * 1e9);
        let glance = |seen| Glance { length, calls: calls(seen), ..Glance::default() };
        batch.iter().zip(&before).map(|seen| (*seen.0, glance(seen))).collect()
    }

    /// Looks at a function; `None` if it cannot be looked at now. Only every so often calls are timed, if others do not count
    /// them all the time: that takes a second probe, which is in the way longer. `price` is what a call costs the target, in
    /// nanoseconds.
    pub(super) fn look(
        &mut self,
        libraries: &[Library],
        probe: &Probe,
        tracing: Tracing,
        price: impl Fn(Tracing) -> f64 + Sync,
    ) -> Option<Glance> {
        if !self.is_free() {
            return None;
        }
        if !self.looked_at.contains_key(&probe.index) {
            let record = self.engine.take_brief()?;
            let looked_at = LookedAt { record, looks: 0, has_timed: false, calls: 0, share: None };
            self.looked_at.insert(probe.index, looked_at);
        }
        let LookedAt { record, looks, has_timed, calls, .. } = *self.looked_at.get(&probe.index)?;
        let own_time = self.looked_at.get(&probe.index)?.own_time();
        let is_first = looks < TIMED_EVERY && !has_timed;
        let is_turn = tracing.is_watched() || is_first || looks % TIMED_EVERY == 0;
        let did = if self.target.timed && is_turn { Tracing::Timed } else { Tracing::Counted };
        let mut session =
            Session::new(Arc::clone(&self.engine), Target { timed: did == Tracing::Timed, ..self.target });
        session.adopt(probe.index, record);
        let (glance, leaving) = before_others(|| {
            let glance = self.look_here(&mut session, (libraries, probe), record, (price(did), own_time));
            // What takes the probes away comes before others too: it is started by a thread that does.
            (glance, thread::spawn(move || session.let_go()))
        });
        self.leaving = Some(leaving);
        let all = self.reader.begun(record);
        let has_timed = has_timed || glance.as_ref().is_some_and(|glance| glance.timed > 0);
        let looked_at = self.looked_at.get_mut(&probe.index)?;
        (looked_at.looks, looked_at.has_timed, looked_at.calls) = (looks.wrapping_add(1), has_timed, all);
        let glance = glance?;
        looked_at.has_cost(glance.calls_per_second(price(did)) * price(did) / 1e9);
        let others = all.saturating_sub(calls).saturating_sub(glance.all());
        Some(Glance { is_timed: did == Tracing::Timed, others, ..glance })
    }

    fn look_here(
        &self,
        session: &mut Session,
        (libraries, probe): (&[Library], &Probe),
        record: u32,
        (price, own_time): (f64, Duration),
    ) -> Option<Glance> {
        let before = self.timed(record);
        if session.attach(libraries, std::slice::from_ref(probe)).attached.is_empty() {
            return None;
        }
        let cpu = self.cpu();
        let (length, calls) = self.watch(record, price, own_time);
        let is_starved = self.cpu().saturating_sub(cpu) < LOOK && wants_a_cpu(self.target.pid);
        let (ending, ended) = (Instant::now(), self.reader.begun(record));
        let cost_ns = || self.reader.begun(record).saturating_sub(ended) as f64 * price;
        // Without a probe on the return there is none in flight.
        while self.engine.in_flight(record) > 0 && ending.elapsed() < ENDING && cost_ns() < ENOUGH.as_secs_f64() * 1e9 {
            thread::sleep(ASK);
        }
        let after = self.timed(record);
        let [timed, total_ns, off_ns] = std::array::from_fn(|at| after[at].saturating_sub(before[at]));
        Some(Glance { length, calls, is_starved, timed, total_ns, off_ns, ..Glance::default() })
    }

    /// Watches a function until a thread that does nothing but call it has had so much time for itself, where a call costs
    /// `price` nanoseconds. Were all looks equally long, those at a moment with many calls would see less of what the threads do
    /// by themselves, and show more calls than there are. A long one ends early where there are suddenly so many.
    fn watch(&self, record: u32, price: f64, own_time: Duration) -> (Duration, Vec<u64>) {
        let (began, before) = (Instant::now(), self.reader.begun_by_shard(record));
        loop {
            thread::sleep(ASK);
            let (length, made) = (began.elapsed(), more(&self.reader.begun_by_shard(record), &before));
            let paid = made.iter().max().copied().unwrap_or(0) as f64 * price / 1e9;
            let own = length.as_secs_f64() - paid;
            let least = if paid >= COST.as_secs_f64() { LOOK } else { own_time };
            if own >= least.as_secs_f64() || length >= LONGEST {
                return (length, made);
            }
        }
    }

    /// Waits until the target has used so much CPU time, there is a reason to end, or it takes too long. Returns how
    /// long that was.
    fn wait(&self, cpu: Duration, is_enough: impl Fn() -> bool) -> Duration {
        let before = self.cpu();
        let began = Instant::now();
        while self.cpu().saturating_sub(before) < cpu && !is_enough() {
            if began.elapsed() < LONGEST {
                thread::sleep(ASK);
            } else if began.elapsed() < STARVED && wants_a_cpu(self.target.pid) {
                thread::sleep(10 * ASK);
            } else {
                break;
            }
        }
        began.elapsed()
    }

    /// The CPU time of the target up to now.
    pub(super) fn cpu(&self) -> Duration {
        self.clock.read().unwrap_or_default()
    }

    /// Whether the next look can be had at once.
    pub(super) fn is_free(&self) -> bool {
        self.leaving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the probes of the last look are gone. A function with two probes on its return, of which one goes, may keep calls
    /// that look open: it is not timed again before.
    pub(super) fn wait_until_gone(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            // A panic there has been reported by its thread.
            drop(leaving.join());
        }
    }

    /// Gives its records to others, when the target has ended.
    pub(super) fn give_back(mut self) {
        self.wait_until_gone();
        self.engine.give_back(self.looked_at.into_values().map(|function| function.record));
    }

    /// The calls of a record that were timed, the sum of their times, and of the times in which threads did not run, in
    /// nanoseconds.
    fn timed(&self, record: u32) -> [u64; 3] {
        let stats = self.reader.sample(record).map_or(nprof_common::MethodStats::ZERO, |sample| sample.stats);
        [stats.histogram.iter().sum(), stats.total_ns, stats.off_ns]
    }
}

/// What was added to each shard.
fn more(after: &[u64], before: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that looks are the longer the less they cost, within bounds, and short again as soon as one has seen a burst.
    #[test]
    fn as_long_as_it_is_cheap() {
        let mut function = LookedAt { record: 0, looks: 0, has_timed: false, calls: 0, share: None };
        assert_eq!(function.own_time(), LOOK);
        function.has_cost(0.0);
        assert_eq!(function.own_time(), LONG_LOOK);
        function.has_cost(0.1);
        assert_eq!(function.own_time(), 10 * ENOUGH);
        function.has_cost(0.9);
        assert_eq!(function.own_time(), LOOK);
        let looks = (0..).take_while(|_| {
            function.has_cost(0.1);
            function.own_time() < 10 * ENOUGH
        });
        assert!((5..12).contains(&looks.count()));
    }
}
