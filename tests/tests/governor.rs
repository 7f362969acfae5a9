//! The overhead governor against a JVM that makes a million native calls a second, and measures itself what they cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::median;
use nprof_tests::exposition::Exposition;
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::serve::Serve;
use serde_json::Value;

use crate::serve::{CALLS, DURATION, of};

/// What tracing may cost.
const BUDGET: f64 = 0.02;
/// The promise: the slowdown is below this many budgets.
const BUDGETS: f64 = 2.0;
/// How soon the budget is found after a change.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// The longest that a detached function waits for its next trial in these tests: it doubles with each that failed.
const TRIED_WITHIN: Duration = Duration::from_secs(60);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long it may take until a storm has led to several changes: each trial of what is hot has to be paid for first.
const CHANGED_WITHIN: Duration = Duration::from_secs(180);
/// How many times a second the worker calls the hot native at least, in the time that it has a CPU.
const HOT: f64 = 500_000.0;
/// Iterations of the worker from one call to the next when it has cooled down.
const COOL: &str = "every 2000";

const HOT_METHOD: [(&str, &str); 2] = [("class", "targets.Many"), ("method", "m0")];
const RARE_METHOD: [(&str, &str); 2] = [("class", "targets.Many"), ("method", "m2")];

/// What the worker measured of itself.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Calls of the traced native.
    calls: f64,
    /// How many times as long all its work took as it would without probes, in CPU time.
    slowdown: f64,
    /// Calls of either native per second of CPU time.
    rate: f64,
}

/// Has the worker measure itself for some seconds.
fn measure(target: &mut RemoteProcess, seconds: f64) -> Result<Measured> {
    let answer = target.run(&format!("measure {seconds}"))?.join("\n");
    let words = answer.strip_prefix("measured ").with_context(|| format!("no measurement: {answer}"))?;
    let numbers = words.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [calls, traced, traced_ns, twin, twin_ns, _wall_ns] = numbers[..] else { anyhow::bail!("{answer}") };
    ensure!(twin > 0.0 && traced > 0.0, "the worker did not get to work: {answer}");
    let untraced_ns = (traced + twin) * twin_ns / twin;
    let rate = 1e9 * calls * (traced + twin) / traced / (traced_ns + twin_ns);
    Ok(Measured { calls, slowdown: (traced_ns + twin_ns) / untraced_ns, rate })
}

/// Starts the target, and measures it as it is without nprof. The two natives differ by no more than noise.
fn untraced(jdk: &Jdk, jar: &Jar<'_>) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::governed(jdk, jar.path())?;
    // Until it is compiled.
    measure(&mut target, 2.0)?;
    let without = measure(&mut target, 2.0)?;
    ensure!((without.slowdown - 1.0).abs() < 0.01, "the measure is too noisy: {without:?}");
    ensure!(without.rate > 2.0 * HOT, "too slow for the test: {without:?}");
    Ok(target)
}

fn govern(jar: &Jar<'_>, budget: &str) -> Result<Serve> {
    let natives = ["targets.Many::m0", "targets.Many::m[2-5]"];
    Serve::start(&[&["--max-overhead", budget, "--jvm", jar.name()], &natives[..]].concat())
}

/// The state of a method in `ctl status`, if it is demoted.
fn demoted_to(serve: &Serve, pid: u32, method: &str) -> Result<Option<String>> {
    let status: Value = serde_json::from_str(&serve.ctl_succeeds(&["status", "--format", "json"])?)?;
    let jvms = status["jvms"].as_array().context("JVMs")?;
    let jvm = jvms.iter().find(|jvm| jvm["pid"] == pid).context("the JVM is not served")?;
    let demoted = jvm["demoted_functions"].as_array().context("demoted functions")?;
    let found = demoted.iter().find(|function| function["method"] == method);
    Ok(found.and_then(|function| function["state"].as_str()).map(str::to_owned))
}

/// Asks until something is so; returns how long that took.
fn until(what: &str, limit: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let began = Instant::now();
    while !is_so()? {
        ensure!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(PAUSE);
    }
    Ok(began.elapsed())
}

/// Waits until the slowdown is within its bounds, and checks that it stays there.
fn finds_the_budget(target: &mut RemoteProcess) -> Result<()> {
    let limit = 1.0 + BUDGETS * BUDGET;
    until("the budget", FOUND_WITHIN, || Ok(measure(target, 1.0)?.slowdown < limit))?;
    let found = measure(target, 4.0)?;
    ensure!(found.slowdown < limit, "a budget of {BUDGET} and {found:?}");
    ensure!(found.rate > HOT, "not hot: {found:?}");
    Ok(())
}

/// Checks that what was done to a hot method is told wherever it is promised.
fn is_told(serve: &mut Serve, pid: u32, jvm: &str) -> Result<()> {
    serve.says(&format!(" WARN process {pid}: targets.Many::m0 is demoted to "))?;
    let samples = serve.samples()?;
    let demoted = samples.with("nprof_demoted_method", &of(jvm, &HOT_METHOD)).map(|sample| sample.value).sum::<f64>();
    ensure!(demoted == 1.0, "{demoted} series of a demoted method");
    ensure!(samples.count("nprof_demotions_total", &[])? > 0, "no demotion was counted");
    ensure!(unwatched(&samples, &of(jvm, &HOT_METHOD))? > 0.0, "a detached method was watched all the time");
    Ok(())
}

fn unwatched(samples: &Exposition, labels: &[(&str, &str)]) -> Result<f64> {
    Ok(samples.value("nprof_native_unwatched_seconds_total", labels)?.unwrap_or(0.0))
}

/// Checks that every call of the rare method was counted and timed, and that nothing was lost.
fn rare_is_exact(serve: &Serve, target: &mut RemoteProcess, jvm: &str) -> Result<()> {
    let answer = target.run("rare 0")?.join("\n");
    let made: u64 = answer.strip_prefix("made ").context("a count")?.parse()?;
    let labels = of(jvm, &RARE_METHOD);
    let samples = serve.scrape_until("all calls", |samples| Ok(samples.count(CALLS, &labels)? >= made))?;
    let timed = samples.count(&format!("{DURATION}_count"), &labels)?;
    ensure!((samples.count(CALLS, &labels)?, timed) == (made, made), "{made} calls, of which {timed} were timed");
    ensure!(unwatched(&samples, &labels)? == 0.0, "a method of few calls was not watched all the time");
    let lost: Vec<_> = samples.with("nprof_losses_total", &[]).filter(|sample| sample.value != 0.0).collect();
    ensure!(made > 100 && lost.is_empty(), "{made} calls, {lost:?}");
    Ok(())
}

/// Check that a method with a million calls a second is demoted until the slowdown is below two budgets, that it is
/// timed again when it cools down, that the budget is found again when it heats up, and that a method of few calls in
/// the same library is timed to the unit through all of it.
#[test]
fn keeps_the_budget() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "governed", "targets.Governed")?;
        let mut target = untraced(jdk, &jar)?;
        let mut serve = govern(&jar, "2%")?;
        let pid = target.pid();
        target.run("rare 100")?;
        let is_demoted = |serve: &Serve| Ok(demoted_to(serve, pid, "m0")?.is_some());
        until("the demotion", FOUND_WITHIN, || is_demoted(&serve))?;
        finds_the_budget(&mut target)?;
        is_told(&mut serve, pid, jar.name())?;
        serve.ctl_succeeds(&["disable", "targets.Many::m0"])?;
        ensure!(!is_demoted(&serve)?, "what the user switched off is said to be demoted");
        serve.ctl_succeeds(&["enable", "targets.Many::m0"])?;
        target.run(COOL)?;
        until("the promotion", TRIED_WITHIN, || Ok(!is_demoted(&serve)?))?;
        users_wish(&serve, &mut target, jar.name())?;
        target.run("every 1")?;
        finds_the_budget(&mut target)?;
        ensure!(is_demoted(&serve)?, "within the budget without a demotion");
        rare_is_exact(&serve, &mut target, jar.name())
    })
}

/// Checks that a method that the user disables stays off, whatever the governor thinks, and comes back when enabled.
fn users_wish(serve: &Serve, target: &mut RemoteProcess, jvm: &str) -> Result<()> {
    let labels = of(jvm, &HOT_METHOD);
    serve.ctl_succeeds(&["disable", "targets.Many::m0"])?;
    let before = serve.samples()?.count(CALLS, &labels)?;
    let made = measure(target, 2.0)?.calls;
    let after = serve.samples()?.count(CALLS, &labels)?;
    ensure!(made > 0.0 && after == before, "{} of {made} calls of a disabled method were counted", after - before);
    serve.ctl_succeeds(&["enable", "targets.Many::m0"])?;
    serve.scrape_until("an enabled method", |samples| Ok(samples.count(CALLS, &labels)? > after))?;
    Ok(())
}

/// Check that a method of few calls is timed to the unit while others of its library, whose calls come in storms, are
/// detached and attached again.
#[test]
fn exact_beside_the_detached() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "storm", "targets.Governed")?;
        let mut target = untraced(jdk, &jar)?;
        let serve = govern(&jar, "1%")?;
        target.run("rare 50")?;
        target.run(COOL)?;
        for (storm, changes, wanted) in [
            ("on", "nprof_demotions_total", 3),
            ("off", "nprof_promotions_total", 2),
            ("on", "nprof_demotions_total", 4),
        ] {
            target.run(&format!("storm {storm}"))?;
            until(changes, CHANGED_WITHIN, || Ok(serve.samples()?.count(changes, &[])? >= wanted))?;
        }
        rare_is_exact(&serve, &mut target, jar.name())
    })
}

/// The slowdown of a target whose hot native has a stub, with a service that is to keep the budget.
fn by_stubs(jar: &Jar<'_>, budget: &str) -> Result<Serve> {
    let natives = ["targets.Many::m0", "targets.Many::m[2-5]"];
    Serve::start(&[&["--max-overhead", budget, "--stubs-for", "*", "--jvm", jar.name()], &natives[..]].concat())
}

/// Check that with stubs a native that is hot is on a cheaper rung and within the budget, that it is said to be, and that no call
/// of it is left out meanwhile: not when it is lowered, nor when the user switches it; and that the user's word counts.
#[test]
fn stubs_leave_nothing_out() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "stubbed", "targets.Governed")?;
        let mut target = untraced(jdk, &jar)?;
        let serve = by_stubs(&jar, "0.5%")?;
        let (pid, labels) = (target.pid(), of(jar.name(), &HOT_METHOD));
        target.run("rare 100")?;
        let lowered =
            || Ok(demoted_to(&serve, pid, "m0")?.is_some_and(|state| state == "sampled" || state == "counted"));
        until("a cheaper rung", FOUND_WITHIN, lowered)?;
        let found = measure(&mut target, 2.0)?;
        ensure!(found.slowdown < 1.0 + BUDGETS * BUDGET && found.rate > HOT, "{found:?}");
        ensure!(unwatched(&serve.samples()?, &labels)? == 0.0, "a method with a stub was not watched all the time");
        serve.ctl_succeeds(&["mode", "count", "targets.Many::m0"])?;
        ensure!(demoted_to(&serve, pid, "m0")?.is_none(), "counted as was asked for, and said to be demoted");
        serve.ctl_succeeds(&["mode", "time", "targets.Many::m0"])?;
        rare_is_exact(&serve, &mut target, jar.name())
    })
}

/// Check that with stubs a native that is called more than a million times a second is within a budget of 2 % from the second second
/// on, while all its calls are counted.
#[test]
fn stubs_are_within_the_budget_from_the_second_second() -> Result<()> {
    const SECONDS: usize = 3;
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "million", "targets.Governed")?;
        let mut target = untraced(jdk, &jar)?;
        let serve = by_stubs(&jar, "2%")?;
        measure(&mut target, 1.0)?;
        let seconds: Vec<Measured> = (0..SECONDS).map(|_| measure(&mut target, 1.0)).collect::<Result<_>>()?;
        let slowdown = median(seconds.iter().map(|second| second.slowdown));
        let rate = median(seconds.iter().map(|second| second.rate));
        ensure!(slowdown < 1.0 + BUDGET && rate > 2.0 * HOT, "{seconds:?}");
        let unwatched = unwatched(&serve.samples()?, &of(jar.name(), &HOT_METHOD))?;
        ensure!(unwatched == 0.0, "calls were not seen for {unwatched} s");
        let (traced, percent) = (rate / 2e6, 100.0 * (slowdown - 1.0));
        say(&format!("{jdk}: {traced:.2} million traced calls a second, slowed down by {percent:.2} %"));
        Ok(())
    })
}
