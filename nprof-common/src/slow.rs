//! Calls that took long, as they cross the ring of stacks: a [`StackHeader`](crate::StackHeader), the stack if it was taken, and
//! last of all [`SlowDetails`].

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{THREAD_COUNTERS, ThreadCounts};

/// What is told of the slow calls of a function, and how many there were: one shard of it, as with the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct SlowStats {
    /// From how many nanoseconds on a call is slow; 0: none is. User space changes it at any time.
    pub threshold_ns: u64,
    /// Slow calls that took less are counted and not told: whoever keeps the slowest has no room for them. User space changes it at
    /// any time.
    pub told_from_ns: u64,
    /// Slow calls.
    pub calls: u64,
    /// Of these, calls that were not told because they took less.
    pub kept_back: u64,
    /// Of these, calls for which the ring had no room.
    pub no_room: u64,
    /// What the function's arguments are: [`crate::MadeWith::kinds`].
    pub kinds: u64,
    /// Whether only the slowest are of interest, [`SLOWEST`] at most: 1, or 0. Then the program keeps back by itself what cannot be
    /// one of them, long before user space has read enough to say so.
    pub only_slowest: u64,
    /// From how many nanoseconds on a call can be: as many have been told that took longer.
    pub may_be_from_ns: u64,
    /// The next such time in question, and how many calls have been told since that took so long.
    pub next_ns: u64,
    /// Calls that were told since, and took no less.
    pub above: u64,
    /// The sum of their times, of each not more than [`Self::clipped`] says.
    pub above_ns: u64,
}

const _: () = assert!(size_of::<SlowStats>() == 88);

/// The most calls that whoever wants only the slowest keeps.
pub const SLOWEST: usize = 50;

/// So many calls have to be told that took as long before a shorter one is kept back: some more than are kept, because programs
/// that interrupt each other may count one too many.
pub const ABOVE: u64 = 64;

const _: () = assert!(ABOVE >= SLOWEST as u64 + 8 && ABOVE.is_power_of_two());

impl SlowStats {
    /// What a call adds to `above_ns`: a single one counts for no more than four times the time in question, or the mean would be its
    /// alone.
    #[inline(always)]
    #[must_use]
    pub fn clipped(next_ns: u64, time_ns: u64) -> u64 {
        let most_ns = next_ns << 2;
        if time_ns < most_ns { time_ns } else { most_ns }
    }

    /// The time in question after `next_ns`, if the times of [`ABOVE`] calls have this sum: their mean, which about half of the calls
    /// exceed that are still told. So few are told of however many.
    #[inline(always)]
    #[must_use]
    pub fn next_after(next_ns: u64, above_ns: u64) -> u64 {
        let (mean_ns, least_ns) = (above_ns / ABOVE, next_ns.wrapping_add(1));
        if mean_ns > least_ns { mean_ns } else { least_ns }
    }
}

/// How many stacks of slow calls are taken, and of what native code makes. Slow calls beyond are told without a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct SlowPace {
    /// No stack is taken once `taken` has reached this.
    pub allowed: u64,
    /// Stacks that were taken since the programs were loaded.
    pub taken: u64,
}

/// How many frames of the kernel are kept of where a thread waited.
pub const WAIT_FRAMES: usize = 24;

/// The longest time that a thread was not running within a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Wait {
    /// When the call began that it was in: a wait of another call is none.
    pub start_ns: u64,
    /// How long it was, in nanoseconds; 0 if there was none worth a look.
    pub ns: u64,
    /// How many bytes of `frames` are known.
    pub bytes: u64,
    /// Where in the kernel the thread left the CPU, the innermost address first.
    pub frames: [u64; WAIT_FRAMES],
}

/// How many nested calls of a thread have a wait of their own. What a deeper one waits for counts for the last of these.
pub const WAITS: usize = 4;

/// The longest waits of the open calls of a thread, by their depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Waits {
    /// By depth; the outermost call's is the first.
    pub of: [Wait; WAITS],
}

const _: () = assert!(size_of::<Wait>() == 216 && size_of::<Waits>() == 216 * WAITS);

/// The bytes of a thread's name, with the 0 at its end.
pub const THREAD_NAME: usize = 16;

/// What is said of a slow call besides its [`StackHeader`](crate::StackHeader).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct SlowDetails {
    /// Of the call's time, that in which the thread was not running, in nested traced calls too; [`Self::UNKNOWN`] if that was not
    /// measured.
    pub off_ns: u64,
    /// Whether `consumed` is known: 1, or 0.
    pub has_consumed: u64,
    /// Whether [`crate::CallArgs`] stand before: 1, or 0.
    pub has_args: u64,
    /// The thread's name, up to the first byte that is 0.
    pub thread: [u8; THREAD_NAME],
    /// What it has consumed of the wanted counters, with nested traced calls.
    pub consumed: ThreadCounts,
    /// The longest time that it was not running.
    pub wait: Wait,
}

const _: () = assert!(size_of::<SlowDetails>() == 24 + THREAD_NAME + 8 * THREAD_COUNTERS + 216);

impl SlowDetails {
    /// In place of a time.
    pub const UNKNOWN: u64 = u64::MAX;

    /// Takes them off the end of a record, as the kernel laid it out. `None` if it is none.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn at_end_of(record: &[u8]) -> Option<Self> {
        Self::read_from_suffix(record).ok().map(|(_, details)| details)
    }

    /// The thread's name.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn thread(&self) -> &[u8] {
        self.thread.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Wait {
    /// Where in the kernel the thread left the CPU, the innermost address first.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn frames(&self) -> &[u64] {
        let known = usize::try_from(self.bytes / size_of::<u64>() as u64).unwrap_or(WAIT_FRAMES);
        &self.frames[..known.min(WAIT_FRAMES)]
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    /// What a program tells of calls one after the other, as it does on one CPU.
    fn told(times: impl Iterator<Item = u64>) -> std::vec::Vec<u64> {
        let (mut next_ns, mut may_be_from_ns, mut above, mut above_ns, mut told) = (1, 0, 0, 0, std::vec![]);
        for time_ns in times {
            if time_ns < may_be_from_ns {
                continue;
            }
            told.push(time_ns);
            if time_ns < next_ns {
                continue;
            }
            above += 1;
            above_ns += SlowStats::clipped(next_ns, time_ns);
            if above == ABOVE {
                may_be_from_ns = next_ns + 1;
                next_ns = SlowStats::next_after(next_ns, above_ns);
                (above, above_ns) = (0, 0);
            }
        }
        told
    }

    /// Check that of a flood of calls few are told, and among them the slowest: whether the calls are all alike, few of them very
    /// long, of every length, or ever longer.
    #[test]
    fn a_flood_is_kept_back() {
        const CALLS: u64 = 1_000_000;
        let mixed = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 1_000 + 1;
        type Flood<'a> = (&'a str, &'a dyn Fn(u64) -> u64, u64);
        let floods: [Flood<'_>; 5] = [
            ("alike", &|n| 1_000 + mixed(n) % 10, 3_000),
            ("the same", &|_| 1_000, 1_000),
            ("some very long", &|n| if n % 20_011 == 0 { 30_000_000 + n } else { 1_000 + mixed(n) }, 8_000),
            ("of every length", &|n| 1_000_000 / mixed(n), 4_000),
            ("ever longer", &|n| 1_000 + n, CALLS),
        ];
        for (name, time_of, most) in floods {
            let told = told((0..CALLS).map(time_of));
            let slowest = |mut times: std::vec::Vec<u64>| {
                times.sort_unstable();
                times.split_off(times.len() - SLOWEST)
            };
            assert_eq!(slowest(told.clone()), slowest((0..CALLS).map(time_of).collect()), "{name}");
            assert!(told.len() as u64 <= most, "{name}: {}", told.len());
        }
    }

    /// Check that details are the last bytes of a record, and that no more frames are believed in than there can be.
    #[test]
    fn details_come_last() {
        let mut details = SlowDetails { off_ns: 7, has_consumed: 1, ..SlowDetails::new_zeroed() };
        details.thread[..9].copy_from_slice(b"pool-1\0-7");
        details.wait.bytes = 16;
        details.wait.frames[..2].copy_from_slice(&[0xff01, 0xff02]);
        let mut record = std::vec![9; 100];
        record.extend(details.as_bytes());
        let read = SlowDetails::at_end_of(&record).unwrap();
        assert_eq!((read, read.wait.frames()), (details, &[0xff01, 0xff02][..]));
        assert_eq!(read.thread(), b"pool-1");
        assert_eq!(SlowDetails { thread: [b'x'; THREAD_NAME], ..read }.thread().len(), THREAD_NAME);
        assert_eq!(SlowDetails::at_end_of(&record[..100]), None);
        assert_eq!(Wait { bytes: u64::MAX, ..details.wait }.frames().len(), WAIT_FRAMES);
    }
}
