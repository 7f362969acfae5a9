//! Frozen frames that were copied together with the stack, while the thread stood still.
//!
//! Nothing of them has to be looked at again but the VM's code. That the chunks are those of the thread, and that they
//! were not moved meanwhile, has been seen to when they were copied; that they are whole shows here: frame by frame they
//! must lead exactly to where the chunk ends.

use nprof_common::Chunk as Head;

use super::frozen::{Chunk, MAX_ARGUMENTS};
use super::frozen_layout::FrozenLayout;
use super::sender::{Registers, Stop, Walk};
use super::stack_copy::FrozenCopy;
use crate::hotspot::RemoteMemory;
use crate::model::{CutReason, VirtAddr};

impl<M: RemoteMemory> Walk<'_, M> {
    /// Adds the frames of a copy, of a stack that goes on at `here`, and returns where the thread was entered.
    pub(super) fn thaw_copied(
        &mut self,
        layout: &FrozenLayout,
        here: Registers,
        copied: FrozenCopy<'_>,
    ) -> Result<Registers, Stop> {
        let entry = copied.entry_sp.0;
        let entries = here.sp.0..=here.sp.0.saturating_add(MAX_ARGUMENTS);
        if !entries.contains(&entry) || !entry.is_multiple_of(8) {
            return Err(CutReason::FrozenFrames.into());
        }
        let mut rest = copied.bytes;
        while !rest.is_empty() {
            let (head, bytes, others) = Head::first_of(rest).ok_or(CutReason::StackTooShort)?;
            let chunk = Chunk {
                bytes: bytes.to_vec(),
                base: VirtAddr(head.base),
                sp: VirtAddr(head.sp),
                end: VirtAddr(head.end),
                parent: None,
            };
            if (bytes.len() as u64) < head.bytes {
                // What is there is shown, and that something is missing.
                self.chunk_frames(&chunk)?;
                return Err(CutReason::StackTooShort.into());
            }
            self.chunk_frames(&chunk)?;
            rest = others;
        }
        if copied.has_more {
            return Err(CutReason::StackTooShort.into());
        }
        let entry = Registers { sp: copied.entry_sp, pc: self.entered(layout)?.code, fp: VirtAddr(0) };
        if self.is_wrapper(entry.pc)? { Ok(entry) } else { Err(CutReason::FrozenFrames.into()) }
    }
}
