//! What was true of the VM's memory when something was read from it, to be checked again before it is relied on.

use std::collections::HashSet;

use crate::hotspot::{Reader, RemoteMemory};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// A number in the VM's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Assumption {
    pub(super) addr: VirtAddr,
    /// Bytes that it takes.
    pub(super) width: usize,
    pub(super) value: u64,
}

/// As few assumptions as say the same: neighbours that fit a number together become one.
pub(super) fn joined(mut assumptions: Vec<Assumption>) -> Vec<Assumption> {
    assumptions.sort_unstable_by_key(|assumption| assumption.addr);
    let mut joined: Vec<Assumption> = Vec::with_capacity(assumptions.len());
    for assumption in assumptions {
        match joined.last_mut() {
            Some(last)
                if last.addr.0.checked_add(last.width as u64) == Some(assumption.addr.0)
                    && last.width + assumption.width <= 8 =>
            {
                last.value |= assumption.value << (8 * last.width);
                last.width += assumption.width;
            }
            _ => joined.push(assumption),
        }
    }
    joined
}

/// Looks again at the assumptions of several things, and at a number besides, in one read. Returns which of the things have
/// changed, and the number.
pub(super) fn changed<M: RemoteMemory, K: Copy + Eq + std::hash::Hash>(
    reader: &mut Reader<M>,
    assumptions: &[(K, Assumption)],
    besides: Option<(VirtAddr, usize)>,
) -> Result<(Vec<K>, Option<u64>), MemoryError> {
    let places = assumptions.iter().map(|(_, assumption)| (assumption.addr, assumption.width)).chain(besides);
    let mut now = reader.numbers_again(&places.collect::<Vec<_>>())?;
    let besides = besides.and_then(|_| now.pop().flatten());
    let mut changed = HashSet::new();
    for ((key, assumption), now) in assumptions.iter().zip(now) {
        if now != Some(assumption.value) {
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
        let assumption = |addr, width, value| Assumption { addr: VirtAddr(addr), width, value };
        let apart = vec![assumption(0x1006, 2, 0xcc), assumption(0x1000, 4, 0xaa), assumption(0x1004, 2, 0xbb)];
        assert_eq!(joined(apart), [assumption(0x1000, 8, 0x00cc_00bb_0000_00aa)]);
        let too_wide = vec![assumption(0x1000, 8, 1), assumption(0x1008, 8, 2), assumption(0x1011, 1, 3)];
        assert_eq!(joined(too_wide.clone()), too_wide);
    }
}
