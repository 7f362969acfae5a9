//! The CPU's time stamp counter beside the kernel's monotonic clock.
#![expect(unsafe_code, reason = "reads the counter")]

use std::arch::x86_64::_rdtsc;

use nix::time::{ClockId, clock_gettime};

/// How often both are read. Of these readings the one counts that took the least time: an interrupt in between would show.
const READINGS: u32 = 5;

/// A moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Ticks of the counter.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock.
    pub ns: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let readings = (0..READINGS).map(|_| {
            let before = ticks();
            let ns = monotonic_ns();
            let after = ticks();
            (after.saturating_sub(before), Self { ticks: before.midpoint(after), ns })
        });
        readings.min_by_key(|(took, _)| *took).map_or(Self { ticks: 0, ns: 0 }, |(_, moment)| moment)
    }
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets all processes use it unless told not to.
    unsafe { _rdtsc() }
}

fn monotonic_ns() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    let [seconds, rest] = [now.tv_sec(), now.tv_nsec()].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + rest
}
