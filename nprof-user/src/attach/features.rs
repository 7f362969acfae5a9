//! What this kernel can do, found by asking it.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;

use aya_obj::generated::bpf_insn;

use crate::sys::bpf::{UprobeMulti, link_uprobe_multi, load_uprobe_multi};

/// Asks the kernel for a `uprobe_multi` link on a file that does not exist. A kernel that has them says so by
/// missing the file; nothing is attached.
///
/// # Errors
/// What the kernel answers if it does not have them (`EINVAL`) or does not let us (`EPERM`).
pub fn probe_uprobe_multi() -> io::Result<()> {
    // r0 = 0; exit
    let instructions = [instruction(0xb7), instruction(0x95)];
    let license = CString::from(c"Dual MIT/GPL");
    let program = load_uprobe_multi("nprof_probe", &instructions, &license)?;
    let nowhere = CString::from(c"/proc/self/no-such-file");
    let request = UprobeMulti { path: &nowhere, offsets: &[0], cookies: &[0], on_return: false, pid: None };
    match link_uprobe_multi(program.as_fd(), request) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

pub(super) fn instruction(code: u8) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}
