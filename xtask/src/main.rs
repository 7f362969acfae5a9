//! Developer commands of nprof: `cargo xtask COMMAND`.
//!
//! This is not the build: plain `cargo build --release` builds nprof. Exit status: 0 done, 1 a
//! check failed, 2 the command could not do its work.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer command talks to its terminal")]

mod bench;
mod bpf;
mod cargo;
mod demo;
mod inner_cargo;
mod jdk;
mod kernel;
mod lint;
mod machine;
mod package;
mod process;
mod setup;
mod slowest;
mod tally;
mod test;

use std::process::ExitCode;

/// One developer command.
struct Command {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    run: fn(&[String]) -> anyhow::Result<ExitCode>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "setup",
        arguments: "[--for build|bpf|test]",
        help: "install what building (and testing) needs; does nothing when all is there",
        run: setup::run,
    },
    Command {
        name: "bpf",
        arguments: "[--check | --example FILE]",
        help: "make the BPF object that is checked in, check that it is what its sources say, or make the example's",
        run: bpf::run,
    },
    Command {
        name: "demo",
        arguments: "",
        help: "set up, build, start a Java workload and trace it for ten seconds",
        run: demo::run,
    },
    Command {
        name: "test",
        arguments: "[unit|kernel|jvm|all] [-- ARGS]",
        help: "set up, build and run the tests; ARGS go to the test binaries",
        run: test::run,
    },
    Command {
        name: "bench",
        arguments: "[overhead|service|…|programs [--rounds N]]",
        help: "set up, build and measure what tracing costs, next to the floor and to bpftrace, and what the service takes",
        run: bench::run,
    },
    Command {
        name: "lint",
        arguments: "",
        help: "formatting, clippy, documentation and shell scripts, without a warning",
        run: lint::run,
    },
    Command {
        name: "package",
        arguments: "[--bin PATH] [--out DIR]",
        help: "build and make a Debian package, with manual pages, completions and a systemd unit",
        run: package::run,
    },
];

const FAILED: u8 = 1;
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments.first().and_then(|name| COMMANDS.iter().find(|command| command.name == name));
    let Some(command) = command else {
        eprint!("{}", usage());
        return ExitCode::from(ERROR);
    };
    let result = process::catch_signals().and_then(|()| (command.run)(&arguments[1..]));
    result.unwrap_or_else(|error| {
        eprintln!("xtask {}: {error:#}", command.name);
        ExitCode::from(ERROR)
    })
}

/// The table of commands, for people.
fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n\n");
    for command in COMMANDS {
        let synopsis = format!("{} {}", command.name, command.arguments);
        text += &format!("  {synopsis:<38} {}\n", command.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the usage names every command.
    #[test]
    fn usage_names_every_command() {
        let text = usage();
        for command in COMMANDS {
            assert!(text.contains(&format!("  {} ", command.name)), "{text}");
        }
    }
}
