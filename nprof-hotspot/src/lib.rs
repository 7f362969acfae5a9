//! Reads a live HotSpot VM from outside: its classes, native methods, code cache and Java stacks.

pub mod elf;
pub mod hotspot;
pub mod model;
pub mod sys;
pub mod unwind;
