//! Trees beside what else a JVM has: collectors that move objects all the time, stacks that are full, another agent that changes the same class, and a
//! thousand nprofs one after another.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::calls::Question;
use nprof::discover::Proc;
use nprof::model::{Pid, TreeLosses};
use nprof::resolve::pattern::Pattern;
use nprof::trace::{TreeTracer, TreeWants};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::target::Targets;
use tempfile::TempDir;

use crate::tree::{Told, follow_in, memory, must_be_the_same, open_again, told_while};

const MARKED: &str = "targets.Trees$Marked";

/// Check each invocation with each collector, which collects all the time.
#[test]
fn each_collector() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for collector in ["Serial", "Parallel", "G1", "Z", "Shenandoah"] {
            let option = format!("-XX:+Use{collector}GC");
            let mut target = RemoteProcess::trees(jdk, &[&option, "-Xmx256m"])?;
            target.run("collecting")?;
            follow_in(&mut target, 8, "platform").with_context(|| format!("{jdk} {option}"))?;
            target.exit()?;
        }
        Ok(())
    })
}

/// In so many places of a frame the stack ends.
const PLACES: u32 = 16;
const FILLED: &str = "targets.Filled";

/// Methods of `Filled.java` as entry methods, with all that they call there, in each mode of the VM.
fn filling(entries: [&str; 2], check: impl Fn(&mut TreeTracer, &mut RemoteProcess, u32) -> Result<()>) -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for options in [&[][..], &["-Xint"], &["-XX:TieredStopAtLevel=1"], &["-Xcomp"]] {
            let mut target = RemoteProcess::filled(jdk, options)?;
            let entries = entries.map(|name| Pattern::parse(&format!("{FILLED}::{name}")));
            let question = Question {
                entries: entries.into_iter().collect::<Result<_, _>>()?,
                packages: vec![Pattern::parse(FILLED)?],
                depth: 1,
                ..Question::default()
            };
            let proc = Proc::host();
            let mut tracer = TreeTracer::open(&proc, proc.jvm(Pid(target.pid()))?, &question, TreeWants::default())?;
            tracer.begin()?;
            for place in 0..PLACES {
                check(&mut tracer, &mut target, place).with_context(|| format!("{jdk} {options:?}, place {place}"))?;
            }
            ensure!(tracer.losses() == TreeLosses::default(), "{jdk} {options:?}: {:?}", tracer.losses());
            tracer.stop(&mut |_| {})?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that each call that has told its beginning tells its end, also where the stack is full, and that an invocation in the same thread afterwards is one of
/// its own.
#[test]
fn ends_are_told_where_the_stack_is_full() -> Result<()> {
    filling(["fill", "calm"], |tracer, target, place| {
        let told = told_while(tracer, target, &format!("fill {place}"))?;
        ensure!(told.wrong.is_empty() && told.trees == 2, "{} trees, {:?}", told.trees, told.wrong.first());
        let made: u64 = target.run("calls")?.first().context("no count")?.parse()?;
        let down = (0..).zip(&tracer.plan().methods).find(|(_, method)| &*method.method == "down");
        let seen = told.methods.get(&down.context("it is not in the plan")?.0);
        ensure!(seen == Some(&[made, 0, made]), "{seen:?}, not {made} calls that are all left by an exception");
        Ok(())
    })
}

/// Check that a thread in which a task was run where the stack is full is in none afterwards.
#[test]
fn tasks_end_where_the_stack_is_full() -> Result<()> {
    filling(["submit", "calm"], |tracer, target, place| {
        let told = told_while(tracer, target, &format!("repeat {place}"))?;
        ensure!(told.wrong.is_empty() && told.trees == 2, "{} trees, {:?}", told.trees, told.wrong.first());
        ensure!(told.tasks == [1, 0], "{:?}: tasks that were made, and invocations that came of one", told.tasks);
        Ok(())
    })
}

/// Check that what another agent has made of a class is there before, meanwhile and afterwards, whether it may retransform or not.
#[test]
fn another_agents_changes_stay() -> Result<()> {
    const ROUNDS: u64 = 50;
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let agent = directory.path().join("second.jar");
        Targets::get()?.pack_agent(jdk, "targets.Second", &agent)?;
        let mut target = RemoteProcess::trees(jdk, &[&format!("-javaagent:{}", agent.display())])?;
        let run = format!("marked {ROUNDS}");
        let is_marked = |target: &mut RemoteProcess| {
            let answer = target.run(&run)?;
            ensure!(answer == ["1 1"], "{answer:?}");
            Ok(())
        };
        is_marked(&mut target)?;
        let entries = ["first", "second"].map(|name| Pattern::parse(&format!("{MARKED}::{name}")));
        let question = Question { entries: entries.into_iter().collect::<Result<_, _>>()?, ..Question::default() };
        let proc = Proc::host();
        let mut tracer = TreeTracer::open(&proc, proc.jvm(Pid(target.pid()))?, &question, TreeWants::default())?;
        let before = tracer.class_files(MARKED)?;
        ensure!(before.len() == 1 && tracer.begin()? == 1, "{:?}", tracer.plan());
        is_marked(&mut target)?;
        let mut told = Told::default();
        let end = tracer.stop(&mut |event| told.take(event))?;
        ensure!(told.trees == 2 * ROUNDS && told.wrong.is_empty(), "{} trees, {:?}", told.trees, told.wrong.first());
        ensure!(end.restored == 1 && end.behind == 0, "{end:?}");
        is_marked(&mut target)?;
        drop(tracer);
        let mut tracer = open_again(&target, false)?;
        must_be_the_same(&before[0], &tracer.class_files(MARKED)?[0])?;
        target.exit()
    })
}

/// What a JVM has, by name.
fn kept(target: &mut RemoteProcess) -> Result<BTreeMap<String, u64>> {
    let mut kept = memory(target)?;
    let of = |what: &str| {
        Ok::<u64, anyhow::Error>(std::fs::read_dir(format!("/proc/{}/{what}", target.pid()))?.count() as u64)
    };
    kept.extend([("threads".to_owned(), of("task")?), ("descriptors".to_owned(), of("fd")?)]);
    Ok(kept)
}

/// Keeps the larger number.
fn most(all: &mut BTreeMap<String, u64>, what: &str, number: u64) {
    let known = all.entry(what.to_owned()).or_default();
    *known = number.max(*known);
}

/// Invocations in a second.
fn pace(target: &mut RemoteProcess) -> Result<f64> {
    let mut entries = || -> Result<f64> {
        let answer = target.run("counts")?;
        Ok(answer.first().and_then(|line| line.split(' ').next()).context("no counts")?.parse()?)
    };
    let (first, begin) = (entries()?, Instant::now());
    thread::sleep(Duration::from_secs(2));
    Ok((entries()? - first) / begin.elapsed().as_secs_f64())
}

/// Check that nothing has grown after classes have been enhanced and restored a thousand times while two threads work. A VM lets old versions of classes
/// go when it collects the code that it has compiled of them, which takes it four collections: code may be on a stack in the first ones.
#[test]
#[ignore = "takes minutes"]
fn a_thousand_cycles() -> Result<()> {
    const CYCLES: u32 = 1_000;
    const WARM: u32 = 50;
    /// So much more than in the first half is no growth: what is compiled, and let go, is never the same.
    const NOISE: f64 = 1.25;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        target.run("load 2")?;
        pace(&mut target)?;
        let (before, mut warm, mut half) = (pace(&mut target)?, BTreeMap::new(), BTreeMap::new());
        for cycle in 1..=CYCLES {
            // The kernel takes longer to load programs than all the rest takes.
            let mut tracer = open_again(&target, cycle % 10 == 0)?;
            let classes = tracer.begin()?;
            tracer.tick(&mut |_| {})?;
            let end = tracer.stop(&mut |_| {})?;
            ensure!(classes == 3 && end.restored == 3 && end.behind == 0, "{classes}, {end:?} in cycle {cycle}");
            drop(tracer);
            if cycle % WARM == 0 {
                (0..3).try_for_each(|_| kept(&mut target).map(drop))?;
                let left = kept(&mut target)?;
                if cycle <= CYCLES / 2 {
                    left.iter().for_each(|(what, bytes)| most(&mut half, what, *bytes));
                }
                warm = if cycle == WARM { left } else { warm };
            }
            if cycle % 200 == 0 {
                say(&format!("{jdk}, after {cycle} cycles: {:?}", kept(&mut target)?));
            }
        }
        let (after, end) = (pace(&mut target)?, kept(&mut target)?);
        say(&format!(
            "{jdk}: {before:.0} invocations a second before, {after:.0} after; {warm:?} after {WARM} cycles, {end:?} at the end"
        ));
        for what in ["threads", "descriptors"] {
            ensure!(end[what] <= warm[what], "{what}: {} -> {}", warm[what], end[what]);
        }
        for (what, bytes) in &half {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
            let more = end[what] as f64 / *bytes as f64;
            ensure!(more <= NOISE, "{what}: {bytes} -> {}", end[what]);
        }
        ensure!(after > 0.7 * before, "{before} invocations a second before, {after} after");
        target.exit()
    })
}
