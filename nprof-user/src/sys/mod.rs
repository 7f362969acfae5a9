//! System calls that no library offers in the form that nprof needs. The only place of the crate with `unsafe`.

pub mod allocator;
pub mod bpf;
pub mod cpu_clock;
pub mod errand;
pub mod mapped_array;
pub mod notify;
pub mod peer_groups;
pub mod priority;
pub mod privileges;
pub mod probe_target;
pub mod process_end;
pub mod remote_memory;
pub mod ring;
pub mod target_file;
