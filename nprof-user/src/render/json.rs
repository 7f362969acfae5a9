//! The JSON document of `trace`: the contract with other programs. Times are whole nanoseconds.
//!
//! Names are as in the target, not shortened or escaped beyond JSON's own rules. What was not measured is `null`,
//! never 0: all times and `in_flight` with `--count-only`, the self time and the cost of a probe where stubs counted, the
//! quantiles of a function without a timed call, the start of a run that has found no JVM yet, the cost of tracing where
//! nobody estimates it, `estimated_total_ns` where nothing is estimated. The other times and quantiles are of the timed
//! calls: `calls` less `counted` and `untimed`. They are less what the probes have put into them: `total_ns` and `self_ns`
//! by `probe_ns`, each call and quantile by `inside_ns` of the target's `probes`. The histogram is as it was measured.

use std::io::{self, Write};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::buckets::Buckets;
use super::collected::Collected;
use super::order;
use super::per_call::PerCall;
use super::run::{Run, Scope, View};
use super::slow_call::Slow;
use super::{by_thread, bytes_per_call, groups, names, rows};
use crate::model::{self, Jvm, Losses, Prices, SkipReason, Snapshot, States, Tracing};

/// The version of the document's form.
pub(super) const SCHEMA: u32 = 1;
/// How many skipped methods are named for each reason.
const EXAMPLES: usize = 5;

/// Writes what was measured of all JVMs as one document on one line; without a JVM its lists are empty. Writes in small
/// pieces: `w` should be buffered.
///
/// # Errors
/// What writing to `w` gives.
pub fn json(jvms: &[Snapshot], view: View, w: &mut impl Write) -> io::Result<()> {
    let (run, rows) = (Run::new(jvms, View { scope: Scope::All, ..view }), order::all(jvms, view.order));
    let groups = view.by.map(|by| (by, groups::of(by, view.order, &rows)));
    let groups = groups.as_ref().map(|(by, (groups, shape))| (by.word(), groups.documents(*shape)));
    let (by, groups) = groups.unzip();
    line(&Document { by, groups, ..Document::of(run, &rows) }, w)
}

/// Writes any value as JSON on one line.
pub(super) fn line(value: &impl Serialize, w: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *w, value)?;
    w.write_all(b"\n")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    nprof: &'static str,
    started: Option<String>,
    elapsed_ns: u64,
    targets: Vec<MeasuredTarget<'a>>,
    methods: Vec<Method<'a>>,
    /// Only where rows are added up, and by what.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<groups::Document<'a>>>,
    skipped: Vec<Skipped>,
    #[serde(serialize_with = "as_map")]
    losses: Losses,
}

/// A JVM that a document is about.
#[derive(Serialize)]
pub(super) struct Target<'a> {
    pid: u32,
    main: &'a str,
    jvm: String,
    start_time: u64,
}

/// A JVM that was measured.
#[derive(Serialize)]
pub(super) struct MeasuredTarget<'a> {
    #[serde(flatten)]
    target: Target<'a>,
    ended: bool,
    functions: Functions,
    cost_ns: Option<u64>,
    cpu_ns: Option<u64>,
    cost_share: Option<f64>,
    probes: Prices,
    /// Only where there are some.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    downcalls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<Slow<'a>>,
}

/// How many functions of a JVM are in which state.
#[derive(Serialize)]
struct Functions {
    timed: usize,
    sampled: usize,
    counted: usize,
    returned: usize,
    off: usize,
    detached: usize,
    demoted: usize,
}

#[derive(Serialize)]
struct Method<'a> {
    pid: u32,
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    library: &'a str,
    bound: String,
    tier: &'static str,
    calls: u64,
    in_flight: Option<u64>,
    total_ns: Option<u64>,
    self_ns: Option<u64>,
    max_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    histogram: Option<Buckets<'a>>,
    traced_after_ns: u64,
    untimed: u64,
    aliases: Vec<String>,
    cost: Option<String>,
    state: &'static str,
    wanted: &'static str,
    counted: u64,
    unwatched_ns: u64,
    estimated_total_ns: Option<u64>,
    probe_ns: Option<u64>,
    probe_error_ns: Option<u64>,
    cost_ns: Option<u64>,
    estimated_calls: Option<u64>,
    estimate_error: Option<f64>,
    estimate_error_ns: Option<u64>,
    off_cpu_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
    open_ns: Option<u64>,
    open_on_cpu_ns: Option<u64>,
    /// Only where something is collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<Option<Collected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collected_total: Option<Option<Collected>>,
    /// Only where bytes are collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_call: Option<bytes_per_call::Columns<'a>>,
    /// Only where calls are told apart by thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<Vec<by_thread::Thread<'a>>>,
    /// Only where programs of the user's show something.
    #[serde(skip_serializing_if = "Option::is_none")]
    programs: Option<ByPrograms<'a>>,
}

/// What programs of the user's have counted, by the names of their objects.
struct ByPrograms<'a>(Vec<(&'a str, Option<u64>)>);

impl Serialize for ByPrograms<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[derive(Serialize)]
struct Skipped {
    reason: &'static str,
    count: usize,
    examples: Vec<String>,
}

impl<'a> Document<'a> {
    fn of(run: Run<'a>, rows: &[rows::Row<'a>]) -> Self {
        Self {
            schema: SCHEMA,
            nprof: env!("CARGO_PKG_VERSION"),
            started: run.started().map(|started| started.to_string()),
            elapsed_ns: nanoseconds(run.elapsed()),
            targets: run.jvms.iter().map(MeasuredTarget::of).collect(),
            methods: rows.iter().map(Method::of).collect(),
            by: None,
            groups: None,
            skipped: SkipReason::ALL.into_iter().filter_map(|reason| Skipped::of(run, reason)).collect(),
            losses: run.losses(),
        }
    }
}

impl<'a> Target<'a> {
    pub(super) fn of(jvm: &'a Jvm) -> Self {
        Self {
            pid: jvm.pid.0,
            main: &jvm.main,
            jvm: format!("{} {}", jvm.vm_name, jvm.vm_version).trim().to_owned(),
            start_time: jvm.start_time.0,
        }
    }
}

impl<'a> MeasuredTarget<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            target: Target::of(&snapshot.jvm),
            ended: snapshot.ended,
            functions: Functions::of(&snapshot.states),
            cost_ns: snapshot.cost.map(nanoseconds),
            cpu_ns: snapshot.cpu.map(nanoseconds),
            cost_share: snapshot.cost_share,
            probes: snapshot.prices,
            downcalls: snapshot.downcalls,
            slow: snapshot.slow.as_ref().map(|slow| Slow::of(slow, snapshot.collectors)),
        }
    }
}

impl Functions {
    fn of(states: &States) -> Self {
        let in_state = |tracing: Tracing| states.functions[tracing as usize];
        Self {
            timed: in_state(Tracing::Timed),
            sampled: in_state(Tracing::Sampled),
            counted: in_state(Tracing::Counted),
            returned: in_state(Tracing::Returned),
            off: in_state(Tracing::Off),
            detached: in_state(Tracing::Detached),
            demoted: states.demoted,
        }
    }
}

impl<'a> Method<'a> {
    fn of(row: &rows::Row<'a>) -> Self {
        let (snapshot, measured) = (row.snapshot, row.measured);
        let method = &row.first.method;
        let timed = |ns: u64| snapshot.timed.then_some(ns);
        let collected = |number| Collected::of(snapshot.collectors, measured.consumed.as_deref(), number);
        let quantile = |q: f64| {
            if snapshot.timed { row.quantile_ns(q) } else { None }
        };
        Self {
            pid: snapshot.jvm.pid.0,
            class: &method.class,
            method: &method.name,
            signature: &method.signature,
            library: &measured.library,
            bound: row.first.bound.to_string(),
            tier: measured.tier.as_str(),
            calls: measured.calls,
            in_flight: timed(measured.in_flight),
            total_ns: timed(measured.total_ns),
            self_ns: measured.self_ns.and_then(timed),
            max_ns: timed(measured.max_ns),
            p50_ns: quantile(0.50),
            p90_ns: quantile(0.90),
            p99_ns: quantile(0.99),
            histogram: snapshot.timed.then(|| Buckets::of(&measured.histogram)),
            traced_after_ns: nanoseconds(measured.traced_after),
            untimed: measured.untimed,
            aliases: row.aliases().into_iter().map(names::qualified).collect(),
            cost: measured.cost.map(|cost| cost.to_string()),
            state: measured.traced.tracing.as_str(),
            wanted: measured.traced.wanted.as_str(),
            counted: measured.counted,
            unwatched_ns: nanoseconds(measured.traced.unwatched),
            estimated_total_ns: row.estimated_total_ns().and_then(timed),
            probe_ns: timed(measured.probe_ns),
            probe_error_ns: timed(measured.probe_error_ns),
            cost_ns: measured.cost_ns,
            estimated_calls: measured.unseen.map(|_unseen| row.calls()),
            estimate_error: row.error(),
            estimate_error_ns: row.estimate_error_ns().and_then(timed),
            off_cpu_ns: measured.off_cpu_ns.and_then(timed),
            on_cpu_ns: row.worked().and_then(|worked| timed(worked.value)),
            open_ns: row.open_ns().and_then(timed),
            open_on_cpu_ns: row.open_on_cpu_ns().and_then(timed),
            collected: collected(model::Column::own),
            collected_total: collected(model::Column::total),
            bytes_per_call: bytes_per_call::Columns::of(row.snapshot.collectors, PerCall::of(row.measured)),
            threads: by_thread::threads(row),
            programs: ByPrograms::of(row),
        }
    }
}

impl<'a> ByPrograms<'a> {
    fn of(row: &rows::Row<'a>) -> Option<Self> {
        let programs = &row.snapshot.programs;
        let each = programs.iter().map(|programs| (programs.name.as_str(), programs.of(row.measured.index)));
        (!programs.is_empty()).then(|| Self(each.collect()))
    }
}

impl Skipped {
    fn of(run: Run<'_>, reason: SkipReason) -> Option<Self> {
        let count = run.skipped(reason);
        (count > 0).then(|| Self { reason: reason.as_str(), count, examples: run.examples(reason, EXAMPLES) })
    }
}

/// Nanoseconds of a duration; 584 years are enough.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn as_map<S: Serializer>(losses: &Losses, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(losses.counts.iter().copied())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Scope, View, json};
    use crate::model::Snapshot;
    use crate::render::samples;

    fn text(jvms: &[Snapshot]) -> String {
        let mut out = Vec::new();
        json(jvms, View::from(Scope::All), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check that what was collected is there under its names, without and with nested calls, and nothing where nothing was.
    #[test]
    fn collected() {
        let collected = text(&[samples::collected()]);
        let numbers = r#"{"faults":1240,"major_faults":6,"read_bytes":"#;
        let own = format!(r#""collected":{numbers}5242880,"written_bytes":0}}"#);
        let total = format!(r#""collected_total":{numbers}5243880,"written_bytes":0}}"#);
        assert!(collected.contains(&format!("{own},{total}")), "{collected}");
        assert!(!text(&[samples::eventful()]).contains("collected"));
    }

    /// Check that what programs of the user's have counted is there by the names of their objects, `null` where none runs, and
    /// nothing where there are none.
    #[test]
    fn values_of_programs() {
        let programs = text(&[samples::with_programs()]);
        assert!(programs.contains(r#","programs":{"bytes":12022867}}"#), "{programs}");
        assert!(programs.contains(r#","programs":{"bytes":null}}"#), "{programs}");
        assert!(!text(&[samples::eventful()]).contains("programs"));
    }

    /// Check the whole document, field by field and in order.
    #[test]
    fn everything() {
        assert_eq!(text(&[samples::eventful()]), samples::one_line(include_str!("golden/trace.json")));
    }

    /// Check that the document of a snapshot without calls is complete.
    #[test]
    fn no_calls() {
        assert_eq!(text(&[samples::snapshot()]), samples::one_line(include_str!("golden/trace_no_calls.json")));
    }

    /// Check the whole document of several JVMs: all targets, methods by total time, skips and losses of all.
    #[test]
    fn several_jvms() {
        assert_eq!(text(&samples::several()), samples::one_line(include_str!("golden/trace_all.json")));
    }

    /// Check that the document of a run without a JVM is complete, and lists every loss at zero.
    #[test]
    fn no_jvm() {
        let document: Value = serde_json::from_str(&text(&[])).unwrap();
        for list in ["targets", "methods", "skipped"] {
            assert_eq!(document[list], serde_json::json!([]), "{list}");
        }
        assert!(document["started"].is_null() && document["elapsed_ns"] == 0);
        let losses = document["losses"].as_object().unwrap();
        assert!(!losses.is_empty() && losses.values().all(|n| *n == 0), "{losses:?}");
    }

    /// Check that the examples of several JVMs are different methods, as many as one JVM alone would give.
    #[test]
    fn examples_of_several_jvms_differ() {
        let mut jvms = samples::several();
        for jvm in &mut jvms {
            jvm.skipped = jvm.skipped[..1].into();
        }
        let mut many = vec![jvms[0].skipped[0].clone(); 9];
        many[1..].iter_mut().for_each(|skipped| skipped.method.method.name = "other".into());
        jvms[1].skipped = many.into();
        let document: Value = serde_json::from_str(&text(&jvms)).unwrap();
        assert_eq!(document["skipped"][0]["count"], 10);
        let examples = [&["a.Late::call"][..], &["a.Late::other"; 4]].concat();
        assert_eq!(document["skipped"][0]["examples"], serde_json::json!(examples));
    }

    /// Check that the numbers that a program reads back are those of the snapshot, the largest included.
    #[test]
    fn numbers_come_back() {
        let mut snapshot = samples::eventful();
        let method = &mut snapshot.methods[3];
        method.total_ns = u64::MAX;
        method.max_ns = u64::MAX - 1;
        let document: Value = serde_json::from_str(&text(std::slice::from_ref(&snapshot))).unwrap();
        let (first, measured) = (&document["methods"][0], &snapshot.methods[3]);
        for (field, expected) in [
            ("calls", measured.calls),
            ("in_flight", measured.in_flight),
            ("total_ns", u64::MAX),
            ("self_ns", measured.self_ns.unwrap()),
            ("max_ns", u64::MAX - 1),
            ("untimed", measured.untimed),
        ] {
            assert_eq!(first[field].as_u64(), Some(expected), "{field}");
        }
        assert_eq!(first["histogram"]["buckets"], serde_json::json!([[46, 900], [52, 100]]));
        assert_eq!(document["methods"].as_array().unwrap().len(), 4);
        assert_eq!(document["methods"][3]["method"], "call");
        assert_eq!(document["methods"][3]["class"], "été.日本\u{1b}[2J");
        assert_eq!(document["losses"]["unreturned"], 1_234_567);
        assert_eq!(document["elapsed_ns"], 2_500_000_000_u64);
    }

    /// Check that times are less what the probes have put in, and that it can be added again: to the total call by call,
    /// to a quantile by what one call's probes put in.
    #[test]
    fn times_are_less_the_probes() {
        let document: Value = serde_json::from_str(&text(&[samples::probed()])).unwrap();
        let classes: Vec<&str> = (0..3).map(|row| document["methods"][row]["class"].as_str().unwrap()).collect();
        assert_eq!(classes, ["a.Slow", "a.Stepped", "a.Empty"]);
        let fields = |row: usize| {
            ["total_ns", "self_ns", "max_ns", "p50_ns", "probe_ns", "probe_error_ns", "cost_ns"]
                .map(|field| document["methods"][row][field].clone())
        };
        let expected = serde_json::json!([3_000_000, 3_000_000, 3000, 2922, 600_000, 200_000, 900_000]);
        assert_eq!(serde_json::json!(fields(0)), expected);
        let expected = serde_json::json!([500_000, 500_000, 500, 0, 11_000_000, 2_000_000, 13_000_000]);
        assert_eq!(serde_json::json!(fields(1)), expected);
        let target = &document["targets"][0];
        assert_eq!((&target["cost_ns"], &target["cost_share"]), (&14_800_000.into(), &0.0321.into()));
        assert_eq!(target["probes"]["single-stepped"]["inside_ns"], 11_000);
    }

    /// Check that what `--count-only` does not measure is null.
    #[test]
    fn count_only_has_no_times() {
        let mut snapshot = samples::eventful();
        snapshot.timed = false;
        let document: Value = serde_json::from_str(&text(&[snapshot])).unwrap();
        for field in ["in_flight", "total_ns", "self_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "histogram"] {
            assert!(document["methods"][0].get(field).is_some_and(Value::is_null), "{field}");
        }
        assert_eq!(document["methods"][0]["calls"], 1000);
    }

    /// Check that a demoted function says so, and keeps the times of the calls that were timed.
    #[test]
    fn demoted_functions_say_so() {
        let document: Value = serde_json::from_str(&text(&[samples::demoted()])).unwrap();
        let target = &document["targets"][0];
        let functions = serde_json::json!({"timed": 3, "sampled": 0, "counted": 1, "returned": 0, "off": 0, "detached": 1, "demoted": 2});
        assert_eq!((&target["functions"], &target["cost_ns"]), (&functions, &serde_json::json!(48_000_000)));
        let fields = |row: usize| {
            ["class", "state", "wanted", "counted", "unwatched_ns", "calls", "total_ns", "p50_ns"]
                .map(|field| document["methods"][row][field].clone())
        };
        let expected = serde_json::json!(["a.Hot", "detached", "timed", 0, 1_500_000_000, 500_000, 100_000_000, 191]);
        assert_eq!(serde_json::json!(fields(0)), expected);
        let expected = serde_json::json!(["a.Warm", "counted", "timed", 39_000, 0, 40_000, 200_000, 191]);
        assert_eq!(serde_json::json!(fields(1)), expected);
    }

    /// Check that what was measured of some calls and what is estimated for all are two fields, and that methods stand in
    /// the order of the latter.
    #[test]
    fn some_calls_timed() {
        let document: Value = serde_json::from_str(&text(&[samples::of_both_tiers()])).unwrap();
        let fields = |row: usize| {
            ["class", "calls", "counted", "total_ns", "estimated_total_ns"]
                .map(|field| document["methods"][row][field].clone())
        };
        assert_eq!(serde_json::json!(fields(1)), serde_json::json!(["a.Parent", 100, 0, 9_000_000, null]));
        let expected = serde_json::json!(["a.Sampled", 17_000, 16_000, 80_000, 1_380_000]);
        assert_eq!(serde_json::json!(fields(2)), expected);
    }

    /// Check that at most five skipped methods are named, and all are counted.
    #[test]
    fn names_some_skipped_methods() {
        let mut snapshot = samples::eventful();
        snapshot.skipped = vec![snapshot.skipped[0].clone(); 7].into();
        let document: Value = serde_json::from_str(&text(&[snapshot])).unwrap();
        assert_eq!(document["skipped"][0]["count"], 7);
        assert_eq!(document["skipped"][0]["examples"].as_array().unwrap().len(), 5);
    }
}
