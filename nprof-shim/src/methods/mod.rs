//! What is known of native methods: their names, what is wanted of them, their stubs and their records.
//!
//! A method keeps its number for as long as the process lives, and a stub for each address that it was ever bound to.
//! Of these only the latest counts: another agent may bind a method to its own code that goes on to call our stub,
//! and when a new stub is put before that code, a call passes both. Records are given again whenever somebody else is to
//! read them, in the order in which methods are wanted.
//!
//! The lock is held for look-ups only, never across a call of the VM.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::jvmti::{MethodId, MethodName};
use crate::pool::{Mode, Parameters, Stub};
use crate::records::{Place, Records};
use crate::signature::stack_words;
use jvmti_bindings::mutf8::decode_cstr_lossy;

/// What is done at the calls of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StubOptions {
    pub(crate) mode: Mode,
    pub(crate) threshold_ns: u64,
    /// What the arguments are, if they are kept; otherwise 0.
    pub(crate) kinds: u64,
    /// Whether nprof has asked for the method. It may not want the calls that the stub chooses until then.
    pub(crate) is_asked: bool,
}

/// A method, and what is wanted of it: to be watched in this mode, or to be left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) number: u32,
    pub(crate) id: MethodId,
    pub(crate) name: MethodName,
    pub(crate) options: Option<StubOptions>,
}

/// All methods that were ever bound.
#[derive(Debug, Default)]
pub(crate) struct Methods(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By number.
    list: Vec<Known>,
    /// The latest method with this id: the VM may use the ids of unloaded methods again.
    by_id: BTreeMap<MethodId, u32>,
    /// Stubs by method and address.
    stubs: BTreeMap<(u32, usize), Stub>,
    /// The method of each stub.
    owners: BTreeMap<Stub, u32>,
    /// What nprof has given; without them nothing is recorded.
    records: Option<Records>,
    next_index: u32,
}

#[derive(Debug)]
struct Known {
    id: MethodId,
    name: MethodName,
    /// The number of its record.
    index: Option<u32>,
    options: Option<StubOptions>,
    /// Whether the VM is to be told what is wanted.
    is_pending: bool,
    /// The stub that counts, or did.
    latest: Option<Stub>,
}

impl Methods {
    /// The number of a method; `None` when there are more than numbers.
    pub(crate) fn number_of(&self, id: MethodId, name: &MethodName) -> Option<u32> {
        self.lock().number_of(id, name)
    }

    /// The number of a method's record, if it has one.
    pub(crate) fn index(&self, number: u32) -> Option<u32> {
        self.lock().known(number)?.index
    }

    /// How a method is watched, if it is.
    pub(crate) fn options(&self, number: u32) -> Option<StubOptions> {
        self.lock().known(number)?.options
    }

    /// The stub for a method that is bound to `address`, which counts from now on; the same again for the same two.
    /// `None` when there is no stub or no record left.
    pub(crate) fn stub_for(&self, number: u32, address: usize, options: StubOptions) -> Option<Stub> {
        self.lock().stub_for(number, address, options)
    }

    /// A record that no method has, for something else; `None` when there is none left.
    pub(crate) fn next_record(&self) -> Option<(Place, u32)> {
        let mut inner = self.lock();
        let index = inner.next_index;
        let place = inner.records?.place(index)?;
        inner.next_index += 1;
        Some((place, index))
    }

    /// A method is bound to one of its stubs again, by us or by another agent that leaves: it counts, if it is watched.
    pub(crate) fn bound_again(&self, stub: Stub) {
        let mut inner = self.lock();
        let owner = inner.owners.get(&stub).copied();
        let options = owner.and_then(|number| inner.known(number)?.options);
        if let (Some(number), Some(options)) = (owner, options) {
            inner.let_count(number, stub, options);
        }
    }

    /// A method is to be watched. If it has a stub, that counts at once.
    pub(crate) fn watch(&self, number: u32, options: StubOptions) {
        let mut inner = self.lock();
        let Some(known) = inner.known(number) else { return };
        (known.options, known.is_pending) = (Some(options), true);
        if let Some(stub) = known.latest {
            inner.let_count(number, stub, options);
        }
    }

    /// A method is no longer to be watched: nothing is recorded of calls that begin from now on.
    pub(crate) fn unwatch(&self, number: u32) {
        if let Some(known) = self.lock().known(number) {
            (known.options, known.is_pending) = (None, true);
            known.latest.into_iter().for_each(|stub| stub.set_mode(Mode::Off));
        }
    }

    /// The methods of which something else is wanted than when this was last asked.
    pub(crate) fn take_pending(&self) -> Vec<Wanted> {
        let mut inner = self.lock();
        let numbered = (0..).zip(&mut inner.list);
        let pending =
            numbered.filter_map(|(number, known)| std::mem::take(&mut known.is_pending).then(|| known.wanted(number)));
        pending.collect()
    }

    /// Changes what is done at the calls of all methods that are watched.
    pub(crate) fn change(&self, change: impl Fn(StubOptions) -> StubOptions) {
        for known in &mut self.lock().list {
            known.options = known.options.map(&change);
            if let (Some(stub), Some(options)) = (known.latest, known.options) {
                stub.set_threshold_ns(options.threshold_ns);
                stub.set_kinds(options.kinds);
                stub.set_mode(options.mode);
            }
        }
    }

    /// No method is watched any more.
    pub(crate) fn unwatch_all(&self) {
        self.lock().unwatch_all();
    }

    /// Forgets all records, so that methods get new ones, among these. Returns the old ones, which are written no more but by calls that began before.
    pub(crate) fn replace_records(&self, records: Option<Records>) -> Option<Records> {
        let mut inner = self.lock();
        inner.unwatch_all();
        inner.list.iter_mut().for_each(|known| known.index = None);
        inner.next_index = 0;
        std::mem::replace(&mut inner.records, records)
    }

    /// Goes on without the rows of threads. The records stay.
    ///
    /// # Errors
    /// When the kernel has no memory left to do it.
    pub(crate) fn let_rows_go(&self) -> io::Result<()> {
        self.lock().records.as_mut().map_or(Ok(()), Records::let_rows_go)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn wanted(&self, number: u32) -> Wanted {
        Wanted { number, id: self.id, name: self.name.clone(), options: self.options }
    }
}

impl Inner {
    fn known(&mut self, number: u32) -> Option<&mut Known> {
        self.list.get_mut(number as usize)
    }

    fn unwatch_all(&mut self) {
        for known in &mut self.list {
            (known.options, known.is_pending) = (None, false);
        }
        Stub::all().for_each(|stub| stub.set_mode(Mode::Off));
    }

    fn number_of(&mut self, id: MethodId, name: &MethodName) -> Option<u32> {
        let known = self.by_id.get(&id).copied();
        let same = |&number: &u32| self.list.get(number as usize).is_some_and(|known| known.name == *name);
        if let Some(number) = known.filter(same) {
            return Some(number);
        }
        let number = u32::try_from(self.list.len()).ok()?;
        let known = Known { id, name: name.clone(), index: None, options: None, is_pending: false, latest: None };
        self.list.push(known);
        self.by_id.insert(id, number);
        Some(number)
    }

    fn stub_for(&mut self, number: u32, address: usize, options: StubOptions) -> Option<Stub> {
        self.known(number)?.options = Some(options);
        let stub = match self.stubs.get(&(number, address)) {
            Some(&stub) => stub,
            None => self.take_stub(number, address)?,
        };
        self.let_count(number, stub, options).then_some(stub)
    }

    /// A new stub, which does nothing yet.
    fn take_stub(&mut self, number: u32, address: usize) -> Option<Stub> {
        let index = self.index_of(number)?;
        let place = self.records?.place(index)?;
        let stack_words = stack_words(&decode_cstr_lossy(&self.known(number)?.name.signature))?;
        let (mode, threshold_ns) = (Mode::Off, u64::MAX);
        let stub = Stub::take(&Parameters { original: address, stack_words, index, place, mode, threshold_ns })?;
        self.stubs.insert((number, address), stub);
        self.owners.insert(stub, number);
        Some(stub)
    }

    /// Makes a stub the one of its method that counts. `false` where there is no record for it.
    fn let_count(&mut self, number: u32, stub: Stub, options: StubOptions) -> bool {
        let index = self.index_of(number);
        let place = index.and_then(|index| self.records?.place(index));
        let (Some(index), Some(place), Some(known)) = (index, place, self.known(number)) else { return false };
        if let Some(before) = known.latest.replace(stub).filter(|&before| before != stub) {
            before.set_mode(Mode::Off);
        }
        stub.set_place(place, index, options.is_asked);
        stub.set_threshold_ns(options.threshold_ns);
        stub.set_kinds(options.kinds);
        stub.set_mode(options.mode);
        true
    }

    /// The number of a method's record, which it gets if it has none.
    fn index_of(&mut self, number: u32) -> Option<u32> {
        let next = self.next_index;
        let has_room = self.records.is_some_and(|records| (next as usize) < records.room());
        let known = self.known(number)?;
        if known.index.is_none() && has_room {
            known.index = Some(next);
            self.next_index += 1;
        }
        self.known(number)?.index
    }
}

#[cfg(test)]
mod tests;
