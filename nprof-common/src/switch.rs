//! The word that says what is done at a function's hits, and which of its probes answers.
//!
//! A link of the kernel holds many probes and cannot let go of one. To take a probe away, the others get a second link;
//! then the first is closed. In between each of them has two probes, told apart by their *lane*, and a hit runs both: the
//! newer first. Exactly one of the two must count it, also while user space changes its mind:
//!
//! ```text
//! settled(old) ── the new link is made ──> handing ── all older hits are over ──> settled(new) ── the old link is closed
//! old counts                               new counts and leaves a mark;         new counts
//!                                          old counts unless it finds the mark
//! ```
//!
//! A hit of which the new probe ran before the hand-over began has no mark, so the old one counts it.
//!
//! A target has two lanes for its own links. Links that serve many targets have two others, in which it is the same for all of
//! them: a function goes from its own link to a shared one, and back, in the same way. It may have a third probe meanwhile, of a
//! shared link that other targets are moving to or from, in a lane that the word does not name: that one does nothing.
//!
//! Calls that a stub in the target has counted are told by what it leaves in a register ([`mark`]). Where stubs may
//! count, the word says so by a bit of its own, which is part of no settled word: other hits do not look at the register.

use crate::Mode;

/// What a stub that counts a call leaves in `r10`, which belongs to nobody there: the call's function and its stack pointer.
///
/// It has to name the call. The register survives where the function does not use it, and then the function's own calls
/// come with the same value in it, which no stub has counted: they go to another function, or their stack pointer is
/// another one, also where the function calls itself.
#[must_use]
#[inline(always)]
pub const fn mark(entry: u64, sp: u64) -> u64 {
    name(entry) ^ sp
}

/// The part of a mark that is the same for all calls of the function that begins at `entry`.
///
/// Each function has another, and two of them differ in high bits, where stack pointers do not: not even a function as
/// far behind another as their calls are apart on the stack has the other's mark.
#[must_use]
#[inline(always)]
pub const fn name(entry: u64) -> u64 {
    let mixed = (entry ^ (entry >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Four links at most hold a probe of the same function, of which one answers, or two in turn.
const LANE_SHIFT: u32 = 8;
const LANE_BITS: u64 = 0b11;
const HANDING: u64 = 1 << 10;
/// Stubs may have counted the call before it gets here.
const STUBS: u64 = 1 << 11;
/// The lane that a hand-over leads to.
const TO_SHIFT: u32 = 12;
const MODE: u64 = 0xff;
const EPOCH_SHIFT: u32 = 32;

/// Which of the links that may hold a probe of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u64)]
pub enum Lane {
    /// The first one of the target's own is in this lane.
    A = 0,
    /// The one that it hands over to.
    B = 1,
    /// A link that serves many targets.
    SharedA = 2,
    /// One that takes over from that, or the other way round.
    SharedB = 3,
}

impl Lane {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::SharedA, Self::SharedB];
    /// Those of a target's own links.
    pub const OWN: [Self; 2] = [Self::A, Self::B];
    /// Those of links that serve many.
    pub const SHARED: [Self; 2] = [Self::SharedA, Self::SharedB];

    /// The other one of the same sort.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
            Self::SharedA => Self::SharedB,
            Self::SharedB => Self::SharedA,
        }
    }

    /// Whether it is one of links that serve many.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::SharedA | Self::SharedB)
    }

    /// By its number, of which the lowest two bits count.
    #[must_use]
    #[inline(always)]
    pub const fn numbered(number: u64) -> Self {
        match number & LANE_BITS {
            0 => Self::A,
            1 => Self::B,
            2 => Self::SharedA,
            _ => Self::SharedB,
        }
    }
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub u64);

impl Switch {
    /// The probes of one lane answer.
    #[must_use]
    #[inline(always)]
    pub const fn settled(mode: Mode, lane: Lane) -> Self {
        Self(mode as u64 | lane_bits(lane))
    }

    /// The probes of one lane hand over to those of another, whose link is newer. `epoch` tells marks of one hand-over from
    /// those of another.
    #[must_use]
    #[inline(always)]
    pub const fn handing(mode: Mode, (from, to): (Lane, Lane), epoch: u32) -> Self {
        let lanes = lane_bits(from) | ((to as u64) << TO_SHIFT);
        Self(mode as u64 | lanes | HANDING | ((epoch as u64) << EPOCH_SHIFT))
    }

    /// The same, and calls that a stub has counted are passed over. It is settled for nobody.
    #[must_use]
    #[inline(always)]
    pub const fn with_stubs(self) -> Self {
        Self(self.0 | STUBS)
    }

    /// Whether a call was counted by a stub: its mark says so, where stubs may count.
    #[must_use]
    #[inline(always)]
    pub const fn is_counted_by_stub(self, is_marked: bool) -> bool {
        self.0 & STUBS != 0 && is_marked
    }

    /// The mode, if the word is settled on this lane; something that is no mode if not.
    #[must_use]
    #[inline(always)]
    pub const fn settled_mode(self, lane: Lane) -> u64 {
        self.0 ^ lane_bits(lane)
    }

    /// What to do at a hit that is to be counted: a [`Mode`].
    #[must_use]
    #[inline(always)]
    pub const fn mode(self) -> u64 {
        self.0 & MODE
    }

    /// The lane that answers; during a hand-over the one that did.
    #[must_use]
    #[inline(always)]
    pub const fn lane(self) -> Lane {
        Lane::numbered(self.0 >> LANE_SHIFT)
    }

    /// The lane that a hand-over leads to.
    #[must_use]
    #[inline(always)]
    pub const fn to(self) -> Lane {
        Lane::numbered(self.0 >> TO_SHIFT)
    }

    /// Which hand-over is under way, if one is.
    #[must_use]
    #[inline(always)]
    pub const fn epoch(self) -> Option<u32> {
        if self.0 & HANDING == 0 { None } else { Some((self.0 >> EPOCH_SHIFT) as u32) }
    }
}

const fn lane_bits(lane: Lane) -> u64 {
    (lane as u64) << LANE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::Off, Mode::Count, Mode::Time];

    /// Check that a settled word gives its mode to its own lane and none to the other.
    #[test]
    fn settled_on_one_lane() {
        for mode in MODES {
            for lane in Lane::ALL {
                let word = Switch::settled(mode, lane);
                assert_eq!((word.settled_mode(lane), word.mode(), word.lane()), (mode as u64, mode as u64, lane));
                for other in Lane::ALL.into_iter().filter(|other| *other != lane) {
                    assert!(!MODES.map(|mode| mode as u64).contains(&word.settled_mode(other)));
                }
                assert_eq!(word.epoch(), None);
            }
        }
    }

    /// Check that a word of a hand-over is settled for nobody, and keeps its parts.
    #[test]
    fn handing_is_settled_for_nobody() {
        for (mode, epoch) in [(Mode::Off, 0), (Mode::Time, u32::MAX), (Mode::Count, 7)] {
            for (from, to) in Lane::ALL.into_iter().flat_map(|from| Lane::ALL.map(|to| (from, to))) {
                let word = Switch::handing(mode, (from, to), epoch);
                assert_eq!((word.mode(), word.lane(), word.to(), word.epoch()), (mode as u64, from, to, Some(epoch)));
                assert!(Lane::ALL.iter().all(|&lane| word.settled_mode(lane) > Mode::Time as u64));
            }
        }
    }

    /// Check that a word for functions with stubs is settled for nobody, keeps its parts, and passes over calls with the
    /// mark and no others; and that other words pass over none.
    #[test]
    fn stubs_are_looked_for_where_they_may_be() {
        for word in [Switch::settled(Mode::Time, Lane::B), Switch::handing(Mode::Count, (Lane::A, Lane::SharedB), 7)] {
            let with_stubs = word.with_stubs();
            assert!(Lane::ALL.iter().all(|&lane| with_stubs.settled_mode(lane) > Mode::Time as u64));
            assert_eq!((with_stubs.mode(), with_stubs.lane()), (word.mode(), word.lane()));
            assert_eq!(with_stubs.epoch(), word.epoch());
            assert!(with_stubs.is_counted_by_stub(true) && !word.is_counted_by_stub(true));
            assert!(!with_stubs.is_counted_by_stub(false));
        }
    }

    /// Check that a mark is that of one call: of no other function that is near, and of no other place on the stack, also
    /// where both differ by as much.
    #[test]
    fn a_mark_names_its_call() {
        const NEAR: u64 = 1 << 14;
        let (entry, sp) = (0x7f3a_1c00_5540, 0x7ffc_89ab_cd08);
        let marks = |apart: u64| {
            let places = [sp, sp - apart, sp + apart, sp ^ apart];
            let functions = [entry, entry - apart, entry + apart, entry ^ apart];
            functions.into_iter().flat_map(move |entry| places.map(|sp| (entry, sp)))
        };
        for (function, place) in (1..NEAR).flat_map(|apart| marks(8 * apart)) {
            let is_the_same = (function, place) == (entry, sp);
            assert_eq!(mark(function, place) == mark(entry, sp), is_the_same, "{function:#x} {place:#x}");
        }
    }

    /// Check that the names of functions differ in bits that the stack pointers of a process have in common.
    #[test]
    fn names_differ_beyond_any_stack() {
        let names: std::collections::BTreeSet<u64> =
            (0..1u64 << 16).map(|at| name(0x55aa_0000_0000 + 16 * at) >> 24).collect();
        assert_eq!(names.len(), 1 << 16);
    }

    /// Check that a record of zeros is off.
    #[test]
    fn zero_is_off() {
        assert_eq!(Switch::settled(Mode::Off, Lane::A), Switch(0));
    }
}
