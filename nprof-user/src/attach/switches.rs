//! What is done at the hits of each function of a target.
//!
//! Three have a say: the user wants something, the governor allows no more than something, and what is attached limits
//! both. The least of them is written into the function's record, where the next hit finds it. Whoever switches does not
//! need the session, which may be busy attaching.

mod function;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nprof_common::{Lane, Mode, Switch};

use self::function::Function;
use super::engine::Engine;
use crate::model::{CallEnd, States, Traced, Tracing};

/// The switches of one target.
#[derive(Debug)]
pub struct Switches {
    engine: Arc<Engine>,
    /// What is wanted of functions of which nothing else has been said.
    timed: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    functions: BTreeMap<u32, Function>,
    /// Records of functions that could not be traced.
    abandoned: Vec<u32>,
    /// When everything was switched off for good.
    stopped: Option<Instant>,
    /// Whether stubs in the target may have counted a call before it comes to a probe.
    has_stubs: bool,
    /// Whether others may serve other functions than when that was last asked.
    is_shared_out_anew: bool,
    /// How often anything was changed.
    changes: u64,
}

/// Who sees the calls of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Its probes, all of them.
    ByProbes,
    /// Stubs in the target, or the probes: those that no stub has counted.
    ByBoth,
    /// Stubs, all of them: it needs no probe.
    ByStubs,
}

/// What has to be attached or detached for a function so that it can be traced as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub index: u32,
    /// The probe on the entry, if that has to change: whether it is to be there.
    pub entry: Option<bool>,
    /// The probe on the return.
    pub on_return: Option<bool>,
}

/// Where the probes of a function are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub record: u32,
    pub lane: Lane,
    /// By when its own probe on the entry was there.
    pub since: Option<Instant>,
    /// Whether it has all probes that there are, and is to keep them: a link may hold these that serves others too.
    pub may_share: bool,
}

impl Switches {
    /// No switches yet. Functions are timed, or only counted, unless somebody says otherwise.
    pub(super) fn new(engine: Arc<Engine>, timed: bool) -> Self {
        Self { engine, timed, state: Mutex::default() }
    }

    /// What the user wants to be done at the calls of functions. It is done by the time this returns, unless a probe has
    /// to be attached for it first. Indices that are not there are passed over, and functions whose probe is at the other end of calls.
    pub fn want(&self, indices: impl IntoIterator<Item = u32>, wanted: Tracing) {
        self.change(indices, |function| {
            if function.can_be(wanted) {
                (function.wanted, function.most) = (wanted, function.most.max(wanted));
            }
        });
    }

    /// Whether users may want this of a function that is traced: its calls are counted at the end where they are.
    #[must_use]
    pub fn may_become(&self, index: u32, wanted: Tracing) -> bool {
        let state = self.lock();
        let Some(function) = state.functions.get(&index) else { return true };
        function.can_be(wanted) && (wanted != Tracing::Returned || function.is_at_exit())
    }

    /// What the user wants of a function that has no probe yet: it gets those that this needs. For how long it is off is noted from
    /// now on.
    pub fn begin_as(&self, index: u32, wanted: Tracing) {
        self.change([index], |function| {
            (function.wanted, function.most) = (wanted, wanted);
            function.was_watched |= wanted == Tracing::Off;
        });
    }

    /// The most that may be done at the calls of a function.
    pub fn allow(&self, index: u32, allowed: Tracing) {
        self.change([index], |function| function.allowed = allowed);
    }

    /// What a function is to have probes for: as much as the user wants and the governor allows; `None` if it never was traced.
    #[must_use]
    pub fn attachable(&self, index: u32) -> Option<Tracing> {
        self.lock().functions.get(&index).map(Function::attachable)
    }

    /// Allows less than what is wanted to begin with: from now on, and not from the first attachment on, it is noted for how
    /// long nobody sees the calls.
    pub fn begin_with(&self, index: u32, allowed: Tracing) {
        self.change([index], |function| (function.allowed, function.was_watched) = (allowed, true));
    }

    /// Whether a function is to be traced at all. What was counted stays.
    pub fn select(&self, index: u32, is_selected: bool) {
        self.change([index], |function| function.is_selected = is_selected);
    }

    /// Whether stubs in the target may have counted a call before it comes to a probe, which then passes it over. To be
    /// said before the first stub counts.
    pub fn expect_stubs(&self, has_stubs: bool) {
        let mut state = self.lock();
        state.has_stubs = has_stubs;
        if state.stopped.is_none() {
            state
                .functions
                .values()
                .for_each(|function| self.engine.switch(function.record, function.switch(has_stubs)));
        }
    }

    /// Says who sees the calls of functions. [`super::Session::settle`] takes probes away where stubs see all calls, and
    /// puts them back where they do not. A function whose probe is not there yet is seen by both until it is, or calls
    /// are missed.
    pub fn see(&self, indices: impl IntoIterator<Item = u32>, seen: Seen) {
        self.change(indices, |function| function.seen = seen);
    }

    /// Who sees the calls of a function; `None` if it never was traced.
    #[must_use]
    pub fn seen(&self, index: u32) -> Option<Seen> {
        self.lock().functions.get(&index).map(|function| function.seen)
    }

    /// Whether a program of the user's is to run at this end of a function's calls: where there is the probe that it runs beside. With
    /// a governor that allows less than is wanted there is none on the return.
    pub(super) fn runs_at(&self, index: u32, end: CallEnd) -> bool {
        let runs = |function: &Function| match end {
            CallEnd::Entry => function.has_entry,
            CallEnd::Return => function.has_entry && function.allowed >= function.most,
        };
        self.lock().functions.get(&index).is_some_and(runs)
    }

    /// Whether there is a probe on the entry of a function.
    #[must_use]
    pub fn has_probe(&self, index: u32) -> bool {
        self.lock().functions.get(&index).is_some_and(|function| function.has_entry)
    }

    /// How a function is traced; `None` if it never was.
    #[must_use]
    pub fn traced(&self, index: u32) -> Option<Traced> {
        let state = self.lock();
        state.functions.get(&index).map(|function| function.traced(state.now()))
    }

    /// Each function in the order of the index: index, record, and how it is traced.
    #[must_use]
    pub fn functions(&self) -> Vec<(u32, u32, Traced)> {
        let state = self.lock();
        let now = state.now();
        state.functions.iter().map(|(&index, function)| (index, function.record, function.traced(now))).collect()
    }

    /// How many of the functions that are wanted are traced in which way. `by_stubs` says it of those that stubs see.
    #[must_use]
    pub fn states(&self, is_wanted: impl Fn(u32) -> bool, by_stubs: impl Fn(u32) -> Option<Traced>) -> States {
        let (mut states, state) = (States::default(), self.lock());
        for (index, function) in state.functions.iter().filter(|(index, _)| is_wanted(**index)) {
            let by_stubs = if function.seen == Seen::ByProbes { None } else { by_stubs(*index) };
            match by_stubs {
                Some(traced) => states.add(traced),
                None => {
                    states.functions[function.tracing() as usize] += 1;
                    states.demoted += usize::from(function.is_demoted());
                }
            }
        }
        states
    }

    /// How many functions have a probe on their entry.
    #[must_use]
    pub fn probed(&self) -> usize {
        self.lock().functions.values().filter(|function| function.has_entry).count()
    }

    /// The record of a function: what its [`crate::model::Sample`] is read from.
    #[must_use]
    pub fn record(&self, index: u32) -> Option<u32> {
        self.lock().functions.get(&index).map(|function| function.record)
    }

    /// Takes in a function that has a record and no probe yet.
    pub(super) fn add(&self, index: u32, record: u32) {
        let function = Function::new(record, self.usual());
        let mut state = self.lock();
        state.functions.entry(index).or_insert(function);
        state.changes += 1;
        state.is_shared_out_anew = true;
    }

    /// Forgets functions that cannot be traced.
    pub(super) fn abandon(&self, indices: &[u32]) {
        let mut state = self.lock();
        let records: Vec<u32> =
            indices.iter().filter_map(|index| state.functions.remove(index)).map(|function| function.record).collect();
        state.abandoned.extend(records);
    }

    /// Leaves functions as they are attached: it could not be changed.
    pub(super) fn stuck(&self, indices: &[u32]) {
        self.change(indices.iter().copied(), |function| function.is_stuck = true);
    }

    /// The lane of a function's probe.
    pub(super) fn lane(&self, index: u32) -> Lane {
        self.lock().functions.get(&index).map_or(Lane::A, |function| function.lane)
    }

    /// Decides where the calls of functions are counted that are about to get their first probe for it: at the entry, or at the return.
    pub(super) fn place(&self, indices: impl IntoIterator<Item = u32>) {
        self.change(indices, |function| {
            function.at_exit.get_or_insert(function.most == Tracing::Returned);
        });
    }

    /// Whether the calls of a function are counted at their return.
    pub(super) fn is_at_exit(&self, index: u32) -> bool {
        self.lock().functions.get(&index).is_some_and(Function::is_at_exit)
    }

    /// Says whether functions have a probe on the entry, or on the return.
    pub(super) fn attached(&self, indices: impl IntoIterator<Item = u32>, on_return: bool, is_there: bool) {
        let indices = self.callers_first(&self.lock(), indices);
        self.change(indices, |function| {
            *(if on_return { &mut function.has_return } else { &mut function.has_entry }) = is_there;
            if is_there && !on_return && !function.lane.is_shared() {
                function.since = Some(Instant::now());
            }
        });
    }

    /// Functions with the lane that each has besides its own.
    pub(super) fn to_other_lane(&self, indices: &[u32]) -> Vec<(u32, Lane)> {
        indices.iter().map(|index| (*index, self.lane(*index).other())).collect()
    }

    /// Begins to hand functions over, each from its lane to another.
    pub(super) fn hand_over(&self, moves: &[(u32, Lane)], epoch: u32) {
        for &(index, to) in moves {
            self.change([index], |function| function.handing = Some((to, epoch)));
        }
    }

    /// Has each function answer in this lane alone.
    pub(super) fn settle(&self, moves: &[(u32, Lane)]) {
        for &(index, lane) in moves {
            self.change([index], |function| {
                (function.lane, function.handing) = (lane, None);
                function.since = Some(Instant::now()).filter(|_| !lane.is_shared());
            });
        }
    }

    /// Where the probes of each function are, by index.
    pub(super) fn placed(&self) -> BTreeMap<u32, Placed> {
        let placed = |function: &Function| {
            let Function { record, lane, since, .. } = *function;
            Placed { record, lane, since, may_share: function.may_share(self.timed) }
        };
        self.lock().functions.iter().map(|(index, function)| (*index, placed(function))).collect()
    }

    /// Whether links that serve others too may hold other functions than before.
    pub(super) fn is_shared_out_anew(&self) -> bool {
        self.lock().is_shared_out_anew
    }

    /// That has been seen to.
    pub(super) fn has_been_shared_out(&self) {
        self.lock().is_shared_out_anew = false;
    }

    /// What has to be attached or detached.
    pub(super) fn due(&self) -> Vec<Due> {
        let state = self.lock();
        // What a shared link holds has to have links of its own first.
        let can_change = |function: &Function| !function.is_stuck && !function.lane.is_shared();
        let due = state.functions.iter().filter(|(_, function)| can_change(function)).map(|(&index, function)| {
            // What the user switches off stays attached, to be back at once.
            let needs_probe = function.is_selected && function.seen != Seen::ByStubs;
            let most = if needs_probe { function.attachable() } else { Tracing::Detached };
            let (entry, on_return) = (most.is_watched(), most == Tracing::Timed);
            let change = |is: bool, should: bool| (is != should).then_some(should);
            let on_return = change(function.has_return, on_return && self.timed)
                // A call that is not over needs its return.
                .filter(|&should| should || self.engine.in_flight(function.record) == 0);
            Due { index, entry: change(function.has_entry, entry), on_return }
        });
        due.filter(|due| due.entry.is_some() || due.on_return.is_some()).collect()
    }

    /// How often functions have come, or have been changed: as long as it is the same, and none of them is called, nothing else becomes due.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Whether anything has to be attached or detached.
    pub fn are_any_due(&self) -> bool {
        !self.due().is_empty()
    }

    /// Switches everything off, for good. What is said of the functions stays as it was.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped.get_or_insert_with(Instant::now);
        // JNI functions go before the natives that call them.
        for index in self.callers_first(&state, state.functions.keys().copied()).iter().rev() {
            let function = &state.functions[index];
            self.engine.switch(function.record, Switch::settled(Mode::Off, function.lane));
        }
    }

    /// Every record, which nobody has after this.
    pub(super) fn take_records(&self) -> Vec<u32> {
        let state = std::mem::take(&mut *self.lock());
        state.functions.into_values().map(|function| function.record).chain(state.abandoned).collect()
    }

    fn usual(&self) -> Tracing {
        if self.timed { Tracing::Timed } else { Tracing::Counted }
    }

    /// Native methods before the JNI functions that they call: where only the functions are switched on, their calls are nobody's.
    fn callers_first(&self, state: &State, indices: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let is_function = |index: &u32| {
            state.functions.get(index).is_some_and(|function| self.engine.is_jni_function(function.record))
        };
        let mut indices: Vec<u32> = indices.into_iter().collect();
        indices.sort_by_key(is_function);
        indices
    }

    fn change(&self, indices: impl IntoIterator<Item = u32>, mut change: impl FnMut(&mut Function)) {
        let mut state = self.lock();
        if state.stopped.is_some() {
            return;
        }
        let (now, has_stubs, mut is_shared_out_anew) = (Instant::now(), state.has_stubs, false);
        for index in indices {
            if let Some(function) = state.functions.get_mut(&index) {
                let might_share = function.may_share(self.timed);
                change(function);
                function.account(now);
                is_shared_out_anew |= function.may_share(self.timed) != might_share;
                self.engine.switch(function.record, function.switch(has_stubs));
            }
        }
        state.changes += 1;
        state.is_shared_out_anew |= is_shared_out_anew;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked here has changed a function as a whole or not at all.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time at which it is asked how functions are traced: no later than the end.
    fn now(&self) -> Instant {
        self.stopped.unwrap_or_else(Instant::now)
    }
}
