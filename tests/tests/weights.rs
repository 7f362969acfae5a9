//! What the widths stand for: natives that call back, that work and that sleep, by each weight.

use anyhow::{Context as _, Result, ensure};
use nprof_tests::nprof::{Trace, run};
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::stolen::Stolen;

use crate::callers::{Callers, FoldedStack, NATIVES, Recorded, Truth, function, told, width};

/// Who counts and times.
const TIERS: [&str; 2] = ["kernel", "stub"];

/// Selects the native that works and sleeps.
const COUNTED_WORK: &str = "targets.CallerNatives::work";

/// The width that a frame has as the innermost one.
fn own(stacks: &[FoldedStack], frame: &str) -> u64 {
    stacks.iter().filter(|stack| stack.frames.last().is_some_and(|last| last == frame)).map(|stack| stack.value).sum()
}

fn frame(native: &str) -> String {
    format!("{NATIVES}.{native}")
}

/// Check that the width of each native is its exact total to the unit, by each weight: with what it called back for the
/// time, without that for its own time; whether probes or stubs have timed it. Here `work` and `tick` are only called from within
/// `callBack`.
#[test]
fn widths_are_the_exact_totals() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        for tier in TIERS {
            let wheel = "outer:4,outerNap:2,callBack:4,deaf:4,callBackWork:4 2 1000000000 2000";
            let (recorded, truth) = target.recorded_file(&["--tier", tier], wheel)?;
            must_be_exact(&recorded, &truth).context(tier)?;
        }
        target.exit()
    })
}

fn must_be_exact(recorded: &Recorded, truth: &Truth) -> Result<()> {
    let profile = recorded.profile()?;
    let [time, calls, own_time, on_cpu, off_cpu] =
        ["time", "calls", "self", "on-cpu", "off-cpu"].map(|weight| recorded.folded(weight));
    let (time, calls, own_time, on_cpu, off_cpu) = (time?, calls?, own_time?, on_cpu?, off_cpu?);
    let probes_ns: u64 = profile.functions.iter().map(|function| function.probe_ns).sum();
    for native in ["callBack", "work", "tick"] {
        let (function, frame) = (function(&profile, native)?, frame(native));
        ensure!(function.calls == truth.calls(native), "{native}: {} calls", function.calls);
        ensure!(function.untimed == 0, "{native}: {} without a time", function.untimed);
        // What the probes of nested calls put in is taken off these calls alone.
        let nested_ns = if native == "callBack" { probes_ns } else { 0 };
        let drawn_ns = width(&time, &frame);
        let least_ns = function.total_ns.saturating_sub(nested_ns);
        ensure!((least_ns..=function.total_ns).contains(&drawn_ns), "{native}: {drawn_ns} {function:?}");
        let exact = [function.self_ns, function.calls, function.off_cpu_ns, function.on_cpu_ns()];
        let drawn = [&own_time, &calls, &off_cpu, &on_cpu].map(|stacks| own(stacks, &frame));
        ensure!(drawn == exact && !function.self_estimated, "{native}: {drawn:?} {function:?}");
    }
    let call_back = function(&profile, "callBack")?;
    ensure!(call_back.self_ns * 4 < call_back.total_ns, "nested time is not told apart: {call_back:?}");
    ensure!(own_time.iter().filter(|stack| stack.has(&frame("work"))).all(|stack| !stack.has(&frame("callBack"))));
    Ok(())
}

/// Check that what stubs have timed adds up in a picture where they do not know what threads use, too: calls and times are exact,
/// every call has a stack that is true, and the own time of a native that calls back is what stacks leave of it.
#[test]
fn widths_of_stubs_add_up() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        let wheel = "outer:4,callBack:4,deaf:4,callBackWork:4 2 1000000000 2500";
        let (recorded, truth) = target.recorded_file(&["--tier", "stub", "--no-off-cpu"], wheel)?;
        let profile = recorded.profile()?;
        let stacks = truth.stacks();
        for totals in &profile.calls {
            let told = told(&profile, &profile.stacks[totals.stack as usize]);
            ensure!(stacks.contains(&told[..]), "no such stack: {told:?}");
        }
        let time = recorded.folded("time")?;
        for native in ["callBack", "work", "tick"] {
            let (function, frame) = (function(&profile, native)?, frame(native));
            ensure!(function.calls == truth.calls(native), "{native}: {} calls", function.calls);
            let ratio = width(&time, &frame) as f64 / function.total_ns as f64;
            say(&format!("JDK {} {native}: drawn {ratio:.3}, {function:?}", jdk.version));
            ensure!((ratio - 1.0).abs() < 0.01, "{native} is drawn {ratio} times as wide as it is: {function:?}");
        }
        let call_back = function(&profile, "callBack")?;
        ensure!(call_back.self_ns * 4 < call_back.total_ns, "nested time is not told apart: {call_back:?}");
        ensure!(call_back.self_estimated && !profile.about.off_cpu, "{call_back:?}");
        target.exit()
    })
}

/// Check that the time off the CPU is that of the natives that slept, and not of those that worked, as far as the machine
/// let them: what a host has stolen from those that worked is in neither clock.
#[test]
fn off_cpu_is_sleep() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        for tier in TIERS {
            let (stolen, wheel) =
                (Stolen::from_now_on()?, "spin16:4,nap1:4,nap4:1,both:2,outerNap:1 2 1000000000 2500");
            let (profile, truth) = target.recorded(&["--tier", tier], wheel)?;
            let stolen = stolen.share()?;
            for name in ["spin16", "nap1", "nap4", "both", "outerNap"] {
                let path = truth.path(name, "work")?;
                let sampled = path.sampled(&profile);
                let asleep = 1.0 - path.cpu_ns as f64 / path.wall_ns as f64;
                let found = sampled.off_cpu_ns / sampled.time_ns;
                let told = format!("{name} by {tier}: {asleep:.3} asleep, {found:.3} found, {stolen:.3} stolen");
                say(&format!("JDK {}: {told}", jdk.version));
                ensure!(found - asleep < 0.1 && asleep - found < 0.1 + stolen, "{told}");
            }
        }
        target.exit()
    })
}

/// Check that a trace knows by itself how long the threads of a native ran that works and sleeps, that one that only works has
/// not waited for itself, and that without the program on context switches nothing is said of it.
#[test]
fn a_trace_tells_work_from_waiting() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        let wheel = "go spin16:4,nap4:4 2 1000000000 2500";
        for (option, is_measured) in [(None, true), (Some("--no-off-cpu"), false)] {
            let stolen = Stolen::from_now_on()?;
            let exact = ["--max-overhead", "off", COUNTED_WORK];
            let trace = Trace::start(target.pid(), &[&exact[..], option.as_slice()].concat())?;
            target.run(wheel)?;
            let report = trace.finish()?;
            let truth = target.truth()?;
            let row = report.methods.iter().find(|row| row.method == "work").context("no calls of work")?;
            let Some((on_cpu_ns, off_cpu_ns)) = row.on_cpu_ns.zip(row.off_cpu_ns) else {
                ensure!(!is_measured && row.off_cpu_ns.is_none(), "{row:?}");
                continue;
            };
            let (spin, nap) = (truth.path("spin16", "work")?, truth.path("nap4", "work")?);
            let ran = (spin.cpu_ns + nap.cpu_ns) as f64 / (spin.wall_ns + nap.wall_ns) as f64;
            let found = on_cpu_ns as f64 / row.total_ns.context("no time")? as f64;
            let stolen = stolen.share()?;
            say(&format!("JDK {}: {ran:.3} ran, {found:.3} found, {stolen:.3} stolen", jdk.version));
            let is_right = ran - found < 0.1 && found - ran < 0.1 + stolen;
            ensure!(is_measured && is_right, "{found} on the CPU, {ran} in truth, {stolen} stolen: {row:?}");
            ensure!(row.self_ns == Some(on_cpu_ns + off_cpu_ns), "{row:?}");
        }
        target.exit()
    })
}

/// Check that work comes first in a report, and alone in a picture that nobody said more of, and that each stack has its part
/// of it: the one that spins is nearly all, however long the other sleeps; whether probes or stubs have timed it.
#[test]
fn pictures_are_of_work() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        TIERS.into_iter().try_for_each(|tier| {
            let wheel = "spin16:4,nap4:4,direct:1 2 1000000000 2500";
            let (recorded, truth) = target.recorded_file(&["--tier", tier], wheel)?;
            must_be_of_work(&recorded, &truth).with_context(|| format!("{tier} on JDK {}", jdk.version))
        })?;
        target.exit()
    })
}

fn must_be_of_work(recorded: &Recorded, truth: &Truth) -> Result<()> {
    let file = recorded.file();
    let file = file.to_str().context("a temporary directory's name is text")?;
    let folded = run(&["flamegraph", file, "--format", "folded"])?;
    let work = recorded.folded("on-cpu")?;
    ensure!(folded.stdout.lines().map(FoldedStack::read).collect::<Result<Vec<_>>>()? == work, "{folded:?}");
    let (spin, nap) = (truth.path("spin16", "work")?, truth.path("nap4", "work")?);
    let expected = spin.cpu_ns as f64 / (spin.cpu_ns + nap.cpu_ns) as f64;
    let of_work = work.iter().filter(|stack| stack.has(&frame("work")));
    let widest = of_work.map(|stack| stack.value).max().context("no stack of work")?;
    let found = widest as f64 / width(&work, &frame("work")) as f64;
    say(&format!("{expected:.3} of the work along spin16, {found:.3} found"));
    ensure!((found - expected).abs() < 0.1, "{found} of the work along spin16 instead of {expected}");
    let svg = run(&["flamegraph", file, "-o", "-"])?.stdout;
    ensure!(svg.contains("Native CPU time of") && svg.contains("Waiting is left out"), "{svg}");
    let report = run(&["report", file])?.stdout;
    let first = report.lines().find(|line| line.contains("CallerNatives::"));
    ensure!(report.contains("ON-CPU") && first.is_some_and(|line| line.contains("work")), "{report}");
    Ok(())
}

/// Check that a recording without off-CPU times says so rather than to show none, and is drawn by time.
#[test]
fn without_off_cpu() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let (recorded, _) = target.recorded_file(&["--no-off-cpu"], "nap1:1 1 10 2000")?;
        for weight in ["off-cpu", "on-cpu"] {
            let error = recorded.folded(weight).expect_err("drawn without having been measured").to_string();
            ensure!(error.contains("--no-off-cpu"), "{error}");
        }
        let file = recorded.file();
        let folded = run(&["flamegraph", file.to_str().context("a path in UTF-8")?, "--format", "folded"])?;
        ensure!(width(&recorded.folded("time")?, &frame("work")) > 0 && folded.stdout.contains("work "), "{folded:?}");
        target.exit()
    })
}
