//! Checks that the known stack is found, whatever the program was built with.

use super::{FUNCTIONS, NativeEnd, ProbedReturn, Program, USUAL, functions};
use crate::model::{CutReason, VirtAddr};
use crate::native::{NativeSample, NativeUnwinder, Registers};

/// Builds the program and checks that its stack is the known one, complete, and found with this much guessing.
fn finds_the_known_stack(flags: &[&str], is_guess: bool) {
    let program = Program::build(flags);
    for in_thread in [false, true] {
        let waiting = program.start(in_thread);
        let stack = waiting.unwind();
        let names = waiting.names(&stack.frames);
        let known = functions(&names).into_iter().filter(|name| FUNCTIONS.contains(name) || *name == "main");
        let expected = FUNCTIONS.into_iter().filter(|name| !flags.contains(&"-g0") || *name != "inlined");
        let main = (!in_thread).then_some("main");
        assert_eq!(known.collect::<Vec<_>>(), expected.chain(main).collect::<Vec<_>>(), "{flags:?}");
        assert_eq!((stack.end, stack.guessed > 0), (NativeEnd::Complete, is_guess), "{flags:?} {names:?}");
        let last = names.last().unwrap();
        assert_eq!(
            if in_thread { &*last.library } else { &*last.function },
            if in_thread { "libc.so.6" } else { "_start" }
        );
    }
}

/// Check that optimised code without frame pointers is unwound to the first frame of its thread.
#[test]
fn optimised_code_is_unwound() {
    finds_the_known_stack(USUAL, false);
}

/// Check the same with frame pointers, without optimisation, and where the program lies at a fixed address.
#[test]
fn other_code_is_unwound() {
    finds_the_known_stack(&["-O2", "-g", "-fno-omit-frame-pointer"], false);
    finds_the_known_stack(&["-O0", "-g0"], false);
    finds_the_known_stack(&["-O2", "-g", "-no-pie"], false);
}

/// Check that the table for debuggers will do where there is none in memory.
#[test]
fn debug_frame_will_do() {
    finds_the_known_stack(&["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"], false);
}

/// With frame pointers and no table.
const NO_TABLE: [&str; 5] =
    ["-O2", "-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-omit-frame-pointer"];

/// Check that frame pointers are followed where there is no table, and that the stack says so.
#[test]
fn frame_pointers_are_a_guess() {
    finds_the_known_stack(&NO_TABLE, true);
}

/// Check that no caller is left out of a guess where a function has kept its caller's frame pointer and has none of its own yet.
#[test]
fn a_function_that_begins_leads_to_its_caller() {
    let waiting = Program::build(&NO_TABLE).start(false);
    let whole = waiting.unwind();
    let mut unwinder = NativeUnwinder::new(waiting.pid());
    unwinder.set_libraries(&waiting.libraries());
    let caller = whole.frames[3].address;
    let NativeEnd::Java(Registers { sp, fp, .. }) = unwinder.unwind(&waiting.sample(), &|pc| pc == caller).end else {
        panic!("{whole:?}")
    };
    let (pushed, fp) = (VirtAddr(sp.0 - 16), fp.unwrap());
    let mut stack = waiting.stack.clone();
    let place = usize::try_from(pushed.0 - waiting.sp).unwrap();
    stack[place..place + 8].copy_from_slice(&fp.0.to_le_bytes());
    let sample = NativeSample { pc: caller, sp: pushed, fp: Some(fp), stack: &stack, ..waiting.sample() };
    assert_eq!(unwinder.unwind(&sample, &|_| false).frames[1..], whole.frames[3..]);
}

/// Check that code with neither is cut, and not followed to a wrong caller.
#[test]
fn nothing_to_go_by_is_said() {
    let nothing = ["-O2", "-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"];
    let waiting = Program::build(&nothing).start(false);
    let mut unwinder = NativeUnwinder::new(waiting.pid());
    unwinder.set_libraries(&waiting.libraries());
    let stack = unwinder.unwind(&NativeSample { fp: None, ..waiting.sample() }, &|_| false);
    assert_eq!((stack.frames.len(), stack.end), (1, NativeEnd::Cut(CutReason::NoUnwindInfo)));
}

/// Check that unwinding stops at the first address that is said to be Java code, with the registers that the caller has
/// there.
#[test]
fn stops_at_java_code() {
    let waiting = Program::build(USUAL).start(false);
    let whole = waiting.unwind();
    let mut unwinder = NativeUnwinder::new(waiting.pid());
    unwinder.set_libraries(&waiting.libraries());
    let java = whole.frames[3].address;
    let stack = unwinder.unwind(&waiting.sample(), &|pc| pc == java);
    assert_eq!(stack.frames, whole.frames[..3]);
    let NativeEnd::Java(rest) = stack.end else { panic!("{:?}", stack.end) };
    assert_eq!(rest.pc, java);
    // A call pushes its return address: it stands directly below the caller's stack pointer.
    let slot = usize::try_from(rest.sp.0 - 8 - waiting.sp).unwrap();
    assert_eq!(waiting.stack[slot..slot + 8], java.0.to_le_bytes());
    let Registers { pc, sp, fp } = rest;
    let sample = NativeSample { pc, sp, fp, ..waiting.sample() };
    let beyond = unwinder.unwind(&sample, &|_| false);
    assert_eq!(beyond.frames[1..], whole.frames[4..]);
    assert_eq!(unwinder.unwind(&sample, &|pc| pc == java).end, NativeEnd::Java(rest));
}

/// Check that the frame of a signal handler leads to what the signal interrupted, at the very instruction.
#[test]
fn signal_handlers_lead_to_what_they_interrupted() {
    let waiting = Program::build(USUAL).start_as(Some("signal"));
    let stack = waiting.unwind();
    let names = waiting.names(&stack.frames);
    assert_eq!((stack.end, stack.guessed), (NativeEnd::Complete, 0), "{names:?}");
    let expected = FUNCTIONS.into_iter().chain(["handler", "interrupted", "main"]);
    let known = functions(&names).into_iter().filter(|name| expected.clone().any(|expected| expected == *name));
    assert_eq!(known.collect::<Vec<_>>(), expected.clone().collect::<Vec<_>>(), "{names:?}");
    // The innermost has not called, and neither has what was interrupted.
    assert_eq!(stack.frames.iter().filter(|frame| !frame.is_return).count(), 2, "{names:?}");
}

/// Check that a thread in a system call is unwound by what `/proc` tells, which leaves out the frame pointer.
#[test]
fn system_calls_are_unwound_without_frame_pointer() {
    let waiting = Program::build(USUAL).start(false);
    let path = format!("/proc/{}/syscall", waiting.pid());
    let registers = loop {
        // `running`, or the call's number, six arguments, stack pointer and program counter. It is about to read its
        // input.
        let text = std::fs::read_to_string(&path).unwrap();
        let words: Vec<u64> = text.split_whitespace().filter_map(hexadecimal).collect();
        if text.starts_with("0 0x0 ") {
            break words;
        }
    };
    let [.., sp, pc] = registers[..] else { panic!("{registers:x?}") };
    let stack = super::copy(&super::ProcessMemory::new(waiting.pid()), sp);
    let mut unwinder = NativeUnwinder::new(waiting.pid());
    unwinder.set_libraries(&waiting.libraries());
    let (pc, sp) = (VirtAddr(pc), VirtAddr(sp));
    let found =
        unwinder.unwind(&NativeSample { pc, sp, fp: None, stack: &stack, stack_base: sp, probed: &[] }, &|_| false);
    let names = waiting.names(&found.frames);
    assert_eq!((found.end, found.guessed), (NativeEnd::Complete, 0), "{names:?}");
    let known: Vec<_> = functions(&names).into_iter().filter(|name| FUNCTIONS.contains(name)).collect();
    assert_eq!(known, FUNCTIONS);
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Check that a copy that is too short gives the innermost frames of the whole, and says that it is cut.
#[test]
fn short_copies_give_right_prefixes() {
    let waiting = Program::build(USUAL).start(true);
    let (libraries, whole) = (waiting.libraries(), waiting.unwind());
    let mut cut = 0;
    for bytes in (0..1_600).step_by(40) {
        let stack = waiting.unwind_with(&libraries, &waiting.stack[..bytes], &[]);
        assert!(whole.frames.starts_with(&stack.frames), "{bytes} bytes");
        if stack.frames.len() < whole.frames.len() {
            assert_eq!(stack.end, NativeEnd::Cut(CutReason::StackTooShort), "{bytes} bytes");
            cut += 1;
        }
    }
    assert!(cut > 5, "only {cut} were cut: nothing was proven");
}

/// Check that a return address that a probe has replaced is known if it is told, and that nothing wrong is found if it
/// is not.
#[test]
fn probed_returns_need_telling() {
    let waiting = Program::build(USUAL).start(false);
    let (libraries, whole) = (waiting.libraries(), waiting.unwind());
    let pc = whole.frames[2].address;
    let slot = (0..).step_by(8).find(|at| waiting.stack[*at..at + 8] == pc.0.to_le_bytes()).unwrap();
    let mut probed_stack = waiting.stack.clone();
    probed_stack[slot..slot + 8].copy_from_slice(&0x7fff_ffff_e000_u64.to_le_bytes());
    let told = ProbedReturn { slot: VirtAddr(waiting.sp + slot as u64), pc };
    assert_eq!(waiting.unwind_with(&libraries, &probed_stack, &[told]), whole);
    let untold = waiting.unwind_with(&libraries, &probed_stack, &[]);
    assert_eq!((&untold.frames[..], untold.end), (&whole.frames[..2], NativeEnd::Cut(CutReason::UnknownCode)));
}
