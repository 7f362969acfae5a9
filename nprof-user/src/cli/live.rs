//! Recording a JVM that runs: what `record` and `flamegraph --pid` share.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio::time::Instant;

use super::budget::BudgetArgs;
use super::collect::CollectArgs;
use super::demoted::{Demoted, RECORDED};
use super::terminal::{harmless, say};
use super::tier::TierArg;
use super::trace::{Stop, every, refuse_unmatched};
use super::tree::{self, Following};
use crate::discover::Proc;
use crate::govern::Budget;
use crate::model::{ArgsWanted, Jvm, Pid, Profile, RecordedTrees};
use crate::render::units;
use crate::resolve::select::Selection;
use crate::trace::{
    self, OnCpu, OnCpuWanted, Options, Pace, Prepared, Recorder, TierWanted, TreeRecorder, TreeTracer, TreeWants,
    Wanted,
};

/// How often a terminal is told how far it is.
const TELL: Duration = Duration::from_millis(500);
/// How much of a stack is normally copied, in bytes.
const STACK_SIZE: u32 = 32 << 10;
/// The same by timer: there are native frames besides those of Java, and a stack on which most of a program runs, such as a
/// compiler's, is deeper than where it calls a native method.
const STACK_SIZE_ON_CPU: u32 = 64 << 10;
/// The most of a stack that can be copied, in bytes.
const MAX_STACK_SIZE: u32 = 124 << 10;

/// How to record.
#[derive(Debug, Clone, Args)]
pub(super) struct LiveArgs {
    /// Stop after this time, such as 10s or 1m30s [default: at Ctrl-C, or when the JVM ends]
    #[arg(short, long, value_name = "TIME", requires = "pid", value_parser = crate::config::duration::parse)]
    duration: Option<Duration>,
    /// Sample where threads use the CPU, by timer, instead of tracing calls: shows native code next to all the rest
    #[arg(long, requires = "pid", conflicts_with_all = ["library", "exclude", "no_off_cpu", "timeline", "collect"])]
    on_cpu: bool,
    /// Also show the native functions inside native methods, sampled by timer and when threads stop running
    #[arg(long, requires = "pid")]
    native_stacks: bool,
    /// The most stacks to take in a second; counts and times do not depend on it
    #[arg(long, value_name = "N", requires = "pid", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_stacks: u32,
    /// How much of a thread's stack is copied, 1k to 124k; deeper ones are cut, and say so [default: 32k, with --on-cpu 64k]
    #[arg(long, value_name = "BYTES", requires = "pid", value_parser = stack_size)]
    stack_size: Option<u32>,
    /// Do not measure how long threads wait inside native methods; work and waiting are not told apart then
    #[arg(long, requires = "pid")]
    no_off_cpu: bool,
    /// Who counts, times and chooses the calls whose stacks are taken. With `stub` that costs a JVM with hot natives next to
    /// nothing; nprof loads its library into the JVM for it. Calls that do not return are in no picture then
    #[arg(long, value_enum, requires = "pid", default_value_t = TierArg::Kernel, conflicts_with = "on_cpu")]
    tier: TierArg,
    #[command(flatten)]
    collect: CollectArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Also keep each single call, for a timeline (.trace.json); five million at most
    #[arg(long, requires = "pid")]
    timeline: bool,
    /// Also keep what each call of the timeline was made with, and what it returned: numbers, classes, lengths, file descriptors. One
    /// million calls at most
    #[arg(long, requires = "pid", conflicts_with = "on_cpu")]
    args: bool,
}

/// What else a result needs, that no option of how to record asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    /// Off-CPU times.
    pub(super) off_cpu: bool,
    /// Every call.
    pub(super) timeline: bool,
    /// Invocations of Java methods.
    pub(super) following: Option<Following>,
}

/// A recording that has ended, or the reason why there is none.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What was recorded.
    Recorded(Box<Profile>),
    /// Nothing matched; it has been said.
    NothingMatched,
}

impl LiveArgs {
    /// Whether anything was said of how to record.
    pub(super) fn says_how(&self) -> bool {
        let numbers = self.duration.is_some() || self.stack_size.is_some();
        numbers
            || self.on_cpu
            || self.native_stacks
            || self.no_off_cpu
            || self.timeline
            || self.args
            || self.collect.is_wanted()
    }

    /// Whether the CPU is sampled and no call is seen.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.on_cpu
    }

    /// What invocations are to tell, of what is measured of calls.
    ///
    /// # Errors
    /// If there is no such collector.
    pub(super) fn wants_of_trees(&self) -> anyhow::Result<TreeWants> {
        let collectors = self.collect.named(false, true)?.without_allocations();
        Ok(TreeWants { off_cpu: !self.no_off_cpu, collectors })
    }

    /// Records until there is a reason to stop.
    ///
    /// # Errors
    /// If the JVM cannot be recorded.
    pub(super) fn record(
        &self,
        pid: u32,
        selection: Selection,
        patterns: &[String],
        needs: Needs,
        quiet: bool,
    ) -> anyhow::Result<Outcome> {
        if self.on_cpu && !patterns.is_empty() {
            bail!("`--on-cpu` samples whatever runs and knows no methods: omit the patterns");
        }
        if needs.following.is_some() && self.tier != TierArg::Kernel {
            bail!("trees take nprof's library in the JVM for themselves: choose between `--tree` and `--tier`");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let recorded = runtime.block_on(async {
            // First of all: a signal from now on ends the recording cleanly.
            let mut stop = Stop::new()?;
            let proc = Proc::host();
            let jvm = proc.jvm(Pid(pid))?;
            stop.with_target(&proc, &jvm)?;
            let trees = match &needs.following {
                Some(following) => {
                    let Some(tracer) = following.open(&mut stop, &proc, &jvm).await? else {
                        return Ok(Outcome::NothingMatched);
                    };
                    let share = self.budget_of_each(&needs).map(|budget| budget.share);
                    Some(tree::begin(tracer, TreeTracer::enhance, share, &mut stop, quiet).await?)
                }
                None => None,
            };
            let (args, patterns) = (self.clone(), patterns.to_vec());
            let start = move || args.start(proc, jvm, selection, patterns, needs);
            let Some(live) = stop.unless_stopped(start).await? else { bail!("stopped before anything was recorded") };
            let Some(mut live) = live? else { return Ok(Outcome::NothingMatched) };
            let trees = match trees {
                Some(tracer) => Some(record_trees(tracer, &mut stop).await?),
                None => None,
            };
            let told = Told::new(quiet, self.duration);
            told.begin(&live);
            let result = follow(&mut live, &mut stop, &told, self.duration).await;
            told.end();
            result?;
            // First the trees: what they hold of natives was recorded as well.
            if let Some(trees) = &trees {
                trees.pause();
            }
            if !quiet {
                stop.tell(live.jvm());
                live.tell_demoted();
            }
            let jvm = live.jvm().clone();
            let profile = live.finish()?;
            // All threads stop for that, in natives as well: it is in none of their times.
            let trees = trees.map(|trees| end(trees, &jvm, quiet)).transpose()?;
            Ok(Outcome::Recorded(Box::new(Profile { trees: trees.map(Box::new), ..profile })))
        });
        // A JVM that was still being read holds up nobody: what it has in the kernel goes with the process.
        runtime.shutdown_background();
        recorded
    }

    /// What probes may cost, and what enhanced methods may cost: what there is is shared where both cost something.
    fn budget_of_each(&self, needs: &Needs) -> Option<Budget> {
        self.budget.part(if needs.following.is_some() && !self.on_cpu { 2.0 } else { 1.0 })
    }

    /// Who counts: what only probes can see needs these.
    fn tier(&self, needs: &Needs) -> anyhow::Result<TierWanted> {
        let by_probes = [
            (self.native_stacks, "native frames (--native-stacks)"),
            (self.timeline || needs.timeline, "single calls (--timeline, .trace.json)"),
        ];
        let only_probes = by_probes.iter().find_map(|(wanted, what)| wanted.then_some(*what));
        match (only_probes, self.tier) {
            (Some(what), TierArg::Stub) => bail!("stubs do not see {what}: choose between that and `--tier stub`"),
            (Some(_), _) => Ok(TierWanted::Kernel),
            (None, tier) => Ok(tier.into()),
        }
    }

    fn start(
        &self,
        proc: Proc,
        jvm: Jvm,
        selection: Selection,
        patterns: Vec<String>,
        needs: Needs,
    ) -> anyhow::Result<Option<Live>> {
        if self.on_cpu {
            let stack_bytes = self.stack_size.unwrap_or(STACK_SIZE_ON_CPU);
            let wanted = OnCpuWanted { max_stacks: self.max_stacks, stack_bytes };
            return Ok(Some(Live::OnCpu(Box::new(OnCpu::start(&proc, jvm, wanted)?))));
        }
        if self.no_off_cpu && needs.off_cpu {
            bail!("`--no-off-cpu` does not measure what this `--weight` shows: omit one of the two");
        }
        let timeline = self.timeline || needs.timeline;
        if self.args && !timeline {
            bail!("`--args` is about the calls of a timeline: say `--timeline`, too, or draw one (-o x.trace.json)");
        }
        let tier = self.tier(&needs)?;
        let collectors = self.collect.named(false, true)?;
        if collectors.have_results() {
            bail!("`--collect results` is for `nprof trace --pid`: recordings do not keep how calls ended");
        }
        let (budget, off_cpu) = (self.budget_of_each(&needs), !self.no_off_cpu);
        let args = if self.args { ArgsWanted::Values } else { ArgsWanted::No };
        let options = Options { budget, tier, off_cpu, collectors, args, ..Options::by_probes(selection) };
        let prepared = Prepared::new(proc, jvm, options)?;
        if refuse_unmatched(&prepared).is_some() {
            return Ok(None);
        }
        let wanted = Wanted {
            max_stacks: self.max_stacks,
            stack_bytes: self.stack_size.unwrap_or(STACK_SIZE),
            native_stacks: self.native_stacks,
            timeline,
            patterns,
            first_chance: None,
        };
        Ok(Some(Live::Calls(Box::new(prepared.record(wanted)?))))
    }
}

/// A recording under way.
enum Live {
    Calls(Box<Recorder>),
    OnCpu(Box<OnCpu>),
}

impl Live {
    fn tick(&mut self) {
        if let Self::Calls(recorder) = self {
            recorder.tick();
        }
    }

    fn jvm(&self) -> &Jvm {
        match self {
            Self::Calls(recorder) => recorder.tracer().jvm(),
            Self::OnCpu(on_cpu) => on_cpu.jvm(),
        }
    }

    /// Says of which methods not every call was timed.
    fn tell_demoted(&self) {
        if let Self::Calls(recorder) = self {
            let mut demoted = Demoted::default();
            demoted.add(&recorder.snapshot(), &recorder.tracer().traced_jvm().spent().unwrap_or_default());
            demoted.tell(RECORDED);
        }
    }

    fn stacks(&self) -> u64 {
        match self {
            Self::Calls(recorder) => recorder.stacks(),
            Self::OnCpu(on_cpu) => on_cpu.stacks(),
        }
    }

    fn finish(self) -> Result<Profile, trace::Error> {
        match self {
            Self::Calls(recorder) => recorder.finish(),
            Self::OnCpu(on_cpu) => on_cpu.finish(),
        }
    }
}

/// Has the trees of enhanced methods recorded: once everything else is in place, so that they are of the time that is asked for.
async fn record_trees(mut tracer: TreeTracer, stop: &mut Stop) -> anyhow::Result<TreeRecorder> {
    let recording = stop.unless_stopped(move || {
        tracer.record()?;
        TreeRecorder::start(tracer, tree::clock())
    });
    let Some(recorder) = recording.await? else { bail!("stopped before anything was recorded") };
    Ok(recorder?)
}

/// Has trees recorded no more, and says what went wrong with them.
fn end(trees: TreeRecorder, jvm: &Jvm, quiet: bool) -> Result<RecordedTrees, trace::Error> {
    let (trees, end) = trees.finish()?;
    match end {
        Ok(end) if !quiet => tree::tell_end(end),
        // Of a JVM that has ended there is nothing to be changed back.
        Err(error) if Proc::host().is_same(jvm) => {
            let error = anyhow::Error::from(error);
            let elapsed_ns = u64::try_from(trees.elapsed.as_nanos()).unwrap_or(u64::MAX);
            say(format_args!("trees are missing from {} on: {error:#}", units::duration(elapsed_ns)));
        }
        _ => {}
    }
    Ok(trees)
}

async fn follow(live: &mut Live, stop: &mut Stop, told: &Told, duration: Option<Duration>) -> anyhow::Result<()> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let (mut pace, mut tell) = (Pace::for_one(), every(TELL));
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => return reason,
            () = pace.tick() => live.tick(),
            _ = tell.tick(), if told.is_terminal => told.progress(live),
        }
    }
}

/// What the user is told meanwhile.
struct Told {
    quiet: bool,
    is_terminal: bool,
    start: Instant,
    duration: Option<Duration>,
}

#[expect(clippy::print_stderr, reason = "the announcement and the line of progress have their own forms")]
impl Told {
    fn new(quiet: bool, duration: Option<Duration>) -> Self {
        Self { quiet, is_terminal: !quiet && std::io::stderr().is_terminal(), start: Instant::now(), duration }
    }

    /// Says that everything is attached. Scripts wait for this line.
    fn begin(&self, live: &Live) {
        let jvm = live.jvm();
        let (pid, main) = (jvm.pid, harmless(&jvm.main));
        match live {
            _ if self.quiet => {}
            Live::Calls(recorder) => {
                let methods = recorder.tracer().methods();
                let noun = if methods == 1 { "method" } else { "methods" };
                eprintln!("recording {methods} {noun} of {pid} ({main}){}", self.until());
            }
            Live::OnCpu(_) => eprintln!("sampling the CPU of {pid} ({main}){}", self.until()),
        }
    }

    fn until(&self) -> &'static str {
        if self.duration.is_none() && self.is_terminal { "; Ctrl-C ends the recording" } else { "" }
    }

    fn progress(&self, live: &Live) {
        let passed = self.start.elapsed().as_secs();
        let of = self.duration.map(|duration| format!(" of {}", duration.as_secs_f64())).unwrap_or_default();
        eprint!("\r\x1b[K{passed}{of} s, {} stacks", units::count(live.stacks()));
        // A line that is not shown is no loss.
        drop(std::io::stderr().flush());
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Says what a recording holds, so that a bad one is noticed before somebody looks at its picture.
pub(super) fn tell_quality(profile: &Profile) {
    let quality = &profile.quality;
    let cut = quality.stacks - quality.complete;
    if cut > 0 {
        say(format_args!("{cut} of {} stacks are cut ({})", quality.stacks, reasons(&quality.cut)));
    }
    if quality.guessed > 0 {
        let why = "the caller of native code without unwind information";
        say(format_args!("{} of {} stacks rest on a guess ({why})", quality.guessed, quality.stacks));
    }
    let lost: u64 = quality.lost.iter().map(|(_, count)| count).sum();
    if lost > 0 {
        let calls = if lost == 1 { "call has" } else { "calls have" };
        say(format_args!("{lost} sampled {calls} no stack ({})", reasons(&quality.lost)));
    }
}

fn reasons(counts: &[(String, u64)]) -> String {
    let reasons: Vec<String> = counts.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    reasons.join(", ")
}

fn stack_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        text if text.ends_with('k') => (text[..text.len() - 1].to_owned(), 1 << 10),
        text => (text, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.filter(|bytes| (1 << 10..=MAX_STACK_SIZE).contains(bytes));
    bytes.ok_or_else(|| format!("a number of bytes from 1k to {}k, such as 32k", MAX_STACK_SIZE >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what is understood as a size, and that nothing else is.
    #[test]
    fn reads_stack_sizes() {
        assert_eq!(stack_size("32k"), Ok(32 << 10));
        assert_eq!(stack_size("124K"), Ok(124 << 10));
        assert_eq!(stack_size("4096"), Ok(4096));
        for wrong in ["", "k", "0", "1m", "125k", "-1", "4294967296", "4194304k", "é"] {
            assert!(stack_size(wrong).is_err(), "{wrong}");
        }
    }
}
