//! Harness that starts targets and nprof for the tests of this package.
//!
//! Nothing here waits without a limit, and nothing is synchronised by sleeping: a target says when it is ready and
//! when a command is done, and nprof says when everything is attached.

pub mod bars;
pub mod bpftrace;
pub mod browser;
pub mod cgroup;
pub mod child;
pub mod code;
pub mod container;
pub mod exposition;
pub mod guest;
pub mod http;
pub mod id_cache_report;
pub mod jar;
pub mod jdk;
pub mod jni_report;
pub mod kernel;
pub mod name;
pub mod nprof;
pub mod process;
pub mod prometheus;
pub mod random;
pub mod report;
pub mod require;
pub mod serve;
pub mod shape_source;
pub mod shim;
pub mod shim_peer;
pub mod shim_watch;
pub mod slowdown;
pub mod soak;
pub mod source_tree;
pub mod stolen;
pub mod stopped;
pub mod target;
pub mod truth;
pub mod usage;
