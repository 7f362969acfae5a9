//! The companion agent's stubs on real JVMs: every argument and result intact, every call counted, nothing left behind.
//! Needs no nprof and no kernel.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{does_not_concern, on_every_jdk};
use nprof_tests::shape_source;
use nprof_tests::shim::{Record, Records, agent_path, library};
use nprof_tests::shim_peer::{COUNT, Listener, OFF, SIXTEENTH, TIME};
use nprof_tests::shim_watch::{StubOptions, Watched, while_welcomed};

/// The class with natives of every shape.
pub(crate) const GENERATED: &str = "targets.Generated";
/// Enough for more than there are CPUs here.
pub(crate) const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
const OPTIONS: [StubOptions; 4] = [OFF, COUNT, SIXTEENTH, TIME];
/// Stubs find their shards by restartable sequences, in the agent's words. Without them there are two more ways.
const RSEQ: u32 = 0;
/// Has the C library not register threads for restartable sequences.
const WITHOUT_RSEQ: [(&str, &str); 1] = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
/// Natives of the JVM's own classes and of all others.
const ALL: &str = "";

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

/// Checks that each shape was seen as often as it was called, and timed as it was to be.
pub(crate) fn must_be_exact(records: &Records, options: StubOptions, calls: u64) -> Result<()> {
    records.must_be_without_notes()?;
    for shape in generated(records)? {
        let right = match options {
            OFF => shape == Record::default(),
            COUNT => shape.counted == calls && shape.entered == 0,
            TIME => shape.entered == calls && shape.counted == 0,
            _ => shape.calls() == calls && shape.entered > 0 && shape.counted > shape.entered,
        };
        ensure!(right && shape.ended == shape.entered, "{calls} calls, {options:?}: {shape:?}");
        ensure!(shape.max_ns <= shape.total_ns, "{shape:?}");
    }
    Ok(())
}

/// Calls the shapes on a JVM that starts with the agent, and checks results and counts. Returns how stubs found shards.
fn from_the_start(
    jdk: &Jdk,
    arguments: &[&str],
    variables: &[(&str, &str)],
    classes: &str,
    options: StubOptions,
) -> Result<u32> {
    let start = |agent: &str| RemoteProcess::stubs(jdk, &[arguments, &[agent]].concat(), variables);
    let (mut target, mut watched) = Watched::from_the_start(classes, options, start)?;
    call_shapes(&mut target, THREADS, ROUNDS)?;
    let records = watched.records()?;
    must_be_exact(&records, options, THREADS * ROUNDS).with_context(|| format!("{options:?}"))?;
    let sharding = watched.connection.hello()?.sharding;
    watched.exit(target)?;
    Ok(sharding)
}

/// Check that every shape of argument and result passes unchanged in each mode, and that every call is counted.
#[test]
fn every_shape_in_every_mode() -> Result<()> {
    on_every_jdk(|jdk| {
        for options in OPTIONS {
            let sharding = from_the_start(jdk, &[], &[], "targets.", options)?;
            ensure!(sharding == RSEQ, "{sharding}");
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
        for variables in [&[][..], &WITHOUT_RSEQ] {
            let start = |agent: &str| RemoteProcess::stubs(jdk, &[agent], variables);
            let (mut target, mut watched) = Watched::from_the_start("targets.Stubs", COUNT, start)?;
            let mut made = 0;
            for options in [COUNT, SIXTEENTH, TIME] {
                watched.set_options(options)?;
                target.run(&format!("spins {threads} {CALLS}"))?;
                made += threads * CALLS;
                let empty = watched.records()?.record("targets.Stubs", "empty", "()V");
                ensure!(empty.calls() == made && empty.ended == empty.entered, "{made} calls, {options:?}: {empty:?}");
            }
            watched.exit(target)?;
        }
        Ok(())
    })
}

/// Check the same where the C library was told not to register its threads, so that shards are found in another way. (The
/// agent's own tests call stubs in each way.)
#[test]
fn without_restartable_sequences() -> Result<()> {
    on_every_jdk(|jdk| {
        for options in OPTIONS {
            let sharding = from_the_start(jdk, &[], &WITHOUT_RSEQ, "targets.", options)?;
            ensure!(sharding != RSEQ, "{sharding}");
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
            from_the_start(jdk, options, &[], ALL, TIME)?;
        }
        Ok(())
    })
}

/// Check that virtual threads, which change their carriers between calls, get right results and are counted exactly.
#[test]
fn virtual_threads() -> Result<()> {
    on_every_jdk(|jdk| {
        if jdk.version < 21 {
            return does_not_concern(jdk, "it has no virtual threads");
        }
        for options in [COUNT, TIME] {
            let start = |agent: &str| RemoteProcess::stubs(jdk, &[agent], &[]);
            let (mut target, mut watched) = Watched::from_the_start(ALL, options, start)?;
            must_be_right(&target.run("virtual 100 10")?, Some(1_000))?;
            must_be_exact(&watched.records()?, options, 1_000)?;
            watched.exit(target)?;
        }
        Ok(())
    })
}

/// Check that recursion, exceptions, jumps inside a native and threads that end inside a native are counted
/// exactly, and that only calls that never return stay in flight.
#[test]
fn calls_that_end_otherwise() -> Result<()> {
    on_every_jdk(|jdk| {
        for options in [COUNT, TIME] {
            let start = |agent: &str| RemoteProcess::shapes_on(jdk, &[agent]);
            let (mut target, mut watched) = Watched::from_the_start(ALL, options, start)?;
            for (shape, threads, rounds) in [("all", 4, 200), ("deep", 2, 5), ("jumping", 4, 100), ("dying", 2, 10)] {
                let before = watched.records()?;
                let mut called = target.calls(shape, threads, rounds)?;
                // This one is called by C code, to which no stub is known.
                called.retain(|function| {
                    function.methods.iter().all(|name| name.class != "targets.Jumping" || name.method != "inner")
                });
                let after = watched.records()?;
                after.must_be_without_notes()?;
                after.must_equal(&before, &called).with_context(|| format!("{shape}, {options:?}"))?;
            }
            let records = watched.records()?;
            let died = records.record("targets.Dying", "die", "()V");
            ensure!(died.ended == 0 && died.calls() == 20, "{died:?}");
            let returned = records.record("targets.Jumping", "outer", "()I");
            ensure!(returned.ended == returned.entered, "{returned:?}");
            watched.exit(target)?;
        }
        Ok(())
    })
}

/// Check that natives that were bound before the VM had names for them are seen, and counted exactly.
#[test]
fn natives_of_the_first_phase() -> Result<()> {
    on_every_jdk(|jdk| {
        let start = |agent: &str| RemoteProcess::stubs(jdk, &[agent], &[]);
        let (mut target, mut watched) = Watched::from_the_start(ALL, COUNT, start)?;
        let before = watched.records()?.record("java.lang.Thread", "start0", "()V");
        call_shapes(&mut target, 7, 1)?;
        let after = watched.records()?.record("java.lang.Thread", "start0", "()V");
        ensure!(after.counted == before.counted + 7, "{before:?}, then {after:?}");
        watched.exit(target)
    })
}

/// Check that a JVM with every native behind a stub says what it says without, and ends as it ends without.
#[test]
fn the_jvm_says_the_same() -> Result<()> {
    on_every_jdk(|jdk| {
        let version = |agent: &[String]| Command::new(jdk.tool("java")).args(agent).arg("-version").output();
        let listener = Listener::new()?;
        let agent = agent_path(&listener.option())?;
        let (without, with) = (version(&[])?, while_welcomed(&listener, TIME, || Ok(version(&[agent])?))?.0);
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
        for options in OPTIONS {
            let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
            call_shapes(&mut target, THREADS, 1)?;
            target.run("load 4")?;
            let mut watched = Watched::load(jdk, target.pid(), ALL, OFF)?;
            must_be_right(&target.run("unload")?, None)?;
            watched.set_options(options)?;
            call_shapes(&mut target, THREADS, ROUNDS)?;
            must_be_exact(&watched.records()?, options, THREADS * ROUNDS)?;
            watched.exit(target)?;
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
        let mut first = Watched::load(jdk, target.pid(), ALL, COUNT)?;
        let mut second = Watched::load_copy(jdk, target.pid(), &copy, ALL, TIME)?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&first.records()?, COUNT, THREADS)?;
        must_be_exact(&second.records()?, TIME, THREADS)?;
        must_be_exact(&second.detach()?, TIME, THREADS)?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&first.records()?, COUNT, 2 * THREADS)?;
        first.detach()?;
        call_shapes(&mut target, THREADS, 1)?;
        must_be_exact(&first.last_records()?, COUNT, 2 * THREADS)?;
        must_be_exact(&second.last_records()?, TIME, THREADS)?;
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
        for options in [TIME, COUNT] {
            let mut watched = Watched::load(jdk, target.pid(), ALL, options)?;
            let again = target.run("platform")?;
            ensure!(again == said, "{again:?}");
            let records = watched.detach()?;
            records.must_be_without_notes()?;
            let record = records.record("com.sun.security.auth.module.UnixSystem", "getUnixInfo", "()V");
            ensure!(record.calls() == 1, "{record:?}");
            let again = target.run("platform")?;
            ensure!(again == said, "{again:?}");
        }
        target.exit()
    })
}

/// Check that stack dumps, the flight recorder and collections pass by threads in timed natives without harm.
#[test]
fn observed_by_others() -> Result<()> {
    on_every_jdk(|jdk| {
        let start = |agent: &str| RemoteProcess::stubs(jdk, &[agent], &[]);
        let (mut target, mut watched) = Watched::from_the_start(ALL, TIME, start)?;
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
        watched.records()?.must_be_without_notes()?;
        watched.exit(target)
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
        let start = |agent: &str| RemoteProcess::late_library_on(jdk, &[agent]);
        let (mut target, mut watched) = Watched::from_the_start(ALL, TIME, start)?;
        target.run("load")?;
        for _ in 0..5 {
            target.run("welcome")?;
            let before = watched.records()?;
            let called = [target.run_and_count("late 10")?, target.run_and_count("guest 10")?].concat();
            let after = watched.records()?;
            after.must_be_without_notes()?;
            after.must_equal(&before, &called)?;
            target.run("dismiss")?;
        }
        watched.exit(target)
    })
}

/// Check that attaching and detaching twenty times under load leaves every result right, that the twenty-first attach
/// counts exactly, and that its counters stand still when it has ended.
#[test]
fn attach_and_detach() -> Result<()> {
    const CYCLES: usize = 20;
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
        call_shapes(&mut target, THREADS, 1)?;
        target.run("load 4")?;
        let mut seen = Records::default();
        for cycle in 0..CYCLES {
            let mut watched = Watched::load(jdk, target.pid(), ALL, [TIME, COUNT, SIXTEENTH][cycle % 3])?;
            let records = watched.detach()?;
            records.must_be_without_notes()?;
            records.methods.iter().for_each(|(name, record)| seen.add(name, *record));
        }
        must_be_right(&target.run("unload")?, None)?;
        ensure!(generated(&seen)?.iter().all(|shape| shape.counted > 0 && shape.ended > 0), "not all cycles were seen");
        let mut last = Watched::load(jdk, target.pid(), ALL, COUNT)?;
        call_shapes(&mut target, THREADS, ROUNDS)?;
        must_be_exact(&last.records()?, COUNT, THREADS * ROUNDS)?;
        last.detach()?;
        call_shapes(&mut target, THREADS, ROUNDS)?;
        must_be_exact(&last.last_records()?, COUNT, THREADS * ROUNDS).context("counters move after the end")?;
        target.exit()
    })
}
