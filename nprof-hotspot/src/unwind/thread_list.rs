//! Where the VM lists its threads. Newer versions replace the list as a whole when a thread starts or ends, in older ones
//! each thread leads to the next. Either way what led to the threads is looked at again afterwards: a list that is still
//! the same was read whole.

use std::collections::HashSet;

use crate::hotspot::{Lookup, Number, Reader, RemoteMemory, at, is_plausible};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// No VM has more threads (the kernel allows about four million, with one stack each).
const MAX_THREADS: u64 = 1 << 16;

/// Where the list lies.
#[derive(Debug, Clone)]
pub(super) enum ListLayout {
    /// A variable leads to an array.
    Array { list: VirtAddr, length: Number, threads: u64 },
    /// A variable leads to the first thread, and a field of each to the next. Up to JDK 13 or so.
    Chain { first: VirtAddr, next: u64 },
}

/// The list at one moment.
#[derive(Debug)]
pub(super) struct ListRead {
    /// The addresses of the threads.
    pub(super) threads: Vec<VirtAddr>,
    /// The words that led to them.
    words: Vec<(VirtAddr, u64)>,
}

impl ListLayout {
    pub(super) fn of(look: &mut Lookup<'_>) -> Self {
        if look.find("Threads", "_thread_list").is_some() {
            let (first, next) = (look.variable("Threads", "_thread_list"), look.offset("JavaThread", "_next"));
            return Self::Chain { first, next };
        }
        Self::Array {
            list: look.variable("ThreadsSMRSupport", "_java_thread_list"),
            // Written `const uint` in the table.
            length: Number { offset: look.offset("ThreadsList", "_length"), width: 4 },
            threads: look.offset("ThreadsList", "_threads"),
        }
    }

    /// Reads the list; `None` if it makes no sense, as when it changes meanwhile.
    pub(super) fn read<M: RemoteMemory>(&self, reader: &mut Reader<M>) -> Result<Option<ListRead>, MemoryError> {
        match *self {
            Self::Array { list, length, threads } => read_array(reader, list, length, threads),
            Self::Chain { first, next } => read_chain(reader, first, next),
        }
    }
}

impl ListRead {
    /// Whether what led to the threads is as it was.
    pub(super) fn still_holds<M: RemoteMemory>(&self, reader: &mut Reader<M>) -> Result<bool, MemoryError> {
        let now = reader.numbers_of(&self.words, |&(addr, _)| [(addr, 8)])?;
        Ok(now.iter().zip(&self.words).all(|(now, (_, before))| *now == Some([*before])))
    }
}

fn read_array<M: RemoteMemory>(
    reader: &mut Reader<M>,
    list: VirtAddr,
    length: Number,
    threads: u64,
) -> Result<Option<ListRead>, MemoryError> {
    let Some([array]) = reader.numbers([(list, 8)])? else {
        return Ok(None);
    };
    let length = (at(VirtAddr(array), length.offset), length.width);
    let Some([length, first]) = reader.numbers([length, (at(VirtAddr(array), threads), 8)])? else {
        return Ok(None);
    };
    if length > MAX_THREADS {
        return Ok(None);
    }
    let entries: Vec<VirtAddr> = (0..length).map(|index| at(VirtAddr(first), 8 * index)).collect();
    let threads = reader.numbers_of(&entries, |&entry| [(entry, 8)])?;
    let threads = threads.into_iter().flatten().map(|[thread]| VirtAddr(thread)).collect();
    Ok(Some(ListRead { threads, words: vec![(list, array)] }))
}

fn read_chain<M: RemoteMemory>(
    reader: &mut Reader<M>,
    first: VirtAddr,
    next: u64,
) -> Result<Option<ListRead>, MemoryError> {
    let mut read = ListRead { threads: Vec::new(), words: Vec::new() };
    let (mut place, mut seen) = (first, HashSet::new());
    for _ in 0..MAX_THREADS {
        let Some([thread]) = reader.numbers([(place, 8)])? else {
            return Ok(None);
        };
        read.words.push((place, thread));
        let thread = VirtAddr(thread);
        if thread.is_null() {
            return Ok(Some(read));
        }
        // A thread that has ended may lead anywhere.
        if !is_plausible(thread) || !seen.insert(thread) {
            return Ok(None);
        }
        read.threads.push(thread);
        place = at(thread, next);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspot::testing::recording::Image;

    const FIRST: VirtAddr = VirtAddr(0x1_0000);
    const CHAIN: ListLayout = ListLayout::Chain { first: FIRST, next: 0x20 };

    /// Two threads, the second of which leads to `last`.
    fn chain(last: u64) -> Image {
        let mut image = Image::default();
        for (addr, word) in [(FIRST.0, 0x3_0000_u64), (0x3_0020, 0x4_0000), (0x4_0020, last)] {
            image.put(addr, &word.to_le_bytes());
        }
        image
    }

    /// Check that a chain is followed to its end, that one in a circle or into nothing is refused, and that one that has
    /// been changed does not hold.
    #[test]
    fn follows_a_chain() {
        let whole = chain(0);
        let read = CHAIN.read(&mut Reader::new(&whole)).unwrap().unwrap();
        assert_eq!(read.threads, [VirtAddr(0x3_0000), VirtAddr(0x4_0000)]);
        assert!(read.still_holds(&mut Reader::new(&whole)).unwrap());
        for last in [0x3_0000, 0x5_0000] {
            assert!(CHAIN.read(&mut Reader::new(&chain(last))).unwrap().is_none(), "{last:#x}");
            assert!(!read.still_holds(&mut Reader::new(&chain(last))).unwrap(), "{last:#x}");
        }
    }
}
