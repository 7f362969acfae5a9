//! Two tiers, one report: whoever counts a call, stub or probe, it is counted once, and nprof leaves the target as it was.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nprof::discover::Proc;
use nprof::model::{Pid, Snapshot, Tier};
use nprof::resolve::select::Selection;
use nprof::trace::{Options, Prepared, TierWanted, Tracer};
use nprof_common::Mode;
use nprof_tests::code::{mappings, still_probed};
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::{Trace, methods, run};
use nprof_tests::process::{Called, RemoteProcess};
use nprof_tests::report::{Report, Row};
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::shim::still_stubbed;
use nprof_tests::target::THOUSANDS;

use crate::TARGETS;

const SHIM: &str = "libnprof_shim.so";
const STUBS: [&str; 3] = ["--tier", "stub", TARGETS];
/// How long nprof may take for what it does in the background.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The rows of the methods of a function.
fn rows<'a>(report: &'a Report, function: &Called) -> Vec<&'a Row> {
    let is_of = |row: &&Row| {
        let has = |method: &MethodName| row.name() == *method || row.aliases.contains(&method.without_signature());
        function.methods.iter().any(has)
    };
    report.methods.iter().filter(is_of).collect()
}

/// Checks that every function has as many calls as were made, over all rows of its methods, and none in flight.
pub(crate) fn must_add_up(report: &Report, called: &[Called]) -> Result<()> {
    ensure!(!called.is_empty(), "nothing was called");
    for function in called {
        let rows = rows(report, function);
        let seen: u64 = rows.iter().map(|row| row.calls).sum();
        let in_flight: u64 = rows.iter().filter_map(|row| row.in_flight).sum();
        let made = function.made;
        ensure!((seen, in_flight) == (made, 0), "{made} calls made, {seen} seen, {in_flight} in flight: {rows:?}");
    }
    ensure!(report.lost() == 0, "something was lost: {:?}", report.losses);
    Ok(())
}

/// Checks that what was called was counted by stubs alone.
pub(crate) fn must_be_stubbed(report: &Report, called: &[Called]) -> Result<()> {
    for row in called.iter().flat_map(|function| rows(report, function)) {
        ensure!(row.tier == "stub" && row.cost.is_none(), "not by a stub: {row:?}");
    }
    Ok(())
}

/// Checks that no method has the address of a stub, and no function of the target's library a probe.
pub(crate) fn must_be_as_before(target: &RemoteProcess) -> Result<()> {
    let stubbed = still_stubbed(target.pid())?;
    ensure!(stubbed.is_empty(), "still bound to stubs: {stubbed:?}");
    let list = methods(target.pid(), &[])?;
    let library = "libshapes.so";
    let of_library = list.methods.iter().filter(|listed| listed.library.as_deref() == Some(library));
    let sites: Vec<u64> = of_library.filter_map(|listed| listed.offset).collect();
    ensure!(sites.len() > 30, "only {} sites in {library}", sites.len());
    ensure!(still_probed(target.pid(), library, &sites)?.is_empty(), "probes are left in the target");
    Ok(())
}

pub(crate) fn has_shim(pid: u32) -> Result<bool> {
    Ok(mappings(pid)?.iter().any(|mapping| mapping.library().starts_with(SHIM)))
}

/// Check that stubs count exactly what the target counts, from one thread and from many, timed and not; that the report
/// says who counted; and that the target is as it was before when nprof has ended.
#[test]
fn stubs_count_exactly() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        must_count_by_stubs(&mut target)?;
        target.exit()
    })
}

pub(crate) fn must_count_by_stubs(target: &mut RemoteProcess) -> Result<()> {
    for (options, threads, calls) in [(&[][..], 1, 500), (&[], 16, 100), (&["--count-only"], 16, 100)] {
        let trace = Trace::start(target.pid(), &[&STUBS[..], options].concat())?;
        ensure!(trace.announcement.ends_with(" by stubs"), "{}", trace.announcement);
        let called = target.calls("all", threads, calls)?;
        let report = trace.finish()?;
        must_add_up(&report, &called)?;
        must_be_stubbed(&report, &called)?;
        must_be_as_before(target)?;
    }
    Ok(())
}

/// Check that each of thousands of methods has a stub of its own, though all have one function.
#[test]
fn thousands_of_natives() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::thousands(jdk)?;
        let trace = Trace::start(target.pid(), &["--tier", "stub", "targets.Thousands"])?;
        ensure!(target.run("thousands 3")? == [format!("called {}", 3 * THOUSANDS)], "not all are called");
        let report = trace.finish()?;
        let right = report.methods.iter().filter(|row| row.tier == "stub" && row.calls == 3).count();
        ensure!(right == THOUSANDS && report.methods.len() == THOUSANDS, "{right} of {}", report.methods.len());
        ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
        target.exit()
    })
}

/// Check that all natives of a JVM can be counted by stubs, those that compilers know included.
#[test]
fn every_native() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["--tier", "stub"])?;
        let called = target.calls("all", 8, 100)?;
        target.run("collect")?;
        let report = trace.finish()?;
        must_add_up(&report, &called)?;
        must_be_stubbed(&report, &called)?;
        let gc = MethodName::new("java.lang.Runtime", "gc", "()V");
        ensure!(report.needed_row(&gc)?.tier == "stub", "{:?}", report.row(&gc));
        let known = ["java.lang.System::arraycopy", "java.lang.Object::hashCode", "java.lang.Thread::currentThread"];
        let called = report.methods.iter().filter(|row| known.contains(&row.name().without_signature().as_str()));
        let tiers: Vec<_> = called.map(|row| row.tier.as_str()).collect();
        ensure!(tiers.contains(&"stub") && !tiers.contains(&"kernel"), "{tiers:?}");
        target.exit()
    })
}

/// Check that without being told to, nprof leaves the JVM alone, and that it uses the shim where it is loaded already.
#[test]
fn the_choice_of_the_tier() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let traced_by = |target: &mut RemoteProcess, options: &[&str]| -> Result<String> {
            let trace = Trace::start(target.pid(), &[options, &["targets.Plain::add"]].concat())?;
            let called = target.calls("static", 2, 100)?;
            let report = trace.finish()?;
            must_add_up(&report, &called)?;
            Ok(report.methods[0].tier.clone())
        };
        for options in [&[][..], &["--tier", "auto"], &["--tier", "kernel"]] {
            ensure!(traced_by(&mut target, options)? == "kernel", "{options:?}");
        }
        ensure!(!has_shim(target.pid())?, "the shim was loaded");
        ensure!(traced_by(&mut target, &["--tier", "stub"])? == "stub" && has_shim(target.pid())?);
        for (options, tier) in [(&[][..], "stub"), (&["--tier", "auto"], "stub"), (&["--tier", "kernel"], "kernel")] {
            ensure!(traced_by(&mut target, options)? == tier, "{options:?} with a shim");
        }
        ensure!(mappings(target.pid())?.iter().filter(|m| m.executable && m.library().starts_with(SHIM)).count() == 1);
        target.exit()
    })
}

/// Check that options which have no meaning for stubs are refused before anything is done.
#[test]
fn options_that_do_not_fit() -> Result<()> {
    let run = run(&["trace", "--pid", "1", "--time-every", "16"])?;
    ensure!(run.code == Some(2) && run.stderr.contains("--tier"), "{run:?}");
    Ok(())
}

/// Check that a native that is bound while stubs count loses none of its calls, of a library that was loaded late as well
/// as of a class.
#[test]
fn late_natives_lose_nothing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        let trace = Trace::start(target.pid(), &["--tier", "stub"])?;
        target.run("load")?;
        let mut called = target.run_and_count("late 1000")?;
        target.run("welcome")?;
        called.extend(target.run_and_count("guest 2000")?);
        let report = trace.finish()?;
        must_add_up(&report, &called)?;
        must_be_stubbed(&report, &called)?;
        target.exit()
    })
}

/// Check that a class that comes back is counted both times.
#[test]
fn a_class_that_comes_back() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        target.run("welcome")?;
        let visit = MethodName::new("guests.Guest", "visit", "()V");
        let trace = Trace::start(target.pid(), &["--tier", "stub", "guests.*"])?;
        target.run("guest 500")?;
        target.run("dismiss")?;
        target.run("welcome")?;
        target.run("guest 1000")?;
        let report = trace.finish()?;
        let rows: u64 = report.methods.iter().filter(|row| row.name() == visit).map(|row| row.calls).sum();
        ensure!(rows == 1500, "{rows} of 1500 calls: {:?}", report.methods);
        target.exit()
    })
}

/// Check that a killed nprof leaves a target that runs on, that the next one takes over by itself and is exact, and that
/// it leaves the target as it was.
#[test]
fn a_killed_nprof() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        Trace::start(target.pid(), &STUBS)?.kill()?;
        target.calls("all", 4, 50)?;
        for _ in 0..2 {
            let trace = Trace::start(target.pid(), &[TARGETS])?;
            let called = target.calls("all", 4, 50)?;
            let report = trace.finish()?;
            must_add_up(&report, &called)?;
            must_be_stubbed(&report, &called)?;
            must_be_as_before(&target)?;
        }
        target.exit()
    })
}

/// Check that a second nprof takes the stubs over while the first lives, which goes on by the kernel: both are exact from
/// then on.
#[test]
fn two_at_a_time() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let first = Trace::start(target.pid(), &[&STUBS[..], &["--interval", "100ms"]].concat())?;
        let called = target.calls("static", 4, 100)?;
        let second = Trace::start(target.pid(), &STUBS)?;
        let mut first = first;
        let add = &called[0].methods[0];
        let deadline = Instant::now() + SOON;
        // From when on the first one sees calls by its probes again.
        while first.next_report()?.calls(add) <= called[0].made {
            ensure!(Instant::now() < deadline, "the first nprof does not go on");
            target.calls("static", 1, 1)?;
        }
        let before = first.next_report()?.calls(add);
        let more = target.calls("static", 4, 100)?[0].made;
        let after = first.finish()?.calls(add);
        ensure!(after == before + more, "{before} calls, then {more} more make {after}");
        ensure!(second.finish()?.calls(add) > more);
        must_be_as_before(&target)?;
        target.exit()
    })
}

/// Check that an nprof that traces by the kernel is exact while another one puts stubs before the same methods and takes
/// them away, and that a killed one's stubs are no hindrance.
#[test]
fn stubs_of_another_nprof() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let kernel = ["--tier", "kernel", "--interval", "100ms", TARGETS];
        let mut first = Trace::start(target.pid(), &kernel)?;
        let mut sum = BTreeMap::new();
        let mut call = |target: &mut RemoteProcess, rounds| -> Result<()> {
            for function in target.calls("all", 4, rounds)? {
                *sum.entry(function.methods).or_default() += function.made;
            }
            Ok(())
        };
        call(&mut target, 20)?;
        let second = Trace::start(target.pid(), &STUBS)?;
        // Long enough for the first one to have looked twice.
        for _ in 0..20 {
            first.next_report()?;
            call(&mut target, 5)?;
        }
        second.finish()?;
        call(&mut target, 20)?;
        Trace::start(target.pid(), &STUBS)?.kill()?;
        call(&mut target, 20)?;
        let report = first.finish()?;
        let all = |(methods, made): (Vec<MethodName>, u64)| Called { methods, made, counted: made };
        must_add_up(&report, &sum.into_iter().map(all).collect::<Vec<_>>())?;
        let after = Trace::start(target.pid(), &kernel)?;
        let called = target.calls("all", 4, 50)?;
        must_add_up(&after.finish()?, &called)?;
        target.exit()
    })
}

/// Check that calls that take long are shown with their time, thread and callers, and others are not.
#[test]
fn slow_calls() -> Result<()> {
    traced_on_every_jdk(must_show_slow_calls)
}

pub(crate) fn must_show_slow_calls(jdk: &Jdk) -> Result<()> {
    const SLEPT_NS: u64 = 30_000_000;
    let mut target = RemoteProcess::shapes(jdk)?;
    // The code that calls it is compiled for later runs.
    target.self_timed("sleep", 20, 1000)?;
    let trace = Trace::start(target.pid(), &[&STUBS[..], &["--slow", "20ms"]].concat())?;
    target.calls("static", 2, 1000)?;
    for _ in 0..3 {
        target.self_timed("sleep", 1, SLEPT_NS)?;
    }
    let report = trace.finish()?;
    let slow = report.targets[0].slow.as_ref().context("slow calls")?;
    let slept = MethodName::new("targets.Timed", "sleep", "(J)V");
    let sleeps: Vec<_> = slow.calls.iter().filter(|call| call.name() == slept).collect();
    ensure!(slow.threshold_ns == Some(20_000_000) && slow.total >= 3 && sleeps.len() == 3, "{slow:?}");
    for call in sleeps {
        let row = report.needed_row(&slept)?;
        ensure!(call.time_ns >= SLEPT_NS && Some(call.time_ns) <= row.max_ns, "{call:?} of {row:?}");
        let callers: Vec<&str> =
            call.callers.iter().filter_map(|caller| caller.rsplit_once(':')).map(|c| c.0).collect();
        ensure!(callers.contains(&"targets.Shapes::timed") && callers.contains(&"targets.Target::serve"), "{call:?}");
        ensure!(!call.thread.is_empty() && call.tid != 0, "{call:?}");
    }
    must_be_as_before(&target)?;
    target.exit()
}

/// Check that the end of the JVM ends the trace cleanly, with what stubs had counted.
#[test]
fn the_end_of_the_jvm() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &STUBS)?;
        let called = target.calls("all", 4, 100)?;
        target.exit()?;
        let report = trace.wait()?;
        must_add_up(&report, &called)?;
        must_be_stubbed(&report, &called)
    })
}

/// Calls of each function by their names, over all rows, and who counted them.
pub(crate) fn counted(snapshot: &Snapshot) -> BTreeMap<MethodName, (u64, Vec<Tier>)> {
    let mut counted: BTreeMap<MethodName, (u64, Vec<Tier>)> = BTreeMap::new();
    for row in &snapshot.methods {
        // A row of several names is that of the function; it is counted under the first.
        let method = &row.methods[0].method;
        let entry = counted.entry(MethodName::new(&method.class, &method.name, &method.signature)).or_default();
        entry.0 += row.calls + row.in_flight;
        entry.1.push(row.tier);
    }
    counted
}

pub(crate) fn traced_by_stubs(target: &RemoteProcess, mode: Mode, time_every: u32) -> Result<Tracer> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(target.pid()))?;
    let selection = Selection::parse(&[TARGETS.to_owned()], &[], &[])?;
    let timed = mode == Mode::Time;
    let options = Options { timed, time_every, tier: TierWanted::Stub, ..Options::by_probes(selection) };
    Ok(Prepared::new(proc, jvm, options)?.attach()?)
}

/// Moves everything to stubs or to probes, and returns when it is there.
pub(crate) fn moved(tracer: &mut Tracer, to_stubs: bool) -> Result<()> {
    tracer.prefer_stubs(to_stubs);
    let deadline = Instant::now() + SOON;
    loop {
        tracer.tick();
        if tracer.is_settled() && (tracer.stubs() > 0) == to_stubs {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not moved within {SOON:?}");
        thread::yield_now();
    }
}

/// Moves all methods to and fro while the target makes calls, for as long as it does.
fn move_while_called(tracer: &mut Tracer, target: &mut RemoteProcess, rounds: u32) -> Result<(Vec<Called>, usize)> {
    thread::scope(|scope| {
        let calls = scope.spawn(|| target.calls("all", 4, rounds));
        let mut moves = 0;
        while !calls.is_finished() {
            moved(tracer, moves % 2 == 1)?;
            moves += 1;
        }
        Ok((calls.join().map_err(|_panic| anyhow!("the caller panicked"))??, moves))
    })
}

/// Check that each call is counted once while methods move from stubs to probes and back, again and again, under load
/// from four threads.
#[test]
fn moves_under_load() -> Result<()> {
    traced_on_every_jdk(|jdk: &Jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut tracer = traced_by_stubs(&target, Mode::Time, 1)?;
        let (called, moves) = move_while_called(&mut tracer, &mut target, 20_000)?;
        ensure!(moves >= 2, "only {moves} moves: too few calls");
        tracer.stop();
        let snapshot = tracer.snapshot();
        let counted = counted(&snapshot);
        for function in &called {
            let rows = function.methods.iter().filter_map(|method| counted.get(method));
            let (mut seen, mut tiers) = (0, Vec::new());
            for (calls, by) in rows {
                seen += calls;
                tiers.extend(by);
            }
            let names = &function.methods;
            ensure!(seen == function.made, "{seen} of {} calls of {names:?} over {moves} moves", function.made);
            ensure!(tiers.contains(&Tier::Both) || names.len() > 1, "{names:?} were counted by {tiers:?}");
        }
        ensure!(snapshot.losses.total() == 0, "{:?}", snapshot.losses);
        must_be_as_before(&target).context("after the moves")?;
        target.exit()
    })
}

/// Check that stubs count each call of a native that is called as fast as can be, though the budget has them time fewer or none
/// of them; that the row says so, with an estimate of the time and what it has cost; and that without a budget each is timed.
#[test]
fn hot_natives_within_a_budget() -> Result<()> {
    const CALLS: u64 = 30_000_000;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
        let empty = MethodName::new("targets.Stubs", "empty", "()V");
        for (budget, is_lowered) in [("2%", true), ("off", false)] {
            let options = ["--tier", "stub", "--max-overhead", budget, "targets.Stubs::empty"];
            let trace = Trace::start(target.pid(), &options)?;
            target.run(&format!("spins 2 {}", CALLS / 2))?;
            let report = trace.finish()?;
            let row = report.needed_row(&empty)?;
            ensure!((row.calls, row.tier.as_str(), row.unwatched_ns) == (CALLS, "stub", 0), "{row:?}");
            let (lowered, estimated) = (row.state != row.wanted, row.estimated_total_ns.is_some());
            ensure!((lowered, row.counted > 0, estimated) == (is_lowered, is_lowered, is_lowered), "{budget}: {row:?}");
            ensure!(row.wanted == "timed" && row.cost_ns.is_some_and(|ns| ns > 0), "{row:?}");
        }
        target.exit()
    })
}
