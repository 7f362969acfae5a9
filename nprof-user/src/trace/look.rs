//! Short looks at functions: how often they are called, and how long calls take.
//!
//! A probe stops its callers, so what may be called too often for one is looked at for some milliseconds, with probes and
//! records besides those that trace. Before anything is attached all functions are looked at ([`Looker::survey`]), and later
//! those that are too expensive to be watched, one by one or some together ([`Looker::start`]).

mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nprof_common::MethodStats;

use crate::aggregate::quantile::{lower_bound_ns, upper_bound_ns};
use crate::attach::{Engine, Runners, Session, Target, before_others, beside};
use crate::collect::Reader;
use crate::govern::{COOL_NS, Glance, clustering, note_lost};
use crate::model::{Library, Probe, Tracing};
use crate::sys::cpu_clock::CpuClock;
use crate::sys::probe_link;

/// What a look at one function costs the target at most, unless it is called all the time, and at least, however many there are to be
/// looked at.
const ENOUGH: Duration = Duration::from_millis(2);
const LITTLE: Duration = Duration::from_micros(50);
/// How much time a thread has for itself in a look at a function that is called all the time, and at most in one at a function that is
/// called less: as much as makes it cost [`ENOUGH`]. The longer it is, the more bursts of calls are in it, and pauses between them.
const LOOK: Duration = Duration::from_micros(500);
const LONG_LOOK: Duration = Duration::from_millis(50);
/// How much longer one takes than the thread has for itself, at most.
const LONGER: u32 = 20;
/// What a look may cost the target: then it ends.
const COST: Duration = Duration::from_millis(4);
/// How often it is asked what that costs: of a long look, so many times. Whoever asks may be in the way of the target.
const ASK: Duration = Duration::from_micros(200);
const ASKED: u32 = 10;
/// Of so many looks at a function that is called all the time one times calls, and each of the first ones until one has timed any: without
/// that nothing is known of the function's time. Timing takes a second probe, which is in the way longer. Others are timed in each look:
/// where few of the calls take most of the time, it takes many to know their mean.
const TIMED_EVERY: u32 = 4;
/// From this share of a core on, which its calls cost in a look, a function is called all the time.
const ALL_THE_TIME: f64 = 0.6;
/// How much less of the most that looks have seen counts with each.
const FADING: f64 = 0.75;
/// How long calls that have begun in a look may go on, unless others have cost so much by then: a thread may wait for a CPU in one.
const ENDING: Duration = Duration::from_millis(50);
const MEANWHILE: Duration = Duration::from_micros(200);
/// The kernel sums up at each tick what a thread has run that goes on: so much may be missing.
const TICK: Duration = Duration::from_millis(4);

/// Looks at functions of one target.
#[derive(Debug)]
pub(super) struct Looker {
    with: Instruments,
    /// Functions that were looked at one by one.
    looked_at: BTreeMap<u32, LookedAt>,
    under_way: Option<UnderWay>,
}

/// What looks are made with.
#[derive(Debug, Clone)]
struct Instruments {
    engine: Arc<Engine>,
    reader: Reader,
    target: Target,
    clock: CpuClock,
    runners: Arc<Runners>,
}

/// A function that is to be looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due<'a> {
    pub(super) probe: &'a Probe,
    /// What is done at its calls besides.
    pub(super) tracing: Tracing,
    /// How often it is taken to be called in a second, if it was not looked at before.
    pub(super) rate: f64,
    /// What a call costs the target that is timed, and one that is counted, in nanoseconds.
    pub(super) prices: [f64; 2],
}

/// A look that goes on by itself, until its probes are gone: the kernel takes some tens of milliseconds for that.
#[derive(Debug)]
struct UnderWay {
    functions: Vec<InSight>,
    is_timed: bool,
    thread: JoinHandle<Vec<Glance>>,
}

/// A function that is looked at.
#[derive(Debug, Clone, Copy)]
struct InSight {
    index: u32,
    record: u32,
    /// What a call costs the target, in nanoseconds.
    price: f64,
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
    /// The share of the time that its calls cost, by the last looks; before the first, by what was seen when it was still watched.
    share: f64,
}

impl LookedAt {
    /// How much time a thread is to have for itself in the next look, which may cost so much.
    fn own_time(&self, cost: Duration) -> Duration {
        cost.clamp(LITTLE, ENOUGH).div_f64(self.share.clamp(0.001, 1.0)).clamp(LOOK, LONG_LOOK)
    }

    /// Takes note of what a look has seen. Where calls come in bursts, the most is what counts for a while.
    fn has_cost(&mut self, share: f64) {
        self.share = share.max(self.share * FADING);
    }
}

impl Looker {
    pub(super) fn new(engine: Arc<Engine>, reader: Reader, target: Target) -> Self {
        let (clock, runners) = (CpuClock::of(target.pid), Arc::new(Runners::of(target.pid)));
        let with = Instruments { engine, reader, target, clock, runners };
        Self { with, looked_at: BTreeMap::new(), under_way: None }
    }

    /// Starts to look at the first of these functions, together with the next ones if all of them are called so little that a long look costs
    /// no more than `cost`. Returns how many there are: none, if the first cannot be looked at now. Only every so often calls are timed,
    /// if others do not count them all the time: that takes a second probe, which is in the way longer.
    pub(super) fn start(&mut self, libraries: &[Library], due: &[Due<'_>], cost: Duration) -> usize {
        if self.under_way.is_some() || probe_link::are_many_left() {
            return 0;
        }
        let turns: Vec<(Duration, bool, u32)> = due.iter().map_while(|due| self.turn(due, cost)).collect();
        let Some((own_time, is_timed, _)) = turns.first().copied() else { return 0 };
        let like_first = |turn: &&(Duration, bool, u32)| turn.1 == is_timed && turn.0 == LONG_LOOK;
        let together = turns.iter().take_while(like_first).count().max(1);
        let functions: Vec<InSight> = due
            .iter()
            .zip(&turns)
            .take(together)
            .map(|(due, turn)| InSight {
                index: due.probe.index,
                record: turn.2,
                price: due.prices[usize::from(!is_timed)],
            })
            .collect();
        let probes: Vec<Probe> = due.iter().take(together).map(|due| due.probe.clone()).collect();
        if !self.set_out(libraries, &probes, functions.clone(), is_timed, own_time) {
            return 0;
        }
        for function in &functions {
            self.looked_at
                .entry(function.index)
                .and_modify(|looked_at| looked_at.looks = looked_at.looks.wrapping_add(1));
        }
        together
    }

    /// How long a look at a function is to be, whether it times calls, and its record; `None` if there is no room for one.
    fn turn(&mut self, due: &Due<'_>, cost: Duration) -> Option<(Duration, bool, u32)> {
        let is_timed = self.with.target.timed;
        let looked_at = self.looked_at(due.probe.index, due.rate * due.prices[0] / 1e9)?;
        let is_first = looked_at.looks < TIMED_EVERY && !looked_at.has_timed;
        let is_rare = looked_at.share < ALL_THE_TIME;
        let is_turn = due.tracing.is_watched() || is_first || is_rare || looked_at.looks.is_multiple_of(TIMED_EVERY);
        Some((looked_at.own_time(cost), is_timed && is_turn, looked_at.record))
    }

    /// Attaches functions and leaves the rest to a thread.
    fn set_out(
        &mut self,
        libraries: &[Library],
        probes: &[Probe],
        functions: Vec<InSight>,
        is_timed: bool,
        own_time: Duration,
    ) -> bool {
        let with = self.with.clone();
        let mut session = Session::new(Arc::clone(&with.engine), Target { timed: is_timed, ..with.target });
        functions.iter().for_each(|function| session.adopt(function.index, function.record));
        let looked_at = functions.clone();
        let look = || {
            let before: Vec<Times> = functions.iter().map(|function| with.timed(function.record)).collect();
            let is_attached = session.attach(libraries, probes).attached.len() == probes.len();
            // The sooner the better: calls take longer from here on, and so it would mostly be at work in them when the look begins.
            let began = (Instant::now(), with.cpu(), with.watched(&looked_at));
            // It comes before others too, as it is started by a thread that does.
            is_attached.then(|| {
                thread::spawn(move || {
                    // Its probes go in any order: of a call that began now nobody might see the return, and it would seem to last until the
                    // next look.
                    let begin_no_more =
                        || looked_at.iter().for_each(|of| session.switches().allow(of.index, Tracing::Counted));
                    let glances = with.look(&looked_at, &before, began, own_time, begin_no_more);
                    session.let_go();
                    glances
                })
            })
        };
        // Where a thread of the target is interrupted, its call seems to take longer.
        let thread = beside(&self.with.runners, |_| before_others(look));
        self.under_way = thread.map(|thread| UnderWay { functions, is_timed, thread });
        self.under_way.is_some()
    }

    fn looked_at(&mut self, index: u32, share: f64) -> Option<&mut LookedAt> {
        if !self.looked_at.contains_key(&index) {
            let record = self.with.engine.take_brief()?;
            let looked_at = LookedAt { record, looks: 0, has_timed: false, calls: 0, share };
            self.looked_at.insert(index, looked_at);
        }
        self.looked_at.get_mut(&index)
    }

    /// What the look has seen that was under way, of each of its functions, as soon as its probes are gone.
    pub(super) fn finished(&mut self) -> Vec<(u32, Glance)> {
        let finished = self.under_way.take_if(|look| look.thread.is_finished());
        let Some(UnderWay { functions, is_timed, thread }) = finished else { return Vec::new() };
        // A panic there has been reported by its thread.
        let glances = thread.join().unwrap_or_default();
        let seen = functions.iter().zip(glances).filter_map(|(function, glance)| {
            let looked_at = self.looked_at.get_mut(&function.index)?;
            looked_at.has_timed |= glance.timed > 0;
            looked_at.has_cost(glance.calls_per_second(function.price) * function.price / 1e9);
            let all = self.with.reader.begun(function.record);
            let before = std::mem::replace(&mut looked_at.calls, all);
            let others = all.saturating_sub(before).saturating_sub(glance.all());
            Some((function.index, Glance { is_timed, others, ..glance }))
        });
        seen.collect()
    }

    /// The CPU time of the target up to now.
    pub(super) fn cpu(&self) -> Duration {
        self.with.cpu()
    }

    /// Whether the next look can be started at once.
    pub(super) fn is_free(&self) -> bool {
        self.under_way.is_none()
    }

    /// Whether there is a look to be [finished](Self::finished).
    pub(super) fn has_finished(&self) -> bool {
        self.under_way.as_ref().is_some_and(|look| look.thread.is_finished())
    }

    /// Waits until the probes of a look at a function are gone, if there is one. A function with two probes on its return, of which one
    /// goes, may keep calls that look open: it is not timed again before.
    pub(super) fn wait_until_gone(&self, index: u32) {
        let is_there = |look: &UnderWay| look.functions.iter().any(|function| function.index == index);
        while self.under_way.as_ref().is_some_and(|look| is_there(look) && !look.thread.is_finished()) {
            thread::sleep(ASK);
        }
    }

    /// Gives its records to others, when the target has ended.
    pub(super) fn give_back(mut self) {
        if let Some(look) = self.under_way.take() {
            // A panic there has been reported by its thread.
            drop(look.thread.join());
        }
        self.with.engine.give_back(self.looked_at.into_values().map(|function| function.record));
    }
}

impl Instruments {
    /// The calls of functions up to now.
    fn watched(&self, functions: &[InSight]) -> Vec<Watched> {
        functions.iter().map(|of| Watched::new(self.reader.begun_by_shard(of.record), of.price)).collect()
    }

    /// Looks at functions that are attached. With `begin_no_more` none of their calls is timed that has not begun.
    fn look(
        &self,
        functions: &[InSight],
        before: &[Times],
        (began, cpu, watched): (Instant, Duration, Vec<Watched>),
        own_time: Duration,
        begin_no_more: impl FnOnce(),
    ) -> Vec<Glance> {
        let seen = self.watch(functions, (began, watched), own_time);
        let ran = self.cpu().saturating_sub(cpu);
        begin_no_more();
        let is_starved = ran < LOOK && self.runners.want_a_cpu();
        let ending = Instant::now();
        let ended: Vec<u64> = functions.iter().map(|function| self.reader.begun(function.record)).collect();
        let cost_ns = || -> f64 {
            let costs = functions.iter().zip(&ended);
            costs.map(|(of, ended)| self.reader.begun(of.record).saturating_sub(*ended) as f64 * of.price).sum()
        };
        // Without a probe on the return there is none in flight.
        let is_in_flight = || functions.iter().any(|function| self.engine.in_flight(function.record) > 0);
        while is_in_flight() && ending.elapsed() < ENDING && cost_ns() < MEANWHILE.as_secs_f64() * 1e9 {
            thread::sleep(ASK);
        }
        let glance = |((function, before), seen): ((&InSight, &Times), Glance)| {
            let Times { timed, total_ns, off_ns, squares, cooling_ns } = self.timed(function.record).since(*before);
            Glance { is_starved, ran: Some(ran + TICK), timed, total_ns, off_ns, squares, cooling_ns, ..seen }
        };
        functions.iter().zip(before).zip(seen).map(glance).collect()
    }

    /// Watches functions until a thread that does nothing but call them has had so much time for itself. Were all looks equally long, those
    /// at a moment with many calls would see less of what the threads do by themselves, and show more calls than there are. A long one
    /// ends early where there are suddenly so many.
    fn watch(
        &self,
        functions: &[InSight],
        (began, mut watched): (Instant, Vec<Watched>),
        own_time: Duration,
    ) -> Vec<Glance> {
        let (ask, longest) = ((own_time / ASKED).max(ASK), own_time.max(LOOK * LONGER));
        loop {
            thread::sleep(ask);
            let length = began.elapsed();
            for (watched, function) in watched.iter_mut().zip(functions) {
                watched.see(length, &self.reader.begun_by_shard(function.record));
            }
            let paid: f64 = watched.iter().map(Watched::paid).sum();
            let own = length.as_secs_f64() - paid;
            let least = if paid >= COST.as_secs_f64() { LOOK } else { own_time };
            if own >= least.as_secs_f64() || length >= longest {
                let mut glances: Vec<Glance> = watched.into_iter().map(|watched| watched.glance(length)).collect();
                note_lost(&mut functions.iter().map(|of| of.price).zip(&mut glances).collect::<Vec<_>>());
                return glances;
            }
        }
    }

    /// The CPU time of the target up to now.
    fn cpu(&self) -> Duration {
        self.clock.read().unwrap_or_default()
    }

    /// The times in a record up to now.
    fn timed(&self, record: u32) -> Times {
        self.reader.sample(record).map_or_else(Times::default, |sample| Times::of(&sample.stats))
    }
}

/// The calls of a record that were timed.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    timed: u64,
    /// The sum of their times, of those in which threads did not run, and of their squares, in nanoseconds.
    total_ns: u64,
    off_ns: u64,
    squares: f64,
    /// The sum of their times, each of [`COOL_NS`] at most.
    cooling_ns: f64,
}

impl Times {
    fn of(stats: &MethodStats) -> Self {
        let square = |bucket| lower_bound_ns(bucket) * upper_bound_ns(bucket);
        let cooling_ns = |bucket| f64::midpoint(lower_bound_ns(bucket), upper_bound_ns(bucket)).min(COOL_NS);
        let buckets = || (0..).zip(stats.histogram);
        Self {
            timed: stats.histogram.iter().sum(),
            total_ns: stats.total_ns,
            off_ns: stats.off_ns,
            squares: buckets().map(|(bucket, calls)| calls as f64 * square(bucket)).sum(),
            cooling_ns: buckets().map(|(bucket, calls)| calls as f64 * cooling_ns(bucket)).sum(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            timed: self.timed.saturating_sub(before.timed),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            off_ns: self.off_ns.saturating_sub(before.off_ns),
            squares: (self.squares - before.squares).max(0.0),
            cooling_ns: (self.cooling_ns - before.cooling_ns).max(0.0),
        }
    }
}

/// The calls of a function in the course of a look.
struct Watched {
    before: Vec<u64>,
    price: f64,
    calls: Vec<u64>,
    course: Vec<(Duration, u64)>,
}

impl Watched {
    fn new(before: Vec<u64>, price: f64) -> Self {
        Self { before, price, calls: Vec::new(), course: Vec::new() }
    }

    fn see(&mut self, length: Duration, begun: &[u64]) {
        self.calls = more(begun, &self.before);
        self.course.push((length, self.calls.iter().sum()));
    }

    /// What the thread has lost by it that calls it most, in seconds.
    fn paid(&self) -> f64 {
        self.calls.iter().max().copied().unwrap_or(0) as f64 * self.price / 1e9
    }

    fn glance(self, length: Duration) -> Glance {
        Glance { length, calls: self.calls, clustering: clustering(&self.course), ..Glance::default() }
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
        let mut function = LookedAt { record: 0, looks: 0, has_timed: false, calls: 0, share: 0.9 };
        assert_eq!(function.own_time(ENOUGH), ENOUGH.div_f64(0.9));
        (0..30).for_each(|_| function.has_cost(0.0));
        assert_eq!(function.own_time(ENOUGH), LONG_LOOK);
        function.has_cost(0.1);
        assert_eq!(function.own_time(ENOUGH), 10 * ENOUGH);
        function.has_cost(0.9);
        assert_eq!(function.own_time(ENOUGH), ENOUGH.div_f64(0.9));
        let looks = (0..).take_while(|_| {
            function.has_cost(0.1);
            function.own_time(ENOUGH) < 10 * ENOUGH
        });
        assert!((5..12).contains(&looks.count()));
        assert_eq!(function.own_time(ENOUGH / 2), 5 * ENOUGH);
        assert_eq!(function.own_time(Duration::ZERO), 10 * LITTLE);
    }
}
