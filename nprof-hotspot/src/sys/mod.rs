//! Memory and files of a process that may want to do harm. The only place of the crate with `unsafe`.

pub mod errand;
pub mod priority;
pub mod remote_memory;
pub mod target_file;
