//! One rule: where the registers of a frame's caller are, while the frame is at a certain instruction.

use std::array;

use gimli::{
    CfaRule, CommonInformationEntry, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location,
    Register, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow, Value, X86_64,
};

use super::stack_copy::StackCopy;
use crate::model::{CutReason, VirtAddr};

/// The most operations that computing one register may take; the few that compilers write take ten.
const MAX_OPERATIONS: u32 = 1_000;
/// No expression of a real library comes near this, in bytes.
const MAX_EXPRESSION: usize = 4 << 10;
/// General registers and the return address, as DWARF numbers them.
const REGISTERS: usize = 17;
/// The registers that a function leaves as they were, unless its rule says otherwise.
const PRESERVED: [Register; 6] = [X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The registers of a thread in one frame, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegisterFile([Option<u64>; REGISTERS]);

impl RegisterFile {
    pub(super) fn new(pc: VirtAddr, sp: VirtAddr, fp: Option<VirtAddr>) -> Self {
        let mut file = Self([None; REGISTERS]);
        file.set(X86_64::RA, Some(pc.0));
        file.set(X86_64::RSP, Some(sp.0));
        file.set(X86_64::RBP, fp.map(|fp| fp.0));
        file
    }

    pub(super) fn pc(&self) -> VirtAddr {
        VirtAddr(self.get(X86_64::RA).unwrap_or_default())
    }

    pub(super) fn sp(&self) -> VirtAddr {
        VirtAddr(self.get(X86_64::RSP).unwrap_or_default())
    }

    pub(super) fn fp(&self) -> Option<VirtAddr> {
        self.get(X86_64::RBP).map(VirtAddr)
    }

    fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied().flatten()
    }

    /// Other registers than these lead to no caller.
    fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(place) = self.0.get_mut(usize::from(register.0)) {
            *place = value;
        }
    }

    /// What is left of them in the caller if nothing is said about them.
    fn preserved(&self) -> Self {
        Self(array::from_fn(|number| {
            let is_preserved = PRESERVED.iter().any(|register| usize::from(register.0) == number);
            self.0[number].filter(|_| is_preserved)
        }))
    }
}

/// Where the caller's stack pointer is, to which all else is relative (the canonical frame address).
#[derive(Debug, Clone, PartialEq, Eq)]
enum FrameAddress {
    At(Register, i64),
    Computed(Box<[u8]>),
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// Nowhere.
    Lost,
    /// Still in the register.
    Same,
    /// In another one.
    In(Register),
    /// On the stack, so far from the frame address.
    At(i64),
    /// On the stack, at a computed address.
    AtComputed(Box<[u8]>),
    /// It is so far from the frame address itself.
    Distance(i64),
    /// It is computed.
    Computed(Box<[u8]>),
}

/// The rule of a frame at an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    frame: FrameAddress,
    origins: Box<[(Register, Origin)]>,
    return_address: Register,
    encoding: gimli::Encoding,
    /// Whether the frame is the kernel's, between a signal handler and what it interrupted: the caller has not called.
    pub(super) is_signal: bool,
}

impl Rule {
    /// Takes what the rule needs out of a row of the table.
    pub(super) fn of<'a, S: UnwindSection<Slice<'a>>>(
        row: &UnwindTableRow<usize>,
        section: &S,
        common: &CommonInformationEntry<Slice<'a>>,
    ) -> Option<Self> {
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => FrameAddress::At(*register, *offset),
            CfaRule::Expression(expression) => FrameAddress::Computed(bytes(expression, section)?),
        };
        let origins = row.registers().map(|(register, rule)| Some((*register, origin(rule, section)?)));
        let origins = origins.collect::<Option<_>>()?;
        let (return_address, encoding) = (common.return_address_register(), common.encoding());
        Some(Self { frame, origins, return_address, encoding, is_signal: common.is_signal_trampoline() })
    }

    /// Follows the rule from the registers of the frame to those of its caller; `None` if the frame is the first of its
    /// thread.
    pub(super) fn follow(&self, here: &RegisterFile, stack: &StackCopy<'_>) -> Result<Option<RegisterFile>, CutReason> {
        let frame = match &self.frame {
            FrameAddress::At(register, offset) => {
                here.get(*register).ok_or(CutReason::NoUnwindInfo)?.wrapping_add_signed(*offset)
            }
            FrameAddress::Computed(bytes) => self.evaluate(bytes, here, stack, None)?,
        };
        let mut caller = here.preserved();
        caller.set(X86_64::RSP, Some(frame));
        for (register, origin) in &self.origins {
            caller.set(*register, self.value(*register, origin, frame, here, stack)?);
        }
        caller.set(X86_64::RA, caller.get(self.return_address));
        Ok(Some(caller).filter(|caller| !caller.pc().is_null()))
    }

    fn value(
        &self,
        register: Register,
        origin: &Origin,
        frame: u64,
        here: &RegisterFile,
        stack: &StackCopy<'_>,
    ) -> Result<Option<u64>, CutReason> {
        Ok(match origin {
            Origin::Lost => None,
            Origin::Same => here.get(register),
            Origin::In(other) => here.get(*other),
            Origin::At(offset) => match stack.word(VirtAddr(frame.wrapping_add_signed(*offset))) {
                // Towards a function's end compilers go on to name the place of a register that has been popped: it is below the stack.
                Err(CutReason::BadFrame) if register != self.return_address => here.get(register),
                word => Some(word?),
            },
            Origin::AtComputed(bytes) => {
                let address = self.evaluate(bytes, here, stack, Some(frame))?;
                Some(stack.word(VirtAddr(address))?)
            }
            Origin::Distance(offset) => Some(frame.wrapping_add_signed(*offset)),
            Origin::Computed(bytes) => Some(self.evaluate(bytes, here, stack, Some(frame))?),
        })
    }

    fn evaluate(
        &self,
        bytes: &[u8],
        here: &RegisterFile,
        stack: &StackCopy<'_>,
        first: Option<u64>,
    ) -> Result<u64, CutReason> {
        let wrong = |_error| CutReason::NoUnwindInfo;
        let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), self.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut result = evaluation.evaluate().map_err(wrong)?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(stack.word(VirtAddr(address))?)).map_err(wrong)?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = here.get(register).ok_or(CutReason::NoUnwindInfo)?;
                    evaluation.resume_with_register(Value::Generic(value)).map_err(wrong)?
                }
                _ => return Err(CutReason::NoUnwindInfo),
            };
        }
        match evaluation.as_result().last().map(|piece| &piece.location) {
            Some(Location::Address { address }) => Ok(*address),
            Some(Location::Value { value: Value::Generic(value) }) => Ok(*value),
            _ => Err(CutReason::NoUnwindInfo),
        }
    }
}

fn origin<'a, S: UnwindSection<Slice<'a>>>(rule: &RegisterRule<usize>, section: &S) -> Option<Origin> {
    Some(match rule {
        RegisterRule::Undefined => Origin::Lost,
        RegisterRule::SameValue => Origin::Same,
        RegisterRule::Offset(offset) => Origin::At(*offset),
        RegisterRule::ValOffset(offset) => Origin::Distance(*offset),
        RegisterRule::Register(other) => Origin::In(*other),
        RegisterRule::Expression(expression) => Origin::AtComputed(bytes(expression, section)?),
        RegisterRule::ValExpression(expression) => Origin::Computed(bytes(expression, section)?),
        RegisterRule::Architectural | RegisterRule::Constant(_) => return None,
    })
}

fn bytes<'a, S: UnwindSection<Slice<'a>>>(expression: &UnwindExpression<usize>, section: &S) -> Option<Box<[u8]>> {
    let Expression(slice) = expression.get(section).ok()?;
    (slice.len() <= MAX_EXPRESSION).then(|| slice.slice().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that keeps `rbx` and `rbp`, finds its frame by `rbp`, and is about to pop the latter.
    fn about_to_end() -> Rule {
        let kept = [(X86_64::RBX, -24), (X86_64::RBP, -16), (X86_64::RA, -8)];
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
        Rule {
            frame: FrameAddress::At(X86_64::RBP, 16),
            origins: kept.map(|(register, offset)| (register, Origin::At(offset))).into(),
            return_address: X86_64::RA,
            encoding,
            is_signal: false,
        }
    }

    /// Check that a register that has been popped is taken from where it is, and that a return address cannot be.
    #[test]
    fn what_has_been_popped_is_in_its_register() {
        let words = [0x7000_u64, 0x4000].map(u64::to_le_bytes);
        let stack = |base| StackCopy { base: VirtAddr(base), bytes: words.as_flattened(), probed: &[] };
        let mut here = RegisterFile::new(VirtAddr(0x1000), VirtAddr(0x9000), Some(VirtAddr(0x9000)));
        here.set(X86_64::RBX, Some(5));
        let Ok(Some(caller)) = about_to_end().follow(&here, &stack(0x9000)) else { panic!("no caller") };
        assert_eq!(
            (caller.pc(), caller.sp(), caller.fp()),
            (VirtAddr(0x4000), VirtAddr(0x9010), Some(VirtAddr(0x7000)))
        );
        assert_eq!(caller.get(X86_64::RBX), Some(5));
        assert_eq!(about_to_end().follow(&here, &stack(0x9010)), Err(CutReason::BadFrame));
    }
}
