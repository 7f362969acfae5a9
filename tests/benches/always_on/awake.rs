//! CPUs that never rest: a virtual machine's host gives one that does to somebody else, and what it had in its caches with it.

use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result};

/// Processes that take what is left of each CPU, and give it up to whoever wants it. They end with this.
#[derive(Debug)]
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    /// Starts them.
    pub(crate) fn keep() -> Result<Self> {
        let mut spinning = Self(Vec::new());
        for _ in 0..available_parallelism()?.get() {
            spinning.0.push(spin()?);
        }
        Ok(spinning)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only for one that has ended.
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// The kernel runs it when nobody else wants the CPU. It ends if this process does, however.
fn spin() -> Result<Child> {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0", "sh", "-c", "while kill -0 $PPID; do :; done"]).stdin(Stdio::null());
    command.spawn().context("chrt, of util-linux")
}
