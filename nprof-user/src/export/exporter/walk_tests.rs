//! A walk through joins, calls, ends and scrapes in an order that nobody has thought of.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::samples::{function, host, jvm, limits, lines, measured};
use super::{Exporter, Limits, Measured, Usage};

/// A generator of pseudo-random numbers (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct Walk {
    random: Random,
    exporter: Exporter,
    living: Vec<Measured>,
    /// The calls of all JVMs that ever were.
    calls: u64,
    pids: u32,
    now: Instant,
    /// What the last scrape said.
    before: HashMap<String, f64>,
}

impl Walk {
    fn step(&mut self) {
        match self.random.below(10) {
            0 => self.join(),
            1 if !self.living.is_empty() => self.end(),
            2..=4 => self.scrape(),
            _ => self.call(),
        }
        self.now += Duration::from_secs(self.random.below(3));
    }

    fn join(&mut self) {
        self.pids += 1;
        // Few labels for many JVMs.
        let name = format!("jvm{}", self.random.below(2));
        self.living.push(measured(&name, jvm(self.pids, Vec::new())));
    }

    fn end(&mut self) {
        let at = usize::try_from(self.random.below(self.living.len() as u64)).unwrap();
        let measured = self.living.swap_remove(at);
        self.exporter.retire(measured, self.now);
    }

    /// Some calls of one function of one JVM, which may be its first.
    fn call(&mut self) {
        if self.living.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.living.len() as u64)).unwrap();
        let class = self.random.below(9);
        let index = u32::try_from(class).unwrap();
        let bucket = i32::try_from(self.random.below(181)).unwrap();
        let methods = &mut self.living[at].snapshot.methods;
        if !methods.iter().any(|method| method.index == index) {
            // Indices 6 to 8 are overloads of the class of 0 to 2.
            methods.push(function(index, &format!("C{}", class % 6), 0));
        }
        let method = methods.iter_mut().find(|method| method.index == index).unwrap();
        method.calls += 1;
        method.total_ns += 100;
        method.self_ns = method.self_ns.map(|self_ns| self_ns + 50);
        match method.histogram.buckets.binary_search_by_key(&bucket, |(index, _)| *index) {
            Ok(at) => method.histogram.buckets[at].1 += 1,
            Err(at) => method.histogram.buckets.insert(at, (bucket, 1)),
        }
        self.calls += 1;
    }

    fn scrape(&mut self) {
        let exposition = self.exporter.collect_with(&self.living, &host(), &Usage::default(), self.now);
        let mut after = HashMap::new();
        for line in lines(&exposition) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let old = after.insert(series.to_owned(), value.parse::<f64>().unwrap());
            assert_eq!(old, None, "{series} is there twice");
        }
        let counter = |name: &str| ["_total{", "_bucket{", "_sum{", "_count{"].iter().any(|end| name.contains(end));
        for (series, before) in self.before.iter().filter(|(series, _)| counter(series)) {
            let value = after.get(series).copied();
            assert!(value >= Some(*before), "{series} went from {before} to {value:?}");
        }
        let sum = |start: &str| after.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, n)| n).sum::<f64>();
        let calls = self.calls as f64;
        assert_eq!(sum("nprof_native_calls_total"), calls);
        assert_eq!(sum("nprof_native_call_duration_seconds_count"), calls);
        self.before = after;
    }
}

/// Check that no counter falls or goes, that no series is there twice, and that no call is lost or counted twice, in any
/// order of events and with more methods than series.
#[test]
fn counters_never_go_backwards() {
    for seed in 1..8 {
        let limits = Limits { series_per_jvm: 4, keep_ended: Duration::from_secs(1_000_000), ..limits() };
        let mut walk = Walk {
            random: Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)),
            exporter: Exporter::new(limits),
            living: Vec::new(),
            calls: 0,
            pids: 0,
            now: Instant::now(),
            before: HashMap::new(),
        };
        for _ in 0..250 {
            walk.step();
        }
        assert!(walk.pids > 10 && walk.calls > 50, "the walk must go somewhere");
    }
}
