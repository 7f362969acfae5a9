//! Interrupted threads on the small VM of `testing`: at each instruction of a compiled method, in a stub, and in an
//! interpreter of a few instructions.

use super::testing::{CALL_STUB_RETURN, COMPILED, INSTRUCTIONS, INTERPRETER, STACK, STUB, SmallVm, method};
use super::{End, Interrupted, JavaStack, Sample, Unwinder};
use crate::model::{CutReason, VirtAddr};

/// The code of `a.B.run`: a frame of four words around one call, which returns to 0x10.
const RUN: [u8; 24] = [
    0x55, // push rbp
    0x48, 0x83, 0xec, 0x10, // sub rsp, 16
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // nop
    0xe8, 0, 1, 0, 0, // call
    0x48, 0x83, 0xc4, 0x10, // add rsp, 16
    0x5d, // pop rbp
    0xc3, // ret
    0x0f, 0x0b, // ud2
];
/// The code of a stub without a frame.
const STUB_CODE: [u8; 4] = [0x53, 0x90, 0x5b, 0xc3]; // push rbx; nop; pop rbx; ret
/// The way into an interpreted method, and out of it.
const INTERPRETER_CODE: [u8; 16] = [
    0x58, // pop rax
    0x50, // push rax
    0x55, // push rbp
    0x48, 0x89, 0xe5, // mov rbp, rsp
    0x41, 0x55, // push r13
    0xff, 0x23, // jmp [rbx]
    0xc9, // leave
    0x5f, // pop rdi
    0x90, // nop
    0xff, 0xe7, // jmp rdi
    0x90,
];

const fn address(word: u64) -> u64 {
    STACK + 8 * word
}

fn vm() -> SmallVm {
    let vm = SmallVm::new();
    vm.put(COMPILED + INSTRUCTIONS, &[0x90; 0x200]);
    vm.put(COMPILED + INSTRUCTIONS, &RUN);
    vm.put(0x3_2000, b"StubRoutines (1)\0");
    vm.put(0x3_2011, &[0; 64]);
    vm.blob(STUB, 0x3_2000, 0, 0);
    vm.put(STUB + INSTRUCTIONS, &[0xf4; 0x200]);
    vm.put(STUB + INSTRUCTIONS, &STUB_CODE);
    vm
}

/// A stack on which an interpreted frame of `run`, with its frame pointer at word 22, was called by native code, and that
/// by nobody.
fn interpreted() -> Vec<u64> {
    let mut words = vec![0; 64];
    words[22 - 8] = method(0) + 0x100 + 24 + 4;
    words[22 - 3] = method(0);
    words[22 - 2] = address(12);
    words[22 - 1] = address(24);
    words[22] = address(40);
    words[22 + 1] = CALL_STUB_RETURN;
    words[34] = address(48);
    words
}

/// The same, with `run` compiled and called from there: its return address is word 11.
fn compiled() -> Vec<u64> {
    let mut words = interpreted();
    words[11] = INTERPRETER + 0x80;
    words[10] = address(22);
    words
}

fn unwind(unwinder: &mut Unwinder<&SmallVm>, pc: u64, sp: u64, fp: u64, words: &[u64]) -> JavaStack {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = Sample {
        pc: VirtAddr(pc),
        sp: VirtAddr(address(sp)),
        fp: VirtAddr(address(fp)),
        stack: &bytes,
        stack_base: VirtAddr(STACK),
        frozen: None,
        collections: None,
    };
    let thread = Interrupted { at, bcp: address(12), rax: None, rbx: None };
    unwinder.unwind_interrupted(&thread).unwrap()
}

fn names(stack: &JavaStack) -> Vec<String> {
    stack.frames.iter().map(|frame| frame.method.to_string()).collect()
}

/// Check that the caller is found from every instruction of compiled code, and that inlined methods are named only where
/// the frame is whole.
#[test]
fn every_instruction_leads_to_the_caller() {
    let vm = vm();
    let mut unwinder = vm.unwinder();
    let words = compiled();
    let places = [(0, 11, 22), (1, 10, 22), (5, 8, 1), (0xb, 8, 1), (0x10, 8, 1), (0x14, 10, 1), (0x15, 11, 22)];
    for (offset, sp, fp) in places {
        let stack = unwind(&mut unwinder, COMPILED + INSTRUCTIONS + offset, sp, fp, &words);
        let expected: &[&str] = if sp == 8 { &["a.B.inner", "a.B.run", "a.B.run"] } else { &["a.B.run", "a.B.run"] };
        assert_eq!(stack.end, End::Complete, "{offset:#x}: {stack:?}");
        assert_eq!(names(&stack), expected, "{offset:#x}");
    }
}

/// Check that a stub is left behind from each of its instructions, up to the compiled code that called it.
#[test]
fn stubs_lead_to_their_caller() {
    let vm = vm();
    let mut unwinder = vm.unwinder();
    let mut words = compiled();
    words[7] = COMPILED + INSTRUCTIONS + 0x10;
    for (offset, sp) in [(0, 7), (1, 6), (2, 6), (3, 7)] {
        let stack = unwind(&mut unwinder, STUB + INSTRUCTIONS + offset, sp, 1, &words);
        assert_eq!(stack.end, End::Complete, "{offset:#x}: {stack:?}");
        assert_eq!(names(&stack), ["a.B.inner", "a.B.run", "a.B.run"], "{offset:#x}");
    }
}

/// Check that a return address that is none cuts the stack behind the frame that is certain, and gives no other frame.
#[test]
fn wrong_callers_are_refused() {
    let vm = vm();
    let mut unwinder = vm.unwinder();
    let mut words = compiled();
    for wrong in [0, 0x1234, COMPILED + INSTRUCTIONS + 5, COMPILED + INSTRUCTIONS + 0x18] {
        words[11] = wrong;
        let stack = unwind(&mut unwinder, COMPILED + INSTRUCTIONS + 5, 8, 1, &words);
        assert_eq!(stack.end, End::Cut(CutReason::MidFrame), "{wrong:#x}");
        assert_eq!(names(&stack), ["a.B.inner", "a.B.run"], "{wrong:#x}");
    }
    words[7] = 0x1234;
    let stack = unwind(&mut unwinder, STUB + INSTRUCTIONS + 3, 7, 1, &words);
    assert_eq!((stack.end, stack.frames.len()), (End::Cut(CutReason::MidFrame), 0));
}

/// Check that in the interpreter the frame is found before it is made, while it is, and after it has gone.
#[test]
fn the_interpreter_is_unwound_anywhere() {
    let vm = vm();
    let mut unwinder = vm.unwinder();
    vm.put(STUB + INSTRUCTIONS, &INTERPRETER_CODE);
    let own = STUB + INSTRUCTIONS;
    unwinder.fixed.interpreter = VirtAddr(own)..VirtAddr(own + 0x100);
    let mut words = interpreted();
    // A second frame was called from the first, which noted its stack pointer: word 12.
    words[11] = own + 0x80;
    words[10] = address(22);
    let cases = [
        // At the entry, with the return address taken off the stack, and put back.
        (0, 11, 22, 1),
        (1, 12, 22, 1),
        (2, 11, 22, 1),
        // With a frame pointer, but nothing else of the frame yet.
        (6, 10, 10, 1),
        // In the body, and after the frame has gone.
        (8, 13, 22, 1),
        (10, 13, 22, 1),
        (11, 11, 22, 1),
        (12, 12, 22, 1),
    ];
    for (offset, sp, fp, frames) in cases {
        let stack = unwind(&mut unwinder, own + offset, sp, fp, &words);
        assert_eq!(stack.end, End::Complete, "{offset}: {stack:?}");
        assert_eq!(names(&stack), vec!["a.B.run"; frames], "{offset}");
    }
    // What the frame pointer leads to did not call with this stack pointer.
    let stack = unwind(&mut unwinder, own + 12, 11, 22, &words);
    assert_eq!((stack.end, stack.frames.len()), (End::Cut(CutReason::MidFrame), 0));
}

/// Check that an anchor without an address takes the one that the last call has pushed, and that an empty one is none.
#[test]
fn anchors_lead_to_frames() {
    let bytes: Vec<u8> = [7_u64, 8, 9].iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = |sp, pc| Sample::at_anchor(VirtAddr(sp), VirtAddr(pc), VirtAddr(1), &bytes, VirtAddr(STACK));
    assert_eq!(at(address(2), 0).map(|sample| sample.pc), Some(VirtAddr(8)));
    assert_eq!(at(address(2), 5).map(|sample| (sample.pc, sample.sp)), Some((VirtAddr(5), VirtAddr(address(2)))));
    assert!(at(0, 5).is_none() && at(address(0), 0).is_none() && at(address(9), 0).is_none());
}
