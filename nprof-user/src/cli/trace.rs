//! `nprof trace`: counts and times the native methods of a JVM while it runs.

mod all;
mod output;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use self::output::{Format, Output};
use super::NOTHING_MATCHED;
use super::budget::BudgetArgs;
use super::collect::CollectArgs;
use super::demoted::{Demoted, TRACED};
use super::programs::ProgramArgs;
use super::rules::{self, RuleArgs};
use super::save::Destination;
use super::selection::SelectionArgs;
use super::terminal::{harmless, say};
use super::tier::TierArg;
use super::view::ViewArgs;
use crate::discover::Proc;
use crate::model::{ArgsWanted, Collectors, Jvm, Pid, Snapshot, Tracing};
use crate::render::{By, Order, Scope, slow_timeline};
use crate::resolve::pattern::PATTERN_HELP;
use crate::resolve::program_rule::PROGRAM_HELP;
use crate::resolve::rule::RULE_HELP;
use crate::resolve::thresholds::Thresholds;
use crate::trace::{Ending, Options, Pace, Prepared, ProgramOptions, TargetEnd, Tracer};

/// How often a terminal is redrawn where the user does not say.
const REDRAW: Duration = Duration::from_secs(1);

/// Count and time the native methods of a running JVM
///
/// Prints a summary on Ctrl-C, after --duration, or when the JVM ends. On a terminal, a live table until then.
#[derive(Debug, Args)]
#[command(after_help = long_help())]
pub(super) struct TraceArgs {
    /// The JVM's process id
    #[arg(short, long, required_unless_present = "all")]
    pid: Option<u32>,
    /// Trace every JVM of this host, those that start later included
    #[arg(long, conflicts_with = "pid")]
    all: bool,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Trace at most this many functions; bound methods go first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_methods: Option<u32>,
    #[command(flatten)]
    rules: RuleArgs,
    /// Who counts: probes of the kernel, or stubs inside the JVM, which cost much less and for which nprof loads a
    /// library into it; with --all into every JVM that can have it
    #[arg(long, value_enum, default_value_t)]
    tier: TierArg,
    /// Time one of N calls of methods that are called often, count all of them, and estimate their times: less to pay
    /// for a call than when each is timed. With --tier stub
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["all", "count_only", "slow"],
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    time_every: u32,
    /// Show the slowest of the calls that took this long or longer, such as 10ms, with thread and callers, and what they waited for;
    /// may be given several times, with PATTERN=TIME for some methods and PATTERN=off
    #[arg(long, value_name = "[PATTERN=]TIME", conflicts_with_all = ["count_only"])]
    slow: Vec<String>,
    /// Show what slow calls were made with, and what they returned: numbers, classes, lengths, file descriptors
    #[arg(long, requires = "slow")]
    args: bool,
    /// With --args, also the first characters and bytes of strings and arrays: they may be secrets
    #[arg(long, requires = "args")]
    arg_contents: bool,
    /// Also write the slowest calls to this file as a timeline that Perfetto opens (.trace.json), with all that is known of each
    #[arg(long, value_name = "FILE", requires = "slow")]
    slow_timeline: Option<PathBuf>,
    /// Do not measure how long threads wait inside native methods: no program runs then when CPUs switch threads
    #[arg(long)]
    no_off_cpu: bool,
    #[command(flatten)]
    collect: CollectArgs,
    #[command(flatten)]
    programs: ProgramArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Stop after this time, such as 10s or 1m30s
    #[arg(short, long, value_name = "TIME", value_parser = crate::config::duration::parse)]
    duration: Option<Duration>,
    /// Print what was measured so far this often [on a terminal: 1s]
    #[arg(short, long, value_name = "TIME", value_parser = crate::config::duration::parse)]
    interval: Option<Duration>,
    #[command(flatten)]
    view: ViewArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: Format,
}

/// What is said of patterns, of rules, and of programs.
fn long_help() -> String {
    [PATTERN_HELP, RULE_HELP, PROGRAM_HELP].join("\n\n")
}

impl TraceArgs {
    /// What is told of the arguments of slow calls.
    fn args(&self) -> ArgsWanted {
        match (self.args, self.arg_contents) {
            (false, _) => ArgsWanted::No,
            (true, false) => ArgsWanted::Values,
            (true, true) => ArgsWanted::Contents,
        }
    }

    /// What to trace.
    fn options(&self) -> anyhow::Result<Options> {
        let (rules, timed) = self.rules.parse()?;
        // Where exceptions are kept is known of one VM at a time.
        let has_exits = !self.all && rules.iter().any(|rule| rule.wanted == Tracing::Returned);
        let collectors = self.collect.named(has_exits, timed)?;
        let programs = self.programs.read(self.tier)?;
        self.check_order(collectors, programs.as_ref())?;
        if collectors.have_results() && self.tier == TierArg::Stub {
            bail!("how calls ended is seen by probes alone: omit `--tier stub`");
        }
        let by_thread = self.view.by() == Some(By::Thread);
        if by_thread && self.tier == TierArg::Stub {
            bail!(
                "stubs do not tell threads apart: say `--tier kernel` instead, or `nprof record --tier stub`, whose report divides \
                 calls by the threads of sampled ones (`nprof report FILE --by thread`)"
            );
        }
        // Only probes see how calls end and who makes them, and only where they are do programs run.
        let needs_probes = by_thread || collectors.have_results() || programs.is_some();
        let tier = if needs_probes { TierArg::Kernel } else { self.tier };
        Ok(Options {
            selection: self.selection.parse()?,
            timed,
            rules,
            off_cpu: timed && !self.no_off_cpu,
            max_functions: self.max_methods.map(|most| most as usize),
            budget: self.budget.whole(),
            slow: self.thresholds()?,
            args: self.args(),
            by_thread,
            time_every: self.time_every,
            reach: None,
            tier: tier.into(),
            collectors,
            programs,
            jni: false,
        })
    }
}

impl TraceArgs {
    /// Refuses an order by what is not measured.
    fn check_order(&self, collectors: Collectors, programs: Option<&ProgramOptions>) -> anyhow::Result<()> {
        match self.view.sort() {
            Some(order) if order.column().is_some_and(|column| collectors.columns().all(|other| other != column)) => {
                bail!("`--sort {}` needs that to be collected: say `--collect`, too", order.word())
            }
            Some(Order::Program(name)) => {
                let names = programs.map(ProgramOptions::names).unwrap_or_default();
                if names.is_empty() {
                    bail!(
                        "`--sort program.{name}` is for values that programs of yours leave (`--on-entry`, `--on-return`)"
                    );
                }
                if names.iter().all(|known| known != name) {
                    bail!("no program of yours that leaves values is called `{name}`: there is {}", names.join(", "));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the timeline of slow calls, if there is to be one.
    fn save_slow(&self, snapshots: &[Snapshot]) -> anyhow::Result<()> {
        let Some(path) = &self.slow_timeline else { return Ok(()) };
        Destination::of(path)?.save(|out| slow_timeline::write(snapshots, out))
    }

    fn thresholds(&self) -> anyhow::Result<Option<Thresholds>> {
        if self.slow.is_empty() {
            return Ok(None);
        }
        let thresholds = Thresholds::parse(&self.slow)?;
        if thresholds.least_ns() == u64::MAX {
            bail!("`--slow` has no time: say one, such as `--slow 10ms`, or `--slow PATTERN=10ms` for some methods");
        }
        Ok(Some(thresholds))
    }
}

/// What is to be traced of a JVM; the exit code where that is nothing.
///
/// # Errors
/// If there is no such JVM, it cannot be read, or the user stops before it was.
pub(super) async fn prepare(stop: &mut Stop, pid: Pid, options: Options) -> anyhow::Result<Result<Prepared, ExitCode>> {
    let prepared = read(stop, pid, options).await?;
    Ok(match refuse_unmatched(&prepared) {
        Some(code) => Err(code),
        None => Ok(prepared),
    })
}

/// The same whether anything is selected or not.
///
/// # Errors
/// As [`prepare`].
pub(super) async fn read(stop: &mut Stop, pid: Pid, options: Options) -> anyhow::Result<Prepared> {
    let proc = Proc::host();
    let jvm = proc.jvm(pid)?;
    stop.with_target(&proc, &jvm)?;
    let Some(prepared) = stop.unless_stopped(move || Prepared::new(proc, jvm, options)).await? else {
        bail!("stopped before anything was traced");
    };
    Ok(prepared?)
}

/// Traces until there is a reason to stop, then prints what was measured.
///
/// # Errors
/// If the JVM cannot be traced, or the output cannot be written.
pub(super) fn run(args: &TraceArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    args.view.check_order_of_groups()?;
    if let Some(path) = &args.slow_timeline {
        Destination::of(path)?.try_out()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let traced = match args.pid {
        Some(pid) => runtime.block_on(trace(args, Pid(pid), quiet)),
        None => runtime.block_on(all::trace_all(args, quiet)),
    };
    // A JVM that was still being read holds up nobody: what it has in the kernel goes with the process.
    runtime.shutdown_background();
    traced
}

async fn trace(args: &TraceArgs, pid: Pid, quiet: bool) -> anyhow::Result<ExitCode> {
    // First of all: a signal from now on ends the tracing cleanly.
    let mut stop = Stop::new()?;
    if args.time_every > 1 && args.tier != TierArg::Stub {
        bail!("`--time-every` is about methods with stubs: say `--tier stub`; probes time each call");
    }
    let prepared = match prepare(&mut stop, pid, args.options()?).await? {
        Ok(prepared) => prepared,
        Err(code) => return Ok(code),
    };
    let idle = prepared.idle_rules();
    let mut tracer = prepared.attach()?;
    if !quiet {
        rules::tell_idle(&idle);
        announce(&tracer);
    }
    let mut output = Output::new(args.format, args.view.of(Scope::One), args.interval.is_some());
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let result = follow(&mut tracer, &mut output, &mut stop, deadline, args.interval.unwrap_or(REDRAW)).await;
    tracer.stop();
    result?;
    let snapshot = Snapshot { ended: stop.has_ended(), ..tracer.snapshot() };
    let mut demoted = Demoted::default();
    demoted.add(&snapshot, &tracer.traced_jvm().spent().unwrap_or_default());
    let snapshots = [snapshot];
    output.finish(&snapshots)?;
    args.save_slow(&snapshots)?;
    if !quiet {
        stop.tell(tracer.jvm());
        demoted.tell(TRACED);
    }
    Ok(ExitCode::SUCCESS)
}

/// A pattern without a match is an error that says which names come near.
pub(super) fn refuse_unmatched(prepared: &Prepared) -> Option<ExitCode> {
    let unmatched = prepared.unmatched();
    for pattern in &unmatched {
        say(format_args!("{pattern}"));
    }
    if !unmatched.is_empty() {
        say("only methods of loaded classes are known; `nprof methods` lists them");
        return Some(ExitCode::from(NOTHING_MATCHED));
    }
    if prepared.is_empty() {
        let jvm = prepared.jvm();
        say(format_args!(
            "no native method of {} ({}) is selected; `nprof methods --pid {}` lists them",
            jvm.pid, jvm.main, jvm.pid
        ));
        return Some(ExitCode::from(NOTHING_MATCHED));
    }
    None
}

/// Says that everything is attached. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
fn announce(tracer: &Tracer) {
    let jvm = tracer.jvm();
    let methods = tracer.methods();
    let noun = if methods == 1 { "method" } else { "methods" };
    let stubs = match tracer.stubs() {
        0 => String::new(),
        stubs => format!(": {stubs} by stubs"),
    };
    eprintln!("tracing {methods} {noun} of {} ({}){stubs}", jvm.pid, harmless(&jvm.main));
}

/// Keeps the picture current until there is a reason to stop.
async fn follow(
    tracer: &mut Tracer,
    output: &mut Output,
    stop: &mut Stop,
    deadline: Option<Instant>,
    redraw: Duration,
) -> anyhow::Result<()> {
    let mut pace = Pace::for_one();
    let mut redraw = every(redraw);
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => return reason.map(|_| ()),
            () = pace.tick() => if tracer.is_due() { tracer.tick() },
            _ = redraw.tick(), if output.is_live() => output.update(&[tracer.snapshot()])?,
        }
    }
}

pub(super) fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The reasons to stop: a signal, the time, the end of the target.
pub(super) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    target: Option<TargetEnd>,
    /// How the target has ended, if it has.
    ending: Option<Ending>,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            target: None,
            ending: None,
        })
    }

    /// Also stop when this JVM ends.
    pub(super) fn with_target(&mut self, proc: &Proc, jvm: &Jvm) -> anyhow::Result<()> {
        let program = proc.program(jvm.pid).ok();
        let end = TargetEnd::watch(proc, jvm.pid, program);
        self.target = Some(end.with_context(|| format!("process {} cannot be watched", jvm.pid))?);
        Ok(())
    }

    /// Does what may take a while, unless there is a reason to stop before: then it is left behind, and ends with nprof.
    pub(super) async fn unless_stopped<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        let work = spawn_blocking(work);
        tokio::select! {
            done = work => Ok(Some(done?)),
            reason = self.wait(None) => reason.map(|()| None),
        }
    }

    /// Whether the target's end was the reason.
    fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Says why it was stopped, where that is not plain: the target's process goes on, with another program.
    pub(super) fn tell(&self, jvm: &Jvm) {
        if self.ending == Some(Ending::Program) {
            let (pid, main) = (jvm.pid, &jvm.main);
            say(format_args!(
                "process {pid} runs another program now (exec): {main} has ended, these are its last results"
            ));
        }
    }

    pub(super) async fn wait(&mut self, deadline: Option<Instant>) -> anyhow::Result<()> {
        let Self { interrupt, terminate, hang_up, target, ending } = self;
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = hang_up.recv() => Ok(()),
            () = at(deadline) => Ok(()),
            how = ended(target.as_mut()) => {
                *ending = Some(how?);
                Ok(())
            }
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn ended(target: Option<&mut TargetEnd>) -> io::Result<Ending> {
    match target {
        Some(target) => target.wait().await,
        None => std::future::pending().await,
    }
}
