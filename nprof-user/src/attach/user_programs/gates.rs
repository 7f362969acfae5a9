//! Which links of the user's programs answer: a word for each, and instructions before each program that ask it.
//!
//! A link holds many functions and can only be closed. To take one out, the others get a second link first, whose gate is shut; then
//! that one's is opened and the first one's is shut, and the first is closed. A hit in between runs the program once. Only one that
//! is on its way through both links at that moment may run it twice or not at all.
//!
//! The gate also keeps a program to its process on kernels whose own filter does not, and ends all programs at one moment.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use aya_obj::generated::bpf_insn;

use crate::attach::features::{instruction, operation};
use crate::model::Pid;
use crate::sys::bpf::create_words;
use crate::sys::mapped_array::MappedArray;

/// Links at a time, of all programs. What a governor moves about is a few.
const SLOTS: u32 = 4096;

/// The gates of all links.
#[derive(Debug)]
pub(super) struct Gates {
    array: OwnedFd,
    words: MappedArray,
    free: Mutex<Vec<u32>>,
}

/// The gate of one link. Shut, and free for another, when it is dropped: that is to be after the link.
#[derive(Debug)]
pub(super) struct Gate {
    gates: Arc<Gates>,
    /// The upper half of the link's cookies.
    pub(super) number: u32,
}

impl Gates {
    /// All are shut.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let array = create_words(SLOTS)?;
        let words = MappedArray::map(array.as_fd(), SLOTS as usize, size_of::<u64>())?;
        Ok(Arc::new(Self { array, words, free: Mutex::new((0..SLOTS).rev().collect()) }))
    }

    /// A gate that no other link has; `None` if there is none left.
    pub(super) fn take(self: &Arc<Self>) -> Option<Gate> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Gate { gates: Arc::clone(self), number })
    }

    /// A program that runs behind the gates: it is not entered where the gate of the link that was hit is shut, or open to another
    /// process.
    pub(super) fn before(&self, program: &[bpf_insn]) -> Vec<bpf_insn> {
        const ATTACH_COOKIE: i32 = 174;
        const CURRENT_PID_TGID: i32 = 14;
        const LOOK_UP: i32 = 1;
        const PSEUDO_MAP: u8 = 1;
        let call = |function| operation(0x85, (0, 0), 0, function);
        let guard = [
            operation(0xbf, (6, 1), 0, 0),                               // r6 = r1, the context
            call(ATTACH_COOKIE),                                         // r0 = the cookie
            operation(0x77, (0, 0), 0, 32),                              // r0 >>= 32
            operation(0x63, (10, 0), -4, 0),                             // *(u32 *)(r10 - 4) = r0
            operation(0x18, (1, PSEUDO_MAP), 0, self.array.as_raw_fd()), // r1 = the gates
            instruction(0),                                              // its second half
            operation(0xbf, (2, 10), 0, 0),                              // r2 = r10
            operation(0x07, (2, 0), 0, -4),                              // r2 += -4
            call(LOOK_UP),                                               // r0 = the place of the link's word
            operation(0x15, (0, 0), 4, 0),                               // if r0 == 0 goto leave
            operation(0x79, (7, 0), 0, 0),                               // r7 = *(u64 *)r0
            call(CURRENT_PID_TGID),                                      // r0 = who has been hit
            operation(0x77, (0, 0), 0, 32),                              // r0 >>= 32
            operation(0x1d, (0, 7), 2, 0),                               // if r0 == r7 goto enter
            operation(0xb7, (0, 0), 0, 0),                               // leave: r0 = 0
            instruction(0x95),                                           // exit
            operation(0xbf, (1, 6), 0, 0),                               // enter: r1 = r6
        ];
        guard.into_iter().chain(program.iter().copied()).collect()
    }
}

impl Gate {
    /// Has the link answer in one process.
    pub(super) fn open(&self, pid: Pid) {
        self.set(u64::from(pid.0));
    }

    /// Has the link do nothing.
    pub(super) fn shut(&self) {
        // No process has this number.
        self.set(0);
    }

    fn set(&self, word: u64) {
        self.gates.words.store(self.number as usize, word);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shut();
        self.gates.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}
