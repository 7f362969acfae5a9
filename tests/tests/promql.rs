//! What the real Prometheus makes of `nprof serve` is what a trace of the same calls says.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use nprof_tests::exposition::{Labels, whole};
use nprof_tests::jar::Jar;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::prometheus::{Credentials, Point, Prometheus, Scraping};
use nprof_tests::report::{HistogramRow, Report};
use nprof_tests::require::{traced_on_every_jdk, with_prometheus};
use nprof_tests::serve::{Serve, UNGOVERNED};
use tempfile::TempDir;

use crate::TARGETS;
use crate::serve::{CALLS, DURATION, NAP_NS, calls_by_method, users};

/// How far two results of floating-point arithmetic on the same whole numbers may be apart.
const ROUNDING: f64 = 1e-9;

/// Class and method.
type Method = (String, String);

fn method_of(labels: &Labels) -> Result<Method> {
    let label = |name| labels.get(name).cloned().with_context(|| format!("no {name} in {labels:?}"));
    Ok((label("class")?, label("method")?))
}

fn by_method(points: Vec<Point>) -> Result<BTreeMap<Method, f64>> {
    points.into_iter().map(|(labels, value)| Ok((method_of(&labels)?, value))).collect()
}

/// Runs `test` with a JVM, a service and a Prometheus that scrapes it, on every JDK.
fn scraped(name: &str, test: impl Fn(&str, &mut RemoteProcess, &Prometheus) -> Result<()>) -> Result<()> {
    with_prometheus(|| {
        traced_on_every_jdk(|jdk| {
            let jar = Jar::new(jdk, name)?;
            let mut target = jar.start()?;
            let serve = Serve::start(&[&UNGOVERNED[..], &["--jvm", jar.name(), TARGETS]].concat())?;
            let prometheus = Prometheus::start(&Scraping::plain(serve.address()))?;
            test(jar.name(), &mut target, &prometheus)
        })
    })
}

/// Traces what `act` has the target do.
fn traced(target: &mut RemoteProcess, act: impl FnOnce(&mut RemoteProcess) -> Result<()>) -> Result<Report> {
    let trace = Trace::start(target.pid(), &[TARGETS])?;
    act(target)?;
    let report = trace.finish()?;
    report.must_be_lossless()?;
    Ok(report)
}

/// Check that stored counters are the counts of the trace, and that rates are these over the time.
#[test]
fn counts_and_rates() -> Result<()> {
    scraped("rates", |jvm, target, prometheus| {
        // As many before as after: a counter that was small would have its rate extrapolated to less than the window.
        target.calls("all", 2, 100)?;
        prometheus.wait_until_scraped(2)?;
        let series = format!("{CALLS}{{jvm=\"{jvm}\"}}");
        let before = by_method(prometheus.query(&series)?)?;
        let report = traced(target, |target| target.calls("all", 2, 100).map(drop))?;
        prometheus.wait_until_scraped(2)?;
        let after = by_method(prometheus.query(&series)?)?;
        let calls = calls_by_method(&report);
        ensure!(calls.len() > 10, "too few to prove anything: {calls:?}");
        for (method, calls) in &calls {
            let value = |values: &BTreeMap<_, _>| values.get(method).copied().with_context(|| format!("no {method:?}"));
            let counted = whole(value(&after)?)? - whole(value(&before)?)?;
            ensure!(counted == *calls, "{method:?}: {calls} in the trace, {counted} in Prometheus");
        }
        rates_are(prometheus, &series, &calls)
    })
}

/// Checks the rates of series that were scraped together. Prometheus extrapolates from the first and the last sample
/// to the ends of the window; how far depends on their times alone, so it is one factor for all series.
fn rates_are(prometheus: &Prometheus, series: &str, calls: &BTreeMap<Method, u64>) -> Result<()> {
    let rates = by_method(prometheus.query(&format!("rate({series}[1m])"))?)?;
    let mut factors = Vec::new();
    for (method, calls) in calls {
        let rate = rates.get(method).with_context(|| format!("no rate of {method:?}"))?;
        // Counts this small are exact in floating point.
        factors.push(rate * 60.0 / *calls as f64);
    }
    let factor = *factors.first().context("a method")?;
    ensure!((1.0..3.0).contains(&factor), "rates are {factor} times the calls in a window: {rates:?}");
    let same = factors.iter().all(|other| (other / factor - 1.0).abs() < ROUNDING);
    ensure!(same, "rates and calls are not in proportion: {factors:?}");
    Ok(())
}

/// Check that Prometheus computes from the stored buckets the quantiles that follow from those of the trace.
#[test]
fn quantiles() -> Result<()> {
    scraped("quantiles", |jvm, target, prometheus| {
        // In the middle of three buckets.
        let naps = [(30, NAP_NS / 4), (10, NAP_NS), (3, NAP_NS * 2)];
        let report = traced(target, |target| {
            naps.iter().try_for_each(|(calls, length)| target.self_timed("sleep", *calls, *length).map(drop))
        })?;
        prometheus.wait_until_scraped(2)?;
        let labels = format!("{{jvm=\"{jvm}\",class=\"targets.Timed\",method=\"sleep\"}}");
        let row = report.methods.iter().find(|row| row.method == "sleep").context("the row of the naps")?;
        let histogram = row.histogram.as_ref().context("their histogram")?;
        let bounds = stored_bounds(prometheus, &labels, histogram)?;
        for share in [0.1, 0.5, 0.9, 0.99] {
            let query = format!("histogram_quantile({share}, sum by (le) ({DURATION}_bucket{labels}))");
            let found = prometheus.query(&query)?;
            let [(_, seconds)] = found[..] else { bail!("{query}: {found:?}") };
            let expected = quantile(share, &bounds, histogram)?;
            ensure!((seconds / expected - 1.0).abs() < ROUNDING, "{share}: {seconds} s, {expected} s by the trace");
        }
        Ok(())
    })
}

/// The bounds of the buckets that Prometheus has stored, in rising order, each of which must have the trace's calls.
fn stored_bounds(prometheus: &Prometheus, labels: &str, histogram: &HistogramRow) -> Result<Vec<f64>> {
    let mut bounds = Vec::new();
    for (labels, calls) in prometheus.query(&format!("{DURATION}_bucket{labels}"))? {
        let bound: f64 = labels.get("le").context("a bound")?.parse()?;
        let expected = histogram.calls_within(bound * 1e9)?;
        ensure!(whole(calls)? == expected, "{calls} calls up to {bound} s, {expected} in the trace: {histogram:?}");
        bounds.push(bound);
    }
    bounds.sort_by(f64::total_cmp);
    ensure!(bounds.len() > 4, "hardly any buckets: {bounds:?}");
    Ok(bounds)
}

/// The quantile in seconds as Prometheus defines it: the calls of a bucket lie evenly between its bounds.
fn quantile(share: f64, bounds: &[f64], histogram: &HistogramRow) -> Result<f64> {
    let within = |bound: f64| histogram.calls_within(bound * 1e9).map(|calls| calls as f64);
    let rank = share * within(f64::INFINITY)?;
    let (mut lower, mut before) = (0.0, 0.0);
    for &bound in bounds {
        let calls = within(bound)?;
        if calls >= rank && bound.is_finite() {
            return Ok(lower + (bound - lower) * (rank - before) / (calls - before));
        }
        (lower, before) = (bound, calls);
    }
    bail!("the quantile lies above all bounds: {bounds:?}")
}

/// Check that Prometheus gets in with the password, and is seen to stay outside without.
#[test]
fn with_a_password() -> Result<()> {
    with_prometheus(|| {
        traced_on_every_jdk(|jdk| {
            let jar = Jar::new(jdk, "password")?;
            let _target = jar.start()?;
            let directory = TempDir::new()?;
            let users = users(directory.path())?;
            let users = users.to_str().context("a path in UTF-8")?;
            let serve = Serve::start(&["--basic-auth-file", users, "--jvm", jar.name(), TARGETS])?;
            let known = Credentials::Basic("prom".into(), "s3cret".into());
            for (credentials, health) in [(known, "up"), (Credentials::None, "down")] {
                let scraping = Scraping { credentials, ..Scraping::plain(serve.address()) };
                let prometheus = Prometheus::start(&scraping)?;
                prometheus.wait_until_scraped(1)?;
                let targets = prometheus.targets()?;
                ensure!(targets.len() == 1 && targets[0].health == health, "not {health}: {targets:?}");
            }
            Ok(())
        })
    })
}
