//! From ticks of the CPU's time stamp counter to nanoseconds.

#![expect(unsafe_code, reason = "calls the instruction that reads the counter")]

use std::arch::x86_64::{__cpuid, _rdtsc};
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long a first estimate takes. It is good to about a ten thousandth.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// How often an empty call is timed.
const EMPTY_CALLS: usize = 200;

/// What the stubs know of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds per tick, times 2^32.
    pub multiplier: u64,
    /// What the two readings around a call of nothing differ by. It is taken off each time.
    pub floor_ticks: u64,
}

/// The counter and the system's clock, read together.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    ticks: u64,
    time: Instant,
}

impl Moment {
    /// Now. Of a few readings the one that took the least time: an interrupt between the two clocks would show.
    #[must_use]
    pub fn now() -> Self {
        let read = || {
            let before = ticks();
            let time = Instant::now();
            let after = ticks();
            (after.saturating_sub(before), Self { ticks: before.midpoint(after), time })
        };
        let mut best = read();
        for _ in 0..4 {
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

impl Clock {
    /// A first estimate, in a millisecond.
    #[must_use]
    pub fn estimate() -> Self {
        let start = Moment::now();
        while start.time.elapsed() < FIRST_LOOK {
            std::hint::spin_loop();
        }
        Self { multiplier: multiplier(start, Moment::now()), floor_ticks: floor_ticks() }
    }

    /// A better one from two moments; the longer apart, the better.
    #[must_use]
    pub fn refined(self, start: Moment, end: Moment) -> Self {
        if end.time.duration_since(start.time) < FIRST_LOOK {
            return self;
        }
        Self { multiplier: multiplier(start, end), ..self }
    }
}

/// Whether the counter runs at one speed in all states of the CPU. Times would be wrong without.
///
/// The CPU is asked once: in a virtual machine its host answers, which takes microseconds, and each method that is to be timed asks.
#[must_use]
pub fn is_steady() -> bool {
    static IS_STEADY: LazyLock<bool> = LazyLock::new(asked_whether_steady);
    *IS_STEADY
}

fn asked_whether_steady() -> bool {
    const LEAF: u32 = 0x8000_0007;
    const INVARIANT_IN_EDX: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & INVARIANT_IN_EDX != 0
}

fn multiplier(start: Moment, end: Moment) -> u64 {
    let ticks = u128::from(end.ticks.saturating_sub(start.ticks).max(1));
    let nanoseconds = end.time.duration_since(start.time).as_nanos();
    u64::try_from((nanoseconds << 32) / ticks).unwrap_or(u64::MAX)
}

/// The least that an empty call shows: a call never took less, so that no time is taken off that was there.
fn floor_ticks() -> u64 {
    extern "C" fn nothing() {}
    let empty = black_box(nothing as extern "C" fn());
    let timed = |_| {
        let start = ticks();
        empty();
        ticks().saturating_sub(start)
    };
    (0..EMPTY_CALLS).map(timed).min().unwrap_or(0)
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets all processes use it unless told not to.
    unsafe { _rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the multiplier of known moments is the ratio of their clocks.
    #[test]
    fn multiplies_by_the_ratio() {
        let start = Moment { ticks: 1_000, time: Instant::now() };
        let end = Moment { ticks: 1_000 + 4_000_000, time: start.time + Duration::from_millis(2) };
        assert_eq!(multiplier(start, end), 1 << 31);
        let clock = Clock { multiplier: 1, floor_ticks: 7 };
        assert_eq!(clock.refined(start, end), Clock { multiplier: 1 << 31, floor_ticks: 7 });
        assert_eq!(clock.refined(start, start), clock);
    }

    /// Check that the estimate of this machine's counter is one of a CPU: 0.5 to 10 GHz.
    #[test]
    fn estimates() {
        let clock = Clock::estimate();
        let gigahertz = 2f64.powi(32) / clock.multiplier as f64;
        assert!((0.5..10.0).contains(&gigahertz), "{gigahertz} GHz");
        assert!(clock.floor_ticks < 1_000, "{clock:?}");
    }
}
