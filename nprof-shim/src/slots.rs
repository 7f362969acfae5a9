//! Where the VM keeps the address of a native method: the word behind its `Method`.
//!
//! A method id is a pointer to a pointer to the `Method` in all JDKs up to 25. How far behind its beginning the word is
//! is not told, so it is looked for: it is where two natives of the helper class hold the addresses that they were just
//! given. Where that is not so, nothing is read, and methods that are bound already are left as they are.
//!
//! All of this reads through the kernel: what is not a pointer is an error, and not a crash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::helper::Helpers;
use crate::jni::Jni;
use crate::jvmti::MethodId;

/// How many words of a `Method` are searched. It has had eleven for years.
const SEARCHED_WORDS: usize = 40;
const WORD: usize = size_of::<usize>();

/// Why the addresses of methods cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process may not read its own memory.
    #[error("cannot open /proc/self/mem (is /proc mounted there?)")]
    NoMemory(#[source] io::Error),
    /// This VM keeps them somewhere else.
    #[error("this VM does not keep a native's address where JDK 8 to 25 do")]
    Unknown,
}

/// The place of the address in a `Method`, and what stands there before a native is bound.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: File,
    offset: usize,
    unbound: usize,
}

impl Slots {
    /// Finds the place.
    pub(crate) fn find(jni: Jni, helpers: &Helpers) -> Result<Self, Error> {
        let memory = File::open("/proc/self/mem").map_err(Error::NoMemory)?;
        let known = helpers.known(jni).ok_or(Error::Unknown)?;
        let unbound = helpers.unbound(jni).ok_or(Error::Unknown)?;
        let words = known.map(|(id, _)| method_words(&memory, id));
        let addresses = known.map(|(_, address)| address);
        let [Some(first), Some(second)] = &words else { return Err(Error::Unknown) };
        let place = place_of([first, second], addresses).ok_or(Error::Unknown)?;
        let mut slots = Self { memory, offset: place * WORD, unbound: 0 };
        slots.unbound = slots.read(unbound).ok_or(Error::Unknown)?;
        Ok(slots)
    }

    /// The address that a native is bound to; `None` if it is not.
    pub(crate) fn bound(&self, id: MethodId) -> Option<usize> {
        self.read(id).filter(|&address| address != self.unbound && address != 0)
    }

    /// The address of the VM's `Method`.
    pub(crate) fn method(&self, id: MethodId) -> Option<usize> {
        word_at(&self.memory, id.0)
    }

    fn read(&self, id: MethodId) -> Option<usize> {
        let method = self.method(id)?;
        word_at(&self.memory, method.checked_add(self.offset)?)
    }
}

/// The first words of a method.
fn method_words(memory: &File, id: MethodId) -> Option<Vec<usize>> {
    let method = word_at(memory, id.0)?;
    let words = (0..SEARCHED_WORDS).map_while(|place| word_at(memory, method.checked_add(place * WORD)?));
    Some(words.collect())
}

/// The only place at which both methods hold their addresses.
fn place_of(methods: [&[usize]; 2], addresses: [usize; 2]) -> Option<usize> {
    let is_place = |&place: &usize| methods[0][place] == addresses[0] && methods[1][place] == addresses[1];
    let length = methods[0].len().min(methods[1].len());
    let mut places = (0..length).filter(is_place);
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

fn word_at(memory: &File, address: usize) -> Option<usize> {
    let mut word = [0; WORD];
    memory.read_exact_at(&mut word, address as u64).ok()?;
    Some(usize::from_ne_bytes(word))
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

    /// Check that a word is read, and that what is no address gives nothing.
    #[test]
    fn reads_own_memory() {
        let memory = File::open("/proc/self/mem").unwrap();
        let word = 0x1234_5678_usize;
        assert_eq!(word_at(&memory, (&raw const word).addr()), Some(word));
        assert_eq!(word_at(&memory, 8), None);
        assert_eq!(word_at(&memory, usize::MAX), None);
    }
}
