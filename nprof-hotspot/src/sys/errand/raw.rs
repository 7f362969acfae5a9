//! A system call by nothing but an instruction. A runner has no memory for `errno` and must not call the C library.

use std::arch::asm;

/// Makes system call `number`. Returns what the kernel says: the negative error number where it fails.
///
/// # Safety
/// As for the system call itself.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn syscall(number: i64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel's convention on x86-64; what the call does is up to the caller.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes system call `number`. Returns what the kernel says: the negative error number where it fails.
///
/// # Safety
/// As for the system call itself.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) unsafe fn syscall(number: i64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel's convention on aarch64; what the call does is up to the caller.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    result
}
