//! nprof comes and goes, again and again, or is killed: the target's results stay right, and nothing piles up in it.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof::discover::Proc;
use nprof::model::Pid;
use nprof::resolve::select::Selection;
use nprof::trace::{Options, Prepared, TierWanted, Tracer};
use nprof_tests::child::PATIENCE;
use nprof_tests::code::mappings;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::{Trace, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::random::Random;
use nprof_tests::report::Report;
use nprof_tests::require::{does_not_concern, say, traced_on_every_jdk};
use nprof_tests::shape_source;
use nprof_tests::shim::still_stubbed;
use rustix::process::Signal;

use crate::TARGETS;
use crate::stubs::{GENERATED, THREADS, call_shapes, must_be_right};
use crate::tiers::must_add_up;

const PATTERN: &str = "targets.Generated::*";
/// From which cycle on nothing may grow.
const WARM: usize = 10;
/// The last JDK that takes the code of calls away that is not used any more. Later ones keep it until the class goes.
const LAST_SWEEPER: u32 = 19;
/// The most that this code takes for a native at each attaching or detaching, with what the VM notes about it.
const CALL_KB: u64 = 2;
/// Too little room for the code of all cycles.
const LITTLE_CODE: &str = "16m";
/// What is not growth: what the VM's own threads take now and then, and give back.
const NOISE_KB: u64 = 8 * 1024;

/// What a process has taken of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Footprint {
    /// Memory that is writable and executable: the VM's code cache.
    code_kb: u64,
    /// All other memory that is there.
    resident_kb: u64,
    /// How many times the shim is mapped, and has its thread.
    shims: (usize, usize),
    descriptors: usize,
}

impl Footprint {
    /// That of a JVM without garbage.
    fn of(target: &mut RemoteProcess) -> Result<Self> {
        for _ in 0..3 {
            target.run("collect")?;
            target.run("calm")?;
        }
        let pid = target.pid();
        let (code_kb, resident_kb) = resident(pid)?;
        let mapped = mappings(pid)?;
        let mapped = mapped.iter().filter(|m| m.executable && m.library().starts_with("libnprof_shim")).count();
        // It ends when it has said that all is done.
        let deadline = Instant::now() + PATIENCE;
        while shim_threads(pid)? > 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Self { code_kb, resident_kb, shims: (mapped, shim_threads(pid)?), descriptors })
    }
}

/// How many threads of the shim a process has.
pub(crate) fn shim_threads(pid: u32) -> Result<usize> {
    let names = std::fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Ok(names.filter(|name| name == "nprof-shim\n").count())
}

/// How much of a process's code cache is in memory, and of all else, in kB.
fn resident(pid: u32) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut code_kb, mut other_kb, mut is_code) = (0, 0, false);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Rss:"), Some(rss)) if is_code => code_kb += rss.parse::<u64>()?,
            (Some("Rss:"), Some(rss)) => other_kb += rss.parse::<u64>()?,
            // The first line of a mapping: addresses and rights.
            (Some(first), Some(rights)) if !first.ends_with(':') => is_code = rights.starts_with("rwx"),
            _ => {}
        }
    }
    Ok((code_kb, other_kb))
}

/// A JVM whose heap is all there from the start, so that what grows is something else.
fn target(jdk: &Jdk) -> Result<RemoteProcess> {
    // Where the VM can make room among its code it has to: there is not enough for all cycles.
    with_room_for_code(jdk, if jdk.version > LAST_SWEEPER { "512m" } else { LITTLE_CODE })
}

fn with_room_for_code(jdk: &Jdk, code: &str) -> Result<RemoteProcess> {
    let code = format!("-XX:ReservedCodeCacheSize={code}");
    let mut target = RemoteProcess::stressed(jdk, &["-Xms128m", "-XX:+AlwaysPreTouch", &code])?;
    call_shapes(&mut target, THREADS, 1)?;
    Ok(target)
}

/// nprof with stubs before all generated natives, in this process.
fn attached(target: &RemoteProcess) -> Result<Tracer> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(target.pid()))?;
    let selection = Selection::parse(&[PATTERN.to_owned()], &[], &[])?;
    let options = Options { tier: TierWanted::Stub, ..Options::by_probes(selection) };
    let tracer = Prepared::new(proc, jvm, options)?.attach()?;
    ensure!(tracer.stubs() >= shape_source::count(), "only {} stubs", tracer.stubs());
    Ok(tracer)
}

/// Attaches and detaches under load, and compares what the target has taken after the first cycles and after the last.
fn come_and_go(jdk: &Jdk, cycles: usize) -> Result<()> {
    let mut target = target(jdk)?;
    target.run("load 4")?;
    let mut warm = None;
    for cycle in 1..=cycles {
        attached(&target).with_context(|| format!("cycle {cycle}"))?.stop();
        if cycle == WARM {
            warm = Some(Footprint::of(&mut target)?);
        }
    }
    let (warm, last) = (warm.context("too few cycles")?, Footprint::of(&mut target)?);
    must_be_right(&target.run("unload")?, None)?;
    ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
    say(&format!("{jdk}: after {WARM} cycles {warm:?}, after {cycles} {last:?}"));
    must_be_bounded(jdk, warm, last, cycles - WARM)?;
    ensure!(last.shims == (1, 0) && last.descriptors == warm.descriptors, "{warm:?}, then {last:?}");
    must_compile(jdk, &target)?;
    must_count_exactly(&mut target)?;
    target.exit()
}

/// Checks that memory has not grown, but for the code that newer VMs keep.
fn must_be_bounded(jdk: &Jdk, warm: Footprint, last: Footprint, cycles: usize) -> Result<()> {
    if jdk.version <= LAST_SWEEPER {
        ensure!(last.resident_kb < warm.resident_kb + NOISE_KB, "memory grows: {warm:?}, then {last:?}");
        return Ok(());
    }
    let bindings = u64::try_from(2 * cycles * shape_source::count())?;
    let all = |footprint: Footprint| footprint.code_kb + footprint.resident_kb;
    ensure!(all(last) < all(warm) + CALL_KB * bindings + NOISE_KB, "code grows: {warm:?}, then {last:?}");
    Ok(())
}

/// Checks that the VM's compilers never had to stop for want of room.
fn must_compile(jdk: &Jdk, target: &RemoteProcess) -> Result<()> {
    let output = Command::new(jdk.tool("jcmd")).arg(target.pid().to_string()).arg("Compiler.codecache").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("ompilation: enabled") && said.contains("stopped_count=0"), "{said}");
    Ok(())
}

/// Checks that nprof attaches once more, counts each call, and leaves nothing.
fn must_count_exactly(target: &mut RemoteProcess) -> Result<()> {
    let trace = Trace::start(target.pid(), &["--tier", "stub", PATTERN])?;
    call_shapes(target, THREADS, 10)?;
    must_have_seen(&trace.finish()?, 10 * THREADS)?;
    ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
    Ok(())
}

fn must_have_seen(report: &Report, calls: u64) -> Result<()> {
    let rows = report.methods.iter().filter(|row| row.class == GENERATED && row.method != "hash");
    let right = rows.filter(|row| (row.calls, row.in_flight, row.tier.as_str()) == (calls, Some(0), "stub")).count();
    ensure!(right == shape_source::count(), "{right} of {} methods were counted exactly", shape_source::count());
    ensure!(report.lost() == 0, "{:?}", report.losses);
    Ok(())
}

/// Check that attaching and detaching under load leaves every result right, that nothing grows in the target, that all
/// methods have their own addresses at the end, and that the next nprof counts exactly.
#[test]
fn thirty_cycles() -> Result<()> {
    traced_on_every_jdk(|jdk| come_and_go(jdk, 3 * WARM))
}

/// Check the same two hundred times.
#[test]
#[ignore = "takes minutes: run it by its name"]
fn two_hundred_cycles() -> Result<()> {
    traced_on_every_jdk(|jdk| come_and_go(jdk, 200))
}

/// Check that nprof gives up before the VM has no room for compiled code any more, where the VM keeps the code of calls for
/// good: the JVM goes on as before.
#[test]
fn room_for_code() -> Result<()> {
    const MOST: usize = 60;
    traced_on_every_jdk(|jdk| {
        if jdk.version <= LAST_SWEEPER {
            return does_not_concern(jdk, "its VM sweeps the code of calls away");
        }
        let mut target = with_room_for_code(jdk, LITTLE_CODE)?;
        target.run("load 4")?;
        let mut attempts = (0..MOST).map(|_| attached(&target).map(|mut tracer| tracer.stop()));
        let refusal = attempts.find_map(Result::err).context("never refused")?;
        ensure!(format!("{refusal:#}").contains("MB for compiled code"), "{refusal:#}");
        must_be_right(&target.run("unload")?, None)?;
        must_compile(jdk, &target)?;
        ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
        target.exit()
    })
}

/// Check that an nprof that is killed at any moment, while it attaches, while it measures or while it detaches, leaves a
/// target whose results are right, and that the next one takes over, counts exactly and leaves nothing.
#[test]
fn killed_at_any_moment() -> Result<()> {
    const KILLED: usize = 12;
    traced_on_every_jdk(|jdk| {
        let mut random = Random::new(0x6e70_726f);
        let mut target = target(jdk)?;
        let pid = target.pid().to_string();
        for round in 0..KILLED {
            target.run("load 4")?;
            if round % 3 == 0 {
                // While it detaches, or shortly after.
                let trace = Trace::start(target.pid(), &["--tier", "stub", PATTERN])?;
                trace.end_without_waiting(Signal::INT, random.within(100))?;
            } else {
                let mut nprof = spawn(&["trace", "--tier", "stub", "--pid", &pid, PATTERN])?;
                // No synchronisation: the moment is to be any.
                std::thread::sleep(random.within(1_000));
                nprof.kill()?;
            }
            must_be_right(&target.run("unload")?, None)?;
            if round % 4 == 3 {
                must_count_exactly(&mut target)?;
            }
        }
        attached(&target)?.stop();
        ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
        must_count_exactly(&mut target)?;
        target.exit()
    })
}

/// How many addresses a process has of memory that is writable, of no file, and not accounted for before it is used, in kB:
/// what the shim's records leave behind, and little else.
fn unaccounted_kb(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut sum, mut size, mut is_private) = (0, 0, false);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Size:", kb, ..] => size = kb.parse::<u64>()?,
            ["VmFlags:", ref flags @ ..] if is_private && flags.contains(&"nr") => sum += size,
            [first, rights, ..] if !first.ends_with(':') => is_private = rights == "rw-p" && words.len() == 5,
            _ => {}
        }
    }
    Ok(sum)
}

/// Check that each nprof gives its records the addresses of those before, so that the second and all later ones leave no more
/// behind than the first, but for what the VM itself takes.
#[test]
fn addresses_are_used_again() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = target(jdk)?;
        let before = unaccounted_kb(target.pid())?;
        let mut after = Vec::new();
        for _ in 0..6 {
            attached(&target)?.stop();
            after.push(unaccounted_kb(target.pid())? - before);
        }
        let first = after[0];
        say(&format!("{jdk}: {first} kB of addresses for records after one nprof, {} after six", after[5]));
        ensure!(first > NOISE_KB, "the measure does not see the records: {after:?}");
        ensure!(after.iter().all(|&kb| kb < first + NOISE_KB), "kB after each: {after:?}");
        target.exit()
    })
}

/// Check that calls that are in flight when an nprof goes, and return when the next one has its records at the same addresses,
/// are in no number of the second, and that all its other numbers are exact.
#[test]
fn calls_that_outlast_their_nprof() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let block = MethodName::new("targets.Blocking", "block", "()V");
        let options = ["--tier", "stub", TARGETS];
        for blocked in [3, 6] {
            let trace = Trace::start(target.pid(), &options)?;
            target.run(&format!("block {blocked}"))?;
            let row = trace.finish()?.needed_row(&block)?.clone();
            ensure!((row.calls, row.in_flight) == (0, Some(blocked)), "{row:?}");
            let trace = Trace::start(target.pid(), &options)?;
            let called = target.calls("all", 4, 50)?;
            target.run("release")?;
            let report = trace.finish()?;
            must_add_up(&report, &called)?;
            ensure!(report.row(&block).is_none(), "{:?}", report.row(&block));
        }
        target.exit()
    })
}
