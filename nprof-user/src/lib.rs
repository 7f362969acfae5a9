//! nprof shows where JVMs cross into native code: how often each native method is called and how long it takes.
//!
//! The library is a pipeline. Each stage is a function from one plain value of [`model`] to the next and never
//! imports a later stage:
//!
//! ```text
//! discover ─> hotspot (inventory) ─> resolve (plan) ─> attach ─> collect ─> aggregate ─┬─> render, diagnose
//!                                                        └─ govern (cost) ─┘           └─> export
//! ```
//!
//! [`elf`] reads ELF files for all of them, [`classfile`] class files. [`calls`] finds which methods a Java method may call, and
//! [`enhance`] makes those that are chosen tell when they are entered and left.
//!
//! [`trace`] puts the stages together, for one JVM or all of a host. [`service`] keeps that running by a [`config`], for
//! scrapes ([`export`]), receivers ([`push`]) and commands ([`control`]). [`cli`] is what users type.

pub mod aggregate;
pub mod attach;
pub mod calls;
pub mod classfile;
pub mod cli;
pub mod collect;
pub mod config;
pub mod control;
pub mod diagnose;
pub mod discover;
pub mod enhance;
pub mod export;
pub mod govern;
pub mod model;
pub mod native;
pub mod profile;
pub mod push;
pub mod recording;
pub mod render;
pub mod resolve;
pub mod service;
pub mod shim;
pub mod sys;
pub mod trace;

pub use nprof_hotspot::{elf, hotspot, unwind};
