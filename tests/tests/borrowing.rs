//! Threads that stay inside traced calls and make others there: the kernel ends no removal of a probe meanwhile, and nothing may wait for
//! that. What waits is told by the order of what happens, with the call that stays open to the end.

use anyhow::{Context, Result, ensure};
use nprof_tests::child::Stream;
use nprof_tests::exposition::Exposition;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::{outcome, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::{does_not_concern, traced_on_every_jdk};
use nprof_tests::serve::{Serve, UNGOVERNED};
use rustix::process::Signal;

use crate::serve::CALLS;

const JVM: &str = "targets.Lingering";
/// Calls in a round: a few milliseconds without probes, and up to a second with them.
const HOT_CALLS: u32 = 50_000;
/// A native that is called all the time is demoted in the first few of so many.
const ROUNDS: usize = 60;
/// Who pauses for so long, nearly a tenth of a second, may have given back what it has borrowed.
const GIVEN_BACK_NS: u64 = 80_000_000;
/// A probe makes a call that does nothing ten to forty times as long.
const SLOWED: u64 = 4;

/// A target whose thread goes into its native once a service has its probes there.
fn staying(jdk: &Jdk, serve: &Serve) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::lingering(jdk)?;
    let timed = [("state", "timed")];
    serve.scrape_until("the probes", |samples| Ok(samples.with("nprof_methods", &timed).any(|of| of.value == 2.0)))?;
    target.run("stay")?;
    Ok(target)
}

/// How long a round of calls takes, made inside the native, in nanoseconds.
fn hot_ns(target: &mut RemoteProcess) -> Result<u64> {
    number(&target.run(&format!("hot {HOT_CALLS}"))?, "took ")
}

/// The number behind a word that a target has answered.
fn number(answer: &[String], word: &str) -> Result<u64> {
    let number = answer.first().and_then(|line| line.strip_prefix(word)).with_context(|| format!("{answer:?}"))?;
    Ok(number.parse()?)
}

/// Check that nprof ends while the call goes on, with every call that was made counted, and the open one told.
#[test]
fn a_trace_ends() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::lingering(jdk)?;
        let pid = target.pid().to_string();
        let options = [&UNGOVERNED[..], &["--format", "json", "--pid", &pid, "targets.Lingering::*"]];
        let mut nprof = spawn(&[&["trace"], &options.concat()[..]].concat())?;
        nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
        target.run("stay")?;
        hot_ns(&mut target)?;
        nprof.signal(Signal::INT)?;
        let run = outcome(nprof)?;
        ensure!(run.code == Some(0), "{run:?}");
        let report: Report = serde_json::from_str(run.stdout.trim_end().lines().last().context("no document")?)?;
        let row = |name, signature| report.needed_row(&MethodName::new(JVM, name, signature));
        ensure!(row("beat", "()V")?.calls >= u64::from(HOT_CALLS), "{:?}", row("beat", "()V")?);
        let stays = row("stay", "(Ljava/lang/Runnable;)V")?;
        ensure!(stays.in_flight == Some(1), "{stays:?}");
        target.run("leave")?;
        target.exit()
    })
}

/// Check that nprof says why the kernel keeps its process, where it is a thread of a JVM that another traces which stays in a call, and
/// that it has given its results before.
#[test]
fn who_is_kept_says_so() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let serve = Serve::start(&[&UNGOVERNED[..], &["--jvm", JVM, JVM]].concat())?;
        let mut target = staying(jdk, &serve)?;
        let mut other = RemoteProcess::shapes(jdk)?;
        let pid = other.pid().to_string();
        let options = [&UNGOVERNED[..], &["--format", "json", "--pid", &pid, "targets.Plain"]].concat();
        let mut nprof = spawn(&[&["trace"], &options[..]].concat())?;
        nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
        other.calls("instance", 2, 50)?;
        nprof.signal(Signal::INT)?;
        let document = nprof.line(Stream::Stdout);
        let is_kept = lends_return_probes()?;
        let told = is_kept.then(|| nprof.line_with_prefix(Stream::Stderr, "nprof: all is done, but the kernel keeps"));
        // So is what the other nprof has of it. Before anything can fail: until then nprof does not even end by SIGKILL.
        let paused = number(&target.run("leave")?, "paused ")?;
        if paused < GIVEN_BACK_NS {
            told.transpose()?;
        } else {
            does_not_concern(jdk, &format!("what it says: on this busy machine the thread paused for {paused} ns"))?;
        }
        let report: Report = serde_json::from_str(&document?)?;
        ensure!(report.needed_row(&MethodName::new("targets.Plain", "twice", "(J)J"))?.calls == 100);
        let run = outcome(nprof)?;
        ensure!(run.code == Some(0), "{run:?}");
        ensure!(serve.finish()?.success(), "the service has not ended well");
        other.exit()?;
        target.exit()
    })
}

/// Whether this kernel lends return probes to calls: it does from Linux 6.13 on.
fn lends_return_probes() -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    Ok(numbers.next().zip(numbers.next()).context("no version")? >= (6, 13))
}

/// Check that a native which becomes hot inside the call is demoted, and its callers are no longer slowed.
#[test]
fn what_is_hot_is_demoted() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::lingering(jdk)?;
        let pid = target.pid().to_string();
        let mut nprof = spawn(&["trace", "--max-overhead", "1%", "--pid", &pid])?;
        nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
        target.run("stay")?;
        let rounds = (0..ROUNDS).map(|_| hot_ns(&mut target)).collect::<Result<Vec<u64>>>()?;
        nprof.signal(Signal::INT)?;
        let run = outcome(nprof)?;
        ensure!(run.code == Some(0), "{run:?}");
        let without = (0..5).map(|_| hot_ns(&mut target)).collect::<Result<Vec<u64>>>()?;
        let usual = |rounds: &[u64]| {
            let mut rounds = rounds.to_vec();
            rounds.sort_unstable();
            rounds[rounds.len() / 2]
        };
        let (traced, free) = (usual(&rounds[ROUNDS / 2..]), usual(&without));
        ensure!(
            traced < SLOWED * free,
            "{traced} ns with nprof, {free} without: {rounds:?} {without:?}\n{}",
            run.stderr
        );
        target.run("leave")?;
        target.exit()
    })
}

/// Check that a service has exact counts of JVMs that come and go meanwhile, also of natives that are bound later, and ends.
#[test]
fn others_come_and_go() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let serve = Serve::start(&[&UNGOVERNED[..], &["--label", "jvm={main:simple}", "targets.*"]].concat())?;
        let mut target = staying(jdk, &serve)?;
        for round in 1..=3 {
            let mut other = RemoteProcess::shapes(jdk)?;
            let others = sum_of(&serve.samples()?);
            serve.scrape_until("the other JVM", |samples| {
                other.calls("instance", 1, 1)?;
                Ok(sum_of(samples) > others)
            })?;
            let before = sum_of(&serve.samples()?);
            other.calls("instance", 3, 100)?;
            let rose = sum_of(&serve.samples()?) - before;
            ensure!(rose == 300.0, "round {round}: {rose} calls, not 300");
            other.exit()?;
            serve.scrape_until("one JVM", |samples| Ok(samples.value("nprof_jvms", &[])? == Some(1.0)))?;
        }
        hot_ns(&mut target)?;
        ensure!(serve.finish()?.success(), "the service has not ended well");
        target.run("leave")?;
        target.exit()
    })
}

/// All calls of a native of the JVMs that come and go.
fn sum_of(samples: &Exposition) -> f64 {
    samples.with(CALLS, &[("class", "targets.Plain"), ("method", "twice")]).map(|sample| sample.value).sum()
}
