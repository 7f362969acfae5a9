//! `cargo xtask bench`: what tracing costs, side by side with empty probes and with bpftrace, and what the service,
//! the stacks and the stubs take, as Markdown on stdout.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cargo;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};

/// What runs without an argument.
const USUAL: [&str; 4] = ["overhead", "service", "stacks", "stubs"];
/// A whole application takes long: only if it is asked for.
const APPLICATION: &str = "application";
/// How many rounds it has without `--rounds`, and at most.
const ROUNDS: u64 = 24;
const MOST_ROUNDS: u64 = 1_000;
/// JVMs come and go for as long as one likes: only if it is asked for.
const SOAK: &str = "soak";
/// How long a soak is without `--minutes`.
const SOAK_MINUTES: u64 = 10;
/// The longest soak.
const MOST_MINUTES: u64 = 7 * 24 * 60;
/// How long anything else may take, and a soak beside its minutes.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// A benchmark in the package of the real tests: `tests/benches/NAME`.
#[derive(Debug, PartialEq, Eq)]
struct Bench {
    name: &'static str,
    arguments: Vec<String>,
    limit: Duration,
}

/// The command. A bar that is missed is a failed check.
///
/// # Errors
/// When what the benchmark needs cannot be installed or built.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let benches = chosen(arguments)?;
    if !Machine::this().is_root {
        bail!("the benchmark loads BPF programs: run it as root");
    }
    setup::ensure(Purpose::Test)?;
    cargo::build_release()?;
    let mut is_met = true;
    for Bench { name, arguments, limit } in benches {
        let mut command = cargo::command("bench");
        command.args(["--package", "nprof-tests", "--bench", name, "--"]).args(arguments);
        is_met &= process::run_lines(&mut command, limit, print)?.success();
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The benchmarks that the arguments ask for.
fn chosen(arguments: &[String]) -> Result<Vec<Bench>> {
    let bench = |name| Bench { name, arguments: Vec::new(), limit: LIMIT };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(USUAL.map(bench).into()),
        [SOAK] => Ok(vec![soak(SOAK_MINUTES)]),
        [SOAK, "--minutes", minutes] => {
            let minutes = minutes.parse().context("--minutes wants a whole number")?;
            if !(1..=MOST_MINUTES).contains(&minutes) {
                bail!("a soak takes 1 to {MOST_MINUTES} minutes, not {minutes}");
            }
            Ok(vec![soak(minutes)])
        }
        [APPLICATION] => Ok(vec![application(ROUNDS)]),
        [APPLICATION, "--rounds", rounds] => {
            let rounds = rounds.parse().context("--rounds wants a whole number")?;
            if !(2..=MOST_ROUNDS).contains(&rounds) {
                bail!("an application is measured in 2 to {MOST_ROUNDS} rounds, not {rounds}");
            }
            Ok(vec![application(rounds)])
        }
        [name] if USUAL.contains(&name) => Ok(USUAL.into_iter().filter(|known| *known == name).map(bench).collect()),
        _ => bail!("bench [overhead | service | stacks | stubs | application [--rounds N] | soak [--minutes N]]"),
    }
}

fn soak(minutes: u64) -> Bench {
    let arguments = vec!["--minutes".to_owned(), minutes.to_string()];
    Bench { name: SOAK, arguments, limit: LIMIT + Duration::from_secs(60 * minutes) }
}

fn application(rounds: u64) -> Bench {
    let arguments = vec!["--rounds".to_owned(), rounds.to_string()];
    // About half a minute for each JDK; several times that on a machine with other work.
    Bench { name: APPLICATION, arguments, limit: LIMIT + Duration::from_secs(180 * rounds) }
}

fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Option<Vec<&'static str>> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        Some(chosen(&arguments).ok()?.into_iter().map(|bench| bench.name).collect())
    }

    /// Check that a soak and an application run only if they are asked for, and no longer than they may.
    #[test]
    fn arguments_choose() {
        assert_eq!(names(&[]), Some(USUAL.to_vec()));
        assert!(!USUAL.contains(&SOAK));
        assert_eq!(names(&["service"]), Some(vec!["service"]));
        assert_eq!(names(&["soak"]), Some(vec!["soak"]));
        assert_eq!(names(&["soak", "--minutes", "3"]), Some(vec!["soak"]));
        assert!(soak(3).limit > Duration::from_secs(180));
        assert_eq!(names(&["application"]), Some(vec!["application"]));
        assert_eq!(names(&["application", "--rounds", "2"]), Some(vec!["application"]));
        assert!(application(40).limit > Duration::from_secs(40 * 60));
        for wrong in [&["application", "--rounds", "1"][..], &["application", "--minutes", "3"], &["application", "7"]]
        {
            assert_eq!(names(wrong), None, "{wrong:?}");
        }
        for wrong in [&["soak", "--minutes", "0"][..], &["soak", "3"], &["speed"], &["service", "soak"]] {
            assert_eq!(names(wrong), None, "{wrong:?}");
        }
    }
}
