//! `nprof tree`: chosen methods and what they call, invocation by invocation.

mod following;
mod output;
mod shown;

pub(super) use self::following::{FollowArgs, Following, begin, tell_end};
pub(super) use self::output::clock;
pub(super) use self::shown::Shown;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tokio::time::{Instant, Interval, timeout};

use self::output::Output;
use super::NOTHING_MATCHED;
use super::budget::{Budget, budget};
use super::collect::CollectArgs;
use super::trace::{Stop, every};
use crate::discover::Proc;
use crate::model::{Invocation, Jvm, Pid};
use crate::resolve::pattern::PATTERN_HELP;
use crate::trace::{self, TreeCollector, TreeEnd, TreeTracer, TreeWants};

/// How long after the shim has gone the JVM may take to end.
const ENDING: Duration = Duration::from_secs(1);

/// Show single invocations of a Java method: everything that it called, as a tree with exact times
///
/// nprof reads from the bytecode what the method can call, has these methods tell when they are entered and left (their classes are changed
/// while it runs, and changed back at the end), and prints the tree of an invocation when the method returns. Native methods are nodes
/// where these methods call them. nprof loads its shim into the JVM for this.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(super) struct TreeArgs {
    /// The JVM's process id
    #[arg(short, long)]
    pid: u32,
    /// Where trees begin: methods, as globs on class::method
    #[arg(value_name = "ENTRY", required = true)]
    entries: Vec<String>,
    #[command(flatten)]
    follow: FollowArgs,
    /// The most that telling may cost the JVM, as a share of its CPU time: methods that are called too often tell no more, and are part of
    /// their callers then. `off` follows all of them, whatever that costs
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = budget)]
    max_overhead: Budget,
    /// Show only invocations that took this long or longer, such as 10ms
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration::parse)]
    min: Option<Duration>,
    /// Stop after this many invocations were shown
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this time, such as 10s or 1m30s
    #[arg(short, long, value_name = "TIME", value_parser = crate::config::duration::parse)]
    duration: Option<Duration>,
    /// Do not measure how long threads wait: without `--collect` nothing of nprof runs in the kernel then
    #[arg(long)]
    no_off_cpu: bool,
    #[command(flatten)]
    collect: CollectArgs,
    /// Only print what would be changed and what is left out and why; nothing is changed
    #[arg(long, conflicts_with_all = ["min", "count", "duration", "summary", "whole"])]
    plan: bool,
    /// At the end say how long invocations took, and where the time of slow ones went
    #[arg(long)]
    summary: bool,
    /// Show every method of a tree; otherwise those with less than 0.5 % of the time are added up
    #[arg(long)]
    whole: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: Format,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// A line for each invocation, and a last one with the summary
    Json,
    /// All trees together as folded stacks, for flame graphs of other tools
    Folded,
    /// All trees together as a flame graph
    Svg,
    /// The single calls as a timeline, for ui.perfetto.dev
    Perfetto,
}

const EXAMPLES: &str = "\
Examples:
  nprof tree --pid 1234 'com.acme.Svc::get'                 every invocation, until Ctrl-C
  nprof tree --pid 1234 'com.acme.Svc::get' --plan          what would be changed
  nprof tree --pid 1234 'com.acme.Svc::get' --min 10ms -n 9 nine slow ones
  nprof tree --pid 1234 'com.acme.Svc::get' --package 'com.acme.**' --package 'java.util.zip.*'
                                                            with what is called in these packages
  nprof tree --pid 1234 'com.acme.Svc::*' -d 30s --summary  where the time of slow ones goes";

fn after_help() -> String {
    let patterns = PATTERN_HELP.replacen("PATTERN is", "ENTRY is", 1);
    format!("{EXAMPLES}\n\n{patterns}")
}

/// Follows invocations until there is a reason to stop.
///
/// # Errors
/// If the JVM cannot be followed, or the output cannot be written.
pub(super) fn run(args: &TreeArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    if args.plan && !matches!(args.format, Format::Text | Format::Json) {
        bail!("`--plan` is printed as text or as JSON");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let followed = runtime.block_on(follow(args, quiet));
    // A JVM that was still being read holds up nobody.
    runtime.shutdown_background();
    followed
}

async fn follow(args: &TreeArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    // First of all: a signal from now on ends everything cleanly.
    let mut stop = Stop::new()?;
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(args.pid))?;
    stop.with_target(&proc, &jvm)?;
    let collectors = args.collect.of_trees()?;
    // Nothing is measured of a plan.
    let wants = if args.plan { TreeWants::default() } else { TreeWants { off_cpu: !args.no_off_cpu, collectors } };
    let following = args.follow.following(&args.entries, wants)?;
    let Some(tracer) = following.open(&mut stop, &proc, &jvm).await? else {
        return Ok(ExitCode::from(NOTHING_MATCHED));
    };
    if args.plan {
        output::print_plan(args, tracer.plan())?;
        return Ok(ExitCode::SUCCESS);
    }
    let tracer = begin(tracer, TreeTracer::begin, args.max_overhead.0, &mut stop, quiet).await?;
    let mut output = Output::begin(args, &tracer)?;
    let collector = TreeCollector::new(tracer, args.format == Format::Perfetto);
    let mut session = Session {
        args,
        collector,
        look: every(TreeCollector::LOOK),
        look_for_ended: every(TreeCollector::LOOK_FOR_ENDED),
    };
    let lost = session.until_stopped(&mut stop, &mut output).await?;
    let (end, jvm) = session.end(output)?;
    if !quiet {
        stop.tell(&jvm);
    }
    match (lost, end) {
        // What there was has been printed.
        (Some(error), _) => return Err(error.into()),
        (None, Ok(end)) if !quiet => tell_end(end),
        (None, Err(error)) if Proc::host().is_same(&jvm) => return Err(error.into()),
        // Of a JVM that has ended there is nothing to be changed back.
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A JVM that is followed.
struct Session<'a> {
    args: &'a TreeArgs,
    collector: TreeCollector,
    look: Interval,
    look_for_ended: Interval,
}

impl Session<'_> {
    /// Returns why it cannot be followed any longer, unless there was a reason to stop.
    async fn until_stopped(&mut self, stop: &mut Stop, output: &mut Output) -> anyhow::Result<Option<trace::Error>> {
        let deadline = self.args.duration.map(|duration| Instant::now() + duration);
        loop {
            tokio::select! {
                biased;
                reason = stop.wait(deadline) => return reason.map(|()| None),
                _ = self.look.tick() => if let Some(error) = self.read(output)? {
                    // The shim goes with the JVM, and may go a little before.
                    let ended = timeout(ENDING, stop.wait(None)).await;
                    return Ok(ended.is_err().then_some(error));
                },
                _ = self.look_for_ended.tick() => self.collector.find_ended(&mut showing(output))?,
            }
            if output.has_all() {
                return Ok(None);
            }
        }
    }

    /// Prints the invocations that have ended. Returns why that is not possible any longer.
    fn read(&mut self, output: &mut Output) -> io::Result<Option<trace::Error>> {
        let read = self.collector.read(&mut showing(output))?;
        output.flush()?;
        Ok(read)
    }

    /// Has everything changed back, and prints what there is to say at the end.
    fn end(mut self, mut output: Output) -> io::Result<(Result<TreeEnd, trace::Error>, Jvm)> {
        let end = self.collector.stop(&mut showing(&mut output))?;
        let tracer = self.collector.tracer();
        output.finish(self.collector.unfinished(), tracer)?;
        Ok((end, tracer.jvm().clone()))
    }
}

/// Prints an invocation.
fn showing(output: &mut Output) -> impl FnMut(&Invocation, &TreeTracer) -> io::Result<()> {
    move |invocation, tracer| output.take(invocation, tracer)
}
