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

/// As few witnesses as say the same: neighbours that fit a number together become one.
pub(super) fn joined(mut witnesses: Vec<Witness>) -> Vec<Witness> {
    witnesses.sort_unstable_by_key(|witness| witness.addr);
    let mut joined: Vec<Witness> = Vec::with_capacity(witnesses.len());
    for witness in witnesses {
        match joined.last_mut() {
            Some(last)
                if last.addr.0.checked_add(last.width as u64) == Some(witness.addr.0)
                    && last.width + witness.width <= 8 =>
            {
                last.value |= witness.value << (8 * last.width);
                last.width += witness.width;
            }
            _ => joined.push(witness),
        }
    }
    joined
}

/// Looks again at the witnesses of several things, and at a number besides, in one read. Returns which of the things have
/// changed, and the number.
pub(super) fn changed<M: RemoteMemory, K: Copy + Eq + std::hash::Hash>(
    reader: &mut Reader<M>,
    witnesses: &[(K, Witness)],
    besides: Option<(VirtAddr, usize)>,
) -> Result<(Vec<K>, Option<u64>), MemoryError> {
    let places = witnesses.iter().map(|(_, witness)| (witness.addr, witness.width)).chain(besides);
    let mut now = reader.numbers_again(&places.collect::<Vec<_>>())?;
    let besides = besides.and_then(|_| now.pop().flatten());
    let mut changed = HashSet::new();
    for ((key, witness), now) in witnesses.iter().zip(now) {
        if now != Some(witness.value) {
            changed.insert(*key);
        }
    }
    Ok((changed.into_iter().collect(), besides))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that neighbours become one number of up to eight bytes, the first lowest, and that others stay.
    #[test]
    fn joins_neighbours() {
        let witness = |addr, width, value| Witness { addr: VirtAddr(addr), width, value };
        let apart = vec![witness(0x1006, 2, 0xcc), witness(0x1000, 4, 0xaa), witness(0x1004, 2, 0xbb)];
        assert_eq!(joined(apart), [witness(0x1000, 8, 0x00cc_00bb_0000_00aa)]);
        let too_wide = vec![witness(0x1000, 8, 1), witness(0x1008, 8, 2), witness(0x1011, 1, 3)];
        assert_eq!(joined(too_wide.clone()), too_wide);
    }
}
