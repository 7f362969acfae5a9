//! Calls of JNI functions: what native code asks of the VM, kept for each native method and function.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is looked at when a JNI function is called, besides count and time. The number is in the function's record
/// ([`crate::stats::KIND_SHIFT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum JniKind {
    /// It is no JNI function: a native method.
    Method = 0,
    /// Nothing.
    Plain = 1,
    /// Which member it looks up: of a class, by name and signature.
    Member = 2,
    /// Which class it looks up by name.
    Class = 3,
    /// Whether it gave something that is to be let go.
    Makes = 4,
    /// Whether its argument is something to be let go.
    LetsGo = 5,
    /// Whether it lets go of the elements of an array, and does not only copy them back (`JNI_COMMIT`).
    LetsElementsGo = 6,
    /// Whether there is an exception to be cleared.
    Clears = 7,
    /// It begins a critical section, if it gave something.
    Enters = 8,
    /// It ends a critical section.
    Leaves = 9,
    /// As [`Self::Makes`], and how many bytes its second argument says: it makes a direct buffer of them.
    MakesBuffer = 10,
    /// It begins a local frame with room for as many references as its first argument says.
    PushesFrame = 11,
    /// It ends a local frame. As [`Self::Makes`] after that.
    PopsFrame = 12,
    /// It makes room for as many more local references as its first argument says.
    MakesRoom = 13,
}

/// How many arguments the JNI function at a place of the VM's table has that come before any number of further ones (`CallIntMethod`). Its
/// twin at the next place takes these as a `va_list`. `None` of those that have a fixed number.
#[cfg(not(target_arch = "bpf"))]
#[must_use]
pub const fn fixed_arguments(place: usize) -> Option<u32> {
    /// `NewObject`, and ten functions in three forms each, of which the first is such a one: of objects, of a given class, static.
    const NEW_OBJECT: usize = 28;
    const CALL: usize = 34;
    const NONVIRTUAL: usize = 64;
    const AFTER: usize = 94;
    const STATIC: usize = 114;
    const END: usize = 144;
    match place {
        NEW_OBJECT => Some(3),
        CALL..NONVIRTUAL if (place - CALL).is_multiple_of(3) => Some(3),
        NONVIRTUAL..AFTER if (place - NONVIRTUAL).is_multiple_of(3) => Some(4),
        STATIC..END if (place - STATIC).is_multiple_of(3) => Some(3),
        _ => None,
    }
}

/// What a JNI function makes or lets go that is followed until it is let go. The number is in the function's record
/// ([`crate::stats::HOLDS_SHIFT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum JniHolds {
    /// Nothing that is followed.
    Nothing = 0,
    /// A global reference.
    Global = 1,
    /// A weak global reference.
    Weak = 2,
    /// The characters of a string.
    Chars = 3,
    /// The elements of an array.
    Elements = 4,
    /// A critical hold.
    Critical = 5,
    /// Local references, or room for them: only how many there are is followed ([`JniLocals`](crate::JniLocals)).
    Local = 6,
}

/// Which argument of a JNI function is the id of the Java method that it calls. The number is in the function's record
/// ([`crate::stats::CALLEE_SHIFT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum JniCallee {
    /// None: it calls no method.
    Nothing = 0,
    /// The third, after `JNIEnv` and the object or class.
    Third = 1,
    /// The fourth: there is an object and a class.
    Fourth = 2,
}

/// What calls of Java methods are kept by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniCalled {
    /// The [`pair`] of native method and JNI function.
    pub pair: u64,
    /// The id of the Java method (`jmethodID`).
    pub id: u64,
}

/// What something is known by as long as it is held. The VM gives the same value again afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniHandle {
    /// What the function has returned.
    pub value: u64,
    /// A [`JniHolds`]; above it, of a critical hold, the thread: all that hold one array have the same value.
    pub of: u64,
}

impl JniHandle {
    /// That of a value that a function of this kind has returned, or is given, in this thread.
    #[must_use]
    #[inline(always)]
    pub const fn new(value: u64, holds: u64, tid: u32) -> Self {
        let tid = if holds == JniHolds::Critical as u64 { tid } else { 0 };
        Self { value, of: holds | (tid as u64) << 32 }
    }

    /// A [`JniHolds`] as a number.
    #[must_use]
    pub const fn holds(self) -> u64 {
        self.of & 0xff
    }

    /// Takes it off the end of a record ([`crate::StackKind::Made`]), as the kernel laid it out. `None` if it is none.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn at_end_of(record: &[u8]) -> Option<Self> {
        Self::read_from_suffix(record).ok().map(|(_, handle)| handle)
    }
}

/// How many stacks were taken in which a native method has made things of one class by one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct JniMade {
    /// How many.
    pub taken: u64,
    /// How many things are left out until the next one.
    pub left: u64,
    /// One of about `1 << shift` is taken.
    pub shift: u64,
    /// When the last one was, or it was last found that they have become seldom, in nanoseconds of the monotonic clock.
    pub last_ns: u64,
}

/// Something that native code has made and not let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniHeld {
    /// When, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// The record of the native method that did, or [`NO_CALLER`].
    pub caller: u32,
    /// That of the function.
    pub function: u32,
    /// What says of which class the object is that it was made of, and of an array the length ([`JniHeld::class_of`]); 0 if
    /// that is not certain.
    pub object: u64,
    /// How often it is held: more than once by critical holds within others, and for arrays without elements; 0 if it was held before.
    pub depth: u64,
}

impl JniHeld {
    /// Packs the first two words of an object, of which `place` (0 or 8) and `mask` say where its class is: those bits, and of an
    /// array the length beside them, unless the class takes a word of its own.
    #[must_use]
    #[inline(always)]
    pub const fn class_of(words: [u64; 2], place: u64, mask: u64) -> u64 {
        if place == 0 { words[0] & mask & !0xffff_ffff | words[1] & 0xffff_ffff } else { words[1] }
    }

    /// The same words as far as they are known, for whoever reads objects.
    #[must_use]
    pub const fn words_of(object: u64, place: u64) -> [u64; 2] {
        if place == 0 { [object & !0xffff_ffff | 1, object & 0xffff_ffff] } else { [1, object] }
    }
}

/// A call that has ended, of a native method or of a JNI function, among those that its thread is in: for trees of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniEvent {
    /// The call.
    pub call: crate::CallEvent,
    /// How many calls it was in.
    pub depth: u32,
    /// How many calls within it could not be told, because there was no room.
    pub lost: u32,
    /// What says of which class the exception is that is pending at its end: as in [`JniThrown::class`]; 0 if there is none.
    pub exception: u64,
    /// Of a JNI function that calls Java, the id of the method (`jmethodID`); 0 of all others.
    pub callee: u64,
}

const _: () = assert!(size_of::<JniEvent>() == 48);

/// Exceptions of one class that one native method has left pending or has cleared: what their number is kept by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniThrown {
    /// The record of the native method, or [`NO_CALLER`].
    pub method: u32,
    /// That of the JNI function that has cleared them, or [`Self::PENDING`].
    pub by: u32,
    /// What says of which class they are, as in [`JniHeld::object`]; [`Self::UNKNOWN`] if that is not certain.
    pub class: u64,
}

impl JniThrown {
    /// In place of a function: they were pending when the native method returned.
    pub const PENDING: u32 = 0;
    /// In place of a class.
    pub const UNKNOWN: u64 = 1;

    /// The record that they are kept for as long as its function has it.
    #[must_use]
    pub const fn owner(self) -> u32 {
        if self.by == Self::PENDING { self.method } else { self.by }
    }
}

/// What [`crate::Frame::env`] says of a call that lets something go: nothing, something that was seen being made, or something else.
pub const LETS_NOTHING_GO: u64 = 0;
/// See [`LETS_NOTHING_GO`].
pub const LETS_KNOWN_GO: u64 = 1;
/// See [`LETS_NOTHING_GO`].
pub const LETS_UNKNOWN_GO: u64 = 2;

/// The calls of one JNI function by one native method, or one shard of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniCalls {
    /// Calls that have ended, and those that were only counted when they began.
    pub calls: u64,
    /// Of `calls`, those that were timed.
    pub timed: u64,
    /// The time of these, in nanoseconds.
    pub total_ns: u64,
    /// Of `total_ns`, the time of traced native methods that were called meanwhile.
    pub child_ns: u64,
    /// Of `total_ns` less `child_ns`, the time that the threads were not running.
    pub off_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// Of `calls`, those that came to nothing: by [`JniKind`], null was returned, or there was nothing to let go or to clear.
    pub vain: u64,
    /// Of `calls`, those that let something go that was made before anybody looked; told only where that is followed.
    pub unknown: u64,
    /// Of `timed`, look-ups of what had been found before.
    pub redundant: u64,
    /// The time that the threads were running in these, in nanoseconds.
    pub redundant_ns: u64,
}

impl JniCalls {
    /// No calls.
    pub const NONE: Self = Self {
        calls: 0,
        timed: 0,
        total_ns: 0,
        child_ns: 0,
        off_ns: 0,
        max_ns: 0,
        vain: 0,
        unknown: 0,
        redundant: 0,
        redundant_ns: 0,
    };

    /// The sum of two.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(more.calls),
            timed: self.timed.saturating_add(more.timed),
            total_ns: self.total_ns.saturating_add(more.total_ns),
            child_ns: self.child_ns.saturating_add(more.child_ns),
            off_ns: self.off_ns.saturating_add(more.off_ns),
            max_ns: self.max_ns.max(more.max_ns),
            vain: self.vain.saturating_add(more.vain),
            unknown: self.unknown.saturating_add(more.unknown),
            redundant: self.redundant.saturating_add(more.redundant),
            redundant_ns: self.redundant_ns.saturating_add(more.redundant_ns),
        }
    }
}

/// How many shards there are: a call goes to that of its CPU's number, modulo this.
pub const JNI_SHARDS: usize = 4;

/// The shards of one native method and one JNI function.
pub type JniShards = [JniCalls; JNI_SHARDS];

const _: () = assert!(size_of::<JniShards>() == 80 * JNI_SHARDS);

/// In place of a native method's record: calls that no traced native method made.
pub const NO_CALLER: u32 = 0;

/// With the record of a JNI function that begins critical sections: what is counted are not its calls but the sections, until the last
/// function that ends them.
pub const CRITICAL_SECTIONS: u32 = 1 << 31;

/// In place of a JNI function's record: what is counted are collections that waited for the end of critical sections.
pub const COLLECTION_WAITS: u32 = 1 << 30;
/// The same of direct buffers that were made: what is counted as time are their bytes.
pub const BUFFERS_MADE: u32 = COLLECTION_WAITS | 1;
/// The same of calls in which a frame has held more local references at once than its capacity allows, whether they have ended or not: what
/// is counted as the longest time is the most ([`JniLocals::most`](crate::JniLocals::most)).
pub const LOCALS_BEYOND: u32 = COLLECTION_WAITS | 2;

/// What a function of the VM does that critical sections keep from collecting: the index of a probe's [`crate::Cookie`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LockerRole {
    /// It waits until no thread is in a critical section, and keeps them from being begun.
    Blocks = 1,
    /// It lets them be begun again: the collection is over.
    Unblocks = 2,
    /// It returns whether a thread is in one; then the collection that was to begin is due when the last of them ends.
    Checks = 3,
    /// The last one has ended, and the collection that is due can begin.
    Cleared = 4,
}

/// What calls are kept by: the records of native method and function.
#[must_use]
#[inline(always)]
pub const fn pair(caller: u32, function: u32) -> u64 {
    (caller as u64) << 32 | function as u64
}

/// The two records of a pair.
#[must_use]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
pub const fn of_pair(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// The critical sections that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct JniHold {
    /// How many it has begun and not ended.
    pub depth: u64,
    /// When it began the first of them, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// What it is counted by: the [`pair`] of the native method that did, and the function with [`CRITICAL_SECTIONS`].
    pub pair: u64,
}

/// What the programs know of one VM for JNI functions, as far as it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniPlaces {
    /// From a class's Java object to the VM's own structure of the class, in bytes; 0 if that is not known: then it is not told
    /// which look-ups of members are the same.
    pub klass: u64,
    /// From there to where the address of the Java object is kept.
    pub mirror: u64,
    /// From a `JNIEnv` to where its thread keeps the exception that is pending, in bytes; 0 if that is not known.
    pub pending_from_env: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that class and length of an object survive being packed, wherever its class is.
    #[test]
    fn objects_are_packed() {
        let narrow = JniHeld::class_of([0x1234_5601, 8 << 32 | 0x0abc], 8, 0xffff_ffff);
        assert_eq!(JniHeld::words_of(narrow, 8), [1, 8 << 32 | 0x0abc]);
        let compact = JniHeld::class_of([0x7 << 42 | 0x5601, 0xffff << 32 | 8], 0, !0 << 42);
        assert_eq!(JniHeld::words_of(compact, 0), [0x7 << 42 | 1, 8]);
    }

    /// Check that only critical holds of different threads are told apart.
    #[test]
    fn threads_of_handles() {
        let same = |holds: JniHolds| JniHandle::new(64, holds as u64, 1) == JniHandle::new(64, holds as u64, 2);
        assert!(same(JniHolds::Global) && same(JniHolds::Elements) && !same(JniHolds::Critical));
        assert_eq!(JniHandle::new(64, JniHolds::Critical as u64, 7).holds(), JniHolds::Critical as u64);
    }

    /// Check that both records come back.
    #[test]
    fn pairs() {
        for (caller, function) in [(NO_CALLER, 7), (1 << 23, CRITICAL_SECTIONS | 5), (3, 1 << 23)] {
            assert_eq!(of_pair(pair(caller, function)), (caller, function));
        }
    }
}
