//! How many bytes each call moves: the timed calls of a method by that, beside its record.
//!
//! All CPUs add to the same histogram: a call that moves bytes has made a system call, or asked an allocator, which costs more than to
//! wait for the others. Calls that move none are not in it.

#![expect(unsafe_code, reason = "writes to memory that is mapped for it")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use nprof_common::histogram::bucket_of;
use nprof_common::wire::PAGE;
use nprof_common::{CallBytes, ThreadCounts};

use crate::records::BYTES_SHIFT;

/// The histogram of a method and a counter, word by word.
type Histogram = [AtomicU64; size_of::<CallBytes>() / 8];

/// The bits of an address within a page.
const IN_PAGE: usize = 0xfff;
const _: () = assert!(IN_PAGE as u64 + 1 == PAGE);
const MAX: usize = offset_of!(CallBytes, max) / 8;
const CALLS: usize = offset_of!(CallBytes, calls) / 8;

/// Where the histograms of all methods are, as [`crate::pool::Collecting::bytes`] says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Histograms(usize);

impl Histograms {
    /// `None` where it is not recorded.
    pub(crate) fn at(word: usize) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Which counters have one, as bits.
    fn wanted(self) -> u32 {
        // Below a page there is room for no more.
        u32::try_from(self.0 & IN_PAGE).unwrap_or(0) << BYTES_SHIFT
    }

    /// Adds a call of the method with this record, which has consumed so much with traced calls that it made.
    ///
    /// # Safety
    /// There are histograms of so many methods, which stay mapped. `near` is memory of the same mapping.
    pub(crate) unsafe fn add<T>(self, near: *const T, index: u32, consumed: &ThreadCounts) {
        let mut wanted = self.wanted();
        let of_method = wanted.count_ones() as usize * size_of::<CallBytes>();
        let mut at = (self.0 & !IN_PAGE) + index as usize * of_method;
        while wanted != 0 {
            let bytes = consumed.get(wanted.trailing_zeros() as usize).copied().unwrap_or(0);
            if bytes != 0 {
                // SAFETY: the caller's promise; words are aligned, as a page is.
                let histogram = unsafe { &*near.with_addr(at).cast::<Histogram>() };
                if let Some(calls) = histogram.get(CALLS + bucket_of(bytes) as usize) {
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                histogram[MAX].fetch_max(bytes, Ordering::Relaxed);
            }
            at += size_of::<CallBytes>();
            wanted &= wanted - 1;
        }
    }
}
