//! Checks that damaged files and stacks do no harm.

use super::{Program, USUAL};
use crate::model::VirtAddr;
use crate::native::NativeSample;

/// Numbers without a pattern, the same in each run.
fn scattered(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |last| {
        Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|number| number >> 33)
}

/// Check that a stack with any word replaced ends in some way.
#[test]
fn damaged_stacks_end() {
    let waiting = Program::build(USUAL).start(true);
    let libraries = waiting.libraries();
    for word in 0..waiting.stack.len().min(1_600) / 8 {
        for value in [0, 1, u64::MAX, waiting.sp, waiting.pc, waiting.sp + 8 * word as u64, 1 << 63] {
            let mut stack = waiting.stack.clone();
            stack[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
            let found = waiting.unwind_with(&libraries, &stack, &[]);
            assert!(!found.frames.is_empty());
        }
    }
}

/// Check that registers without sense end the stack.
#[test]
fn damaged_registers_end() {
    let waiting = Program::build(USUAL).start(false);
    let mut unwinder = super::NativeUnwinder::new(waiting.pid());
    unwinder.set_libraries(&waiting.libraries());
    for value in [0, 1, 7, u64::MAX, u64::MAX - 7, waiting.pc].map(VirtAddr) {
        let sample = waiting.sample();
        for damaged in [
            NativeSample { pc: value, ..sample },
            NativeSample { sp: value, ..sample },
            NativeSample { fp: Some(value), ..sample },
            NativeSample { stack_base: value, ..sample },
            NativeSample { pc: value, sp: value, fp: Some(value), ..sample },
        ] {
            unwinder.unwind(&damaged, &|_| false);
        }
    }
}

/// Check that a program's file may be damaged anywhere: frames may be missing, but nothing breaks.
#[test]
fn damaged_files_do_no_harm() {
    let program = Program::build(USUAL);
    let waiting = program.start(false);
    let frames = waiting.unwind().frames;
    let whole = std::fs::read(program.path()).unwrap();
    let path = program.directory.path().join("damaged");
    let libraries = waiting.libraries_with(&path);
    let mut numbers = scattered(1);
    let mut below = |limit: usize| usize::try_from(numbers.next().unwrap()).unwrap() % limit;
    for round in 0..30 {
        let mut damaged = whole.clone();
        for _ in 0..1 << (round % 10) {
            // The headers of file, segments and sections as often as all the rest.
            let at = if round % 3 == 0 { below(1_024) } else { below(whole.len()) };
            damaged[at] = u8::try_from(below(256)).unwrap();
        }
        damaged.truncate(if round % 7 == 0 { below(whole.len()) } else { whole.len() });
        std::fs::write(&path, &damaged).unwrap();
        waiting.unwind_with(&libraries, &waiting.stack, &[]);
        assert!(waiting.names_with(&libraries, &frames).len() >= frames.len());
    }
}
