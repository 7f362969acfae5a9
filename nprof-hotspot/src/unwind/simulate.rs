//! Runs ahead of an interrupted thread, through stubs of the VM that have no frame of a known size, to the place where
//! they are left: there the return address is where it belongs.
//!
//! Only what the stack pointer and the frame pointer depend on is computed, with the values that the thread had. What else
//! the code does is not known and not needed.

use std::collections::{HashSet, VecDeque};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::Interrupted;
use super::stack_copy::StackCopy;
use crate::hotspot::at;
use crate::model::VirtAddr;

/// The longest way out that is followed, over all branches. The largest stubs are unrolled ciphers.
const MAX_INSTRUCTIONS: usize = 6_000;
/// The general registers, by their numbers in instructions.
const REGISTERS: usize = 16;

/// Code of the VM, as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) start: VirtAddr,
    pub(super) bytes: &'a [u8],
}

impl Text<'_> {
    fn from(&self, addr: VirtAddr) -> Option<&[u8]> {
        let offset = usize::try_from(addr.0.checked_sub(self.start.0)?).ok()?;
        self.bytes.get(offset..).filter(|rest| !rest.is_empty())
    }
}

/// What is known of a thread's registers and stack.
#[derive(Debug, Clone)]
pub(super) struct Machine<'a> {
    registers: [Option<u64>; REGISTERS],
    /// Words that were written to the stack on the way, the last ones last.
    written: Vec<(u64, Option<u64>)>,
    stack: StackCopy<'a>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(thread: &Interrupted<'_>, stack: StackCopy<'a>) -> Self {
        let mut machine = Self { registers: [None; REGISTERS], written: Vec::new(), stack };
        machine.set(Register::RSP, Some(thread.at.sp.0));
        machine.set(Register::RBP, Some(thread.at.fp.0));
        machine.set(Register::R13, Some(thread.bcp));
        machine.set(Register::RAX, thread.rax);
        machine.set(Register::RBX, thread.rbx);
        machine
    }

    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.registers.get(slot_of(register)?).copied().flatten()
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(place) = slot_of(register).and_then(|slot| self.registers.get_mut(slot)) {
            *place = value;
        }
    }

    /// The word on the stack at an address.
    pub(super) fn word(&self, addr: u64) -> Option<u64> {
        let written = self.written.iter().rev().find(|(at, _)| *at == addr);
        written.map_or_else(|| self.stack.word(VirtAddr(addr)).ok(), |(_, value)| *value)
    }

    /// The word on top of the stack: the return address, where code is left.
    pub(super) fn top(&self) -> Option<u64> {
        self.word(self.get(Register::RSP)?)
    }

    fn move_sp(&mut self, bytes: i64) {
        self.set(Register::RSP, self.get(Register::RSP).map(|sp| sp.wrapping_add_signed(bytes)));
    }

    fn push(&mut self, value: Option<u64>) {
        self.move_sp(-8);
        if let Some(sp) = self.get(Register::RSP) {
            self.written.push((sp, value));
        }
    }

    /// What a C function leaves behind: the registers that it need not keep are lost.
    fn call(&mut self) {
        use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
        for register in [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11] {
            self.set(register, None);
        }
    }

    /// The address of a memory operand on the stack.
    fn address(&self, instruction: &Instruction) -> Option<u64> {
        let plain = instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None;
        let base = Some(instruction.memory_base()).filter(|base| plain && base.is_gpr64())?;
        Some(self.get(base)?.wrapping_add(instruction.memory_displacement64()))
    }

    /// The value of an operand of eight bytes.
    fn value(&self, instruction: &Instruction, operand: u32) -> Option<u64> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                Some(instruction.op_register(operand)).filter(|r| r.is_gpr64()).and_then(|r| self.get(r))
            }
            OpKind::Memory if instruction.memory_size().size() == 8 => self.word(self.address(instruction)?),
            OpKind::Memory => None,
            _ => instruction.try_immediate(operand).ok(),
        }
    }

    /// Does what an instruction does to the stack and to the registers.
    fn step(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        let target =
            Some(instruction.op0_register()).filter(|r| instruction.op0_kind() == OpKind::Register && r.is_gpr64());
        match (instruction.mnemonic(), target) {
            (Mnemonic::Push, _) => self.push(self.value(instruction, 0)),
            (Mnemonic::Pop, Some(register)) => {
                let value = self.top();
                self.move_sp(8);
                self.set(register, value);
            }
            (Mnemonic::Leave, _) => {
                self.set(Register::RSP, self.get(Register::RBP));
                self.set(Register::RBP, self.top());
                self.move_sp(8);
            }
            (Mnemonic::Mov, Some(register)) => self.set(register, self.value(instruction, 1)),
            (Mnemonic::Mov, None) if instruction.op0_kind() == OpKind::Memory => {
                if let Some(addr) = self.address(instruction) {
                    self.written.push((addr, self.value(instruction, 1)));
                }
            }
            (Mnemonic::Lea, Some(register)) => self.set(register, self.address(instruction)),
            (Mnemonic::Add, Some(register)) => self.compute(instruction, register, u64::wrapping_add),
            (Mnemonic::Sub, Some(register)) => self.compute(instruction, register, u64::wrapping_sub),
            (Mnemonic::And, Some(register)) => self.compute(instruction, register, |a, b| a & b),
            _ => self.forget(instruction, info),
        }
    }

    fn compute(&mut self, instruction: &Instruction, register: Register, operation: fn(u64, u64) -> u64) {
        let value = self.get(register).zip(self.value(instruction, 1)).map(|(a, b)| operation(a, b));
        self.set(register, value);
    }

    /// Any other instruction: what it writes is not known from then on.
    fn forget(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        let increment = i64::from(instruction.stack_pointer_increment());
        for used in info.info(instruction).used_registers() {
            let writes = !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead);
            let register = used.register().full_register();
            if writes && !(increment != 0 && register == Register::RSP) {
                self.set(register, None);
            }
        }
        self.move_sp(increment);
    }
}

fn slot_of(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

/// How code is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// By `ret`: the return address is on top of the stack.
    Return,
    /// To an address in a register, and what that is, if known.
    ToRegister(Option<u64>),
    /// To an address in memory.
    ToMemory,
    /// To other code.
    Elsewhere(VirtAddr),
    /// Not yet: a frame with a frame pointer begins here, the return address is on top of the stack.
    Enter,
    /// Not yet: a frame with a frame pointer ends here.
    Leave,
}

/// A way out of a piece of code.
#[derive(Debug, Clone)]
pub(super) struct WayOut<'a> {
    pub(super) exit: Exit,
    pub(super) machine: Machine<'a>,
    /// Whether no branch was taken or passed on the way.
    pub(super) straight: bool,
}

/// The ways out of a piece of code, the nearest first.
pub(super) struct WaysOut<'a> {
    text: Text<'a>,
    open: VecDeque<(VirtAddr, Machine<'a>, bool)>,
    seen: HashSet<u64>,
    info: InstructionInfoFactory,
    left: usize,
    /// Whether beginning and end of a frame count as ways out.
    at_frames: bool,
}

impl<'a> WaysOut<'a> {
    pub(super) fn new(text: Text<'a>, pc: VirtAddr, machine: Machine<'a>) -> Self {
        Self {
            text,
            open: VecDeque::from([(pc, machine, true)]),
            seen: HashSet::new(),
            info: InstructionInfoFactory::new(),
            left: MAX_INSTRUCTIONS,
            at_frames: false,
        }
    }

    /// The same, but no further than to where a frame begins or ends, and not beyond `instructions`.
    pub(super) fn to_frames(text: Text<'a>, pc: VirtAddr, machine: Machine<'a>, instructions: usize) -> Self {
        Self { at_frames: true, left: instructions, ..Self::new(text, pc, machine) }
    }

    fn decode(&self, addr: VirtAddr) -> Option<Instruction> {
        let bytes = self.text.from(addr)?;
        Some(Decoder::with_ip(64, bytes, addr.0, DecoderOptions::NONE).decode()).filter(|i| !i.is_invalid())
    }

    /// Follows one path; `None` if it leads nowhere.
    fn follow(&mut self, pc: VirtAddr, mut machine: Machine<'a>, mut straight: bool) -> Option<WayOut<'a>> {
        let mut here = pc;
        loop {
            let instruction = self.decode(here)?;
            self.left = self.left.checked_sub(1)?;
            if !self.seen.insert(here.0) {
                return None;
            }
            let target = VirtAddr(instruction.near_branch_target());
            here = VirtAddr(instruction.next_ip());
            let exit = match instruction.flow_control() {
                FlowControl::Return => Some(Exit::Return),
                FlowControl::IndirectBranch if instruction.op0_kind() == OpKind::Register => {
                    Some(Exit::ToRegister(machine.get(instruction.op0_register())))
                }
                FlowControl::IndirectBranch => Some(Exit::ToMemory),
                FlowControl::UnconditionalBranch if self.text.from(target).is_none() => Some(Exit::Elsewhere(target)),
                FlowControl::Next if self.at_frames => self.frame(&instruction),
                FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => return None,
                _ => None,
            };
            if let Some(exit) = exit {
                return Some(WayOut { exit, machine, straight });
            }
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => here = target,
                FlowControl::ConditionalBranch => {
                    straight = false;
                    self.open.push_back((target, machine.clone(), false));
                }
                // A call of the next instruction only pushes that one's address.
                FlowControl::Call if target == here => machine.push(Some(here.0)),
                FlowControl::Call | FlowControl::IndirectCall => machine.call(),
                _ => machine.step(&instruction, &mut self.info),
            }
        }
    }

    /// Whether a frame begins or ends with this instruction.
    fn frame(&self, instruction: &Instruction) -> Option<Exit> {
        if instruction.mnemonic() == Mnemonic::Leave {
            return Some(Exit::Leave);
        }
        let pushes = instruction.mnemonic() == Mnemonic::Push && instruction.op0_register() == Register::RBP;
        let next = self.decode(VirtAddr(instruction.next_ip())).filter(|_| pushes)?;
        let sets = next.mnemonic() == Mnemonic::Mov && next.op0_register() == Register::RBP;
        (sets && next.op1_register() == Register::RSP).then_some(Exit::Enter)
    }
}

impl<'a> Iterator for WaysOut<'a> {
    type Item = WayOut<'a>;

    fn next(&mut self) -> Option<WayOut<'a>> {
        while let Some((pc, machine, straight)) = self.open.pop_front() {
            let way = self.follow(pc, machine, straight);
            if way.is_some() {
                return way;
            }
        }
        None
    }
}

/// The most bytes that a call instruction takes.
pub(super) const MAX_CALL: u64 = 8;

/// Whether `bytes`, which end at a return address, end with a call. Those that start later are looked at as well: what
/// lies before is not known to be the start of an instruction.
pub(super) fn ends_with_call(bytes: &[u8]) -> bool {
    (2..=bytes.len()).any(|len| {
        let call = &bytes[bytes.len() - len..];
        let instruction = Decoder::new(64, call, DecoderOptions::NONE).decode();
        let calls = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        calls && instruction.len() == len
    })
}

/// The address `words` words above the stack pointer of a machine.
pub(super) fn above(machine: &Machine<'_>, words: u64) -> Option<VirtAddr> {
    Some(at(VirtAddr(machine.get(Register::RSP)?), 8 * words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Sample;

    const START: VirtAddr = VirtAddr(0x4000);
    const SP: VirtAddr = VirtAddr(0x7000);

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// How code is left, with the word on top of the stack, the stack pointer and the frame pointer there.
    type Left = (Exit, Option<u64>, Option<u64>, Option<u64>);

    /// The exits of `code` with the return addresses, stack and frame pointers there.
    fn exits(code: &[u8], stack: &[u8], at_frames: bool) -> Vec<Left> {
        let stack = StackCopy { base: SP, bytes: stack, is_chunk: false };
        let (fp, stack_base) = (VirtAddr(0x7018), SP);
        let at = Sample { pc: START, sp: SP, fp, stack: stack.bytes, stack_base, frozen: None, collections: None };
        let thread = Interrupted { at, bcp: 0x99, rax: None, rbx: None };
        let machine = Machine::new(&thread, stack);
        let text = Text { start: START, bytes: code };
        let ways = WaysOut { at_frames, ..WaysOut::new(text, START, machine) };
        ways.map(|way| (way.exit, way.machine.top(), way.machine.get(Register::RSP), way.machine.get(Register::RBP)))
            .collect()
    }

    /// Check that pushes and pops on the way are undone, past a call and on both sides of a branch.
    #[test]
    fn finds_the_return_address() {
        let code = [
            0x53, // push rbx
            0xff, 0xd0, // call rax
            0x5b, // pop rbx
            0x74, 5, // je to the `leave`
            0x48, 0x83, 0xc4, 0x10, // add rsp, 16
            0xc3, // ret
            0xc9, 0xc3, // leave; ret
        ];
        let stack = words(&[1, 2, 3, 4, 5]);
        let expected =
            [(Exit::Return, Some(3), Some(0x7010), Some(0x7018)), (Exit::Return, Some(5), Some(0x7020), Some(4))];
        assert_eq!(exits(&code, &stack, false), expected);
    }

    /// Check that a return address that is taken from the stack and put back elsewhere is followed.
    #[test]
    fn follows_moved_return_addresses() {
        let code = [
            0x58, // pop rax
            0x48, 0x83, 0xec, 0x20, // sub rsp, 32
            0x48, 0x83, 0xe4, 0xf0, // and rsp, -16
            0x50, // push rax
            0x41, 0xff, 0xe3, // jmp r11
        ];
        let stack = words(&[7, 8]);
        assert_eq!(exits(&code, &stack, false), [(Exit::ToRegister(None), Some(7), Some(0x6fd8), Some(0x7018))]);
        let code = [0x5f, 0x4c, 0x89, 0xec, 0xff, 0xe7]; // pop rdi; mov rsp, r13; jmp rdi
        assert_eq!(exits(&code, &stack, false), [(Exit::ToRegister(Some(7)), None, Some(0x99), Some(0x7018))]);
    }

    /// Check that frames are seen where they begin and end, and that loops and traps end a path.
    #[test]
    fn sees_frames() {
        let stack = words(&[7]);
        let enter = [0x55, 0x48, 0x89, 0xe5, 0xc3]; // push rbp; mov rbp, rsp; ret
        assert_eq!(exits(&enter, &stack, true)[0].0, Exit::Enter);
        assert_eq!(exits(&[0x90, 0xc9, 0xc3], &stack, true)[0].0, Exit::Leave);
        assert_eq!(exits(&[0xeb, 0xfe], &stack, true), []);
        assert_eq!(exits(&[0x0f, 0x0b], &stack, true), []);
        assert_eq!(exits(&[0xe9, 0, 1, 0, 0], &stack, true)[0].0, Exit::Elsewhere(VirtAddr(0x4105)));
    }

    /// Check which bytes may stand before a return address.
    #[test]
    fn knows_calls() {
        assert!(ends_with_call(&[0, 0, 0, 0xe8, 1, 2, 3, 4])); // call rel32
        assert!(ends_with_call(&[0x90, 0x90, 0xff, 0xd0])); // call rax
        assert!(ends_with_call(&[0x41, 0xff, 0x93, 1, 2, 3, 0])); // call [r11+...]
        assert!(!ends_with_call(&[0x90; 8]));
    }
}
