//! The rows of each JVM's threads: a map of its own, which it maps and only reads. It never sees the rows of another.
//!
//! The programs find a map by the number of its JVM in an array of maps. A thread keeps the number, and the place of its row,
//! until it ends or gets another: so a number is given to another JVM only when no thread has it any more. The programs run only
//! while some JVM has rows: at the switches of a host without any, nothing is looked up.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::Ebpf;
use nprof_common::maps;
use nprof_common::rows::{BUCKET_ROWS, JVMS, JvmRows, OWNER_PLACES, OWNERS, ROWS, RowOwners, RowPlace, ThreadRow};

use super::error::Error;
use super::rows::{self, Hooked};
use crate::sys::bpf;
use crate::sys::mapped_array::MappedArray;

/// Memory that the rows of all JVMs may take, in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Rows for each thread that a JVM has when it joins: others will come, and each looks in one bucket only.
const ROWS_PER_THREAD: u32 = 8;

/// The maps of rows of all JVMs.
#[derive(Debug)]
pub struct RowMaps {
    ebpf: Arc<Mutex<Ebpf>>,
    /// The array of maps.
    by_jvm: OwnedFd,
    /// Whose rows they are.
    owners: OwnedFd,
    /// How many rows a JVM gets at least.
    least: u32,
    /// The counters that rows have.
    counters: u32,
    state: Mutex<State>,
}

/// What changes.
#[derive(Debug, Default)]
struct State {
    numbers: Numbers,
    /// How many JVMs have rows, and how many rows these are together.
    jvms: u32,
    rows: usize,
    hooked: Vec<Hooked>,
}

/// The numbers of JVMs in the array of maps.
#[derive(Debug, Default)]
struct Numbers {
    /// From this one on they were never given out.
    next: u32,
    /// Those that no thread has.
    free: Vec<u32>,
    /// Those that were given back: threads may have them.
    returned: Vec<u32>,
}

/// The rows of one JVM's threads. When this is dropped the programs do not know them any more.
#[derive(Debug)]
pub struct RowMap {
    maps: Arc<RowMaps>,
    map: OwnedFd,
    jvm: u32,
    rows: u32,
}

impl RowMaps {
    /// What is kept in rows, at least so many for each JVM: a power of two; `counters` of each thread, whose programs do not
    /// run yet.
    pub(super) fn new(ebpf: Arc<Mutex<Ebpf>>, [by_jvm, owners]: [OwnedFd; 2], least: u32, counters: u32) -> Self {
        Self { ebpf, by_jvm, owners, least, counters, state: Mutex::default() }
    }

    /// Makes rows for a JVM that has so many threads now.
    ///
    /// # Errors
    /// If there are too many JVMs, or the kernel refuses.
    pub fn make(self: &Arc<Self>, threads: u32) -> Result<RowMap, Error> {
        let rows = self.rows_for(threads);
        let failed = |source| Error::Rows { source };
        let map = bpf::create_inner(rows, size_of::<ThreadRow>()).map_err(failed)?;
        bpf::freeze(map.as_fd()).map_err(|source| Error::Freeze { name: maps::ROWS, source })?;
        let jvm = self.reserve(rows)?;
        // From here on it is given back, whatever goes wrong.
        let made = RowMap { maps: Arc::clone(self), map, jvm, rows };
        self.hook()?;
        bpf::put_inner(self.by_jvm.as_fd(), jvm, made.map()).map_err(failed)?;
        Ok(made)
    }

    fn rows_for(&self, threads: u32) -> u32 {
        let wanted = threads.min(ROWS).saturating_mul(ROWS_PER_THREAD).next_power_of_two();
        wanted.clamp(self.least, ROWS)
    }

    /// Takes a number and memory for so many rows.
    fn reserve(&self, rows: u32) -> Result<u32, Error> {
        let mut state = self.state();
        let (jvms, all) = (state.jvms, state.rows + rows as usize);
        if all > MOST_BYTES / size_of::<ThreadRow>() {
            return Err(Error::RowsUsedUp { jvms });
        }
        let taken = state.numbers.take(|| self.owned()).map_err(|source| Error::Rows { source })?;
        let jvm = taken.ok_or(Error::RowsUsedUp { jvms })?;
        (state.jvms, state.rows) = (jvms + 1, all);
        Ok(jvm)
    }

    /// Has the programs run, if they do not yet.
    fn hook(&self) -> Result<(), Error> {
        let mut state = self.state();
        let mut ebpf = self.ebpf.lock().unwrap_or_else(PoisonError::into_inner);
        if state.hooked.is_empty() {
            state.hooked = rows::hook(&mut ebpf, self.counters)?;
        }
        Ok(())
    }

    /// Forgets the rows of a JVM.
    fn give_back(&self, jvm: u32, rows: u32) {
        let taken = bpf::take_inner(self.by_jvm.as_fd(), jvm);
        if let Err(error) = taken
            && error.kind() != io::ErrorKind::NotFound
        {
            // Its number is nobody else's then.
            return tracing::warn!("the memory of what threads use stays until nprof ends: {error}");
        }
        let mut state = self.state();
        (state.jvms, state.rows) = (state.jvms - 1, state.rows - rows as usize);
        state.numbers.returned.push(jvm);
        if state.jvms == 0 {
            state.hooked.clear();
        }
    }

    /// The numbers of the JVMs whose rows have owners.
    fn owned(&self) -> io::Result<HashSet<u32>> {
        let array = MappedArray::map(self.owners.as_fd(), OWNER_PLACES as usize, size_of::<RowOwners>())?;
        let words = |place: usize| {
            let first = place * size_of::<RowOwners>() / size_of::<u64>() + OWNERS / 2;
            first..first + OWNERS / 2
        };
        let words = (0..OWNER_PLACES as usize).flat_map(words).filter_map(|word| array.load(word));
        Ok(words.flat_map(jvms_of).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The JVMs of the two places in a word.
fn jvms_of(word: u64) -> impl Iterator<Item = u32> {
    let halves = [word & u64::from(u32::MAX), word >> 32];
    let places = halves.into_iter().filter_map(|half| u32::try_from(half).ok()).map(RowPlace);
    places.filter(|place| *place != RowPlace::NONE).map(RowPlace::jvm)
}

impl Numbers {
    /// A number that no thread has; `None` if there is none. `owned` says which ones threads have.
    fn take(&mut self, owned: impl FnOnce() -> io::Result<HashSet<u32>>) -> io::Result<Option<u32>> {
        if self.next < JVMS {
            self.next += 1;
            return Ok(Some(self.next - 1));
        }
        if self.free.is_empty() && !self.returned.is_empty() {
            let owned = owned()?;
            self.free = self.returned.extract_if(.., |number| !owned.contains(number)).collect();
        }
        Ok(self.free.pop())
    }
}

impl RowMap {
    /// The rows, for their process to map and to read.
    #[must_use]
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// How many there are.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// What the program has to know that gives threads theirs.
    pub(super) fn for_program(&self) -> JvmRows {
        JvmRows { jvm: self.jvm, buckets: self.rows / BUCKET_ROWS }
    }
}

impl Drop for RowMap {
    fn drop(&mut self) {
        self.maps.give_back(self.jvm, self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a number is not given out again before no thread has it, and that threads are asked for only when there is no
    /// other.
    #[test]
    fn numbers_are_nobodys() {
        let mut numbers = Numbers::default();
        let fresh = || panic!("there are others");
        for number in 0..JVMS {
            assert_eq!(numbers.take(fresh).unwrap(), Some(number));
        }
        assert_eq!(numbers.take(fresh).unwrap(), None);
        numbers.returned.extend([5, 6, 7]);
        let owned = || Ok(HashSet::from([6]));
        let both = [numbers.take(owned).unwrap(), numbers.take(fresh).unwrap()];
        assert!(both.contains(&Some(5)) && both.contains(&Some(7)), "{both:?}");
        assert_eq!(numbers.take(owned).unwrap(), None);
        assert_eq!(numbers.take(|| Ok(HashSet::new())).unwrap(), Some(6));
        numbers.returned.push(9);
        assert!(numbers.take(|| Err(io::ErrorKind::OutOfMemory.into())).is_err());
        assert_eq!(numbers.take(|| Ok(HashSet::new())).unwrap(), Some(9));
    }

    /// Check that of the places in a word those that are some are found.
    #[test]
    fn owners_have_jvms() {
        let [one, other] = [RowPlace::new(3, 8), RowPlace::new(JVMS - 1, 0)].map(|place| u64::from(place.0));
        let found = |word: u64| jvms_of(word).collect::<Vec<u32>>();
        assert!(found(0).is_empty());
        assert_eq!(found(one << 32), [3]);
        assert_eq!(found(one | other << 32), [3, JVMS - 1]);
    }
}
