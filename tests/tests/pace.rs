//! What a thread notices that only computes while nprof comes and goes: next to nothing.
//!
//! Each instruction that is written for a probe, or put back, interrupts every CPU that runs the target. How long the thread has waited for
//! a CPU is left out: on a machine with other work that is the others' doing. What is left is what it had a CPU for, interrupts
//! included, and it is compared with the same thread without nprof.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nprof_tests::bars::median;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::target::MANY;

/// The promise: in no tenth of a second a piece of work takes so many times as long as in the slowest without nprof. Without pauses between
/// what is written it is 1.23 to 1.6.
const MOST: f64 = 1.1;
const TENTH_NS: u64 = 100_000_000;
/// A JVM that is younger binds natives all the time, and is attached with fewer pauses.
const GROWN_UP: Duration = Duration::from_secs(5);
/// How long is waited until it is asked again.
const STEP: Duration = Duration::from_millis(200);
/// Three rounds in which something else happened decide nothing.
const ROUNDS: usize = 7;
/// The same of young JVMs, of which each round starts one: two rounds.
const YOUNG_ROUNDS: usize = 5;

/// How far the thread has come.
#[derive(Debug, Clone, Copy)]
struct Note {
    at_ns: u64,
    pieces: u64,
    waited_ns: u64,
}

impl Note {
    fn read(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["noted", at_ns, pieces, waited_ns] = words[..] else { bail!("no note: {line}") };
        Ok(Self { at_ns: at_ns.parse()?, pieces: pieces.parse()?, waited_ns: waited_ns.parse()? })
    }

    /// How long the thread has had a CPU since an earlier one.
    fn ran_since(&self, earlier: &Self) -> u64 {
        (self.at_ns - earlier.at_ns).saturating_sub(self.waited_ns - earlier.waited_ns)
    }

    /// How long a piece of work took since then, in nanoseconds.
    fn each_since(&self, earlier: &Self) -> f64 {
        self.ran_since(earlier) as f64 / (self.pieces - earlier.pieces).max(1) as f64
    }
}

/// What it has noted since the last time.
fn taken(target: &mut RemoteProcess) -> Result<Vec<Note>> {
    target.run("notes")?.iter().map(|line| Note::read(line)).collect()
}

/// What it has noted since the last time, once it has had a CPU for so long: on a machine with much other work that takes a while.
fn notes(target: &mut RemoteProcess, ns: u64) -> Result<Vec<Note>> {
    let mut notes = taken(target)?;
    while ran(&notes) < ns {
        spin(STEP);
        notes.extend(taken(target)?);
    }
    Ok(notes)
}

/// For how long the thread had a CPU from the first to the last, in nanoseconds.
fn ran(notes: &[Note]) -> u64 {
    notes.first().zip(notes.last()).map_or(0, |(first, last)| last.ran_since(first))
}

/// How long a piece of work took in the slowest tenth of a second, in nanoseconds.
fn slowest(notes: &[Note]) -> Result<f64> {
    let tenth = |(number, first): (usize, &Note)| {
        let last = notes[number..].iter().find(|note| note.ran_since(first) >= TENTH_NS)?;
        Some(last.each_since(first))
    };
    notes.iter().enumerate().filter_map(tenth).max_by(f64::total_cmp).context("it has hardly had a CPU")
}

/// Takes a CPU, as nprof does, and touches nothing: where two CPUs are one core, both are slower while both have work.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The slowest tenths of the thread of a JVM: without nprof, and while that attaches two thousand functions and detaches them.
fn round(target: &mut RemoteProcess) -> Result<[f64; 2]> {
    taken(target)?;
    let trace = Trace::start_as_users_do(target.pid(), &["targets.Many::*"])?;
    ensure!(trace.announcement.starts_with(&format!("tracing {MANY} ")), "{}", trace.announcement);
    trace.finish()?;
    let beside_nprof = notes(target, TENTH_NS)?;
    // Of more tenths the slowest is slower: there must be as many.
    let alone = notes(target, ran(&beside_nprof))?;
    Ok([slowest(&alone)?, slowest(&beside_nprof)?])
}

fn computing(jdk: &Jdk) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::computing(jdk)?;
    target.run("begin")?;
    Ok(target)
}

/// Checks that the slowest tenth is no slower with nprof than the slowest without, but for the promise.
fn must_keep_the_promise(jdk: &Jdk, rounds: &[[f64; 2]]) -> Result<()> {
    let of = |which: usize| rounds.iter().map(move |round| round[which]);
    let (without, with) = (of(0).fold(0.0, f64::max), median(of(1)));
    say(&format!("{jdk}: ns for a piece of work in the slowest tenths, without nprof and with it: {rounds:.0?}"));
    ensure!(with < MOST * without, "{with:.0} ns by nprof, {without:.0} without");
    Ok(())
}

/// Check that nprof keeps its promise to a JVM that has run for a while.
#[test]
fn who_only_computes_hardly_notices() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = computing(jdk)?;
        sleep(GROWN_UP);
        let rounds: Vec<_> = (0..ROUNDS).map(|_| round(&mut target)).collect::<Result<_>>()?;
        must_keep_the_promise(jdk, &rounds)?;
        target.exit()
    })
}

/// Check that it does so where it finds a JVM that has only just been started, whose methods it is to count from their first calls on.
#[test]
fn nor_in_a_young_jvm() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let fresh = |_| {
            let mut target = computing(jdk)?;
            // Until it is compiled.
            notes(&mut target, TENTH_NS)?;
            let seen = round(&mut target)?;
            target.exit()?;
            Ok(seen)
        };
        let rounds: Vec<_> = (0..YOUNG_ROUNDS).map(fresh).collect::<Result<_>>()?;
        must_keep_the_promise(jdk, &rounds)
    })
}
