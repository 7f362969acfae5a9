//! What the compiler says of a compiled method: which calls it holds ([`PcDesc`]) and, for each, the methods that are
//! inlined there.

use super::unsigned5::Unsigned5;

/// More levels of inlining than any compiler does.
const MAX_SCOPES: usize = 512;

/// A place in compiled code that the VM can find its way from: every call has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PcDesc {
    /// Bytes from the start of the code.
    pub(super) pc_offset: i32,
    /// Where its scopes are described, from the start of the scopes' bytes.
    pub(super) scope: u32,
}

/// The descriptions of one compiled method.
#[derive(Debug, Clone, Default)]
pub(super) struct Scopes {
    /// In the order of their places.
    pub(super) pcs: Vec<PcDesc>,
    pub(super) bytes: Vec<u8>,
    /// What each byte of a packed number is higher by than what it stands for.
    pub(super) packed_excess: u8,
}

/// One level of inlining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scope {
    /// The number of its method, from 1 on.
    pub(super) method: u32,
    pub(super) bci: u16,
}

impl Scopes {
    /// The description of exactly that place in the code.
    pub(super) fn pc_desc(&self, pc_offset: i32) -> Option<PcDesc> {
        let found = self.pcs.binary_search_by_key(&pc_offset, |pc| pc.pc_offset).ok()?;
        self.pcs.get(found).copied().filter(|pc| pc.scope > 0)
    }

    /// The description that fits a place between two of them best: the next one, as the VM itself chooses, or else the
    /// last one.
    pub(super) fn nearest(&self, pc_offset: i32) -> Option<PcDesc> {
        let (before, after) = self.pcs.split_at(self.pcs.partition_point(|pc| pc.pc_offset < pc_offset));
        let described = |pc: &&PcDesc| pc.scope > 0;
        after.iter().find(described).or_else(|| before.iter().rev().find(described)).copied()
    }

    /// The scopes at a place, the innermost first; `None` if they make no sense.
    pub(super) fn at(&self, pc: PcDesc) -> Option<Vec<Scope>> {
        let mut scopes = Vec::new();
        let mut next = pc.scope;
        while next > 0 {
            let bytes = self.bytes.get(usize::try_from(next).ok()?..)?;
            let mut stream = Unsigned5::new(bytes, self.packed_excess);
            let sender = stream.number()?;
            scopes.push(Scope { method: stream.number()?, bci: bci(stream.number()?)? });
            // Outer scopes are written before inner ones, so this ends.
            if sender >= next || scopes.len() > MAX_SCOPES {
                return None;
            }
            next = sender;
        }
        Some(scopes)
    }
}

/// A bytecode index, written one higher than it is: -1 is the entry of a synchronized method and counts as its start.
fn bci(written: u32) -> Option<u16> {
    u16::try_from(written.saturating_sub(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes() -> Scopes {
        // At 1 the outermost: method 7, bci 9. At 4 inlined there: method 2, at its entry.
        let bytes = vec![0xaa, 0, 7, 10, 1, 2, 0];
        let pcs = [(-1, 0), (16, 1), (40, 4), (48, 9)];
        let pcs = pcs.map(|(pc_offset, scope)| PcDesc { pc_offset, scope }).to_vec();
        Scopes { pcs, bytes, packed_excess: 0 }
    }

    /// Check that scopes come from the innermost to the outermost.
    #[test]
    fn follows_senders() {
        let scopes = scopes();
        let [inner, outer] = [Scope { method: 2, bci: 0 }, Scope { method: 7, bci: 9 }];
        assert_eq!(scopes.pc_desc(40).and_then(|pc| scopes.at(pc)), Some(vec![inner, outer]));
        assert_eq!(scopes.pc_desc(16).and_then(|pc| scopes.at(pc)), Some(vec![outer]));
    }

    /// Check that only described places are known, and that the sentinel is none.
    #[test]
    fn knows_exact_places_alone() {
        let scopes = scopes();
        assert_eq!([scopes.pc_desc(17), scopes.pc_desc(39), scopes.pc_desc(-1)], [None; 3]);
    }

    /// Check that between two places the next one is chosen, and the last one behind it.
    #[test]
    fn chooses_the_next_place() {
        let nearest = |offset| scopes().nearest(offset).map(|pc| pc.pc_offset);
        assert_eq!([0, 16, 17, 48, 49].map(nearest), [Some(16), Some(16), Some(40), Some(48), Some(48)]);
        assert_eq!(Scopes::default().nearest(0), None);
    }

    /// Check that cut bytes and senders that do not decrease are refused.
    #[test]
    fn refuses_damaged_scopes() {
        let mut scopes = scopes();
        assert_eq!(scopes.at(PcDesc { pc_offset: 48, scope: 9 }), None);
        scopes.bytes[4] = 4;
        assert_eq!(scopes.at(PcDesc { pc_offset: 40, scope: 4 }), None);
    }
}
