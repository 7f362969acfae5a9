//! The Java threads of a VM, and where in each the VM notes the Java frame that it left for native code (its *anchor*).
//!
//! The list is the VM's own (`thread_list`).

use super::thread_list::ListLayout;
use crate::hotspot::{Error, Exports, Lookup, Number, Reader, RemoteMemory, Tables, at, is_plausible};
use crate::model::{Library, VirtAddr};
use crate::sys::remote_memory::MemoryError;

/// How often the list is read when threads come and go meanwhile.
const ATTEMPTS: usize = 4;
/// How many threads of a list that does not stay as it is are looked at. The first ones live as long as the VM.
const PASSING_THREADS: usize = 16;
/// The entries of the JNI function table that are reserved, and hold zero.
const RESERVED: u64 = 3;

/// A Java thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JavaThread {
    /// Its number in the target's own pid namespace: the last one of `NSpid` in `/proc/PID/task/TID/status`.
    pub ns_tid: u32,
    /// Where its `JavaThread` lies.
    pub address: VirtAddr,
}

/// Offsets from the start of a `JavaThread` to the three words of its anchor, in bytes. They are read together, and tell
/// of a Java frame while the first is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastJavaFrameOffsets {
    /// `_last_Java_sp`.
    pub sp: u64,
    /// `_last_Java_pc`.
    pub pc: u64,
    /// `_last_Java_fp`.
    pub fp: u64,
}

/// Where the list and what hangs on it lie.
#[derive(Debug, Clone)]
struct ThreadsLayout {
    list: ListLayout,
    os_thread: u64,
    thread_id: Number,
    anchor: LastJavaFrameOffsets,
    /// Of the `JNIEnv` in a `JavaThread`, said or assumed.
    jni_env: u64,
    /// Of the exception that is pending, if the VM says where.
    pending_exception: Option<u64>,
}

/// The Java threads of one VM.
#[derive(Debug)]
pub struct Threads<M> {
    reader: Reader<M>,
    layout: ThreadsLayout,
    /// By thread number.
    list: Vec<JavaThread>,
}

impl<M: RemoteMemory> Threads<M> {
    /// Reads the tables of the VM whose memory is `memory` and whose `libjvm` is mapped where that says, and its threads.
    ///
    /// # Errors
    /// As [`crate::hotspot::Vm::open`].
    pub fn open(memory: M, libjvm: &Library) -> Result<Self, Error> {
        let exports = Exports::of(libjvm)?;
        let mut reader = Reader::new(memory);
        let tables = Tables::read(&mut reader, &exports)?;
        let mut threads = Self { reader, layout: ThreadsLayout::of(&tables)?, list: Vec::new() };
        threads.refresh()?;
        Ok(threads)
    }

    /// Reads the threads that there are now. If they change too fast, those that were known before stay.
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn refresh(&mut self) -> Result<(), MemoryError> {
        for _ in 0..ATTEMPTS {
            if let Some(list) = self.read()? {
                self.list = list;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The threads, by number.
    #[must_use]
    pub fn list(&self) -> &[JavaThread] {
        &self.list
    }

    /// The thread with that number in the target's own pid namespace.
    #[must_use]
    pub fn find(&self, ns_tid: u32) -> Option<JavaThread> {
        let found = self.list.binary_search_by_key(&ns_tid, |thread| thread.ns_tid).ok()?;
        self.list.get(found).copied()
    }

    /// Where in every `JavaThread` the anchor lies.
    #[must_use]
    pub fn anchor_offsets(&self) -> LastJavaFrameOffsets {
        self.layout.anchor
    }

    /// The offset from a `JavaThread` to its `JNIEnv`, which native methods get as their first argument; `None` if what
    /// lies there is none. It is checked with a thread of the list.
    ///
    /// # Errors
    /// What makes all reads fail.
    pub fn jni_env_offset(&mut self) -> Result<Option<u64>, MemoryError> {
        Ok(self.jni_env()?.map(|(offset, _)| offset))
    }

    /// The same, and the address that every `JNIEnv` begins with: that of the functions' table.
    ///
    /// # Errors
    /// What makes all reads fail.
    pub fn jni_env(&mut self) -> Result<Option<(u64, VirtAddr)>, MemoryError> {
        // Not of the threads that are known: where they come and go all the time, the list may never stay as it is for long enough for that.
        // Any thread will do here, and one that has ended meanwhile shows no table.
        for _ in 0..ATTEMPTS {
            let listed = self.layout.list.read(&mut self.reader)?;
            for thread in listed.into_iter().flat_map(|listed| listed.threads).take(PASSING_THREADS) {
                if let Some(table) = self.table_of(thread)? {
                    return Ok(Some((self.layout.jni_env, table)));
                }
            }
        }
        Ok(None)
    }

    /// The table of functions that a thread's `JNIEnv` begins with; `None` if what lies there is none.
    fn table_of(&mut self, thread: VirtAddr) -> Result<Option<VirtAddr>, MemoryError> {
        let Some([table]) = self.reader.numbers([(at(thread, self.layout.jni_env), 8)])? else {
            return Ok(None);
        };
        let entry = |index| (at(VirtAddr(table), 8 * index), 8);
        let entries = self.reader.numbers([entry(0), entry(1), entry(2), entry(RESERVED + 1)])?;
        let good = entries.is_some_and(|[a, b, c, function]| [a, b, c] == [0; 3] && is_plausible(VirtAddr(function)));
        Ok(good.then_some(VirtAddr(table)))
    }

    /// The addresses in the first so many places of the JNI functions' table, as they are now; zero where there is none. `None`
    /// if there is no such table.
    ///
    /// # Errors
    /// What makes all reads fail.
    pub fn jni_functions(&mut self, places: usize) -> Result<Option<Vec<VirtAddr>>, MemoryError> {
        let Some((_, table)) = self.jni_env()? else {
            return Ok(None);
        };
        let places: Vec<VirtAddr> = (0..places as u64).map(|place| at(table, 8 * place)).collect();
        let functions = self.reader.numbers_of(&places, |&place| [(place, 8)])?;
        Ok(functions.into_iter().map(|function| function.map(|[address]| VirtAddr(address))).collect())
    }

    /// The offset from a `JavaThread` to the exception that is pending in it; `None` if the VM does not say.
    #[must_use]
    pub fn pending_exception_offset(&self) -> Option<u64> {
        self.layout.pending_exception
    }

    /// One pass over the list; `None` if it changed meanwhile.
    fn read(&mut self) -> Result<Option<Vec<JavaThread>>, MemoryError> {
        let Self { reader, layout, .. } = self;
        let Some(list) = layout.list.read(reader)? else {
            return Ok(None);
        };
        let threads = &list.threads;
        let os_threads = numbers(reader, threads, |&thread| (at(thread, layout.os_thread), 8))?;
        let id = layout.thread_id;
        let tids = numbers(reader, &os_threads, |&(_, os)| (at(VirtAddr(os), id.offset), id.width))?;
        if !list.still_holds(reader)? {
            return Ok(None);
        }
        let thread = |((address, _), tid): ((VirtAddr, u64), u64)| {
            Some(JavaThread { ns_tid: u32::try_from(tid).ok().filter(|tid| *tid > 0)?, address })
        };
        let mut found: Vec<JavaThread> = tids.into_iter().filter_map(thread).collect();
        found.sort_unstable();
        Ok(Some(found))
    }
}

/// One number for each of `items` that can be read, with its item, in one batch.
fn numbers<M: RemoteMemory, T: Copy>(
    reader: &mut Reader<M>,
    items: &[T],
    wanted: impl Fn(&T) -> (VirtAddr, usize),
) -> Result<Vec<(T, u64)>, MemoryError> {
    let found = reader.numbers_of(items, |item| [wanted(item)])?;
    Ok(items.iter().zip(found).filter_map(|(item, found)| found.map(|[value]| (*item, value))).collect())
}

impl ThreadsLayout {
    fn of(tables: &Tables) -> Result<Self, Error> {
        let mut look = Lookup::new(tables);
        let anchor = look.offset("JavaThread", "_anchor");
        let word = |look: &mut Lookup<'_>, field| anchor + look.offset("JavaFrameAnchor", field);
        let anchor_offsets = LastJavaFrameOffsets {
            sp: word(&mut look, "_last_Java_sp"),
            pc: word(&mut look, "_last_Java_pc"),
            fp: word(&mut look, "_last_Java_fp"),
        };
        // Not in every table: in HotSpot it lies behind the anchor, with one pointer between them.
        let jni_env = match look.find("JavaThread", "_jni_environment") {
            Some(entry) => entry.offset,
            None => anchor + look.size("JavaFrameAnchor") + 8,
        };
        let layout = Self {
            list: ListLayout::of(&mut look),
            os_thread: look.offset("JavaThread", "_osthread"),
            thread_id: Number { offset: look.offset("OSThread", "_thread_id"), width: 4 },
            anchor: anchor_offsets,
            jni_env,
            pending_exception: look.find("ThreadShadow", "_pending_exception").map(|entry| entry.offset),
        };
        look.finish()?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    const LIST: VirtAddr = VirtAddr(0x1_0000);

    /// Words by address. Each read of the list's address takes the next of `lists`, until the last.
    struct Words {
        words: BTreeMap<u64, u64>,
        lists: RefCell<Vec<u64>>,
    }

    impl RemoteMemory for Words {
        fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
            let mut lists = self.lists.borrow_mut();
            let word = if addr == LIST {
                if lists.len() > 1 { Some(lists.remove(0)) } else { lists.first().copied() }
            } else {
                self.words.get(&addr.0).copied()
            };
            let word = word.ok_or(MemoryError::Unreadable { addr, len: buf.len() })?;
            buf.copy_from_slice(&word.to_le_bytes()[..buf.len()]);
            Ok(())
        }
    }

    /// A VM with two lists: one with threads 12 and 11 and one that has no `OSThread` yet; another with thread 11 alone.
    fn threads(lists: &[u64]) -> Threads<Words> {
        let words = [
            (0x2_0000, 3),
            (0x2_0008, 0x2_0100),
            (0x2_0100, 0x3_0000),
            (0x2_0108, 0x3_1000),
            (0x2_0110, 0x3_2000),
            (0x3_0010, 0x4_0000),
            (0x3_1010, 0x4_1000),
            (0x3_2010, 0),
            (0x4_0020, 12),
            (0x4_1020, 11),
            (0x5_0000, 1),
            (0x5_0008, 0x2_0108),
            (0x3_1048, 0x6_0000),
            (0x6_0000, 0),
            (0x6_0008, 0),
            (0x6_0010, 0),
            (0x6_0020, 0x7_0000),
        ];
        let memory = Words { words: words.into_iter().collect(), lists: RefCell::new(lists.to_vec()) };
        let layout = ThreadsLayout {
            list: ListLayout::Array { list: LIST, length: Number { offset: 0, width: 4 }, threads: 8 },
            os_thread: 0x10,
            thread_id: Number { offset: 0x20, width: 4 },
            anchor: LastJavaFrameOffsets { sp: 0x28, pc: 0x30, fp: 0x38 },
            jni_env: 0x48,
            pending_exception: Some(8),
        };
        Threads { reader: Reader::new(memory), layout, list: Vec::new() }
    }

    /// Check that threads are found by their number, and that one without an `OSThread` is left out.
    #[test]
    fn lists_threads() {
        let mut threads = threads(&[0x2_0000]);
        threads.refresh().unwrap();
        assert_eq!(threads.list().iter().map(|thread| thread.ns_tid).collect::<Vec<_>>(), [11, 12]);
        assert_eq!(threads.find(12).map(|thread| thread.address), Some(VirtAddr(0x3_0000)));
        assert_eq!(threads.find(13), None);
        assert_eq!(threads.jni_env_offset().unwrap(), Some(0x48));
    }

    /// Check that a list that is replaced while it is read is read again, and that what was known stays if that never ends.
    #[test]
    fn replaced_lists_are_read_again() {
        let mut replaced = threads(&[0x2_0000, 0x5_0000, 0x5_0000]);
        replaced.refresh().unwrap();
        assert_eq!(replaced.list().iter().map(|thread| thread.ns_tid).collect::<Vec<_>>(), [11]);
        let mut restless = threads(&[0x2_0000, 1, 0x2_0000, 1, 0x2_0000, 1, 0x2_0000, 1]);
        restless.list = replaced.list().to_vec();
        restless.refresh().unwrap();
        assert_eq!(restless.list(), replaced.list());
    }

    /// Check that the environment is found where the list never stays as it is, by a thread that has a function table.
    #[test]
    fn finds_the_environment_among_restless_threads() {
        let mut restless = threads(&[0x2_0000, 1, 0x2_0000, 1, 0x2_0000, 1, 0x2_0000, 1, 0x2_0000]);
        restless.refresh().unwrap();
        assert_eq!(restless.list(), []);
        assert_eq!(restless.jni_env().unwrap(), Some((0x48, VirtAddr(0x6_0000))));
    }

    /// Check that a `JNIEnv` that leads to no function table is not offered.
    #[test]
    fn doubts_the_environment() {
        let mut threads = threads(&[0x2_0000]);
        threads.refresh().unwrap();
        threads.layout.jni_env = 0x10;
        assert_eq!(threads.jni_env_offset().unwrap(), None);
    }
}
