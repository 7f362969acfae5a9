//! How fast instructions are written into a target that runs: each one that the kernel writes for a probe, or puts back, interrupts all
//! CPUs that run the target, whatever they do there.

use std::thread;
use std::time::{Duration, Instant};

use crate::model::Pid;
use crate::sys::cpu_clock::CpuClock;

/// How long there is for a site where nobody is to notice: the kernel needs less than a tenth of that on each CPU.
const PAUSE_PER_SITE: Duration = Duration::from_micros(200);
/// All of that together, at most: with 8,000 sites the kernel, which needs 11 us, has the target's CPUs for less than a tenth of that time. To end
/// is not to take longer.
const LONGEST_PAUSES: Duration = Duration::from_secs(1);
/// How many sites may follow each other at once where methods are bound all the time, each of which is to be counted: in a JVM that has only
/// just been started. That is most of what such a JVM has; with all of two thousand it would run a quarter slower for a tenth of a second.
const AT_ONCE: usize = 256;
/// A target that uses less than this share of a CPU is not interrupted.
const AT_WORK: f64 = 0.05;
/// How long it takes to see that: the kernel adds the time up a hundred times a second.
const SEEN_AFTER: Duration = Duration::from_millis(25);

/// The pauses between some sites and the next.
#[derive(Debug)]
pub struct Gentle {
    clock: CpuClock,
    pause_per_site: Duration,
    /// How many sites need no pause.
    at_once: usize,
    /// When the next sites may follow.
    next: Instant,
    /// When the target was last asked for the CPU time that it had used by then, and that.
    asked: (Instant, Duration),
    /// Whether the target runs, as far as that is known.
    is_at_work: bool,
}

impl Gentle {
    /// For so many sites of a target.
    #[must_use]
    pub fn begin(pid: Pid, sites: usize) -> Self {
        let (clock, now) = (CpuClock::of(pid), Instant::now());
        let asked = (now, clock.read().unwrap_or_default());
        Self { clock, pause_per_site: pause_per_site(sites), at_once: 0, next: now, asked, is_at_work: true }
    }

    /// The same for a target that binds methods all the time.
    #[must_use]
    pub fn while_young(self) -> Self {
        Self { at_once: AT_ONCE, ..self }
    }

    /// Waits until some more may be written: as long as those before need if the target runs.
    pub fn wait_for(&mut self, sites: usize) {
        self.ask();
        if self.is_at_work {
            thread::sleep(self.next.saturating_duration_since(Instant::now()));
        }
        let at_once = sites.min(self.at_once);
        self.at_once -= at_once;
        self.next = Instant::now() + self.pause_per_site * u32::try_from(sites - at_once).unwrap_or(u32::MAX);
    }

    /// Finds out whether the target runs, if enough time has passed.
    fn ask(&mut self) {
        let (since, before) = self.asked;
        let length = since.elapsed();
        if length >= SEEN_AFTER {
            let used = self.clock.read().unwrap_or(before);
            self.is_at_work = used.saturating_sub(before) >= length.mul_f64(AT_WORK);
            self.asked = (Instant::now(), used);
        }
    }
}

fn pause_per_site(sites: usize) -> Duration {
    PAUSE_PER_SITE.min(LONGEST_PAUSES / u32::try_from(sites.max(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that many sites take no longer than all may, and few no longer than each.
    #[test]
    fn pauses_are_bounded() {
        assert_eq!(pause_per_site(0), PAUSE_PER_SITE);
        assert_eq!(pause_per_site(5_000), PAUSE_PER_SITE);
        assert!(pause_per_site(8_000) > Duration::from_micros(110));
        assert!(pause_per_site(30_000) * 30_000 <= LONGEST_PAUSES);
    }

    /// Check that the first do not wait, that the next wait as long as a target may run, and that nobody waits for one that does not.
    #[test]
    fn waits_for_who_runs() {
        let (began, mut gentle) = (Instant::now(), Gentle::begin(Pid(u32::MAX), 1_000));
        gentle.wait_for(200);
        gentle.wait_for(1);
        assert!(began.elapsed() >= 200 * PAUSE_PER_SITE);
        gentle.wait_for(1_000_000);
        assert!(!gentle.is_at_work);
        // Else for minutes.
        let before = Instant::now();
        gentle.wait_for(1);
        assert!(before.elapsed() < 500_000 * PAUSE_PER_SITE);
    }

    /// Check that in a young JVM some follow each other at once, and that all others wait as they do in any.
    #[test]
    fn some_follow_at_once() {
        let mut gentle = Gentle::begin(Pid(u32::MAX), 1_000).while_young();
        let began = Instant::now();
        gentle.wait_for(AT_ONCE - 56);
        assert!(gentle.next <= Instant::now());
        gentle.wait_for(256);
        assert!(gentle.next >= began + 200 * PAUSE_PER_SITE);
        gentle.wait_for(100);
        assert!(gentle.next >= began + 300 * PAUSE_PER_SITE);
    }
}
