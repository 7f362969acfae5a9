//! Where the VM's own code is, and where it puts code: that stays for the life of the VM.

use super::layout::CodeLayout;
use crate::hotspot::{Error, Reader, RemoteMemory, at, is_plausible};
use crate::model::VirtAddr;

/// Code that stays where it is for the life of the VM.
#[derive(Debug, Clone)]
pub(super) struct Fixed {
    pub(super) interpreter: std::ops::Range<VirtAddr>,
    pub(super) call_stub_return: VirtAddr,
    /// All memory that is set aside for code.
    pub(super) code: std::ops::Range<VirtAddr>,
}

impl Fixed {
    pub(super) fn read<M: RemoteMemory>(reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Self, Error> {
        let statics = [(layout.statics.interpreter, 8), (layout.statics.call_stub_return, 8)];
        let [queue, call_stub_return] = reader.numbers(statics)?.ok_or(Error::NotReady)?.map(VirtAddr);
        let limit = layout.heap.stub_limit;
        let wanted = [(at(queue, layout.heap.stub_buffer), 8), (at(queue, limit.offset), limit.width)];
        let [buffer, bytes] = reader.numbers(wanted)?.ok_or(Error::NotReady)?;
        let interpreter = VirtAddr(buffer)..at(VirtAddr(buffer), bytes);
        let bounds = [(layout.statics.code_low, 8), (layout.statics.code_high, 8)];
        let [low, high] = reader.numbers(bounds)?.ok_or(Error::NotReady)?.map(VirtAddr);
        if ![call_stub_return, interpreter.start, low, high].into_iter().all(is_plausible) {
            return Err(Error::NotReady);
        }
        Ok(Self { interpreter, call_stub_return, code: low..high })
    }

    /// Whether an address lies where the VM puts code.
    pub(super) fn contains_code(&self, pc: VirtAddr) -> bool {
        self.code.contains(&pc)
    }
}
