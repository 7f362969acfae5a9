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

/// Whether the kernel's own pid filter of `uprobe_multi` works for a process with threads: since 6.10. Before, it
/// let only one thread through, so nprof attaches unfiltered and filters in its programs.
#[must_use]
pub fn pid_filter_works(kernel_release: &str) -> bool {
    let mut numbers = kernel_release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 10)
}

fn instruction(code: u8) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the border, and releases as distributions write them.
    #[test]
    fn pid_filter_by_release() {
        for (release, works) in [
            ("6.9.12", false),
            ("6.10.0-rc1", true),
            ("6.6.15-amd64", false),
            ("6.18.44-fc-v657", true),
            ("7.0", true),
            ("garbage", false),
        ] {
            assert_eq!(pid_filter_works(release), works, "{release}");
        }
    }
}
