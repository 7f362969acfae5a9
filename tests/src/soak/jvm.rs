//! One JVM of a soak: it calls natives at a high rate, counts the calls itself where the counts outlive it, and ends in one of
//! several ways.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::code::mappings;
use crate::exposition::{Exposition, Sample, whole};
use crate::jar::Jar;
use crate::process::RemoteProcess;
use crate::serve::Serve;

/// The label that tells these JVMs apart, and the metric.
pub(super) const NUMBER: &str = "number";
const CALLS: &str = "nprof_native_calls_total";
/// Those natives alone are traced: how many of the JDK's are bound when a JVM is met is chance, and each that is bound later
/// adds links.
pub(super) const NATIVES: [&str; 3] = ["targets.Soaked::*", "targets.Many::m?", "targets.Many::m??"];
/// How many these are.
const TRACED: f64 = 108.0;
/// Those that count their calls, as `soaked.c` numbers them.
const COUNTING: [&str; 6] = ["plain", "sum", "mixed", "same", "many", "own"];
/// Threads that call them; each may be in a call when its JVM ends.
const THREADS: u64 = 2;
/// How many other natives each JVM calls, and how often.
const EACH: usize = 100;
const TIMES: u64 = 2;
/// What JVMs become that execute another program, as the kernel names it.
const OTHER: &str = "cat\n";
/// How long an ended process and its last calls may take to be noticed.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// How the calls of a JVM are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Stub,
    Kernel,
}

impl Tier {
    pub(super) const ALL: [Self; 2] = [Self::Stub, Self::Kernel];

    /// Calls of each native in a burst, of which there are up to twenty a second: with probes each takes a microsecond more.
    fn burst(self) -> u32 {
        match self {
            Self::Stub => 5_000,
            Self::Kernel => 100,
        }
    }
}

/// How a JVM ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Exit,
    KilledAtRest,
    KilledUnderLoad,
    /// By becoming another program, with threads in calls.
    Execs,
}

impl End {
    pub(super) const ALL: [Self; 4] = [Self::Exit, Self::KilledAtRest, Self::KilledUnderLoad, Self::Execs];

    /// In which the threads are not stopped before.
    fn is_sudden(self) -> bool {
        matches!(self, Self::KilledUnderLoad | Self::Execs)
    }
}

/// Calls of each native.
type Counts = [u64; COUNTING.len()];

/// A JVM whose calls are checked.
#[derive(Debug)]
pub(super) struct Soaked {
    process: RemoteProcess,
    tier: Tier,
    calls: Calls,
}

/// What a JVM counted of itself, also when it is gone.
#[derive(Debug)]
pub(super) struct Calls {
    number: usize,
    file: PathBuf,
    /// Calls that may have been begun and not ended: they are in one count and not in the other.
    open: u64,
    /// What the JVM has become, which goes on while its calls are looked at.
    becomes: Option<RemoteProcess>,
}

/// What a JVM holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) mappings: usize,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

impl Soaked {
    pub(super) fn start(jar: &Jar<'_>, number: usize, tier: Tier, directory: &Path) -> Result<Self> {
        let file = directory.join(number.to_string());
        let process = RemoteProcess::soaked(jar.jdk(), jar.path(), number, &file)?;
        Ok(Self { process, tier, calls: Calls { number, file, open: 0, becomes: None } })
    }

    /// Calls many natives, which must all be counted, and then some of them until the end. All must be traced first: those of a
    /// JVM that was starting when it was found are picked up within a second.
    pub(super) fn begin(&mut self, serve: &Serve) -> Result<()> {
        let is_ours = |sample: &&Sample| self.calls.owns(sample);
        let traced =
            |samples: &Exposition| samples.with("nprof_methods", &[]).filter(is_ours).map(|s| s.value).sum::<f64>();
        until(serve, |samples| Ok((traced(samples), TRACED)), |seen, all| seen == all).context("traced natives")?;
        self.process.run(&format!("each {EACH} {TIMES}"))?;
        let seen = |samples: &Exposition| -> Vec<u64> {
            let others = samples.with(CALLS, &[("class", "targets.Many")]).filter(is_ours);
            others.filter_map(|sample| whole(sample.value).ok()).collect()
        };
        let all = |samples: &Exposition| Ok((seen(samples), vec![TIMES; EACH]));
        until(serve, all, |seen, made| seen == made).with_context(|| format!("{self:?}"))?;
        self.load()
    }

    /// Has its threads call.
    pub(super) fn load(&mut self) -> Result<()> {
        self.process.run(&format!("load {THREADS} {}", self.tier.burst())).map(drop)
    }

    /// Has its threads stop, and checks that all calls so far were counted.
    pub(super) fn must_be_exact(&mut self, serve: &Serve) -> Result<()> {
        self.process.run("rest")?;
        self.calls.must_be_seen(serve)
    }

    /// Ends it.
    pub(super) fn end(mut self, how: End) -> Result<Calls> {
        if !how.is_sudden() {
            self.process.run("rest")?;
        }
        let Self { mut process, mut calls, .. } = self;
        match how {
            End::Exit => process.exit()?,
            End::KilledAtRest | End::KilledUnderLoad => process.kill()?,
            End::Execs => calls.becomes = Some(another_program(process)?),
        }
        calls.open = if how.is_sudden() { THREADS } else { 0 };
        Ok(calls)
    }

    /// What it holds. Its threads are to be stopped.
    pub(super) fn footprint(&self) -> Result<Footprint> {
        let pid = self.process.pid();
        let entries = |what: &str| -> Result<usize> {
            Ok(std::fs::read_dir(format!("/proc/{pid}/{what}")).context("it has ended")?.count())
        };
        Ok(Footprint { mappings: mappings(pid)?.len(), descriptors: entries("fd")?, threads: entries("task")? })
    }
}

impl Calls {
    /// Checks that they were all counted. Those of a JVM that has ended stay for a while.
    pub(super) fn must_be_seen(&self, serve: &Serve) -> Result<()> {
        for (native, name) in COUNTING.iter().enumerate() {
            let number = self.number.to_string();
            let labels = [(NUMBER, number.as_str()), ("class", "targets.Soaked"), ("method", *name)];
            let both = |samples: &Exposition| Ok((samples.count(CALLS, &labels)?, self.own()?[native]));
            until(serve, both, |seen, made| seen.abs_diff(*made) <= self.open)
                .with_context(|| format!("{name} of {self:?}"))?;
        }
        Ok(())
    }

    /// How many there were.
    pub(super) fn made(&self) -> Result<u64> {
        Ok(self.own()?.iter().sum())
    }

    fn own(&self) -> Result<Counts> {
        let bytes = std::fs::read(&self.file).with_context(|| self.file.display().to_string())?;
        let mut counts = Counts::default();
        ensure!(bytes.len() == size_of::<Counts>(), "{} bytes of counts", bytes.len());
        for (count, bytes) in counts.iter_mut().zip(bytes.as_chunks().0) {
            *count = u64::from_ne_bytes(*bytes);
        }
        Ok(counts)
    }

    fn owns(&self, sample: &Sample) -> bool {
        sample.labels.get(NUMBER).is_some_and(|number| *number == self.number.to_string())
    }
}

/// Scrapes until what was counted is what was made.
pub(super) fn until<T: Debug>(
    serve: &Serve,
    both: impl Fn(&Exposition) -> Result<(T, T)>,
    is_right: impl Fn(&T, &T) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (seen, made) = both(&serve.samples()?)?;
        if is_right(&seen, &made) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{seen:?} were counted, {made:?} made");
        std::thread::sleep(PAUSE);
    }
}

/// Has a JVM become another program.
fn another_program(mut process: RemoteProcess) -> Result<RemoteProcess> {
    process.leave_to("become")?;
    let name = format!("/proc/{}/comm", process.pid());
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&name).with_context(|| format!("it has ended: {name}"))? != OTHER {
        ensure!(Instant::now() < deadline, "it is still a JVM");
        std::thread::sleep(PAUSE);
    }
    Ok(process)
}
