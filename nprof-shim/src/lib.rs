//! The companion agent of nprof: counts and times the calls of native methods inside a JVM, without a trap.
//!
//! A probe of the kernel costs a trap at each call. Where that is too much, this library is loaded into the JVM, at its
//! start or while it runs, and puts a *stub* before each native method: a few instructions that count the call, or time
//! it, in the same record as the kernel's probes do (`nprof_common::MethodStats`), and go on to the native.
//!
//! ```text
//! Java ──> native wrapper ──> stub ──────────────> native         off, count: a jump
//!                              └─ frame, clock ──> native ─┐      time: a call
//!                                 clock, record <──────────┘
//! ```
//!
//! # How methods get their stubs
//! The VM's tool interface tells of each method that is bound, and lets the agent give another address. Methods that
//! were bound before are bound again, by the VM's own `RegisterNatives`: at the start those of the VM's first phase, at
//! a late attach all that are found. Leaving gives them their addresses back; the stubs stay behind, switched off.
//!
//! # Who decides
//! nprof, over a socket (`nprof_common::wire`): which methods are watched and how, and where that is recorded, which is
//! memory that nprof reads. It is told of all methods that are bound. When nprof goes without a word, calls go on to be
//! counted in that memory until the next nprof comes. Without nprof the agent does nothing.
//!
//! # What it changes in the JVM
//! The addresses of the chosen natives; the VM's table of JNI functions, while these are watched or ids are kept; a class `nprof.shim.Binder` in the boot loader and `nprof.shim.PlatformBinder`
//! in that of the platform; memory for the records (1.5 KiB per method and CPU that calls it, and 16 bytes of counts); for trees, the classes that nprof
//! enhances, and a class `java.lang.NprofTree` that these call (`trees`). No code is generated,
//! nothing is patched, no return address touched, no exception or signal used. While nprof is connected there is one
//! thread, `nprof-shim`, that waits for its messages and is the JVM's only while it does what they say.
//!
//! # What it does not see
//! Calls of natives that a compiler replaces by what they do; calls through the foreign function interface; and, unless it is collected what threads use,
//! who called whom: a record's `child_ns` stays zero. A call that is left by `longjmp` or by the
//! end of its thread stays in flight for good.
//!
//! # The files
//! - `stubs.s` and [`pool`]: the template, the stubs made from it, and their table. What stands in that comes from
//!   [`signature`], [`sharding`], [`clock`] and [`records`]. `collected` adds up what calls use besides time, and `call_bytes` has the bytes of each.
//! - `entry`, `agent`: what the VM calls, and what follows. [`options`] says where nprof is, `link` is the connection to it.
//!   `methods` knows which stub belongs to whom, `scan` finds what is bound
//!   already, `rebind` binds it to something else, with `helper` (made by `class_file`) and `slots`, which find the address
//!   that the VM holds.
//! - `functions`: JNI functions that are watched, with stubs of the same pool in the VM's table of functions (`function_table`).
//! - `id_cache`: ids of methods and fields that native code looks up again and again, given from memory.
//! - `trees`: methods that are enhanced by nprof, and tell what they do.
//! - `jvmti`, `jni`, `vm`: the VM's functions, checked. `memory` and `library`: what stays mapped and open for good.
//! - `c_library.s` and `c_library`: functions of the C library by names that old versions of it, and others, have too.
//!
//! Only x86-64 Linux: elsewhere the library is empty.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod agent;
mod c_library;
mod call_bytes;
mod class_file;
pub mod clock;
mod collected;
pub mod entry;
mod function_table;
mod functions;
mod helper;
mod id_cache;
mod jni;
mod jvmti;
mod library;
mod link;
mod memory;
mod methods;
pub mod options;
pub mod pool;
mod rebind;
pub mod records;
mod scan;
pub mod sharding;
pub mod signature;
mod slots;
mod stage;
mod trees;
mod vm;
