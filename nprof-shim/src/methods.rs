//! The methods that have stubs: which stub answers a bound method, and what it is called.
//!
//! A method keeps its record for as long as the process lives, and a stub for each address that it was ever bound to.
//! Of these only the latest counts: another agent may bind a method to code of its own that goes on to call our stub,
//! and when a new stub is put before that code, a call passes both.
//!
//! The lock is held for look-ups only, never across a call of the VM.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jvmti_bindings::mutf8::decode_cstr_lossy;

use crate::jvmti::{MethodId, MethodName};
use crate::pool::{Mode, Parameters, Stub};
use crate::records::Records;
use crate::signature::stack_words;

/// A method with a record.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) name: MethodName,
    pub(crate) index: u32,
}

/// What is done at the calls of a method from its first on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) mode: Mode,
    pub(crate) threshold_ns: u64,
}

/// All methods with stubs.
#[derive(Debug, Default)]
pub(crate) struct Methods(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    list: Vec<Watched>,
    /// The latest method with this id: the VM may use the ids of unloaded methods again.
    by_id: BTreeMap<MethodId, u32>,
    /// Stubs by record and address.
    stubs: BTreeMap<(u32, usize), Stub>,
    /// The stub that counts, by record.
    latest: BTreeMap<u32, Stub>,
    /// Methods for which there was no stub left.
    unwatched: u64,
}

impl Methods {
    /// The stub for a method that is bound to `address`; the same again for the same two. `None` when there is none
    /// left.
    pub(crate) fn stub_for(
        &self,
        id: MethodId,
        address: usize,
        name: &MethodName,
        manner: Manner,
        records: &Records,
    ) -> Option<Stub> {
        let stack_words = stack_words(&decode_cstr_lossy(&name.signature))?;
        let mut inner = self.lock();
        let index = inner.index_of(id, name)?;
        if let Some(&stub) = inner.stubs.get(&(index, address)) {
            inner.let_count(stub, index, manner.mode);
            return Some(stub);
        }
        let taken = records.address(index).and_then(|records| {
            let Manner { mode, threshold_ns } = manner;
            Stub::take(&Parameters { original: address, stack_words, index, records, mode, threshold_ns })
        });
        match taken {
            Some(stub) => {
                inner.stubs.insert((index, address), stub);
                inner.let_count(stub, index, manner.mode);
            }
            None => inner.unwatched += 1,
        }
        taken
    }

    /// A method is bound to one of its stubs again.
    pub(crate) fn bound_again(&self, stub: Stub, mode: Mode) {
        self.lock().let_count(stub, stub.index(), mode);
    }

    /// Changes what is done at the calls of all methods.
    pub(crate) fn change(&self, manner: Manner) {
        for stub in self.lock().latest.values() {
            stub.set_threshold_ns(manner.threshold_ns);
            stub.set_mode(manner.mode);
        }
    }

    /// A copy of the list.
    pub(crate) fn all(&self) -> Vec<Watched> {
        self.lock().list.clone()
    }

    /// How many times there was no stub for a method.
    pub(crate) fn unwatched(&self) -> u64 {
        self.lock().unwatched
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn let_count(&mut self, stub: Stub, index: u32, mode: Mode) {
        let before = self.latest.insert(index, stub).filter(|&before| before != stub);
        if let Some(before) = before {
            before.set_mode(Mode::Off);
        }
        stub.set_mode(mode);
    }

    fn index_of(&mut self, id: MethodId, name: &MethodName) -> Option<u32> {
        let known = self.by_id.get(&id).copied();
        let same = |&index: &u32| self.list.get(index as usize).is_some_and(|watched| watched.name == *name);
        if let Some(index) = known.filter(same) {
            return Some(index);
        }
        let index = u32::try_from(self.list.len()).ok()?;
        self.list.push(Watched { name: name.clone(), index });
        self.by_id.insert(id, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn name(method: &str) -> MethodName {
        let [class, name, signature] = ["La/B;", method, "(IJ)V"].map(|text| CString::new(text).unwrap());
        MethodName { class, name, signature }
    }

    /// Check that the same method gets the same stub for the same address, another for another, and one record for
    /// both; and that an id that names another method by now gets a record of its own.
    #[test]
    fn stubs_by_method_and_address() {
        let methods = Methods::default();
        let records = Records::map_for(8, 1).unwrap();
        let manner = Manner { mode: Mode::Off, threshold_ns: u64::MAX };
        let stub = |id, address, name: &MethodName| methods.stub_for(MethodId(id), address, name, manner, &records);
        let first = stub(1, 100, &name("m")).unwrap();
        assert_eq!(stub(1, 100, &name("m")), Some(first));
        let second = stub(1, 200, &name("m")).unwrap();
        assert_ne!(first, second);
        assert_eq!((first.original(), second.original()), (100, 200));
        assert_eq!((first.index(), second.index()), (0, 0));
        assert_eq!(methods.all().len(), 1);
        assert_ne!(stub(1, 100, &name("other")), Some(first));
        assert_eq!(methods.all().iter().map(|watched| watched.index).collect::<Vec<_>>(), [0, 1]);
    }

    /// Check that of the stubs of a method the latest counts, also when it is an old one, and no other ever.
    #[test]
    fn one_counts() {
        let methods = Methods::default();
        let records = Records::map_for(8, 1).unwrap();
        let counting = Manner { mode: Mode::Count, threshold_ns: u64::MAX };
        let stub = |address| methods.stub_for(MethodId(1), address, &name("m"), counting, &records).unwrap();
        let [first, second] = [stub(1), stub(2)];
        assert_eq!((first.is_off(), second.is_off()), (true, false));
        methods.bound_again(first, Mode::Count);
        assert_eq!((first.is_off(), second.is_off()), (false, true));
        methods.change(Manner { mode: Mode::Time, ..counting });
        assert_eq!((first.is_off(), second.is_off()), (false, true));
        assert_eq!(stub(2), second);
        assert_eq!((first.is_off(), second.is_off()), (true, false));
    }

    /// Check that a method without room for its record gets no stub, and that this is counted.
    #[test]
    fn out_of_room() {
        let methods = Methods::default();
        let records = Records::map_for(1, 1).unwrap();
        let manner = Manner { mode: Mode::Off, threshold_ns: u64::MAX };
        assert!(methods.stub_for(MethodId(1), 1, &name("a"), manner, &records).is_some());
        assert!(methods.stub_for(MethodId(2), 1, &name("b"), manner, &records).is_none());
        assert_eq!(methods.unwatched(), 1);
    }
}
