//! `nprof ctl`: asks and switches an `nprof serve` that runs.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::NOTHING_MATCHED;
use super::ps::ListFormat;
use super::terminal::{say, stdout_screen};
use crate::config::DEFAULT_CONTROL;
use crate::control::{Answer, Request, ask};
use crate::model::Status;
use crate::render::status;
use crate::resolve::pattern::PATTERN_HELP;
use crate::resolve::rule::{RULE_HELP, Rule};
use crate::resolve::thresholds::{SLOW_HELP, Thresholds};

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
    /// Say what to do at the calls of which methods from now on: time, count, off
    #[command(after_help = RULE_HELP)]
    Rule {
        /// What at which, such as 'java.util.zip.*=count'
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<String>,
    },
    /// Say from when on calls are slow from now on; nprof serve logs them with --slow
    #[command(after_help = SLOW_HELP)]
    Slow {
        /// From when on, such as 10ms, or 'java.util.zip.*=1ms' for some methods
        #[arg(value_name = "SLOW", required = true)]
        slow: Vec<String>,
    },
    /// Count and time the calls of methods again: `rule PATTERN=time`
    #[command(after_help = PATTERN_HELP)]
    Enable(Patterns),
    /// Do not see the calls of methods any more: `rule PATTERN=off`; a call still costs the trap of its probe, or next to nothing
    /// with a stub
    #[command(after_help = PATTERN_HELP)]
    Disable(Patterns),
    /// Count the calls of methods, or count and time them: `rule PATTERN=count`, `rule PATTERN=time`
    #[command(after_help = PATTERN_HELP)]
    Mode {
        /// What to do at each call
        #[arg(value_parser = ["count", "time"])]
        mode: String,
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
    let rules = |patterns: &Patterns, what: &str| -> Vec<String> {
        patterns.patterns.iter().map(|pattern| format!("{pattern}={what}")).collect()
    };
    let rules = match action {
        Action::Status { .. } => return Ok(Request::Status),
        Action::Slow { slow } => {
            Thresholds::parse(slow)?;
            return Ok(Request::Slow { slow: slow.clone() });
        }
        Action::Rule { rules } => rules.clone(),
        Action::Enable(patterns) => rules(patterns, "time"),
        Action::Disable(patterns) => rules(patterns, "off"),
        Action::Mode { mode, patterns } => rules(patterns, mode),
    };
    rules.iter().try_for_each(|rule| Rule::parse(rule).map(drop))?;
    Ok(Request::Rule { rules })
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
    let is_about_slow = matches!(action, Action::Slow { .. });
    let kept = if is_about_slow { "holds for later ones" } else { "is not kept" };
    for pattern in &answer.unmatched {
        say(format_args!("`{pattern}` matches no function that is traced now, and {kept}"));
    }
    if answer.matched == 0 && !is_about_slow {
        say("nothing was switched; `nprof ctl status` lists the JVMs, `nprof methods` the methods of one");
        return ExitCode::from(NOTHING_MATCHED);
    }
    if !quiet {
        let functions = if answer.matched == 1 { "function" } else { "functions" };
        let done = match action {
            Action::Enable(_) | Action::Status { .. } => "enabled",
            Action::Disable(_) => "disabled",
            Action::Rule { .. } => "switched",
            Action::Slow { .. } => "with another time from which on calls are slow",
            Action::Mode { mode, .. } if mode == "count" => "counted from now on",
            Action::Mode { .. } => "timed from now on",
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
        let rules = |rules: &[&str]| Request::Rule { rules: rules.iter().map(|rule| (*rule).to_owned()).collect() };
        assert_eq!(asked(&["status", "--format", "json"]).unwrap(), Request::Status);
        assert_eq!(asked(&["enable", "A::b", "C"]).unwrap(), rules(&["A::b=time", "C=time"]));
        assert_eq!(asked(&["disable", "A::b", "C"]).unwrap(), rules(&["A::b=off", "C=off"]));
        assert_eq!(asked(&["mode", "count", "A::b", "C"]).unwrap(), rules(&["A::b=count", "C=count"]));
        assert_eq!(asked(&["rule", "A::b=count", "C=off"]).unwrap(), rules(&["A::b=count", "C=off"]));
        let slow = Request::Slow { slow: ["10ms", "A::b=off"].map(str::to_owned).to_vec() };
        assert_eq!(asked(&["slow", "10ms", "A::b=off"]).unwrap(), slow);
        for wrong in [
            &["slow"][..],
            &["slow", "soon"],
            &["slow", "A=count"],
            &["enable"],
            &["mode", "A"],
            &["mode", "guess", "A"],
            &["disable", "A::["],
            &["rule"],
            &["rule", "A"],
            &["rule", "A=guess"],
            &[],
        ] {
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
