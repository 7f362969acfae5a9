//! Functions of nprof's own to put probes on, which find out what a probe costs on this machine.

use std::arch::naked_asm;

/// A function that does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Specimen {
    /// Where it begins.
    pub address: u64,
    function: extern "C" fn(),
}

impl Specimen {
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
extern "C" fn begins_with_mov() {
    naked_asm!("mov eax, edi", "ret")
}
