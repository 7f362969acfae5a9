//! Ids that are kept are those that the VM gives, whatever happens to the classes; and the VM's table is left as it was found.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::id_cache_report::{IdCache, IdCacheRow};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::run;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

const COLLECTORS: [&str; 5] =
    ["-XX:+UseG1GC", "-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseZGC", "-XX:+UseShenandoahGC"];
const THREADS: u32 = 4;
const ROUNDS: u32 = 30;
/// The least part of look-ups that are hits while classes come and go, of those that are not left alone: each class is looked up in a
/// thousand times. How many are left alone depends on how fast collections free what was kept, so on what else the machine does.
const LEAST_HITS: f64 = 0.9;
/// The least part of all look-ups.
const LEAST_HITS_OF_ALL: f64 = 0.25;

/// The number that a command answers with.
fn number(target: &mut RemoteProcess, command: &str) -> Result<u64> {
    let answer = target.run(command)?;
    answer.first().and_then(|line| line.parse().ok()).with_context(|| format!("{command}: {answer:?}"))
}

/// Has classes come, go and change while threads look members up in them: how many look-ups that were, of which none was wrong.
fn churn(target: &mut RemoteProcess) -> Result<u64> {
    let answer = target.run(&format!("churn {THREADS} {ROUNDS}"))?;
    let (made, wrong) = answer.first().and_then(|line| line.split_once(' ')).context("no answer")?;
    ensure!(wrong == "0", "{wrong} of {made} look-ups found something else than the VM");
    Ok(made.parse()?)
}

/// Check that all look-ups have been seen and none was wrong.
fn must_be_right(kept: &IdCacheRow, made: u64) -> Result<()> {
    ensure!(kept.sum(|row| row.wrong) == 0, "{kept:?}");
    // The VM and the JDK look something up, too.
    ensure!(kept.look_ups() >= made && kept.look_ups() < made + 10_000, "{made} look-ups were made: {kept:?}");
    let by_caller: u64 = kept.callers.iter().map(|row| row.hits + row.misses + row.left_alone).sum();
    ensure!(by_caller == kept.look_ups() && kept.callers_left_out == 0, "{kept:?}");
    Ok(())
}

/// Check every look-up beside the VM's own, from several threads, under each collector, while classes are loaded, unloaded and redefined.
#[test]
fn every_hit_is_right() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        COLLECTORS.into_iter().try_for_each(|collector| {
            let mut target = RemoteProcess::looking(jdk, &[collector, "-Xmx256m"])?;
            let cache = IdCache::start(target.pid())?;
            let made = churn(&mut target)?;
            let kept = cache.finish()?;
            must_be_right(&kept, made).with_context(|| collector)?;
            let hits = kept.sum(|row| row.hits) as f64;
            let tried = hits + kept.sum(|row| row.misses) as f64;
            ensure!(hits > LEAST_HITS * tried, "{collector}: {made} made: {kept:?}");
            ensure!(hits > LEAST_HITS_OF_ALL * made as f64, "{collector}: {made} made: {kept:?}");
            ensure!(kept.sum(|row| row.timed) > 0, "{kept:?}");
            target.exit()
        })
    })
}

/// Check that what is not found throws what it always throws, that nothing is found while an exception is pending, and that a class that
/// is initialised in vain gives nothing, although it gave something to itself.
#[test]
fn failures_are_the_vms() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::looking(jdk, &[])?;
        let cache = IdCache::start(target.pid())?;
        target.run("failures")?;
        target.run("initialising")?;
        let kept = cache.finish()?;
        // Each of these is asked for again and again, and was never found.
        ensure!(kept.sum(|row| row.misses + row.left_alone) >= 4_000, "{kept:?}");
        target.exit()
    })
}

/// Check that the table is as it was when nprof has ended, has been killed or has never begun, and that calls go on all the while.
#[test]
fn the_table_is_put_back() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::looking(jdk, &[])?;
        ensure!(number(&mut target, "replaced")? == 0);
        for _ in 0..3 {
            let cache = IdCache::start(target.pid())?;
            ensure!(number(&mut target, "replaced")? == 4);
            let made = churn(&mut target)?;
            must_be_right(&cache.finish()?, made)?;
            ensure!(number(&mut target, "replaced")? == 0);
        }
        let cache = IdCache::start(target.pid())?;
        churn(&mut target)?;
        cache.kill()?;
        let deadline = Instant::now() + PATIENCE;
        while number(&mut target, "replaced")? > 0 {
            ensure!(Instant::now() < deadline, "the table is not put back after nprof was killed");
        }
        churn(&mut target)?;
        target.exit()
    })
}

/// Check that another agent's function is called for each miss if it came before, for each call if it came later, and that neither order
/// of their leaving harms the other.
#[test]
fn other_agents() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::looking(jdk, &[])?;
        comes_before(jdk, &mut target)?;
        comes_later(&mut target)?;
        target.exit()
    })
}

fn comes_before(jdk: &Jdk, target: &mut RemoteProcess) -> Result<()> {
    target.run("wrap true")?;
    let cache = IdCache::start(target.pid())?;
    let before = number(target, "wrapped")?;
    churn(target)?;
    let seen = number(target, "wrapped")? - before;
    let kept = cache.finish()?;
    let methods = kept.functions.iter().find(|row| row.function == "GetMethodID").context("no row")?;
    // A hit that is to be timed asks it as well, which is one of 64 at most; its time is nobody's if the thread is interrupted. All that it
    // saw since is counted; some were counted before it was asked how many it saw.
    let alone = methods.misses + methods.left_alone;
    ensure!(methods.timed > 0, "{jdk}: {methods:?}");
    ensure!(seen <= alone + methods.hits / 64, "{jdk}: {seen} calls, {methods:?}");
    ensure!(seen + 100 >= alone + methods.timed, "{jdk}: {seen} calls, {methods:?}");
    let all = methods.hits + methods.misses + methods.left_alone;
    ensure!(methods.hits as f64 > LEAST_HITS_OF_ALL * all as f64, "{jdk}: {methods:?}");
    ensure!(number(target, "replaced")? == 1, "the agent's function is gone");
    target.run("wrap false")?;
    ensure!(number(target, "replaced")? == 0);
    Ok(())
}

fn comes_later(target: &mut RemoteProcess) -> Result<()> {
    let cache = IdCache::start(target.pid())?;
    target.run("wrap true")?;
    let before = number(target, "wrapped")?;
    let made = churn(target)?;
    ensure!(number(target, "wrapped")? - before >= made / 4, "the agent's function was not called");
    let kept = cache.finish()?;
    must_be_right(&kept, made)?;
    ensure!(kept.functions_behind_others == 1, "{kept:?}");
    ensure!(number(target, "replaced")? == 1);
    churn(target)?;
    // Ours is behind the agent's by now: it serves from there, and is left there again.
    let cache = IdCache::start(target.pid())?;
    let made = churn(target)?;
    let kept = cache.finish()?;
    must_be_right(&kept, made)?;
    ensure!(kept.functions.iter().all(|row| row.hits > 0), "{kept:?}");
    target.run("wrap false")?;
    churn(target)?;
    Ok(())
}

/// Check that nothing is kept where each call is to be checked: nprof says so, and the JVM goes on.
#[test]
fn checked_calls_are_left_alone() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::looking(jdk, &["-Xcheck:jni"])?;
        let refused = run(&["jni", "--pid", &target.pid().to_string(), "--id-cache"])?;
        ensure!(refused.code == Some(2) && refused.stderr.contains("-Xcheck:jni"), "{refused:?}");
        ensure!(number(&mut target, "replaced")? == 0);
        target.exit()
    })
}

/// Check that what was kept until then is told when the JVM ends.
#[test]
fn the_jvm_ends() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::looking(jdk, &[])?;
        let cache = IdCache::start(target.pid())?;
        let made = churn(&mut target)?;
        target.exit()?;
        must_be_right(&cache.wait()?, made)
    })
}
