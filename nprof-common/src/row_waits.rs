//! Where threads waited that make calls with stubs, and for how long: the longest wait of any call, without being told when one begins.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::slow::WAIT_FRAMES;

/// How many waits are kept of a thread that makes calls with stubs; a power of two. Of any number of waits whose lengths have no order, about
/// as many are kept as its logarithm: of a million 14 on average.
pub const ROW_WAITS: u32 = 32;
/// How many places where they were; a power of two. Most waits of a thread are in few.
pub const ROW_STACKS: u32 = 8;

/// The longest waits of a thread that makes calls with stubs. Nobody tells the programs when such a call begins, so each wait is kept as
/// long as no longer one has come since: of those since any time the first that is kept is the longest. Times are those of the clock that
/// the row is, which stands still while the thread runs: of each call it is known exactly when it began and ended by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct RowWaits {
    /// The thread; 0 if nobody has it.
    pub owner: u32,
    /// The place of the first.
    first: u32,
    /// How many there are.
    count: u32,
    /// How many are after them that were put out by the last one, which is longer than they are.
    put_out: u32,
    /// The place of the last one that has put out any.
    put_out_by: u32,
    /// The place of the stack that is to be taken next.
    next_stack: u32,
    /// When the last one was over for which there was no room any more; 0 if there was for each.
    forgotten_ns: u64,
    /// After them are those that were put out.
    of: [RowWait; ROW_WAITS as usize],
    /// The longest that it has put out, in whose place it is; of length 0 if there is none.
    longest_out: RowWait,
    /// Where they were.
    stacks: [RowStack; ROW_STACKS as usize],
}

/// A wait of a [`RowWaits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct RowWait {
    /// When it began, by the row.
    pub start_ns: u64,
    /// How long it was, in nanoseconds.
    pub ns: u64,
    /// [`RowStack::hash`] of where it was; 0 if that is not known.
    stack: u64,
}

/// Where in the kernel waits were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct RowStack {
    /// By which it is told from others; 0 if there is none.
    hash: u64,
    /// How many bytes of `frames` are known.
    pub bytes: u64,
    /// The innermost address first.
    pub frames: [u64; WAIT_FRAMES],
}

const _: () = assert!(ROW_WAITS.is_power_of_two() && ROW_STACKS.is_power_of_two());
const _: () = assert!(size_of::<RowWaits>() == 32 + 24 * (ROW_WAITS as usize + 1) + 208 * ROW_STACKS as usize);

impl RowWaits {
    /// There are none, from now on.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.first, self.count, self.put_out, self.longest_out.ns, self.forgotten_ns) = (0, 0, 0, 0, 0);
    }

    /// Keeps a wait of this length, which has just ended.
    #[inline(always)]
    pub fn keep(&mut self, start_ns: u64, ns: u64) {
        let before = if self.count < ROW_WAITS { self.count } else { ROW_WAITS };
        let mut count = before;
        for _ in 0..ROW_WAITS {
            if count == 0 || self.of[at(self.first.wrapping_add(count - 1))].ns > ns {
                break;
            }
            count -= 1;
        }
        let is_full = count == ROW_WAITS;
        if is_full {
            let forgotten = &self.of[at(self.first)];
            self.forgotten_ns = forgotten.start_ns.wrapping_add(forgotten.ns);
            self.first = self.first.wrapping_add(1);
            count -= 1;
        }
        let place = self.first.wrapping_add(count);
        self.put_out = 0;
        if count < before && !is_full {
            (self.longest_out, self.put_out_by, self.put_out) = (self.of[at(place)], place, before - count - 1);
        }
        self.of[at(place)] = RowWait { start_ns, ns, stack: 0 };
        self.count = count + 1;
    }

    /// Where the stack of a wait is to be taken.
    #[inline(always)]
    pub fn next_stack(&mut self) -> &mut [u64; WAIT_FRAMES] {
        &mut self.stacks[(self.next_stack & (ROW_STACKS - 1)) as usize].frames
    }

    /// So many bytes of [`Self::next_stack`] say where the wait was that was kept last.
    #[inline(always)]
    pub fn keep_stack(&mut self, bytes: u64) {
        let taken = (self.next_stack & (ROW_STACKS - 1)) as usize;
        let hash = hash(&self.stacks[taken].frames, bytes);
        self.of[at(self.first.wrapping_add(self.count.wrapping_sub(1)))].stack = hash;
        self.stacks[taken].hash = 0;
        if hash == 0 || self.with_hash(hash).is_some() {
            return;
        }
        (self.stacks[taken].hash, self.stacks[taken].bytes) = (hash, bytes);
        self.next_stack = self.next_stack.wrapping_add(1);
    }

    /// The longest of those that have begun at `from_ns` or later and were over at `until_ns`; `None` if there was none, or that is not
    /// known any more: because of more than one since then, or for want of room.
    #[inline(always)]
    #[must_use]
    pub fn longest_between(&self, from_ns: u64, until_ns: u64) -> Option<&RowWait> {
        if self.forgotten_ns > from_ns {
            return None;
        }
        for number in 0..ROW_WAITS {
            if number >= self.count.wrapping_add(self.put_out) {
                break;
            }
            let place = self.first.wrapping_add(number);
            let mut wait = &self.of[at(place)];
            if place == self.put_out_by && self.longest_out.ns != 0 && wait.is_over_after(until_ns) {
                wait = &self.longest_out;
            }
            if wait.start_ns >= from_ns && !wait.is_over_after(until_ns) {
                return Some(wait);
            }
        }
        None
    }

    /// Where a wait was; `None` if that is not known, or not any more.
    #[inline(always)]
    #[must_use]
    pub fn stack_of(&self, wait: &RowWait) -> Option<&RowStack> {
        if wait.stack == 0 { None } else { self.with_hash(wait.stack) }
    }

    #[inline(always)]
    fn with_hash(&self, hash: u64) -> Option<&RowStack> {
        for number in 0..ROW_STACKS as usize {
            if self.stacks[number].hash == hash {
                return Some(&self.stacks[number]);
            }
        }
        None
    }
}

/// Where a place is.
#[inline(always)]
const fn at(place: u32) -> usize {
    (place & (ROW_WAITS - 1)) as usize
}

/// A number for so many bytes of addresses; 0 for none.
#[inline(always)]
fn hash(frames: &[u64; WAIT_FRAMES], bytes: u64) -> u64 {
    let mut hash = 0_u64;
    for (number, frame) in (0..).zip(frames) {
        if 8 * number < bytes {
            hash = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            hash = hash.rotate_left(29);
        }
    }
    hash
}

impl RowWait {
    /// Whether it was not over by then.
    #[inline(always)]
    fn is_over_after(&self, time_ns: u64) -> bool {
        self.start_ns.saturating_add(self.ns) > time_ns
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn no_waits() -> RowWaits {
        let mut kept = RowWaits::new_zeroed();
        kept.clear();
        kept
    }

    /// Check that the longest wait between any times is found, whatever came before and after, and that it is not made up where it has been
    /// forgotten.
    #[test]
    fn longest_waits() {
        const ALL: usize = 300;
        let random = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 100_000 + 1;
        /// What it is, and of how many times out of a hundred it may not be known: at the end of the last wait, and at that of the one before.
        type Shape<'a> = (&'a str, &'a dyn Fn(u64) -> u64, [usize; 2]);
        let shapes: [Shape<'_>; 5] = [
            ("of every length", &random, [0, 0]),
            ("of few lengths", &|n| random(n) % 7 + 1, [0, 0]),
            ("ever longer", &|n| n + 1, [0, 0]),
            ("ever shorter", &|n| 1_000 - n, [80, 80]),
            ("the same", &|_| 5, [0, 0]),
        ];
        for (name, length, percent) in shapes {
            let (mut kept, mut all) = (no_waits(), std::vec![]);
            let mut unknown = [0; 2];
            for number in 0..ALL as u64 {
                let (start_ns, ns) = (1_000_000 * (number + 1), length(number));
                kept.keep(start_ns, ns);
                all.push((start_ns, ns));
                for (until, unknown) in [all.len(), all.len() - 1].into_iter().zip(&mut unknown) {
                    let until_ns = all[..until].last().map_or(0, |(start_ns, ns)| start_ns + ns);
                    let mut longest = 0;
                    for &(from_ns, ns) in all[..until].iter().rev() {
                        longest = longest.max(ns);
                        match kept.longest_between(from_ns, until_ns) {
                            Some(wait) => assert_eq!(wait.ns, longest, "{name} from {from_ns} until {until_ns}"),
                            None => *unknown += 1,
                        }
                    }
                    assert_eq!(kept.longest_between(until_ns + 1, u64::MAX).is_some(), until < all.len());
                }
            }
            // Each time of those until then, after each wait.
            let most = percent.map(|percent| ALL * (ALL + 1) / 2 * percent / 100);
            assert!(unknown[0] <= most[0] && unknown[1] <= most[1], "{name}: {unknown:?} of {most:?}");
        }
    }

    /// Check that a wait that came when a call was over is not taken for one of its own, and hides none that it had.
    #[test]
    fn waits_of_the_time_before() {
        let found = |waits: &[(u64, u64)], from_ns, until_ns| {
            let mut kept = no_waits();
            waits.iter().for_each(|&(start_ns, ns)| kept.keep(start_ns, ns));
            kept.longest_between(from_ns, until_ns).map(|wait| (wait.start_ns, wait.ns))
        };
        let call = [(100, 45), (200, 20), (300, 10), (400, 3)];
        for late in [1, 3, 7, 10, 15, 20, 30, 45, 70] {
            let waits = [&call[..], &[(500, late)]].concat();
            for (from_ns, longest) in [(100, 45), (150, 20), (300, 10), (400, 3)] {
                let expected = Some((call.iter().find(|(_, ns)| *ns == longest).unwrap().0, longest));
                assert_eq!(found(&waits, from_ns, 450), expected, "{late} later, from {from_ns}");
                let with_it = if late >= longest { Some((500, late)) } else { expected };
                assert_eq!(found(&waits, from_ns, 600), with_it, "{late} in it, from {from_ns}");
            }
            assert_eq!(found(&waits, 450, 460), None);
        }
        // Two later ones have put out what the call had, or have not. A shorter one hides only what was not the longest.
        assert_eq!(found(&[&call[..], &[(500, 15), (600, 30)]].concat(), 300, 450), None);
        assert_eq!(found(&[&call[..], &[(500, 15), (600, 18)]].concat(), 200, 450), Some((200, 20)));
        assert_eq!(found(&[&call[..], &[(500, 15), (600, 2)]].concat(), 300, 450), Some((300, 10)));
        assert_eq!(found(&[&call[..], &[(500, 15), (600, 2)]].concat(), 400, 450), None);
        assert_eq!(found(&[&call[..], &[(500, 15), (600, 2)]].concat(), 100, 450), Some((100, 45)));
        // There is room for so many.
        let (room, last_ns) = (u64::from(ROW_WAITS), 100 * (u64::from(ROW_WAITS) + 1));
        let many: std::vec::Vec<_> = (0..=room).map(|number| (100 * (number + 1), 90 - number)).collect();
        assert_eq!(found(&many, 100, 2 * last_ns), None);
        assert_eq!(found(&many, 200, 2 * last_ns), Some((200, 89)));
        assert_eq!(found(&many, 200, last_ns - 1), Some((200, 89)));
        assert_eq!(found(&[&many[..], &[(last_ns + 100, 95)]].concat(), 300, last_ns + 99), Some((300, 88)));
        assert_eq!(found(&[&many[..], &[(last_ns + 100, 95)]].concat(), 200, last_ns + 99), Some((200, 89)));
    }

    /// Check that of each wait it is known where it was, as long as there are not too many such places, and then not known.
    #[test]
    fn places_of_waits() {
        let mut kept = no_waits();
        let mut wait = |number: u64, place: u64, frames: usize| {
            kept.keep(1_000 * number, 100_000 - number);
            kept.next_stack()[..frames].fill(place);
            kept.keep_stack(8 * frames as u64);
            let found = |number: u64| {
                let wait = kept.longest_between(1_000 * number, u64::MAX)?;
                let stack = kept.stack_of(wait)?;
                Some((stack.frames[0], stack.bytes))
            };
            (1..=number).map(found).collect::<std::vec::Vec<_>>()
        };
        assert_eq!(wait(1, 7, 3), [Some((7, 24))]);
        assert_eq!(wait(2, 7, 2), [Some((7, 24)), Some((7, 16))]);
        assert_eq!(wait(3, 9, 0), [Some((7, 24)), Some((7, 16)), None]);
        assert_eq!(wait(4, 7, 3)[3], Some((7, 24)));
        // One place is that of the next.
        let places = u64::from(ROW_STACKS) - 1;
        (0..places - 2).for_each(|place| assert!(wait(5 + place, 100 + place, 1)[0].is_some()));
        assert_eq!(wait(3 + places, 200, 24)[0], Some((7, 24)));
        let last = wait(4 + places, 200, 24);
        assert_eq!((last[0], last[1], last[3], *last.last().unwrap()), (None, Some((7, 16)), None, Some((200, 192))));
    }
}
