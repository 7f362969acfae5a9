//! System calls that no library offers in the form that nprof needs. The only place of the crate with `unsafe`.

pub mod allocator;
pub mod bpf;
pub mod cpu_clock;
pub mod hardware_counters;
pub mod kernel_types;
pub mod mapped_array;
pub mod mount_namespace;
pub mod notify;
pub mod peer_groups;
pub mod privileges;
pub mod probe_link;
pub mod probe_target;
pub mod process_end;
pub mod ring;
pub mod small_file;
pub mod stub_target;
pub mod ticks;

pub use nprof_hotspot::sys::{errand, priority, remote_memory, target_file};
