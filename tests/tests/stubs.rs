//! The companion agent's stubs on real JVMs: every argument and result intact, every call counted, nothing left behind.
//! Needs no nprof and no kernel.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shape_source;
use nprof_tests::shim::{Record, Records, agent_path, library, load, load_copy};

/// The class with natives of every shape.
pub(crate) const GENERATED: &str = "targets.Generated";
/// Enough for more than there are CPUs here.
pub(crate) const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
const MODES: [&str; 4] = ["off", "count", "every:16", "time"];

/// Calls all generated natives and checks that no result is wrong.
pub(crate) fn call_shapes(target: &mut RemoteProcess, threads: u64, rounds: u64) -> Result<()> {
    must_be_right(&target.run(&format!("shapes {threads} {rounds}"))?, Some(threads * rounds))
}

/// Checks a target's answer. `rounds` is how many rounds it must have made, if that is known.
pub(crate) fn must_be_right(answer: &[String], rounds: Option<u64>) -> Result<()> {
    let answer = answer.join("\n");
    let (checked, wrong) =
        answer.strip_prefix("checked ").and_then(|text| text.split_once(" wrong ")).context("answer")?;
    let shapes = u64::try_from(shape_source::count())?;
    ensure!(wrong == "0", "{wrong} results of {checked} are wrong");
    let checked: u64 = checked.parse()?;
    ensure!(rounds.map_or(checked > 0, |rounds| checked == rounds * shapes), "{checked} results");
    Ok(())
}

/// The records of the generated natives of which there must be all.
fn generated(records: &Records) -> Result<Vec<Record>> {
    let is_shape = |name: &&nprof_tests::name::MethodName| name.class == GENERATED && name.method != "hash";
    let shapes: Vec<Record> =
        records.methods.iter().filter(|(name, _)| is_shape(name)).map(|(_, record)| *record).collect();
    ensure!(shapes.len() == shape_source::count(), "{} shapes have stubs", shapes.len());
    Ok(shapes)
}

/// Checks that each shape was seen as often as it was called, and timed as the mode says.
pub(crate) fn must_be_exact(records: &Records, mode: &str, calls: u64) -> Result<()> {
    records.must_be_without_notes()?;
    for shape in generated(records)? {
        let right = match mode {
            "off" => shape == Record::default(),
            "count" => shape.counted == calls && shape.entered == 0,
            "time" => shape.entered == calls && shape.counted == 0,
            _ => shape.calls() == calls && shape.entered > 0 && shape.counted > shape.entered,
        };
        ensure!(right && shape.ended == shape.entered, "{calls} calls in mode {mode}: {shape:?}");
        ensure!(shape.max_ns <= shape.total_ns, "{shape:?}");
    }
    Ok(())
}

/// Calls the shapes on a JVM that starts with the agent, and checks results and counts.
fn from_the_start(jdk: &Jdk, options: &[&str], variables: &[(&str, &str)], agent: &str, mode: &str) -> Result<Records> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("records");
    let agent = agent_path(&format!("{agent},mode={mode},exit-dump={}", file.display()))?;
    let mut target = RemoteProcess::stubs(jdk, &[options, &[&agent]].concat(), variables)?;
    call_shapes(&mut target, THREADS, ROUNDS)?;
    target.exit()?;
    let records = Records::read(&file)?;
    must_be_exact(&records, mode, THREADS * ROUNDS).with_context(|| format!("{options:?} {agent}"))?;
    Ok(records)
}

/// Check that every shape of argument and result passes unchanged in each mode, and that every call is counted.
#[test]
fn every_shape_in_every_mode() -> Result<()> {
    on_every_jdk(|jdk| {
        for mode in MODES {
            from_the_start(jdk, &[], &[], "only=targets.", mode)?;
        }
        Ok(())
    })
}

/// Check that the hottest case loses nothing: the smallest native, from twice as many threads as there are CPUs.
#[test]
fn a_hot_native() -> Result<()> {
    const CALLS: u64 = 2_000_000;
    let threads = 2 * u64::try_from(std::thread::available_parallelism()?.get())?;
    on_every_jdk(|jdk| {
        for sharding in ["rseq", "rdpid"] {
            let agent = agent_path(&format!("only=targets.Stubs,sharding={sharding}"))?;
            let mut target = RemoteProcess::stubs(jdk, &[&agent], &[])?;
            let mut made = 0;
            for mode in ["count", "every:16", "time"] {
                load(jdk, target.pid(), &format!("mode={mode}"))?;
                target.run(&format!("spins {threads} {CALLS}"))?;
                made += threads * CALLS;
                let empty = Records::of(jdk, target.pid())?.record("targets.Stubs", "empty", "()V");
                ensure!(empty.calls() == made && empty.ended == empty.entered, "{made} calls, {mode}: {empty:?}");
            }
            target.exit()?;
        }
        Ok(())
    })
}

/// Check the same for each way to find a shard, also when the C library was told not to register its threads.
#[test]
fn every_sharding() -> Result<()> {
    on_every_jdk(|jdk| {
        for sharding in ["rdpid", "segment"] {
            for mode in MODES {
                let records = from_the_start(jdk, &[], &[], &format!("only=targets.,sharding={sharding}"), mode)?;
                ensure!(records.sharding == sharding, "{}", records.sharding);
            }
        }
        for mode in MODES {
            let variables = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
            let records = from_the_start(jdk, &[], &variables, "only=targets.", mode)?;
            ensure!(records.sharding != "rseq", "{}", records.sharding);
        }
        Ok(())
    })
}

/// Check the same with every native of the JVM behind a stub: interpreted, compiled at once, checked, and with each
/// collector.
#[test]
fn every_native_on_every_vm() -> Result<()> {
    on_every_jdk(|jdk| {
        for options in [
            &["-Xint"][..],
            &["-Xcomp"],
            &["-Xcheck:jni"],
            &["-XX:TieredStopAtLevel=1"],
            &["-XX:+UseSerialGC"],
            &["-XX:+UseParallelGC"],
            &["-XX:+UseZGC"],
        ] {
            from_the_start(jdk, options, &[], "all,intrinsics", "time")?;
        }
        Ok(())
    })
}

/// Check that virtual threads, which change their carriers between calls, get right results and are counted exactly.
#[test]
fn virtual_threads() -> Result<()> {
    on_every_jdk(|jdk| {
        if jdk.version < 21 {
            return Ok(());
        }
        for mode in ["count", "time"] {
            let agent = agent_path(&format!("all,mode={mode}"))?;
            let mut target = RemoteProcess::stubs(jdk, &[&agent], &[])?;
            must_be_right(&target.run("virtual 100 10")?, Some(1_000))?;
            must_be_exact(&Records::of(jdk, target.pid())?, mode, 1_000)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that recursion, exceptions, jumps inside of a native and threads that end inside of a native are counted
/// exactly, and that only calls that never return stay in flight.
#[test]
fn calls_that_end_otherwise() -> Result<()> {
    on_every_jdk(|jdk| {
        for mode in ["count", "time"] {
            let agent = agent_path(&format!("all,mode={mode}"))?;
            let mut target = RemoteProcess::shapes_on(jdk, &[&agent])?;
            for (shape, threads, rounds) in [("all", 4, 200), ("deep", 2, 5), ("jumping", 4, 100), ("dying", 2, 10)] {
                let before = Records::of(jdk, target.pid())?;
                let mut called = target.calls(shape, threads, rounds)?;
                // This one is called by C code, to which no stub is known.
                called.retain(|function| {
                    function.methods.iter().all(|name| name.class != "targets.Jumping" || name.method != "inner")
                });
                let after = Records::of(jdk, target.pid())?;
                after.must_be_without_notes()?;
                after.must_equal(&before, &called).with_context(|| format!("{shape}, mode {mode}"))?;
            }
            let records = Records::of(jdk, target.pid())?;
            let died = records.record("targets.Dying", "die", "()V");
            ensure!(died.ended == 0 && died.calls() == 20, "{died:?}");
            let returned = records.record("targets.Jumping", "outer", "()I");
            ensure!(returned.ended == returned.entered, "{returned:?}");
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that the times of calls that time themselves are right.
#[test]
fn times_are_right() -> Result<()> {
    on_every_jdk(|jdk| {
        let agent = agent_path("only=targets.,mode=time")?;
        let mut target = RemoteProcess::shapes_on(jdk, &[&agent])?;
        let slept = target.self_timed("sleep", 20, 2_000_000)?;
        let record = Records::of(jdk, target.pid())?.record("targets.Timed", "sleep", "(J)V");
        ensure!((record.entered, record.ended) == (20, 20), "{record:?}");
        // The native's own measurement lies inside of ours.
        ensure!(record.total_ns * 10_001 / 10_000 >= slept.total_ns, "{record:?} of {slept:?}");
        ensure!(record.total_ns <= slept.total_ns + slept.total_ns / 50 + 20 * 100_000, "{record:?} of {slept:?}");
        ensure!(record.max_ns * 10_001 / 10_000 >= slept.max_ns, "{record:?} of {slept:?}");
        target.exit()
    })
}

/// Check that natives that were bound before the VM had names for them are seen, and counted exactly.
#[test]
fn natives_of_the_first_phase() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &[&agent_path("all,mode=count")?], &[])?;
        let started =
            |jdk: &Jdk, pid| Ok::<_, anyhow::Error>(Records::of(jdk, pid)?.record("java.lang.Thread", "start0", "()V"));
        let before = started(jdk, target.pid())?;
        call_shapes(&mut target, 7, 1)?;
        let after = started(jdk, target.pid())?;
        ensure!(after.counted == before.counted + 7, "{before:?}, then {after:?}");
        target.exit()
    })
}

/// Check that a JVM with every native behind a stub says what it says without, and ends as it ends without.
#[test]
fn the_jvm_says_the_same() -> Result<()> {
    on_every_jdk(|jdk| {
        let version = |agent: &[String]| Command::new(jdk.tool("java")).args(agent).arg("-version").output();
        let (without, with) = (version(&[])?, version(&[agent_path("all,intrinsics")?])?);
        ensure!(without == with, "{}{}", String::from_utf8_lossy(&with.stdout), String::from_utf8_lossy(&with.stderr));
        let wrong = version(&[agent_path("everything")?])?;
        let said = String::from_utf8_lossy(&wrong.stderr);
        ensure!(wrong.status.success() && said.starts_with("nprof-shim: no option 'everything'"), "{wrong:?}");
        Ok(())
    })
}

/// Check that a running JVM takes the agent: results stay right under load, and calls are counted exactly from then on.
#[test]
fn late_attach() -> Result<()> {
    on_every_jdk(|jdk| {
        for mode in MODES {
            let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
            call_shapes(&mut target, THREADS, 1)?;
            target.run("load 4")?;
            load(jdk, target.pid(), "all,mode=off")?;
            must_be_right(&target.run("unload")?, None)?;
            load(jdk, target.pid(), &format!("mode={mode}"))?;
            call_shapes(&mut target, THREADS, ROUNDS)?;
            must_be_exact(&Records::of(jdk, target.pid())?, mode, THREADS * ROUNDS)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that a second agent, here a copy of the first, takes its place before the first one's stubs, that both count
/// exactly, and that each can leave while the other stays.
#[test]
fn two_agents() -> Result<()> {
    on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let copy = directory.path().join("libcopy.so");
        std::fs::copy(library()?, &copy)?;
        let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
        let pid = target.pid();
        load(jdk, pid, "all,mode=count")?;
        load_copy(jdk, pid, &copy, "all,mode=time")?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&Records::of(jdk, pid)?, "count", THREADS)?;
        must_be_exact(&Records::of_copy(jdk, pid, &copy)?, "time", THREADS)?;
        load_copy(jdk, pid, &copy, "detach")?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&Records::of(jdk, pid)?, "count", 2 * THREADS)?;
        must_be_exact(&Records::of_copy(jdk, pid, &copy)?, "time", THREADS)?;
        load(jdk, pid, "detach")?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&Records::of(jdk, pid)?, "count", 2 * THREADS)?;
        target.exit()
    })
}

/// Check that the JVM has nothing to say about any of it, even one that checks all uses of its interface: natives of
/// both of the JDK's own loaders are bound to stubs and back.
#[test]
fn attach_in_silence() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &["-Xcheck:jni"], &[])?;
        let said = target.run("platform")?;
        ensure!(said.len() == 1, "{said:?}");
        for (options, seen) in [("all,intrinsics,mode=time", 1), ("detach", 1), ("all,mode=count", 2)] {
            load(jdk, target.pid(), options)?;
            let again = target.run("platform")?;
            ensure!(again == said, "{again:?}");
            let records = Records::of(jdk, target.pid())?;
            records.must_be_without_notes()?;
            let record = records.record("com.sun.security.auth.module.UnixSystem", "getUnixInfo", "()V");
            ensure!(record.calls() == seen, "{record:?} after {options}");
        }
        target.exit()
    })
}

/// Check that stack dumps, the flight recorder and collections pass by threads in timed natives without harm.
#[test]
fn observed_by_others() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &[&agent_path("all,intrinsics,mode=time")?], &[])?;
        let directory = tempfile::tempdir()?;
        let recording = format!("filename={}", directory.path().join("recording.jfr").display());
        target.run("load 4")?;
        diagnose(jdk, &target, &["JFR.start", "name=r", "settings=profile"])?;
        for _ in 0..5 {
            let stacks = diagnose(jdk, &target, &["Thread.print", "-l"])?;
            ensure!(stacks.contains("targets.Generated."), "{stacks}");
            diagnose(jdk, &target, &["GC.run"])?;
        }
        diagnose(jdk, &target, &["JFR.stop", "name=r", &recording])?;
        must_be_right(&target.run("unload")?, None)?;
        Records::of(jdk, target.pid())?.must_be_without_notes()?;
        target.exit()
    })
}

/// Has a JVM execute a diagnostic command, and returns its answer.
fn diagnose(jdk: &Jdk, target: &RemoteProcess, command: &[&str]) -> Result<String> {
    let output = Command::new(jdk.tool("jcmd")).arg(target.pid().to_string()).args(command).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(said)
}

/// Check that natives of libraries and classes that come and go are counted exactly, each time they are there.
#[test]
fn classes_that_come_and_go() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library_on(jdk, &[&agent_path("all,mode=time")?])?;
        target.run("load")?;
        for _ in 0..5 {
            target.run("welcome")?;
            let before = Records::of(jdk, target.pid())?;
            let called = [target.run_and_count("late 10")?, target.run_and_count("guest 10")?].concat();
            let after = Records::of(jdk, target.pid())?;
            after.must_be_without_notes()?;
            after.must_equal(&before, &called)?;
            target.run("dismiss")?;
        }
        target.exit()
    })
}

/// Check that attaching and detaching twenty times under load leaves every result right, every address restored, and
/// counters that stand still; and that the twenty-first attach counts exactly.
#[test]
fn attach_and_detach() -> Result<()> {
    const CYCLES: usize = 20;
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
        call_shapes(&mut target, THREADS, 1)?;
        target.run("load 4")?;
        for cycle in 0..CYCLES {
            load(jdk, target.pid(), &format!("all,mode={}", ["time", "count", "every:16"][cycle % 3]))?;
            load(jdk, target.pid(), "detach")?;
        }
        must_be_right(&target.run("unload")?, None)?;
        let before = Records::of(jdk, target.pid())?;
        before.must_be_without_notes()?;
        ensure!(
            generated(&before)?.iter().all(|shape| shape.counted > 0 && shape.ended > 0),
            "not all cycles were seen"
        );
        call_shapes(&mut target, THREADS, ROUNDS)?;
        let frozen = Records::of(jdk, target.pid())?;
        ensure!(before == frozen, "counters move after the end");
        load(jdk, target.pid(), "all,mode=count")?;
        call_shapes(&mut target, THREADS, ROUNDS)?;
        let after = Records::of(jdk, target.pid())?;
        after.must_be_without_notes()?;
        for (before, after) in generated(&frozen)?.iter().zip(generated(&after)?) {
            ensure!(after.counted == before.counted + THREADS * ROUNDS, "{before:?}, then {after:?}");
        }
        target.exit()
    })
}
