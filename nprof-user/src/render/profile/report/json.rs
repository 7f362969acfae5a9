//! The report for programs: one JSON document. Times are whole nanoseconds, names are as in the target, frames stand
//! innermost first.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::super::super::bytes_per_call;
use super::super::super::collected::Collected;
use super::super::super::groups::By;
use super::super::super::json::{line, nanoseconds};
use super::super::super::per_call::PerCall;
use super::super::super::sum::{Name, Sum};
use super::super::super::tree::ShownTrees;
use super::super::callers::{self, Caller, Callers};
use super::super::functions::{self, Open};
use super::super::order::in_order;
use super::Extent;
use crate::model::{About, Column, FunctionTotals, Profile, ProfileFrame, ProfileMode, Quality, Unseen, Weight};

/// The version of the document's form.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    about: Recorded<'a>,
    /// What functions are added up by, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<BTreeMap<&'static str, Value>>>,
    functions: Vec<Function<'a>>,
    /// Of a recording without functions.
    stacks: Vec<Stack<'a>>,
    quality: Measured<'a>,
    /// Only where there are some: the slowest invocations, and what all have in common, as `nprof tree` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    trees: Option<ShownTrees<'a>>,
}

/// What was recorded, where and how.
#[derive(Serialize)]
struct Recorded<'a> {
    nprof: &'a str,
    started: String,
    elapsed_ns: u64,
    mode: ProfileMode,
    pid: u32,
    main: &'a str,
    jvm: &'a str,
    kernel: &'a str,
    host: &'a str,
    patterns: &'a [String],
    threads: &'a [String],
    max_stacks: u32,
    period_ns: Option<u64>,
}

/// How good it is; what did not happen is not listed.
#[derive(Serialize)]
struct Measured<'a> {
    stacks: u64,
    complete: u64,
    cut: BTreeMap<&'a str, u64>,
    guessed: u64,
    lost: BTreeMap<&'a str, u64>,
    losses: BTreeMap<&'a str, u64>,
    skipped: BTreeMap<&'a str, u64>,
    open_unsplit: u64,
    narrowed: bool,
}

#[derive(Serialize)]
struct Function<'a> {
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    further_methods: u32,
    library: &'a str,
    calls: u64,
    untimed: u64,
    counted: u64,
    in_flight: u64,
    open_ns: u64,
    traced_after_ns: u64,
    unwatched_ns: u64,
    sampled: bool,
    only_counted: bool,
    single_stepped: bool,
    total_ns: u64,
    self_ns: u64,
    self_estimated: bool,
    off_cpu_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
    max_ns: u64,
    probe_ns: u64,
    probe_error_ns: u64,
    estimated_calls: Option<u64>,
    estimate_error: Option<f64>,
    estimated_total_ns: Option<u64>,
    estimate_error_ns: Option<u64>,
    /// Only where something was collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<Option<Collected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collected_total: Option<Option<Collected>>,
    /// Only where bytes were.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_call: Option<bytes_per_call::Columns<'a>>,
    stacks: Vec<Stack<'a>>,
}

#[derive(Serialize)]
struct Stack<'a> {
    self_ns: u64,
    samples: u64,
    frames: &'a [&'a ProfileFrame],
}

/// Writes what [`super::table`] says as one document on one line.
///
/// # Errors
/// Those of `out`.
pub fn json(profile: &Profile, extent: Extent, mut out: &mut dyn Write) -> io::Result<()> {
    let top = extent.stacks;
    let weighed = callers::weighed(profile, Weight::Time, true);
    let callers = Callers::of(&weighed);
    let all = callers.all();
    let open = Open::of(profile, Weight::Time);
    let without_functions = if profile.about.mode == ProfileMode::OnCpu { top } else { 0 };
    let document = Document {
        schema: SCHEMA,
        about: recorded(&profile.about),
        groups: extent.by.map(|by| groups(profile, by, extent)),
        functions: in_order(profile, extent.order)
            .into_iter()
            .take(if extent.by.is_some() { usize::MAX } else { extent.top.unwrap_or(usize::MAX) })
            .map(|f| function(profile, f, (&callers, &open), top))
            .collect(),
        stacks: all.into_iter().take(without_functions).map(stack).collect(),
        quality: measured(&profile.quality),
        trees: profile.trees.as_ref().map(|trees| ShownTrees::new(&profile.about, trees, extent.trees)),
    };
    line(&document, &mut out)
}

/// The groups with the words of the table: `{"thread": "main", "calls": 1, …}`.
fn groups(profile: &Profile, by: By, extent: Extent) -> Vec<BTreeMap<&'static str, Value>> {
    let tells_work = Weight::default_of(&profile.about) == Weight::OnCpu;
    let group = |(name, sum): &(Name<'_>, Sum)| {
        let on_cpu_ns = if tells_work { Value::from(sum.ran.value) } else { Value::Null };
        BTreeMap::from([
            (by.word(), Value::from(name.name)),
            ("functions", sum.functions.into()),
            ("calls", sum.calls.value.into()),
            ("on_cpu_ns", on_cpu_ns),
            ("self_ns", sum.own.value.into()),
        ])
    };
    let all = super::groups::groups(profile, by, extent.order).groups;
    all.iter().take(extent.top.unwrap_or(all.len())).map(group).collect()
}

fn function<'a>(
    profile: &'a Profile,
    function: &'a FunctionTotals,
    (callers, open): (&'a Callers<'a>, &Open),
    top: usize,
) -> Function<'a> {
    let collected = |number| Collected::of(profile.about.collectors, function.consumed.as_deref(), number);
    Function {
        class: &function.class,
        method: &function.method,
        signature: &function.signature,
        further_methods: function.others,
        library: &function.library,
        calls: function.calls,
        untimed: function.untimed,
        counted: function.counted,
        in_flight: function.in_flight,
        open_ns: open.ns(function),
        traced_after_ns: function.traced_after_ns,
        unwatched_ns: function.unwatched_ns,
        sampled: function.sampled,
        only_counted: function.only_counted,
        single_stepped: function.single_stepped,
        total_ns: function.total_ns,
        self_ns: function.self_ns,
        self_estimated: function.self_estimated,
        off_cpu_ns: profile.about.off_cpu.then_some(function.off_cpu_ns),
        on_cpu_ns: profile.about.off_cpu.then(|| functions::placed_ns(function, Weight::OnCpu)),
        max_ns: function.max_ns,
        probe_ns: function.probe_ns,
        probe_error_ns: function.probe_error_ns,
        estimated_calls: function.unseen.map(|_unseen| function.all_calls()),
        estimate_error: function.estimate_error(),
        estimated_total_ns: function.unseen.filter(Unseen::has_time).map(|_unseen| functions::all_ns(function)),
        estimate_error_ns: function.estimate_error_ns(),
        collected: collected(Column::own),
        collected_total: collected(Column::total),
        bytes_per_call: bytes_per_call::Columns::of(profile.about.collectors, PerCall::of_recorded(function)),
        stacks: callers.function(function).iter().take(top).map(stack).collect(),
    }
}

fn stack<'a>(caller: &'a Caller<'a>) -> Stack<'a> {
    Stack { self_ns: caller.time_ns, samples: caller.samples, frames: &caller.frames }
}

fn recorded(about: &About) -> Recorded<'_> {
    Recorded {
        nprof: &about.nprof,
        started: about.started.to_string(),
        elapsed_ns: nanoseconds(about.elapsed),
        mode: about.mode,
        pid: about.pid,
        main: &about.main,
        jvm: &about.vm,
        kernel: &about.kernel,
        host: &about.host,
        patterns: &about.patterns,
        threads: &about.threads,
        max_stacks: about.max_stacks,
        period_ns: about.period_ns,
    }
}

fn measured(quality: &Quality) -> Measured<'_> {
    Measured {
        stacks: quality.stacks,
        complete: quality.complete,
        cut: counts(&quality.cut),
        guessed: quality.guessed,
        lost: counts(&quality.lost),
        losses: counts(&quality.losses),
        skipped: counts(&quality.skipped),
        open_unsplit: quality.open_unsplit,
        narrowed: quality.narrowed,
    }
}

fn counts(counts: &[(String, u64)]) -> BTreeMap<&str, u64> {
    counts.iter().map(|(reason, n)| (reason.as_str(), *n)).collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Consumed;

    use super::super::super::recorded;
    use super::{Extent, json};
    use crate::model::{Collectors, Profile};

    /// Check the document for programs: whole numbers, and frames with all that is known.
    #[test]
    fn document() {
        let mut out = Vec::new();
        json(&recorded::profile(), Extent { stacks: 1, ..Extent::default() }, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let read = &document["functions"][0];
        assert_eq!(
            (&read["method"], &read["calls"], &read["total_ns"]),
            (&"read".into(), &20.into(), &3_000_000.into())
        );
        assert_eq!(read["stacks"].as_array().unwrap().len(), 1);
        assert_eq!(read["stacks"][0]["self_ns"], 1_500_000);
        assert_eq!(read["stacks"][0]["frames"][1]["line"], 2);
        assert_eq!((&document["schema"], &document["about"]["elapsed_ns"]), (&1.into(), &10_000_000_000_u64.into()));
    }

    /// Check that what was collected is there under its names, `null` where it is not known, and nothing where nothing was.
    #[test]
    fn collected() {
        let mut profile = recorded::profile();
        let document = |profile: &Profile| -> serde_json::Value {
            let mut out = Vec::new();
            json(profile, Extent::default(), &mut out).unwrap();
            serde_json::from_slice(&out).unwrap()
        };
        assert_eq!(document(&profile)["functions"][0].get("collected"), None);
        profile.about.collectors = Collectors::named(&["faults"]).unwrap();
        profile.functions[1].consumed =
            Some(Box::new(Consumed { own: [2; nprof_common::COUNTERS], total: [3; nprof_common::COUNTERS] }));
        let functions = document(&profile)["functions"].clone();
        assert_eq!(functions[0]["collected"], serde_json::json!({ "faults": 4, "major_faults": 2 }));
        assert_eq!(functions[0]["collected_total"], serde_json::json!({ "faults": 6, "major_faults": 3 }));
        assert_eq!(functions[1]["collected"], serde_json::Value::Null);
        assert_eq!(functions[0].get("bytes_per_call"), None);
    }

    /// Check that how many bytes each call has is there in the words of `trace`, and `null` where it is not known.
    #[test]
    fn bytes_per_call() {
        let mut profile = recorded::profile();
        profile.about.collectors = Collectors::named(&["io"]).unwrap();
        profile.functions[1].consumed = Some(Box::default());
        profile.functions[1].bytes_per_call = Some(Vec::new());
        let mut out = Vec::new();
        json(&profile, Extent::default(), &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let nothing = serde_json::json!({ "schema": 2, "buckets": [] });
        let none = serde_json::json!({ "p50": 0, "p90": 0, "p99": 0, "max": 0, "none": 19, "histogram": nothing });
        let [read, copy] = [0, 1].map(|place| &document["functions"][place]["bytes_per_call"]);
        assert_eq!(*read, serde_json::json!({ "read_bytes": none, "written_bytes": none }));
        assert_eq!(copy["read_bytes"], serde_json::Value::Null);
    }
}
