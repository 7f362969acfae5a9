//! How many checks passed, over everything that a command ran.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use crate::FAILED;

/// How a test says that it, or a part of it, was not run, before its name and the reason.
const NOT_RUN: &str = "nprof-tests: not run: ";
/// Of what a test prints, so many lines are repeated at the end if it fails, from why it failed on,
const MOST_LINES: usize = 12;
/// so many of those before,
const MOST_BEFORE: usize = 6;
/// and of each so many characters.
const MOST_CHARACTERS: usize = 1000;
/// What comes after this is of no use without the rest of the output.
const BACKTRACE: &str = "stack backtrace:";

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
    /// What each has printed, by name.
    said: BTreeMap<String, Said>,
}

/// How a line begins that says why a test failed: by an error, or by a panic.
const REASONS: [&str; 2] = ["Error:", "thread '"];

/// What a test has printed of why it failed, and just before.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Said {
    lines: Vec<String>,
    /// The first line of why it failed.
    reason: Option<usize>,
    /// Whether the rest is of no use.
    is_over: bool,
}

impl Said {
    fn hear(&mut self, line: &str) {
        self.is_over |= line.to_ascii_lowercase().contains(BACKTRACE);
        if self.is_over || line.trim().is_empty() {
            return;
        }
        if self.reason.is_none() && REASONS.iter().any(|reason| line.starts_with(reason)) {
            self.reason = Some(self.lines.len());
        }
        self.lines.push(line.chars().take(MOST_CHARACTERS).collect());
        match self.reason {
            Some(reason) => self.is_over = self.lines.len() == reason + MOST_LINES,
            None if self.lines.len() > MOST_BEFORE => drop(self.lines.remove(0)),
            None => {}
        }
    }
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
        self.said.entry(name.to_owned()).or_default().hear(&format!("{error:#}"));
    }

    /// Counts one check that could not be made.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("\n== {name}: skipped: {why}");
        self.skips.push(format!("{name}: {why}"));
    }

    /// Counts the tests of a test binary if `line` is its summary, such as
    /// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`,
    /// and notes the name of a failed test and what it printed.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
        } else if let Some((name, rest)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            name.clone_into(&mut self.running);
            self.read_test(rest);
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            // What was kept back until all tests had run.
            name.clone_into(&mut self.running);
        } else if line == "failures:" {
            self.running.clear();
        } else {
            self.read_test(line);
        }
    }

    /// Notes what the running test has printed, or what came of it.
    fn read_test(&mut self, line: &str) {
        if let Some(why) = line.strip_prefix("ignored") {
            self.skips.push(format!("{}: {}", self.running, why.trim_start_matches(", ")));
        } else if let Some((_, skip)) = line.split_once(NOT_RUN) {
            // What concerns all tests is said by each binary that is started.
            if self.skips.iter().all(|other| other != skip) {
                self.skips.push(skip.to_owned());
            }
        } else if line == "FAILED" {
            self.failures.push(std::mem::take(&mut self.running));
        } else if line == "ok" {
            // What comes before the next name is said by others that still run.
            self.running.clear();
        } else if !self.running.is_empty() {
            self.said.entry(self.running.clone()).or_default().hear(line);
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
            for line in self.said.get(name).into_iter().flat_map(|said| &said.lines) {
                println!("    {line}");
            }
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

    /// Check that what a test printed is known if it fails, at once or after all others, without its backtrace.
    #[test]
    fn reasons_are_kept() {
        let mut tally = Tally::default();
        for line in
            ["test one ... Error: on JDK 17", "", "Caused by:", "    at once", "Stack backtrace:", "0: x", "FAILED"]
        {
            tally.read(line);
        }
        let later = [
            "test two ... FAILED",
            "test three ... ok",
            "failures:",
            "---- two stdout ----",
            "later",
            "failures:",
            "two",
        ];
        later.iter().for_each(|line| tally.read(line));
        tally.fail("four", &anyhow::anyhow!("a check"));
        let lines = |name: &str| tally.said.get(name).map(|said| said.lines.clone()).unwrap_or_default();
        assert_eq!(lines("one"), ["Error: on JDK 17", "Caused by:", "    at once"]);
        assert_eq!(
            (lines("two"), lines("three"), lines("four")),
            (vec!["later".to_owned()], vec![], vec!["a check".to_owned()])
        );
        assert_eq!(tally.failures, ["one", "two", "four"]);
    }

    /// Check that the reason is kept of a test that says much, before and in it.
    #[test]
    fn reasons_come_last() {
        let mut said = Said::default();
        (0..50).for_each(|line| said.hear(&format!("note {line}")));
        said.hear("Error: on JDK 17");
        (0..50).for_each(|line| said.hear(&format!("cause {line}")));
        assert_eq!(said.lines.len(), MOST_BEFORE + MOST_LINES);
        assert_eq!(said.lines[MOST_BEFORE - 1..=MOST_BEFORE + 1], ["note 49", "Error: on JDK 17", "cause 0"]);
    }

    /// Check that of tests that run at a time each has its own reason, whatever others say meanwhile, and that what two
    /// binaries say is counted once.
    #[test]
    fn tests_side_by_side_are_told_apart() {
        let mut tally = Tally::default();
        let notes = (0..2 * MOST_LINES).map(|note| format!("nprof-tests: of three: {note}"));
        let missing = "nprof-tests: not run: nothing is tested with JDK 21: it is not there";
        let before = [missing, "test one ... FAILED"].map(str::to_owned);
        // The name of a test and what came of it are printed at different moments.
        let after =
            ["test two ... nprof-tests: not run: three: no tool", "FAILED", "failures:", "---- one stdout ----"];
        let last = ["Error: of one", "", "---- two stdout ----", "Error: of two", missing];
        let lines = before.into_iter().chain(notes).chain(after.iter().chain(&last).map(|line| (*line).to_owned()));
        lines.for_each(|line| tally.read(&line));
        assert_eq!(tally.failures, ["one", "two"]);
        assert_eq!(tally.said["one"].lines, ["Error: of one"]);
        assert_eq!(tally.said["two"].lines, ["Error: of two"]);
        assert_eq!(tally.skips, ["nothing is tested with JDK 21: it is not there", "three: no tool"]);
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
