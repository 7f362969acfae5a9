//! `nprof ctl`: asks and switches an `nprof serve` that runs.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::NOTHING_MATCHED;
use super::ps::ListFormat;
use super::terminal::{say, stdout_screen};
use crate::config::DEFAULT_CONTROL;
use crate::control::{Answer, Mode, Request, ask};
use crate::model::Status;
use crate::render::status;
use crate::resolve::select::Selection;

/// Ask a running `nprof serve` for its state, or switch methods on and off
#[derive(Debug, Args)]
pub(super) struct CtlArgs {
    /// The control socket of `nprof serve`
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL, global = true)]
    control: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show JVMs, what is done at their methods' calls, and what that costs
    Status {
        /// How to print
        #[arg(short, long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// See the calls of methods again, as they were seen before
    #[command(after_help = crate::resolve::pattern::PATTERN_HELP)]
    Enable(Patterns),
    /// Do not see the calls of methods any more; a call still costs the trap
    #[command(after_help = crate::resolve::pattern::PATTERN_HELP)]
    Disable(Patterns),
    /// Count the calls of methods, or count and time them
    #[command(after_help = crate::resolve::pattern::PATTERN_HELP)]
    Mode {
        /// What to do at each call
        mode: ModeWord,
        #[command(flatten)]
        patterns: Patterns,
    },
}

#[derive(Debug, Args)]
struct Patterns {
    /// Which methods, as globs on class::method
    #[arg(value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeWord {
    /// Count calls when they begin
    Count,
    /// Count calls and time them
    Time,
}

/// Asks, and prints what comes back.
///
/// # Errors
/// If nobody answers, or the answer is no.
pub(super) fn run(args: &CtlArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let request = request(&args.action)?;
    let answer = ask(&args.control, &request)?;
    if let Action::Status { format } = &args.action {
        print(&answer.status.unwrap_or_default(), *format)?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(tell(&args.action, &answer, quiet))
}

/// What to ask for.
///
/// # Errors
/// For a pattern that is none: nobody need be asked about it.
fn request(action: &Action) -> anyhow::Result<Request> {
    let checked = |patterns: &Patterns| -> anyhow::Result<Vec<String>> {
        Selection::parse(&patterns.patterns, &[], &[])?;
        Ok(patterns.patterns.clone())
    };
    Ok(match action {
        Action::Status { .. } => Request::Status,
        Action::Enable(patterns) => Request::Enable { patterns: checked(patterns)? },
        Action::Disable(patterns) => Request::Disable { patterns: checked(patterns)? },
        Action::Mode { mode, patterns } => {
            let mode = match mode {
                ModeWord::Count => Mode::Count,
                ModeWord::Time => Mode::Time,
            };
            Request::Mode { mode, patterns: checked(patterns)? }
        }
    })
}

fn print(status: &Status, format: ListFormat) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        ListFormat::Table => status::table(&mut out, status, stdout_screen()),
        ListFormat::Json => status::json(&mut out, status),
    }
}

/// Says what was switched; the exit code is that of a pattern without a match where nothing was.
fn tell(action: &Action, answer: &Answer, quiet: bool) -> ExitCode {
    if answer.matched == 0 {
        say("no traced function matches; `nprof ctl status` lists the JVMs, `nprof methods` the methods of one");
        return ExitCode::from(NOTHING_MATCHED);
    }
    if !quiet {
        let functions = if answer.matched == 1 { "function" } else { "functions" };
        let done = match action {
            Action::Enable(_) | Action::Status { .. } => "enabled",
            Action::Disable(_) => "disabled",
            Action::Mode { mode: ModeWord::Count, .. } => "counted from now on",
            Action::Mode { mode: ModeWord::Time, .. } => "timed from now on",
        };
        say(format_args!("{} {functions} {done}", answer.matched));
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CtlArgs,
    }

    fn asked(line: &[&str]) -> anyhow::Result<Request> {
        let line = Line::try_parse_from([&["ctl"], line].concat())?;
        request(&line.args.action)
    }

    /// Check that each command asks for what it says, and that patterns are needed and checked.
    #[test]
    fn asks_for_what_was_typed() {
        let patterns = vec!["A::b".to_owned(), "C".to_owned()];
        assert_eq!(asked(&["status", "--format", "json"]).unwrap(), Request::Status);
        assert_eq!(asked(&["enable", "A::b", "C"]).unwrap(), Request::Enable { patterns: patterns.clone() });
        assert_eq!(asked(&["disable", "A::b", "C"]).unwrap(), Request::Disable { patterns: patterns.clone() });
        assert_eq!(asked(&["mode", "count", "A::b", "C"]).unwrap(), Request::Mode { mode: Mode::Count, patterns });
        for wrong in [&["enable"][..], &["mode", "A"], &["mode", "guess", "A"], &["disable", "A::["], &[]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Check that the socket may be named in front of the command and behind it.
    #[test]
    fn takes_the_socket_anywhere() {
        for line in [["ctl", "--control", "/s", "status"], ["ctl", "status", "--control", "/s"]] {
            assert_eq!(Line::try_parse_from(line).unwrap().args.control, PathBuf::from("/s"));
        }
    }
}
