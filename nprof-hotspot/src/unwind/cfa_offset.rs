//! How far the stack pointer of compiled code is from the return address, at each of its instructions.
//!
//! Compiled code makes one frame of fixed size, but not at once: for a few instructions at its start, and after its end,
//! there is only a part of it. The code itself says where: its instructions are followed from the entry on, and what each
//! does to the stack pointer is added up. What no path from the entry leads to (exception handlers, the targets of jump
//! tables) is entered by the VM with a whole frame.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Bytes of a word on the stack.
const WORD: i64 = 8;
/// The general registers.
const REGISTERS: usize = 16;
/// No frame of compiled code is larger.
const MAX_DEPTH: i64 = 1 << 20;

/// The stack before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CfaOffset {
    /// Bytes from the stack pointer up to the return address.
    pub(super) bytes: i64,
    /// Whether the caller's frame pointer has been put below the return address. If not, it is in the register.
    pub(super) saved: bool,
    /// Whether this is a stub that the code itself has called: `bytes` lead to the caller of the code, and the return
    /// address into the code lies on top of the stack.
    pub(super) in_call_stub: bool,
    /// Whether `bytes` count from the address that lies on top of the stack, and not from the stack pointer.
    pub(super) from_top: bool,
}

/// [`CfaOffset`], and what is needed to follow it.
#[derive(Debug, Clone, Copy)]
struct State {
    depth: CfaOffset,
    /// Whether the stack pointer has been set to something that is not known.
    lost: bool,
    /// What `bytes` were when a register was set to the stack pointer, by the register's number.
    copies: [Option<i64>; REGISTERS],
}

impl State {
    fn new(bytes: i64, saved: bool) -> Self {
        let depth = CfaOffset { bytes, saved, in_call_stub: false, from_top: false };
        Self { depth, lost: false, copies: [None; REGISTERS] }
    }

    fn copy_of(&self, register: Register) -> Option<i64> {
        self.copies.get(number_of(register)?).copied().flatten()
    }

    fn set_copy(&mut self, register: Register, bytes: Option<i64>) {
        if let Some(copy) = number_of(register).and_then(|number| self.copies.get_mut(number)) {
            *copy = bytes;
        }
    }

    /// The state behind an instruction that goes on to the next one.
    fn after(self, instruction: &Instruction) -> Self {
        let known =
            self.moved_to_copy(instruction).or_else(|| if self.lost { None } else { self.adjusted(instruction) });
        let mut state = match known {
            Some(state) if (0..=MAX_DEPTH).contains(&state.depth.bytes) => Self { lost: false, ..state },
            _ => Self { lost: true, ..self },
        };
        if instruction.op0_kind() == OpKind::Register && !reads_only(instruction.mnemonic()) {
            let is_copy = instruction.mnemonic() == Mnemonic::Mov && instruction.op1_register() == Register::RSP;
            let copied = (is_copy && !self.lost && !self.depth.from_top).then_some(self.depth.bytes);
            state.set_copy(instruction.op0_register(), copied);
        }
        state
    }

    /// The state behind an instruction that sets the stack pointer to what it once was.
    fn moved_to_copy(mut self, instruction: &Instruction) -> Option<Self> {
        match instruction.mnemonic() {
            Mnemonic::Leave => {
                let bytes = self.copy_of(Register::RBP)? - WORD;
                self.depth = CfaOffset { bytes, saved: false, from_top: false, ..self.depth };
            }
            Mnemonic::Mov if sets(instruction, Register::RSP) => {
                let bytes = self.copy_of(instruction.op1_register())?;
                self.depth = CfaOffset { bytes, from_top: false, ..self.depth };
            }
            // From here on, until it is popped, it does not matter what the stack pointer itself is.
            Mnemonic::Push => {
                let bytes = self.copy_of(instruction.op0_register()).filter(|_| !pushes(instruction, Register::RBP))?;
                self.depth = CfaOffset { bytes, from_top: true, ..self.depth };
            }
            Mnemonic::Pop if sets(instruction, Register::RSP) && self.depth.from_top && !self.lost => {
                self.depth.from_top = false;
            }
            _ => return None,
        }
        Some(self)
    }

    /// The state behind any other instruction; `None` if it sets the stack pointer to something else.
    fn adjusted(mut self, instruction: &Instruction) -> Option<Self> {
        let increment = i64::from(instruction.stack_pointer_increment());
        if self.depth.from_top && (increment != 0 || sets(instruction, Register::RSP)) {
            return None;
        }
        let depth = &mut self.depth;
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop if instruction.op0_register() == Register::RBP => {
                let own_slot = if increment < 0 { 0 } else { WORD };
                if depth.bytes == own_slot {
                    depth.saved = increment < 0;
                }
                depth.bytes -= increment;
            }
            Mnemonic::Mov | Mnemonic::Pop if sets(instruction, Register::RSP) => return None,
            Mnemonic::Mov => self.moved(instruction),
            Mnemonic::Add if sets(instruction, Register::RSP) => depth.bytes -= immediate(instruction)?,
            Mnemonic::Sub if sets(instruction, Register::RSP) => depth.bytes += immediate(instruction)?,
            Mnemonic::Lea if sets(instruction, Register::RSP) => depth.bytes -= on_stack(instruction)?,
            _ if increment != 0 => depth.bytes -= increment,
            mnemonic if sets(instruction, Register::RSP) && !reads_only(mnemonic) => return None,
            _ => {}
        }
        Some(self)
    }

    /// Saves or restores the caller's frame pointer, if that is what the instruction does.
    fn moved(&mut self, instruction: &Instruction) {
        let own_slot = on_stack(instruction).is_some_and(|at| self.depth.bytes - at == WORD);
        if own_slot && instruction.op1_register() == Register::RBP {
            self.depth.saved = true;
        } else if own_slot && sets(instruction, Register::RBP) {
            self.depth.saved = false;
        }
    }
}

fn number_of(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn pushes(instruction: &Instruction, register: Register) -> bool {
    instruction.mnemonic() == Mnemonic::Push && instruction.op0_register() == register
}

fn sets(instruction: &Instruction, register: Register) -> bool {
    instruction.op0_kind() == OpKind::Register && instruction.op0_register() == register
}

/// Whether an instruction with a register as its first operand leaves that as it is.
fn reads_only(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    let is_register = instruction.op1_kind() == OpKind::Register;
    let value = instruction.try_immediate(1).ok().filter(|_| !is_register)?;
    Some(value.cast_signed())
}

/// The distance from the stack pointer to the memory operand, if that lies at a fixed one.
fn on_stack(instruction: &Instruction) -> Option<i64> {
    let fixed = instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
    fixed.then(|| instruction.memory_displacement64().cast_signed())
}

/// The depth at every instruction of a piece of code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CfaOffsets {
    /// Where the depth changes, by bytes from the start of the code.
    changes: Vec<(u64, Option<CfaOffset>)>,
}

impl CfaOffsets {
    /// Follows the code from its start. `whole` is the depth of a whole frame.
    pub(super) fn of(code: &[u8], whole: i64) -> Self {
        let mut flow = Flow { code, whole, states: BTreeMap::new() };
        flow.follow(0, State::new(0, false), true);
        let mut next = 0;
        while let Some(instruction) = flow.decode(next) {
            if !flow.states.contains_key(&next) {
                let seed = flow.seed(next);
                flow.follow(next, seed, false);
            }
            next += u64::try_from(instruction.len().max(1)).unwrap_or(1);
        }
        let mut changes: Vec<(u64, Option<CfaOffset>)> = Vec::new();
        for (at, depth) in flow.states {
            if changes.last().is_none_or(|(_, last)| *last != depth) {
                changes.push((at, depth));
            }
        }
        Self { changes }
    }

    /// The depth before the instruction at `offset`; `None` if it is not known.
    pub(super) fn at(&self, offset: u64) -> Option<CfaOffset> {
        let after = self.changes.partition_point(|(at, _)| *at <= offset);
        self.changes.get(after.checked_sub(1)?)?.1
    }
}

/// The work of [`CfaOffsets::of`].
struct Flow<'a> {
    code: &'a [u8],
    whole: i64,
    states: BTreeMap<u64, Option<CfaOffset>>,
}

impl Flow<'_> {
    fn decode(&self, at: u64) -> Option<Instruction> {
        let rest = self.code.get(usize::try_from(at).ok()?..).filter(|rest| !rest.is_empty())?;
        Some(Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode())
    }

    /// The state where no path leads to.
    fn seed(&self, at: u64) -> State {
        // Another entry, for threads that come from the interpreter in the middle of a loop.
        let first = self.decode(at).unwrap_or_default();
        let is_bang = first.mnemonic() == Mnemonic::Mov && on_stack(&first).is_some_and(|at| at <= -4096);
        let second = self.decode(first.next_ip()).filter(|_| is_bang).unwrap_or_default();
        let is_entry = pushes(&first, Register::RBP) || pushes(&second, Register::RBP);
        if is_entry { State::new(0, false) } else { State::new(self.whole, true) }
    }

    /// Whether here begins what a call leads through that has no compiled method to go to: `mov rbx, METHOD; jmp CODE`. The
    /// jump leads out of this code, or to itself as long as nobody has come here. One within the code is the method's own,
    /// before which it has put a constant into the register.
    fn is_call_stub(&self, first: &Instruction) -> bool {
        let moves = first.mnemonic() == Mnemonic::Mov && sets(first, Register::RBX) && first.len() == 10;
        let leaves = |second: &Instruction| {
            let target = second.near_branch_target();
            second.flow_control() == FlowControl::UnconditionalBranch
                && (target == second.ip() || target >= self.code.len() as u64)
        };
        moves && self.decode(first.next_ip()).is_some_and(|second| leaves(&second))
    }

    /// Follows all paths from `start` on that have not been followed yet. None of them is relied on if one returns with
    /// something else than the return address on top of the stack, nor if the start was a guess and what is certain
    /// contradicts it.
    fn follow(&mut self, start: u64, state: State, certain: bool) {
        let mut paths = Paths { open: vec![(start, state)], fresh: Vec::new(), certain };
        let mut contradicts = false;
        while let Some((start, state)) = paths.open.pop() {
            contradicts |= !self.straight(start, state, &mut paths);
        }
        if contradicts {
            self.states.extend(paths.fresh.into_iter().map(|at| (at, None)));
        }
    }

    /// Follows one path to its end, and puts aside where it branches. Returns whether it can be right.
    fn straight(&mut self, start: u64, mut state: State, paths: &mut Paths) -> bool {
        let mut at = start;
        while let Some(instruction) = self.decode(at).filter(|i| !i.is_invalid()) {
            if let Some(known) = self.states.get_mut(&at) {
                if known.is_none_or(|known| !state.lost && known == state.depth) {
                    return true;
                }
                if !paths.certain {
                    return false;
                }
                // Two paths that differ: from here on it is not known, also where the other one was followed already.
                *known = None;
                state.lost = true;
            } else {
                if self.is_call_stub(&instruction) {
                    state = State::new(self.whole + WORD, true);
                    state.depth.in_call_stub = true;
                }
                self.states.insert(at, (!state.lost).then_some(state.depth));
                paths.fresh.push(at);
            }
            let target = instruction.near_branch_target();
            at = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => state = state.after(&instruction),
                FlowControl::ConditionalBranch => paths.open.push((target, state)),
                FlowControl::UnconditionalBranch => at = target,
                // A call of the next instruction only pushes that one's address.
                FlowControl::Call if target == at => state.depth.bytes += WORD,
                FlowControl::Call | FlowControl::IndirectCall => {}
                FlowControl::Return => return state.lost || state.depth.bytes == 0,
                _ => return true,
            }
        }
        true
    }
}

/// The paths from one start.
struct Paths {
    /// Where branches lead to that have not been followed yet.
    open: Vec<(u64, State)>,
    /// The instructions that no other start leads to.
    fresh: Vec<u64>,
    /// Whether the state at the start is known, not guessed.
    certain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH_RBP: u8 = 0x55;
    const POP_RBP: u8 = 0x5d;
    const RET: u8 = 0xc3;

    fn depths(parts: &[&[u8]]) -> Vec<Option<(i64, bool)>> {
        let code = parts.concat();
        let found = CfaOffsets::of(&code, 0x28);
        let mut at = 0;
        parts
            .iter()
            .map(|part| {
                let depth = found.at(at);
                at += part.len() as u64;
                depth.map(|depth| (depth.bytes, depth.saved))
            })
            .collect()
    }

    /// Check the frame that is made by a push and a subtraction, in its prologue, its body and its epilogue, with what
    /// follows the return.
    #[test]
    fn follows_prologue_and_epilogue() {
        let parts: [&[u8]; 9] = [
            &[0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff], // mov [rsp-0x14000], eax
            &[PUSH_RBP],
            &[0x48, 0x83, 0xec, 0x20], // sub rsp, 32
            &[0x31, 0xc0],             // xor eax, eax
            &[0x48, 0x83, 0xc4, 0x20], // add rsp, 32
            &[POP_RBP],
            &[0x77, 1], // ja to the last: the return's safepoint
            &[RET],
            &[0xff, 0x20], // jmp [rax]
        ];
        let whole = Some((0x28, true));
        let gone = Some((0, false));
        let expected = [gone, gone, Some((8, true)), whole, whole, Some((8, true)), gone, gone, gone];
        assert_eq!(depths(&parts), expected);
    }

    /// Check the frame that is made by a subtraction alone, and that code which only the VM enters has a whole one.
    #[test]
    fn follows_stores_and_seeds_the_rest() {
        let parts: [&[u8]; 6] = [
            &[0x48, 0x83, 0xec, 0x28],       // sub rsp, 40
            &[0x48, 0x89, 0x6c, 0x24, 0x20], // mov [rsp+32], rbp
            &[0x48, 0x8b, 0x6c, 0x24, 0x20], // mov rbp, [rsp+32]
            &[0x48, 0x83, 0xc4, 0x28],       // add rsp, 40
            &[RET],
            &[0x31, 0xc0], // xor eax, eax
        ];
        let (whole, restored) = (Some((0x28, true)), Some((0x28, false)));
        let expected = [Some((0, false)), restored, whole, restored, Some((0, false)), whole];
        assert_eq!(depths(&parts), expected);
    }

    /// Check that frames that end with `leave` are followed, and that what cannot be followed is not guessed.
    #[test]
    fn follows_frame_pointers() {
        let parts: [&[u8]; 7] = [
            &[PUSH_RBP],
            &[0x48, 0x89, 0xe5],       // mov rbp, rsp
            &[0x48, 0x83, 0xec, 0x10], // sub rsp, 16
            &[0x48, 0x83, 0xe4, 0xf0], // and rsp, -16
            &[0x90],
            &[0xc9], // leave
            &[RET],
        ];
        let found = depths(&parts);
        assert_eq!(found[..4], [Some((0, false)), Some((8, true)), Some((8, true)), Some((0x18, true))]);
        assert_eq!(found[4..], [None, None, Some((0, false))]);
    }

    /// Check that a stack pointer that is saved on the stack itself is restored from there, and that code which returns
    /// from elsewhere than it entered is not relied on.
    #[test]
    fn follows_saved_stack_pointers() {
        let parts: [&[u8]; 7] = [
            &[0x48, 0x89, 0xe0],       // mov rax, rsp
            &[0x48, 0x83, 0xec, 0x40], // sub rsp, 64
            &[0x48, 0x83, 0xe4, 0xf0], // and rsp, -16
            &[0x50],                   // push rax
            &[0x90],
            &[0x5c], // pop rsp
            &[RET],
        ];
        let gone = Some((0, false));
        assert_eq!(depths(&parts), [gone, gone, Some((0x40, false)), None, gone, gone, gone]);
        let found = CfaOffsets::of(&parts.concat(), 0x28);
        assert_eq!(
            [11, 12, 13, 14].map(|at| found.at(at).map(|depth| depth.from_top)),
            [None, Some(true), Some(true), Some(false)]
        );
        assert_eq!(depths(&[&[0x50], &[RET]]), [None, None]);
    }

    /// Check that where paths of different depth meet nothing is claimed, until the stack pointer is restored.
    #[test]
    fn forgets_where_paths_differ() {
        let parts: [&[u8]; 8] = [
            &[0x48, 0x89, 0xe1],       // mov rcx, rsp
            &[0x74, 4],                // je to the push
            &[0x48, 0x83, 0xec, 0x10], // sub rsp, 16
            &[0x90],
            &[0x51], // push rcx
            &[0x90],
            &[0x5c], // pop rsp
            &[RET],
        ];
        let gone = Some((0, false));
        assert_eq!(depths(&parts), [gone, gone, gone, None, None, gone, gone, gone]);
    }

    /// Check that padding before an entry, which is taken for code of the body, does not cast doubt on the entry.
    #[test]
    fn guesses_do_not_outweigh_knowledge() {
        let parts: [&[u8]; 5] = [&[0x74, 3], &[0xeb, 0x10], &[0x90], &[0x31, 0xc0], &[RET]];
        let gone = Some((0, false));
        assert_eq!(depths(&parts), [gone, gone, None, gone, gone]);
    }

    /// Check that a stub between two methods is told, and that its own code is not taken for the method's.
    #[test]
    fn tells_stubs_between_methods() {
        let parts: [&[u8]; 3] = [&[RET], &[0x48, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8], &[0xe9, 0, 1, 0, 0]];
        let code = parts.concat();
        let found = CfaOffsets::of(&code, 0x28);
        assert_eq!(found.at(1).map(|depth| (depth.bytes, depth.in_call_stub)), Some((0x30, true)));
        assert_eq!(found.at(11).map(|depth| depth.in_call_stub), Some(true));
    }

    /// Check that a constant which a method puts into the same register before its own jump is not taken for a stub, and
    /// that a stub which jumps to itself, because nothing has been called through it yet, is one.
    #[test]
    fn tells_constants_from_stubs() {
        let moves: &[u8] = &[0x48, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8];
        let parts: [&[u8]; 9] = [
            &[PUSH_RBP],
            &[0x48, 0x83, 0xec, 0x20], // sub rsp, 32
            moves,
            &[0xe9, 1, 0, 0, 0], // jmp over the nop
            &[0x90],
            &[0x48, 0x83, 0xc4, 0x20, POP_RBP, RET], // add rsp, 32; pop rbp; ret
            moves,
            &[0xe9, 0xfb, 0xff, 0xff, 0xff], // jmp to itself
            &[0x90],
        ];
        let code = parts.concat();
        let found = CfaOffsets::of(&code, 0x28);
        let body = CfaOffset { bytes: 0x28, saved: true, in_call_stub: false, from_top: false };
        assert_eq!([5, 15, 21].map(|at| found.at(at)), [Some(body); 3]);
        let stub = CfaOffset { bytes: 0x30, in_call_stub: true, ..body };
        assert_eq!([27, 37].map(|at| found.at(at)), [Some(stub); 2]);
    }
}
