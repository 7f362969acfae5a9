//! What calls were made with: the registers and the stack at their entry, and what in the heap they refer to, as these cross a
//! ring: a [`CallArgs`] before the [`SlowDetails`](crate::SlowDetails) of a slow call, a [`MadeCall`] for each call of a timeline.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::CallEvent;

/// Registers that pass whole numbers and references to a native method, the `JNIEnv` aside: `rsi` (the object or the class),
/// `rdx`, `rcx`, `r8`, `r9`.
pub const REGISTERS: usize = 5;
/// Words of the stack that are noted; there is what finds no register.
pub const STACK_WORDS: usize = 9;
/// The words of a call that are noted: registers, then the stack.
pub const WORDS: usize = REGISTERS + STACK_WORDS;
/// The place of the result among what may refer to the heap, behind all words.
pub const RESULT: usize = WORDS;
/// What may refer to the heap.
pub const REFERENCES: usize = WORDS + 1;
/// How many nested calls of a thread are noted at once.
pub const LEVELS: usize = 4;
/// How much of an object is copied, from its start.
pub const HEAD_BYTES: usize = 64;
/// How much is copied of an object, or of what a string is kept in, where contents are wanted. It includes the header.
pub const CONTENT_BYTES: usize = 160;
/// Where in a function's word it says of how many words its arguments are, the object or class included; below that, what is a
/// reference.
pub const USED_SHIFT: u32 = 16;
/// Where it says what is a file descriptor.
pub const FILES_SHIFT: u32 = 32;
/// Of how many references of a call of a timeline the objects are looked at: the first ones, the result's last.
pub const MADE_OBJECTS: usize = 6;

/// What was noted at the entry of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct NotedCall {
    /// The stack pointer at the entry: what another call has left is none of this one's.
    pub sp: u64,
    /// The dense method index.
    pub index: u32,
    /// Whether the stack could be read: 1, or 0.
    pub has_stack: u32,
    /// Registers and stack.
    pub words: [u64; WORDS],
}

/// What was noted of the open calls of a thread, by their depth; the outermost call's is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct NotedCalls {
    /// By depth.
    pub of: [NotedCall; LEVELS],
}

const _: () = assert!(size_of::<NotedCall>() == 16 + 8 * WORDS && size_of::<NotedCalls>() == LEVELS * 128);

/// What the frame of a stub keeps of what a call is made with ([`STUB_ARGS_BELOW`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StubArgs {
    /// The registers of [`REGISTERS`].
    pub registers: [u64; REGISTERS],
    /// The `JNIEnv`.
    pub env: u64,
    /// [`MadeWith::kinds`] of the method; if it is 0, nothing else is kept.
    pub kinds: u64,
    /// A frame keeps the stack aligned.
    pub unused: u64,
}

/// Words of a stub's frame above what is kept: its row, the start, the record, and the run.
const STUB_FRAME_WORDS: usize = 4;
/// How far below its base pointer a stub's frame has [`StubArgs`], in bytes. What is below that is of single calls.
pub const STUB_ARGS_BELOW: usize = 8 * STUB_FRAME_WORDS + size_of::<StubArgs>();
/// How far above its base pointer the stack begins that the call was made with, behind what the base pointer was and the return address.
pub const STUB_STACK_ABOVE: usize = 16;

const _: () = assert!(size_of::<StubArgs>() == 8 * (REGISTERS + 3) && STUB_ARGS_BELOW.is_multiple_of(16));

/// The beginning of an object of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct ObjectHead {
    /// Its address.
    pub addr: u64,
    /// How many bytes of `words` are known; 0 if nothing is.
    pub bytes: u64,
    /// Its first bytes.
    pub words: [u64; HEAD_BYTES / 8],
}

/// The same with contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Referent {
    /// Its beginning.
    pub head: ObjectHead,
    /// How many bytes of `contents` are known.
    pub content_bytes: u64,
    /// The first bytes of the object or, if it is a string, of the array that it is kept in.
    pub contents: [u64; CONTENT_BYTES / 8],
}

/// What a call was made with and what it has returned, without what is referred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct MadeWith {
    /// How many of `words` are known: all, those in registers, or none.
    pub known: u64,
    /// Whether the call has returned, and `result` is known: 1, or 0.
    pub has_result: u64,
    /// Whether it has an exception pending, as far as the programs can tell: 1, or 0.
    pub has_thrown: u64,
    /// Whether the heap stood still while objects were read: 1, or 0. If not, nothing is known of them.
    pub is_still: u64,
    /// Which words are references (the lowest bits) and file descriptors (from [`FILES_SHIFT`] on), and how many there are (from
    /// [`USED_SHIFT`] on), as the function was described.
    pub kinds: u64,
    /// Registers and stack at the entry.
    pub words: [u64; WORDS],
    /// What was returned in `rax`.
    pub result: u64,
}

/// What is said of the arguments and the result of a slow call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct CallArgs {
    /// Words.
    pub made: MadeWith,
    /// What the references lead to, the result's last.
    pub referents: [Referent; REFERENCES],
}

/// A call of a timeline with what it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct MadeCall {
    /// The call.
    pub call: CallEvent,
    /// How many times the VM had begun to collect the heap, and one; 0 if that is not known.
    pub collections: u64,
    /// Words.
    pub made: MadeWith,
    /// What the first references of [`MadeWith::kinds`] lead to, in their order.
    pub objects: [ObjectHead; MADE_OBJECTS],
}

const _: () = assert!(size_of::<ObjectHead>() == 16 + HEAD_BYTES && size_of::<MadeWith>() == 48 + 8 * WORDS);
const _: () = assert!(size_of::<Referent>() == size_of::<ObjectHead>() + 8 + CONTENT_BYTES);
const _: () = assert!(size_of::<CallArgs>() == size_of::<MadeWith>() + REFERENCES * size_of::<Referent>());
const _: () = assert!(size_of::<MadeCall>() == 32 + size_of::<MadeWith>() + MADE_OBJECTS * size_of::<ObjectHead>());

/// What the programs have to know of a VM's heap to follow references; addresses in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct HeapPlaces {
    /// The byte that says whether a collector stops the program now; 0: references are not followed.
    pub stopped: u64,
    /// Where in an object the word is that names its class, in bytes; one of the first two words.
    pub class_word: u64,
    /// The bits of that word that do so.
    pub class_mask: u64,
    /// What they are of a string; 0 if that is not known.
    pub string_class: u64,
    /// Of a string: where it refers to what it is kept in.
    pub string_value: u64,
    /// Bytes that a reference takes in an object. If 4, it is shifted and added to the base.
    pub reference_bytes: u64,
    /// See `reference_bytes`.
    pub reference_base: u64,
    /// See `reference_bytes`.
    pub reference_shift: u64,
}

impl CallArgs {
    /// Takes them out of the record of a slow call, which ends with them and `details` bytes more. `None` if there are none.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn before_details(record: &[u8], details: usize) -> Option<Self> {
        let end = record.len().checked_sub(details)?;
        Self::read_from_suffix(&record[..end]).ok().map(|(_, args)| args)
    }

    /// Where a reference leads; `None` if it leads nowhere or that is not known.
    #[must_use]
    pub fn referent(&self, word: usize) -> Option<&Referent> {
        self.referents.get(word).filter(|referent| self.made.is_still != 0 && referent.head.bytes > 0)
    }
}

impl MadeWith {
    /// A word at the entry; `None` if it is not known.
    #[must_use]
    pub fn word(&self, word: usize) -> Option<u64> {
        self.words.get(word).copied().filter(|_| (word as u64) < self.known)
    }

    /// Of how many words the arguments are.
    #[must_use]
    pub fn used(&self) -> usize {
        ((self.kinds >> USED_SHIFT) as usize & 0x1f).min(WORDS)
    }

    /// Whether a word, or the result, is a reference.
    #[must_use]
    pub fn is_reference(&self, word: usize) -> bool {
        word < REFERENCES && self.kinds >> word & 1 != 0
    }

    /// Whether a word is a file descriptor.
    #[must_use]
    pub fn is_file(&self, word: usize) -> bool {
        word < WORDS && self.kinds >> (word + FILES_SHIFT as usize) & 1 != 0
    }
}

impl MadeCall {
    /// Where a reference leads; `None` if it leads nowhere or that is not known.
    #[must_use]
    pub fn object(&self, word: usize) -> Option<&ObjectHead> {
        let is_known = |head: &&ObjectHead| self.made.is_still != 0 && head.bytes > 0;
        self.objects.get(self.place(word)?).filter(is_known)
    }

    /// Whether there is a place for where a reference leads.
    #[must_use]
    pub fn has_place(&self, word: usize) -> bool {
        self.place(word).is_some_and(|place| place < MADE_OBJECTS)
    }

    /// Which of the references a word is.
    fn place(&self, word: usize) -> Option<usize> {
        let before = self.made.kinds & ((1 << word.min(REFERENCES)) - 1);
        self.made.is_reference(word).then(|| before.count_ones() as usize)
    }
}

#[cfg(not(target_arch = "bpf"))]
impl ObjectHead {
    /// The first bytes of the object, as far as they are known.
    #[must_use]
    pub fn known(&self) -> &[u8] {
        known(self.words.as_bytes(), self.bytes)
    }
}

#[cfg(not(target_arch = "bpf"))]
impl Referent {
    /// An object of which no contents are known.
    #[must_use]
    pub fn without_contents(head: ObjectHead) -> Self {
        Self { head, content_bytes: 0, contents: [0; CONTENT_BYTES / 8] }
    }

    /// The first bytes of the array that holds the contents, as far as they are known.
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        known(self.contents.as_bytes(), self.content_bytes)
    }
}

#[cfg(not(target_arch = "bpf"))]
fn known(bytes: &[u8], known: u64) -> &[u8] {
    &bytes[..usize::try_from(known).unwrap_or(bytes.len()).min(bytes.len())]
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    /// Check that arguments are found before what ends a record, and that no more is believed in than there can be.
    #[test]
    fn taken_out_of_a_record() {
        let mut args = CallArgs::new_zeroed();
        (args.made.known, args.made.is_still, args.made.words[4], args.made.words[5]) = (REGISTERS as u64, 1, 9, 10);
        let head = &mut args.referents[1].head;
        (head.bytes, head.words[0]) = (u64::MAX, 0x0807_0605_0403_0201);
        let mut record = std::vec![7; 100];
        record.extend(args.as_bytes());
        record.extend([8; 24]);
        let read = CallArgs::before_details(&record, 24).unwrap();
        assert_eq!(read, args);
        assert_eq!((read.made.word(4), read.made.word(5), read.made.word(99)), (Some(9), None, None));
        let head = read.referent(1).unwrap().head.known();
        assert_eq!((head.len(), &head[..3]), (HEAD_BYTES, &[1, 2, 3][..]));
        assert_eq!((read.referent(0), read.referent(99)), (None, None));
        args.made.is_still = 0;
        assert_eq!(args.referent(1), None);
        assert_eq!(CallArgs::before_details(&record[..200], 24), None);
        assert_eq!(CallArgs::before_details(&record, record.len() + 1), None);
    }

    /// Check that each reference of a call of a timeline has its place by its number among them, and that there are not more places
    /// than there are.
    #[test]
    fn places_of_objects() {
        let mut call = MadeCall::new_zeroed();
        call.made.kinds = 0b0101_0011_1110_0101 & 0x7fff | 12 << USED_SHIFT;
        call.made.is_still = 1;
        (0..).zip(&mut call.objects).for_each(|(at, object)| (object.addr, object.bytes) = (at, 8));
        let at = |word: usize| call.object(word).map(|object| object.addr);
        assert_eq!((at(0), at(1), at(2), at(5), at(8)), (Some(0), None, Some(1), Some(2), Some(5)));
        assert_eq!((at(9), at(RESULT), at(99)), (None, None, None));
        let has_place = |word| call.has_place(word);
        assert!(has_place(8) && !has_place(9) && !has_place(RESULT) && !has_place(1) && !has_place(99));
        assert_eq!((call.made.used(), MadeWith { kinds: u64::MAX, ..call.made }.used()), (12, WORDS));
    }
}
