//! The floor that nprof is measured against: a pair of empty programs.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use anyhow::Result;
use aya_obj::generated::bpf_insn;
use nprof::sys::bpf::{Program, UprobeMulti, c_path, link_uprobe_multi, load_uprobe_multi};
use nprof::sys::probe_link::ProbeLink;

/// An empty program on entry and one on return of one function: what the kernel charges for being there at all.
pub(crate) struct EmptyPair {
    _entry: ProbeLink,
    _leave: ProbeLink,
    _program: OwnedFd,
}

impl EmptyPair {
    /// Attaches to one place of a library, for one process.
    pub(crate) fn attach(library: &Path, offset: u64, pid: u32) -> Result<Self> {
        // r0 = 0; exit
        let instructions = [instruction(0xb7), instruction(0x95)];
        let program = load_uprobe_multi(Program {
            name: "empty",
            instructions: &instructions,
            license: c"Dual MIT/GPL",
            sleepable: false,
        })?;
        let path = c_path(library)?;
        let link = |on_return| {
            let to = UprobeMulti { path: &path, offsets: &[offset], cookies: &[0], on_return, pid: Some(pid) };
            link_uprobe_multi(program.as_fd(), to)
        };
        Ok(Self { _leave: link(true)?, _entry: link(false)?, _program: program })
    }
}

fn instruction(code: u8) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}
