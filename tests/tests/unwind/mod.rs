//! The unwinder says what the VM says of its own threads: every frame, every line.
//!
//! Threads of the target `Stacks` wait in a native that has noted the registers of its first instruction. Their stacks
//! are read from there on and unwound, and compared position by position with `Thread.getStackTrace`.

pub(crate) mod agreement;
mod changing;
mod cost;
mod damaged;
mod frozen;
mod session;
mod tally;
mod waiting;
