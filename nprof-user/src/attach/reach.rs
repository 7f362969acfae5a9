//! Whom a probe reaches that is meant for one process, found by trying it on nprof itself.
//!
//! A release says little: the filter of `uprobe_multi` links was mended in 6.10 and, by some distributions and stable
//! releases, also in older kernels.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;

use aya_obj::generated::bpf_insn;

use super::features::{instruction, load_own, operation};
use crate::model::Reach;
use crate::sys::bpf::{UprobeMulti, create_words, link_uprobe_multi};
use crate::sys::mapped_array::MappedArray;
use crate::sys::probe_link::ProbeLink;
use crate::sys::probe_target::ProbeTarget;

/// So many processes are tried as one that is not nprof: the first may have ended, or be another namespace's.
const OTHERS: usize = 16;

/// Whom a probe reaches on this kernel. It is asked once, which takes some tens of milliseconds.
///
/// # Errors
/// If the kernel does not let nprof try it.
pub fn reach() -> io::Result<Reach> {
    static KNOWN: Mutex<Option<Reach>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reach) = *known {
        return Ok(reach);
    }
    let reach = Trial::prepare()?.run()?;
    *known = Some(reach);
    Ok(reach)
}

/// A program that counts its hits, to be put on a function of nprof's own.
struct Trial {
    program: OwnedFd,
    hits: MappedArray,
    probe_target: ProbeTarget,
    /// Where the function stands in nprof's file.
    offset: u64,
}

impl Trial {
    fn prepare() -> io::Result<Self> {
        let word = create_words(1)?;
        let program = load_own("nprof_reach", &count_into(word.as_fd())?)?;
        let hits = MappedArray::map(word.as_fd(), 1, size_of::<u64>())?;
        let probe_target = ProbeTarget::of_filters();
        let offset = offset_in_file(&fs::read_to_string("/proc/self/maps")?, probe_target.address);
        Ok(Self { program, hits, probe_target, offset: offset.ok_or(io::ErrorKind::NotFound)? })
    }

    /// A probe for another process must not be seen in this one, and a probe for this one must be hit by every thread.
    fn run(&self) -> io::Result<Reach> {
        if !self.probe_target.is_untouched() {
            // Somebody else's probe is there: nothing can be seen.
            return Ok(Reach::Everyone);
        }
        let Some(for_other) = self.link_for_other()? else { return Ok(Reach::Everyone) };
        let leaves_alone = self.probe_target.is_untouched() && self.hits_by_call() == 0;
        let for_self = self.link(std::process::id())?;
        let is_there = !self.probe_target.is_untouched();
        let hits_of_a_thread = thread::scope(|scope| scope.spawn(|| self.hits_by_call()).join()).unwrap_or(0);
        // Nothing waits for these to go: they count what nobody reads any more.
        thread::spawn(move || drop((for_other, for_self)));
        let keeps_to_it = leaves_alone && is_there && hits_of_a_thread == 1;
        Ok(if keeps_to_it { Reach::Target } else { Reach::Everyone })
    }

    fn hits_by_call(&self) -> u64 {
        let hits = || self.hits.load(0).unwrap_or(0);
        let before = hits();
        self.probe_target.call(1);
        hits() - before
    }

    fn link(&self, pid: u32) -> io::Result<ProbeLink> {
        let path = CString::from(c"/proc/self/exe");
        let to = UprobeMulti { path: &path, offsets: &[self.offset], cookies: &[0], on_return: false, pid: Some(pid) };
        link_uprobe_multi(self.program.as_fd(), to)
    }

    /// A link for a process that is not this one; `None` if there is none.
    fn link_for_other(&self) -> io::Result<Option<ProbeLink>> {
        for pid in others()?.into_iter().take(OTHERS) {
            match self.link(pid) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                linked => return linked.map(Some),
            }
        }
        Ok(None)
    }
}

/// The other processes that are seen, the one that starts all others first.
fn others() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.retain(|pid| *pid != std::process::id());
    pids.sort_unstable();
    Ok(pids)
}

/// Where in its file the code at an address of this process stands, from what is mapped.
fn offset_in_file(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|bound| u64::from_str_radix(bound, 16));
        let (start, end) = (start.ok()?, end.ok()?);
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        (start..end).contains(&address).then(|| offset + (address - start))
    })
}

/// A program that adds one to the word of an array.
fn count_into(array: BorrowedFd<'_>) -> io::Result<[bpf_insn; 6]> {
    const PSEUDO_MAP_VALUE: u8 = 2;
    let with = |code, registers, imm| operation(code, registers, 0, imm);
    Ok([
        with(0x18, (1, PSEUDO_MAP_VALUE), array.as_raw_fd()), // r1 = the word's address
        instruction(0),                                       // its second half
        with(0xb7, (0, 0), 1),                                // r0 = 1
        with(0xdb, (1, 0), 0),                                // lock *(u64 *)r1 += r0
        with(0xb7, (0, 0), 0),                                // r0 = 0
        instruction(0x95),                                    // exit
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the place in the file is counted from the mapping around the address.
    #[test]
    fn offsets_by_mapping() {
        let maps = "1000-3000 r--p 00000000 08:01 7 /opt/nprof\n3000-5000 r-xp 00001800 08:01 7 /opt/nprof\n\
                    7f00-8000 rw-p 00000000 00:00 0 \n";
        assert_eq!(offset_in_file(maps, 0x2fff), Some(0x1fff));
        assert_eq!(offset_in_file(maps, 0x3000), Some(0x1800));
        assert_eq!(offset_in_file(maps, 0x4fff), Some(0x37ff));
        assert_eq!(offset_in_file(maps, 0x5000), None);
    }
}
