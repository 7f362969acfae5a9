//! Functions of nprof's own to put probes on, which find out what a probe costs on this machine and where it shows.
#![expect(unsafe_code, reason = "reads an instruction that the kernel may write a probe over")]

use std::arch::naked_asm;

const PUSH_RBP: u8 = 0x55;

/// A function that does nothing.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTarget {
    /// Where it begins.
    pub address: u64,
    function: extern "C" fn(),
}

impl ProbeTarget {
    /// One that begins with an instruction that kernels emulate under a probe.
    #[must_use]
    pub fn emulated() -> Self {
        Self::of(begins_with_push)
    }

    /// One that begins with an instruction that kernels single-step under a probe.
    #[must_use]
    pub fn single_stepped() -> Self {
        Self::of(begins_with_mov)
    }

    /// One that nothing else is done with than to see whether a probe on it shows in this process.
    #[must_use]
    pub fn of_filters() -> Self {
        Self::of(begins_with_push_too)
    }

    /// Whether its first instruction stands there as it was compiled. The kernel writes a probe over it, in the memory
    /// of each process that the probe reaches.
    #[must_use]
    pub fn is_untouched(self) -> bool {
        // SAFETY: the address of a function of this program, whose code is readable and at least a byte long. The kernel
        // exchanges the page beneath it, at most: that is atomic, and `volatile` says that the byte may change.
        let first = unsafe { std::ptr::with_exposed_provenance::<u8>(self.function as usize).read_volatile() };
        first == PUSH_RBP
    }

    /// Calls it.
    pub fn call(self, times: u64) {
        for _ in 0..times {
            (self.function)();
        }
    }

    fn of(function: extern "C" fn()) -> Self {
        Self { address: function as usize as u64, function }
    }
}

#[unsafe(naked)]
extern "C" fn begins_with_push() {
    naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

#[unsafe(naked)]
extern "C" fn begins_with_push_too() {
    // Not the bytes of the other one, which a linker might take for the same function.
    naked_asm!("push rbp", "mov rbp, rsp", "nop", "pop rbp", "ret")
}

#[unsafe(naked)]
extern "C" fn begins_with_mov() {
    naked_asm!("mov eax, edi", "ret")
}
