//! `nprof record`: everything that pictures and reports are made of, into a file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::NOTHING_MATCHED;
use super::live::{LiveArgs, Needs, Outcome, tell_quality};
use super::save::Destination;
use super::selection::SelectionArgs;
use super::terminal::say;
use super::tree::FollowArgs;
use crate::recording;

/// Record the native calls of a running JVM, to be looked at later
///
/// Counts and times every call that --max-overhead allows, exactly, marks the others, and takes the Java stacks of some
/// calls. Ends on Ctrl-C, after --duration, or when the JVM ends; the file is complete in each case.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RecordArgs {
    /// The JVM's process id
    #[arg(short, long)]
    pid: u32,
    /// The file to write, `-` for stdout; an existing one is replaced when the new one is complete
    #[arg(short, long, value_name = "PATH", default_value = "run.nprof")]
    output: PathBuf,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Also record the invocations of these methods, as globs on class::method: sums of all of them, and the slowest as trees with all that
    /// they call, as `nprof tree` shows them. nprof loads its shim into the JVM for it; may be given several times
    #[arg(id = "entries", long = "tree", value_name = "ENTRY")]
    entries: Vec<String>,
    #[command(flatten)]
    follow: FollowArgs,
}

impl RecordArgs {
    /// Whether it is to keep invocations.
    pub(super) fn has_trees(&self) -> bool {
        !self.entries.is_empty()
    }
}

const EXAMPLES: &str = "\
Examples:
  nprof record --pid 1234 -d 10s         write run.nprof
  nprof record --pid 1234 -d 10s --tree 'com.acme.Svc::get' --package 'com.acme.**'
                                         with what single requests did
  nprof report run.nprof                 print it
  nprof flamegraph run.nprof             draw it";

/// Records.
///
/// # Errors
/// If the JVM cannot be recorded, or the file not written.
pub(super) fn run(args: &RecordArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let destination = Destination::of(&args.output)?;
    destination.spare_terminal()?;
    destination.try_out()?;
    let (selection, patterns) = (args.selection.parse()?, &args.selection.patterns);
    let following = match args.entries[..] {
        [] => None,
        _ => Some(args.follow.following(&args.entries, args.live.wants_of_trees()?)?),
    };
    let needs = Needs { following, ..Needs::default() };
    match args.live.record(args.pid, selection, patterns, needs, quiet)? {
        Outcome::NothingMatched => Ok(ExitCode::from(NOTHING_MATCHED)),
        Outcome::Recorded(profile) => {
            destination.save(|out| recording::write(&profile, out))?;
            if !quiet {
                tell_quality(&profile);
            }
            if let (Destination::File(path), false) = (&destination, quiet) {
                say(format_args!("wrote {}", path.display()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
