//! `nprof report`: what a recording says, as text.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::NOTHING_MATCHED;
use super::ps::ListFormat;
use super::recorded;
use super::selection::SelectionArgs;
use super::terminal::stdout_screen;
use crate::render::profile::report::{self, Extent};

/// Show what a recording says: native methods, their calls and times, and who calls them
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The recording, made by `nprof record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Show this many stacks of each method, the heaviest first; 0 for none
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Show all methods and the stacks of each, not only of those that take nearly all the time
    #[arg(long)]
    all: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: ListFormat,
}

impl ReportArgs {
    fn extent(&self) -> Extent {
        Extent { stacks: self.top, all: self.all }
    }
}

/// Prints the report.
///
/// # Errors
/// If the recording cannot be read, or the output cannot be written.
pub(super) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let selected = recorded::select([recorded::open(&args.file)?], &args.selection)?;
    let Some([profile]) = selected else { return Ok(ExitCode::from(NOTHING_MATCHED)) };
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.format {
        ListFormat::Table => report::table(&profile, args.extent(), stdout_screen(), &mut out)?,
        ListFormat::Json => report::json(&profile, args.top, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
