//! Methods that are counted by stubs in the target: the conversation with the shim there, and what follows from it.
//!
//! The shim says which methods it knows, nprof says which of them get stubs. A method that the VM binds from now on has
//! its stub before it is called, and nprof decides later whether it stays.

mod connect;
mod functions;
mod options;
mod selected;
mod share;
mod stub_states;
mod switches;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::wire::{self, ToShim, Welcome};
use nprof_common::{MethodStats, Mode};

pub use self::connect::check_stubs;
pub(super) use self::connect::{connect, fall_back};
pub(super) use self::functions::JniFunction;
pub(super) use self::options::{Collected, StubOptions};
use self::selected::{by_id, library_of, may_be_selected, unplanned};
use self::stub_states::{Known, Planned, Standing, StubStates};
pub(super) use self::switches::StubSwitches;
use super::Error;
use super::chosen::Choice;
use crate::aggregate::StubSample;
use crate::attach::{RowMap, Seen};
use crate::collect::Reader;
use crate::model::{Library, Method, NativeCode, Pid, PlannedMethod, StubPrice, Traced, Tracing};
use crate::resolve::Planner;
use crate::shim::{self, Bound, Choices, Connection, FromShimOwned, How, Records};

/// How long the shim may take to tell of all methods, and to bind them.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of a shard of a record.
const RECORD_BYTES: u32 = 1536;
const _: () = assert!(size_of::<MethodStats>() == RECORD_BYTES as usize);
/// Stubs for which there are records at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_STUBS: u32 = 2048;
/// How often it is asked to tell of all methods again because messages were lost.
const MOST_SCANS: u32 = 5;

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
    records: Option<Recorded>,
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
    /// Whether it has said something before that of which nothing has come yet.
    has_last_words: bool,
}

/// What stubs record, and what decides what they do.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub switches: Arc<StubSwitches>,
    /// Which calls they choose where chance decides.
    pub choices: Choices,
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
}

impl Stubs {
    /// No stubs: probes see all calls.
    pub(super) fn none(pid: Pid) -> Self {
        let options = StubOptions {
            mode: Mode::Count,
            choice: Choice::Nothing,
            time_every: 0,
            price: StubPrice::default(),
            collected: Collected::default(),
            wants_all: true,
        };
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
            has_last_words: false,
        }
    }

    /// Gives the shim records for its stubs, with room for more than the `methods` that the JVM has now, and asks which methods
    /// there are. `rows` is what threads use, if that is collected.
    ///
    /// # Errors
    /// If the shim is gone, or does not answer in time.
    pub(super) fn begin(
        mut connection: Connection,
        (pid, methods): (Pid, usize),
        (reader, rows): (&Reader, Option<&RowMap>),
        (options, functions): (StubOptions, &[JniFunction]),
    ) -> Result<Self, Error> {
        let hello = *connection.hello();
        let planned = u32::try_from(methods + methods / 4).unwrap_or(u32::MAX);
        let room = hello.taken.saturating_add(planned).max(MIN_STUBS).min(hello.records);
        let options = StubOptions { mode: if hello.steady_clock { options.mode } else { Mode::Count }, ..options };
        let shards = u32::try_from(reader.shards() + 1).unwrap_or(u32::MAX);
        let records = Records::new(room, shards, options.collected.consumed.then_some(options.collected.bytes));
        let records = records.map_err(|source| shim::Error::Memory { pid, source })?;
        let welcome = Welcome {
            version: wire::VERSION,
            shards: records.shards - 1,
            record_bytes: RECORD_BYTES,
            first: 0,
            records: records.records,
            bind_mode: options.mode as u32,
            bind_probability: 0,
            bind_threshold_ns: options.choice.threshold_ns(),
            bind_asked: options.wants_all,
            tell_binds: functions.is_empty(),
            stub_binds: functions.is_empty(),
            rows: rows.map_or(0, RowMap::rows),
            consumed: records.consumed.is_some(),
            bytes: records.consumed.unwrap_or(0),
        };
        let maps: Vec<BorrowedFd<'_>> = [Some(records.memory()), rows.map(RowMap::map)].into_iter().flatten().collect();
        connection.welcome(welcome, &maps)?;
        connection.send(ToShim::Scan)?;
        let of_stubs = reader.of(records.mapped(), records.shards);
        let of_stubs = of_stubs.with_consumed_at(records.first_consumed()).with_bytes_at(records.bytes());
        let of_stubs = of_stubs.with_counts_at(records.first_counts());
        let switches = StubSwitches::new(options, of_stubs, connection.sender());
        let mut stubs = Self {
            connection: Some(connection),
            stub_states: StubStates::new(options),
            options,
            wanted: true,
            pool: hello.pool_start..hello.pool_end,
            records: Some(Recorded { switches: Arc::new(switches), choices: records.choices() }),
            scans: 1,
            ..Self::none(pid)
        };
        stubs.wait(|stubs| stubs.is_scanned);
        // The shim has them in any case.
        functions.iter().for_each(|function| stubs.take_in(FromShimOwned::Bound(function.bound())));
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
        let mut has_news = std::mem::take(&mut self.has_last_words);
        while let Some(message) = self.receive(Duration::ZERO) {
            self.take_in(message);
            has_news = true;
        }
        has_news
    }

    /// Has the shim do what the plan asks for. What it does is known when it has answered.
    pub(super) fn order(&mut self, planner: &Planner, is_probed: impl Fn(u32) -> bool) {
        let wanted = self.are_wanted();
        let may_be = |bound: &Bound| may_be_selected(planner, bound);
        let library_of = |address| library_of(planner, address);
        let others = |bound: &Bound| unplanned(planner, bound);
        let plan = Known { by_id: by_id(planner), others: &others, may_be: &may_be, library_of: &library_of };
        let mut orders = self.stub_states.decide(&plan, wanted, self.now(), is_probed);
        // What rules say of a method holds from its stub's first call on.
        self.meet_all();
        let Some(switches) = self.switches() else { return };
        for order in &mut orders {
            if let ToShim::Watch(watch) = order {
                *watch = match self.stub_states.planned(watch.number) {
                    Some(planned) => switches.first_watch(watch.number, &planned.method.method),
                    None => switches.watch(watch.number),
                };
            }
            self.send(*order);
        }
        switches.told(&orders);
    }

    /// What decides what stubs do at calls; `None` where there never were stubs.
    pub(super) fn switches(&self) -> Option<Arc<StubSwitches>> {
        self.records.as_ref().map(|recorded| Arc::clone(&recorded.switches))
    }

    /// Says again what could not be said at once, and has only some calls timed of what is called often, if the user wants that.
    pub(super) fn keep_switched(&self) {
        if let Some(switches) = self.switches() {
            switches.thin_out();
            switches.told(&[]);
        }
    }

    /// Switches stubs of methods off that are not selected any more, and on those that are again. They stay bound.
    pub(super) fn select(&self, planner: &Planner) {
        let Some(switches) = self.switches() else { return };
        let selected = |(_, planned, record): (&stub_states::Entry, &Planned, u32)| {
            planner.selects_method(&planned.method.method, planned.probe).then_some(record)
        };
        let selected: HashSet<u32> = self.stub_states.recorded().filter_map(selected).collect();
        switches.select(|record| selected.contains(&record));
    }

    /// Whether it may be that orders follow from what the shim has said before.
    pub(super) fn has_doubts(&self) -> bool {
        self.stub_states.has_doubts()
    }

    /// Whether a method was bound to an address outside of these libraries, and nothing is decided of it: its library may have
    /// been mapped since they were looked at. Taken for one without a library now, it would be counted under two names.
    pub(super) fn is_outside_of(&self, libraries: &[Library]) -> bool {
        self.stub_states.undecided().any(|bound| !libraries.iter().any(|library| library.holds(bound.address)))
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
                price: self.options.price,
                off_cpu: self.options.collected.off_cpu && tracing == Tracing::Timed,
                nested: self.options.collected.is_any(),
                consumed: None,
                bytes_per_call: None,
            },
            probe: planned.probe,
            last: self.last.as_ref().map(|last| last.get(&record).copied().unwrap_or(MethodStats::ZERO)),
        };
        self.meet_all();
        self.stub_states.recorded().map(listed).collect()
    }

    /// The records of methods that are not selected.
    pub(super) fn unselected(&self) -> impl Iterator<Item = u32> {
        self.stub_states.unselected()
    }

    /// Has what is done at the calls of each method with a record settled.
    fn meet_all(&self) {
        let Some(switches) = self.switches() else { return };
        for (entry, planned, record) in self.stub_states.recorded() {
            switches.meet(entry.bound.number, record, &planned.method.method);
        }
    }

    /// What stubs record; `None` where there never were stubs.
    pub(super) fn records(&self) -> Option<&Recorded> {
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
        let switches = self.switches()?;
        let sample = |(_, _, record)| Some((record, switches.reader().sample(record)?.stats));
        self.last = Some(self.stub_states.recorded().filter_map(sample).collect());
        self.stub_states.give_up();
        Some(why)
    }

    /// Has the shim give all methods their own addresses back and leave the records alone. Returns when it has.
    pub(super) fn detach(&mut self) {
        self.switches().into_iter().for_each(|switches| switches.stop());
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
                let renewed = (bound.how == How::Event).then_some(bound.number);
                if let Err(methods) = self.stub_states.bound(bound, self.now()) {
                    self.lose(shim::Error::TooMany { pid: self.pid, methods });
                }
                if let Some((number, switches)) = renewed.zip(self.switches()) {
                    switches.renewed(number);
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
            // Who has stubs keeps no ids and follows no trees.
            _ => {}
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
            // A JVM that has just ended may have bound and called methods of which nobody knows yet.
            let last_words: Vec<_> = std::iter::from_fn(|| connection.unread()).collect();
            self.has_last_words |= !last_words.is_empty();
            last_words.into_iter().for_each(|message| self.take_in(message));
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
