//! Methods that are counted by stubs in the target: the conversation with the shim there, and what follows from it.
//!
//! The shim says which methods it knows, nprof says which of them get stubs. A method that the VM binds from now on has
//! its stub before it is called, and nprof decides later whether it stays.

mod connect;
mod share;
mod stub_states;

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use nprof_common::wire::{self, ToShim, Welcome};
use nprof_common::{MethodStats, Mode};

pub use self::connect::check_stubs;
pub(super) use self::connect::{connect, fall_back};
use self::stub_states::{Known, Planned, Standing, StubStates};
use super::Error;
use crate::aggregate::{StubSample, Timed};
use crate::attach::Seen;
use crate::collect::Reader;
use crate::model::{
    Bound as HowBound, Library, Method, NativeCode, Pid, PlannedMethod, Probe, SkipReason, Traced, Tracing, VirtAddr,
};
use crate::resolve::Planner;
use crate::shim::{self, Bound, Choices, Connection, FromShimOwned, Records};

/// How long the shim may take to tell of all methods, and to bind them.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of a shard of a record.
const RECORD_BYTES: u32 = 1536;
const _: () = assert!(size_of::<MethodStats>() == RECORD_BYTES as usize);
/// Stubs for which there are records at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_STUBS: u32 = 2048;
/// So many calls of a method are timed before only some are: what is called rarely is known exactly, and costs little.
const OFTEN: u64 = 1_000;
/// How often it is asked to tell of all methods again because messages were lost.
const MOST_SCANS: u32 = 5;

/// What stubs do at calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StubOptions {
    pub mode: Mode,
    /// From how many nanoseconds on a call is chosen; with 0 chance decides.
    pub threshold_ns: u64,
    /// One of so many calls of a method is timed, once it has been called often.
    pub time_every: u32,
}

/// The stubs in one target: none where probes see everything, and then there is never anything to do.
#[derive(Debug)]
pub(super) struct Stubs {
    pid: Pid,
    /// `None` where there is no shim, or not any more.
    connection: Option<Connection>,
    stub_states: StubStates,
    options: StubOptions,
    /// Whether methods are to have stubs.
    wanted: bool,
    /// Where the stubs are in the target.
    pool: Range<u64>,
    /// `None` where there never was a shim.
    records: Option<(Reader, Choices)>,
    /// When the measurement began; until then all is as it was from the start.
    start: Option<Instant>,
    /// How many messages the shim could not send, and how often it was asked to tell all again.
    dropped: u64,
    scans: u32,
    is_scanned: bool,
    /// Methods that hold the address of a stub of which the shim has not told yet.
    held: Vec<Method>,
    /// What was recorded when the shim was gone, by record.
    last: Option<HashMap<u32, MethodStats>>,
    /// Why the shim is gone.
    lost: Option<shim::Error>,
}

/// A method that stubs count, as it is published.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// Everything but the numbers.
    pub about: StubSample,
    /// The index of its function, if that can have a probe.
    pub probe: Option<u32>,
    /// The numbers, if they do not change any more.
    pub last: Option<MethodStats>,
    /// What had been timed before only some of the calls were.
    pub before: Option<Timed>,
}

impl Stubs {
    /// No stubs: probes see all calls.
    pub(super) fn none(pid: Pid) -> Self {
        let options = StubOptions { mode: Mode::Count, threshold_ns: u64::MAX, time_every: 0 };
        Self {
            pid,
            connection: None,
            stub_states: StubStates::new(options),
            options,
            wanted: false,
            pool: 0..0,
            records: None,
            start: None,
            dropped: 0,
            scans: 0,
            is_scanned: false,
            held: Vec::new(),
            last: None,
            lost: None,
        }
    }

    /// Gives the shim records for its stubs, with room for more than the `methods` that the JVM has now, and asks which methods
    /// there are.
    ///
    /// # Errors
    /// If the shim is gone, or does not answer in time.
    pub(super) fn begin(
        mut connection: Connection,
        (pid, methods): (Pid, usize),
        reader: &Reader,
        options: StubOptions,
    ) -> Result<Self, Error> {
        let hello = *connection.hello();
        let planned = u32::try_from(methods + methods / 4).unwrap_or(u32::MAX);
        let room = hello.taken.saturating_add(planned).max(MIN_STUBS).min(hello.records);
        let options = StubOptions { mode: if hello.steady_clock { options.mode } else { Mode::Count }, ..options };
        let shards = u32::try_from(reader.shards() + 1).unwrap_or(u32::MAX);
        let records = Records::new(room, shards).map_err(|source| shim::Error::Memory { pid, source })?;
        let welcome = Welcome {
            version: wire::VERSION,
            shards: records.shards - 1,
            record_bytes: RECORD_BYTES,
            first: 0,
            records: records.records,
            bind_mode: options.mode as u32,
            bind_probability: 0,
            bind_threshold_ns: options.threshold_ns,
            stub_binds: true,
        };
        connection.welcome(welcome, records.memory())?;
        connection.send(ToShim::Scan)?;
        let mut stubs = Self {
            connection: Some(connection),
            stub_states: StubStates::new(options),
            options,
            wanted: true,
            pool: hello.pool_start..hello.pool_end,
            records: Some((reader.of(records.mapped(), records.shards), records.choices())),
            scans: 1,
            ..Self::none(pid)
        };
        stubs.wait(|stubs| stubs.is_scanned);
        match stubs.lost.take() {
            Some(error) => Err(error.into()),
            None if !stubs.is_scanned => Err(shim::Error::Silent { pid }.into()),
            None => Ok(stubs),
        }
    }

    /// The measurement has begun: what comes from now on comes late.
    pub(super) fn begin_late(&mut self, start: Instant) {
        self.start = Some(start);
    }

    /// Whether there are stubs, or were: what stands before a method may be one of them.
    pub(super) fn are_there(&self) -> bool {
        self.records.is_some()
    }

    /// Whether methods are to have stubs, and can.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted && self.connection.is_some()
    }

    /// Says whether methods are to have stubs.
    pub(super) fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Takes in what the shim has said meanwhile. Returns whether there was something.
    pub(super) fn read(&mut self) -> bool {
        let mut has_news = false;
        while let Some(message) = self.receive(Duration::ZERO) {
            self.take_in(message);
            has_news = true;
        }
        has_news
    }

    /// Has the shim do what the plan asks for. What it does is known when it has answered.
    pub(super) fn order(&mut self, planner: &Planner, is_probed: impl Fn(u32) -> bool) {
        let wanted = self.are_wanted();
        let plan = Known { by_id: by_id(planner), others: &|bound| unplanned(planner, bound) };
        let orders = self.stub_states.decide(&plan, wanted, self.now(), is_probed);
        for order in orders {
            self.send(order);
        }
    }

    /// Has only some calls timed of methods that have been called often, if that is wanted. Returns whether there are more
    /// of them than before.
    pub(super) fn time_fewer(&mut self) -> bool {
        let Some((reader, _)) = &self.records else { return false };
        if self.options.mode != Mode::Time || self.options.time_every < 2 {
            return false;
        }
        let often = |record| (reader.begun(record) >= OFTEN).then(|| reader.sample(record)).flatten();
        let orders = self.stub_states.time_fewer(|record| often(record).map(|sample| Timed::of(&sample.stats)));
        let times_fewer = !orders.is_empty();
        for order in orders {
            self.send(order);
        }
        times_fewer
    }

    /// Whether it may be that orders follow from what the shim has said before.
    pub(super) fn has_doubts(&self) -> bool {
        self.stub_states.has_doubts()
    }

    /// Waits until the shim has done all of that, or is gone.
    pub(super) fn wait_until_settled(&mut self) {
        self.wait(|stubs| stubs.stub_states.is_settled());
        if self.connection.is_some() && !self.stub_states.is_settled() {
            tracing::warn!("the shim in process {} has not bound its stubs for {} s", self.pid, PATIENCE.as_secs());
        }
    }

    /// Whether the shim has done all that it was asked to.
    pub(super) fn is_settled(&self) -> bool {
        self.stub_states.is_settled()
    }

    /// Methods with the addresses that they were bound to, where the VM holds those of stubs. Methods of which the shim has
    /// not told yet come with a later call.
    pub(super) fn translate(&mut self, methods: Vec<Method>) -> Vec<Method> {
        let held = std::mem::take(&mut self.held);
        let mut translated = Vec::with_capacity(methods.len());
        for mut method in held.into_iter().chain(methods) {
            match method.code {
                NativeCode::Bound(address) if self.pool.contains(&address.0) => {
                    match self.stub_states.original(&method) {
                        Some(original) => {
                            method.code = NativeCode::Bound(original);
                            translated.push(method);
                        }
                        None => self.held.push(method),
                    }
                }
                _ => translated.push(method),
            }
        }
        translated
    }

    /// Who is to see the calls of a function with these methods.
    pub(super) fn share(&self, methods: &[PlannedMethod]) -> Seen {
        let wanted = self.are_wanted();
        let standings: Vec<Standing> = methods.iter().map(|known| self.stub_states.standing(known, wanted)).collect();
        share::share(&standings, wanted)
    }

    /// A probe sees the calls of this function that no stub has counted.
    pub(super) fn probed(&mut self, index: u32) {
        self.stub_states.probed(index);
    }

    /// Whether a method has a stub that counts.
    pub(super) fn has_stub(&self, known: &PlannedMethod) -> bool {
        self.connection.is_some() && self.stub_states.standing(known, true) == Standing::Stubbed
    }

    /// Whether a method has a stub that counts, or gets one when it is bound.
    pub(super) fn sees(&self, known: &PlannedMethod) -> bool {
        self.connection.is_some() && self.stub_states.standing(known, self.are_wanted()) != Standing::Probed
    }

    /// The selected methods with a record.
    pub(super) fn listed(&self) -> Vec<Listed> {
        let tracing = if self.options.mode == Mode::Time { Tracing::Timed } else { Tracing::Counted };
        let listed = |(entry, planned, record): (&stub_states::Entry, &Planned, u32)| Listed {
            about: StubSample {
                record,
                method: planned.method.clone(),
                was_probed: entry.was_probed,
                library: planned.library.clone(),
                traced_after: entry.since,
                traced: Traced::as_wanted(tracing),
                stats: MethodStats::ZERO,
                estimated_ns: None,
            },
            before: entry.sampled,
            probe: planned.probe,
            last: self.last.as_ref().map(|last| last.get(&record).copied().unwrap_or(MethodStats::ZERO)),
        };
        self.stub_states.recorded().map(listed).collect()
    }

    /// The records, and which calls stubs choose where chance decides; `None` where there never were stubs.
    pub(super) fn records(&self) -> Option<&(Reader, Choices)> {
        self.records.as_ref()
    }

    /// Whether the shim is gone and nothing has been done about it.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Gives up the stubs of a shim that is gone, and says why it is. What they have recorded is kept as it is now: they
    /// may go on to count, but nobody knows for whom.
    pub(super) fn give_up(&mut self) -> Option<shim::Error> {
        let why = self.lost.take()?;
        let (reader, _) = self.records.as_ref()?;
        let sample = |(_, _, record)| Some((record, reader.sample(record)?.stats));
        self.last = Some(self.stub_states.recorded().filter_map(sample).collect());
        self.stub_states.give_up();
        Some(why)
    }

    /// Has the shim give all methods their own addresses back and leave the records alone. Returns when it has.
    pub(super) fn detach(&mut self) {
        self.send(ToShim::Detach);
        let deadline = Instant::now() + PATIENCE;
        while let Some(left) = deadline.checked_duration_since(Instant::now())
            && self.connection.is_some()
        {
            if let Some(FromShimOwned::Detached(left)) = self.receive(left) {
                self.connection = None;
                tracing::debug!("process {}: {left} methods still go through a stub, which does nothing", self.pid);
                return;
            }
        }
        if self.lost.take().is_none() && self.are_there() {
            tracing::warn!("the shim in process {} does not answer: its stubs go on to count", self.pid);
        }
        self.connection = None;
    }

    fn take_in(&mut self, message: FromShimOwned) {
        match message {
            FromShimOwned::Bound(bound) => {
                if let Err(methods) = self.stub_states.bound(bound, self.now()) {
                    self.lose(shim::Error::TooMany { pid: self.pid, methods });
                }
            }
            FromShimOwned::Stubbed(stubbed) => self.stub_states.stubbed(&stubbed),
            FromShimOwned::Applied(applied) => self.stub_states.applied(applied.serial),
            FromShimOwned::Scanned(scanned) => {
                self.is_scanned = true;
                if scanned.unreadable > 0 {
                    tracing::debug!("process {}: the shim cannot read {} methods", self.pid, scanned.unreadable);
                }
            }
            FromShimOwned::Dropped(total) => self.scan_again(total),
            FromShimOwned::Note(text) => tracing::warn!("process {}: {text}", self.pid),
            FromShimOwned::Bye(reason) => self.lose(shim::Error::Bye { pid: self.pid, reason }),
            FromShimOwned::Hello(_) | FromShimOwned::Detached(_) => {}
        }
    }

    /// Messages were lost: whatever they said, a scan says it again.
    fn scan_again(&mut self, dropped: u64) {
        if dropped > self.dropped && self.scans < MOST_SCANS {
            self.scans += 1;
            self.send(ToShim::Scan);
        }
        self.dropped = dropped;
    }

    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_done(self)
            && self.connection.is_some()
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            if let Some(message) = self.receive(left) {
                self.take_in(message);
            }
        }
    }

    fn receive(&mut self, timeout: Duration) -> Option<FromShimOwned> {
        match self.connection.as_mut()?.receive(timeout) {
            Ok(message) => message,
            Err(error) => {
                self.lose(error);
                None
            }
        }
    }

    fn send(&mut self, message: ToShim) {
        if let Some(connection) = &mut self.connection
            && let Err(error) = connection.send(message)
        {
            self.lose(error);
        }
    }

    fn lose(&mut self, why: shim::Error) {
        self.connection = None;
        self.lost = Some(why);
    }

    /// The time since the start of the measurement.
    fn now(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }
}

/// A method that is selected and that the walk over the classes has not found: it was bound and gone in between.
fn unplanned(planner: &Planner, bound: &Bound) -> Option<Planned> {
    let Bound { class, name, signature, address, .. } = bound.clone();
    let method = Method { id: bound.method?, class, name, signature, code: NativeCode::Bound(address) };
    if shim::is_own(&method) || !planner.would_take(&method) {
        return None;
    }
    let holds = |library: &&Library| library.mappings.iter().any(|mapping| mapping.contains(address));
    let library = planner.libraries().iter().find(holds).map(Library::name).unwrap_or_default();
    Some(Planned { method: PlannedMethod { method, bound: HowBound::Registered }, probe: None, library })
}

/// The methods of a plan for which there may be stubs.
fn by_id(planner: &Planner) -> HashMap<VirtAddr, Planned> {
    let skipped = planner.skipped().filter(|skipped| skipped.reason != SkipReason::OverLimit);
    let skipped =
        skipped.map(|skipped| Planned { method: skipped.method.clone(), probe: None, library: String::new() });
    let of_probe = |probe: &Probe| {
        let library = planner.libraries().get(probe.site.library.0).map(Library::name).unwrap_or_default();
        let index = probe.index;
        let planned = move |method: &PlannedMethod| Planned {
            method: method.clone(),
            probe: Some(index),
            library: library.clone(),
        };
        // A stub stands before a method's ordinary function, whatever else it has.
        let ordinary = probe.methods.iter().filter(|known| known.bound != HowBound::Critical);
        ordinary.map(planned).collect::<Vec<_>>()
    };
    let probed = planner.probes().iter().flat_map(of_probe);
    skipped.chain(probed).map(|planned| (planned.method.method.id, planned)).collect()
}
