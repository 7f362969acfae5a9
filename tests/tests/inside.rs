//! What lies within natives, and beside them: native frames, and samples by timer.

use anyhow::{Context, Result, ensure};
use nprof::model::{CutReason, Profile, ProfileFrameKind, ProfileStack, StackTotals};
use nprof_tests::nprof::run;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{does_not_concern, say, traced_on_every_jdk};

use crate::callers::{Callers, FoldedStack, Recording, function, width};

/// A C function that computes, and one that sleeps.
const FUNCTIONS: [&str; 2] = ["churn_cpu", "take_a_nap"];
/// The C function of the native that calls them.
const NATIVE: &str = "Java_targets_CallerNatives_work";
/// How much a share may differ from the true one, of itself.
const WITHIN: f64 = 0.15;
/// The same where few long waits decide.
const WITHIN_OF_WAITS: f64 = 0.25;

/// Check that C functions are shown under the native that called them, with the time that each of them took.
#[test]
fn native_functions_have_their_share() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let (recorded, truth) = target.recorded_file(
            &["--native-stacks", "--max-stacks", "4000"],
            "spin16:6,nap4:1,direct:4 2 1000000000 2500",
        )?;
        let (profile, time) = (recorded.profile()?, recorded.folded("time")?);
        let quality = &profile.quality;
        let [spin, nap] = [truth.path("spin16", "work")?.wall_ns, truth.path("nap4", "work")?.wall_ns];
        let work = width(&time, "targets.CallerNatives.work");
        ensure!(work == function(&profile, "work")?.total_ns, "{work} drawn of {:?}", function(&profile, "work")?);
        for (name, part) in FUNCTIONS.into_iter().zip([spin, nap]) {
            let expected = part as f64 / (spin + nap) as f64;
            let found = width(&time, name) as f64 / work as f64;
            say(&format!("JDK {} {name}: {expected:.3} of the time, {found:.3} found; {quality:?}", jdk.version));
            ensure!(
                (found - expected).abs() < WITHIN_OF_WAITS * expected.max(0.4),
                "{name}: {found} instead of {expected}"
            );
        }
        let under = |name| time.iter().filter(|stack| stack.has(name)).all(|stack| stack.has(NATIVE));
        ensure!(FUNCTIONS.into_iter().all(under), "C functions that their native has not called: {time:#?}");
        target.exit()
    })
}

/// Check that stacks which were found by a frame pointer for want of anything better are counted as such, in the recording and
/// in words, and that those of code that is described are not: a thread that is just on its way through a probe aside.
#[test]
fn guesses_are_told() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        for (wheel, name, are_guessed) in [("spin16:1", "churn_cpu", false), ("blind:1", "churn_blindly", true)] {
            let (recorded, _) = target.recorded_file(&["--native-stacks"], &format!("{wheel} 2 1000000000 1500"))?;
            let (profile, time) = (recorded.profile()?, recorded.folded("time")?);
            let is_there = |totals: &&StackTotals| has_frame(&profile, totals, |_, found| found == name);
            let samples: u64 = profile.inside.iter().filter(is_there).map(|totals| totals.samples).sum();
            let guessed = profile.quality.guessed;
            say(&format!("JDK {} {name}: {guessed} guesses, {samples} samples", jdk.version));
            ensure!(samples > 20, "{name}: only {samples} samples");
            ensure!(
                if are_guessed { guessed >= samples } else { 50 * guessed <= samples },
                "{name}: {:?}",
                profile.quality
            );
            let is_right = |stack: &FoldedStack| stack.has(NATIVE) && stack.has("targets.CallerNatives.work");
            ensure!(time.iter().filter(|stack| stack.has(name)).all(is_right), "{time:#?}");
            let file = recorded.file();
            let report = run(&["report", file.to_str().context("a temporary directory's name is text")?])?;
            ensure!(report.stdout.contains("rest on a guess") == (guessed > 0), "{report:?}");
        }
        target.exit()
    })
}

/// What a sample by timer is of.
#[derive(Debug, Default)]
struct Shares {
    native_ns: f64,
    /// Of the threads that call.
    all_ns: f64,
}

impl Shares {
    fn of(profile: &Profile) -> Self {
        let mut shares = Self::default();
        for totals in &profile.inside {
            let is_caller = has_frame(profile, totals, |scope, name| (scope, name) == ("targets.Callers", "walk"));
            let is_native = has_frame(profile, totals, |_, name| name == NATIVE);
            shares.all_ns += if is_caller { totals.time_ns } else { 0.0 };
            shares.native_ns += if is_caller && is_native { totals.time_ns } else { 0.0 };
        }
        shares
    }
}

fn has_frame(profile: &Profile, totals: &StackTotals, is: impl Fn(&str, &str) -> bool) -> bool {
    let mut frames = profile.stacks[totals.stack as usize].frames.iter().map(|frame| &profile.frames[*frame as usize]);
    frames.any(|frame| is(&frame.scope, &frame.name))
}

/// Check that samples by timer show the shares of the CPU that Java code and native code take, as the target knows them,
/// and all of its CPU time.
#[test]
fn cpu_of_java_and_of_natives() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        for wheel in ["java1:1,spin16:1", "java3:1,spin16:1", "java1:1,spin16:3"] {
            let recording = Recording::start(target.pid(), &["--on-cpu", "--max-stacks", "2000"])?;
            target.run(&format!("go {wheel} 2 1000000000 2000"))?;
            let profile = recording.finish()?;
            let (truth, cpu_ns) = (target.truth()?, target.cpu_ns()? as f64);
            let in_native: u64 = truth.0.iter().map(|path| path.cpu_ns).sum();
            let (shares, expected) = (Shares::of(&profile), in_native as f64 / cpu_ns);
            let (found, all) = (shares.native_ns / shares.all_ns, shares.all_ns / cpu_ns);
            let quality = &profile.quality;
            say(&format!(
                "JDK {} {wheel}: {expected:.3} native, {found:.3} found, {all:.3} of the CPU time, {quality:?}",
                jdk.version
            ));
            ensure!((found - expected).abs() < WITHIN * expected, "{wheel}: {found} native instead of {expected}");
            ensure!((found - expected).abs() < WITHIN * (1.0 - expected), "{wheel}: {found} instead of {expected}");
            ensure!((all - 1.0).abs() < WITHIN, "{wheel}: {all} of the CPU time");
        }
        target.exit()
    })
}

/// Check that the VM's own threads, which compile and collect, are there with the VM's functions and without Java.
#[test]
fn threads_of_the_vm() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        target.run("churn 20")?;
        let recording = Recording::start(target.pid(), &["--on-cpu", "--max-stacks", "2000"])?;
        target.run("go all 2 1000000 2500")?;
        let profile = recording.finish()?;
        let quality = &profile.quality;
        let of_vm = profile.inside.iter().filter(|totals| is_of_vm(&profile, totals));
        let (complete, cut): (Vec<_>, Vec<_>) =
            of_vm.partition(|totals| profile.stacks[totals.stack as usize].cut.is_none());
        let samples = |of: &[&StackTotals]| of.iter().map(|totals| totals.samples).sum::<u64>();
        let (complete, cut) = (samples(&complete), samples(&cut));
        say(&format!("JDK {}: of the VM {complete} complete, {cut} cut; {quality:?}", jdk.version));
        ensure!(complete >= 20, "only {complete} stacks of the VM's threads, {cut} cut");
        // The heap is collected some 80 times in a second, and a stack in a class that may be gone by the time it is read is not told.
        // How many these are depends on the pace of the machine, which does not excuse any other reason.
        let changing = quality.cut.iter().filter(|(reason, _)| *reason == CutReason::Changing.to_string());
        let changing: u64 = changing.map(|(_, stacks)| stacks).sum();
        ensure!(100 * (quality.complete + changing) >= 98 * quality.stacks, "{quality:?}");
        ensure!(100 * changing <= 3 * quality.stacks, "{quality:?}");
        target.exit()
    })
}

/// The first JDK with the foreign function interface.
const FOREIGN: u32 = 22;
/// What a JVM does on the way from native code into Java and back, by the names of its functions.
const OF_UPCALLS: &str = "UpcallLinker::";

/// Check that native code which calls Java by upcalls is followed: where the VM enters or leaves Java for it, the functions are
/// there that called, and the Java method that called them by a downcall.
#[test]
fn upcalls() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        if jdk.version < FOREIGN {
            return does_not_concern(jdk, "it has no foreign function interface");
        }
        let scratch = tempfile::tempdir()?;
        let mut target = RemoteProcess::upcalls(jdk, scratch.path())?;
        target.run("sort 50")?;
        let recording = Recording::start(target.pid(), &["--on-cpu", "--max-stacks", "2000"])?;
        target.run("sort 600")?;
        let profile = recording.finish()?;
        let is_java = |totals: &&StackTotals| has_frame(&profile, totals, |scope, _| scope == "targets.Upcalls");
        let is_entered = |totals: &&StackTotals| has_frame(&profile, totals, |_, name| name.starts_with(OF_UPCALLS));
        let of_upcalls: Vec<_> = profile.inside.iter().filter(is_entered).collect();
        let is_whole = |totals: &&StackTotals| {
            is_java(totals) && has_frame(&profile, totals, |_, name| name.contains("qsort") || name.contains("msort"))
        };
        let (whole, others): (Vec<&StackTotals>, Vec<_>) = of_upcalls.into_iter().partition(is_whole);
        let wrong: Vec<_> = others.iter().map(|totals| &profile.stacks[totals.stack as usize]).collect();
        let wrong: Vec<_> = wrong.into_iter().filter(|stack| stack.cut.is_none()).collect();
        let wrong: Vec<Vec<&str>> = wrong.iter().map(|stack| names(&profile, stack)).collect();
        let samples = |of: &[&StackTotals]| of.iter().map(|totals| totals.samples).sum::<u64>();
        let (whole, others, quality) = (samples(&whole), samples(&others), &profile.quality);
        say(&format!("JDK {}: of upcalls {whole} whole, {others} not; {quality:?}", jdk.version));
        ensure!(wrong.is_empty(), "not one is without its caller and not cut: {wrong:?}");
        ensure!(whole >= 20, "only {whole} stacks of upcalls, {others} not whole");
        ensure!(100 * quality.complete >= 95 * quality.stacks, "{quality:?}");
        target.exit()
    })
}

/// The names of a stack's frames.
fn names<'a>(profile: &'a Profile, stack: &ProfileStack) -> Vec<&'a str> {
    stack.frames.iter().map(|frame| &*profile.frames[*frame as usize].name).collect()
}

/// Whether it is of a thread that has nothing to do with Java.
fn is_of_vm(profile: &Profile, totals: &StackTotals) -> bool {
    let stack = &profile.stacks[totals.stack as usize];
    let mut kinds = stack.frames.iter().map(|frame| profile.frames[*frame as usize].kind);
    kinds.clone().any(|kind| kind == ProfileFrameKind::Vm) && !kinds.any(ProfileFrameKind::is_java)
}
