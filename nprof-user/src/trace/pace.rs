//! How often a tracer is asked whether it has something to do, and at which moments.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// Most of the time, for one JVM. A function that was still may be called all the time from one moment to the next (natives that
/// free memory are, after a collection), and keeps its probes until that is noticed. To be asked takes some 20 us.
const ONE: Duration = Duration::from_millis(20);
/// For many JVMs, all of which are asked.
const MANY: Duration = Duration::from_millis(100);
/// At first, for so long: a function that was still when it was looked at may be called all the time since, and no JVM is to
/// notice.
const QUICK: Duration = Duration::from_millis(10);
const FIRST: Duration = Duration::from_secs(2);

/// The first of the moments after `now` that are so far apart, counted from the same one for all: who looks at something again and again is
/// woken together with others, and a host with many JVMs that rest is woken as often as one with a single JVM.
pub(super) fn shared_moment(now: Instant, every: Duration) -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let since = now.saturating_duration_since(*BEGAN.get_or_init(|| now));
    let past = u64::try_from(since.as_nanos() % every.as_nanos().max(1)).unwrap_or(0);
    now + every - Duration::from_nanos(past)
}

/// The moments at which tracers are asked.
#[derive(Debug)]
pub struct Pace {
    next: Instant,
    /// Until when they are close to each other.
    quick_until: Instant,
    /// How far apart they are then.
    steady: Duration,
}

impl Pace {
    /// For the tracer of one JVM, which begins now.
    #[must_use]
    pub fn for_one() -> Self {
        Self::new(ONE)
    }

    /// For tracers of any number of JVMs.
    #[must_use]
    pub fn for_many() -> Self {
        Self::new(MANY)
    }

    fn new(steady: Duration) -> Self {
        let now = Instant::now();
        Self { next: now + QUICK, quick_until: now + FIRST, steady }
    }

    /// Another tracer begins now.
    pub fn quicken(&mut self) {
        *self = Self::new(self.steady);
    }

    /// Waits for the next moment. Nothing is lost if it is given up.
    pub async fn tick(&mut self) {
        tokio::time::sleep_until(self.next).await;
        let now = Instant::now();
        self.next = shared_moment(now, if now < self.quick_until { QUICK } else { self.steady });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ticks_in_a_second(pace: &mut Pace) -> usize {
        let end = Instant::now() + Duration::from_secs(1);
        let mut ticks = 0;
        while Instant::now() < end {
            pace.tick().await;
            ticks += 1;
        }
        ticks
    }

    /// Check that moments so far apart are the same for all, and that one comes after each.
    #[test]
    fn moments_are_shared() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let first = shared_moment(now, ms(500));
        assert!(first > now && first <= now + ms(500));
        assert_eq!([ms(0), ms(1), ms(499)].map(|later| shared_moment(first + later, ms(500))), [first + ms(500); 3]);
        assert_eq!(shared_moment(first - ms(1), ms(100)), first, "of those that are closer, some are the same");
    }

    /// Check that one JVM is watched more closely than many, all the time.
    #[tokio::test(start_paused = true)]
    async fn one_is_watched_closely() {
        let mut ticks = Vec::new();
        for mut pace in [Pace::for_one(), Pace::for_many()] {
            ticks_in_a_second(&mut pace).await;
            ticks_in_a_second(&mut pace).await;
            ticks.push(ticks_in_a_second(&mut pace).await);
        }
        assert!((40..=51).contains(&ticks[0]) && (9..=11).contains(&ticks[1]), "{ticks:?}");
    }

    /// Check that it is quick for two seconds after each start, and steady else.
    #[tokio::test(start_paused = true)]
    async fn is_quick_at_first() {
        let mut pace = Pace::for_many();
        let mut ticks = Vec::new();
        for second in 0..5 {
            if second == 3 {
                pace.quicken();
            }
            ticks.push(ticks_in_a_second(&mut pace).await / 10);
        }
        assert!(ticks[0] >= 8 && ticks[1] >= 8 && ticks[3] >= 8 && ticks[4] >= 8 && ticks[2] <= 2, "{ticks:?}");
    }
}
