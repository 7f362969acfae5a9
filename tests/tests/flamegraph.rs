//! Every stack of a recording is one that the target had: every frame, every line.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use nprof::model::{Profile, StackTotals};
use nprof_tests::container::{Container, Sort};
use nprof_tests::name::MethodName;
use nprof_tests::require::{does_not_concern, say, traced_on_every_jdk};

use crate::TARGETS;
use crate::callers::{Callers, Frame, Recording, Truth, function, told};

/// Of a thousand stacks, so many have to be complete.
const COMPLETE: u64 = 995;
/// The same while classes come and go, as those of every fortieth stack.
const COMPLETE_WITH_CHURN: u64 = 950;
/// Why those are cut.
const GONE: &str = "the VM's code changed meanwhile";
/// Why those of virtual threads are cut.
const FROZEN: &str = "the rest of a virtual thread is frozen in the heap";
/// The same of virtual threads while the heap is collected without a pause.
const COMPLETE_WITH_COLLECTIONS: u64 = 980;
/// The same while the collector Z moves the frames of virtual threads without a pause.
const COMPLETE_WITH_Z: u64 = 600;
/// Fewer stacks would not prove much.
const MANY: u64 = 1_000;

/// Compares all stacks of the calls that returned.
fn must_be_true(profile: &Profile, truth: &Truth, what: &str) -> Result<()> {
    must_be_true_of(COMPLETE, profile, truth, what)
}

/// Compares all stacks of the calls that returned; so many of a thousand have to be complete.
fn must_be_true_of(enough: u64, profile: &Profile, truth: &Truth, what: &str) -> Result<()> {
    let quality = &profile.quality;
    let known = truth.stacks();
    let mut found: BTreeSet<Vec<Frame>> = BTreeSet::new();
    let mut wrong = Vec::new();
    for totals in &profile.calls {
        let stack = &profile.stacks[totals.stack as usize];
        let told = told(profile, stack);
        if stack.cut.is_some() {
            continue;
        }
        match known.contains(told.as_slice()) {
            true => drop(found.insert(told)),
            false => wrong.push(told),
        }
    }
    let (stacks, complete) = (quality.stacks, quality.complete);
    say(&format!(
        "{what}: {complete} of {stacks} stacks complete {:?}, {} different of {} true ones, lost {:?}",
        quality.cut,
        found.len(),
        known.len(),
        quality.lost
    ));
    let examples: Vec<String> = wrong.iter().take(5).map(|stack| difference(stack, &known)).collect();
    ensure!(wrong.is_empty(), "{what}: {} stacks that there are not:\n{}", wrong.len(), examples.join("\n"));
    ensure!(stacks >= MANY, "{what}: only {stacks} stacks");
    ensure!(1000 * complete >= enough * stacks, "{what}: {complete} of {stacks} complete: {:?}", quality.cut);
    Ok(())
}

/// Holds if as good as all stacks that are cut are so because the VM's code changed before they were read.
fn must_be_cut_by_changes(profile: &Profile) -> Result<()> {
    let other = profile.quality.cut.iter().filter(|(reason, _)| reason != GONE);
    let (other, all): (u64, u64) = (other.map(|(_, stacks)| stacks).sum(), profile.quality.stacks);
    ensure!(1000 * other <= (1000 - COMPLETE) * all, "{other} of {all} are cut for other reasons");
    Ok(())
}

/// The same as [`must_be_true`] where a busy machine may read stacks so late that code has changed.
pub(crate) fn must_be_true_though_late(profile: &Profile, truth: &Truth, what: &str) -> Result<()> {
    must_be_true_of(COMPLETE_WITH_CHURN, profile, truth, what)?;
    must_be_cut_by_changes(profile)
}

/// A stack that there is not beside the one that is most like it.
fn difference(stack: &[Frame], known: &BTreeSet<&[Frame]>) -> String {
    let alike = |other: &&&[Frame]| stack.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let nearest = known.iter().max_by_key(alike).copied().unwrap_or_default();
    let same = alike(&&nearest);
    format!(
        "{} frames:\n    {:?}\nthe nearest of {}:\n    {:?}\nboth are above the same {same} frames {:?}",
        stack.len(),
        &stack[..stack.len() - same],
        nearest.len(),
        &nearest[..nearest.len() - same],
        stack.get(stack.len() - same),
    )
}

/// Holds if each native that is always there has the calls that were made.
pub(crate) fn must_be_counted(profile: &Profile, truth: &Truth) -> Result<()> {
    for native in ["tick", "own", "many", "locked", "raise", "callBack", "work"] {
        let (calls, made) = (function(profile, native)?.calls, truth.calls(native));
        ensure!(calls == made, "{native}: {calls} of {made} calls are counted: {:?}", profile.quality.losses);
    }
    Ok(())
}

/// Check that every stack is one of the target's own, as good as all of them complete, and all counts exact, from the
/// first calls until everything is compiled.
#[test]
fn every_stack_is_a_true_one() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        for round in ["first", "again"] {
            let args = ["--max-stacks", "2500", "--stack-size", "64k"];
            let (profile, truth) = target.recorded(&args, "all 8 100000 2500")?;
            must_be_true(&profile, &truth, &format!("JDK {} {round}", jdk.version))?;
            must_be_counted(&profile, &truth)?;
        }
        target.exit()
    })
}

/// Check the same while classes with their own natives come and go, and code with them, and with the least memory to keep
/// code in that there can be. Some stacks have classes that are gone when they are read: they are cut, but none is wrong.
#[test]
fn true_ones_while_classes_come_and_go() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &["-XX:MetaspaceSize=16m", "-XX:ReservedCodeCacheSize=8m"])?;
        target.run("churn 60")?;
        let args = ["--max-stacks", "5000", "--stack-size", "64k"];
        let (profile, truth) = target.recorded(&args, "all 6 100000 2500")?;
        must_be_true_of(COMPLETE_WITH_CHURN, &profile, &truth, &format!("JDK {} churning", jdk.version))?;
        must_be_counted(&profile, &truth)?;
        must_be_cut_by_changes(&profile)?;
        let passing = truth.path("passing", "passing")?.sampled(&profile);
        ensure!(passing.samples > 0, "no stack of a class that passes");
        target.exit()
    })
}

/// Check the same in the interpreter alone, with one compiler alone, and with compiled code only.
#[test]
fn every_stack_is_a_true_one_however_code_is_executed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for options in [["-Xint"], ["-XX:TieredStopAtLevel=1"], ["-XX:-TieredCompilation"]] {
            let mut target = Callers::learned(jdk, &options)?;
            let args = ["--max-stacks", "5000", "--stack-size", "64k"];
            let (profile, truth) = target.recorded(&args, "all 8 100000 1500")?;
            must_be_true(&profile, &truth, &format!("JDK {} {options:?}", jdk.version))?;
            must_be_counted(&profile, &truth)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check the same of virtual threads alone in the interpreter, whose frames are the largest: much of a deep stack is on the stack
/// itself, and the frozen rest is copied too.
#[test]
fn every_stack_of_virtual_threads_is_a_true_one_in_the_interpreter() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        if jdk.version < 21 {
            return does_not_concern(jdk, "it has no virtual threads");
        }
        let mut target = Callers::learned(jdk, &["-Xint"])?;
        let args = ["--max-stacks", "5000", "--stack-size", "64k"];
        let (profile, truth) = target.recorded(&args, "virtual 6 100000 2000")?;
        // One path yields in every frame: now and then it has more chunks than are copied.
        must_be_true_of(COMPLETE_WITH_COLLECTIONS, &profile, &truth, &format!("JDK {} virtual -Xint", jdk.version))?;
        let frozen = profile.quality.cut.iter().find(|(reason, _)| *reason == FROZEN).map_or(0, |(_, stacks)| *stacks);
        ensure!(
            500 * frozen <= profile.quality.stacks,
            "{frozen} of {} without what is frozen",
            profile.quality.stacks
        );
        must_be_counted(&profile, &truth)?;
        target.exit()
    })
}

/// Check the same of virtual threads alone where stubs choose the calls.
#[test]
fn every_stack_of_virtual_threads_is_a_true_one_by_stubs() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        if jdk.version < 21 {
            return does_not_concern(jdk, "it has no virtual threads");
        }
        let mut target = Callers::learned(jdk, &[])?;
        let args = ["--tier", "stub", "--max-stacks", "5000", "--stack-size", "64k"];
        let (profile, truth) = target.recorded(&args, "virtual 6 100000 1500")?;
        must_be_true_of(COMPLETE_WITH_COLLECTIONS, &profile, &truth, &format!("JDK {} virtual, stubs", jdk.version))?;
        must_be_counted(&profile, &truth)?;
        target.exit()
    })
}

/// Check the same of virtual threads alone, most of whose frames are frozen in the heap when a native returns, while each
/// collector moves them. Z does so while the program runs: then some cannot be found, but none is wrong.
#[test]
fn every_stack_of_virtual_threads_is_a_true_one_whatever_collects() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let collectors =
            ["-XX:+UseG1GC", "-XX:+UseParallelGC", "-XX:+UseSerialGC", "-XX:+UseShenandoahGC", "-XX:+UseZGC"];
        for collector in collectors.into_iter().filter(|_| jdk.version >= 21) {
            let mut target = Callers::learned(jdk, &[collector])?;
            target.run("collect 30000")?;
            let args = ["--max-stacks", "5000", "--stack-size", "64k"];
            let (profile, truth) = target.recorded(&args, "virtual 6 100000 2000")?;
            let complete = if collector == "-XX:+UseZGC" { COMPLETE_WITH_Z } else { COMPLETE_WITH_COLLECTIONS };
            must_be_true_of(complete, &profile, &truth, &format!("JDK {} {collector}", jdk.version))?;
            must_be_counted(&profile, &truth)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that a JVM in a container, with its own namespaces, is recorded as one outside: all stacks complete and named,
/// all calls counted.
#[test]
fn in_a_container() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for user_namespace in [false, true] {
            let mut container = Container::start(jdk, &Sort { user_namespace, ..Sort::default() })?;
            let recording = Recording::start(container.pid(), &["--max-stacks", "5000", TARGETS])?;
            let called = container.calls("all", 2, 300)?;
            let profile = recording.finish()?;
            let quality = &profile.quality;
            ensure!(quality.stacks > 100 && 1000 * quality.complete >= COMPLETE * quality.stacks, "{quality:?}");
            for made in called {
                let mut of = profile
                    .functions
                    .iter()
                    .filter(|of| made.methods.contains(&MethodName::new(&of.class, &of.method, &of.signature)));
                ensure!(of.any(|of| of.calls == made.made), "{made:?}: {:?}", profile.functions);
            }
            let outermost = |totals: &StackTotals| {
                let last = profile.stacks[totals.stack as usize].frames.last();
                let name = last.map(|frame| profile.frames[*frame as usize].name.as_str());
                name.is_some_and(|name| ["run", "main"].contains(&name))
            };
            ensure!(profile.calls.iter().all(outermost), "stacks that do not reach their thread's first frame");
            say(&format!("JDK {} in a container: {quality:?}", jdk.version));
        }
        Ok(())
    })
}
