//! The numbers that stand for kinds, modes and reasons in files.
//!
//! A number is a place in one of these lists, counted from 1. What was once written keeps its number: add at the end only,
//! and raise the version of the format.

use nprof_common::Counter;

use crate::model::{CutReason, JniStep, ProfileFrameKind, ProfileMode, TreeKind, UnknownArgument};

pub(super) const KINDS: [ProfileFrameKind; 9] = [
    ProfileFrameKind::Interpreted,
    ProfileFrameKind::C1,
    ProfileFrameKind::C2,
    ProfileFrameKind::Inlined,
    ProfileFrameKind::NativeMethod,
    ProfileFrameKind::Native,
    ProfileFrameKind::Vm,
    ProfileFrameKind::NativeInlined,
    ProfileFrameKind::Marker,
];

pub(super) const TREE_KINDS: [TreeKind; 6] = [
    TreeKind::Java,
    TreeKind::Native,
    TreeKind::Intrinsic,
    TreeKind::Jni(JniStep::Creation),
    TreeKind::Jni(JniStep::Release),
    TreeKind::Jni(JniStep::Call),
];

pub(super) const MODES: [ProfileMode; 2] = [ProfileMode::Calls, ProfileMode::OnCpu];

pub(super) const CUT_REASONS: [CutReason; 12] = [
    CutReason::StackTooShort,
    CutReason::TooDeep,
    CutReason::UnknownCode,
    CutReason::InvalidPcDesc,
    CutReason::BadScope,
    CutReason::BadMethod,
    CutReason::BadFrame,
    CutReason::Unreadable,
    CutReason::FrozenFrames,
    CutReason::Changing,
    CutReason::NoUnwindInfo,
    CutReason::MidFrame,
];

/// The counters in the order in which a recording has their numbers.
pub(super) const COUNTERS: [Counter; 18] = [
    Counter::MinorFaults,
    Counter::MajorFaults,
    Counter::VoluntarySwitches,
    Counter::InvoluntarySwitches,
    Counter::ReadBytes,
    Counter::WrittenBytes,
    Counter::DiskReadBytes,
    Counter::DiskWrittenBytes,
    Counter::ReceivedBytes,
    Counter::SentBytes,
    Counter::Syscalls,
    Counter::LockWaits,
    Counter::ZeroResults,
    Counter::NegativeResults,
    Counter::Exceptions,
    Counter::MappedBytes,
    Counter::AllocBytes,
    Counter::Allocations,
];

/// Kinds of values that calls were made with: a number, no object, an object, a file descriptor.
pub(super) const VALUES: [ValueKind; 4] = [ValueKind::Number, ValueKind::Null, ValueKind::Object, ValueKind::File];

/// Why a value is not known. Their numbers are [`UNKNOWNS_FROM`] and those behind it.
pub(super) const UNKNOWNS: [UnknownArgument; 6] = [
    UnknownArgument::FloatRegister,
    UnknownArgument::TooMany,
    UnknownArgument::NotNoted,
    UnknownArgument::Heap,
    UnknownArgument::NotReturned,
    UnknownArgument::Thrown,
];

/// Behind the numbers of [`VALUES`], of which there may be more.
pub(super) const UNKNOWNS_FROM: u32 = 16;

/// Which kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Number,
    Null,
    Object,
    File,
}

/// The number of a value, from 1 on. Every value is in its list; a test says so.
pub(super) fn number<T: PartialEq>(list: &[T], value: &T) -> u32 {
    let place = list.iter().position(|known| known == value);
    place.and_then(|place| u32::try_from(place + 1).ok()).unwrap_or_default()
}

/// The value that a number stands for.
pub(super) fn value<T: Copy>(list: &[T], number: u32) -> Option<T> {
    list.get((number as usize).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::{COUNTERS, CUT_REASONS, KINDS, MODES, number, value};
    use crate::model::{CutReason, ProfileFrameKind};

    /// Check that every value has a number that leads back to it, and that other numbers lead nowhere.
    #[test]
    fn every_value_has_a_number() {
        for kind in ProfileFrameKind::ALL {
            assert_eq!(value(&KINDS, number(&KINDS, &kind)), Some(kind));
        }
        for reason in CutReason::ALL {
            assert_eq!(value(&CUT_REASONS, number(&CUT_REASONS, &reason)), Some(reason));
        }
        assert!(Counter::ALL.iter().all(|counter| COUNTERS.contains(counter)));
        assert_eq!([0, 3, u32::MAX].map(|number| value(&MODES, number)), [None; 3]);
    }
}
