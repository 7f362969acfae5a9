//! What stubs do at the calls of each method.
//!
//! As with probes ([`crate::attach::Switches`]) several have a say: the user wants something, the governor allows no more than
//! something, and what is not selected any more is off. The least of them is told to the shim by whoever changes it, at once: it
//! is a word in the target's memory that changes, and no method is bound anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nprof_common::Mode;
use nprof_common::wire::{self, ToShim, Watch};

use super::StubOptions;
use crate::aggregate::Untimed;
use crate::collect::Reader;
use crate::govern::{HowMany, Rung, StubCosts};
use crate::model::{Method, Traced, Tracing};
use crate::resolve::rule::Rule;
use crate::resolve::thresholds::Thresholds;
use crate::shim::Sender;
use crate::trace::chosen::Choice;

/// So many calls of a method are timed before only some are: what is called rarely is known exactly, and costs little.
const OFTEN: u64 = 1_000;

/// The switches of the stubs in one target.
#[derive(Debug)]
pub(in crate::trace) struct StubSwitches {
    options: StubOptions,
    reader: Reader,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sender: Sender,
    /// By record.
    methods: BTreeMap<u32, Switched>,
    /// The record of each of the shim's numbers.
    records: HashMap<u32, u32>,
    /// What users want; later ones count.
    rules: Vec<Rule>,
    /// From when on calls are slow.
    thresholds: Thresholds,
    /// When the measurement was over.
    stopped: Option<Instant>,
}

/// A method with a stub, as the governor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::trace) struct Governed {
    pub record: u32,
    pub wanted: Rung,
    pub rung: Rung,
}

/// One method.
#[derive(Debug)]
struct Switched {
    /// The shim's number.
    number: u32,
    wanted: Rung,
    allowed: Rung,
    is_selected: bool,
    /// Whether some calls are timed where all would be: because the user wants that of what is called often.
    is_thinned: bool,
    /// What the shim was told last.
    told: Option<Watch>,
    off_since: Option<Instant>,
    off: Duration,
    untimed: Untimed,
    /// From how many nanoseconds on a call is chosen.
    threshold_ns: u64,
    /// What is said of its arguments ([`Watch::kinds`]).
    kinds: u64,
}

impl Switched {
    fn rung(&self) -> Rung {
        if self.is_selected { self.wanted.min(self.allowed) } else { Rung::Off }
    }

    fn watch(&self, options: &StubOptions) -> Watch {
        let every =
            if self.rung() == Rung::Timed && self.is_thinned { options.time_every } else { self.rung().every() };
        let watch = options.watch(self.number, if self.rung() == Rung::Off { None } else { Some(every) });
        Watch { threshold_ns: self.threshold_ns, kinds: self.kinds, ..watch }
    }

    fn traced(&self, now: Instant) -> Traced {
        let pause = self.off_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Traced { tracing: self.rung().tracing(), wanted: self.wanted.tracing(), unwatched: self.off + pause }
    }

    /// Keeps the time in which its calls are not seen.
    fn account(&mut self, now: Instant) {
        match (self.rung() == Rung::Off, self.off_since) {
            (true, None) => self.off_since = Some(now),
            (false, Some(since)) => {
                self.off += now.saturating_duration_since(since);
                self.off_since = None;
            }
            _ => {}
        }
    }
}

impl StubSwitches {
    /// No methods yet. `reader` reads what stubs record.
    pub(super) fn new(options: StubOptions, reader: Reader, sender: Sender) -> Self {
        Self { options, reader, state: Mutex::new(State { sender, ..State::default() }) }
    }

    /// What stubs cost in this target. What the user does not want saves nothing: with a threshold for slow calls all have to be
    /// timed, and who says how many are to be timed is not to get fewer.
    pub(in crate::trace) fn costs(&self) -> StubCosts {
        let StubOptions { price, time_every, choice, .. } = self.options;
        let timed = match choice {
            Choice::Slow(_) => HowMany::All,
            _ if time_every > 1 => HowMany::OneOf(time_every),
            _ => HowMany::ByRung,
        };
        StubCosts { price, timed, gap_ns: 0.0 }
    }

    /// Takes in a method with a record, unless it is known.
    pub(super) fn meet(&self, number: u32, record: u32, method: &Method) {
        let mut state = self.lock();
        if state.records.insert(number, record) == Some(record) {
            return;
        }
        let wanted = state.rules.iter().rev().find(|rule| rule.selects(method));
        let threshold_ns = self.threshold_of(&state, method);
        let switched = Switched {
            number,
            wanted: self.usual(),
            allowed: Rung::Timed,
            is_selected: true,
            is_thinned: false,
            told: None,
            off_since: None,
            off: Duration::ZERO,
            untimed: Untimed::default(),
            threshold_ns,
            kinds: self.options.kinds(method),
        };
        let wanted = wanted.map_or(switched.wanted, |rule| self.possible(rule.wanted));
        state.methods.insert(record, Switched { told: self.told_by_itself(number), ..switched });
        self.change(&mut state, |of| of == record, |method| method.wanted = wanted);
    }

    /// What a stub is to do that is to be made, or to count again.
    pub(super) fn watch(&self, number: u32) -> Watch {
        let state = self.lock();
        let known = state.records.get(&number).and_then(|record| state.methods.get(record));
        let usual = || self.options.watch(number, Some(self.usual().every()));
        known.map_or_else(usual, |method| method.watch(&self.options))
    }

    /// The same, by what rules say of a method whose stub has no record yet.
    pub(super) fn first_watch(&self, number: u32, method: &Method) -> Watch {
        let state = self.lock();
        if state.records.contains_key(&number) {
            drop(state);
            return self.watch(number);
        }
        let rule = state.rules.iter().rev().find(|rule| rule.selects(method));
        let wanted = rule.map_or(self.usual(), |rule| self.possible(rule.wanted));
        let watch = self.options.watch(number, if wanted == Rung::Off { None } else { Some(wanted.every()) });
        Watch { threshold_ns: self.threshold_of(&state, method), kinds: self.options.kinds(method), ..watch }
    }

    /// A method has another stub, which does what is usual, whatever was said before.
    pub(super) fn renewed(&self, number: u32) {
        let mut state = self.lock();
        let Some(record) = state.records.get(&number).copied() else { return };
        if let Some(method) = state.methods.get_mut(&record) {
            method.told = self.told_by_itself(number);
        }
        self.change(&mut state, |of| of == record, |_| {});
    }

    /// These orders have been sent. What was changed meanwhile, or could not be said before, is said again.
    pub(super) fn told(&self, orders: &[ToShim]) {
        let mut state = self.lock();
        for order in orders {
            let ToShim::Watch(watch) = order else { continue };
            let record = state.records.get(&watch.number).copied();
            if let Some(method) = record.and_then(|record| state.methods.get_mut(&record)) {
                method.told = Some(*watch);
            }
        }
        self.change(&mut state, |_| true, |_| {});
    }

    /// Has only some calls timed of methods that have been called often, if the user wants that.
    pub(super) fn thin_out(&self) {
        if self.options.mode != Mode::Time || self.options.time_every < 2 {
            return;
        }
        let is_often = |record: u32| self.reader.begun(record) >= OFTEN;
        let mut state = self.lock();
        let full = state.methods.iter().filter(|(_, method)| !method.is_thinned).map(|(record, _)| *record);
        let often: Vec<u32> = full.filter(|record| is_often(*record)).collect();
        self.change(&mut state, |record| often.contains(&record), |method| method.is_thinned = true);
    }

    /// What the user wants to be done at the calls of methods.
    pub(in crate::trace) fn want(&self, concerns: impl Fn(u32) -> bool, wanted: Tracing) {
        let wanted = self.possible(wanted);
        self.change(&mut self.lock(), concerns, |method| method.wanted = wanted);
    }

    /// Sets the rules for methods that get their stubs from now on; later ones count.
    pub(in crate::trace) fn set_rules(&self, rules: Vec<Rule>) {
        self.lock().rules = rules;
    }

    /// From when on calls are slow. `of` says it of methods that are known, by their record, in nanoseconds.
    pub(in crate::trace) fn set_thresholds(&self, thresholds: Thresholds, of: impl Fn(u32) -> Option<u64>) {
        if !matches!(self.options.choice, Choice::Slow(_)) {
            return;
        }
        let mut state = self.lock();
        state.thresholds = thresholds;
        for (record, method) in &mut state.methods {
            method.threshold_ns = of(*record).unwrap_or(method.threshold_ns);
        }
        self.change(&mut state, |_| true, |_| {});
    }

    /// From how many nanoseconds on a stub chooses calls of a method.
    fn threshold_of(&self, state: &State, method: &Method) -> u64 {
        match self.options.choice {
            Choice::Slow(_) => state.thresholds.of(method),
            choice => choice.threshold_ns(),
        }
    }

    /// The most that may be done at the calls of a method. Returns what was done before; `None` if it has no stub.
    pub(in crate::trace) fn allow(&self, record: u32, allowed: Rung) -> Option<Rung> {
        let mut state = self.lock();
        let before = state.methods.get(&record)?.rung();
        self.change(
            &mut state,
            |of| of == record,
            |method| {
                // Who gets all that is wanted now may want more later.
                method.allowed = if allowed >= method.wanted { Rung::Timed } else { allowed };
            },
        );
        Some(before)
    }

    /// Whether methods are to be traced at all. Their stubs stay, and do nothing where they are not.
    pub(super) fn select(&self, is_selected: impl Fn(u32) -> bool) {
        let mut state = self.lock();
        let changed =
            |(record, method): (&u32, &Switched)| (method.is_selected != is_selected(*record)).then_some(*record);
        let changed: Vec<u32> = state.methods.iter().filter_map(changed).collect();
        self.change(&mut state, |record| changed.contains(&record), |method| method.is_selected = !method.is_selected);
    }

    /// How a method is traced; `None` if it has no stub.
    pub(in crate::trace) fn traced(&self, record: u32) -> Option<Traced> {
        let state = self.lock();
        let now = state.stopped.unwrap_or_else(Instant::now);
        state.methods.get(&record).map(|method| method.traced(now))
    }

    /// The time of the calls that were only counted, in nanoseconds, where others tell it.
    pub(in crate::trace) fn estimate(&self, record: u32, stats: &nprof_common::MethodStats) -> Option<u64> {
        self.lock().methods.get(&record)?.untimed.until(stats)
    }

    /// One of so many calls of a method is timed; 0 where none is, or it has no stub.
    pub(in crate::trace) fn every(&self, record: u32) -> u32 {
        let state = self.lock();
        state.methods.get(&record).map_or(0, |method| every(&method.watch(&self.options)))
    }

    /// All methods whose stubs do what they are told.
    pub(in crate::trace) fn governed(&self) -> Vec<Governed> {
        let state = self.lock();
        if !state.sender.is_open() {
            return Vec::new();
        }
        let governed = |(&record, method): (&u32, &Switched)| {
            let (wanted, rung) =
                if method.is_selected { (method.wanted, method.rung()) } else { (Rung::Off, Rung::Off) };
            Governed { record, wanted, rung }
        };
        state.methods.iter().map(governed).collect()
    }

    /// What stubs record.
    pub(in crate::trace) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The measurement is over: what is said from now on changes nothing.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped.get_or_insert_with(Instant::now);
    }

    /// What a stub does of which nothing has been said yet; `None` if it has to be told in any case that its method is wanted.
    fn told_by_itself(&self, number: u32) -> Option<Watch> {
        self.options.wants_all.then(|| self.options.usual(number))
    }

    /// What is done unless somebody says otherwise.
    fn usual(&self) -> Rung {
        if self.options.mode == Mode::Time { Rung::Timed } else { Rung::Counted }
    }

    /// What can be done of what is wanted: what only counts from the start times nothing.
    fn possible(&self, wanted: Tracing) -> Rung {
        Rung::from(wanted).min(self.usual())
    }

    /// Changes methods and tells the shim. What cannot be said at once is said with the next change.
    fn change(&self, state: &mut State, concerns: impl Fn(u32) -> bool, change: impl Fn(&mut Switched)) {
        if state.stopped.is_some() {
            return;
        }
        let now = Instant::now();
        let State { sender, methods, .. } = state;
        for (&record, method) in methods.iter_mut().filter(|(record, _)| concerns(**record)) {
            change(method);
            let watch = method.watch(&self.options);
            if method.told == Some(watch) {
                continue;
            }
            if let Some(sample) = self.reader.sample(record) {
                method.untimed.turn(&sample.stats);
            }
            method.account(now);
            if sender.try_send(ToShim::Watch(watch)) {
                method.told = Some(watch);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked here has changed a method as a whole or not at all.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of so many calls is timed, by an order.
fn every(watch: &Watch) -> u32 {
    match watch.mode {
        wire::SAMPLE => {
            let probability = u64::from(watch.probability.max(1));
            u32::try_from(((1 << 32) + probability / 2) / probability).unwrap_or(u32::MAX)
        }
        mode => u32::from(mode == Mode::Time as u32),
    }
}

#[cfg(test)]
mod tests;
