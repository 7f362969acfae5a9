//! Stops a thread of another process wherever it is, and reads its registers and its stack there.

use anyhow::{Context, Result, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A thread that is held. It goes on when this is dropped.
#[derive(Debug)]
pub struct Stopped {
    thread: Pid,
}

/// The registers that unwinding starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoppedRegisters {
    /// The instruction pointer.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer.
    pub rbp: u64,
    /// The register that the VM's interpreter keeps the bytecode's address in.
    pub r13: u64,
    /// A register that the interpreter keeps a return address in for a moment.
    pub rax: u64,
    /// A register that the interpreter keeps the caller's stack pointer in for a moment.
    pub rbx: u64,
}

impl Stopped {
    /// Stops thread `tid`.
    ///
    /// # Errors
    /// When it may not be stopped, or ends instead.
    pub fn new(tid: u32) -> Result<Self> {
        let thread = Pid::from_raw(i32::try_from(tid)?);
        ptrace::seize(thread, ptrace::Options::empty()).with_context(|| format!("seizing thread {tid}"))?;
        ptrace::interrupt(thread).with_context(|| format!("interrupting thread {tid}"))?;
        loop {
            match waitpid(thread, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceEvent(..) => return Ok(Self { thread }),
                // A signal of the VM's own, delivered on the way.
                WaitStatus::Stopped(_, signal) => ptrace::cont(thread, signal)?,
                other => bail!("thread {tid} did not stop: {other:?}"),
            }
        }
    }

    /// Its registers.
    ///
    /// # Errors
    /// When it has been killed meanwhile.
    pub fn registers(&self) -> Result<StoppedRegisters> {
        let all = ptrace::getregs(self.thread)?;
        Ok(StoppedRegisters { rip: all.rip, rsp: all.rsp, rbp: all.rbp, r13: all.r13, rax: all.rax, rbx: all.rbx })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only if the thread is gone.
        let _gone = ptrace::detach(self.thread, None);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Check that a process is stopped where it waits, and that it goes on.
    #[test]
    fn stops_and_goes_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stopped = Stopped::new(child.id()).unwrap();
        let registers = stopped.registers().unwrap();
        assert!(registers.rsp > registers.rip && registers.rip > 0x1000, "{registers:x?}");
        drop(stopped);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
