//! What tracing may cost a JVM (`nprof trace --max-overhead`): hot methods are demoted and marked, others stay exact.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_tests::child::{Child, Stream};
use nprof_tests::exposition::Exposition;
use nprof_tests::jar::Jar;
use nprof_tests::kernel::uprobes_of_links;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::{Outcome, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{Report, Row};
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::Serve;
use rustix::process::Signal;

use crate::TARGETS;
use crate::serve::{CALLS, of};

/// Estimates calls.
const ESTIMATED: &str = "nprof_native_calls_estimated_total";
/// Calls of the hot native in a round: without probes they take some milliseconds.
const HOT_CALLS: u32 = 100_000;
/// Rounds of calls of the rare native. It may be single-stepped, at some ten microseconds a call and up to four times that after
/// other work, and 1 % of what an idle JVM is taken to use is a tenth of a millisecond in each of the first tenths of a second.
const RARE_CALLS: u32 = 1;
/// When a test gives up that waits for a demotion. nprof looks twice a second.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

/// The native that `RemoteProcess::speed_ns` calls in a loop, five times as often as it is told.
fn hot() -> MethodName {
    MethodName::new("targets.Plain", "add", "(II)I")
}

fn rare() -> MethodName {
    MethodName::new("targets.Plain", "twice", "(J)J")
}

/// A trace of a target, and the last that it said.
fn start(args: &[&str]) -> Result<Child> {
    let mut nprof = spawn(&[&["trace", "--format", "json", "--interval", "100ms"], args].concat())?;
    nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
    Ok(nprof)
}

fn finish(nprof: Child) -> Result<(Report, Outcome)> {
    nprof.signal(Signal::INT)?;
    let run = outcome(nprof)?;
    ensure!(run.code == Some(0), "{run:?}");
    let last = run.stdout.trim_end().lines().last().context("no document")?;
    Ok((serde_json::from_str(last)?, run))
}

/// Calls the hot native until the next document says that it is demoted. Returns that document and
/// how often it was called.
fn call_until_demoted(nprof: &mut Child, target: &mut RemoteProcess) -> Result<(Report, u64)> {
    let (began, mut made) = (Instant::now(), 0);
    while began.elapsed() < GIVE_UP_AFTER {
        target.speed_ns(HOT_CALLS)?;
        made += 5 * u64::from(HOT_CALLS);
        let report: Report = serde_json::from_str(&nprof.line(Stream::Stdout)?)?;
        let report = report.of(target.pid());
        if report.row(&hot()).is_some_and(|row| row.state != row.wanted) {
            // Once more, in the state that it is in now.
            target.speed_ns(HOT_CALLS)?;
            return Ok((report, made + 5 * u64::from(HOT_CALLS)));
        }
    }
    Err(nprof.failure(&format!("has demoted nothing within {GIVE_UP_AFTER:?}")))
}

fn must_be_marked(row: &Row, made: u64) -> Result<()> {
    ensure!(row.unwatched_ns > 0 || row.counted > 0, "{row:?}");
    ensure!(row.calls <= made, "{made} calls were made: {row:?}");
    // What was not seen is said; what was seen is counted.
    ensure!(row.unwatched_ns > 0 || row.calls == made, "{made} calls were made: {row:?}");
    let times = row.times()?;
    ensure!(times.calls == row.calls - row.counted - row.untimed, "the times are of other calls: {row:?}");
    Ok(())
}

fn must_be_exact(row: &Row, made: u64) -> Result<()> {
    ensure!((row.state.as_str(), row.wanted.as_str()) == ("timed", "timed"), "{row:?}");
    ensure!((row.calls, row.counted, row.unwatched_ns) == (made, 0, 0), "{made} calls were made: {row:?}");
    ensure!(row.times()?.calls == made, "not every call is timed: {row:?}");
    Ok(())
}

/// Check that a native that is called in a tight loop is demoted, marked in its row and named with the reason, and that
/// one that is rarely called stays exact: for one JVM that was chosen, and for one of all.
#[test]
fn a_hot_native_is_demoted() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for all in [false, true] {
            let mut target = RemoteProcess::shapes(jdk)?;
            let pid = target.pid().to_string();
            let of: &[&str] = if all { &["--all"] } else { &["--pid", &pid] };
            let mut nprof = start(&[of, &["--max-overhead", "1%", TARGETS]].concat())?;
            target.calls("instance", 1, RARE_CALLS)?;
            let (demoted, made) = call_until_demoted(&mut nprof, &mut target)?;
            target.calls("instance", 1, RARE_CALLS)?;
            let (report, run) = finish(nprof)?;
            let report = report.of(target.pid());
            let row = demoted.needed_row(&hot())?;
            ensure!(["detached", "counted"].contains(&row.state.as_str()) && row.wanted == "timed", "{row:?}");
            let functions = demoted.targets.first().and_then(|row| row.functions).context("no functions")?;
            ensure!(functions.demoted >= 1 && functions.timed >= 1, "{functions:?}");
            must_be_marked(report.needed_row(&hot())?, made)?;
            must_be_exact(report.needed_row(&rare())?, u64::from(2 * RARE_CALLS))?;
            ensure!(report.targets.iter().all(|row| row.cost_ns.is_some_and(|ns| ns > 0)), "{:?}", report.targets);
            let told = |line: &str| line.starts_with("nprof: ") && line.contains("too expensive to time every call");
            ensure!(run.stderr.lines().filter(|line| told(line)).count() == 1, "{}", run.stderr);
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that a function that is single-stepped has links of its own, so that it can be detached at once when it is called in a
/// burst, and so have those that each collection has called; and that they share them where nothing is ever detached.
#[test]
fn what_may_be_expensive_at_once_stands_apart() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::bench(jdk)?;
        for command in ["push", "step"] {
            // Loads the class and binds its natives.
            target.run(&format!("{command} 1"))?;
        }
        let pid = target.pid().to_string();
        for (library, natives) in [
            ("libshapes.so", ["targets.Entries::pushFirst", "targets.Entries::movFirst"]),
            ("libjvm.so", ["java.lang.Object::notify", "java.lang.Object::notifyAll"]),
        ] {
            for (budget, expected) in [("off", &[2, 2][..]), ("5%", &[1, 1, 1, 1])] {
                let mut nprof = start(&["--pid", &pid, "--max-overhead", budget, natives[0], natives[1]])?;
                let began = Instant::now();
                // Those of the look before the start are closed meanwhile.
                while uprobes_of_links(nprof.pid(), library)? != expected {
                    let links = uprobes_of_links(nprof.pid(), library)?;
                    ensure!(began.elapsed() < GIVE_UP_AFTER, "{library}, {budget}: {links:?} instead of {expected:?}");
                    nprof.line(Stream::Stdout)?;
                }
                finish(nprof)?;
            }
        }
        target.exit()
    })
}

/// The calls of the hot native, and what they and those of its twin took, in CPU time.
#[derive(Debug, Clone, Copy, Default)]
struct Worked {
    calls: f64,
    traced: f64,
    traced_ns: f64,
    twin: f64,
    twin_ns: f64,
    wall_ns: f64,
}

impl Worked {
    fn slowdown(&self) -> f64 {
        self.cpu_ns() / ((self.traced + self.twin) * self.twin_ns / self.twin)
    }

    fn cpu_ns(&self) -> f64 {
        self.traced_ns + self.twin_ns
    }
}

/// Has the worker of `Governed.java` measure itself for some time, and longer until it has had the CPU for most of that.
fn work(target: &mut RemoteProcess, seconds: f64) -> Result<Worked> {
    let mut sum = Worked::default();
    while sum.cpu_ns() < 0.8e9 * seconds || sum.twin == 0.0 {
        let answer = target.run(&format!("measure {seconds}"))?.join("\n");
        let words = answer.strip_prefix("measured ").with_context(|| format!("no measurement: {answer}"))?;
        let numbers = words.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [calls, traced, traced_ns, twin, twin_ns, wall_ns] = numbers[..] else { anyhow::bail!("{answer}") };
        sum.calls += calls;
        sum.traced += traced;
        sum.traced_ns += traced_ns;
        sum.twin += twin;
        sum.twin_ns += twin_ns;
        sum.wall_ns += wall_ns;
    }
    Ok(sum)
}

/// The slowest of some tenths of a second, with all of them.
fn slowest_of(target: &mut RemoteProcess, tenths: u32) -> Result<(f64, Vec<Worked>)> {
    let tenths = (0..tenths).map(|_| work(target, 0.1)).collect::<Result<Vec<Worked>>>()?;
    Ok((tenths.iter().map(Worked::slowdown).fold(1.0, f64::max), tenths))
}

/// Check what the default does to a JVM that calls a native two million times a second, in bursts: no tenth of a second of its
/// first ones is slowed down, the start of nprof included, but for what the slowest without nprof is slower by itself, on a
/// host that others use; and the native is in its row all the same, with an estimate that is true within its error.
#[test]
fn the_default_does_no_harm() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "harmless", "targets.Governed")?;
        let mut target = RemoteProcess::governed(jdk, jar.path())?;
        // Until it is compiled.
        work(&mut target, 2.0)?;
        let (alone, _) = slowest_of(&mut target, 20)?;
        // Everything as it comes, but for the twin that the other is compared with.
        let pid = target.pid().to_string();
        let mut nprof = spawn(&["trace", "--format", "json", "--pid", &pid, "--exclude", "targets.Many::m1"])?;
        let (slowest, starts) = slowest_of(&mut target, 20)?;
        ensure!(slowest < 1.1 * alone, "{slowest} times slower by the start, {alone} without: {starts:?}");
        nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
        let worked = work(&mut target, 4.0)?;
        ensure!(worked.slowdown() < 1.05, "slowed down {} times: {worked:?}", worked.slowdown());
        let (report, _) = finish(nprof)?;
        report.must_be_lossless_within_budget()?;
        let row = report.needed_row(&MethodName::new("targets.Many", "m0", "()I"))?;
        let (estimated, error) = row.estimated_calls.zip(row.estimate_error).context("no estimate")?;
        ensure!((row.estimate_error_ns > Some(0)) == row.estimated_total_ns.is_some(), "{row:?}");
        let found = estimated as f64 * 1e9 / report.elapsed_ns as f64;
        let truth = worked.calls * 1e9 / worked.wall_ns;
        eprintln!(
            "nprof-tests: JDK {}: at most {slowest:.3} times slower at the start ({alone:.3} without nprof), then {:.3}, \
             estimate {:.2} with an error of {error:.2}",
            jdk.version,
            worked.slowdown(),
            found / truth
        );
        let may_differ = 0.1 + 3.0 * error;
        ensure!((found / truth - 1.0).abs() < may_differ, "{found:.0} calls/s, {truth:.0} made: {row:?}");
        ensure!(
            row.calls < estimated / 2 && row.unwatched_ns > 0,
            "a native that is too expensive was watched: {row:?}"
        );
        target.exit()
    })
}

/// Check the time of a native that is too expensive to watch, of which one call of a hundred takes nearly all of the time, as those of
/// compressors do: the estimate is true within its error.
#[test]
fn few_long_calls_are_estimated() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        // Until it is compiled and called all the time.
        target.self_timed("uneven", 100_000, 400_000)?;
        let nprof = start(&["--pid", &target.pid().to_string(), "targets.Timed::work"])?;
        let truth = target.self_timed("uneven", 2_000_000, 400_000)?;
        let (report, _) = finish(nprof)?;
        let row = report.needed_row(&truth.method)?;
        let (estimated, error) = row.estimated_total_ns.zip(row.estimate_error_ns).context("no estimate")?;
        let found = row.total_ns.context("no time")?.saturating_add(estimated) as f64;
        let (share, error) = (found / truth.total_ns as f64, error as f64 / found);
        let calls = (row.calls + row.estimated_calls.unwrap_or_default()) as f64 / truth.calls as f64;
        let error_of_calls = row.estimate_error.context("no error of the calls")?;
        eprintln!(
            "nprof-tests: JDK {}: time estimated {share:.2} with an error of {error:.2}, calls {calls:.2} with one of {error_of_calls:.2}",
            jdk.version
        );
        ensure!((share - 1.0).abs() < 0.1 + 3.0 * error, "{share} of the time: {row:?}, {truth:?}");
        ensure!((calls - 1.0).abs() < 0.1 + 3.0 * error_of_calls, "{calls} of the calls: {row:?}, {truth:?}");
        target.exit()
    })
}

/// Check that calls that come in bursts, with as long pauses between them as a server has between requests, are estimated within an error
/// that says what is not known of them: most looks see either a burst or none.
#[test]
fn bursts_are_estimated() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "bursts", "targets.Governed")?;
        let mut target = RemoteProcess::governed(jdk, jar.path())?;
        target.run("burst 100")?;
        target.run("rare 40")?;
        work(&mut target, 1.0)?;
        let pid = target.pid().to_string();
        let nprof = start(&["--max-overhead", "0.3%", "--pid", &pid, "targets.Many::m2"])?;
        let made = |target: &mut RemoteProcess| -> Result<f64> {
            let answer = target.run("rare 40")?.join("\n");
            Ok(answer.strip_prefix("made ").with_context(|| format!("no number: {answer}"))?.parse()?)
        };
        let (began, before) = (Instant::now(), made(&mut target)?);
        work(&mut target, 8.0)?;
        let truth = (made(&mut target)? - before) / began.elapsed().as_secs_f64();
        let (report, _) = finish(nprof)?;
        let row = report.needed_row(&MethodName::new("targets.Many", "m2", "()I"))?;
        let (estimated, error) = row.estimated_calls.zip(row.estimate_error).context("no estimate")?;
        ensure!(row.calls < estimated / 2, "nothing had to be estimated: {row:?}");
        let found = (row.calls + estimated) as f64 * 1e9 / report.elapsed_ns as f64;
        eprintln!("nprof-tests: JDK {}: estimate {:.2} with an error of {error:.2}", jdk.version, found / truth);
        ensure!((found / truth - 1.0).abs() < 0.1 + 3.0 * error, "{found:.0} calls/s, {truth:.0} made: {row:?}");
        ensure!(error < 0.6, "next to nothing is known: {row:?}");
        target.exit()
    })
}

/// Check that a recording has what was too expensive to watch in its place, with an estimate that is true within its error: in
/// reports for people and for programs, in a picture, and in a comparison.
#[test]
fn recordings_have_the_most_expensive() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "costliest", "targets.Governed")?;
        let mut target = RemoteProcess::governed(jdk, jar.path())?;
        work(&mut target, 2.0)?;
        let directory = tempfile::TempDir::new()?;
        let file = directory.path().join("run.nprof").to_str().context("a path that is no text")?.to_owned();
        let pid = target.pid().to_string();
        let nprof =
            spawn(&["record", "--pid", &pid, "--duration", "4s", "-o", &file, "--exclude", "targets.Many::m1"])?;
        let worked = work(&mut target, 3.0)?;
        let recorded = outcome(nprof)?;
        ensure!(recorded.code == Some(0), "{recorded:?}");
        let said = |args: &[&str]| -> Result<String> {
            let run = run(args)?;
            ensure!(run.code == Some(0), "{run:?}");
            Ok(run.stdout)
        };
        let report: serde_json::Value = serde_json::from_str(&said(&["report", "--format", "json", &file])?)?;
        let functions = report["functions"].as_array().context("no functions")?;
        let hottest = functions.iter().find(|of| of["class"] == "targets.Many" && of["method"] == "m0");
        let hottest = hottest.with_context(|| format!("m0 is missing: {report}"))?;
        let number = |value: &serde_json::Value| value.as_f64().with_context(|| format!("no number in {hottest}"));
        let (calls, error) = (number(&hottest["estimated_calls"])?, number(&hottest["estimate_error"])?);
        let found = calls * 1e9 / number(&report["about"]["elapsed_ns"])?;
        let truth = worked.calls * 1e9 / worked.wall_ns;
        ensure!((found / truth - 1.0).abs() < 0.1 + 3.0 * error, "{found:.0} calls/s, {truth:.0} made: {hottest}");
        // On a busy machine there may have been no look that times calls.
        let is_timed = !hottest["estimated_total_ns"].is_null();
        ensure!((hottest["estimate_error_ns"].as_u64() > Some(0)) == is_timed, "time without an error: {hottest}");
        for args in [["report", "--all", &file, ""], ["diff", "--top=0", &file, &file]] {
            let table = said(args.strip_suffix(&[""]).unwrap_or(&args))?;
            ensure!(table.lines().any(|line| line.ends_with("targets.Many::m0 ≈")), "{table}");
        }
        let folded = said(&["flamegraph", &file, "--format", "folded", "--weight", "calls"])?;
        ensure!(folded.contains("[estimated: too expensive to watch];targets.Many.m0 "), "{folded}");
        target.exit()
    })
}

/// Check that metrics go on where a native is too expensive to watch: its estimate is in every scrape, never less than before, and
/// grows with what is seen by as many calls as are made, within its error.
#[test]
fn metrics_have_the_most_expensive() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "scraped", "targets.Governed")?;
        let mut target = RemoteProcess::governed(jdk, jar.path())?;
        work(&mut target, 2.0)?;
        let serve = Serve::start(&["--max-overhead", "2%", "--jvm", jar.name(), "targets.Many::m0"])?;
        let labels = of(jar.name(), &[("class", "targets.Many"), ("method", "m0")]);
        let value =
            |samples: &Exposition, name: &str| Ok::<_, anyhow::Error>(samples.value(name, &labels)?.unwrap_or(0.0));
        // The time itself may be lost in the probes' part.
        let off_by = |samples: &Exposition| value(samples, "nprof_native_call_estimated_error_seconds");
        let is_estimated = |samples: &Exposition| Ok(value(samples, ESTIMATED)? > 0.0 && off_by(samples)? > 0.0);
        let mut last = serve.scrape_until("an estimate", is_estimated)?;
        let all = |samples: &Exposition| Ok::<_, anyhow::Error>(value(samples, ESTIMATED)? + value(samples, CALLS)?);
        let (began, before, first) = (Instant::now(), all(&last)?, value(&last, ESTIMATED)?);
        let (mut made, mut wall_ns) = (0.0, 0.0);
        for _ in 0..8 {
            let worked = work(&mut target, 0.5)?;
            (made, wall_ns) = (made + worked.calls, wall_ns + worked.wall_ns);
            let samples = serve.samples()?;
            for name in [ESTIMATED, "nprof_native_call_estimated_seconds_total", CALLS] {
                ensure!(value(&samples, name)? >= value(&last, name)?, "{name} has fallen");
            }
            last = samples;
        }
        let error = value(&last, "nprof_native_calls_estimated_error")? / value(&last, ESTIMATED)?;
        let (found, truth) = ((all(&last)? - before) / began.elapsed().as_secs_f64(), made * 1e9 / wall_ns);
        eprintln!("nprof-tests: JDK {}: estimate {:.2}, error {error:.3}", jdk.version, found / truth);
        ensure!(value(&last, ESTIMATED)? > first && error > 0.0, "{first}, error {error}");
        ensure!((found / truth - 1.0).abs() < 0.2 + 3.0 * error, "{found:.0} calls/s, {truth:.0} made, error {error}");
        target.exit()
    })
}

/// Check that nothing is demoted and everything exact where no budget was set, however hot a native is.
#[test]
fn without_a_budget_all_is_exact() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let nprof = start(&["--pid", &target.pid().to_string(), "--max-overhead", "off", TARGETS])?;
        target.calls("instance", 1, RARE_CALLS)?;
        target.speed_ns(HOT_CALLS)?;
        let (report, run) = finish(nprof)?;
        report.must_be_lossless()?;
        must_be_exact(report.needed_row(&hot())?, 5 * u64::from(HOT_CALLS))?;
        must_be_exact(report.needed_row(&rare())?, u64::from(RARE_CALLS))?;
        let target_row = report.targets.first().context("no target")?;
        let functions = target_row.functions.context("no functions")?;
        ensure!((functions.demoted, functions.counted, functions.detached) == (0, 0, 0), "{functions:?}");
        ensure!(
            target_row.cost_ns.is_some() && !run.stderr.contains("too expensive"),
            "{target_row:?}: {}",
            run.stderr
        );
        target.exit()
    })
}
