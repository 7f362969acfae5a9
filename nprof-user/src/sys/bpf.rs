//! The `bpf` system call, for what aya 0.14 cannot do: programs of attach type `uprobe_multi` and their links.
//!
//! To be dropped for aya's own when a release with `uprobe_multi` can be built here.
#![expect(unsafe_code, reason = "raw system calls")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use aya::maps::MapData;
use aya_obj::generated::bpf_insn;
use zerocopy::FromBytes;

use super::probe_link::ProbeLink;

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_LOOKUP_ELEM: i64 = 1;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_MAP_DELETE_ELEM: i64 = 3;
const BPF_PROG_LOAD: i64 = 5;
const BPF_MAP_FREEZE: i64 = 22;
const BPF_LINK_CREATE: i64 = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_F_INNER_MAP: u32 = 1 << 12;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
const BPF_F_SLEEPABLE: u32 = 1 << 4;
/// Enough for the verifier's words on a program of a few hundred instructions.
const LOG_SIZE: usize = 1 << 20;
/// The kernel keeps 15 bytes of a name and a terminating zero.
const NAME_SIZE: usize = 16;

/// The leading fields of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The fields of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM` and its kin.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The leading fields of `union bpf_attr` for `BPF_PROG_LOAD` (`linux/bpf.h`); the kernel takes the rest as zero.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME_SIZE],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The fields of `union bpf_attr` for `BPF_LINK_CREATE` with `link_create.uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// What a `uprobe_multi` link attaches to.
#[derive(Debug, Clone, Copy)]
pub struct UprobeMulti<'a> {
    /// A path that opens the file.
    pub path: &'a CStr,
    /// The places in the file, in bytes.
    pub offsets: &'a [u64],
    /// What the program is told at each place; as many as `offsets`.
    pub cookies: &'a [u64],
    /// Run on return instead of on entry.
    pub on_return: bool,
    /// Only in this process (thread group). Some kernels before 6.10 take it for a thread: pass `None` there.
    pub pid: Option<u32>,
}

/// Makes an array of 8-byte words that can be mapped into memory.
///
/// # Errors
/// What the kernel answers.
pub fn create_words(words: u32) -> io::Result<OwnedFd> {
    create_array(words, size_of::<u64>(), BPF_F_MMAPABLE)
}

/// Makes an array that can be mapped into memory and be one in an array of maps, whatever their lengths there.
///
/// # Errors
/// What the kernel answers.
pub fn create_inner(values: u32, value_size: usize) -> io::Result<OwnedFd> {
    create_array(values, value_size, BPF_F_MMAPABLE | BPF_F_INNER_MAP)
}

fn create_array(max_entries: u32, value_size: usize, map_flags: u32) -> io::Result<OwnedFd> {
    let (key_size, value_size) = (count(size_of::<u32>())?, count(value_size)?);
    let attr = MapCreate { map_type: BPF_MAP_TYPE_ARRAY, key_size, value_size, max_entries, map_flags };
    bpf(BPF_MAP_CREATE, &attr)
}

/// Puts a map into an array of maps. Returns when every program finds it.
///
/// # Errors
/// What the kernel answers, such as for a map that is not like those there.
pub fn put_inner(outer: BorrowedFd<'_>, index: u32, inner: BorrowedFd<'_>) -> io::Result<()> {
    let inner = descriptor(inner)?;
    let attr = MapElement {
        map_fd: descriptor(outer)?,
        padding: 0,
        key: address(&raw const index),
        value: address(&raw const inner),
        flags: 0,
    };
    call(BPF_MAP_UPDATE_ELEM, &attr).map(drop)
}

/// Takes a map out of an array of maps. Returns when no program that has found it there is running any more.
///
/// # Errors
/// What the kernel answers, such as where there is none.
pub fn take_inner(outer: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let attr =
        MapElement { map_fd: descriptor(outer)?, padding: 0, key: address(&raw const index), value: 0, flags: 0 };
    call(BPF_MAP_DELETE_ELEM, &attr).map(drop)
}

/// Has a map be written to by programs alone from now on: whoever has its descriptor can map it for reading and nothing else.
///
/// # Errors
/// What the kernel answers, such as where the map is mapped for writing.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    call(BPF_MAP_FREEZE, &descriptor(map)?).map(drop)
}

/// A program that is not loaded yet.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its name, of which the kernel keeps the beginning.
    pub name: &'a str,
    /// What it does.
    pub instructions: &'a [bpf_insn],
    /// Its licence, by which the kernel decides which of its functions the program may call.
    pub license: &'a CStr,
    /// Whether it may wait, such as for memory that it reads.
    pub sleepable: bool,
}

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.said())]
pub struct NotLoaded {
    /// What the kernel answered.
    pub answer: io::Error,
    /// The verifier's last word, if it was the verifier that refused it.
    pub reason: Option<String>,
}

impl NotLoaded {
    /// Takes the answer and what the verifier said of the program: its last word is the reason; all of it is for developers (`-vv`).
    pub fn of(answer: io::Error, log: &str) -> Self {
        // After the reason come figures.
        let reason = log.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("processed "));
        if reason.is_some() {
            tracing::debug!("the verifier says:\n{}", log.trim_end());
        }
        Self { answer, reason: reason.map(str::to_owned) }
    }

    /// The error of a program of nprof's own.
    #[must_use]
    pub fn of_ours(self) -> io::Error {
        let Self { answer, reason } = self;
        // The kernel says "permission denied" here, which privileges would not change.
        let defect = |reason| {
            format!("this kernel's verifier refuses it ({reason}), which is a defect of nprof: please report it")
        };
        reason.map_or(answer, |reason| io::Error::other(defect(reason)))
    }

    fn said(&self) -> String {
        self.reason.clone().unwrap_or_else(|| self.answer.to_string())
    }
}

/// Loads a program that can be attached by [`link_uprobe_multi`].
///
/// # Errors
/// What the kernel answers, with the verifier's reason if that refuses it.
pub fn load_uprobe_multi(program: Program<'_>) -> Result<OwnedFd, NotLoaded> {
    let unanswered = |answer| NotLoaded { answer, reason: None };
    let mut attr = prog_load(program).map_err(unanswered)?;
    let refused = match bpf(BPF_PROG_LOAD, &attr) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL | libc::E2BIG)) => error,
        result => return result.map_err(unanswered),
    };
    tracing::debug!("{} is refused ({refused}); asking for the verifier's log", program.name);
    let mut log = vec![0u8; LOG_SIZE];
    (attr.log_level, attr.log_buf) = (1, address(log.as_mut_ptr()));
    attr.log_size = count(LOG_SIZE).map_err(unanswered)?;
    bpf(BPF_PROG_LOAD, &attr).map_err(|answer| {
        let text = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
        NotLoaded::of(answer, &text)
    })
}

fn prog_load(program: Program<'_>) -> io::Result<ProgLoad> {
    let Program { name, instructions, license, sleepable } = program;
    let mut attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: count(instructions.len())?,
        insns: address(instructions.as_ptr()),
        license: address(license.as_ptr()),
        prog_flags: if sleepable { BPF_F_SLEEPABLE } else { 0 },
        expected_attach_type: BPF_TRACE_UPROBE_MULTI,
        ..ProgLoad::default()
    };
    let kept = name.len().min(NAME_SIZE - 1);
    attr.prog_name[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    Ok(attr)
}

/// Attaches a program at many places of a file at once.
///
/// # Errors
/// What the kernel answers. One place that it refuses refuses them all.
pub fn link_uprobe_multi(program: BorrowedFd<'_>, to: UprobeMulti<'_>) -> io::Result<ProbeLink> {
    if to.offsets.len() != to.cookies.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let attr = LinkCreate {
        prog_fd: descriptor(program)?,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        path: address(to.path.as_ptr()),
        offsets: address(to.offsets.as_ptr()),
        cookies: address(to.cookies.as_ptr()),
        cnt: count(to.offsets.len())?,
        multi_flags: if to.on_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
        pid: to.pid.unwrap_or(0),
        ..LinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &attr).map(ProbeLink::new)
}

/// A path as the system call takes it.
///
/// # Errors
/// If the path holds a zero byte.
pub fn c_path(path: &std::path::Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// What task storage holds of a thread, which is known by a pidfd of its own.
///
/// # Errors
/// If it holds nothing or values of another size, or the thread has ended.
pub fn lookup_task_storage<T: FromBytes>(map: &MapData, thread: BorrowedFd<'_>) -> io::Result<T> {
    let bytes = map.info().map_err(io::Error::other)?.value_size() as usize;
    if bytes != size_of::<T>() {
        return Err(io::Error::other(format!("a map has values of {bytes} bytes")));
    }
    let (key, mut value) = (thread.as_raw_fd(), T::new_zeroed());
    let attr = MapElement {
        map_fd: descriptor(map.fd().as_fd())?,
        padding: 0,
        key: address(&raw const key),
        value: address(&raw mut value),
        flags: 0,
    };
    call(BPF_MAP_LOOKUP_ELEM, &attr)?;
    Ok(value)
}

fn bpf<T>(command: i64, attr: &T) -> io::Result<OwnedFd> {
    let descriptor = call(command, attr)?;
    // SAFETY: all commands that come here return a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn call<T>(command: i64, attr: &T) -> io::Result<i32> {
    // SAFETY: `attr` is one of the structs above, laid out as the kernel reads this command, with pointers to
    // memory that its maker keeps alive and large enough for the length given next to them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    let descriptor = i32::try_from(result).map_err(io::Error::other)?;
    if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(descriptor) }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

fn count(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(io::Error::other)
}

fn descriptor(fd: BorrowedFd<'_>) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a frozen map can be mapped for reading, and that nothing makes that writable.
    #[test]
    fn frozen_maps_are_read() {
        let word = match create_words(1) {
            Ok(word) => word,
            Err(error) => return println!("not run: no BPF map can be made ({error})"),
        };
        freeze(word.as_fd()).unwrap();
        let map = |protection| {
            let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_SHARED);
            // SAFETY: a new mapping at a place of the kernel's choice, which nothing uses.
            unsafe { libc::mmap(anywhere, 4096, protection, flags, word.as_raw_fd(), 0) }
        };
        assert_eq!(map(libc::PROT_READ | libc::PROT_WRITE), libc::MAP_FAILED);
        let read = map(libc::PROT_READ);
        assert_ne!(read, libc::MAP_FAILED);
        // SAFETY: changes what was mapped here.
        assert_eq!(unsafe { libc::mprotect(read, 4096, libc::PROT_READ | libc::PROT_WRITE) }, -1);
        // SAFETY: the mapping was made here and is not used after this.
        assert_eq!(unsafe { libc::munmap(read, 4096) }, 0);
    }

    /// Check that of a program that the verifier refuses its reason is said, in one line, and not that a privilege is missing; and
    /// that the kernel's own words stay where the verifier had none.
    #[test]
    fn a_refusal_is_one_line() {
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let log = "0: R1=ctx()\nR2 min value is negative\nprocessed 1 insns (limit 1000000) max_states_per_insn 0\n\n";
        let refused = |log| NotLoaded::of(denied(), log);
        assert_eq!(refused(log).to_string(), "R2 min value is negative");
        let error = refused(log).of_ours();
        let says = "this kernel's verifier refuses it (R2 min value is negative), which is a defect of nprof: please report it";
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::Other, says));
        assert_eq!(refused(" \n").of_ours().raw_os_error(), Some(libc::EACCES));
    }
}
