//! Short looks at functions: how often they are called, and how long calls take.
//!
//! A probe stops its callers, so what may be called too often for one is looked at for a few milliseconds, with probes and
//! records besides those that trace. Before anything is attached all functions are looked at ([`Looker::survey`]), and later
//! one by one those that are too dear to be watched ([`Looker::look`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::attach::{Engine, Session, Target};
use crate::collect::Reader;
use crate::govern::Glance;
use crate::model::{Library, Probe};
use crate::sys::cpu_clock::CpuClock;

/// Functions that are looked at together. The more, the longer are the first of them slowed.
const TOGETHER: usize = 64;
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
        price: impl Fn(&Probe) -> f64,
    ) -> BTreeMap<u32, Glance> {
        let mut seen = BTreeMap::new();
        for batch in probes.chunks(TOGETHER) {
            let mut session = Session::new(Arc::clone(&self.engine), Target { timed: false, ..self.target });
            let began = Instant::now();
            session.attach(libraries, batch);
            let glances = self.count(&session, batch, &price);
            session.switch_off();
            // They slow the target until they are gone, and the next batch need not wait for that.
            thread::spawn(move || session.give_back());
            let cost = |(probe, glance): (&Probe, &Glance)| glance.calls_per_second(0.0) * price(probe) / 1e9;
            let share: f64 = glances.iter().map(|(probe, glance)| cost((probe, glance))).sum();
            seen.extend(glances.into_iter().map(|(probe, glance)| (probe.index, glance)));
            thread::sleep(began.elapsed().mul_f64((share / budget).clamp(0.0, 1e3)).min(PAUSE));
        }
        seen
    }

    /// Counts calls of functions that have just been attached.
    fn count<'a>(
        &self,
        session: &Session,
        batch: &'a [Probe],
        price: &impl Fn(&Probe) -> f64,
    ) -> Vec<(&'a Probe, Glance)> {
        let records: Vec<(&Probe, u32)> =
            batch.iter().filter_map(|probe| Some((probe, session.record(probe.index)?))).collect();
        let spent = || -> f64 {
            let calls = |record| self.reader.begun(record) as f64;
            records.iter().map(|(probe, record)| calls(*record) * price(probe)).sum()
        };
        let (length, cpu) = self.watch(SURVEY, || spent() >= COST.as_secs_f64() * 1e9);
        let glance = |record| Glance { length, cpu, calls: self.reader.begun_by_shard(record), ..Glance::default() };
        records.iter().map(|(probe, record)| (*probe, glance(*record))).collect()
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
        calls: after.calls.iter().zip(&before.calls).map(|(after, before)| after.saturating_sub(*before)).collect(),
        timed: after.timed.saturating_sub(before.timed),
        total_ns: after.total_ns.saturating_sub(before.total_ns),
        ..Glance::default()
    }
}
