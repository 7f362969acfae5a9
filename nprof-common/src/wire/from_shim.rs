//! What the shim says.

use super::bytes::{Reader, Writer};
use super::{ClassFile, ClassesListed, Enhanced, Error, ExceptionClass, Part, TreesEnded, open, packet, parts};

/// A message of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromShim<'a> {
    /// Who it is; the first message.
    Hello(Hello),
    /// A method and what it is bound to.
    Bound(Bound<'a>),
    /// All answers to a `Scan` have been sent.
    Scanned(Scanned),
    /// A method has its stub after an `Apply`. Of one that is bound with a stub, `Bound` says so.
    Stubbed(Stubbed),
    /// All answers to an `Apply` have been sent.
    Applied(Applied),
    /// So many messages were not sent, since the connection began, because nobody read.
    Dropped(u64),
    /// Something went wrong in the shim that the user should know.
    Note(&'a [u8]),
    /// The answer to a `Detach`: so many methods still have a stub's address, which does nothing but call the native.
    Detached(u32),
    /// Ids are kept from now on.
    IdsKept,
    /// What came of keeping the ids that one function looks up: one message for each of the four, after a `ForgetIds` or when the VM ends.
    IdFunction(IdFunction),
    /// The same of one caller.
    IdCaller(IdCaller),
    /// All that came of it has been told.
    IdsForgotten(IdsForgotten),
    /// Methods can be enhanced. Whether this shim came when the VM was running and has changed no class yet: then the VM may not know what it has
    /// compiled of which class.
    TreesReady(bool),
    /// A part of the list of classes is in the area.
    ClassesListed(ClassesListed),
    /// The methods of the first of the classes that were asked for are in the area.
    MethodsListed(ClassesListed),
    /// The file of a class is in the area.
    ClassFile(ClassFile),
    /// All answers to an `Enhance` have been sent.
    Enhanced(Enhanced),
    /// What enhanced methods tell is recorded from now on.
    TreesRecorded,
    /// The class of an exception.
    ExceptionClass(ExceptionClass<'a>),
    /// All answers to a `NameExceptions` have been sent.
    ExceptionsNamed,
    /// Nothing is recorded any more, and classes are restored.
    TreesEnded(TreesEnded),
    /// The shim ends the connection, for this reason.
    Bye(&'a [u8]),
}

parts! {
    /// Who a shim is.
    pub struct Hello {
        /// [`super::VERSION`] of the shim.
        pub version: u32,
        /// How many stubs it has.
        pub stubs: u32,
        /// How many of them have been taken for good.
        pub taken: u32,
        /// How many methods it can keep records of.
        pub records: u32,
        /// How a stub finds the shard of its CPU: 0 restartable sequences, without a lock; 1 `rdpid`; 2 a segment's limit.
        pub sharding: u32,
        /// Whether the CPU's time stamp counter runs at one speed. Without that calls are counted and never timed.
        pub steady_clock: bool,
        /// The descriptor, in the target, of the shim's own file; or [`super::NO_LIBRARY`].
        pub library_fd: u32,
        /// Where the stubs begin in the target's memory.
        pub pool_start: u64,
        /// Where they end.
        pub pool_end: u64,
        /// The address of the instruction that each call passes which a stub has chosen.
        pub chosen_site: u64,
        /// The address of the instruction that a thread passes which has found no row ([`crate::rows`]).
        pub rowless_site: u64,
    }
}

/// How the shim came to know of a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A `Scan` found the method bound.
    Found,
    /// The VM said so when it happened.
    Event,
}

parts! {
    /// A method and what it is bound to. A later message replaces an earlier one about the same method.
    pub struct Bound<'a> {
        /// The shim's number for the method: the same as long as the process lives.
        pub number: u32,
        /// How the shim came to know.
        pub how: How,
        /// The number of its record, or [`super::NO_INDEX`] if it has no stub.
        pub index: u32,
        /// The address of the VM's `Method`, or 0 where the shim does not know it.
        pub method: u64,
        /// The address of the native, also where a stub stands before it.
        pub address: u64,
        /// `Ljava/util/zip/CRC32;`.
        pub class: &'a [u8],
        /// `updateBytes0`.
        pub name: &'a [u8],
        /// `(I[BII)I`.
        pub signature: &'a [u8],
    }
}

parts! {
    /// What a `Scan` came to.
    pub struct Scanned {
        /// So many methods that are bound.
        pub found: u32,
        /// So many that are left out, because their names or their addresses cannot be read or do not fit.
        pub unreadable: u32,
    }
}

parts! {
    /// A method has its stub.
    pub struct Stubbed {
        /// The shim's number for the method.
        pub number: u32,
        /// The number of its record.
        pub index: u32,
        /// The address of the stub.
        pub entry: u64,
    }
}

parts! {
    /// What an `Apply` came to.
    pub struct Applied {
        /// The number that the `Apply` had.
        pub serial: u32,
        /// So many methods have a stub that were to get one.
        pub stubbed: u32,
        /// So many have their own addresses back.
        pub restored: u32,
        /// So many are not bound as they should be.
        pub failed: u32,
    }
}

parts! {
    /// What came of keeping the ids that a function looks up.
    pub struct IdFunction {
        /// 0 `GetMethodID`, 1 `GetStaticMethodID`, 2 `GetFieldID`, 3 `GetStaticFieldID`.
        pub function: u32,
        /// Calls that got what was kept.
        pub hits: u64,
        /// Calls that the original answered after it was looked for in vain.
        pub misses: u64,
        /// Calls that went to the original at once.
        pub left: u64,
        /// Of the hits so many were timed, and the original beside each.
        pub timed: u64,
        /// How long these hits took, together.
        pub hit_ns: u64,
        /// How long the originals took.
        pub original_ns: u64,
        /// So often the original said something else, and that was given.
        pub wrong: u64,
    }
}

parts! {
    /// What came of keeping ids for one place in the program.
    pub struct IdCaller {
        /// What follows the call; 0 for all that are not told apart.
        pub address: u64,
        /// As [`IdFunction::hits`].
        pub hits: u64,
        /// As [`IdFunction::misses`].
        pub misses: u64,
        /// As [`IdFunction::left`].
        pub left: u64,
    }
}

parts! {
    /// How keeping ids has ended.
    pub struct IdsForgotten {
        /// So many functions of the shim stay behind those of another agent, and only pass calls on.
        pub behind: u32,
        /// So many callers have not been told.
        pub untold: u32,
    }
}

const HELLO: u16 = 1;
const BOUND: u16 = 2;
const SCANNED: u16 = 3;
const STUBBED: u16 = 4;
const APPLIED: u16 = 5;
// 6 was code of the VM until version 2.
const DROPPED: u16 = 7;
const NOTE: u16 = 8;
const DETACHED: u16 = 9;
const BYE: u16 = 10;
const IDS_KEPT: u16 = 11;
const ID_FUNCTION: u16 = 12;
const ID_CALLER: u16 = 13;
const IDS_FORGOTTEN: u16 = 14;
const TREES_READY: u16 = 15;
const CLASSES_LISTED: u16 = 16;
const CLASS_FILE: u16 = 17;
const ENHANCED: u16 = 18;
const TREES_RECORDED: u16 = 19;
const EXCEPTION_CLASS: u16 = 20;
const EXCEPTIONS_NAMED: u16 = 21;
const TREES_ENDED: u16 = 22;
const METHODS_LISTED: u16 = 23;

impl<'a> FromShim<'a> {
    /// Writes the message to the beginning of a buffer and gives the packet; `None` if it does not fit into the buffer
    /// or is longer than [`super::MAX_PACKET`].
    #[must_use]
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        match self {
            Self::Hello(message) => packet(buffer, HELLO, |to| message.write(to)),
            Self::Bound(message) => packet(buffer, BOUND, |to| message.write(to)),
            Self::Scanned(message) => packet(buffer, SCANNED, |to| message.write(to)),
            Self::Stubbed(message) => packet(buffer, STUBBED, |to| message.write(to)),
            Self::Applied(message) => packet(buffer, APPLIED, |to| message.write(to)),
            Self::Dropped(total) => packet(buffer, DROPPED, |to| total.write(to)),
            Self::Note(text) => packet(buffer, NOTE, |to| text.write(to)),
            Self::Detached(left) => packet(buffer, DETACHED, |to| left.write(to)),
            Self::Bye(reason) => packet(buffer, BYE, |to| reason.write(to)),
            Self::IdsKept => packet(buffer, IDS_KEPT, |to| ().write(to)),
            Self::IdFunction(message) => packet(buffer, ID_FUNCTION, |to| message.write(to)),
            Self::IdCaller(message) => packet(buffer, ID_CALLER, |to| message.write(to)),
            Self::IdsForgotten(message) => packet(buffer, IDS_FORGOTTEN, |to| message.write(to)),
            Self::TreesReady(first) => packet(buffer, TREES_READY, |to| first.write(to)),
            Self::ClassesListed(message) => packet(buffer, CLASSES_LISTED, |to| message.write(to)),
            Self::MethodsListed(message) => packet(buffer, METHODS_LISTED, |to| message.write(to)),
            Self::ClassFile(message) => packet(buffer, CLASS_FILE, |to| message.write(to)),
            Self::Enhanced(message) => packet(buffer, ENHANCED, |to| message.write(to)),
            Self::TreesRecorded => packet(buffer, TREES_RECORDED, |to| ().write(to)),
            Self::ExceptionClass(message) => packet(buffer, EXCEPTION_CLASS, |to| message.write(to)),
            Self::ExceptionsNamed => packet(buffer, EXCEPTIONS_NAMED, |to| ().write(to)),
            Self::TreesEnded(message) => packet(buffer, TREES_ENDED, |to| message.write(to)),
        }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// When it is not one whole message.
    pub fn decode(packet: &'a [u8]) -> Result<Self, Error> {
        let (kind, body) = open(packet)?;
        match kind {
            HELLO => body.last().map(Self::Hello),
            BOUND => body.last().map(Self::Bound),
            SCANNED => body.last().map(Self::Scanned),
            STUBBED => body.last().map(Self::Stubbed),
            APPLIED => body.last().map(Self::Applied),
            DROPPED => body.last().map(Self::Dropped),
            NOTE => body.last().map(Self::Note),
            DETACHED => body.last().map(Self::Detached),
            BYE => body.last().map(Self::Bye),
            IDS_KEPT => body.last().map(|()| Self::IdsKept),
            ID_FUNCTION => body.last().map(Self::IdFunction),
            ID_CALLER => body.last().map(Self::IdCaller),
            IDS_FORGOTTEN => body.last().map(Self::IdsForgotten),
            TREES_READY => body.last().map(Self::TreesReady),
            CLASSES_LISTED => body.last().map(Self::ClassesListed),
            METHODS_LISTED => body.last().map(Self::MethodsListed),
            CLASS_FILE => body.last().map(Self::ClassFile),
            ENHANCED => body.last().map(Self::Enhanced),
            TREES_RECORDED => body.last().map(|()| Self::TreesRecorded),
            EXCEPTION_CLASS => body.last().map(Self::ExceptionClass),
            EXCEPTIONS_NAMED => body.last().map(|()| Self::ExceptionsNamed),
            TREES_ENDED => body.last().map(Self::TreesEnded),
            unknown => Err(Error::Kind(unknown)),
        }
    }
}

impl<'a> Part<'a> for How {
    fn write(&self, to: &mut Writer<'_>) {
        let number: u32 = match self {
            Self::Found => 0,
            Self::Event => 1,
        };
        number.write(to);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        match u32::read(from)? {
            0 => Ok(Self::Found),
            1 => Ok(Self::Event),
            _ => Err(Error::Value),
        }
    }
}
