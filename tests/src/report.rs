//! nprof's JSON documents. Every field of the contract is here: one that is missing or renamed fails every test.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::name::MethodName;
use crate::process::Called;

/// A document of `nprof trace --format json`.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct Report {
    pub schema: u32,
    pub nprof: String,
    /// `null` where there is no JVM.
    pub started: Option<String>,
    pub elapsed_ns: u64,
    pub targets: Vec<TargetRow>,
    pub methods: Vec<Row>,
    /// Only with `--by`.
    pub groups: Option<Vec<GroupRow>>,
    pub skipped: Vec<SkippedRow>,
    pub losses: BTreeMap<String, u64>,
}

/// One traced process.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct TargetRow {
    pub pid: u32,
    pub main: String,
    pub jvm: String,
    pub start_time: u64,
    /// Only in documents of `trace`.
    #[serde(default)]
    pub ended: bool,
    /// Only in documents of `trace`.
    pub functions: Option<FunctionsRow>,
    /// Only in documents of `trace`, and there `null` where it is not estimated.
    pub cost_ns: Option<u64>,
    /// Only where slow calls are looked for.
    pub slow: Option<SlowCallRows>,
}

/// How many functions of a process are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct FunctionsRow {
    pub timed: usize,
    pub counted: usize,
    pub returned: usize,
    pub off: usize,
    pub detached: usize,
    pub demoted: usize,
}

/// Calls that took long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct SlowCallRows {
    pub threshold_ns: Option<u64>,
    pub total: u64,
    pub unread: u64,
    pub calls: Vec<SlowCallRow>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct SlowCallRow {
    pub ended: String,
    pub class: String,
    pub method: String,
    pub signature: String,
    pub time_ns: u64,
    pub off_cpu_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
    pub tid: u32,
    pub thread: String,
    pub tier: String,
    pub callers: Vec<String>,
    /// Only where arguments are asked for.
    pub arguments: Option<serde_json::Value>,
    pub wait: Option<WaitRow>,
    /// Only where something is collected.
    pub collected: Option<BTreeMap<String, u64>>,
}

/// The longest time that its thread was not running.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct WaitRow {
    pub ns: u64,
    pub kernel: Vec<String>,
}

impl SlowCallRow {
    /// The method's full name.
    #[must_use]
    pub fn name(&self) -> MethodName {
        MethodName::new(&self.class, &self.method, &self.signature)
    }
}

/// One traced function with calls. With `--count-only` there are no calls in flight and no times; without a timed call
/// there are no quantiles.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct Row {
    pub pid: u32,
    pub class: String,
    pub method: String,
    pub signature: String,
    pub aliases: Vec<String>,
    pub library: String,
    pub bound: String,
    pub tier: String,
    /// `null` where stubs alone counted.
    pub cost: Option<String>,
    pub state: String,
    pub wanted: String,
    pub traced_after_ns: u64,
    pub unwatched_ns: u64,
    pub calls: u64,
    pub counted: u64,
    pub in_flight: Option<u64>,
    pub untimed: u64,
    pub total_ns: Option<u64>,
    pub estimated_total_ns: Option<u64>,
    pub self_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub histogram: Option<HistogramRow>,
    pub probe_ns: Option<u64>,
    pub probe_error_ns: Option<u64>,
    pub cost_ns: Option<u64>,
    pub estimated_calls: Option<u64>,
    pub estimate_error: Option<f64>,
    pub estimate_error_ns: Option<u64>,
    pub off_cpu_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
    pub open_ns: Option<u64>,
    pub open_on_cpu_ns: Option<u64>,
    /// Only with `--collect`.
    pub collected: Option<BTreeMap<String, u64>>,
    /// The same.
    pub collected_total: Option<BTreeMap<String, u64>>,
    /// Only where bytes are collected; `null` where it is not known how many each call moved.
    pub bytes_per_call: Option<BTreeMap<String, Option<BytesRow>>>,
    /// Only where calls are told apart by thread.
    pub threads: Option<Vec<ThreadRow>>,
    /// Only where programs of the user's show something; `null` where none of them runs.
    pub programs: Option<BTreeMap<String, Option<u64>>>,
}

/// How many bytes each call of a function has moved.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct BytesRow {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
    pub none: u64,
    pub histogram: HistogramRow,
}

/// One thread's calls of a function.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct ThreadRow {
    pub tid: u32,
    pub name: String,
    pub calls: u64,
    pub counted: u64,
    pub total_ns: Option<u64>,
    pub self_ns: Option<u64>,
    pub off_cpu_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
}

/// What rows add up to.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct GroupRow {
    pub name: String,
    pub tid: Option<u32>,
    pub functions: u64,
    pub calls: u64,
    pub calls_error: u64,
    pub on_cpu_ns: Option<u64>,
    pub self_ns: Option<u64>,
}

/// Calls by duration.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct HistogramRow {
    pub schema: u32,
    pub buckets: Vec<(i32, u64)>,
}

impl HistogramRow {
    /// Calls that took no longer than `bound_ns`, which has to be the upper bound of a bucket or infinite.
    ///
    /// # Errors
    /// When the bound lies inside a bucket.
    pub fn calls_within(&self, bound_ns: f64) -> Result<u64> {
        // Bucket `index` ends at 2^(index / 4) ns. A bound may have been rounded in print.
        let index = 4.0 * bound_ns.log2();
        let is_bound = bound_ns.is_infinite() || (index - index.round()).abs() < 1e-3;
        ensure!(self.schema == 2 && is_bound, "{bound_ns} ns is not between two buckets of schema {}", self.schema);
        Ok(self.buckets.iter().filter(|(own, _)| f64::from(*own) < index + 0.5).map(|(_, calls)| calls).sum())
    }
}

/// Methods that are not traced, by reason.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct SkippedRow {
    pub reason: String,
    pub count: u64,
    pub examples: Vec<String>,
}

/// The times of a row that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Calls in the histogram.
    pub calls: u64,
    /// Their sum in nanoseconds.
    pub total_ns: u64,
    /// The sum without traced callees, in nanoseconds.
    pub self_ns: u64,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
}

impl Row {
    /// The times, which are there unless calls were only counted.
    ///
    /// # Errors
    /// When they are not.
    pub fn times(&self) -> Result<Times> {
        let Self {
            total_ns: Some(total_ns),
            self_ns: Some(self_ns),
            max_ns: Some(max_ns),
            histogram: Some(histogram),
            ..
        } = self
        else {
            bail!("no times: {self:?}");
        };
        let calls = histogram.buckets.iter().map(|(_, calls)| calls).sum();
        Ok(Times { calls, total_ns: *total_ns, self_ns: *self_ns, max_ns: *max_ns })
    }

    /// The name that the row goes by; its aliases come on top.
    #[must_use]
    pub fn name(&self) -> MethodName {
        MethodName::new(&self.class, &self.method, &self.signature)
    }

    fn is_about(&self, method: &MethodName) -> bool {
        self.name() == *method || self.aliases.contains(&method.without_signature())
    }
}

impl Report {
    /// What the report says of one process.
    #[must_use]
    pub fn of(&self, pid: u32) -> Self {
        let mut own = self.clone();
        own.targets.retain(|target| target.pid == pid);
        own.methods.retain(|row| row.pid == pid);
        own
    }

    /// The row of a method, also if it is only an alias there.
    #[must_use]
    pub fn row(&self, method: &MethodName) -> Option<&Row> {
        self.methods.iter().find(|row| row.is_about(method))
    }

    /// The row of a method that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn needed_row(&self, method: &MethodName) -> Result<&Row> {
        self.row(method).with_context(|| {
            let rows: Vec<String> = self.methods.iter().map(|row| row.name().to_string()).collect();
            format!("no row of {method} among:\n    {}", rows.join("\n    "))
        })
    }

    /// Calls of a method that have ended; 0 without a row.
    #[must_use]
    pub fn calls(&self, method: &MethodName) -> u64 {
        self.row(method).map_or(0, |row| row.calls)
    }

    /// Holds if every method has exactly the calls that were made and none is left inside.
    ///
    /// # Errors
    /// Names each method that differs.
    pub fn must_equal(&self, called: &[Called]) -> Result<()> {
        let mut differences = Vec::new();
        for function in called {
            ensure!(function.made == function.counted, "the target contradicts itself: {function:?}");
            for method in &function.methods {
                let (calls, in_flight) = self.row(method).map_or((0, 0), |row| (row.calls, row.in_flight.unwrap_or(0)));
                if (calls, in_flight) != (function.made, 0) {
                    let made = function.made;
                    differences.push(format!("{method}: made {made}, reported {calls} and {in_flight} in flight"));
                }
            }
        }
        ensure!(differences.is_empty(), "wrong counts (losses {:?}):\n    {}", self.losses, differences.join("\n    "));
        Ok(())
    }

    /// Holds if every reason to lose something is listed and zero, every call is timed, and each row agrees with itself.
    ///
    /// # Errors
    /// Names the losses, or the row.
    pub fn must_be_lossless(&self) -> Result<()> {
        self.must_be_lossless_within_budget()?;
        for row in &self.methods {
            row.times()?;
            ensure!(row.counted == 0, "not every call is timed: {row:?}");
        }
        Ok(())
    }

    /// The same where a budget may lead to calls that are only counted, as a row says of its own.
    ///
    /// # Errors
    /// As [`Self::must_be_lossless`].
    pub fn must_be_lossless_within_budget(&self) -> Result<()> {
        ensure!(!self.losses.is_empty(), "losses are not listed");
        ensure!(self.lost() == 0, "something was lost: {:?}", self.losses);
        // One that was never timed has no times.
        for row in self.methods.iter().filter(|row| row.counted < row.calls) {
            let times = row.times()?;
            let told = times.calls + row.counted;
            ensure!(
                row.untimed == 0 && told == row.calls,
                "calls that are neither timed nor said to be counted: {row:?}"
            );
            ensure!(times.self_ns <= times.total_ns && times.max_ns <= times.total_ns, "contradicting times: {row:?}");
        }
        Ok(())
    }

    /// The sum of all losses.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.values().sum()
    }
}

/// A document of `nprof methods --format json`.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct MethodList {
    pub schema: u32,
    pub target: TargetRow,
    pub methods: Vec<ListedMethod>,
}

/// One native method of a loaded class.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct ListedMethod {
    pub class: String,
    pub method: String,
    pub signature: String,
    pub library: Option<String>,
    /// Where a probe would sit in the file.
    pub offset: Option<u64>,
    /// Where the function begins in the file.
    pub entry: Option<u64>,
    pub bound: String,
    pub traceable: bool,
    pub reason: Option<String>,
    pub cost: Option<String>,
}

impl ListedMethod {
    /// Its full name.
    #[must_use]
    pub fn name(&self) -> MethodName {
        MethodName::new(&self.class, &self.method, &self.signature)
    }
}

impl MethodList {
    /// The entry of a method that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn needed(&self, class: &str, method: &str) -> Result<&ListedMethod> {
        self.methods
            .iter()
            .find(|listed| listed.class == class && listed.method == method)
            .with_context(|| format!("no {class}::{method} in the list"))
    }
}

/// A document of `nprof ps --format json`.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JvmList {
    pub schema: u32,
    pub nprof: String,
    pub jvms: Vec<JvmRow>,
    pub unreadable: u64,
}

/// One JVM of the host.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JvmRow {
    pub pid: u32,
    pub main: String,
    pub kind: String,
    pub vm: String,
    pub version: String,
    pub user: Option<String>,
    pub uid: u32,
    pub container: Option<String>,
    pub natives: Option<u64>,
    pub bound: Option<u64>,
    pub supported: bool,
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{ "schema": 1, "nprof": "0.1.0", "started": "2026-01-01T00:00:00Z", "elapsed_ns": 5,
        "targets": [{ "pid": 1, "main": "M", "jvm": "J", "start_time": 2 }],
        "methods": [{ "pid": 1, "class": "a.B", "method": "c", "signature": "()V", "aliases": ["a.B::d"],
            "library": "lib.so", "bound": "export", "tier": "kernel", "cost": "emulated", "state": "timed",
            "wanted": "timed", "traced_after_ns": 0, "unwatched_ns": 0, "calls": 3, "counted": 0, "in_flight": 0, "untimed": 0, "total_ns": 30, "self_ns": 30, "max_ns": 11, "p50_ns": 10,
            "p90_ns": 11, "p99_ns": 11, "histogram": { "schema": 2, "buckets": [[13, 1], [14, 2]] } }],
        "skipped": [], "losses": { "too-deep": 0 } }"#;

    fn called(method: &str, made: u64) -> [Called; 1] {
        [Called { methods: vec![MethodName::new("a.B", method, "()V")], made, counted: made }]
    }

    /// Check that calls are counted up to the bound of a bucket, and that other bounds are refused.
    #[test]
    fn counts_calls_within_a_bound() {
        let report: Report = serde_json::from_str(DOCUMENT).unwrap();
        let histogram = report.methods[0].histogram.clone().unwrap();
        let within = [8.0, 9.513_657, 11.313_708_5, f64::INFINITY].map(|bound| histogram.calls_within(bound).unwrap());
        assert_eq!(within, [0, 1, 3, 3]);
        assert!(histogram.calls_within(10.0).is_err());
    }

    /// Check that equal counts pass, under the name and under an alias.
    #[test]
    fn equal_counts_pass() {
        let report: Report = serde_json::from_str(DOCUMENT).unwrap();
        report.must_equal(&called("c", 3)).unwrap();
        report.must_equal(&called("d", 3)).unwrap();
        report.must_be_lossless().unwrap();
    }

    /// Check that a count off by one, a method without a row, and a loss fail.
    #[test]
    fn every_difference_fails() {
        let report: Report = serde_json::from_str(DOCUMENT).unwrap();
        assert!(report.must_equal(&called("c", 4)).is_err());
        assert!(report.must_equal(&called("e", 1)).is_err());
        let lossy: Report = serde_json::from_str(&DOCUMENT.replace("\"too-deep\": 0", "\"too-deep\": 1")).unwrap();
        assert!(lossy.must_be_lossless().is_err());
    }
}
