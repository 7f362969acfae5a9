//! `nprof report`: what a recording says, as text.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::NOTHING_MATCHED;
use super::ps::ListFormat;
use super::recorded;
use super::selection::{SelectionArgs, ThreadArgs};
use super::served::ServedArgs;
use super::terminal::stdout_screen;
use super::view::ViewArgs;
use crate::aggregate::tells_threads;
use crate::render::profile::order::missing;
use crate::render::profile::report::{self, Extent};
use crate::render::{By, Scope, View};

/// Show what a recording, or a service, says: native methods, their calls and times, and who calls them
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The recording, made by `nprof record`; with --from-serve the first pattern
    #[arg(value_name = "FILE", required_unless_present = "from_serve")]
    file: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The process id of a JVM that a service knows
    #[arg(short, long, requires = "from_serve")]
    pid: Option<u32>,
    #[command(flatten)]
    served: ServedArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Show this many stacks of each method, the heaviest first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 3)]
    stacks: usize,
    /// Show all methods and the stacks of each, not only of those that do nearly all the work
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: ListFormat,
}

impl ReportArgs {
    fn extent(&self) -> Extent {
        let View { order, by, top, .. } = self.view.of(Scope::One);
        Extent { stacks: self.stacks, all: self.all, top, order, by }
    }
}

/// Prints the report.
///
/// # Errors
/// If the recording cannot be read or fetched, or the output cannot be written.
pub(super) fn run(args: &ReportArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    args.view.check_order_of_groups()?;
    let mut selection = args.selection.clone();
    let profile = match &args.file {
        Some(file) if !args.served.is_wanted() => recorded::open(file)?,
        first => {
            selection.patterns.splice(..0, first.iter().map(|pattern| pattern.to_string_lossy().into_owned()));
            args.served.profile(args.pid, quiet)?
        }
    };
    let selected = recorded::select([profile], &selection, &args.threads)?;
    let Some([profile]) = selected else { return Ok(ExitCode::from(NOTHING_MATCHED)) };
    if args.view.by() == Some(By::Thread) {
        tells_threads(&profile)?;
    }
    let order = args.view.of(Scope::One).order;
    if let Some(why) = missing(&profile, order) {
        bail!("`--sort {}` is not possible for this recording: {why}", order.word());
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.format {
        ListFormat::Table => report::table(&profile, args.extent(), stdout_screen(), &mut out)?,
        ListFormat::Json => report::json(&profile, args.extent(), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
