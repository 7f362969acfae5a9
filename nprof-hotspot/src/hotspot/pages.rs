//! Memory that is read a page at a time, for what follows one pointer after the other.
//!
//! What a stack leads to lies close together: a method, its constants and its class in the same few pages. Each read of
//! another process costs a system call and a change of threads, whatever it brings. So the first look at a page brings
//! all of it, and the next ones need no read.
//!
//! What is kept grows old at once. Who wants to know what stands there now says so: [`RemoteMemory::read_again`].

use std::cell::RefCell;
use std::collections::HashMap;

use super::memory::{Batch, MemoryError, RemoteMemory, distance, is_plausible};
use crate::model::VirtAddr;

/// The smallest page of the supported machines: a larger one is readable in all its parts or in none.
const PAGE: u64 = 4096;
const PAGE_BYTES: usize = 4096;
/// The most that is kept at a time, in pages. What needs more is read as it is asked for.
const MOST: usize = 512;

/// A memory, and the pages of it that have been looked at since the last [`RemoteMemory::forget`].
#[derive(Debug)]
pub(crate) struct Pages<M> {
    memory: M,
    kept: RefCell<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Where in `bytes` a page begins, by its number.
    places: HashMap<u64, usize>,
    bytes: Vec<u8>,
}

impl<M> Pages<M> {
    pub(crate) fn of(memory: M) -> Self {
        Self { memory, kept: RefCell::default() }
    }
}

impl<M: RemoteMemory> RemoteMemory for Pages<M> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        let len = buf.len();
        let mut batch = Batch::default();
        batch.push(addr, len);
        self.read_batch(&mut batch)?;
        buf.copy_from_slice(batch.get(0).ok_or(MemoryError::Unreadable { addr, len })?);
        Ok(())
    }

    fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        let mut kept = self.kept.borrow_mut();
        let wanted: Vec<u64> = batch.spans().flat_map(|(addr, len)| pages(addr, len)).take(MOST + 1).collect();
        if wanted.len() > MOST {
            return self.memory.read_batch(batch);
        }
        if kept.places.len() + wanted.len() > MOST {
            kept.forget();
        }
        kept.fetch(&self.memory, wanted)?;
        // A page that is not there is asked for again, exactly: a stand-in for a process has pieces of pages.
        batch.fill(|addr, buf| if kept.copy(addr, buf) { Ok(()) } else { self.memory.read(addr, buf) })
    }

    /// Exactly what is asked for: it lies in many pages.
    fn read_again(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        self.forget();
        self.memory.read_batch(batch)
    }

    fn forget(&self) {
        self.kept.borrow_mut().forget();
    }
}

impl Kept {
    fn forget(&mut self) {
        self.places.clear();
        self.bytes.clear();
    }

    /// Reads those of `wanted` that are not there yet.
    fn fetch<M: RemoteMemory>(&mut self, memory: &M, mut wanted: Vec<u64>) -> Result<(), MemoryError> {
        wanted.retain(|page| !self.places.contains_key(page));
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for &page in &wanted {
            batch.push(VirtAddr(page * PAGE), PAGE_BYTES);
        }
        memory.read_batch(&mut batch)?;
        for (index, page) in wanted.into_iter().enumerate() {
            if let Some(bytes) = batch.get(index) {
                self.places.insert(page, self.bytes.len());
                self.bytes.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Fills `buf` with what stands at `addr`; `false` if not all of it is kept.
    fn copy(&self, addr: VirtAddr, buf: &mut [u8]) -> bool {
        let mut done = 0;
        while done < buf.len() {
            let here = VirtAddr(addr.0 + done as u64);
            let Some(start) = self.places.get(&(here.0 / PAGE)) else {
                return false;
            };
            let offset = distance(VirtAddr(here.0 / PAGE * PAGE), here);
            let len = (PAGE_BYTES - offset).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&self.bytes[start + offset..start + offset + len]);
            done += len;
        }
        true
    }
}

/// The numbers of the pages that `len` bytes at `addr` lie in; none if no memory can be there.
fn pages(addr: VirtAddr, len: usize) -> std::ops::Range<u64> {
    let last = addr.0.saturating_add((len as u64).saturating_sub(1));
    if len == 0 || !is_plausible(addr) || !is_plausible(VirtAddr(last)) {
        return 0..0;
    }
    addr.0 / PAGE..last / PAGE + 1
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::hotspot::Reader;

    /// Memory up to an address, in which each byte is how often something was read before; it counts reads.
    struct Counting {
        reads: Cell<u8>,
        end: u64,
    }

    impl Counting {
        fn until(end: u64) -> Self {
            Self { reads: Cell::new(0), end }
        }
    }

    impl RemoteMemory for &Counting {
        fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
            if addr.0 + buf.len() as u64 > self.end {
                return Err(MemoryError::Unreadable { addr, len: buf.len() });
            }
            buf.fill(self.reads.get());
            Ok(())
        }

        fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
            self.reads.set(self.reads.get().wrapping_add(1));
            batch.fill(|addr, buf| self.read(addr, buf))
        }
    }

    /// Check that a page is read once, and again when it was forgotten or is to be looked at again.
    #[test]
    fn reads_a_page_once() {
        let memory = Counting::until(0x9000);
        let mut reader = Reader::new(Pages::of(&memory));
        let at = |addr| [(VirtAddr(addr), 1)];
        assert_eq!(reader.numbers(at(0x1000)).unwrap(), Some([1]));
        assert_eq!(reader.numbers(at(0x1fff)).unwrap(), Some([1]));
        assert_eq!(reader.numbers([(VirtAddr(0x1ffe), 4)]).unwrap(), Some([0x0202_0101]));
        reader.forget();
        assert_eq!(reader.numbers(at(0x1000)).unwrap(), Some([3]));
        assert_eq!(reader.numbers_again(&at(0x1000)).unwrap(), [Some(4)]);
        assert_eq!(reader.numbers(at(0x1000)).unwrap(), Some([5]));
    }

    /// Check that what is there of a page that is not there as a whole can be read, and what is not there cannot.
    #[test]
    fn reads_parts_of_pages() {
        let memory = Counting::until(0x1800);
        let mut reader = Reader::new(Pages::of(&memory));
        assert!(reader.numbers([(VirtAddr(0x1000), 8)]).unwrap().is_some());
        assert_eq!(reader.numbers([(VirtAddr(0x1800), 8)]).unwrap(), None);
        assert_eq!(reader.numbers([(VirtAddr(8), 8)]).unwrap(), None);
        assert_eq!(reader.numbers([(VirtAddr(u64::MAX), 8)]).unwrap(), None);
    }

    /// Check that what is kept is bounded, and that more than that is read all the same.
    #[test]
    fn keeps_no_more_than_it_may() {
        let memory = Counting::until(1 << 30);
        let pages = Pages::of(&memory);
        let mut much = vec![0; (MOST + 1) * PAGE_BYTES];
        pages.read(VirtAddr(0x10_0000), &mut much).unwrap();
        assert_eq!((much[0], pages.kept.borrow().places.len()), (1, 0));
        for page in 1..=2 * MOST as u64 {
            pages.read(VirtAddr(page * PAGE), &mut [0; 8]).unwrap();
        }
        assert!(pages.kept.borrow().places.len() <= MOST);
        assert!(pages.kept.borrow().bytes.len() <= MOST * PAGE_BYTES);
    }
}
