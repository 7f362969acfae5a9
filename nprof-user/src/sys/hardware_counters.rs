//! Whether this machine counts what its CPUs do: cycles, for a start. Asked of the kernel by counting some of our own.
#![expect(unsafe_code, reason = "a system call that no library offers, and what it takes")]

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read as _};
use std::mem::size_of;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use aya_obj::generated::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_hw_id, perf_type_id};

/// Additions that surely take a cycle, also where a counter is read late.
const WORK: u64 = 100_000;

/// What came of counting this thread's own cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardwareCounters {
    /// They are counted.
    There,
    /// The kernel knows no such counter on this machine, or one that stands still, as some hypervisors have it.
    Missing,
    /// The kernel does not let this process ask, with the number of its error.
    Refused(i32),
}

impl HardwareCounters {
    /// Counts the cycles of the calling thread in user space, which takes the least of permissions, for some microseconds.
    #[must_use]
    pub fn of_this_machine() -> Self {
        match cycles_of_some_work() {
            Ok(0) => Self::Missing,
            Ok(_) => Self::There,
            Err(error) => Self::from_error(error.raw_os_error().unwrap_or_default()),
        }
    }

    /// `perf_event_open(2)`: without such hardware it is one of three errors.
    fn from_error(number: i32) -> Self {
        match number {
            libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => Self::Missing,
            _ => Self::Refused(number),
        }
    }
}

fn cycles_of_some_work() -> io::Result<u64> {
    let mut counter = File::from(open_cycles()?);
    (0..WORK).for_each(|number| {
        black_box(number);
    });
    let mut count = [0; size_of::<u64>()];
    counter.read_exact(&mut count)?;
    Ok(u64::from_ne_bytes(count))
}

fn open_cycles() -> io::Result<OwnedFd> {
    // SAFETY: the structure is of integers and unions of integers, for which zero is a value.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = perf_type_id::PERF_TYPE_HARDWARE as u32;
    attr.size = u32::try_from(size_of::<perf_event_attr>()).map_err(io::Error::other)?;
    attr.config = perf_hw_id::PERF_COUNT_HW_CPU_CYCLES as u64;
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the kernel reads `attr`, which says its own size, and answers with a descriptor or an error.
    let answer = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, this_thread, any_cpu, no_group, PERF_FLAG_FD_CLOEXEC)
    };
    let fd = RawFd::try_from(answer).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a descriptor that the kernel has just made, and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a machine without counters is told from a kernel that does not answer.
    #[test]
    fn tells_what_is_missing_from_what_is_refused() {
        for number in [libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP] {
            assert_eq!(HardwareCounters::from_error(number), HardwareCounters::Missing);
        }
        for number in [libc::EACCES, libc::EPERM, libc::ENOSYS] {
            assert_eq!(HardwareCounters::from_error(number), HardwareCounters::Refused(number));
        }
    }

    /// Check that the kernel understands the question, whatever it answers.
    #[test]
    fn asks_in_the_words_of_the_kernel() {
        let answer = HardwareCounters::of_this_machine();
        assert!(!matches!(answer, HardwareCounters::Refused(libc::EINVAL | libc::E2BIG | libc::EFAULT)), "{answer:?}");
        assert_eq!(answer, HardwareCounters::of_this_machine());
    }
}
