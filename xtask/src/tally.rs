//! How many checks passed, over everything that a command ran.

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use crate::FAILED;

/// How a test says that it, or a part of it, was not run, before its name and the reason.
const NOT_RUN: &str = "nprof-tests: not run: ";

/// Counts of checks and tests, the names of what failed, and what was skipped.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    /// What was not checked, and why.
    skips: Vec<String>,
    /// The test that said something last. What it prints itself may stand between its name and its end.
    running: String,
}

impl Tally {
    /// Runs one check and counts it. Gives its value if it passed.
    pub(crate) fn check<T>(&mut self, name: &str, check: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("\n== {name}");
        match check() {
            Ok(value) => {
                self.passed += 1;
                println!("== {name}: ok");
                Some(value)
            }
            Err(error) => {
                self.fail(name, &error);
                None
            }
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, name: &str, error: &anyhow::Error) {
        self.failed += 1;
        println!("== {name}: FAILED: {error:#}");
        self.failures.push(name.to_owned());
    }

    /// Counts one check that could not be made.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("\n== {name}: skipped: {why}");
        self.skips.push(format!("{name}: {why}"));
    }

    /// Counts the tests of a test binary if `line` is its summary, such as
    /// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`,
    /// and notes the name of a failed test.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            return;
        }
        if let Some((name, rest)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            name.clone_into(&mut self.running);
            if let Some(why) = rest.strip_prefix("ignored") {
                self.skips.push(format!("{name}: {}", why.trim_start_matches(", ")));
            }
        }
        if let Some((_, skip)) = line.split_once(NOT_RUN) {
            self.skips.push(skip.to_owned());
        } else if line == "FAILED" || line.ends_with(" ... FAILED") {
            self.failures.push(self.running.clone());
        }
    }

    /// How many checks and tests ran.
    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }

    /// How many of them failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Prints what was skipped, what failed and, as the last line, the counts.
    pub(crate) fn finish(&self) -> ExitCode {
        println!();
        for skip in &self.skips {
            println!("skipped: {skip}");
        }
        for name in &self.failures {
            println!("failed: {name}");
        }
        println!("{self}");
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skips, .. } = self;
        write!(f, "{passed} passed, {failed} failed, {} skipped", skips.len())
    }
}

/// The number before `word` in `ok. 5 passed; 0 failed`.
fn count(result: &str, word: &str) -> u64 {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(word))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that summaries add up and that other lines do not count.
    #[test]
    fn summaries_add_up() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        tally
            .read("test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s");
        tally.read("test discover::finds_it ... ok");
        tally.read("test discover::loses_it ... FAILED");
        tally.read("test discover::tool ... ignored, it writes a file");
        tally.read("test discover::breaks ... nprof-tests: a note");
        tally.read("FAILED");
        tally.read("test discover::other ... nprof-tests: not run: discover::other with JDK 17: it has none");
        assert_eq!(tally.to_string(), "45 passed, 2 failed, 2 skipped");
        assert_eq!(tally.skips, ["discover::tool: it writes a file", "discover::other with JDK 17: it has none"]);
        assert_eq!(tally.failures, ["discover::loses_it", "discover::breaks"]);
        assert_eq!(tally.ran(), 47);
    }

    /// Check that each outcome of a check is counted as what it is.
    #[test]
    fn checks_are_counted() {
        let mut tally = Tally::default();
        assert_eq!(tally.check("good", || Ok(7)), Some(7));
        assert_eq!(tally.check::<()>("bad", || anyhow::bail!("broken")), None);
        tally.skip("absent", "no such tool");
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed(), 1);
        assert_eq!(tally.finish(), ExitCode::from(FAILED));
        assert_eq!(Tally::default().finish(), ExitCode::SUCCESS);
    }
}
