//! `nprof ps`: the JVMs of this host.

use std::io;
use std::process::ExitCode;

use super::terminal::{say, stdout_screen};
use crate::discover::Proc;
use crate::model::Jvm;
use crate::render::ps::{self, Entry};

/// List the JVMs on this host
#[derive(Debug, clap::Args)]
pub(super) struct PsArgs {
    /// How to print the list
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    #[default]
    Table,
    /// For programs: one JSON document
    Json,
}

/// Lists the JVMs. `survey` says how many native methods a JVM has and how many of them are bound, and completes what is
/// known of the VM.
///
/// Ends with 1 if there is no JVM, as other commands do when nothing matches.
pub(super) fn run(
    args: &PsArgs,
    survey: impl Fn(&mut Jvm) -> Result<(usize, usize), String>,
) -> anyhow::Result<ExitCode> {
    let scan = Proc::host().jvms()?;
    let entries: Vec<Entry> = scan.jvms.into_iter().map(|jvm| entry(jvm, &survey)).collect();
    let mut out = io::stdout().lock();
    match args.format {
        ListFormat::Json => ps::json(&mut out, &entries, scan.unreadable)?,
        ListFormat::Table if entries.is_empty() => say("no JVM found"),
        ListFormat::Table => ps::table(&mut out, &entries, stdout_screen())?,
    }
    if args.format == ListFormat::Table {
        explain(&entries, scan.unreadable);
    }
    Ok(ExitCode::from(u8::from(entries.is_empty())))
}

fn entry(mut jvm: Jvm, survey: impl Fn(&mut Jvm) -> Result<(usize, usize), String>) -> Entry {
    let natives = if jvm.kind.is_supported() { survey(&mut jvm) } else { Err("unsupported VM".to_owned()) };
    Entry { jvm, natives }
}

/// Says what the table leaves open.
fn explain(entries: &[Entry], unreadable: usize) {
    for entry in entries.iter().filter(|entry| entry.jvm.kind.is_supported()) {
        if let Err(problem) = &entry.natives {
            say(format_args!("{}: {problem}", entry.jvm.pid));
        }
    }
    say_unreadable(unreadable);
}

/// Says how many processes could not be looked into, if any.
pub(super) fn say_unreadable(unreadable: usize) {
    let processes = if unreadable == 1 { "process" } else { "processes" };
    let advice = if Proc::host().is_privileged() { "" } else { ": run nprof as root (sudo) to see their JVMs" };
    if unreadable > 0 {
        say(format_args!("{unreadable} {processes} could not be looked into{advice}"));
    }
}
