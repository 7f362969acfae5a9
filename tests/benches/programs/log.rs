//! What a program has written down of itself, operations done every few milliseconds, beside its CPU time, which is noted
//! here: the JVM tells its own in hundredths of a second.

#![expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::time::{ClockId, clock_gettime};
use nprof_tests::usage::cpu_time;

/// How often CPU time is noted.
const STEP: Duration = Duration::from_millis(10);

/// A moment by the clock of `System.nanoTime`, in nanoseconds.
pub(crate) fn now() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

/// What has only grown, by time.
#[derive(Debug)]
struct Series(Vec<(u64, f64)>);

impl Series {
    /// What it was then. Between two entries it grows evenly.
    fn at(&self, moment: u64) -> Result<f64> {
        let after = self.0.partition_point(|(at, _)| *at < moment);
        let pair = after.checked_sub(1).and_then(|before| Some((self.0[before], *self.0.get(after)?)));
        let (before, after) = pair.with_context(|| {
            let ends = self.0.first().zip(self.0.last()).map(|(first, last)| (first.0, last.0));
            format!("what is known, {ends:?}, does not have {moment}")
        })?;
        Ok(before.1 + (after.1 - before.1) * (moment - before.0) as f64 / (after.0 - before.0) as f64)
    }

    fn grown(&self, from: u64, to: u64) -> Result<f64> {
        Ok(self.at(to)? - self.at(from)?)
    }
}

/// Notes the CPU time of a process, in a separate thread.
#[derive(Debug)]
pub(crate) struct CpuNotes {
    stop: Sender<()>,
    thread: JoinHandle<Result<Series>>,
}

impl CpuNotes {
    /// Begins.
    pub(crate) fn begin(pid: u32) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut notes = Vec::new();
            while stopped.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                notes.push((now()?, 1e6 * cpu_time(pid)?));
            }
            Ok(Series(notes))
        });
        Self { stop, thread }
    }

    /// Ends, and puts them beside what the program answered.
    pub(crate) fn with(self, answer: &[String]) -> Result<Log> {
        drop(self.stop);
        let cpu_us = self.thread.join().map_err(|panic| anyhow!("CPU time could not be noted: {panic:?}"))??;
        let line = |text: &String| -> Result<(u64, f64)> {
            let words: Vec<&str> = text.split(' ').collect();
            let ["at", at, operations] = words[..] else { bail!("no line of a log: {text}") };
            Ok((at.parse()?, operations.parse()?))
        };
        Ok(Log { operations: Series(answer.iter().map(line).collect::<Result<_>>()?), cpu_us })
    }
}

/// Both, of some time.
#[derive(Debug)]
pub(crate) struct Log {
    operations: Series,
    cpu_us: Series,
}

/// What was done in a part of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Operations per second.
    pub rate: f64,
    /// CPU time per operation, in microseconds; not a number if there was none.
    pub cost: f64,
}

impl Log {
    /// How it went from one moment to another.
    pub(crate) fn pace(&self, from: u64, to: u64) -> Result<Pace> {
        let operations = self.operations.grown(from, to)?;
        let cost = if operations > 0.0 { self.cpu_us.grown(from, to)? / operations } else { f64::NAN };
        Ok(Pace { rate: operations * 1e9 / (to - from) as f64, cost })
    }
}
