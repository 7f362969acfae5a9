//! Short looks at functions: how often they are called, and how long calls take.
//!
//! A probe stops its callers, so what may be called too often for one is looked at for a few milliseconds, with probes and
//! records besides those that trace. Before anything is attached all functions are looked at ([`Looker::survey`]), and later
//! one by one those that are too dear to be watched ([`Looker::look`]).

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::attach::{Engine, Session, Target};
use crate::collect::Reader;
use crate::govern::Glance;
use crate::model::{Library, Probe};
use crate::sys::cpu_clock::CpuClock;
use crate::sys::priority;

/// Functions that are looked at together. The more, the longer are the first of them slowed.
const TOGETHER: usize = 64;
/// How long it takes to see whether a function is called all the time: after that it is so with so many calls.
const MOMENT: Duration = Duration::from_micros(50);
const MANY: u64 = 4;
/// How long such a function is looked at, unless it has cost the target [`ENOUGH`] by then.
const GLIMPSE: Duration = Duration::from_micros(500);
const ENOUGH: Duration = Duration::from_micros(200);
/// From this share of a core on a function is not left with a probe any longer than that.
const DEAR: f64 = 0.05;
/// How long it takes to put a probe into a target, or out of it, that hits another one all the time: the kernel
/// waits for the lock of its address space, which each hit takes for a moment.
const LOCKED: Duration = Duration::from_millis(4);
/// No more than this share of the time may be lost by such looks.
const SLOWED: f64 = 0.1;
/// How much CPU time of the target a look sees.
const LOOK: Duration = Duration::from_millis(1);
/// How much CPU time a look at many functions sees, unless it has cost [`COST`] by then.
const SURVEY: Duration = Duration::from_millis(3);
/// How long a look waits for a target that does not get a CPU, or wants none.
const LONGEST: Duration = Duration::from_millis(10);
/// What a look at many functions may cost the target: then it is known which are dear.
const COST: Duration = Duration::from_millis(1);
/// How often it is asked what that costs.
const ASK: Duration = Duration::from_micros(200);
/// The longest pause that such a look is paid for by.
const PAUSE: Duration = Duration::from_millis(200);
/// Of so many looks at a function one times calls.
const TIMED_EVERY: u32 = 8;
/// How long calls that have begun in a look may go on.
const ENDING: Duration = Duration::from_millis(1);

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
    /// The calls in the record at the end of the last look.
    calls: u64,
}

/// What came of attaching functions one by one.
struct Attached<'a> {
    /// Those that are not called all the time.
    quiet: Vec<&'a Probe>,
    /// The one after them that is: its index, the share of a core that it costs, and what was seen of it.
    dear: Option<(u32, f64, Glance)>,
    /// How many were taken.
    taken: usize,
}

impl Looker {
    pub(super) fn new(engine: Arc<Engine>, reader: Reader, target: Target) -> Self {
        Self { engine, reader, target, clock: CpuClock::of(target.pid), looked_at: BTreeMap::new(), leaving: None }
    }

    /// How often each of these functions is called, counted for some milliseconds, by index. Functions that cannot be
    /// looked at are missing. A call is taken to cost `price` nanoseconds, and no more than the share `budget` of the time
    /// is spent.
    pub(super) fn survey(
        &self,
        libraries: &[Library],
        probes: &[Probe],
        budget: f64,
        price: impl Fn(&Probe) -> f64 + Sync,
    ) -> BTreeMap<u32, Glance> {
        let look = || {
            // Each time that this waits for a CPU, the target runs into a probe.
            priority::raise(None);
            self.survey_here(libraries, probes, budget, &price)
        };
        thread::scope(|scope| scope.spawn(look).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn survey_here(
        &self,
        libraries: &[Library],
        probes: &[Probe],
        budget: f64,
        price: &impl Fn(&Probe) -> f64,
    ) -> BTreeMap<u32, Glance> {
        let (mut seen, mut rest) = (BTreeMap::new(), probes);
        while !rest.is_empty() {
            let mut session = Session::new(Arc::clone(&self.engine), Target { timed: false, ..self.target });
            let Attached { quiet, dear, taken } = self.attach_quiet(&mut session, libraries, rest, price);
            rest = &rest[taken..];
            let began = Instant::now();
            let glances = self.count(&session, &quiet, price);
            session.switch_off();
            // They slow the target until they are gone, and the next batch need not wait for that.
            thread::spawn(move || session.give_back());
            let cost = |(probe, glance): &(&Probe, Glance)| glance.calls_per_second(0.0) * price(probe) / 1e9;
            let share: f64 = glances.iter().map(cost).sum();
            let mut pause = began.elapsed().mul_f64((share / budget).clamp(0.0, 1e3));
            seen.extend(glances.into_iter().map(|(probe, glance)| (probe.index, glance)));
            if let Some((index, share, glance)) = dear {
                pause = pause.max((glance.length + LOCKED).mul_f64(share.min(1.0) / SLOWED));
                seen.insert(index, glance);
            }
            thread::sleep(pause.min(PAUSE));
        }
        seen
    }

    /// Attaches functions one by one, until one is called all the time: that one is looked at alone and detached before the
    /// next is attached, which would take the kernel [`LOCKED`] each time.
    fn attach_quiet<'a>(
        &self,
        session: &mut Session,
        libraries: &[Library],
        probes: &'a [Probe],
        price: &impl Fn(&Probe) -> f64,
    ) -> Attached<'a> {
        let mut attached = Attached { quiet: Vec::new(), dear: None, taken: 0 };
        for probe in probes.iter().take(TOGETHER) {
            attached.taken += 1;
            session.attach(libraries, std::slice::from_ref(probe));
            let Some(record) = session.record(probe.index) else { continue };
            thread::sleep(MOMENT);
            match self.glimpse(record, price(probe)) {
                Some((share, glance)) if share >= DEAR => {
                    session.drop_single(&[probe.index]);
                    attached.dear = Some((probe.index, share, glance));
                    break;
                }
                _ => attached.quiet.push(probe),
            }
        }
        attached
    }

    /// What a function costs that is called all the time, as a share of a core, and what was seen of it.
    fn glimpse(&self, record: u32, price: f64) -> Option<(f64, Glance)> {
        if self.reader.begun(record) < MANY {
            return None;
        }
        let before = self.reader.begun_by_shard(record);
        let made = || more(&self.reader.begun_by_shard(record), &before);
        let cost_ns = || made().iter().sum::<u64>() as f64 * price;
        let began = Instant::now();
        while began.elapsed() < GLIMPSE && cost_ns() < ENOUGH.as_secs_f64() * 1e9 {
            thread::sleep(MOMENT);
        }
        let (length, calls) = (began.elapsed(), made());
        // The kernel counts CPU time by ticks of some milliseconds. Whoever calls all the time runs all the time.
        let cpu = length * u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let glance = Glance { length, cpu, calls, ..Glance::default() };
        Some((glance.calls_per_second(price) * price / 1e9, glance))
    }

    /// Counts calls of functions that have just been attached.
    fn count<'a>(
        &self,
        session: &Session,
        batch: &[&'a Probe],
        price: &impl Fn(&Probe) -> f64,
    ) -> Vec<(&'a Probe, Glance)> {
        let records: Vec<(&Probe, u32)> =
            batch.iter().filter_map(|probe| Some((*probe, session.record(probe.index)?))).collect();
        // They were attached one after the other, and called since.
        let before: Vec<Vec<u64>> = records.iter().map(|(_, record)| self.reader.begun_by_shard(*record)).collect();
        let spent_ns = || -> f64 {
            let made = |record, before: &[u64]| more(&self.reader.begun_by_shard(record), before).iter().sum::<u64>();
            let cost =
                |((probe, record), before): (&(&Probe, u32), &Vec<u64>)| made(*record, before) as f64 * price(probe);
            records.iter().zip(&before).map(cost).sum()
        };
        let (length, cpu) = self.watch(SURVEY, || spent_ns() >= COST.as_secs_f64() * 1e9);
        let glance = |record, before: &[u64]| {
            let calls = more(&self.reader.begun_by_shard(record), before);
            Glance { length, cpu, calls, ..Glance::default() }
        };
        records.iter().zip(&before).map(|((probe, record), before)| (*probe, glance(*record, before))).collect()
    }

    /// Looks at a function; `None` if it cannot be looked at now. Only every so often calls are timed: that takes a
    /// second probe, which is in the way longer.
    pub(super) fn look(&mut self, libraries: &[Library], probe: &Probe) -> Option<Glance> {
        if !self.is_free() {
            return None;
        }
        if !self.looked_at.contains_key(&probe.index) {
            let record = self.engine.take_brief()?;
            self.looked_at.insert(probe.index, LookedAt { record, looks: 0, calls: 0 });
        }
        let LookedAt { record, looks, calls } = *self.looked_at.get(&probe.index)?;
        let is_timed = self.target.timed && looks % TIMED_EVERY == 0;
        let before = self.seen(record);
        let mut session = Session::new(Arc::clone(&self.engine), Target { timed: is_timed, ..self.target });
        session.adopt(probe.index, record);
        let attached = !session.attach(libraries, std::slice::from_ref(probe)).attached.is_empty();
        let (length, cpu) = if attached { self.watch(LOOK, || false) } else { Default::default() };
        let ending = Instant::now();
        while is_timed && self.engine.in_flight(record) > 0 && ending.elapsed() < ENDING {
            thread::sleep(ASK);
        }
        let after = self.seen(record);
        self.leaving = Some(thread::spawn(move || session.let_go()));
        let late = before.all().saturating_sub(calls);
        self.looked_at.insert(probe.index, LookedAt { record, looks: looks.wrapping_add(1), calls: after.all() });
        attached.then(|| Glance { length, cpu, is_timed, late, ..difference(&before, &after) })
    }

    /// Waits until the target has used so much CPU time, there is a reason to end, or it takes too long. Returns how
    /// long that was, and the CPU time that it has used meanwhile.
    fn watch(&self, cpu: Duration, is_enough: impl Fn() -> bool) -> (Duration, Duration) {
        let before = self.cpu();
        let began = Instant::now();
        let used = || self.cpu().saturating_sub(before);
        while used() < cpu && !is_enough() && began.elapsed() < LONGEST {
            thread::sleep(ASK);
        }
        (began.elapsed(), used())
    }

    /// The CPU time of the target up to now.
    pub(super) fn cpu(&self) -> Duration {
        self.clock.read().unwrap_or_default()
    }

    /// Whether the next look can be had at once.
    pub(super) fn is_free(&self) -> bool {
        self.leaving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Gives its records to others, when the target has ended.
    pub(super) fn give_back(self) {
        if let Some(leaving) = self.leaving {
            // A panic there has been reported by its thread.
            drop(leaving.join());
        }
        self.engine.give_back(self.looked_at.into_values().map(|function| function.record));
    }

    /// What stands in a record: as if one look had seen it.
    fn seen(&self, record: u32) -> Glance {
        let stats = self.reader.sample(record).map_or(nprof_common::MethodStats::ZERO, |sample| sample.stats);
        Glance {
            calls: self.reader.begun_by_shard(record),
            timed: stats.histogram.iter().sum(),
            total_ns: stats.total_ns,
            ..Glance::default()
        }
    }
}

/// What a look has seen, from what stood in its record before and after.
fn difference(before: &Glance, after: &Glance) -> Glance {
    Glance {
        calls: more(&after.calls, &before.calls),
        timed: after.timed.saturating_sub(before.timed),
        total_ns: after.total_ns.saturating_sub(before.total_ns),
        ..Glance::default()
    }
}

/// What was added to each shard.
fn more(after: &[u64], before: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect()
}
