//! The command line: what was typed becomes calls of the library, and results become output and an exit code.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 measured, 1 nothing matched, 2 error.

mod check;
mod hints;
mod methods;
mod ps;
mod terminal;
mod time;
mod trace;

use std::io;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;

use self::terminal::say;
use crate::attach::probe_uprobe_multi;
use crate::discover::Proc;

/// Nothing matched what was asked for.
const NOTHING_MATCHED: u8 = 1;
/// Something went wrong.
const FAILED: u8 = 2;

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
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log_to_stderr(&cli);
    raise_descriptor_limit();
    match run(&cli) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            if let Some(hint) = hints::hint(&error) {
                say(format_args!("{hint}"));
            }
            ExitCode::from(FAILED)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Check(args) => check::run(args, || probe_uprobe_multi().map_err(|e| e.to_string()), methods::facts),
        Command::Ps(args) => {
            ps::run(args, |jvm| crate::trace::survey(&Proc::host(), jvm).map_err(|error| error.to_string()))
        }
        Command::Methods(args) => methods::run(args),
        Command::Trace(args) => trace::run(args, cli.quiet),
    }
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
    tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(level).without_time().with_target(false).init();
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
