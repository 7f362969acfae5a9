//! Which tests take longest, where each runs alone: what to look at when all of them together take too long.

use std::fmt;
use std::time::{Duration, Instant};

/// So many are named.
const NAMED: usize = 12;
/// Not worth a line.
const SHORT: Duration = Duration::from_secs(5);

/// How long each test took, by what a test binary prints: a line at the end of each.
#[derive(Debug)]
pub(crate) struct Slowest {
    /// When the last test ended.
    last: Instant,
    took: Vec<(Duration, String)>,
}

impl Slowest {
    /// Nothing has run yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: now, took: Vec::new() }
    }

    /// A line was printed just now.
    pub(crate) fn read(&mut self, line: &str, now: Instant) {
        let name = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
        if let Some((name, _)) = name {
            self.took.push((now - self.last, name.to_owned()));
            self.last = now;
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut longest: Vec<&(Duration, String)> = self.took.iter().filter(|(took, _)| *took >= SHORT).collect();
        longest.sort_by(|a, b| b.cmp(a));
        longest.iter().take(NAMED).try_for_each(|(took, name)| writeln!(f, "{:4} s  {name}", took.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each test has the time since the one before it, and that the longest come first.
    #[test]
    fn longest_first() {
        let start = Instant::now();
        let mut slowest = Slowest::new(start);
        for (second, line) in [
            (1, "test a::one ... ok"),
            (2, "something that it prints"),
            (7, "test b::two ... ok"),
            (27, "test c::three ... FAILED"),
        ] {
            slowest.read(line, start + Duration::from_secs(second));
        }
        assert_eq!(slowest.to_string(), "  20 s  c::three\n   6 s  b::two\n");
    }
}
