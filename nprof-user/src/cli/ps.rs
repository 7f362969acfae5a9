//! `nprof ps`: the JVMs of this host.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::terminal::{say, stdout_screen};
use crate::discover::Proc;
use crate::model::Jvm;
use crate::render::ps::{self, Entry, Uncounted};

/// How long JVMs may take to tell of their native methods, all of them together.
const PATIENCE: Duration = Duration::from_secs(3);

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
    survey: impl Fn(&mut Jvm) -> Result<(usize, usize), Uncounted> + Clone + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let scan = Proc::host().jvms()?;
    let entries = entries(scan.jvms, &survey, PATIENCE);
    let mut out = io::stdout().lock();
    match args.format {
        ListFormat::Json => ps::json(&mut out, &entries, scan.unreadable.len())?,
        ListFormat::Table if entries.is_empty() => say("no JVM found"),
        ListFormat::Table => ps::table(&mut out, &entries, stdout_screen())?,
    }
    if args.format == ListFormat::Table {
        explain(&entries, &scan.unreadable);
    }
    Ok(ExitCode::from(u8::from(entries.is_empty())))
}

/// Surveys all JVMs at once. One that takes longer than `patience` is listed without its methods, and left behind with its
/// thread, which ends with the process.
fn entries(
    jvms: Vec<Jvm>,
    survey: &(impl Fn(&mut Jvm) -> Result<(usize, usize), Uncounted> + Clone + Send + 'static),
    patience: Duration,
) -> Vec<Entry> {
    let (sender, surveyed) = mpsc::channel();
    let late = || format!("not counted: it did not tell of its native methods within {} s", patience.as_secs());
    let late = || Err(Uncounted { supported: true, reason: late() });
    let mut entries: Vec<Entry> = jvms.into_iter().map(|jvm| Entry { jvm, natives: late() }).collect();
    let mut awaited = 0;
    for (index, entry) in entries.iter_mut().enumerate() {
        if !entry.jvm.kind.is_supported() {
            entry.natives = Err(Uncounted { supported: false, reason: "unsupported VM".to_owned() });
            continue;
        }
        let (mut jvm, survey, sender) = (entry.jvm.clone(), survey.clone(), sender.clone());
        let started = thread::Builder::new().spawn(move || {
            let natives = survey(&mut jvm);
            // Nobody listens any more: it was too late.
            drop(sender.send((index, Entry { jvm, natives })));
        });
        match started {
            Ok(_left_behind) => awaited += 1,
            Err(error) => {
                entry.natives = Err(Uncounted { supported: true, reason: format!("not counted: {error}") });
            }
        }
    }
    let deadline = Instant::now() + patience;
    while awaited > 0
        && let Ok((index, entry)) = surveyed.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        entries[index] = entry;
        awaited -= 1;
    }
    entries
}

/// Says what the table leaves open.
fn explain(entries: &[Entry], unreadable: &[String]) {
    for entry in entries.iter().filter(|entry| entry.jvm.kind.is_supported()) {
        if let Err(Uncounted { reason, .. }) = &entry.natives {
            say(format_args!("{}: {reason}", entry.jvm.pid));
        }
    }
    say_unreadable(unreadable);
}

/// Says how many processes could not be looked into, if any, and what to do about it.
pub(super) fn say_unreadable(unreadable: &[String]) {
    if !unreadable.is_empty() {
        say(format_args!("{}", unreadable_line(unreadable, Proc::host().is_privileged())));
    }
}

/// The line for these. For root each is an exception, and the first one's reason tells what it is about.
fn unreadable_line(unreadable: &[String], is_root: bool) -> String {
    let processes = if unreadable.len() == 1 { "process" } else { "processes" };
    let rest = match unreadable {
        [only] if is_root => format!(": {only}"),
        [first, ..] if is_root => format!("; the first: {first}"),
        _ => ": run nprof as root (sudo) to see their JVMs".to_owned(),
    };
    format!("{} {processes} could not be looked into{rest}", unreadable.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{JvmKind, Pid, StartTime};

    fn jvm(pid: u32) -> Jvm {
        Jvm {
            pid: Pid(pid),
            start_time: StartTime(1),
            main: "Main".to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 1000,
            user: None,
            container: None,
        }
    }

    /// Check that root is told which process it is, and everybody else to be root.
    #[test]
    fn names_what_could_not_be_looked_into() {
        let lines = ["no permission to read /proc/7/maps".to_owned(), "cannot read /proc/8/maps".to_owned()];
        let one = "1 process could not be looked into: ";
        assert_eq!(unreadable_line(&lines[..1], true), format!("{one}no permission to read /proc/7/maps"));
        assert_eq!(unreadable_line(&lines[..1], false), format!("{one}run nprof as root (sudo) to see their JVMs"));
        let two = "2 processes could not be looked into; the first: no permission to read /proc/7/maps";
        assert_eq!(unreadable_line(&lines, true), two);
    }

    /// Check that a JVM that never answers keeps neither the others nor the list waiting, and that it is said.
    #[test]
    fn one_that_does_not_answer_delays_nobody() {
        let jvms: Vec<Jvm> = (1..=20).map(jvm).collect();
        // All the others wait until each has begun: they are asked together.
        let begun = Arc::new(std::sync::Barrier::new(19));
        let survey = move |jvm: &mut Jvm| {
            if jvm.pid.0 == 7 {
                loop {
                    thread::park();
                }
            }
            begun.wait();
            Ok((jvm.pid.0 as usize, 0))
        };
        let entries = entries(jvms, &survey, Duration::from_secs(5));
        for entry in &entries {
            match entry.jvm.pid.0 {
                7 => assert!(entry.natives.as_ref().unwrap_err().reason.contains("within 5 s")),
                pid => assert_eq!(entry.natives, Ok((pid as usize, 0))),
            }
        }
        assert_eq!(entries.len(), 20);
    }
}
