//! Native frames: from a thread's registers and a copy of its stack to the C and C++ functions that it is in, down to
//! the Java code that called them or to the thread's first function.
//!
//! `library_file` opens a library and `address_space` says which library an address lies in. `cfi`
//! finds the rule by which a frame leads to its caller, `rule` follows it, [`NativeUnwinder`] does so frame by frame.
//! [`Symbolizer`] names what was found; `debug_file` looks for a library's separate debug information. `covered` tells
//! where functions begin, which has to do for those without a name. [`KernelSymbols`] names functions of the kernel.
//!
//! Rules come from `.eh_frame` or `.debug_frame`. Where there are none, a frame pointer is tried and the stack says
//! that it rests on a guess. No library is run, stopped or written to, and no file of the target is mapped into memory:
//! one that shrinks would kill nprof.

mod address_space;
mod cfi;
mod covered;
mod debug_file;
mod kernel_symbols;
mod library_file;
mod names;
mod rule;
mod sample;
mod stack_copy;
mod symbolizer;
#[cfg(test)]
mod testing;
mod unwinder;

pub(crate) use cfi::function_starts;
pub use kernel_symbols::KernelSymbols;
pub use library_file::LibraryError;
pub use names::NativeFrame;
pub use sample::{CodeAddress, NativeEnd, NativeSample, NativeStack, ProbedReturn, Registers};
pub use symbolizer::Symbolizer;
pub use unwinder::{MAX_FRAMES, NativeUnwinder};
