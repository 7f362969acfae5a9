//! What nprof is measured against: a pair of empty programs, and bpftrace.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use aya_obj::generated::bpf_insn;
use nprof::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi, load_uprobe_multi};
use nprof_tests::child::{Child, Stream};
use rustix::process::Signal;

/// An empty program on entry and one on return of one function: what the kernel charges for being there at all.
pub(crate) struct EmptyPair {
    _entry: OwnedFd,
    _leave: OwnedFd,
    _program: OwnedFd,
}

impl EmptyPair {
    /// Attaches to one place of a library, for one process.
    pub(crate) fn attach(library: &Path, offset: u64, pid: u32) -> Result<Self> {
        // r0 = 0; exit
        let instructions = [instruction(0xb7), instruction(0x95)];
        let program = load_uprobe_multi("empty", &instructions, c"Dual MIT/GPL")?;
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

/// bpftrace with the script that people write to time a function.
pub(crate) struct Bpftrace(Child);

impl Bpftrace {
    /// Attaches to one function of a library and returns when it has.
    pub(crate) fn attach(library: &Path, symbol: &str) -> Result<Self> {
        let site = format!("{}:{symbol}", library.display());
        let script = format!(
            "BEGIN {{ printf(\"attached\\n\"); }} \
             uprobe:{site} {{ @start[tid] = nsecs; }} \
             uretprobe:{site} /@start[tid]/ {{ @calls = count(); @total = sum(nsecs - @start[tid]); \
             @times = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
        );
        let mut child = Child::spawn("bpftrace", Command::new("bpftrace").args(["-e", &script]))
            .context("bpftrace is needed to compare with: cargo xtask setup --for test")?;
        child.line_with_prefix(Stream::Stdout, "attached")?;
        Ok(Self(child))
    }

    /// Ends it and returns how many calls it counted.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.0.signal(Signal::INT)?;
        let (status, output) = self.0.wait()?;
        ensure!(status.success(), self.0.failure(&format!("ended with {status}")));
        let calls =
            output.lines().find_map(|line| line.strip_prefix("@calls: ")).context("bpftrace printed no count")?;
        Ok(calls.trim().parse()?)
    }
}
