//! What the series have to learn before the next scrape, kept so that nobody has to wait for the scrape that is under way.

use std::time::Instant;

use super::{Exporter, Limits, Measured};

/// JVMs that have ended and a configuration that has changed since the last scrape.
#[derive(Debug)]
pub struct Backlog {
    limits: Limits,
    /// Whether the labels of all JVMs are other ones now.
    relabel: bool,
    ended: Vec<(Measured, Instant)>,
}

impl Backlog {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, relabel: false, ended: Vec::new() }
    }

    /// Other limits are in force from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// All labels are other ones from now on. JVMs that had the old ones have no series any more.
    pub fn relabel(&mut self) {
        self.relabel = true;
        self.ended.clear();
    }

    /// A JVM has ended.
    pub fn retire(&mut self, measured: Measured, now: Instant) {
        self.ended.push((measured, now));
    }

    /// Hands all of it over.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.limits))
    }

    /// Tells the series, in the order in which it happened as far as that matters.
    pub fn tell(self, exporter: &mut Exporter) {
        exporter.set_limits(self.limits);
        if self.relabel {
            exporter.relabel();
        }
        for (measured, at) in self.ended {
            exporter.retire(measured, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::exporter::samples::{function, host, jvm, limits, lines, measured};
    use super::*;

    fn calls(exporter: &mut Exporter, living: &[Measured]) -> Vec<String> {
        let exposition = exporter.collect(living, &host(), Instant::now());
        lines(&exposition).into_iter().filter(|line| line.starts_with("nprof_native_calls_total")).collect()
    }

    /// Check that a JVM that ends while a scrape counts it among the living is counted once by the next, with all it did.
    #[test]
    fn ended_meanwhile_is_counted_once() {
        let (mut exporter, mut backlog) = (Exporter::new(limits()), Backlog::new(limits()));
        let at_scrape = measured("a", jvm(1, vec![function(0, "C", 5)]));
        backlog.retire(measured("a", jvm(1, vec![function(0, "C", 7)])), Instant::now());
        assert!(calls(&mut exporter, &[at_scrape])[0].ends_with(" 5"));
        backlog.take().tell(&mut exporter);
        assert!(calls(&mut exporter, &[])[0].ends_with(" 7"));
        backlog.take().tell(&mut exporter);
        assert!(calls(&mut exporter, &[])[0].ends_with(" 7"), "told twice");
    }

    /// Check that other labels are told of before JVMs that have ended with them, and that those with the old ones are gone.
    #[test]
    fn relabelled_once() {
        let (mut exporter, mut backlog) = (Exporter::new(limits()), Backlog::new(limits()));
        calls(&mut exporter, &[measured("old", jvm(1, vec![function(0, "C", 5)]))]);
        backlog.retire(measured("old", jvm(1, vec![function(0, "C", 6)])), Instant::now());
        backlog.relabel();
        backlog.retire(measured("new", jvm(2, vec![function(0, "C", 7)])), Instant::now());
        backlog.take().tell(&mut exporter);
        let left = calls(&mut exporter, &[]);
        assert!(left.len() == 1 && left[0].contains("jvm=\"new\"") && left[0].ends_with(" 7"), "{left:?}");
        backlog.take().tell(&mut exporter);
        assert_eq!(calls(&mut exporter, &[]), left, "relabelled twice");
    }
}
