//! Which methods the shim knows, and how far each is on its way to a stub and back. What comes in are the shim's messages
//! and the plan; what goes out are messages to the shim. No I/O.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use nprof_common::is_vm_linked;
use nprof_common::wire::ToShim;

use super::StubOptions;
use crate::model::{Bound as HowBound, Method, PlannedMethod, VirtAddr};
use crate::shim::{Bound, How, Stubbed};

/// How long a method with a stub that nobody has asked for keeps it if it may be selected: the plan may come to know of it in that time.
const GRACE: Duration = Duration::from_secs(3);

/// So many methods are kept: as many as functions are planned in a target.
const MOST_METHODS: usize = 1 << 16;
/// So many bytes they may take.
const MOST_BYTES: usize = 48 << 20;
/// What a method takes beside its names, about.
const ENTRY_BYTES: usize = 512;

/// What is known of all methods.
#[derive(Debug)]
pub(super) struct StubStates {
    options: StubOptions,
    /// What the entries take.
    bytes: usize,
    /// By the shim's number.
    entries: BTreeMap<u32, Entry>,
    /// The latest with this `Method` of the VM's.
    by_id: HashMap<VirtAddr, u32>,
    /// The number of the last order to bind, and of the last that was answered.
    ordered: u32,
    answered: u32,
}

/// One method.
#[derive(Debug)]
pub(super) struct Entry {
    pub bound: Bound,
    /// The method as the plan has it; `None` if it is not selected.
    pub planned: Option<Planned>,
    /// Whether it may yet be selected if it is not.
    may_be: bool,
    state: State,
    /// When the shim told of it, from the start of the measurement on.
    reported: Duration,
    /// When its calls began to be counted; zero if none came before.
    pub since: Duration,
    /// Whether a probe has seen its calls, or may have.
    pub was_probed: bool,
}

/// What the plan knows of a selected method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub method: PlannedMethod,
    /// The index of its function, if that can have a probe.
    pub probe: Option<u32>,
    /// The file name of its library.
    pub library: String,
}

/// What is selected.
pub(super) struct Known<'a> {
    /// What is planned.
    pub by_id: HashMap<VirtAddr, Planned>,
    /// Methods that only the shim has met, if they are selected.
    pub others: &'a dyn Fn(&Bound) -> Option<Planned>,
    /// Whether a method may yet come to be selected that is in neither.
    pub may_be: &'a dyn Fn(&Bound) -> bool,
    /// The file name of the library that has an address; empty if none has.
    pub library_of: &'a dyn Fn(VirtAddr) -> String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may have a stub that nobody has asked for.
    Unasked,
    /// It has no stub that counts, or is about to have none.
    Own,
    /// It is to get a stub, by the order of this number.
    Asked(u32),
    /// Its stub counts.
    Stubbed,
    /// It gets none.
    Refused,
}

/// What is planned of a method that is bound to this address. One that was without code when it was planned has its library by now: it
/// is to be counted under one name from its first call on.
fn in_library<'a>(planned: &'a Planned, address: VirtAddr, plan: &Known<'_>) -> Cow<'a, Planned> {
    if !planned.library.is_empty() {
        return Cow::Borrowed(planned);
    }
    Cow::Owned(Planned { library: (plan.library_of)(address), ..planned.clone() })
}

/// Who is to see the calls of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its stub sees them.
    Stubbed,
    /// It has no code yet, and gets a stub with it.
    Awaited,
    /// Its function's probe has to.
    Probed,
}

impl StubStates {
    pub(super) fn new(options: StubOptions) -> Self {
        Self { options, bytes: 0, entries: BTreeMap::new(), by_id: HashMap::new(), ordered: 0, answered: 0 }
    }

    /// The shim knows a method, or knows something new of it.
    ///
    /// # Errors
    /// If there are more methods than are kept: how many there are.
    pub(super) fn bound(&mut self, bound: Bound, now: Duration) -> Result<(), usize> {
        let before = self.entries.get(&bound.number).map_or(0, |entry| size(&entry.bound));
        let bytes = self.bytes - before + size(&bound);
        if bytes > MOST_BYTES || (before == 0 && self.entries.len() >= MOST_METHODS) {
            return Err(self.entries.len());
        }
        self.bytes = bytes;
        if let Some(id) = bound.method {
            self.by_id.insert(id, bound.number);
        }
        // From the first call on, if it was bound while we listened.
        let since = if bound.how == How::Event && bound.index.is_some() { Duration::ZERO } else { now };
        match self.entries.get_mut(&bound.number) {
            Some(entry) if is_same_method(&entry.bound, &bound) => entry.bound_again(bound, now),
            _ => {
                let number = bound.number;
                let (planned, may_be, state) = (None, true, State::Unasked);
                let entry = Entry { bound, planned, may_be, state, reported: now, since, was_probed: false };
                self.entries.insert(number, entry);
            }
        }
        Ok(())
    }

    /// A method has its stub.
    pub(super) fn stubbed(&mut self, stubbed: &Stubbed) {
        if let Some(entry) = self.entries.get_mut(&stubbed.number) {
            entry.bound.index = Some(stubbed.index);
            if matches!(entry.state, State::Asked(_)) {
                entry.state = State::Stubbed;
            }
        }
    }

    /// An order was carried out: what has no stub by now gets none.
    pub(super) fn applied(&mut self, serial: u32) {
        self.answered = self.answered.max(serial);
        for entry in self.entries.values_mut() {
            if matches!(entry.state, State::Asked(order) if order <= serial) {
                entry.state = if entry.bound.index.is_some() { State::Stubbed } else { State::Refused };
            }
        }
    }

    /// Whether every order has been carried out.
    pub(super) fn is_settled(&self) -> bool {
        self.answered == self.ordered
    }

    /// Compares with the plan, and says what the shim is to do. Without `wants_stubs` all methods get their own addresses
    /// back. `is_probed` says whether a function has a probe at the moment.
    pub(super) fn decide(
        &mut self,
        plan: &Known<'_>,
        wants_stubs: bool,
        now: Duration,
        is_probed: impl Fn(u32) -> bool,
    ) -> Vec<ToShim> {
        let (mut orders, options, serial) = (Vec::new(), self.options, self.ordered + 1);
        for entry in self.entries.values_mut() {
            entry.look_up(plan);
            entry.was_probed |= entry.planned.as_ref().and_then(|known| known.probe).is_some_and(&is_probed);
            if let Some(state) = entry.next(wants_stubs, now, serial) {
                let number = entry.bound.number;
                match state {
                    State::Asked(_) => orders.push(ToShim::Watch(options.usual(number))),
                    State::Own if entry.bound.index.is_some() || entry.state != State::Unasked => {
                        orders.push(ToShim::Unwatch(number));
                    }
                    _ => {}
                }
                entry.state = state;
            }
        }
        if !orders.is_empty() {
            self.ordered = serial;
            orders.push(ToShim::Apply(serial));
        }
        orders
    }

    /// Whether there is a method of which it may yet turn out whether it is to keep its stub.
    pub(super) fn has_doubts(&self) -> bool {
        self.undecided().next().is_some()
    }

    /// The methods of which it may yet turn out whether they are to keep their stubs.
    pub(super) fn undecided(&self) -> impl Iterator<Item = &Bound> {
        self.entries.values().filter(|entry| entry.state == State::Unasked).map(|entry| &entry.bound)
    }

    /// No stub counts any more, and none will.
    pub(super) fn give_up(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.state = State::Refused);
    }

    /// Who is to see the calls of a method of the plan.
    pub(super) fn standing(&self, known: &PlannedMethod, wants_stubs: bool) -> Standing {
        let entry = self.by_id.get(&known.method.id).and_then(|number| self.entries.get(number));
        match entry.filter(|entry| is_named(&entry.bound, &known.method)) {
            Some(entry) if entry.state == State::Stubbed => Standing::Stubbed,
            None if wants_stubs && known.bound == HowBound::Predicted && may_have_stub(&known.method) => {
                Standing::Awaited
            }
            _ => Standing::Probed,
        }
    }

    /// The address that a method was bound to, where the VM holds that of a stub; `None` if the shim has not told yet.
    pub(super) fn original(&self, method: &Method) -> Option<VirtAddr> {
        let entry = self.entries.get(self.by_id.get(&method.id)?)?;
        is_named(&entry.bound, method).then_some(entry.bound.address)
    }

    /// The method of one of the shim's numbers, if it is selected.
    pub(super) fn planned(&self, number: u32) -> Option<&Planned> {
        self.entries.get(&number)?.planned.as_ref()
    }

    /// The selected methods with a record.
    pub(super) fn recorded(&self) -> impl Iterator<Item = (&Entry, &Planned, u32)> {
        self.entries.values().filter_map(|entry| Some((entry, entry.planned.as_ref()?, entry.bound.index?)))
    }

    /// The records of methods that are not selected.
    pub(super) fn unselected(&self) -> impl Iterator<Item = u32> {
        let unselected = |entry: &&Entry| entry.planned.is_none() && entry.state != State::Unasked;
        self.entries.values().filter(unselected).filter_map(|entry| entry.bound.index)
    }

    /// A probe sees the calls of this function that no stub has counted.
    pub(super) fn probed(&mut self, index: u32) {
        for entry in self.entries.values_mut() {
            let is_there = entry.planned.as_ref().is_some_and(|known| known.probe == Some(index));
            entry.was_probed |= is_there && entry.state != State::Stubbed;
        }
    }
}

impl Entry {
    /// The method was bound once more: perhaps to an address before which it has no stub.
    fn bound_again(&mut self, bound: Bound, now: Duration) {
        match self.state {
            State::Stubbed if bound.index.is_none() => (self.state, self.reported) = (State::Unasked, now),
            // The answer to the order was lost.
            State::Asked(_) if bound.index.is_some() => self.state = State::Stubbed,
            // It got a stub with its new address, as whatever is bound.
            State::Own if bound.index.is_some() && bound.how == How::Event => {
                (self.state, self.reported) = (State::Unasked, now);
            }
            _ => {}
        }
        self.bound = bound;
    }

    fn look_up(&mut self, plan: &Known<'_>) {
        let planned = self.bound.method.and_then(|id| plan.by_id.get(&id));
        match planned.filter(|planned| is_named(&self.bound, &planned.method.method)) {
            Some(planned) => {
                let planned = in_library(planned, self.bound.address, plan);
                if self.planned.as_ref() != Some(&*planned) {
                    self.planned = Some(planned.into_owned());
                }
            }
            None if self.planned.is_none() => self.planned = (plan.others)(&self.bound),
            None => {}
        }
        if self.state == State::Unasked && self.planned.is_none() {
            self.may_be = (plan.may_be)(&self.bound);
        }
    }

    /// The state that is to be next, if it is to change. `serial` is the number of the next order to bind.
    fn next(&self, wants_stubs: bool, now: Duration, serial: u32) -> Option<State> {
        let has_counting_stub = self.bound.how == How::Event && self.bound.index.is_some();
        match (wants_stubs && self.may_have_stub(), self.state) {
            // It was bound to a stub that counts.
            (true, State::Unasked) if has_counting_stub => Some(State::Stubbed),
            (true, State::Unasked | State::Own) => Some(State::Asked(serial)),
            (false, State::Stubbed | State::Asked(_)) => Some(State::Own),
            (false, State::Unasked) => {
                let is_unknown = wants_stubs && self.planned.is_none() && self.may_be;
                (!is_unknown || now.saturating_sub(self.reported) >= GRACE).then_some(State::Own)
            }
            _ => None,
        }
    }

    fn may_have_stub(&self) -> bool {
        self.planned.as_ref().is_some_and(|known| may_have_stub(&known.method.method))
    }
}

/// Whether a stub can count a method. Those that compilers know get stubs too: where they are called at all, as the
/// interpreter does and compiled code in the cases that it does not know, a probe costs a hundred times as much.
fn may_have_stub(method: &Method) -> bool {
    !is_vm_linked(&method.class)
}

/// What a method takes, its names here and in the plan.
fn size(bound: &Bound) -> usize {
    ENTRY_BYTES + 2 * (bound.class.len() + bound.name.len() + bound.signature.len())
}

fn is_same_method(one: &Bound, other: &Bound) -> bool {
    (&one.class, &one.name, &one.signature) == (&other.class, &other.name, &other.signature)
}

fn is_named(bound: &Bound, method: &Method) -> bool {
    method.class == *bound.class && method.name == *bound.name && method.signature == *bound.signature
}

#[cfg(test)]
mod tests;
