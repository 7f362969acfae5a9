//! What an x86-64 instruction means for a probe that sits on it, or that would rather sit behind it.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

use crate::model::ProbeCost;

/// Whether the kernel emulates this instruction under a uprobe instead of single-stepping it: `push`, `jmp`, `jcc`
/// and `call` with relative targets, and the one-byte `nop` (`arch/x86/kernel/uprobes.c`, `branch_setup_xol_ops` and
/// `push_setup_xol_ops`). Decided from the bytes, as the kernel does.
fn is_emulated(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0xe8 | 0xe9 | 0xeb, ..]
            | [0x70..=0x7f, ..]
            | [0x0f, 0x80..=0x8f, ..]
            | [0x90, ..]
    )
}

/// Whether the kernel takes no probe on this instruction: one with a lock or segment prefix, or one that a user cannot
/// run or that traps (`is_prefix_bad` and the `good_insns` tables of the same file). A refusal that is not foreseen here
/// is found when the probe is attached.
fn is_refused(instruction: &Instruction, bytes: &[u8]) -> bool {
    let prefixed = bytes.iter().map_while(|byte| match byte {
        0x26 | 0x2e | 0x36 | 0x3e | 0xf0 => Some(true),
        0x64..=0x67 | 0xf2 | 0xf3 => Some(false),
        _ => None,
    });
    instruction.is_invalid()
        || instruction.is_privileged()
        || instruction.flow_control() == FlowControl::Interrupt
        || prefixed.into_iter().any(|bad| bad)
}

/// What a hit of a probe on this instruction costs; `None` if the kernel refuses it. `bytes` begin with the instruction.
pub(super) fn cost(instruction: &Instruction, bytes: &[u8]) -> Option<ProbeCost> {
    if is_refused(instruction, bytes) {
        None
    } else if is_emulated(bytes) {
        Some(ProbeCost::Emulated)
    } else {
        Some(ProbeCost::SingleStepped)
    }
}

/// What a BPF program may read at a call: the stack pointer (with the return address that it points at), the caller's
/// frame pointer, the `JNIEnv*` in the first argument, and what a stub leaves in `r10`. A probe never moves behind an instruction that changes one of
/// these.
const KEPT: [Register; 4] = [Register::RSP, Register::RBP, Register::RDI, Register::R10];
/// The same of the other arguments, where these are told.
const ARGUMENTS: [Register; 5] = [Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// What a program reads at a call, so that no probe moves behind an instruction that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kept {
    /// What every program reads.
    #[default]
    Always,
    /// The arguments, too.
    WithArguments,
}

/// Whether a probe may sit behind this instruction instead of on it: control always goes on to the next one, and what a
/// program may read stays.
pub(super) fn can_be_passed(instruction: &Instruction, info: &mut InstructionInfoFactory, keep: Kept) -> bool {
    if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next || instruction.is_privileged() {
        return false;
    }
    if matches!(instruction.code(), Code::Syscall | Code::Sysenter) || instruction.is_stack_instruction() {
        return false;
    }
    let info = info.info(instruction);
    let changes = |access: OpAccess| {
        !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    };
    let arguments = if keep == Kept::WithArguments { &ARGUMENTS[..] } else { &[] };
    let kept = |register: Register| KEPT.iter().chain(arguments).any(|kept| *kept == register.full_register());
    let changes_kept = info.used_registers().iter().any(|used| changes(used.access()) && kept(used.register()));
    let writes_stack = info
        .used_memory()
        .iter()
        .any(|memory| changes(memory.access()) && memory.base().full_register() == Register::RSP);
    !changes_kept && !writes_stack
}

/// Whether this jumps to an address that only the running program knows, such as the entry of a jump table. A jump
/// through a fixed slot (a PLT stub) is none: it leaves the function.
pub(super) fn is_computed_jump(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::IndirectBranch
        && !(instruction.op0_kind() == OpKind::Memory && instruction.is_ip_rel_memory_operand())
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    /// Check the instructions that the kernel emulates, and look-alikes that it does not.
    #[test]
    fn emulated_as_the_kernel_decides() {
        let emulated: [&[u8]; 8] = [
            &[0x55],                   // push rbp
            &[0x41, 0x57],             // push r15
            &[0xe9, 0, 0, 0, 0],       // jmp
            &[0xeb, 0],                // jmp short
            &[0x74, 0],                // je short
            &[0x0f, 0x84, 0, 0, 0, 0], // je
            &[0xe8, 0, 0, 0, 0],       // call
            &[0x90],                   // nop
        ];
        assert!(emulated.iter().all(|bytes| is_emulated(bytes)));
        let stepped: [&[u8]; 7] = [
            &[0x48, 0x89, 0xf8],             // mov rax, rdi
            &[0xf3, 0x0f, 0x1e, 0xfa],       // endbr64
            &[0x48, 0x83, 0xec, 0x18],       // sub rsp, 24
            &[0x48, 0x8d, 0x05, 0, 0, 0, 0], // lea rax, [rip]
            &[0xff, 0x25, 0, 0, 0, 0],       // jmp [rip]
            &[0x41, 0x90],                   // xchg r8, rax
            &[0x6a, 0x01],                   // push 1
        ];
        assert!(!stepped.iter().any(|bytes| is_emulated(bytes)));
    }

    /// Check that what the kernel refuses is foreseen, and that other prefixes are no reason.
    #[test]
    fn refusals() {
        let refused: [&[u8]; 5] = [
            &[0xf0, 0x48, 0xff, 0x07], // lock inc [rdi]
            &[0x3e, 0xff, 0xe0],       // notrack jmp rax
            &[0xcc],                   // int3
            &[0xf4],                   // hlt
            &[0x06],                   // no instruction of 64-bit code
        ];
        for bytes in refused {
            assert_eq!(cost(&decode(bytes), bytes), None, "{bytes:x?}");
        }
        let taken: [&[u8]; 3] = [
            &[0x66, 0x0f, 0xef, 0xc0],                   // pxor xmm0, xmm0
            &[0xf3, 0x0f, 0x1e, 0xfa],                   // endbr64
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], // mov rax, fs:0
        ];
        for bytes in taken {
            assert_eq!(cost(&decode(bytes), bytes), Some(ProbeCost::SingleStepped), "{bytes:x?}");
        }
    }

    /// Check what a probe may sit behind.
    #[test]
    fn passes_only_what_changes_nothing() {
        let mut info = InstructionInfoFactory::new();
        let passed: [&[u8]; 8] = [
            &[0xf3, 0x0f, 0x1e, 0xfa],       // endbr64
            &[0x48, 0x89, 0xf8],             // mov rax, rdi
            &[0x48, 0x85, 0xd2],             // test rdx, rdx
            &[0x31, 0xc0],                   // xor eax, eax
            &[0x48, 0x8b, 0x07],             // mov rax, [rdi]
            &[0x4c, 0x8d, 0x5c, 0x24, 0x08], // lea r11, [rsp+8]
            &[0x48, 0x89, 0xd6],             // mov rsi, rdx
            &[0x66, 0x0f, 0xef, 0xc0],       // pxor xmm0, xmm0
        ];
        for bytes in passed {
            assert!(can_be_passed(&decode(bytes), &mut info, Kept::Always), "{bytes:x?}");
        }
        let not_passed: [&[u8]; 11] = [
            &[0x48, 0x83, 0xec, 0x18], // sub rsp, 24: moves the stack pointer
            &[0x55],                   // push rbp
            &[0x48, 0x89, 0xd7],       // mov rdi, rdx: changes the JNIEnv*
            &[0x31, 0xff],             // xor edi, edi
            &[0x48, 0x89, 0xe5],       // mov rbp, rsp: changes the frame pointer
            &[0x48, 0x89, 0x04, 0x24], // mov [rsp], rax: changes the return address
            &[0x41, 0x89, 0xc2],       // mov r10d, eax: changes what a stub has left
            &[0xc3],                   // ret
            &[0x0f, 0x05],             // syscall
            &[0xf4],                   // hlt
            &[0x0f, 0x0b],             // ud2
        ];
        for bytes in not_passed {
            assert!(!can_be_passed(&decode(bytes), &mut info, Kept::Always), "{bytes:x?}");
        }
        // mov rsi, rdx and xor eax, eax: only where arguments are told does the first one change something.
        let passes = |bytes: &[u8], keep| can_be_passed(&decode(bytes), &mut InstructionInfoFactory::new(), keep);
        assert!(!passes(&[0x48, 0x89, 0xd6], Kept::WithArguments) && passes(&[0x31, 0xc0], Kept::WithArguments));
    }

    /// Check that a jump table is told from a stub of the procedure linkage table.
    #[test]
    fn computed_jumps() {
        assert!(is_computed_jump(&decode(&[0xff, 0xe0]))); // jmp rax
        assert!(is_computed_jump(&decode(&[0x3e, 0xff, 0xe0]))); // notrack jmp rax
        assert!(is_computed_jump(&decode(&[0xff, 0x24, 0xc5, 0, 0, 0, 0]))); // jmp [rax*8]
        assert!(!is_computed_jump(&decode(&[0xff, 0x25, 0, 0, 0, 0]))); // jmp [rip]
        assert!(!is_computed_jump(&decode(&[0xeb, 0])));
    }
}
