//! The code of methods that are not to be entered any more, as it was compiled.
//!
//! The VM writes a jump over the beginning of such a method's first instruction, so that new calls go elsewhere. Threads that
//! are in it stay there. Whoever follows the code from its entry on would be led out of it at once, and would take what is left
//! of that instruction for another one. What it was can be told: compilers begin a method in two ways only, both with an
//! instruction of seven bytes, two of which are left.

/// `jmp` to a relative address, and how many bytes it takes.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
/// Bytes of the first instruction.
const FIRST_BYTES: usize = 7;
/// `mov [rsp + distance], eax`: touches the stack far below, where a frame might end. The distance has four bytes.
const TOUCH: [u8; 3] = [0x89, 0x84, 0x24];
/// What follows it: `push rbp`.
const PUSH_RBP: u8 = 0x55;
/// `sub rsp, size`: makes the whole frame. The size has four bytes.
const MAKE_FRAME: [u8; 3] = [0x48, 0x81, 0xec];
/// What follows it: `mov [rsp + distance], rbp`, with a distance of one byte or of four.
const SAVE_RBP: [[u8; 4]; 2] = [[0x48, 0x89, 0x6c, 0x24], [0x48, 0x89, 0xac, 0x24]];

/// Puts the first instruction at `entry` back, if a jump stands there that leads out of the code and all that is left speaks for
/// one of the two ways. `whole` is the size of a whole frame without the return address.
pub(super) fn restore(code: &mut [u8], entry: usize, whole: i64) {
    let length = code.len();
    let Some(rest) = code.get_mut(entry..).filter(|rest| leads_out(rest, entry, length)) else { return };
    let Some((first, next)) = rest.split_at_mut_checked(FIRST_BYTES) else { return };
    let size = i32::try_from(whole).unwrap_or(0).to_le_bytes();
    let left = [first[JUMP_BYTES], first[JUMP_BYTES + 1]];
    if i16::from_le_bytes(left) < 0 && next.first() == Some(&PUSH_RBP) {
        // How far below does not matter, and the two lower bytes of it are lost.
        first[..JUMP_BYTES].copy_from_slice(&[TOUCH[0], TOUCH[1], TOUCH[2], 0, 0]);
    } else if left == size[2..] && SAVE_RBP.iter().any(|save| next.starts_with(save)) {
        first[..JUMP_BYTES].copy_from_slice(&[MAKE_FRAME[0], MAKE_FRAME[1], MAKE_FRAME[2], size[0], size[1]]);
    }
}

/// Whether the code at `entry` is a jump to somewhere else than to these `length` bytes.
fn leads_out(rest: &[u8], entry: usize, length: usize) -> bool {
    let Some(&[JUMP, a, b, c, d]) = rest.first_chunk::<JUMP_BYTES>() else { return false };
    let from = i64::try_from(entry + JUMP_BYTES).unwrap_or(i64::MAX);
    let target = from.saturating_add(i64::from(i32::from_le_bytes([a, b, c, d])));
    usize::try_from(target).is_ok_and(|target| target >= length) || target < 0
}

#[cfg(test)]
mod tests {
    use super::super::cfa_offset::CfaOffsets;
    use super::restore;

    /// What stands before the entry: a check of the receiver's class.
    const BEFORE: [u8; 4] = [0x44, 0x3b, 0x50, 0x08];
    const JUMP_OUT: [u8; 5] = [0xe9, 0xbb, 0x26, 0x30, 0x07];
    const WHOLE: i64 = 0x28;

    fn restored(parts: &[&[u8]]) -> Vec<u8> {
        let mut code = parts.concat();
        restore(&mut code, BEFORE.len(), WHOLE);
        code
    }

    /// Check that both beginnings are put back, so that the depth behind them is known again.
    #[test]
    fn beginnings_are_put_back() {
        // `push rbp; sub rsp, 32; nop; add rsp, 32; pop rbp; ret`
        let touched: &[u8] = &[0x55, 0x48, 0x83, 0xec, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3];
        // `mov [rsp + 32], rbp; nop; add rsp, 32; pop rbp; ret`
        let made: &[u8] = &[0x48, 0x89, 0x6c, 0x24, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3];
        for (first, rest) in
            [([0x89, 0x84, 0x24, 0, 0, 0xfe, 0xff], touched), ([0x48, 0x81, 0xec, 0x28, 0, 0, 0], made)]
        {
            let compiled = [&BEFORE[..], &first, rest].concat();
            let code = restored(&[&BEFORE, &JUMP_OUT, &first[5..], rest]);
            assert_eq!(code, compiled);
            let nop = (BEFORE.len() + first.len() + 5) as u64;
            let depth = CfaOffsets::of(&code, WHOLE).at(nop).unwrap();
            assert_eq!((depth.bytes, depth.saved), (WHOLE, true));
        }
    }

    /// Check that nothing is changed that is no such jump: one within the code, one before other instructions, one that is cut
    /// off, and an entry beyond the code.
    #[test]
    fn other_code_stays() {
        let touched: &[u8] = &[0xfe, 0xff, 0x55, 0x90, 0x90];
        for code in [
            [&BEFORE[..], &[0xe9, 2, 0, 0, 0], touched].concat(),
            [&BEFORE[..], &[0xe9, 0xf7, 0xff, 0xff, 0xff], touched].concat(),
            [&BEFORE[..], &JUMP_OUT, &[0xfe, 0xff, 0x90, 0x90]].concat(),
            [&BEFORE[..], &JUMP_OUT, &[1, 0, 0x48, 0x89, 0x6c, 0x24, 0x20]].concat(),
            [&BEFORE[..], &JUMP_OUT, &[0xfe]].concat(),
            BEFORE[..3].to_vec(),
        ] {
            assert_eq!(restored(&[&code]), code);
        }
    }
}
