//! What this kernel can do, found by asking it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya_obj::generated::bpf_insn;

use crate::sys::bpf::{NotLoaded, Program, UprobeMulti, link_uprobe_multi, load_uprobe_multi};

/// Asks the kernel for a `uprobe_multi` link on a file that does not exist. A kernel that has them says so by
/// missing the file; nothing is attached.
///
/// # Errors
/// What the kernel answers if it does not have them (`EINVAL`) or does not let us (`EPERM`).
pub fn probe_uprobe_multi() -> io::Result<()> {
    // r0 = 0; exit
    let program = load_own("nprof_probe", &[instruction(0xb7), instruction(0x95)])?;
    let nowhere = CString::from(c"/proc/self/no-such-file");
    let request = UprobeMulti { path: &nowhere, offsets: &[0], cookies: &[0], on_return: false, pid: None };
    match link_uprobe_multi(program.as_fd(), request) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Loads a program that is written here.
pub(super) fn load_own(name: &str, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
    let program = Program { name, instructions, license: c"Dual MIT/GPL", sleepable: false };
    load_uprobe_multi(program).map_err(NotLoaded::of_ours)
}

/// An instruction without operands.
pub(super) fn instruction(code: u8) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}

/// An instruction on two registers, the one that it changes first, with an offset and a number.
pub(super) fn operation(code: u8, (to, from): (u8, u8), off: i16, imm: i32) -> bpf_insn {
    bpf_insn { _bitfield_1: bpf_insn::new_bitfield_1(to, from), off, imm, ..instruction(code) }
}
