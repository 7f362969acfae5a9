//! nprof as a black box, against JVMs and the kernel of this machine. One binary; a module per promise.
//!
//! The tests of nprof want `target/release/nprof` (or `NPROF_BIN`), root and a kernel with `uprobe_multi`, those of the
//! service Prometheus too; those of the targets want only JDKs, those of pictures only Chromium, those of
//! other kernels only QEMU. What is missing is
//! printed; `NPROF_TEST_REQUIRE=kernel,guest,jvm,prometheus,browser,17,25` makes it fail.
//! `--test-threads=1` gives the tests that measure the quiet that they need; which of the others may run side by side stands in
//! `xtask/src/test.rs`.

mod all;
mod at_start;
mod borrowing;
mod browser;
mod by_thread;
mod callers;
mod clean;
mod cli;
mod collections;
mod collectors;
mod containers;
mod cycles;
mod deployment;
mod diagnose;
mod diff;
mod enhanced;
mod errors;
mod events;
mod exact;
mod flamegraph;
mod formats;
mod governor;
mod guard;
mod held;
mod hidden;
mod hostile;
mod id_cache;
mod inflight;
mod inside;
mod interrupted;
mod inventory;
mod jni;
mod jni_leaks;
mod jni_libraries;
mod jni_serve;
mod jni_stubs;
mod kernel;
mod kernels;
mod killed;
mod killed_within;
mod late;
mod losses;
mod many_rows;
mod marks;
mod native;
mod overhead;
mod pace;
mod packaging;
mod privileges;
mod profiles;
mod promql;
mod push;
mod record_cli;
mod record_trees;
mod recordings;
mod rules;
mod sampling;
mod serve;
mod serve_refusals;
mod shared_links;
mod shim_link;
mod shim_load;
mod slow;
mod soak;
mod stub_stress;
mod stubs;
mod stubs_for;
mod switch;
mod targets;
mod tiers;
mod timeline_args;
mod timing;
mod tree;
mod tree_beside;
mod tree_cli;
mod tree_tasks;
mod unwind;
mod user_programs;
mod versions;
mod waiting;
mod weights;

/// Selects every native method of the targets.
const TARGETS: &str = "targets.*::*";
