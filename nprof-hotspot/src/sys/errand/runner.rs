//! A runner: a process that makes system calls for nprof and can be given up.
//!
//! It is a fork that runs no other program, gives back the memory it got, and closes all files: whatever it
//! waits for, it holds neither a probe nor nprof's memory, and nprof ends without it. It runs [`work`] and nothing else:
//! no other function, no thread-local variable, no panic.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::desk::{Desk, Header, MAX_GAPS, NOT_MADE};
use super::raw::syscall;
use crate::sys::priority;

/// What a runner needs of a stack, in bytes, many times over.
const STACK: usize = 64 << 10;
/// How often it is asked whether a runner that does not answer has work or waits.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// How often the limit is prolonged for a runner that only waits for a CPU.
const BUSY: u32 = 10;
/// Also wait for children that tell nobody of their end.
const WALL: u32 = 0x4000_0000;
/// User space ends before this; nothing that can be given back lies behind.
const TOP: u64 = (1 << 47) - (1 << 12);
const PAGE: u64 = 4096;
/// How far what a thread has of its own reaches around its block, in bytes: more than ever.
const BLOCK: u64 = 16 * PAGE;
/// The name that a list of processes shows.
const NAME: &[u8; 16] = b"nprof-runner\0\0\0\0";

/// How an errand went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It waits for something, longer than it may.
    Stuck,
    /// The runner has ended: somebody killed it.
    Gone,
}

/// A runner and the desk it works at.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) pid: Pid,
    socket: OwnedFd,
    pub(super) desk: Desk,
}

impl Runner {
    pub(super) fn start() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, its) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(LIMIT))?;
        let mut desk = Desk::new()?;
        let pid = fork(&desk, &its)?;
        priority::raise(Some(pid));
        desk.belongs_to(pid.as_raw_nonzero().get().cast_unsigned());
        Ok(Self { pid, socket: ours, desk })
    }

    /// Has the errand done that lies on the desk.
    pub(super) fn run(&self) -> Outcome {
        if rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL).is_err() {
            return Outcome::Gone;
        }
        let mut busy = 0;
        loop {
            match rustix::net::recv(&self.socket, &mut [0], RecvFlags::empty()) {
                Ok((1, _)) => return Outcome::Done,
                Ok(_) => return Outcome::Gone,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if busy < BUSY && self.is_busy() => busy += 1,
                Err(Errno::AGAIN) => return Outcome::Stuck,
                Err(_) => return Outcome::Gone,
            }
        }
    }

    /// Whether it runs or waits for a CPU, and for nothing else.
    fn is_busy(&self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        let state = stat.iter().rposition(|&byte| byte == b')').and_then(|name_end| stat.get(name_end + 2));
        state == Some(&b'R')
    }

    /// Lets it go. It ends as soon as what it waits for lets it.
    pub(super) fn give_up(self) -> Pid {
        // It may have ended meanwhile: nobody has waited for it, so the number is its own still.
        kill_process(self.pid, Signal::KILL).ok();
        self.pid
    }

    /// Ends a runner that waits for work.
    pub(super) fn end(self) {
        let pid = self.give_up();
        // It waits for nothing but this socket, so that it ends at once.
        while matches!(waitpid(Some(pid), WaitOptions::from_bits_retain(WALL)), Err(Errno::INTR)) {}
    }
}

/// Whether a runner that was given up has ended by now.
pub(super) fn has_ended(pid: Pid) -> bool {
    let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(WALL);
    !matches!(waitpid(Some(pid), options), Ok(None) | Err(Errno::INTR))
}

/// Starts the process, with all signals blocked: what is sent to nprof's group is not for it.
fn fork(desk: &Desk, socket: &OwnedFd) -> io::Result<Pid> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let stack = unsafe { libc::mmap(ptr::null_mut(), STACK, protection, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let top = stack.wrapping_byte_add(STACK - 64);
    // The socket's number stands where the runner finds it.
    // SAFETY: the top of the new stack, aligned and ours.
    unsafe { top.cast::<[u64; 2]>().write([desk.header().addr() as u64, socket.as_raw_fd().cast_unsigned().into()]) };
    list_gaps(desk, stack.addr() as u64);
    let pid = with_signals_blocked(|| {
        // SAFETY: without CLONE_VM the child has a copy of everything; it runs `work` on the new stack, which touches
        // nothing but that, the desk and the kernel.
        unsafe { libc::clone(work, top.wrapping_byte_sub(64), 0, top) }
    });
    let error = io::Error::last_os_error();
    // SAFETY: the stack is the child's, in its own memory; here nobody uses it.
    unsafe { libc::munmap(stack, STACK) };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or(error)
}

fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is plain bits, and zero is the empty one.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: `all` is a set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both are sets; only this thread is concerned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let result = f();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// Writes down what the runner is to give back: all memory but the code and data of files, the desk, its stack, and what
/// lies around the thread's own block, to which the kernel writes at each switch (`rseq`). What the list has no room for
/// stays with it.
fn list_gaps(desk: &Desk, stack: u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // SAFETY: it only says who calls: the address of the thread's block, with glibc and musl.
    let block = unsafe { libc::pthread_self() } as u64 & !(PAGE - 1);
    let around = (block.saturating_sub(BLOCK), 2 * BLOCK);
    let own = [(desk.header().addr() as u64, Desk::LEN as u64), (stack, STACK as u64), around];
    let mut kept: Vec<(u64, u64)> = maps.lines().filter_map(file_range).collect();
    kept.extend(own.map(|(start, len)| (start, start + len)));
    kept.sort_unstable();
    let (mut from, mut gaps) = (0, Vec::new());
    for (start, end) in kept {
        if start > from {
            gaps.push([from, start]);
        }
        from = from.max(end);
    }
    if !maps.is_empty() && from < TOP {
        gaps.push([from, TOP]);
    }
    gaps.truncate(if maps.is_empty() { 0 } else { MAX_GAPS });
    // SAFETY: the header lies in the desk, which nobody else has yet.
    let header = unsafe { &mut *desk.header() };
    header.gaps = gaps.len() as u64;
    header.gap[..gaps.len()].copy_from_slice(&gaps);
}

/// The range of a line of `maps`, if a file or the kernel stands behind it.
fn file_range(line: &str) -> Option<(u64, u64)> {
    let path = line.split_whitespace().nth(5)?;
    if !path.starts_with('/') && !path.starts_with("[v") {
        return None;
    }
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// What a runner does, until nprof has ended.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument holds for all of it: nothing but the kernel is called"
)]
#[expect(clippy::cast_possible_truncation, reason = "addresses and indices of this process, on 64-bit machines")]
extern "C" fn work(given: *mut c_void) -> libc::c_int {
    // SAFETY: `fork` has put the two there.
    let [desk, socket] = unsafe { given.cast::<[u64; 2]>().read() };
    let header: *mut Header = ptr::with_exposed_provenance_mut(desk as usize);
    // SAFETY: all of it concerns this process alone, which has its own descriptors, directory and memory. The
    // ranges leave out what is used from here on.
    unsafe {
        syscall(libc::SYS_dup3, [socket, 0, 0, 0, 0, 0]);
        syscall(libc::SYS_close_range, [1, u64::from(u32::MAX), 0, 0, 0, 0]);
        syscall(libc::SYS_prctl, [libc::PR_SET_NAME as u64, NAME.as_ptr().addr() as u64, 0, 0, 0, 0]);
        syscall(libc::SYS_chdir, [c"/".as_ptr().addr() as u64, 0, 0, 0, 0, 0]);
        let mut index = 0;
        while index < (*header).gaps {
            let [start, end] = *(&raw const (*header).gap).cast::<[u64; 2]>().wrapping_add(index as usize);
            syscall(libc::SYS_munmap, [start, end.wrapping_sub(start), 0, 0, 0, 0]);
            index = index.wrapping_add(1);
        }
        let mut word = 0_u8;
        let word = (&raw mut word).addr() as u64;
        while syscall(libc::SYS_read, [0, word, 1, 0, 0, 0]) == 1 {
            // What the last errand has left open.
            syscall(libc::SYS_close_range, [1, u64::from(u32::MAX), 0, 0, 0, 0]);
            run_steps(header);
            syscall(libc::SYS_write, [0, word, 1, 0, 0, 0]);
        }
        syscall(libc::SYS_exit_group, [0; 6]);
    }
    0
}

/// Makes the system calls that lie on the desk.
///
/// # Safety
/// `header` must be a desk's, which its owner leaves alone for now.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument holds for all of it: nothing but the kernel is called"
)]
#[expect(clippy::cast_possible_truncation, reason = "addresses and indices of this process, on 64-bit machines")]
#[inline(always)]
unsafe fn run_steps(header: *mut Header) {
    // SAFETY: the caller keeps the header in place. The steps were written by `Desk::step` for this purpose: they
    // name places on the desk, which is mapped here at the same address.
    unsafe {
        let steps = (&raw mut (*header).step).cast::<super::desk::Step>();
        let (mut index, mut failed) = (0, false);
        while index < (&raw const (*header).steps).read_volatile() {
            let step = steps.wrapping_add(index as usize);
            let mut args = (&raw const (*step).args).read_volatile();
            let from = (*step).first_from;
            let earlier = if from == index { 0 } else { (*steps.wrapping_add(from as usize)).result };
            let mut result = NOT_MADE;
            if earlier >= 0 && (!failed || (*step).always != 0) {
                if from != index {
                    args[0] = earlier.cast_unsigned();
                }
                result = syscall((*step).number, args);
            }
            (&raw mut (*step).result).write_volatile(result);
            failed |= result < 0;
            index = index.wrapping_add(1);
        }
    }
}
