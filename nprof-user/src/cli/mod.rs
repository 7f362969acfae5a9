//! The command line: what was typed becomes calls of the library, and results become output and an exit code.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 measured, 1 nothing matched, 2 error.

mod budget;
mod check;
mod collect;
mod ctl;
mod demoted;
mod diagnose;
mod diff;
mod flamegraph;
mod generate;
mod hints;
mod id_cache;
mod jni;
mod jni_stubs;
mod jni_tree;
mod live;
mod methods;
mod picture;
mod programs;
mod ps;
mod record;
mod recorded;
mod report;
mod rules;
mod save;
mod selection;
mod serve;
mod served;
mod terminal;
mod tier;
mod trace;
mod tree;
mod view;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::terminal::{Log, say};
use crate::attach::{probe_uprobe_multi, reach};
use crate::discover::Proc;
use crate::model::Reach;
use crate::render::ps::Uncounted;
use crate::sys::{allocator, probe_link};

/// Nothing matched what was asked for.
const NOTHING_MATCHED: u8 = 1;
/// Something went wrong.
const FAILED: u8 = 2;
/// How long the kernel may take for the last probes before it is said what it waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where the log says that a method is demoted or promoted.
const CHANGES: &str = concat!(env!("CARGO_CRATE_NAME"), "::trace::overhead");

/// Shows where JVMs cross into native code: how often each native method is called and how long it takes, live,
/// without an agent, a flag or a restart.
#[derive(Debug, Parser)]
#[command(name = "nprof", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 measured, 1 nothing matched, 2 error.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on stderr; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Say only errors on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Ps(ps::PsArgs),
    Methods(methods::MethodsArgs),
    Trace(trace::TraceArgs),
    Jni(jni::JniArgs),
    Diagnose(diagnose::DiagnoseArgs),
    Tree(tree::TreeArgs),
    Record(record::RecordArgs),
    Flamegraph(flamegraph::FlamegraphArgs),
    Report(report::ReportArgs),
    Diff(diff::DiffArgs),
    Generate(generate::GenerateArgs),
    Serve(Box<serve::ServeArgs>),
    Ctl(ctl::CtlArgs),
}

impl Command {
    /// Whether it can do with probes what it cannot do with stubs. Trees and `jni --id-cache` take the shim.
    fn has_tiers(&self) -> bool {
        match self {
            Self::Tree(_) | Self::Jni(_) => false,
            Self::Record(args) => !args.has_trees(),
            _ => true,
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log_to_stderr(&cli);
    allocator::be_frugal();
    raise_descriptor_limit();
    let code = match run(&cli) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            if let Some(hint) = hints::hint(&error, cli.command.has_tiers()) {
                say(format_args!("{hint}"));
            }
            ExitCode::from(FAILED)
        }
    };
    tell_of_left();
    code
}

/// Says why this process is still there although its work is done: the kernel ends it when its removals have ended.
fn tell_of_left() {
    // A removal that merely takes long, as on a busy machine, is none that was left behind.
    if !probe_link::have_ended_within(PATIENCE) && probe_link::left() > 0 {
        say(format_args!(
            "all is done, but the kernel keeps this process: a thread of another traced process stays inside a traced \
             call and makes others there; the process ends when that thread leaves the call or makes none for a tenth of a \
             second"
        ));
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Check(args) => check::run(args, tried, methods::facts),
        Command::Ps(args) => ps::run(args, |jvm| {
            crate::trace::survey(&Proc::host(), jvm)
                .map_err(|error| Uncounted { supported: !error.is_unsupported(), reason: error.to_string() })
        }),
        Command::Methods(args) => methods::run(args),
        Command::Trace(args) => trace::run(args, cli.quiet),
        Command::Jni(args) => jni::run(args, cli.quiet),
        Command::Diagnose(args) => diagnose::run(args, cli.quiet),
        Command::Tree(args) => tree::run(args, cli.quiet),
        Command::Record(args) => record::run(args, cli.quiet),
        Command::Flamegraph(args) => flamegraph::run(args, cli.quiet),
        Command::Report(args) => report::run(args, cli.quiet),
        Command::Diff(args) => diff::run(args, cli.quiet),
        Command::Generate(args) => generate::run(args, Cli::command()),
        Command::Serve(args) => serve::run(args, cli.quiet),
        Command::Ctl(args) => ctl::run(args, cli.quiet),
    }
}

/// Whom the probes reach that this kernel takes.
fn tried() -> Result<Reach, String> {
    probe_uprobe_multi().and_then(|()| reach()).map_err(|error| error.to_string())
}

/// Help and version go to stdout and are no failure; the rest is a mistake on the command line.
fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() || printed.is_err() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

fn log_to_stderr(cli: &Cli) {
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::DEBUG,
        (_, _) => LevelFilter::TRACE,
    };
    // `trace` tells at the end which methods were demoted: in between that would go through the live table.
    let is_told_later =
        matches!(cli.command, Command::Trace(_) | Command::Jni(_) | Command::Diagnose(_)) && cli.verbose == 0;
    let filter = filter_fn(move |about| !(is_told_later && about.target() == CHANGES));
    // Colours are for people: not for a journal or a file.
    let is_coloured = terminal::stderr_is_coloured();
    let log = tracing_subscriber::fmt().with_writer(move || Log { is_coloured }).with_ansi(is_coloured);
    log.with_max_level(level).without_time().with_target(false).finish().with(filter).init();
}

/// A library of a target and a link to it take a descriptor each; the usual soft limit is from other times.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
