//! What the host of a virtual machine takes of its CPUs: a thread's own CPU clock leaves it out (`PARAVIRT_TIME_ACCOUNTING`),
//! though the thread is not switched for it, so that the clock and the scheduler differ by so much.

use std::fs;

use anyhow::{Context as _, Result};

/// The CPU time of all CPUs up to a moment, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Stolen {
    stolen: u64,
    /// That, and what threads and interrupts have used.
    used: u64,
}

impl Stolen {
    /// From now on.
    ///
    /// # Errors
    /// When the kernel does not say it.
    pub fn from_now_on() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("no line of all CPUs")?;
        let ticks: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [user, nice, system, _idle, _iowait, irq, soft_irq, stolen, ..] = ticks[..] else {
            anyhow::bail!("/proc/stat has too few columns: {line}");
        };
        Ok(Self { stolen, used: user + nice + system + irq + soft_irq + stolen })
    }

    /// The share of the time on a CPU that was stolen meanwhile, from 0 to 1.
    ///
    /// # Errors
    /// As [`Self::from_now_on`].
    pub fn share(&self) -> Result<f64> {
        let now = Self::from_now_on()?;
        Ok((now.stolen - self.stolen) as f64 / (now.used - self.used).max(1) as f64)
    }

    /// The time that was stolen meanwhile from all CPUs, in nanoseconds, rounded up to the next tick.
    ///
    /// # Errors
    /// As [`Self::from_now_on`].
    pub fn ns(&self) -> Result<f64> {
        /// `USER_HZ` is 100 on every Linux.
        const TICK_NS: f64 = 10e6;
        Ok((Self::from_now_on()?.stolen - self.stolen + 1) as f64 * TICK_NS)
    }
}
