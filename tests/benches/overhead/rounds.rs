//! Rounds of measurements: in each, every tool is attached, the same number of calls is made, and it is detached.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::median;
use nprof_tests::bpftrace::Bpftrace;
use nprof_tests::nprof::{Trace, methods};
use nprof_tests::process::RemoteProcess;
use nprof_tests::target::Targets;

use crate::peers::EmptyPair;

/// Enough for a median that a busy moment does not move.
const ROUNDS: usize = 9;
/// Calls per measurement.
const CALLS: u32 = 200_000;
/// In so many parts, of which the quickest counts: what else the machine does only adds to it.
const PARTS: u32 = 10;
/// What calls consume besides work and waiting, which are always told apart.
const COLLECTED: &str = "--collect=faults,syscalls";
/// Calls before the first one, so that the loop is compiled.
const WARM_UP: u32 = 2_000_000;

/// A native to be timed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Native {
    command: &'static str,
    method: &'static str,
    symbol: &'static str,
    begins: &'static str,
    pub floor_bar: &'static str,
    pub peer_bar: &'static str,
    pub peer_limit: f64,
}

impl Native {
    /// The kernel emulates its first instruction.
    pub(crate) const PUSH: Self = Self {
        command: "push",
        method: "targets.Entries::pushFirst",
        symbol: "Java_targets_Entries_pushFirst",
        begins: "a push",
        floor_bar: "push first: nprof's added cost to the empty pair's",
        peer_bar: "push first: nprof's added cost to bpftrace's",
        peer_limit: 0.85,
    };
    /// The kernel single-steps its first instruction, and emulates the third.
    pub(crate) const MOV: Self = Self {
        command: "mov",
        method: "targets.Entries::movThenPush",
        symbol: "Java_targets_Entries_movThenPush",
        begins: "a mov",
        floor_bar: "mov first: nprof's added cost to the empty pair's",
        peer_bar: "mov first: nprof's added cost to bpftrace's",
        peer_limit: 0.3,
    };
}

/// Nanoseconds per call, by round.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    begins: &'static str,
    none: Vec<f64>,
    empty: Vec<f64>,
    nprof: Vec<f64>,
    bpftrace: Vec<f64>,
    /// The same with what calls consume.
    nprof_collecting: Vec<f64>,
    bpftrace_collecting: Vec<f64>,
}

impl Costs {
    /// What nprof adds to a call, as a multiple of what the empty pair adds.
    pub(crate) fn nprof_to_empty(&self) -> f64 {
        self.added_ratio(&self.nprof, &self.empty)
    }

    /// What nprof adds to a call, as a multiple of what bpftrace adds.
    pub(crate) fn nprof_to_bpftrace(&self) -> f64 {
        self.added_ratio(&self.nprof, &self.bpftrace)
    }

    /// The same of both with what calls consume: to the empty pair, and to bpftrace.
    pub(crate) fn collecting(&self) -> [f64; 2] {
        [&self.empty, &self.bpftrace_collecting].map(|other| self.added_ratio(&self.nprof_collecting, other))
    }

    fn added_ratio(&self, tool: &[f64], other: &[f64]) -> f64 {
        let rounds = self.none.iter().zip(tool).zip(other);
        median(rounds.map(|((none, tool), other)| (tool - none) / (other - none)))
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = median(self.none.iter().copied());
        writeln!(f, "A native that begins with {}, {ROUNDS} rounds of {CALLS} calls:\n", self.begins)?;
        writeln!(f, "| | ns per call (least to most) | added ns |\n| --- | --- | --- |")?;
        let rows = [
            ("no probe", &self.none),
            ("empty pair", &self.empty),
            ("nprof", &self.nprof),
            ("bpftrace", &self.bpftrace),
            ("nprof, with page faults and system calls", &self.nprof_collecting),
            ("bpftrace, with these", &self.bpftrace_collecting),
        ];
        for (name, times) in rows {
            let middle = median(times.iter().copied());
            let (least, most) = (least(times), times.iter().copied().fold(0.0, f64::max));
            writeln!(f, "| {name} | {middle:.1} ({least:.1} to {most:.1}) | {:.0} |", middle - none)?;
        }
        writeln!(
            f,
            "\nnprof adds {:.2} x the empty pair's cost, {:.2} x bpftrace's (medians of the rounds' ratios).",
            self.nprof_to_empty(),
            self.nprof_to_bpftrace()
        )?;
        let [to_empty, to_bpftrace] = self.collecting();
        writeln!(
            f,
            "With page faults and system calls {to_empty:.2} x the empty pair's, {to_bpftrace:.2} x bpftrace's."
        )
    }
}

/// Measures every tool on one native.
pub(crate) fn compare(target: &mut RemoteProcess, native: Native) -> Result<Costs> {
    let library = shapes()?;
    time(target, native, WARM_UP)?;
    let listed = methods(target.pid(), &[native.method])?.methods;
    let offset = listed.first().and_then(|method| method.offset).context("the native cannot be probed")?;
    let mut costs = Costs { begins: native.begins, ..Costs::default() };
    for _ in 0..ROUNDS {
        costs.none.push(time(target, native, CALLS * 10)?);
        let pair = EmptyPair::attach(&library, offset, target.pid())?;
        costs.empty.push(time(target, native, CALLS)?);
        drop(pair);
        costs.nprof.push(traced(target, native, &[native.method])?);
        let bpftrace = Bpftrace::timing(&library, native.symbol)?;
        costs.bpftrace.push(time(target, native, CALLS)?);
        let counted = bpftrace.finish()?;
        ensure!(counted == u64::from(CALLS), "bpftrace counted {counted} of {CALLS} calls");
        costs.nprof_collecting.push(traced(target, native, &[COLLECTED, native.method])?);
        let bpftrace = Bpftrace::collecting(&library, native.symbol, target.pid())?;
        costs.bpftrace_collecting.push(time(target, native, CALLS)?);
        let counted = bpftrace.finish()?;
        ensure!(counted == u64::from(CALLS), "bpftrace counted {counted} of {CALLS} calls");
    }
    Ok(costs)
}

/// The cost of a call with few and with many methods attached.
#[derive(Debug, Default)]
pub(crate) struct Scale {
    ten: Vec<f64>,
    many: Vec<f64>,
}

impl Scale {
    /// The cost with many as a multiple of the cost with ten.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.ten.iter().zip(&self.many).map(|(ten, many)| many / ten))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ten, many) = (median(self.ten.iter().copied()), median(self.many.iter().copied()));
        writeln!(
            f,
            "A traced call takes {ten:.1} ns with 10 methods attached and {many:.1} ns with 2,000: {:.3} x.",
            self.ratio()
        )
    }
}

/// Measures the same native with 10 and with 2,000 methods attached.
pub(crate) fn ten_and_many(target: &mut RemoteProcess) -> Result<Scale> {
    let native = Native::PUSH;
    // Loads the class.
    target.run("many 0")?;
    let mut scale = Scale::default();
    for _ in 0..ROUNDS {
        scale.ten.push(traced(target, native, &[native.method, "targets.Many::m[0-8]"])?);
        scale.many.push(traced(target, native, &[native.method, "targets.Many::m*", "--max-methods", "2000"])?);
    }
    Ok(scale)
}

/// The cost of a call under nprof, which has to have counted every one.
fn traced(target: &mut RemoteProcess, native: Native, args: &[&str]) -> Result<f64> {
    let trace = Trace::start(target.pid(), args)?;
    let cost = time(target, native, CALLS)?;
    let report = trace.finish()?;
    let (class, method) = native.method.split_once("::").context("a method has a class")?;
    let counted = report.methods.iter().find(|row| row.class == class && row.method == method).map(|row| row.calls);
    ensure!(counted == Some(u64::from(CALLS)), "nprof counted {counted:?} of {CALLS} calls");
    Ok(cost)
}

/// Has the target make calls; nanoseconds per call by its own clock, of the quickest part.
fn time(target: &mut RemoteProcess, native: Native, calls: u32) -> Result<f64> {
    let part = calls / PARTS;
    let parts = (0..PARTS).map(|_| Ok(target.took_ns(&format!("{} {part}", native.command))? / f64::from(part)));
    Ok(least(&parts.collect::<Result<Vec<_>>>()?))
}

fn shapes() -> Result<PathBuf> {
    Ok(Targets::get()?.library("libshapes.so"))
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}
