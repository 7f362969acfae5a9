//! How much nprof keeps and reads of all targets together, and the share of one.
//!
//! A process can fill its own memory with lists that look like a VM's, of a million loaders or of classes without end, and
//! have nprof read them. So what is taken for a target is counted while it is taken. When it is too much for one, that one is
//! left out; when it is too much for all together, the one that has the most: a small one never yields to a large one.
//! Likewise with time: the looks at all targets take a quarter of a CPU, in equal shares.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys::remote_memory::MemoryError;

/// What is kept of all targets at most: a quarter of the memory that the unit of the service allows.
const ALL: usize = 256 << 20;
/// What is kept of one. A JVM with 200,000 hidden classes takes half of it while it is first read.
const ONE: usize = ALL / 2;
/// How much a target takes at a time, so that the others are not asked for each class.
const PIECE: usize = 64 << 10;
/// How much CPU time one look may take, and may have taken before it is repeated: ten times what the largest programs need.
const LONGEST: Duration = Duration::from_secs(10);
/// Looks at all targets together take one part of so many of the time.
const PART: u32 = 4;
/// After what time a target is looked at again if nobody takes too much.
const USUAL: Duration = Duration::from_millis(700);

/// What a loader takes while the list is walked, about.
pub(super) const LOADER: usize = 320;
/// What of that is kept.
pub(super) const KEPT_LOADER: usize = 160;
/// What a class takes while it is walked over, about. Of those without native methods nothing is kept.
pub(super) const KLASS: usize = 160;

/// What all targets have.
#[derive(Debug)]
pub(super) struct Purse {
    all: usize,
    one: usize,
    longest: Duration,
    takers: Mutex<Vec<Weak<Taken>>>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicUsize,
    /// How long the last look took, in nanoseconds.
    took_ns: AtomicU64,
    is_out: AtomicBool,
}

impl Purse {
    /// The one of this process.
    pub(super) fn common() -> Arc<Self> {
        static COMMON: OnceLock<Arc<Purse>> = OnceLock::new();
        Arc::clone(COMMON.get_or_init(|| Self::of(ALL, ONE)))
    }

    pub(super) fn of(all: usize, one: usize) -> Arc<Self> {
        Arc::new(Self { all, one, longest: LONGEST, takers: Mutex::default() })
    }

    /// Lets `who` have so many bytes more.
    fn give(&self, who: &Arc<Taken>, bytes: usize) -> Result<(), MemoryError> {
        let mut takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner);
        takers.retain(|taker| taker.strong_count() > 0);
        let own = who.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        if own > self.one {
            return Err(MemoryError::TooMuch { limit: self.one >> 20 });
        }
        let others: Vec<Arc<Taken>> = takers.iter().filter_map(Weak::upgrade).collect();
        // What is left out is about to be given back.
        let others = others.iter().filter(|other| !Arc::ptr_eq(other, who) && !other.is_out.load(Ordering::Relaxed));
        let held = |other: &&Arc<Taken>| other.bytes.load(Ordering::Relaxed);
        if others.clone().map(|other| held(&other)).sum::<usize>() + own > self.all {
            match others.max_by_key(held).filter(|largest| held(largest) > own) {
                Some(largest) => largest.is_out.store(true, Ordering::Relaxed),
                None => return Err(MemoryError::TooMuchOfAll { limit: self.all >> 20 }),
            }
        }
        who.bytes.store(own, Ordering::Relaxed);
        Ok(())
    }
}

/// What one target has of it.
#[derive(Debug)]
pub(super) struct Share {
    purse: Arc<Purse>,
    taken: Arc<Taken>,
    /// What has been taken and is not used yet.
    spare: usize,
    /// The CPU time of this thread at which the look began.
    begun: Duration,
}

impl Share {
    pub(super) fn of(purse: Arc<Purse>) -> Self {
        let taken = Arc::new(Taken::default());
        purse.takers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&taken));
        Self { purse, taken, spare: 0, begun: cpu_time() }
    }

    /// Begins a look.
    ///
    /// # Errors
    /// If it was left out for want of room for others.
    pub(super) fn begin(&mut self) -> Result<(), MemoryError> {
        self.begun = cpu_time();
        if self.taken.is_out.load(Ordering::Relaxed) {
            return Err(MemoryError::TooMuchOfAll { limit: self.purse.all >> 20 });
        }
        Ok(())
    }

    /// Takes so many bytes, to be called for each thing that is read.
    ///
    /// # Errors
    /// If that is too much, or takes too long.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), MemoryError> {
        if bytes > self.spare {
            let more = bytes.max(PIECE);
            self.purse.give(&self.taken, more)?;
            self.spare += more;
            self.check_time()?;
        }
        self.spare -= bytes;
        Ok(())
    }

    /// Ends a look, after which so many bytes are kept. Returns how long to leave the target alone.
    pub(super) fn settle(&mut self, kept: usize) -> Duration {
        let took = cpu_time().saturating_sub(self.begun);
        self.spare = 0;
        self.taken.bytes.store(kept, Ordering::Relaxed);
        self.taken.took_ns.store(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let takers = self.purse.takers.lock().unwrap_or_else(PoisonError::into_inner);
        let all = takers.iter().filter_map(|taker| Some(taker.upgrade()?.took_ns.load(Ordering::Relaxed)));
        if Duration::from_nanos(all.fold(0, u64::saturating_add)).saturating_mul(PART) <= USUAL {
            return Duration::ZERO;
        }
        took.saturating_mul(PART).saturating_mul(u32::try_from(takers.len()).unwrap_or(u32::MAX))
    }

    fn check_time(&self) -> Result<(), MemoryError> {
        let took = cpu_time().saturating_sub(self.begun);
        let longest = self.purse.longest;
        if took > longest { Err(MemoryError::TooLong { seconds: longest.as_secs() }) } else { Ok(()) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut takers = self.purse.takers.lock().unwrap_or_else(PoisonError::into_inner);
        takers.retain(|taker| !std::ptr::eq(taker.as_ptr(), Arc::as_ptr(&self.taken)));
    }
}

/// The CPU time of this thread: what a busy machine adds is nobody's fault.
pub(super) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Whether this thread has worked longer since then than one look may.
pub(super) fn is_long_since(begun: Duration) -> bool {
    cpu_time().saturating_sub(begun) > LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Check that what is taken of all targets is a quarter of what the unit of the service allows.
    #[test]
    fn a_quarter_of_the_unit() {
        let unit = include_str!("../../../packaging/systemd/nprof.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("MemoryMax="));
        let gib: usize = limit.and_then(|limit| limit.strip_suffix('G')).unwrap().parse().unwrap();
        assert_eq!(ALL, (gib << 30) / 4);
    }

    /// Check that one target has no more than its share, and that it gives back what it does not keep.
    #[test]
    fn one_has_its_share() {
        let mut share = Share::of(Purse::of(8 * MIB, 4 * MIB));
        for _ in 0..3 {
            share.begin().unwrap();
            (0..3 * MIB / 100).try_for_each(|_| share.take(100)).unwrap();
            share.settle(1000);
        }
        share.begin().unwrap();
        let taken = (0..).take_while(|_| share.take(LOADER).is_ok()).count() * LOADER;
        assert!((4 * MIB - 2 * PIECE..=4 * MIB).contains(&taken), "{taken}");
        assert!(matches!(share.take(LOADER), Err(MemoryError::TooMuch { limit: 4 })));
        share.settle(0);
        assert!(share.begin().is_ok() && share.take(3 * MIB).is_ok());
    }

    /// Check that where all together have too much, the largest is left out, and never a small one for a large one.
    #[test]
    fn the_largest_yields() {
        let purse = Purse::of(10 * MIB, 5 * MIB);
        let share = |bytes| {
            let mut share = Share::of(Arc::clone(&purse));
            share.take(bytes).map(|()| share)
        };
        let mut all: Vec<Share> = [3, 4, 2].map(|mib| share(mib * MIB).unwrap()).into();
        assert!(
            matches!(share(5 * MIB), Err(MemoryError::TooMuchOfAll { limit: 10 })),
            "a large one, when there is no room"
        );
        all.extend((0..5).map(|_| share(MIB).unwrap()));
        let is_out: Vec<bool> = all.iter_mut().map(|share| share.begin().is_err()).collect();
        assert_eq!(is_out, [false, true, false, false, false, false, false, false]);
        drop(all);
        assert!(share(5 * MIB).is_ok(), "what has gone has nothing");
    }

    /// Check that where looks take little they are not put off, and that else each target has the same part of the time, so
    /// that only those wait that take long.
    #[test]
    fn looks_have_a_part_of_the_time() {
        let purse = Purse::of(MIB, MIB);
        let pause = |share: &mut Share, took: Duration| {
            share.begin().unwrap();
            share.begun = share.begun.checked_sub(took).unwrap_or_default();
            let worked = cpu_time() - share.begun;
            (share.settle(0), worked)
        };
        // The clock of a thread begins with the thread.
        while cpu_time() < Duration::from_millis(300) {}
        let mut shares: Vec<Share> = (0..10).map(|_| Share::of(Arc::clone(&purse))).collect();
        for share in &mut shares {
            assert_eq!(pause(share, Duration::from_millis(2)).0, Duration::ZERO);
        }
        let (long, worked) = pause(&mut shares[0], Duration::from_millis(250));
        assert!(long >= 40 * worked, "{long:?} after {worked:?}");
        let (short, worked) = pause(&mut shares[1], Duration::ZERO);
        assert!(short >= 40 * worked && short < long / 10, "{short:?} after {worked:?}, {long:?}");
        shares.remove(0);
        assert_eq!(pause(&mut shares[0], Duration::ZERO).0, Duration::ZERO);
    }

    /// Check that a look without an end is ended.
    #[test]
    fn looks_end() {
        let hurried = Purse { all: MIB, one: MIB, longest: Duration::ZERO, takers: Mutex::default() };
        let mut share = Share::of(Arc::new(hurried));
        share.begin().unwrap();
        assert!(matches!((0..).find_map(|_| share.take(LOADER).err()), Some(MemoryError::TooLong { .. })));
    }
}
