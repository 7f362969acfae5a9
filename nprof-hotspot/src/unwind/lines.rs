//! The line table of a method: pairs of bytecode index and line, packed as the VM keeps them after the bytecodes.

use super::unsigned5::Unsigned5;

/// A class file has no more entries.
const MAX_ENTRIES: usize = 65_535;
/// The byte before a pair that is too large for one byte.
const ESCAPE: u8 = 0xff;

/// Where lines begin in the bytecodes of a method, in the order of the class file, which need not be sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lines {
    entries: Vec<(i32, i32)>,
}

impl Lines {
    /// Unpacks a table. What follows a damaged entry is left out.
    pub(super) fn unpack(bytes: &[u8], excess: u8) -> Self {
        let mut stream = Unsigned5::new(bytes, excess);
        let mut entries = Vec::new();
        let (mut bci, mut line) = (0_i32, 0_i32);
        while entries.len() < MAX_ENTRIES {
            let Some((bci_step, line_step)) = next_step(&mut stream) else { break };
            bci = bci.wrapping_add(bci_step);
            line = line.wrapping_add(line_step);
            entries.push((bci, line));
        }
        Self { entries }
    }

    /// The line of a bytecode index, chosen as the VM chooses it for stack traces.
    pub(super) fn line(&self, bci: u16) -> Option<u32> {
        let bci = i32::from(bci);
        let exact = self.entries.iter().find(|(at, _)| *at == bci);
        let before = || self.entries.iter().filter(|(at, _)| (0..bci).contains(at)).max_by_key(|(at, _)| *at);
        let (_, line) = exact.or_else(before)?;
        u32::try_from(*line).ok()
    }
}

/// How far the next entry is from the one before.
fn next_step(stream: &mut Unsigned5<'_>) -> Option<(i32, i32)> {
    match stream.byte()? {
        0 => None,
        ESCAPE => Some((stream.signed()?, stream.signed()?)),
        small => Some((i32::from(small >> 3), i32::from(small & 7))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that small and large steps, also backwards, are followed, and that the table ends at its zero.
    #[test]
    fn unpacks_steps() {
        // (0, 40), (5, 41), (9, 38), and something after the end.
        let lines = Lines::unpack(&[0xff, 0, 80, 5 << 3 | 1, 0xff, 8, 5, 0, 0x77], 0);
        assert_eq!(lines.entries, [(0, 40), (5, 41), (9, 38)]);
    }

    /// Check that an exact index wins, and otherwise the last of the nearest entries before it.
    #[test]
    fn chooses_the_line_as_the_vm_does() {
        let lines = Lines { entries: vec![(0, 1), (8, 4), (3, 2), (3, 7), (8, 9)] };
        assert_eq!([lines.line(8), lines.line(0), lines.line(20)], [Some(4), Some(1), Some(9)]);
        assert_eq!(lines.line(5), Some(7));
        assert_eq!(Lines::default().line(0), None);
    }
}
