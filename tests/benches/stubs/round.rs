//! One round: every way to watch the native, one after the other, each with the same loop.

use anyhow::{Result, ensure};
use nprof_tests::bpftrace::Bpftrace;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::shim_peer::{COUNT as COUNTED, OFF, SIXTEENTH, TIME as TIMED};
use nprof_tests::shim_watch::{StubOptions, Watched};
use nprof_tests::target;

/// Calls per measurement.
const CALLS: u32 = 5_000_000;
/// The same where each call traps.
const TRAPPED_CALLS: u32 = 200_000;
const WARM_UP: usize = 3;
const METHOD: &str = "targets.Stubs::empty";
const SYMBOL: &str = "Java_targets_Stubs_empty";

/// The states of the agent: their names, and what it is told before; to leave, last.
pub(crate) const STATES: [(&str, Option<StubOptions>); 5] = [
    ("off", Some(OFF)),
    ("count", Some(COUNTED)),
    ("every 16th timed", Some(SIXTEENTH)),
    ("time", Some(TIMED)),
    ("detached", None),
];
/// The places of some.
pub(crate) const COUNT: usize = 1;
pub(crate) const TIME: usize = 3;
pub(crate) const DETACHED: usize = 4;
/// Numbers of threads that an agent is measured with.
const THREADS: [u32; 2] = [1, 2];

/// Everything that can be collected.
const COLLECTED: &str = "faults,switches,io,disk,net,syscalls,locks";
/// The places of ways to trace by stubs, and of the first by probes.
pub(crate) const FULL: usize = 1;
pub(crate) const WITHOUT_WAITING: usize = 2;
pub(crate) const ALL_COLLECTED: usize = 3;
const PROBES: usize = 4;
/// Those that look for slow calls, of which there are none, without and with arguments: by stubs, and by probes.
pub(crate) const SLOW: [usize; 2] = [6, 8];
const NO_SLOW: [&str; 2] = ["--slow", "1h"];

/// A way to trace the native by `nprof trace`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced {
    pub name: &'static str,
    options: &'static [&'static str],
    calls: u32,
}

/// Stubs first, then the kernel's probes: those that count, and those that do what the second way of stubs does; then slow calls by both.
pub(crate) const TRACED: [Traced; 10] = [
    Traced { name: "nprof, stubs, count", options: &["--tier", "stub", "--count-only"], calls: CALLS },
    Traced { name: "nprof, stubs, full", options: &["--tier", "stub"], calls: CALLS },
    Traced { name: "nprof, stubs, full but for waiting", options: &["--tier", "stub", "--no-off-cpu"], calls: CALLS },
    Traced { name: "nprof, stubs, all collected", options: &["--tier", "stub", "--collect", COLLECTED], calls: CALLS },
    Traced { name: "nprof, probes, count", options: &["--tier", "kernel", "--count-only"], calls: TRAPPED_CALLS },
    Traced { name: "nprof, probes, full", options: &["--tier", "kernel"], calls: TRAPPED_CALLS },
    Traced {
        name: "nprof, stubs, full, --slow 1h",
        options: &["--tier", "stub", NO_SLOW[0], NO_SLOW[1]],
        calls: CALLS,
    },
    Traced {
        name: "nprof, stubs, full, --slow 1h --args",
        options: &["--tier", "stub", NO_SLOW[0], NO_SLOW[1], "--args"],
        calls: CALLS,
    },
    Traced {
        name: "nprof, probes, full, --slow 1h",
        options: &["--tier", "kernel", NO_SLOW[0], NO_SLOW[1]],
        calls: TRAPPED_CALLS,
    },
    Traced {
        name: "nprof, probes, full, --slow 1h --args",
        options: &["--tier", "kernel", NO_SLOW[0], NO_SLOW[1], "--args"],
        calls: TRAPPED_CALLS,
    },
];

/// What one round measured, in nanoseconds per call.
#[derive(Debug)]
pub(crate) struct Round {
    /// Two readings of the time stamp counter.
    pub readings: f64,
    /// Without agent, by number of threads.
    pub without: [f64; THREADS.len()],
    /// By state and number of threads.
    pub with: [[f64; THREADS.len()]; STATES.len()],
    /// By way of tracing, one thread.
    pub traced: [f64; TRACED.len()],
    /// One thread; nothing where it is not installed.
    pub bpftrace: Option<f64>,
}

impl Round {
    /// Measures everything once.
    pub(crate) fn measure(jdk: &Jdk, [plain, agent, stubbed]: &mut [Target; 3]) -> Result<Self> {
        let readings = plain.per_call("readings", CALLS)?;
        let without = plain.spin()?;
        let mut with = [[0.0; THREADS.len()]; STATES.len()];
        let mut watched = Watched::load(jdk, agent.0.pid(), "targets.Stubs", TIMED)?;
        for ((_, options), times) in STATES.into_iter().zip(&mut with) {
            match options {
                Some(options) => watched.set_options(options)?,
                None => drop(watched.detach()?),
            }
            // What was bound again is compiled again, meanwhile.
            agent.spin()?;
            *times = agent.spin()?;
        }
        let mut traced = [0.0; TRACED.len()];
        for (way, time) in TRACED.into_iter().zip(&mut traced) {
            // No agent has ever been in the one with probes.
            let target = if way.calls == CALLS { &mut *stubbed } else { &mut *plain };
            *time = target.traced(way)?;
        }
        let bpftrace = if Bpftrace::is_installed() { Some(plain.by_bpftrace()?) } else { None };
        Ok(Self { readings, without, with, traced, bpftrace })
    }

    /// What a state of the agent adds to a call.
    pub(crate) fn added(&self, state: usize, threads: usize) -> f64 {
        self.with[state][threads] - self.without[threads]
    }

    /// What stubs add to a call, as a part of what probes add: this way round, stubs that add nothing are no trouble.
    pub(crate) fn stubs_to_probes(&self, stubs: usize) -> f64 {
        let added = |way: usize| self.traced[way] - self.without[0];
        added(stubs) / added(stubs + PROBES)
    }

    /// What one way of tracing adds to another.
    pub(crate) fn more(&self, way: usize, other: usize) -> f64 {
        self.traced[way] - self.traced[other]
    }
}

/// A JVM that calls the native in a loop.
#[derive(Debug)]
pub(crate) struct Target(RemoteProcess);

impl Target {
    /// One that no agent gets into, one for the agent, and one for nprof's own, all warm.
    pub(crate) fn start_all(jdk: &Jdk) -> Result<[Self; 3]> {
        let start = |options: &[&str]| -> Result<Self> {
            let mut target = Self(RemoteProcess::stubs(jdk, options, &[])?);
            for _ in 0..WARM_UP {
                target.spin()?;
            }
            Ok(target)
        };
        Ok([start(&[])?, start(&[])?, start(&[])?])
    }

    /// Ends it.
    pub(crate) fn exit(self) -> Result<()> {
        self.0.exit()
    }

    fn spin(&mut self) -> Result<[f64; THREADS.len()]> {
        let mut times = [0.0; THREADS.len()];
        for (threads, time) in THREADS.into_iter().zip(&mut times) {
            *time = self.per_call(&format!("spins {threads}"), CALLS)?;
        }
        Ok(times)
    }

    /// The cost of a call under nprof, which has to have counted every one.
    fn traced(&mut self, way: Traced) -> Result<f64> {
        let trace = Trace::start(self.0.pid(), &[way.options, &[METHOD]].concat())?;
        // What was bound again is compiled again, meanwhile.
        self.per_call("spins 1", way.calls)?;
        let time = self.per_call("spins 1", way.calls)?;
        let report = trace.finish()?;
        let (counted, made) = (report.methods.iter().map(|row| row.calls).sum::<u64>(), 2 * u64::from(way.calls));
        ensure!(counted == made, "{} saw {counted} of {made} calls", way.name);
        Ok(time)
    }

    fn by_bpftrace(&mut self) -> Result<f64> {
        let library = target::Targets::get()?.library("libstubs.so");
        let bpftrace = Bpftrace::counting(&library, SYMBOL)?;
        let time = self.per_call("spins 1", TRAPPED_CALLS)?;
        let counted = bpftrace.finish()?;
        ensure!(counted == u64::from(TRAPPED_CALLS), "bpftrace counted {counted} of {TRAPPED_CALLS} calls");
        Ok(time)
    }

    /// Has it make calls; nanoseconds per call by its own clock.
    fn per_call(&mut self, command: &str, calls: u32) -> Result<f64> {
        Ok(self.0.took_ns(&format!("{command} {calls}"))? / f64::from(calls))
    }
}
