//! `nprof tree`: chosen methods and what they call, invocation by invocation.

mod output;

pub(super) use self::output::clock;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tokio::time::{Instant, Interval, timeout};

use self::output::Output;
use super::NOTHING_MATCHED;
use super::budget::{Budget, budget};
use super::terminal::{harmless, say};
use super::trace::{Stop, every};
use crate::aggregate::Trees;
use crate::calls::{Limits, Question};
use crate::discover::Proc;
use crate::model::{Jvm, LeftOut, Pid, TreeEvent, TreeKind, TreeThread};
use crate::render::tree::left_out_words;
use crate::resolve::pattern::{PATTERN_HELP, Pattern};
use crate::trace::{self, TreeEnd, TreeTracer};

/// How often what threads have told is taken over.
const LOOK: Duration = Duration::from_millis(2);
/// With so many events there will be more at once: a thread's room holds some thousand.
const BUSY: usize = 256;
/// How often it is looked whether threads have ended in the middle of invocations.
const LOOK_FOR_ENDED: Duration = Duration::from_secs(1);
/// How long after the shim has gone the JVM may take to end.
const ENDING: Duration = Duration::from_secs(1);
/// How long to go on with that until it is looked whether to stop.
const LONGEST: Duration = Duration::from_millis(50);

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
    /// ENTRY and --package are regular expressions, on whole names: 'com\.acme\..*::(get|put)'
    #[arg(long)]
    regex: bool,
    /// How many calls deep to follow what entry methods call
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=40))]
    depth: u32,
    /// Follow calls into these classes only, as a glob such as 'com.acme.**'; may be given several times [default: the packages of the
    /// entry methods, and those below]
    #[arg(long, value_name = "GLOB")]
    package: Vec<String>,
    /// Change at most this many methods; those that are called first go first
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    max_methods: u32,
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
    /// Do not measure how long threads wait: nothing of nprof runs in the kernel then
    #[arg(long)]
    no_off_cpu: bool,
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

impl TreeArgs {
    fn question(&self) -> anyhow::Result<Question> {
        let read = if self.regex { Pattern::regex } else { Pattern::parse };
        let patterns = |texts: &[String]| texts.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>();
        let methods = usize::try_from(self.max_methods).unwrap_or(usize::MAX);
        Ok(Question {
            entries: patterns(&self.entries)?,
            packages: patterns(&self.package)?,
            depth: self.depth,
            limits: Limits { methods, ..Limits::default() },
        })
    }
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
    let question = args.question()?;
    let off_cpu = !args.plan && !args.no_off_cpu;
    let Some(opened) = stop.unless_stopped(move || TreeTracer::open(&proc, jvm, &question, off_cpu)).await? else {
        bail!("stopped before anything was changed");
    };
    let mut tracer = opened?;
    if !tracer.plan().methods.iter().any(|method| method.is_entry) {
        return Ok(nothing_matched(args, &tracer));
    }
    if args.plan {
        output::print_plan(args, tracer.plan())?;
        return Ok(ExitCode::SUCCESS);
    }
    tracer.limit(args.max_overhead.0);
    let Some((tracer, begun)) = stop
        .unless_stopped(move || {
            let begun = tracer.begin();
            (tracer, begun)
        })
        .await?
    else {
        bail!("stopped before all methods were changed");
    };
    begun?;
    if !quiet {
        announce(&tracer);
    }
    let mut output = Output::begin(args, &tracer)?;
    let trees = Trees::new(&tracer.plan().methods, args.format == Format::Perfetto).knowing_off(tracer.knows_off());
    let mut session =
        Session { args, tracer, trees, events: Vec::new(), look: every(LOOK), look_for_ended: every(LOOK_FOR_ENDED) };
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

/// Nothing that can be entered is selected.
fn nothing_matched(args: &TreeArgs, tracer: &TreeTracer) -> ExitCode {
    let (jvm, left_out) = (tracer.jvm(), &tracer.plan().left_out);
    say(format_args!("no method of {} ({}) that could tell of itself is selected", jvm.pid, jvm.main));
    for LeftOut { what, why } in left_out.iter().take(5) {
        say(format_args!("left out: {what} ({})", left_out_words(why)));
    }
    if left_out.is_empty() {
        let nearest: Vec<String> = args.entries.iter().flat_map(|entry| tracer.nearest(entry)).collect();
        if !nearest.is_empty() {
            say(format_args!("nearest: {}", nearest.join(", ")));
        }
        say("only methods of classes that are loaded by now can be selected: have the program call it once, or wait");
    }
    ExitCode::from(NOTHING_MATCHED)
}

/// Says that everything is in place. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
fn announce(tracer: &TreeTracer) {
    let jvm = tracer.jvm();
    let methods = &tracer.plan().methods;
    let native = methods.iter().filter(|method| method.kind == TreeKind::Native).count();
    let java = methods.len() - native;
    eprintln!("following {java} Java and {native} native methods of {} ({})", jvm.pid, harmless(&jvm.main));
}

fn tell_end(end: TreeEnd) {
    if end.behind > 0 {
        say(format_args!(
            "{} classes could not be changed back: their methods go on calling nprof's shim, which does nothing then",
            end.behind
        ));
    }
}

/// A JVM that is followed.
struct Session<'a> {
    args: &'a TreeArgs,
    tracer: TreeTracer,
    trees: Trees,
    events: Vec<TreeEvent>,
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
                _ = self.look_for_ended.tick() => self.find_ended(output)?,
            }
            if self.args.count.is_some_and(|count| output.shown() >= count) {
                return Ok(None);
            }
        }
    }

    /// Takes over what threads have told, and goes on as long as they tell much. Returns why that is not possible any longer.
    fn read(&mut self, output: &mut Output) -> io::Result<Option<trace::Error>> {
        let begun = Instant::now();
        loop {
            let events = &mut self.events;
            let told = self.tracer.tick(&mut |event| events.push(event));
            let is_busy = self.events.len() >= BUSY;
            // What was told before an error counts.
            self.hand_on(output)?;
            if let Err(error) = told {
                return Ok(Some(error));
            }
            if !is_busy || begun.elapsed() >= LONGEST {
                return Ok(None);
            }
        }
    }

    /// Finds threads that have ended inside of an invocation: their numbers may be given to others.
    fn find_ended(&mut self, output: &mut Output) -> io::Result<()> {
        let (proc, pid) = (Proc::host(), self.tracer.jvm().pid);
        let is_gone = |thread: &TreeThread| match thread {
            TreeThread::Platform(tid) => proc.thread(pid, *tid).is_none(),
            TreeThread::Virtual(_) => false,
        };
        let gone: Vec<TreeThread> = self.trees.inside().filter(is_gone).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // What they told before; an error comes again.
        self.read(output)?;
        for thread in gone {
            self.trees.thread_ended(thread);
        }
        Ok(())
    }

    /// Makes trees of what threads have told, and prints those that have ended.
    fn hand_on(&mut self, output: &mut Output) -> io::Result<()> {
        for event in self.events.drain(..) {
            if let Some(invocation) = self.trees.take(&event) {
                output.take(&invocation, &self.tracer)?;
            }
        }
        output.flush()
    }

    /// Has everything changed back, and prints what there is to say at the end.
    fn end(mut self, mut output: Output) -> io::Result<(Result<TreeEnd, trace::Error>, Jvm)> {
        let events = &mut self.events;
        let end = self.tracer.stop(&mut |event| events.push(event));
        // What threads had told until then counts, also where the JVM is gone.
        self.hand_on(&mut output)?;
        let losses = self.tracer.losses();
        output.finish(&self.trees, losses, self.tracer.silenced())?;
        Ok((end, self.tracer.jvm().clone()))
    }
}
