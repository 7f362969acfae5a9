//! Where the VM keeps the address of a native method: the word behind its `Method`.
//!
//! Which `Method` is meant by an id says the class that both belong to (`classes`), where the VM's structures have what says
//! the VM (`structs`). How far behind its beginning the word is is not told, so it is looked for: it is where two natives of
//! the helper class hold the addresses that they were just given. Where that is not so, nothing is read, and methods that
//! are bound already are left as they are.
//!
//! All of this reads through the kernel (`memory`): what is not a pointer is an error, and not a crash.

mod classes;
mod memory;
mod structs;

use std::io;

use self::classes::Classes;
use self::memory::Memory;
use self::structs::Structs;
use crate::helper::Helpers;
use crate::jni::Jni;
use crate::jvmti::{Class, MethodId};
use crate::pool::Stub;
use crate::vm::Vm;

/// How many words of a `Method` are searched. It has had eleven for years.
const SEARCHED_WORDS: usize = 40;
const WORD: usize = size_of::<usize>();

/// Why the addresses of methods cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process has no descriptors left.
    #[error("cannot make a pipe: {0}")]
    NoPipe(#[source] io::Error),
    /// This VM keeps them somewhere else.
    #[error("this VM does not keep a native's address where those of JDK 11 and later do")]
    Unknown,
}

/// The place of the address in a `Method`, and what stands there before a native is bound.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: Memory,
    classes: Classes,
    offset: usize,
    unbound: usize,
}

impl Slots {
    /// Finds the place.
    pub(crate) fn find(vm: Vm, jni: Jni, helpers: &Helpers) -> Result<Self, Error> {
        let memory = Memory::open().map_err(Error::NoPipe)?;
        Self::look(memory, vm, jni, helpers).ok_or(Error::Unknown)
    }

    fn look(memory: Memory, vm: Vm, jni: Jni, helpers: &Helpers) -> Option<Self> {
        let classes = Classes::open(jni, Structs::of(vm)?)?;
        let (class, known) = (helpers.class(), helpers.known(jni)?);
        let words = known.map(|(id, _)| classes.method(&memory, jni, class, id).map(|at| words_at(&memory, at)));
        let [Some(first), Some(second)] = &words else { return None };
        let place = place_of([first, second], known.map(|(_, address)| address))?;
        let mut slots = Self { memory, classes, offset: place * WORD, unbound: 0 };
        slots.unbound = slots.read(jni, class, helpers.unbound(jni)?)?;
        let (class, getter) = slots.classes.getter(jni)?;
        let native = slots.bound(jni, class, getter)?;
        jni.forget(class);
        slots.classes.read_by(Stub::at(native).map_or(native, Stub::original));
        Some(slots)
    }

    /// The address that a native of this class is bound to; `None` if it is not.
    pub(crate) fn bound(&self, jni: Jni, class: Class, id: MethodId) -> Option<usize> {
        self.read(jni, class, id).filter(|&address| address != self.unbound && address != 0)
    }

    /// The address of the VM's `Method`.
    pub(crate) fn method(&self, jni: Jni, class: Class, id: MethodId) -> Option<usize> {
        self.classes.method(&self.memory, jni, class, id)
    }

    fn read(&self, jni: Jni, class: Class, id: MethodId) -> Option<usize> {
        self.memory.word(self.method(jni, class, id)?.checked_add(self.offset)?)
    }
}

/// The first words of a method.
fn words_at(memory: &Memory, method: usize) -> Vec<usize> {
    (0..SEARCHED_WORDS).map_while(|place| memory.word(method.checked_add(place * WORD)?)).collect()
}

/// The only place at which both methods hold their addresses.
fn place_of(methods: [&[usize]; 2], addresses: [usize; 2]) -> Option<usize> {
    let is_place = |&place: &usize| methods[0][place] == addresses[0] && methods[1][place] == addresses[1];
    let length = methods[0].len().min(methods[1].len());
    let mut places = (0..length).filter(is_place);
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the place must be that of both methods, and the only one.
    #[test]
    fn one_place_for_both() {
        assert_eq!(place_of([&[1, 2, 7], &[1, 2, 8]], [7, 8]), Some(2));
        assert_eq!(place_of([&[7, 2, 7], &[1, 2, 8]], [7, 8]), Some(2));
        assert_eq!(place_of([&[7, 2, 7], &[8, 2, 8]], [7, 8]), None);
        assert_eq!(place_of([&[1, 2, 7], &[1, 8, 2]], [7, 8]), None);
        assert_eq!(place_of([&[], &[8]], [7, 8]), None);
    }
}
