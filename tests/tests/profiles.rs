//! `nprof serve --profiles`: the last hour of each JVM, and whoever asks for it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::model::Profile;
use nprof_tests::jar::Jar;
use nprof_tests::nprof::{Outcome, run};
use nprof_tests::require::{on_every_jdk, say, traced_on_every_jdk};
use nprof_tests::serve::{Serve, UNGOVERNED};
use tempfile::TempDir;

use crate::callers::{COUNTED, Callers, Truth, function, read, told};
use crate::serve::CALLS;

/// The class of the JVMs that are traced, each test's by the name of its own jar.
const MAIN: &str = "targets.Callers";
/// Windows that a test need not wait long for.
const PROFILES: [&str; 3] = ["--profiles", "--profile-window", "1s"];
/// How long calls may take to be in a window that is over.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(100);

fn ask(control: &Path, args: &[&str]) -> Result<Outcome> {
    let control = control.to_str().context("a path in UTF-8")?;
    run(&[&["flamegraph", "--from-serve", "--control", control], args].concat())
}

/// What a service knows of a process.
fn profile(serve: &Serve, pid: u32) -> Result<Profile> {
    let directory = TempDir::new()?;
    let (file, pid) = (directory.path().join("served.nprof"), pid.to_string());
    let path = file.to_str().context("a path in UTF-8")?;
    let outcome = ask(&serve.control(), &["--pid", &pid, "--last", "1h", "-o", path])?;
    ensure!(outcome.code == Some(0), "{outcome:?}");
    read(&file)
}

/// The same once all of these calls are in windows.
fn profile_with(serve: &Serve, pid: u32, native: &str, calls: u64) -> Result<Profile> {
    let deadline = Instant::now() + GIVE_UP_AFTER;
    loop {
        let known = profile(serve, pid);
        let seen = known.as_ref().ok().and_then(|profile| function(profile, native).ok()).map_or(0, |of| of.calls);
        if seen >= calls {
            return known;
        }
        ensure!(Instant::now() < deadline, "{seen} of {calls} calls of {native}: {known:?}");
        std::thread::sleep(PAUSE);
    }
}

/// Holds if every stack is one that the target had along this path, and there are some.
fn must_be_along(path: &str, profile: &Profile, truth: &Truth) -> Result<()> {
    let stacks = &truth.path(path, "tick")?.stacks;
    let tick = profile.functions.iter().position(|of| of.method == "tick").context("no function")?;
    let mut samples = 0;
    for totals in profile.calls.iter().filter(|totals| totals.function.map(|at| at as usize) == Some(tick)) {
        let stack = &profile.stacks[totals.stack as usize];
        let told = told(profile, stack);
        ensure!(stack.cut.is_some() || stacks.contains(&told), "{told:?} is not along {path}");
        samples += totals.samples;
    }
    let quality = &profile.quality;
    say(&format!("    {path}: {samples} samples, {} of {} stacks complete", quality.complete, quality.stacks));
    ensure!(samples > 20 && 100 * quality.complete >= 99 * quality.stacks, "{samples} samples: {quality:?}");
    Ok(())
}

/// Check that each of two JVMs, by probes and by stubs, has its own profile from one ring: every stack is one of its own, all
/// calls are in it and none twice, as in the metrics; that it tells work from waiting; and that one that has ended still has it.
#[test]
fn each_jvm_has_its_own() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "profiled", MAIN)?;
        for stubs in [&[][..], &["--stubs-for", "*"]] {
            let (mut one, mut other) = (Callers::start_from(&jar)?.learn()?, Callers::start_from(&jar)?.learn()?);
            let serve = Serve::start(&[&UNGOVERNED[..], &PROFILES, &["--jvm", jar.name()], stubs, &COUNTED].concat())?;
            one.run("go inlined:1 2 1000000000 2500")?;
            other.run("go recursion40:1 2 1000000000 2500")?;
            let truths = [one.truth()?, other.truth()?];
            let profiles = [(&one, &truths[0]), (&other, &truths[1])]
                .map(|(target, truth)| profile_with(&serve, target.pid(), "tick", truth.calls("tick")));
            say(&format!("JDK {} {stubs:?}", jdk.version));
            for ((profile, truth), path) in profiles.iter().zip(&truths).zip(["inlined", "recursion40"]) {
                let profile = profile.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
                let (calls, made) = (function(profile, "tick")?.calls, truth.calls("tick"));
                ensure!(calls == made, "{calls} of {made} calls");
                ensure!(profile.about.off_cpu, "work is not told from waiting");
                must_be_along(path, profile, truth)?;
            }
            let counted = serve.samples()?.count(CALLS, &[("method", "tick")])?;
            ensure!(counted == truths.iter().map(|truth| truth.calls("tick")).sum::<u64>(), "{counted} in metrics");
            let (pid, made) = (one.pid(), truths[0].calls("tick"));
            one.exit()?;
            serve.scrape_until("the end of a JVM", |samples| Ok(samples.count("nprof_jvms", &[])? == 1))?;
            let calls = function(&profile_with(&serve, pid, "tick", made)?, "tick")?.calls;
            ensure!(calls == made, "{calls} of {made} calls after its end");
            other.exit()?;
        }
        Ok(())
    })
}

/// Check that whoever asks in vain is told why: of a JVM that is not known, of none in particular, of more than is kept, where there
/// are no profiles, and where nobody serves.
#[test]
fn refusals_say_why() -> Result<()> {
    on_every_jdk(|jdk| {
        let jar = Jar::of(jdk, "refused", MAIN)?;
        let jvm = ["--jvm", jar.name()];
        let mut target = Callers::start_from(&jar)?;
        let serve = Serve::start(&[&UNGOVERNED[..], &PROFILES, &jvm, &COUNTED].concat())?;
        target.run("go direct:1 1 1000 60000")?;
        profile_with(&serve, target.pid(), "tick", 1000)?;
        let refused = |control: &Path, args: &[&str], why: &str| -> Result<()> {
            let outcome = ask(control, &[args, &["-o", "-"]].concat())?;
            ensure!(outcome.code == Some(2) && outcome.stderr.contains(why), "{args:?}: {outcome:?}");
            Ok(())
        };
        let (control, named) = (serve.control(), format!("{} ({})", target.pid(), jar.name()));
        refused(&control, &["--pid", "1"], &named)?;
        refused(&control, &["--jvm", "no.such"], &named)?;
        refused(&control, &["--last", "2h"], "the last hour")?;
        refused(&control, &["-d", "1s", "--pid", "1"], "omit the options of how to record")?;
        refused(Path::new("/no/such/socket"), &[], "is `nprof serve` running?")?;
        let status = serve.ctl_succeeds(&["status"])?;
        ensure!(status.contains("\nprofiles: "), "{status}");
        ensure!(serve.finish()?.success(), "the service has not ended well");
        let without = Serve::start(&[&UNGOVERNED[..], &jvm, &COUNTED].concat())?;
        refused(&without.control(), &[], "`nprof serve --profiles`")?;
        let status = without.ctl_succeeds(&["status"])?;
        ensure!(!status.contains("profiles"), "{status}");
        target.exit()
    })
}
