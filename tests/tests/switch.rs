//! What `nprof serve` does changes while it runs, by the control socket and by its configuration, and no count suffers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_tests::exposition::Exposition;
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::methods;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::Serve;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::serve::{ADD, CALLS, DURATION, of, serve, settled, until_counted};

/// A change through the control socket takes no more than so many times a question: both start nprof and meet the service at
/// work, and neither waits for its next look at the JVM.
const TIMES_ASKING: u32 = 5;
/// How soon stubs do what they were told to.
const OBEYED_WITHIN: Duration = Duration::from_secs(10);

/// A service and a target of which calls are counted already.
fn switchable<'a>(jdk: &'a Jdk, name: &str) -> Result<(Jar<'a>, RemoteProcess, Serve)> {
    let jar = Jar::new(jdk, name)?;
    let mut target = jar.start()?;
    let serve = serve()?;
    until_counted(&serve, jar.name(), &mut target)?;
    Ok((jar, target, serve))
}

/// Check that a method that is disabled is not counted from the moment on at which `ctl` has returned, and is counted
/// again from the moment on at which it is enabled.
#[test]
fn the_switch() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (jar, mut target, serve) = switchable(jdk, "switch")?;
        let took = |args: &[&str]| {
            let began = Instant::now();
            serve.ctl_succeeds(args).map(|_| began.elapsed())
        };
        let (mut asking, mut switching) = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            let before = settled(&serve, jar.name(), &mut target)?;
            asking = asking.min(took(&["status"])?);
            switching = switching.min(took(&["disable", "targets.Plain::add"])?);
            target.calls("static", 2, 500)?;
            let disabled = settled(&serve, jar.name(), &mut target)?;
            ensure!(disabled == before, "{} calls of a disabled method were counted", disabled - before);
            serve.ctl_succeeds(&["enable", "targets.Plain::add"])?;
            target.calls("static", 2, 500)?;
            let enabled = settled(&serve, jar.name(), &mut target)?;
            ensure!(enabled == before + 1000, "{} of 1000 calls were counted", enabled - before);
        }
        ensure!(switching < TIMES_ASKING * asking, "switching took {switching:?}, asking {asking:?}");
        Ok(())
    })
}

/// Check that a method that is only counted is not timed, and is timed again when that is asked for.
#[test]
fn counting_without_timing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (jar, mut target, serve) = switchable(jdk, "mode")?;
        let timed = |serve: &Serve| serve.samples()?.count(&format!("{DURATION}_count"), &of(jar.name(), &ADD));
        for (mode, more) in [("count", 0), ("time", 100)] {
            serve.ctl_succeeds(&["rule", &format!("targets.Plain::add={mode}")])?;
            let (calls, times) = (settled(&serve, jar.name(), &mut target)?, timed(&serve)?);
            target.calls("static", 1, 100)?;
            ensure!(settled(&serve, jar.name(), &mut target)? == calls + 100, "{mode}: not counted exactly");
            let now = timed(&serve)?;
            ensure!(now == times + more, "{mode}: {} of 100 calls were timed", now - times);
        }
        Ok(())
    })
}

/// A configuration file, and the service that runs by it.
struct Configured {
    path: PathBuf,
    serve: Serve,
    /// Holds the file.
    _directory: TempDir,
}

impl Configured {
    fn start(lines: &str) -> Result<Self> {
        let directory = TempDir::new()?;
        let path = directory.path().join("nprof.toml");
        write(&path, lines)?;
        let serve = Serve::start(&["--config", path.to_str().context("a path in UTF-8")?])?;
        Ok(Self { path, serve, _directory: directory })
    }

    /// Changes the file and has it read again.
    fn reload(&mut self, lines: &str) -> Result<()> {
        write(&self.path, lines)?;
        self.serve.signal(Signal::HUP)?;
        self.serve.says("nprof: the configuration was read again").map(|_| ())
    }
}

fn write(path: &Path, lines: &str) -> Result<()> {
    Ok(std::fs::write(path, format!("max-overhead = \"off\"\n{lines}\n"))?)
}

/// How many functions of a JVM are traced in any way.
fn functions(samples: &Exposition, jvm: &str) -> f64 {
    samples.with("nprof_methods", &[("jvm", jvm)]).map(|sample| sample.value).sum()
}

/// Check that SIGHUP takes over which JVMs are traced: one that is left out keeps its counts and gets no more, and goes
/// on from there when it is taken in again.
#[test]
fn other_jvms() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "jvms")?;
        let mut target = jar.start()?;
        let mut configured = Configured::start("")?;
        until_counted(&configured.serve, jar.name(), &mut target)?;
        let before = settled(&configured.serve, jar.name(), &mut target)?;
        configured.reload(&format!("exclude-jvm = [\"{}\"]", jar.name()))?;
        configured.serve.scrape_until("the end of its tracing", |samples| Ok(functions(samples, jar.name()) == 0.0))?;
        target.calls("static", 1, 100)?;
        let calls = of(jar.name(), &ADD);
        ensure!(configured.serve.samples()?.count(CALLS, &calls)? == before, "counted though it was left out");
        configured.reload("")?;
        configured.serve.scrape_until("its tracing", |samples| Ok(functions(samples, jar.name()) > 0.0))?;
        target.calls("static", 1, 100)?;
        let after = settled(&configured.serve, jar.name(), &mut target)?;
        ensure!(after == before + 100, "{after} after {before} and 100 more");
        Ok(())
    })
}

/// Check that SIGHUP takes over other labels, under which everything counted so far is there; and that a file that is
/// wrong changes nothing and is told.
#[test]
fn other_labels() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "labels")?;
        let mut target = jar.start()?;
        let mut configured = Configured::start("")?;
        until_counted(&configured.serve, jar.name(), &mut target)?;
        let before = settled(&configured.serve, jar.name(), &mut target)?;
        configured.reload("[label]\njvm = \"shop {main}\"\nteam = \"{env:NO_SUCH|none}\"")?;
        let name = format!("shop {}", jar.name());
        let labels = [&of(&name, &ADD)[..], &[("team", "none")]].concat();
        ensure!(configured.serve.samples()?.count(CALLS, &labels)? == before, "not all under the new labels");
        write(&configured.path, "listen = 7")?;
        configured.serve.signal(Signal::HUP)?;
        configured.serve.says("nprof: the configuration stays as it was")?;
        ensure!(configured.serve.samples()?.count(CALLS, &labels)? == before, "a wrong file changed something");
        Ok(())
    })
}

/// Check that SIGHUP takes over other patterns, and that what was counted stays and goes on.
#[test]
fn other_patterns() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "patterns")?;
        let mut target = jar.start()?;
        let mut configured = Configured::start("patterns = [\"targets.Plain::*\"]")?;
        target.calls("static", 1, 300)?;
        ensure!(settled(&configured.serve, jar.name(), &mut target)? == 300, "not counted before");
        let nested = of(jar.name(), &[("class", "targets.Nested"), ("method", "descend")]);
        ensure!(configured.serve.samples()?.count(CALLS, &nested)? == 0, "counted what was not asked for");
        configured.reload("patterns = [\"targets.Plain::*\", \"targets.Nested::*\"]")?;
        // Calls all the time: none may be missed while the patterns change.
        let mut made = 300;
        configured.serve.scrape_until("the new method", |samples| {
            target.calls("static", 1, 10)?;
            made += 10;
            target.calls("nested", 1, 1)?;
            Ok(samples.count(CALLS, &nested)? > 0)
        })?;
        let counted = settled(&configured.serve, jar.name(), &mut target)?;
        ensure!(counted == made, "{counted} of {made} calls");
        Ok(())
    })
}

/// Check that what the configuration's rules leave out is not counted from the start, that `ctl` overrules them, and that SIGHUP
/// takes over others.
#[test]
fn rules_of_the_configuration() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "rules")?;
        let mut target = jar.start()?;
        let mut configured = Configured::start("rules = [\"**=count\", \"targets.Plain::add=off\"]")?;
        let twice = of(jar.name(), &[("class", "targets.Plain"), ("method", "twice")]);
        configured.serve.scrape_until("a call of another method", |samples| {
            target.calls("all", 1, 1)?;
            Ok(samples.count(CALLS, &twice)? > 0)
        })?;
        let mut counts = |configured: &mut Configured| -> Result<u64> {
            let before = settled(&configured.serve, jar.name(), &mut target)?;
            target.calls("static", 1, 100)?;
            Ok(settled(&configured.serve, jar.name(), &mut target)? - before)
        };
        ensure!(counts(&mut configured)? == 0, "counted from the start");
        configured.serve.ctl_succeeds(&["rule", "targets.Plain::add=count"])?;
        // Its probe has to be attached for it first.
        let deadline = Instant::now() + OBEYED_WITHIN;
        while counts(&mut configured)? != 100 {
            ensure!(Instant::now() < deadline, "not counted in spite of ctl");
        }
        configured.reload("rules = [\"targets.Plain::add=off\"]")?;
        ensure!(counts(&mut configured)? == 100, "ctl was forgotten");
        configured.serve.ctl_succeeds(&["disable", "targets.Plain::add"])?;
        ensure!(counts(&mut configured)? == 0, "counted in spite of ctl");
        Ok(())
    })
}

/// Check that a method whose calls are counted at their return beside others that are timed can be switched off and on, and that whatever
/// would move its probe, or another's, is refused with the reason and changes nothing.
#[test]
fn counted_at_the_return() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "returned")?;
        let mut target = jar.start()?;
        let mut configured = Configured::start("rules = [\"targets.Plain::add=exit\"]")?;
        let twice = of(jar.name(), &[("class", "targets.Plain"), ("method", "twice")]);
        configured.serve.scrape_until("a call of another method", |samples| {
            target.calls("all", 1, 1)?;
            Ok(samples.count(CALLS, &twice)? > 0)
        })?;
        let mut counts = |configured: &Configured| -> Result<[u64; 3]> {
            let now = |target: &mut RemoteProcess| -> Result<[u64; 3]> {
                let add = settled(&configured.serve, jar.name(), target)?;
                let samples = configured.serve.samples()?;
                let untimed = of(jar.name(), &ADD);
                Ok([add, samples.count("nprof_native_calls_untimed_total", &untimed)?, samples.count(CALLS, &twice)?])
            };
            let before = now(&mut target)?;
            target.calls("static", 1, 100)?;
            target.calls("instance", 1, 50)?;
            let after = now(&mut target)?;
            Ok([0, 1, 2].map(|at| after[at] - before[at]))
        };
        let at_exit = |configured: &Configured| -> Result<u64> {
            let state = [("jvm", jar.name()), ("state", "returned")];
            configured.serve.samples()?.count("nprof_methods", &state)
        };
        ensure!(counts(&configured)? == [100, 100, 51] && at_exit(&configured)? == 1, "{:?}", counts(&configured)?);
        for (rule, says) in [
            ("targets.Plain::add=count", "are counted when they return"),
            ("targets.Plain::*=time", "are counted when they return"),
            ("targets.Plain::twice=exit", "are counted when they begin"),
        ] {
            let refused = configured.serve.ctl(&["rule", rule])?;
            let why = [says, "its probe is not moved", "restart nprof"];
            ensure!(refused.code == Some(2) && why.iter().all(|why| refused.stderr.contains(why)), "{refused:?}");
            ensure!(counts(&configured)? == [100, 100, 51], "{rule}: {:?}", counts(&configured)?);
        }
        for (rule, expected) in [("targets.Plain::add=off", 0), ("targets.Plain::add=exit", 100)] {
            configured.serve.ctl_succeeds(&["rule", rule])?;
            let [calls, _, others] = counts(&configured)?;
            ensure!((calls, others) == (expected, 51), "{rule}: {calls} and {others}");
        }
        write(&configured.path, "rules = [\"targets.Plain::add=time\"]")?;
        configured.serve.signal(Signal::HUP)?;
        configured.serve.says("nprof: to change rules, restart nprof")?;
        configured.serve.says("nprof: the configuration was read again")?;
        ensure!(counts(&configured)? == [100, 100, 51] && at_exit(&configured)? == 1, "{:?}", counts(&configured)?);
        Ok(())
    })
}

/// The methods of a target that are bound to stubs, and where these are in their library.
fn stub_addresses(target: &RemoteProcess) -> Result<Vec<(MethodName, u64)>> {
    let listed = methods(target.pid(), &["targets.*"])?.methods.into_iter();
    let stubbed = listed.filter(|listed| listed.library.as_deref().is_some_and(|name| name.contains("nprof_shim")));
    let places: Option<Vec<_>> = stubbed.map(|listed| Some((listed.name(), listed.offset?))).collect();
    places.filter(|places| !places.is_empty()).context("no method has a stub, or it is not known where")
}

/// Checks that methods are bound to the stubs that they were bound to before.
fn must_be_bound_as(target: &RemoteProcess, before: &[(MethodName, u64)]) -> Result<()> {
    let now = stub_addresses(target)?;
    let moved: Vec<_> = before.iter().filter(|bound| !now.contains(bound)).collect();
    ensure!(moved.is_empty(), "bound anew: {moved:?}, now {now:?}");
    Ok(())
}

/// Makes calls of `Plain::add` until stubs do what they were told to: count them, or not. Then none may be otherwise.
fn obeys(serve: &Serve, jvm: &str, target: &mut RemoteProcess, is_counted: bool) -> Result<()> {
    let mut batch = |calls: u64| -> Result<u64> {
        let before = settled(serve, jvm, target)?;
        target.calls("static", 1, u32::try_from(calls)?)?;
        Ok(settled(serve, jvm, target)? - before)
    };
    let deadline = Instant::now() + OBEYED_WITHIN;
    while batch(10)? != if is_counted { 10 } else { 0 } {
        ensure!(Instant::now() < deadline, "stubs do not do what they were told to");
    }
    let seen = batch(1_000)?;
    ensure!(seen == if is_counted { 1_000 } else { 0 }, "{seen} of 1000 calls were counted: {is_counted}");
    Ok(())
}

/// Check that stubs are switched by `ctl` and by a reload that selects other methods, without a method being bound anew: what is
/// off is counted nowhere, what comes back is counted to the unit, the states are said, and others lose nothing.
#[test]
fn stubs_stay_bound() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "bound")?;
        let mut target = jar.start()?;
        let both = "stubs-for = [\"*\"]\npatterns = [\"targets.Plain::*\", \"targets.Nested::*\"]";
        let mut configured = Configured::start(both)?;
        until_counted(&configured.serve, jar.name(), &mut target)?;
        let of_nested = of(jar.name(), &[("class", "targets.Nested"), ("method", "descend")]);
        let before = (stub_addresses(&target)?, configured.serve.samples()?.count(CALLS, &of_nested)?);
        for (command, state) in [("disable", "off"), ("enable", "timed")] {
            configured.serve.ctl_succeeds(&[command, "targets.Plain::add"])?;
            let in_state =
                |samples: &Exposition| samples.count("nprof_methods", &[("jvm", jar.name()), ("state", "off")]);
            let off = in_state(&configured.serve.samples()?)?;
            ensure!(off == u64::from(state == "off"), "{off} methods are said to be off after {command}");
            obeys(&configured.serve, jar.name(), &mut target, state == "timed")?;
        }
        configured.reload("stubs-for = [\"*\"]\npatterns = [\"targets.Plain::twice\", \"targets.Nested::*\"]")?;
        obeys(&configured.serve, jar.name(), &mut target, false)?;
        must_be_bound_as(&target, &before.0)?;
        let made = target.calls("nested", 1, 50)?[0].made;
        configured.reload(both)?;
        obeys(&configured.serve, jar.name(), &mut target, true)?;
        must_be_bound_as(&target, &before.0)?;
        // It was bound by the first of these calls, which the service may not have been told yet.
        let all = |samples: &Exposition| Ok(samples.count(CALLS, &of_nested)? >= before.1 + made);
        let after = configured.serve.scrape_until("the calls of another method", all)?.count(CALLS, &of_nested)?;
        ensure!(after == before.1 + made, "{} of {made} calls of another method", after - before.1);
        Ok(())
    })
}
