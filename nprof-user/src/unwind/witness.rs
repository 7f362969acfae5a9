//! What was true of the VM's memory when something was read from it, to be checked again before it is relied on.

use std::collections::HashSet;

use crate::hotspot::{Reader, RemoteMemory};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// A number in the VM's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) addr: VirtAddr,
    /// Bytes that it takes.
    pub(super) width: usize,
    pub(super) value: u64,
}

/// Looks again at the witnesses of several things, in one read, and returns which of the things have changed.
pub(super) fn changed<M: RemoteMemory, K: Copy + Eq + std::hash::Hash>(
    reader: &mut Reader<M>,
    witnesses: &[(K, Witness)],
) -> Result<Vec<K>, MemoryError> {
    let now = reader.numbers_of(witnesses, |(_, witness)| [(witness.addr, witness.width)])?;
    let mut changed = HashSet::new();
    for ((key, witness), now) in witnesses.iter().zip(now) {
        if now != Some([witness.value]) {
            changed.insert(*key);
        }
    }
    Ok(changed.into_iter().collect())
}
