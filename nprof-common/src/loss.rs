//! The places where the measurement can be less than exact. Each is counted, none is silent.

/// A reason why something was not measured as it should have been; the index of its counter in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Loss {
    /// A call was left without a return that the kernel could see (`longjmp`, more pending returns than the kernel
    /// follows). It is counted, without a time.
    Unreturned = 0,
    /// A call was nested deeper than [`crate::MAX_FRAMES`]. It is counted, without a time.
    TooDeep = 1,
    /// There was no memory for a thread's frames. The call is counted, without a time.
    NoFrame = 2,
    /// A new maximum could not be stored because other CPUs kept storing theirs; `max` may be too low.
    MaxContended = 3,
    /// A hit carried an index beyond the maps: a defect of nprof. The call is not counted.
    BadIndex = 4,
    /// A process began to run a program and there was no room to say so. If it is a JVM, it is found late.
    MissedExec = 5,
    /// The kernel could not give a thread a place to note how long it is not running, or did not tell that it ran again. The
    /// call is counted and timed, and has no off-CPU time.
    NoOffCpu = 6,
    /// The kernel could not give a thread a place for its counters, or calls were nested deeper than
    /// [`crate::MAX_COUNTED_FRAMES`]. What the call consumed is not known; it is counted and timed.
    NoCounters = 7,
    /// There was no room to say which native method made a call of a JNI function, or of which class an exception was. It is counted
    /// and timed.
    NoJniRoom = 8,
    /// It was not found out what a look-up looks up, or there was no room to remember it: whether it was the same again is
    /// not known. It is counted and timed.
    UnknownLookUp = 9,
    /// There was no room to remember something that native code has made. If it is not let go, nobody will know of it. Or it has begun more
    /// local frames within one another than are followed.
    NoHeldRoom = 10,
    /// Something was made that had been made before, and nobody had seen it let go. The earlier one is forgotten.
    UnseenRelease = 11,
}

impl Loss {
    /// Every reason, in the order of the counters.
    pub const ALL: [Self; 12] = [
        Self::Unreturned,
        Self::TooDeep,
        Self::NoFrame,
        Self::MaxContended,
        Self::BadIndex,
        Self::MissedExec,
        Self::NoOffCpu,
        Self::NoCounters,
        Self::NoJniRoom,
        Self::UnknownLookUp,
        Self::NoHeldRoom,
        Self::UnseenRelease,
    ];

    /// The word for reports, JSON and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreturned => "unreturned",
            Self::TooDeep => "too-deep",
            Self::NoFrame => "no-frame",
            Self::MaxContended => "max-contended",
            Self::BadIndex => "bad-index",
            Self::MissedExec => "missed-exec",
            Self::NoOffCpu => "no-off-cpu",
            Self::NoCounters => "no-counters",
            Self::NoJniRoom => "no-jni-room",
            Self::UnknownLookUp => "unknown-look-up",
            Self::NoHeldRoom => "no-held-room",
            Self::UnseenRelease => "unseen-release",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a reason's number is its place in the list: user space names counters by place.
    #[test]
    fn numbered_by_place() {
        for (place, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss as usize, place);
        }
    }
}
