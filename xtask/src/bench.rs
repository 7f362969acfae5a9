//! `cargo xtask bench`: what tracing costs, side by side with empty probes and with bpftrace, and what the service, the
//! answer to a scrape, the stacks and the stubs take, as Markdown on stdout.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cargo;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};

/// What runs without an argument.
const USUAL: [&str; 9] =
    ["exposition", "functions", "ids", "overhead", "service", "stacks", "stubs", "switches", "trees"];
/// A whole application takes long: only if it is asked for.
const APPLICATION: &str = "application";
/// How many rounds it has without `--rounds`, and at most.
const ROUNDS: u64 = 24;
const MOST_ROUNDS: u64 = 100_000;
/// So do the many rounds of programs whose stubs are always on.
const ALWAYS_ON: &str = "always-on";
/// How many rounds it has at most without `--rounds`.
const ALWAYS_ON_ROUNDS: u64 = 4_000;
/// Real programs, which have to be installed, take long: only if it is asked for.
const PROGRAMS: &str = "programs";
/// How many rounds it has without `--rounds`.
const PROGRAM_ROUNDS: u64 = 6;
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
    purpose: Purpose,
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
    let purpose = benches.iter().map(|bench| bench.purpose).max().unwrap_or(Purpose::Test);
    setup::ensure(purpose)?;
    cargo::build_release()?;
    let mut is_met = true;
    for Bench { name, arguments, limit, .. } in benches {
        let mut command = cargo::command("bench");
        command.args(["--package", "nprof-tests", "--bench", name, "--"]).args(arguments);
        is_met &= process::run_lines(&mut command, limit, print)?.success();
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The benchmarks that the arguments ask for.
fn chosen(arguments: &[String]) -> Result<Vec<Bench>> {
    let bench = |name| Bench { name, arguments: Vec::new(), limit: LIMIT, purpose: Purpose::Test };
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
        [APPLICATION, "--rounds", rounds] => Ok(vec![application(parsed(rounds)?)]),
        [ALWAYS_ON] => Ok(vec![always_on(ALWAYS_ON_ROUNDS)]),
        [ALWAYS_ON, "--rounds", rounds] => Ok(vec![always_on(parsed(rounds)?)]),
        [PROGRAMS] => Ok(vec![programs(PROGRAM_ROUNDS, "")]),
        [PROGRAMS, "--rounds", rounds] => Ok(vec![programs(parsed(rounds)?, "")]),
        [PROGRAMS, "--rounds", rounds, "--only", word] => Ok(vec![programs(parsed(rounds)?, word)]),
        [name] if USUAL.contains(&name) => Ok(USUAL.into_iter().filter(|known| *known == name).map(bench).collect()),
        _ => bail!(
            "bench [exposition | functions | ids | overhead | service | stacks | stubs | switches | trees | always-on [--rounds N] | \
             application [--rounds N] | programs [--rounds N [--only WORD]] | soak [--minutes N]]"
        ),
    }
}

fn parsed(rounds: &str) -> Result<u64> {
    let rounds = rounds.parse().context("--rounds wants a whole number")?;
    if !(2..=MOST_ROUNDS).contains(&rounds) {
        bail!("programs are measured in 2 to {MOST_ROUNDS} rounds, not {rounds}");
    }
    Ok(rounds)
}

fn soak(minutes: u64) -> Bench {
    let arguments = vec!["--minutes".to_owned(), minutes.to_string()];
    Bench { name: SOAK, arguments, limit: LIMIT + Duration::from_secs(60 * minutes), purpose: Purpose::Test }
}

fn application(rounds: u64) -> Bench {
    let arguments = vec!["--rounds".to_owned(), rounds.to_string()];
    // About half a minute for each JDK; several times that on a machine with other work.
    Bench { name: APPLICATION, arguments, limit: LIMIT + Duration::from_secs(180 * rounds), purpose: Purpose::Test }
}

fn always_on(rounds: u64) -> Bench {
    let arguments = vec!["--rounds".to_owned(), rounds.to_string()];
    // Less than half a second for each program and JDK; several times that on a machine with other work.
    Bench { name: ALWAYS_ON, arguments, limit: LIMIT + Duration::from_secs(6 * rounds), purpose: Purpose::Test }
}

fn programs(rounds: u64, only: &str) -> Bench {
    let arguments = ["--rounds", &rounds.to_string(), "--only", only].map(str::to_owned).into();
    // Four minutes for all programs, and the same again on a machine with other work.
    Bench { name: PROGRAMS, arguments, limit: LIMIT + Duration::from_secs(480 * rounds), purpose: Purpose::Programs }
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
        assert_eq!(names(&["always-on"]), Some(vec!["always-on"]));
        assert_eq!(names(&["always-on", "--rounds", "9"]), Some(vec!["always-on"]));
        assert_eq!(names(&["programs", "--rounds", "2", "--only", "javac"]), Some(vec!["programs"]));
        assert_eq!(programs(2, "").purpose, Purpose::Programs);
        for wrong in [&["application", "--rounds", "1"][..], &["application", "--minutes", "3"], &["application", "7"]]
        {
            assert_eq!(names(wrong), None, "{wrong:?}");
        }
        for wrong in [&["soak", "--minutes", "0"][..], &["soak", "3"], &["speed"], &["service", "soak"]] {
            assert_eq!(names(wrong), None, "{wrong:?}");
        }
    }
}
