//! `nprof jni`: what the native code of a JVM asks of the VM.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tokio::time::Instant;

use super::budget::BudgetArgs;
use super::id_cache::{self, IdCacheArgs};
use super::jni_stubs::{self, JniStubsArgs};
use super::jni_tree::{self, FunctionFilter, TreeOutput, TreeWanted};
use super::selection::SelectionArgs;
use super::terminal::{self, harmless};
use super::trace::{Stop, every, prepare};
use crate::model::{Collectors, JniSnapshot, Pid};
use crate::render::jni::{self, JniBy, JniView};
use crate::resolve::pattern::PATTERN_HELP;
use crate::resolve::select::Selection;
use crate::trace::{JniTracer, Options, Pace, Prepared};

/// How often it is looked for calls that have ended.
const LOOK: Duration = Duration::from_millis(10);
/// What says how native methods returned.
const RESULTS: &str = "results";

/// Count and time the JNI functions that native methods call: look-ups, calls of Java, references, exceptions, critical sections
///
/// Probes see them at the functions of the JVM's own table; nothing in the JVM changes. Or stubs do, in the table (--tier stub). Prints a
/// summary on Ctrl-C, after --duration, or when the JVM ends.
#[derive(Debug, Args)]
#[command(after_help = PATTERN_HELP)]
pub(super) struct JniArgs {
    /// The JVM's process id
    #[arg(short, long)]
    pid: u32,
    #[command(flatten)]
    selection: SelectionArgs,
    /// What the rows are, each with the others below it [default: method; with --tier stub: function]
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// Who counts. Stubs count and time all functions, also those that no probe sees, at a fraction of the cost; they estimate who
    /// calls, and do not tell what comes of it
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    tier: JniTier,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Only keep the ids of methods and fields that are looked up, and give them again without asking the VM: loads nprof's shim into the
    /// JVM and puts functions of it before those that look ids up. No probes
    #[arg(long, conflicts_with_all = ["patterns", "exclude", "library", "by", "tier"])]
    id_cache: bool,
    /// Also show what was made and not let go: global and weak references, characters of strings, elements of arrays, critical holds; and
    /// which calls held more local references than there is room for
    #[arg(long, conflicts_with = "id_cache")]
    leaks: bool,
    /// Of these only what is at least so old, such as 30s
    #[arg(long, value_name = "TIME", requires = "leaks", value_parser = crate::config::duration::parse)]
    older_than: Option<Duration>,
    /// Show single calls of native methods instead, each as a tree of the JNI functions that it calls: creations, calls and releases
    #[arg(long, conflicts_with_all = ["id_cache", "leaks", "by", "top"])]
    tree: bool,
    /// Of these only those that took this long or longer, such as 10ms; what took as long in them is marked
    #[arg(long, value_name = "TIME", requires = "tree", value_parser = crate::config::duration::parse)]
    min: Option<Duration>,
    /// Stop after so many trees were shown
    #[arg(short = 'n', long, value_name = "N", requires = "tree", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Only these JNI functions in trees: a glob on names such as 'Get*ID', or `creation`, `call` or `release`; may be given several times.
    /// --exclude takes them, too: the time of what is left out is that of its caller
    #[arg(long, value_name = "WHAT", requires = "tree")]
    include: Vec<String>,
    /// Show every function of a tree; otherwise those with less than 0.5 % of the time are added up
    #[arg(long, requires = "tree")]
    whole: bool,
    /// Stop after this time, such as 10s or 1m30s
    #[arg(short, long, value_name = "TIME", value_parser = crate::config::duration::parse)]
    duration: Option<Duration>,
    /// Show the first N rows
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: Format,
}

/// Who counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum JniTier {
    /// Probes of the kernel; the JVM is only read
    #[default]
    Kernel,
    /// Stubs: loads nprof's shim into the JVM and puts them into its table of functions, as long as nprof runs
    Stub,
}

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Native methods
    Method,
    /// JNI functions
    Function,
    /// Java methods that native code calls
    Java,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Table,
    /// One document on one line
    Json,
    /// A row for each native method, JNI function and Java method that this calls
    Csv,
}

impl JniArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let Ok(collectors) = Collectors::named(&[RESULTS]) else { bail!("there is no collector `{RESULTS}`") };
        let exclude = self.excluded().0;
        let selection = SelectionArgs { exclude, ..self.selection.clone() }.parse()?;
        Ok(Options { collectors, budget: self.budget.whole(), ..Options::by_probes(selection) })
    }

    /// What is left out: native methods, and JNI functions of trees.
    fn excluded(&self) -> (Vec<String>, Vec<String>) {
        self.selection.exclude.iter().cloned().partition(|what| !self.tree || !jni_tree::is_function(what))
    }

    /// What trees are wanted, if they are.
    fn tree_wanted(&self) -> anyhow::Result<Option<TreeWanted>> {
        let filter = FunctionFilter::parse(&self.include, &self.excluded().1)?;
        let (is_whole, is_json) = (self.whole, self.format == Format::Json);
        Ok(self.tree.then_some(TreeWanted { min: self.min, count: self.count, filter, is_whole, is_json }))
    }

    fn id_cache_args(&self) -> IdCacheArgs {
        let top = self.top.and_then(|top| usize::try_from(top).ok());
        let is_json = self.format == Format::Json;
        IdCacheArgs { pid: Pid(self.pid), duration: self.duration, top, is_json }
    }

    /// The age from which on things are shown that were not let go, if they are.
    fn held_from(&self) -> Option<Duration> {
        self.leaks.then(|| self.older_than.unwrap_or_default())
    }

    /// What is asked for that stubs do not tell, as words.
    fn needs_probes(&self) -> Option<&'static str> {
        let is_selected = ![&self.selection.patterns, &self.selection.exclude, &self.selection.library]
            .iter()
            .all(|list| list.is_empty());
        [
            (is_selected, "the calls of chosen native methods alone (a pattern, --exclude, --library)"),
            (self.by == Some(By::Java), "which Java method is called (--by java)"),
            (self.leaks, "what is made and not let go (--leaks)"),
            (self.tree, "single calls (--tree)"),
        ]
        .into_iter()
        .find_map(|(is_asked, what)| is_asked.then_some(what))
    }

    fn stubs_args(&self) -> JniStubsArgs {
        JniStubsArgs { pid: Pid(self.pid), duration: self.duration, budget: self.budget.whole() }
    }

    fn view(&self) -> JniView {
        let by = match self.by {
            None if self.tier == JniTier::Stub => JniBy::Function,
            None | Some(By::Method) => JniBy::Method,
            Some(By::Function) => JniBy::Function,
            Some(By::Java) => JniBy::Java,
        };
        JniView { by, top: self.top.and_then(|top| usize::try_from(top).ok()) }
    }
}

/// Traces until there is a reason to stop, then prints what was measured.
///
/// # Errors
/// If the JVM cannot be traced, or the output cannot be written.
pub(super) fn run(args: &JniArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    if args.format != Format::Table && (!matches!(args.by, None | Some(By::Method)) || args.top.is_some()) {
        bail!("`--by` and `--top` are for the table: JSON and CSV have every method and every function");
    }
    if args.format == Format::Csv && (args.tree || args.leaks || args.id_cache) {
        bail!("`--format csv` has rows of calls only: say `--format json` with `--tree`, `--leaks` or `--id-cache`");
    }
    if args.tier == JniTier::Stub {
        if let Some(what) = args.needs_probes() {
            bail!("stubs do not tell {what}: leave out `--tier stub`, for probes of the kernel do");
        }
        return jni_stubs::run(args.stubs_args(), quiet, |snapshot| print(args, snapshot));
    }
    if args.id_cache {
        return id_cache::run(args.id_cache_args(), quiet);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let traced = runtime.block_on(trace(args, quiet));
    // A JVM that was still being read holds up nobody: what it has in the kernel goes with the process.
    runtime.shutdown_background();
    traced
}

async fn trace(args: &JniArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    // First of all: a signal from now on ends the tracing cleanly.
    let mut stop = Stop::new()?;
    let mut trees = args.tree_wanted()?.map(TreeOutput::begin);
    let prepared = match prepare(&mut stop, Pid(args.pid), args.options()?).await? {
        Ok(prepared) => prepared,
        Err(code) => return Ok(code),
    };
    refuse_words(args, &prepared)?;
    let mut tracer = prepared.jni(args.held_from(), args.tree)?;
    if !quiet {
        announce(&tracer);
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let result = follow(&mut tracer, &mut stop, deadline, trees.as_mut()).await;
    tracer.stop();
    result?;
    match trees {
        Some(trees) => trees.finish(&mut tracer)?,
        None => print(args, &tracer.snapshot())?,
    }
    if !quiet {
        stop.tell(tracer.tracer().jvm());
    }
    Ok(ExitCode::SUCCESS)
}

/// With trees, a word to exclude that matches neither a JNI function nor a native method leaves nothing out.
fn refuse_words(args: &JniArgs, prepared: &Prepared) -> anyhow::Result<()> {
    let (methods, _) = args.excluded();
    for word in methods.iter().filter(|word| args.tree && jni_tree::may_be_function(word)) {
        let selection = Selection::parse(&[word], &[], &[])?;
        if let Some(unmatched) = prepared.unmatched_by(&selection).first() {
            bail!("{unmatched}, and no JNI function, so --exclude leaves nothing out: {}", jni_tree::instead(word));
        }
    }
    Ok(())
}

/// Says that everything is attached. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
pub(super) fn announce(tracer: &JniTracer) {
    let (jvm, functions) = (tracer.tracer().jvm(), tracer.functions());
    let methods = tracer.tracer().methods() - functions;
    let (pid, main) = (jvm.pid, harmless(&jvm.main));
    let noun = if methods == 1 { "native method" } else { "native methods" };
    eprintln!("tracing {functions} JNI functions and {methods} {noun} of {pid} ({main})");
}

async fn follow(
    tracer: &mut JniTracer,
    stop: &mut Stop,
    deadline: Option<Instant>,
    mut trees: Option<&mut TreeOutput>,
) -> anyhow::Result<()> {
    let (mut pace, mut look) = (Pace::for_one(), every(LOOK));
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => return reason,
            () = pace.tick() => tracer.tick(),
            _ = look.tick(), if trees.is_some() => if let Some(trees) = &mut trees && trees.read(tracer)? {
                return Ok(());
            },
        }
    }
}

fn print(args: &JniArgs, snapshot: &JniSnapshot) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match args.format {
        Format::Table => jni::table(snapshot, args.view(), terminal::stdout_screen(), &mut out)?,
        Format::Json => jni::json(snapshot, &mut out)?,
        Format::Csv => {
            // The format has no place for them.
            crate::render::losses(&snapshot.snapshot.losses).into_iter().for_each(terminal::say);
            jni::csv(snapshot, &mut out)?;
        }
    }
    out.flush()
}
