//! What nprof says.

use super::{ClassFile, Error, Part, open, packet, parts};

/// A message of nprof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToShim {
    /// Where and how to record; the answer to `Hello`, with the descriptor of the records, and of the rows if there are some.
    Welcome(Welcome),
    /// Tell of all methods that are bound, and then how many there were.
    Scan,
    /// Watch a method, or a JNI function.
    Watch(Watch),
    /// No longer watch the method with this number: its calls are not recorded from now on, and the next `Apply` gives
    /// it its own address back.
    Unwatch(u32),
    /// Bind methods as the messages before have said, tell which have stubs, and then how many. The number comes back in
    /// the answer.
    Apply(u32),
    /// Record nothing from now on, give all methods their own addresses back, leave the map alone, say how many methods
    /// are left, and end the connection.
    Detach,
    /// Keep the ids of methods and fields that are looked up, as long as the connection is there; also without a `Welcome`. The number is
    /// where a thread's pending exception is, in bytes from its environment, as a signed number.
    KeepIds(u64),
    /// Keep them no longer, and tell what came of it.
    ForgetIds,
    /// Make ready to have methods tell of themselves, in the memory that comes along ([`crate::tree`]), with so many rows of threads in another
    /// ([`crate::rows`]), if any; also without a `Welcome`. Answered by `TreesReady`.
    PrepareTrees(u32),
    /// List the loaded classes, from this number on. Zero makes a new list.
    ListClasses(u32),
    /// List the methods of as many classes, whose numbers are in the area. As many of them as find room are answered.
    ListMethods(u32),
    /// Pass the file of the class with this number.
    ReadClass(u32),
    /// Enhance as many classes, whose numbers are in the area. Their files come one by one, each to be answered by a `NewClassFile`.
    Enhance(u32),
    /// The new file of a class is in the area. Without bytes the class stays as it is.
    NewClassFile(ClassFile),
    /// Record what enhanced methods tell, from the next call of one of so many entry methods on: those with the first numbers. With none, record
    /// no more.
    RecordTrees(u32),
    /// Tell the classes of exceptions, from this number on.
    NameExceptions(u32),
    /// Record no more, and restore all classes.
    EndTrees,
}

parts! {
    /// Where and how to record.
    pub struct Welcome {
        /// [`super::VERSION`] of nprof.
        pub version: u32,
        /// Shards of a record that CPUs have for themselves. One more follows, for all other CPUs.
        pub shards: u32,
        /// The size of a shard in bytes: that of [`crate::MethodStats`].
        pub record_bytes: u32,
        /// Where the first record begins in the map's memory, in bytes.
        pub first: u64,
        /// How many records there are.
        pub records: u32,
        /// The mode of methods that are bound from now on ([`super::SAMPLE`], [`crate::Mode`]).
        pub bind_mode: u32,
        /// The chance that goes with it, of 2^32.
        pub bind_probability: u32,
        /// From how many nanoseconds on a call of such a method is slow.
        pub bind_threshold_ns: u64,
        /// Whether such methods are all wanted, and by this threshold. If not, their chosen calls are marked until a `Watch`
        /// ([`crate::StackHeader::UNASKED`]).
        pub bind_asked: bool,
        /// Whether it is told which methods are bound from now on.
        pub tell_binds: bool,
        /// Whether these get a stub at once.
        pub stub_binds: bool,
        /// How many rows of threads there are ([`crate::rows`]), a power of two: then a second descriptor comes along. With 0 it is
        /// not collected what they use.
        pub rows: u32,
        /// Whether what calls consume is recorded behind the records: a [`crate::Consumed`] for each shard.
        pub consumed: bool,
        /// Of which of them it is recorded how much each call consumed, as bits, on the next page behind that: a
        /// [`crate::CallBytes`] for each record and each of these. Some of [`crate::Counter::OF_BYTES`].
        pub bytes: u32,
    }
}

parts! {
    /// Watch a method. One that has a stub changes its mode at once; another gets one at the next `Apply`.
    pub struct Watch {
        /// The shim's number for the method, or that of a JNI function ([`super::FIRST_FUNCTION`]).
        pub number: u32,
        /// What is done at its calls ([`super::SAMPLE`], [`crate::Mode`]).
        pub mode: u32,
        /// The chance that goes with it, of 2^32.
        pub probability: u32,
        /// From how many nanoseconds on a call is slow.
        pub threshold_ns: u64,
        /// What its arguments are ([`crate::MadeWith::kinds`]), if its stub is to keep them; otherwise 0.
        pub kinds: u64,
    }
}

const WELCOME: u16 = 0x101;
const SCAN: u16 = 0x102;
const WATCH: u16 = 0x103;
const UNWATCH: u16 = 0x104;
const APPLY: u16 = 0x105;
const DETACH: u16 = 0x106;
const KEEP_IDS: u16 = 0x107;
const FORGET_IDS: u16 = 0x108;
const PREPARE_TREES: u16 = 0x109;
const LIST_CLASSES: u16 = 0x10a;
const READ_CLASS: u16 = 0x10b;
const ENHANCE: u16 = 0x10c;
const NEW_CLASS_FILE: u16 = 0x10d;
const RECORD_TREES: u16 = 0x10e;
const NAME_EXCEPTIONS: u16 = 0x10f;
const END_TREES: u16 = 0x110;
const LIST_METHODS: u16 = 0x111;

impl ToShim {
    /// Writes the message to the beginning of a buffer and gives the packet; `None` if it does not fit.
    #[must_use]
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        match self {
            Self::Welcome(message) => packet(buffer, WELCOME, |to| message.write(to)),
            Self::Scan => packet(buffer, SCAN, |to| ().write(to)),
            Self::Watch(message) => packet(buffer, WATCH, |to| message.write(to)),
            Self::Unwatch(number) => packet(buffer, UNWATCH, |to| number.write(to)),
            Self::Apply(serial) => packet(buffer, APPLY, |to| serial.write(to)),
            Self::Detach => packet(buffer, DETACH, |to| ().write(to)),
            Self::KeepIds(pending) => packet(buffer, KEEP_IDS, |to| pending.write(to)),
            Self::ForgetIds => packet(buffer, FORGET_IDS, |to| ().write(to)),
            Self::PrepareTrees(rows) => packet(buffer, PREPARE_TREES, |to| rows.write(to)),
            Self::ListClasses(from) => packet(buffer, LIST_CLASSES, |to| from.write(to)),
            Self::ListMethods(from) => packet(buffer, LIST_METHODS, |to| from.write(to)),
            Self::ReadClass(number) => packet(buffer, READ_CLASS, |to| number.write(to)),
            Self::Enhance(count) => packet(buffer, ENHANCE, |to| count.write(to)),
            Self::NewClassFile(file) => packet(buffer, NEW_CLASS_FILE, |to| file.write(to)),
            Self::RecordTrees(entries) => packet(buffer, RECORD_TREES, |to| entries.write(to)),
            Self::NameExceptions(from) => packet(buffer, NAME_EXCEPTIONS, |to| from.write(to)),
            Self::EndTrees => packet(buffer, END_TREES, |to| ().write(to)),
        }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// When it is not one whole message.
    pub fn decode(packet: &[u8]) -> Result<Self, Error> {
        let (kind, body) = open(packet)?;
        match kind {
            WELCOME => body.last().map(Self::Welcome),
            SCAN => body.last().map(|()| Self::Scan),
            WATCH => body.last().map(Self::Watch),
            UNWATCH => body.last().map(Self::Unwatch),
            APPLY => body.last().map(Self::Apply),
            DETACH => body.last().map(|()| Self::Detach),
            KEEP_IDS => body.last().map(Self::KeepIds),
            FORGET_IDS => body.last().map(|()| Self::ForgetIds),
            PREPARE_TREES => body.last().map(Self::PrepareTrees),
            LIST_CLASSES => body.last().map(Self::ListClasses),
            LIST_METHODS => body.last().map(Self::ListMethods),
            READ_CLASS => body.last().map(Self::ReadClass),
            ENHANCE => body.last().map(Self::Enhance),
            NEW_CLASS_FILE => body.last().map(Self::NewClassFile),
            RECORD_TREES => body.last().map(Self::RecordTrees),
            NAME_EXCEPTIONS => body.last().map(Self::NameExceptions),
            END_TREES => body.last().map(|()| Self::EndTrees),
            unknown => Err(Error::Kind(unknown)),
        }
    }
}
