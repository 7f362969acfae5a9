//! What all invocations together have taken, as the last line of `tree` and in recordings.

use std::io::{self, Write};

use serde::Serialize;

use crate::aggregate::quantile::quantile;
use crate::model::{Difference, EntrySummary, Histogram, InvocationGroup, Losses, PathSum, Unfinished};
use crate::render::json::{SCHEMA, as_map, line, nanoseconds};
use crate::render::tree::{TreeContext, TreeRun};

/// The scale of the histogram: 2^2 buckets per octave, as in `trace`.
const HISTOGRAM_SCHEMA: u32 = 2;

/// Writes the last line.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_summary_json(context: &TreeContext, run: &TreeRun<'_>, w: &mut impl Write) -> io::Result<()> {
    line(&SummaryLine { schema: SCHEMA, summary: Summary::of(context, run) }, w)
}

#[derive(Serialize)]
struct SummaryLine<'a> {
    schema: u32,
    summary: Summary<'a>,
}

#[derive(Serialize)]
pub(in crate::render::tree) struct Summary<'a> {
    nprof: &'static str,
    started: String,
    elapsed_ns: u64,
    pid: u32,
    main: &'a str,
    shown: u64,
    min_ns: Option<u64>,
    entries: Vec<Entry>,
    unfinished: UnfinishedOf,
    paths_left_out: u64,
    silenced: Vec<String>,
    #[serde(serialize_with = "as_map")]
    losses: &'a Losses,
}

impl<'a> Summary<'a> {
    pub(in crate::render::tree) fn of(context: &TreeContext, run: &TreeRun<'a>) -> Self {
        Self {
            nprof: env!("CARGO_PKG_VERSION"),
            started: context.clock.wall.to_string(),
            elapsed_ns: nanoseconds(run.elapsed),
            pid: run.pid,
            main: run.main,
            shown: run.shown,
            min_ns: run.min_ns,
            entries: run.summary.entries.iter().map(|entry| Entry::of(context, entry)).collect(),
            unfinished: run.summary.unfinished.into(),
            paths_left_out: run.summary.paths_left_out,
            silenced: run.silenced.iter().map(|&method| context.full(method)).collect(),
            losses: run.losses,
        }
    }
}

#[derive(Serialize)]
struct UnfinishedOf {
    begun_before: u64,
    still_inside: u64,
    died_inside: u64,
    lost_beginnings: u64,
    crowded: u64,
    unknown_events: u64,
}

impl From<Unfinished> for UnfinishedOf {
    fn from(of: Unfinished) -> Self {
        let Unfinished { begun_before, still_inside, died_inside, lost_beginnings, crowded, unknown } = of;
        Self { begun_before, still_inside, died_inside, lost_beginnings, crowded, unknown_events: unknown }
    }
}

#[derive(Serialize)]
struct Entry {
    entry: String,
    invocations: u64,
    incomplete: u64,
    failed: u64,
    without_end: u64,
    total_ns: u64,
    off_cpu_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    slowest: Option<u64>,
    histogram: Buckets,
    difference: Option<DifferenceOf>,
}

#[derive(Serialize)]
struct Buckets {
    schema: u32,
    buckets: Vec<(i32, u64)>,
}

impl From<&Histogram> for Buckets {
    fn from(of: &Histogram) -> Self {
        Self { schema: HISTOGRAM_SCHEMA, buckets: of.buckets.clone() }
    }
}

impl Entry {
    fn of(context: &TreeContext, entry: &EntrySummary) -> Self {
        let max_ns = entry.slowest.map(|slowest| slowest.total_ns);
        let of = |q| quantile(&entry.histogram, q, max_ns.unwrap_or(0));
        Self {
            entry: context.full(entry.method),
            invocations: entry.invocations,
            incomplete: entry.incomplete,
            failed: entry.failed,
            without_end: entry.endless,
            total_ns: entry.total_ns,
            off_cpu_ns: entry.off_ns,
            p50_ns: of(0.5),
            p90_ns: of(0.9),
            p99_ns: of(0.99),
            max_ns,
            slowest: entry.slowest.map(|slowest| slowest.number),
            histogram: (&entry.histogram).into(),
            difference: entry.difference.as_ref().map(|difference| DifferenceOf::of(context, difference)),
        }
    }
}

#[derive(Serialize)]
struct DifferenceOf {
    slow: Group,
    quick: Group,
    paths: Vec<Path>,
}

#[derive(Serialize)]
struct Group {
    invocations: u64,
    total_ns: u64,
    off_cpu_ns: Option<u64>,
    min_ns: u64,
    max_ns: u64,
}

impl From<InvocationGroup> for Group {
    fn from(of: InvocationGroup) -> Self {
        let InvocationGroup { invocations, total_ns, min_ns, max_ns, .. } = of;
        Self { invocations, total_ns, off_cpu_ns: of.known_off_ns(), min_ns, max_ns }
    }
}

#[derive(Serialize)]
struct Path {
    path: Vec<String>,
    slow: Sum,
    quick: Sum,
}

#[derive(Serialize)]
struct Sum {
    calls: u64,
    self_ns: u64,
    self_off_cpu_ns: Option<u64>,
}

impl Sum {
    fn of(of: PathSum, group: InvocationGroup) -> Self {
        let self_off_cpu_ns = group.known_off_ns().map(|_| of.off_ns);
        Self { calls: of.calls, self_ns: of.self_ns, self_off_cpu_ns }
    }
}

impl DifferenceOf {
    fn of(context: &TreeContext, of: &Difference) -> Self {
        let paths = of.paths.iter().map(|path| Path {
            path: path.path.iter().map(|method| context.full(*method)).collect(),
            slow: Sum::of(path.these, of.these),
            quick: Sum::of(path.others, of.others),
        });
        Self { slow: of.these.into(), quick: of.others.into(), paths: paths.collect() }
    }
}
