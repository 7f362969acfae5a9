//! Reads a live HotSpot VM from outside: its classes, native methods, code cache and Java stacks.
//!
//! HotSpot describes its data structures to debuggers, in tables that `libjvm.so` exports (`gHotSpotVMStructs`). This crate finds
//! them in the memory of a running JVM and follows them. Nothing is stopped, written, loaded or asked of the JVM, which needs no
//! flag and no agent. JDK 11 and later, on x86-64 Linux. The caller must be allowed to read the memory of the process: be its
//! user, where Yama lets that do, or have `CAP_SYS_PTRACE`. To open `/proc/PID/map_files`, `CAP_CHECKPOINT_RESTORE`.
//!
//! | | |
//! | --- | --- |
//! | [`hotspot::Vm`] | every native method of every loaded class, and what it is bound to; what has changed since |
//! | [`hotspot::flags`], [`hotspot::code_room`] | switches of the VM; how much of its code cache is in use |
//! | [`unwind::Unwinder`] | the exact Java frames of a thread, from its registers and a copy of its stack |
//! | [`unwind::Threads`] | the VM's threads by the kernel's number, and where each notes its last Java frame |
//! | [`sys`] | memory and files of a process that may never answer, or be made to harm its reader |
//! | [`elf`] | the ELF files of such a process |
//! | [`model`] | the plain values of all these |
//!
//! Which native methods are bound, and to what:
//!
//! ```
//! use nprof_hotspot::hotspot::{Error, Vm};
//! use nprof_hotspot::model::{Library, NativeCode, Pid};
//! use nprof_hotspot::sys::remote_memory::ProcessMemory;
//!
//! /// `libjvm` is where the process has mapped the file, as `/proc/PID/maps` says.
//! fn print_natives(pid: Pid, libjvm: &Library) -> Result<(), Error> {
//!     let mut vm = Vm::open(ProcessMemory::new(pid), libjvm)?;
//!     for method in vm.inventory()?.methods {
//!         if let NativeCode::Bound(address) = method.code {
//!             println!("{address} {}.{}{}", method.class, method.name, method.signature);
//!         }
//!     }
//!     // From now on, only what is new or has another address: a millisecond or two.
//!     println!("{} since", vm.refresh()?.len());
//!     Ok(())
//! }
//! ```
//!
//! The Java stack of a thread that has just called a native method, as a uprobe there finds it:
//!
//! ```
//! use nprof_hotspot::hotspot::{Error, RemoteMemory};
//! use nprof_hotspot::model::VirtAddr;
//! use nprof_hotspot::unwind::{End, Sample, Unwinder};
//!
//! /// The registers at the method's first instruction, and the stack from `rsp` on.
//! fn print_stack<M: RemoteMemory>(
//!     unwinder: &mut Unwinder<M>,
//!     (rsp, rbp): (VirtAddr, VirtAddr),
//!     stack: &[u8],
//! ) -> Result<(), Error> {
//!     let Some(sample) = Sample::at_native_entry(rsp, rbp, stack) else { return Ok(()) };
//!     let java = unwinder.unwind(&sample)?;
//!     for frame in &java.frames {
//!         println!("{} {:?}", frame.method, frame.line);
//!     }
//!     if let End::Cut(reason) = java.end {
//!         println!("and more: {reason}");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The VM changes while it is read. So every read can fail, every value is checked against another one before it is used, and
//! every loop has a limit. What could not be read is said, by an error, by [`model::Inventory::complete`] or by
//! [`unwind::End::Cut`]; what is returned is right. What all VMs together may take of memory and CPU time has a limit too, for the
//! whole process, because a target can forge what it shows ([`hotspot::Vm::is_left_out`]).
//!
//! `examples/natives.rs` is a whole program.

pub mod elf;
pub mod hotspot;
pub mod model;
pub mod sys;
pub mod unwind;
