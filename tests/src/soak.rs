//! A service through a long time in which JVMs come and go: what it holds must not grow.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::jar::Jar;
use crate::jdk::Jdk;
use crate::process::RemoteProcess;
use crate::serve::{Serve, UNGOVERNED};
use crate::usage::{Usage, megabytes};

/// JVMs that are alive at the same time.
const ALIVE: usize = 4;
/// One comes and one goes in each of these.
const ROUND: Duration = Duration::from_secs(1);
/// The natives that each JVM has and calls.
const NATIVES: u32 = 200;
/// Those alone are traced: how many of the JDK's are bound when a JVM is met is chance, and each that is bound later adds links.
const OWN: &str = "targets.*";
/// What own memory may grow by, in bytes: it takes a hundred JVMs until the heap has the shape that it keeps. What nprof
/// knows of one JVM takes about 2 MB, so twenty that are not forgotten would be four times this.
const MEMORY_SLACK: u64 = 10 << 20;
/// What was still on its way, such as a connection that is being closed.
const SLACK: usize = 4;
/// As few rounds are looked at to say what is held at a time.
const FEWEST: usize = 4;

/// What was seen in a soak.
#[derive(Debug, Clone)]
pub struct Soak {
    /// JVMs that came and went.
    pub jvms: usize,
    /// Before the first JVM.
    pub idle: Usage,
    /// At the same point of every round: as many JVMs are traced.
    pub rounds: Vec<Usage>,
    /// After the last JVM.
    pub after: Usage,
}

impl Soak {
    /// Serves JVMs that come and go, scraping every round.
    ///
    /// # Errors
    /// When a scrape fails, a loss is counted, or a JVM is not noticed.
    pub fn run(jdk: &Jdk, length: Duration) -> Result<Self> {
        let jar = Jar::of(jdk, "soak", "targets.Bench")?;
        let serve = Serve::start(&[&UNGOVERNED[..], &["--jvm", jar.name(), OWN]].concat())?;
        serve.samples()?;
        let idle = Usage::of(serve.pid())?;
        let (mut alive, mut rounds, mut jvms) = (VecDeque::new(), Vec::new(), 0);
        let began = Instant::now();
        while began.elapsed() < length {
            let round = Instant::now();
            if alive.len() == ALIVE {
                end(alive.pop_front(), jvms)?;
            }
            let mut jvm = RemoteProcess::small_bench(jdk, jar.path(), jvms)?;
            jvm.run(&format!("each {NATIVES} 2"))?;
            alive.push_back(jvm);
            jvms += 1;
            must_have(&serve, alive.len())?;
            if alive.len() == ALIVE {
                rounds.push(least_until(&serve, round + ROUND)?);
            }
            // The pace, not a synchronisation.
            std::thread::sleep(ROUND.saturating_sub(round.elapsed()));
        }
        alive.into_iter().enumerate().try_for_each(|(number, jvm)| end(Some(jvm), number))?;
        must_have(&serve, 0)?;
        let after = settled(&serve, &idle)?;
        ensure!(serve.finish()?.success(), "the service did not end well");
        Ok(Self { jvms, idle, rounds, after })
    }

    /// After the warm-up of a tenth of the rounds.
    #[must_use]
    pub fn early(&self) -> Usage {
        let tenth = self.rounds.len().div_ceil(10);
        let end = (tenth + self.some()).min(self.rounds.len());
        least(self.rounds.get(tenth..end).unwrap_or_default())
    }

    /// At the end.
    #[must_use]
    pub fn late(&self) -> Usage {
        least(&self.rounds[self.rounds.len().saturating_sub(self.some())..])
    }

    /// How many rounds are looked at each time.
    fn some(&self) -> usize {
        self.rounds.len().div_ceil(10).max(FEWEST)
    }

    /// Checks that nothing has grown, and that nothing of the JVMs is left.
    ///
    /// # Errors
    /// When something has.
    pub fn must_be_flat(&self) -> Result<()> {
        let (early, late) = (self.early(), self.late());
        ensure!(late.anonymous < early.anonymous + MEMORY_SLACK, "memory grew: {self}");
        ensure!(late.descriptors <= early.descriptors + SLACK, "descriptors grew: {self}");
        ensure!(late.threads <= early.threads + SLACK, "threads grew: {self}");
        ensure!(late.bpf == early.bpf, "BPF memory grew: {self}");
        ensure!(late.objects[2] <= early.objects[2] + SLACK, "BPF links grew: {self}");
        ensure!(self.after.objects == self.idle.objects, "BPF objects of ended JVMs are left: {self}");
        ensure!(self.after.descriptors <= self.idle.descriptors, "descriptors of ended JVMs are left: {self}");
        Ok(())
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} JVMs came and went, {ALIVE} at a time.\n", self.jvms)?;
        writeln!(f, "| | own memory, MB | resident, MB | BPF, MB | descriptors | threads | BPF links |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        let rows = [("before", self.idle), ("early", self.early()), ("late", self.late()), ("after", self.after)];
        for (when, usage) in rows {
            let Usage { anonymous, resident, bpf, descriptors, threads, objects, .. } = usage;
            let [own, resident, bpf] = [anonymous, resident, bpf].map(megabytes);
            let links = objects[2];
            writeln!(f, "| {when} | {own:.1} | {resident:.1} | {bpf:.1} | {descriptors} | {threads} | {links} |")?;
        }
        Ok(())
    }
}

/// Ends a JVM: every second one cleanly, the others by a kill.
fn end(jvm: Option<RemoteProcess>, number: usize) -> Result<()> {
    match jvm {
        Some(jvm) if number.is_multiple_of(2) => jvm.exit(),
        Some(mut jvm) => jvm.kill(),
        None => Ok(()),
    }
}

/// Scrapes until so many JVMs are traced. Nothing may have been lost.
fn must_have(serve: &Serve, jvms: usize) -> Result<()> {
    let samples =
        serve.scrape_until(&format!("{jvms} JVMs"), |samples| Ok(samples.count("nprof_jvms", &[])? == jvms as u64))?;
    let lost: Vec<_> = samples.with("nprof_losses_total", &[]).filter(|sample| sample.value != 0.0).collect();
    ensure!(lost.is_empty(), "{lost:?}");
    Ok(())
}

/// The least that it holds in the rest of a round: the links of the JVM that has ended are closed in the background, which
/// takes the kernel longer than it may take to attach to the next one.
fn least_until(serve: &Serve, end: Instant) -> Result<Usage> {
    let mut seen = vec![Usage::of(serve.pid())?];
    while Instant::now() < end {
        // Nothing announces that they are closed.
        std::thread::sleep(Duration::from_millis(50));
        seen.push(Usage::of(serve.pid())?);
    }
    Ok(least(&seen))
}

/// What it holds when what it closes in the background is closed, or after a while.
fn settled(serve: &Serve, idle: &Usage) -> Result<Usage> {
    let mut usage = Usage::of(serve.pid())?;
    for _ in 0..100 {
        if usage.objects == idle.objects && usage.descriptors <= idle.descriptors {
            break;
        }
        // Nothing announces that it is closed.
        std::thread::sleep(Duration::from_millis(50));
        usage = Usage::of(serve.pid())?;
    }
    Ok(usage)
}

/// The least of each number: what is still being closed, such as the links of the JVM that has just ended, only adds.
fn least(rounds: &[Usage]) -> Usage {
    fn of<T: Ord + Copy + Default>(rounds: &[Usage], number: impl Fn(&Usage) -> T) -> T {
        rounds.iter().map(number).min().unwrap_or_default()
    }
    Usage {
        anonymous: of(rounds, |usage| usage.anonymous),
        resident: of(rounds, |usage| usage.resident),
        peak: of(rounds, |usage| usage.peak),
        bpf: of(rounds, |usage| usage.bpf),
        descriptors: of(rounds, |usage| usage.descriptors),
        threads: of(rounds, |usage| usage.threads),
        objects: [0, 1, 2].map(|kind| of(rounds, |usage| usage.objects[kind])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that growth is seen, and what does not grow passes.
    #[test]
    fn growth_is_seen() {
        let flat = Usage { anonymous: 20 << 20, descriptors: 30, objects: [4, 5, 12], ..Usage::default() };
        let idle = Usage { descriptors: 10, objects: [4, 5, 2], ..Usage::default() };
        let soak =
            |late: Usage, after: Usage| Soak { jvms: 20, idle, rounds: [[flat; 10], [late; 10]].concat(), after };
        assert!(soak(flat, idle).must_be_flat().is_ok());
        assert!(soak(Usage { anonymous: 35 << 20, ..flat }, idle).must_be_flat().is_err());
        assert!(soak(Usage { descriptors: 40, ..flat }, idle).must_be_flat().is_err());
        assert!(soak(Usage { objects: [4, 5, 22], ..flat }, idle).must_be_flat().is_err());
        let mut closing = soak(flat, idle);
        closing.rounds[19] = Usage { descriptors: 38, objects: [4, 5, 20], ..flat };
        assert!(closing.must_be_flat().is_ok(), "the links of a JVM that has ended are being closed");
        assert!(soak(flat, Usage { objects: [4, 5, 3], ..idle }).must_be_flat().is_err());
        assert!(soak(flat, Usage { descriptors: 11, ..idle }).must_be_flat().is_err());
    }
}
