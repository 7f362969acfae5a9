//! `nprof serve` through its endpoint. What changes while it runs is in `switch`, what Prometheus makes of it in `promql`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::exposition::{Exposition, Sample};
use nprof_tests::jar::Jar;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::prometheus::check_metrics;
use nprof_tests::report::Report;
use nprof_tests::require::{traced_on_every_jdk, with_prometheus};
use nprof_tests::serve::{Endpoint, OPEN_METRICS, Serve, TEXT, UNGOVERNED};
use tempfile::TempDir;

use crate::TARGETS;

/// Counts calls.
pub(crate) const CALLS: &str = "nprof_native_calls_total";
/// Times them.
pub(crate) const DURATION: &str = "nprof_native_call_duration_seconds";
/// The shape `static`, the native that tests of the switch use.
pub(crate) const ADD: [(&str, &str); 2] = [("class", "targets.Plain"), ("method", "add")];
/// A call of a length in the middle of a bucket, so that two tracers, which differ by a microsecond, agree on it.
pub(crate) const NAP_NS: u64 = 10_400_000;

/// Starts a service that traces all targets.
pub(crate) fn serve() -> Result<Serve> {
    Serve::start(&[&UNGOVERNED[..], &[TARGETS]].concat())
}

/// The labels of a method of a JVM.
pub(crate) fn of<'a>(jvm: &'a str, method: &[(&'a str, &'a str); 2]) -> [(&'a str, &'a str); 3] {
    [("jvm", jvm), method[0], method[1]]
}

/// Calls by class and method, as metrics know them: overloads are one.
pub(crate) fn calls_by_method(report: &Report) -> BTreeMap<(String, String), u64> {
    let mut calls = BTreeMap::new();
    for row in &report.methods {
        *calls.entry((row.class.clone(), row.method.clone())).or_default() += row.calls;
    }
    calls
}

/// Makes one call after the other until the service counts them: a JVM that was starting when it was found has its
/// natives picked up within a second.
pub(crate) fn until_counted(serve: &Serve, jvm: &str, target: &mut RemoteProcess) -> Result<()> {
    let labels = of(jvm, &ADD);
    let before = serve.samples()?.count(CALLS, &labels)?;
    let what = format!("the calls of {jvm}");
    serve.scrape_until(&what, |samples| {
        target.calls("static", 1, 1)?;
        Ok(samples.count(CALLS, &labels)? > before)
    })?;
    Ok(())
}

/// The count once every call that was made is in it: calls of another method, made later, are seen.
pub(crate) fn settled(serve: &Serve, jvm: &str, target: &mut RemoteProcess) -> Result<u64> {
    let later = of(jvm, &[("class", "targets.Plain"), ("method", "twice")]);
    let before = serve.samples()?.count(CALLS, &later)?;
    target.calls("instance", 1, 1)?;
    let samples = serve.scrape_until("a later call", |samples| Ok(samples.count(CALLS, &later)? > before))?;
    samples.count(CALLS, &of(jvm, &ADD))
}

/// Check that a scrape says what a trace of the same calls says: calls exactly, and times as far as two tracers can
/// agree.
#[test]
fn equals_a_trace() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "equals")?;
        let mut target = jar.start()?;
        let serve = serve()?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 200)?;
        let naps = target.self_timed("sleep", 40, NAP_NS)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        report.must_be_lossless()?;
        let slept = of(jar.name(), &[("class", "targets.Timed"), ("method", "sleep")]);
        let samples = serve.scrape_until("the naps", |samples| Ok(samples.count(CALLS, &slept)? == naps.calls))?;
        for ((class, method), calls) in calls_by_method(&report) {
            let labels = of(jar.name(), &[("class", &class), ("method", &method)]);
            let (served, timed) =
                (samples.count(CALLS, &labels)?, samples.count(&format!("{DURATION}_count"), &labels)?);
            ensure!((served, timed) == (calls, calls), "{class}::{method}: {calls}, not {served} and {timed}");
        }
        times_agree(&samples, &slept, &report, naps.total_ns)
    })
}

/// Checks buckets and sum of the naps, whose own measure is `slept_ns`.
fn times_agree(samples: &Exposition, labels: &[(&str, &str)], report: &Report, slept_ns: u64) -> Result<()> {
    let row = report.methods.iter().find(|row| row.method == "sleep").context("the row of the naps")?;
    let histogram = row.histogram.as_ref().context("their histogram")?;
    let buckets = samples.buckets(DURATION, labels)?;
    ensure!(buckets.last().is_some_and(|(bound, _)| bound.is_infinite()), "no bucket for all: {buckets:?}");
    for (bound, calls) in buckets {
        let traced = histogram.calls_within(bound * 1e9)?;
        ensure!(traced == calls, "{calls} calls up to {bound} s, {traced} in the trace: {histogram:?}");
    }
    let sum_ns = samples.value(&format!("{DURATION}_sum"), labels)?.context("a sum")? * 1e9;
    // Both measure from outside of the native what it measures itself. Metrics have the probes' part in them.
    let traced_ns = row.times()?.total_ns + row.probe_ns.context("what was taken off")?;
    for outside in [sum_ns, traced_ns as f64] {
        let share = outside / slept_ns as f64;
        ensure!((1.0..1.01).contains(&share), "{sum_ns} and {traced_ns} ns; they slept {slept_ns} ns");
    }
    Ok(())
}

/// Check that clients that scrape at the same time all get whole, rising counts while calls are made.
#[test]
fn several_scrapes_at_once() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "several")?;
        let mut target = jar.start()?;
        let serve = serve()?;
        let endpoint: &Endpoint = &serve;
        let called = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| rising(endpoint, jar.name(), 20))).collect();
            let called = target.calls("static", 2, 20_000)?;
            clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))?;
            Ok::<_, anyhow::Error>(called)
        })?;
        let labels = of(jar.name(), &ADD);
        let made: u64 = called.iter().map(|called| called.made).sum();
        serve.scrape_until("all calls", |samples| Ok(samples.count(CALLS, &labels)? >= made))?;
        let counted = settled(&serve, jar.name(), &mut target)?;
        ensure!(counted == made, "{counted} of {made}");
        Ok(())
    })
}

/// Scrapes some times and checks that nothing falls.
fn rising(serve: &Endpoint, jvm: &str, scrapes: u32) -> Result<()> {
    let mut before = Exposition::default();
    for _ in 0..scrapes {
        let now = serve.samples()?;
        must_not_fall(&before, &now, jvm)?;
        before = now;
    }
    Ok(())
}

/// Checks that no counter of a JVM has fallen or gone between two scrapes.
fn must_not_fall(before: &Exposition, now: &Exposition, jvm: &str) -> Result<()> {
    let counts = |sample: &&Sample| {
        ["_total", "_count", "_sum", "_bucket"].iter().any(|suffix| sample.name.ends_with(suffix))
            && sample.labels.get("jvm").is_some_and(|own| own == jvm)
    };
    let now: BTreeMap<_, _> =
        now.samples.iter().filter(counts).map(|sample| ((&sample.name, &sample.labels), sample.value)).collect();
    for sample in before.samples.iter().filter(counts) {
        let later = now.get(&(&sample.name, &sample.labels)).with_context(|| format!("gone: {sample:?}"))?;
        ensure!(*later >= sample.value, "fell to {later}: {sample:?}");
    }
    Ok(())
}

/// Check that counters add up and never fall while JVMs of one name come and go.
#[test]
fn counters_never_fall() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "come-and-go")?;
        let serve = serve()?;
        let labels = of(jar.name(), &ADD);
        let mut staying = jar.start()?;
        until_counted(&serve, jar.name(), &mut staying)?;
        let mut before = serve.samples()?;
        for _ in 0..5 {
            let mut passing = jar.start()?;
            until_counted(&serve, jar.name(), &mut passing)?;
            let counted = settled(&serve, jar.name(), &mut staying)?;
            passing.calls("static", 2, 100)?;
            staying.calls("static", 1, 50)?;
            let now =
                serve.scrape_until("their calls", |samples| Ok(samples.count(CALLS, &labels)? >= counted + 250))?;
            must_not_fall(&before, &now, jar.name())?;
            passing.kill()?;
            ensure!(settled(&serve, jar.name(), &mut staying)? == counted + 250, "the calls do not add up");
            before = serve.samples()?;
            must_not_fall(&now, &before, jar.name())?;
        }
        staying.kill()?;
        serve.scrape_until("the end of the last", |samples| {
            must_not_fall(&before, samples, jar.name())?;
            Ok(samples.with("nprof_methods", &[("jvm", jar.name())]).all(|sample| sample.value == 0.0))
        })?;
        Ok(())
    })
}

/// Check the pages beside the metrics.
#[test]
fn pages() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let _target = RemoteProcess::shapes(jdk)?;
        let serve = serve()?;
        for path in ["/-/healthy", "/-/ready"] {
            let answer = serve.get(path, &[])?;
            ensure!(answer.status == 200, "{path}: {answer:?}");
        }
        let index = serve.get("/", &[])?;
        ensure!(index.status == 200 && index.content_type.starts_with("text/html"), "{index:?}");
        for link in ["/metrics", "/-/healthy", "/-/ready"] {
            ensure!(index.body.contains(&format!("href=\"{link}\"")), "no link to {link}: {}", index.body);
        }
        let missing = serve.get("/nothing", &[])?;
        ensure!(missing.status == 404, "{missing:?}");
        ensure!(serve.finish()?.success(), "SIGTERM is no failure");
        Ok(())
    })
}

/// Check that each client gets the format that it asks for, and that `promtool` has nothing to say against it.
#[test]
fn formats() -> Result<()> {
    with_prometheus(|| {
        traced_on_every_jdk(|jdk| {
            let mut target = RemoteProcess::shapes(jdk)?;
            let serve = serve()?;
            target.calls("all", 1, 10)?;
            let text = serve.get("/metrics", &[("Accept", TEXT)])?;
            ensure!(text.content_type.starts_with("text/plain"), "{}", text.content_type);
            check_metrics(&text.body)?;
            let open = serve.get("/metrics", &[("Accept", OPEN_METRICS)])?;
            ensure!(open.content_type.starts_with("application/openmetrics-text"), "{}", open.content_type);
            ensure!(open.body.ends_with("# EOF\n"), "no end: {}", open.body);
            ensure!(open.body.contains(&format!("# UNIT {DURATION} seconds\n")), "no unit");
            let (text, open) = (Exposition::parse(&text.body)?, Exposition::parse(&open.body)?);
            ensure!(open.types.get(DURATION).is_some_and(|kind| kind == "histogram"), "{:?}", open.types);
            // OpenMetrics names the family of a counter without its suffix.
            ensure!(
                text.types.contains_key(CALLS) && open.types.contains_key("nprof_native_calls"),
                "{:?}",
                open.types
            );
            ensure!(text.count("nprof_build_info", &[])? == 1, "no build info");
            Ok(())
        })
    })
}

/// Check that only who knows a password gets anything.
#[test]
fn passwords() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let _target = RemoteProcess::shapes(jdk)?;
        let directory = TempDir::new()?;
        let users = users(directory.path())?;
        let users = users.to_str().context("a path in UTF-8")?;
        let serve = Serve::start(&["--basic-auth-file", users, TARGETS])?;
        // Without credentials, with `prom:wrong`, and with `prom:s3cret`.
        let attempts = [None, Some("cHJvbTp3cm9uZw=="), Some("cHJvbTpzM2NyZXQ=")];
        for (credentials, status) in attempts.into_iter().zip([401, 401, 200]) {
            let header = credentials.map(|credentials| format!("Basic {credentials}"));
            let headers: Vec<_> = header.iter().map(|value| ("Authorization", value.as_str())).collect();
            let answer = serve.get("/metrics", &headers)?;
            ensure!(answer.status == status, "{credentials:?}: {answer:?}");
            ensure!(status == 200 || !answer.body.contains("nprof_"), "told a stranger: {}", answer.body);
        }
        Ok(())
    })
}

/// Writes the file of the one user, `prom` with the password `s3cret`, hashed with bcrypt.
pub(crate) fn users(directory: &Path) -> Result<std::path::PathBuf> {
    let path = directory.join("users");
    std::fs::write(&path, "prom:$2b$04$S6AhWPkotfUuEs3dUJ7fwegYv19rdDhfToND7pMeVUf2FkxAgKTa.\n")?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    Ok(path)
}

/// Check that nothing is left of a service that was killed.
#[test]
fn killed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let serve = serve()?;
        target.calls("all", 2, 100)?;
        let held = BpfObjects::held_by(serve.pid())?;
        ensure!(!held.links.is_empty() && !held.maps.is_empty(), "nprof holds nothing: {held:?}");
        serve.kill()?;
        let left = held.left_over()?;
        ensure!(left == BpfObjects::default(), "left in the kernel: {left:?}");
        target.calls("all", 2, 100)?;
        target.exit()
    })
}
