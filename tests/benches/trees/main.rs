//! What an enhanced call costs, entered and left, in code that the VM has compiled: within an entry method and outside, beside two readings of
//! the clock by Java, and beside what agents of the usual kind insert (the clock of Java, and a stack of the thread's). And how long it takes to
//! find out what would be enhanced. And what it costs the compiler that methods are enhanced which it rarely calls.
//!
//! A run is as long as a thread's ring has room, and the best of five counts: what else the machine does only adds to it.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod rarely;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof::calls::Question;
use nprof::discover::Proc;
use nprof::model::{Pid, TreeKind, TreeMethod, TreePlan};
use nprof::resolve::pattern::Pattern;
use nprof::trace::{TreeTracer, TreeWants};
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

use self::rarely::{Rarely, rarely};

/// Methods that are rarely called slow a program down by nothing that can be measured: with a confidence of 95 % it may be nothing, in percent,
const RARELY_AT_LEAST: f64 = 0.0;
/// and is no more than this: else nothing could be measured.
const RARELY_AT_MOST: f64 = 3.0;
/// What makes a VM compile the same methods in the same way each time. C2 goes by what methods did before, each time that classes were changed
/// and changed back with another result: pairs then differ by more than could be seen, and are shown without a bar.
const CERTAIN: &[&str] = &["-XX:TieredStopAtLevel=1"];

/// So many calls have the VM compile what makes them.
const WARM_UP: u32 = 1_000_000;
/// Five times as many find room in a ring.
const CALLS: u32 = 600;
/// An enhanced call is to add at most so many times two readings.
const READINGS: f64 = 2.5;
/// And at most this share of what agents of the usual kind add. The aim is half of it, and 0.57 to 0.60 was measured on an AMD EPYC: two calls of a native and two
/// readings of the CPU's counter take most of that, and on an Intel Xeon 0.64 by themselves.
const OF_PLAIN: f64 = 0.7;
/// What a large program has.
const CLASSES: usize = 20_000;
/// In so many seconds it is known there what would be enhanced, from the shim's loading on.
const PLANNED: f64 = 1.0;

/// Nanoseconds of a call, of two readings, and of a call as agents of the usual kind make them.
#[derive(Debug, Clone, Copy)]
struct Times {
    call: f64,
    readings: f64,
    plain: f64,
}

fn main() -> Result<()> {
    let mut bars = Bars::default();
    println!(
        "| | ns a call | enhanced | outside of entry methods | restored | two readings of the clock | as usual agents do |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for jdk in Jdk::find_all()? {
        let [before, enhanced, restored] = measure(&jdk, &[timed(), leaf()]).with_context(|| format!("on {jdk}"))?;
        let [_, outside, _] = measure(&jdk, &[entry(), leaf()]).with_context(|| format!("on {jdk}, outside"))?;
        let (call, told, after, outside) = (before.call, enhanced.call, restored.call, outside.call);
        let Times { readings, plain, .. } = before;
        println!("| {jdk} | {call:.2} | {told:.1} | {outside:.1} | {after:.2} | {readings:.1} | {plain:.1} |");
        let added = told - call;
        bars.add(format!("added to an enhanced call, in two readings of the clock, {jdk}"), added / readings, READINGS);
        bars.add(format!("the same, in what usual agents add, {jdk}"), added / (plain - call), OF_PLAIN);
    }
    println!("\n| | classes | methods of the plan | left out | seconds |\n| --- | --- | --- | --- | --- |");
    for jdk in Jdk::find_all()? {
        let seconds = planned(&jdk).with_context(|| format!("a plan on {jdk}"))?;
        bars.add(format!("seconds for a plan in {CLASSES} classes, {jdk}"), seconds, PLANNED);
    }
    println!(
        "\n| | slowdown of a compilation with 30 methods enhanced (95 %) | pairs | the first after the first change | \
         calls of enhanced methods |\n| --- | --- | --- | --- | --- |"
    );
    // What has bars comes first: each takes some minutes.
    for (compiler, options) in [("C1", CERTAIN), ("all compilers", &[])] {
        for jdk in Jdk::find_all()? {
            let Rarely { slowdown, pairs, first, calls } =
                rarely(&jdk, options).with_context(|| format!("rarely called, on {jdk}, {compiler}"))?;
            println!("| {jdk}, {compiler} | {slowdown} | {pairs} | {first:.1} | {calls:.0} |");
            if options == CERTAIN {
                let least = format!("percent that rarely called methods cost at least, {jdk}");
                bars.add(least, slowdown.least, RARELY_AT_LEAST);
                bars.add(format!("percent that they cost at most, {jdk}"), slowdown.most, RARELY_AT_MOST);
            }
        }
    }
    println!("\n{bars}");
    bars.must_be_met()
}

/// As it is, enhanced, and restored.
fn measure(jdk: &Jdk, methods: &[TreeMethod]) -> Result<[Times; 3]> {
    let mut target = RemoteProcess::trees(jdk, &[])?;
    times(&mut target, WARM_UP)?;
    let before = times(&mut target, CALLS)?;
    let proc = Proc::host();
    let plan = TreePlan { methods: methods.to_vec(), ..TreePlan::default() };
    let mut tracer = TreeTracer::with_plan(
        &proc,
        proc.jvm(Pid(target.pid()))?,
        plan,
        TreeWants { off_cpu: true, ..TreeWants::default() },
    )?;
    tracer.begin()?;
    // Compiled again, for the most part without room in the ring.
    times(&mut target, WARM_UP)?;
    tracer.tick(&mut |_| {})?;
    let lost = tracer.losses();
    let enhanced = times(&mut target, CALLS)?;
    ensure!(tracer.losses() == lost, "{:?} after {lost:?}", tracer.losses());
    tracer.stop(&mut |_| {})?;
    times(&mut target, WARM_UP)?;
    let restored = times(&mut target, CALLS)?;
    target.exit()?;
    Ok([before, enhanced, restored])
}

/// How long a plan takes for the compiler, five calls deep.
fn planned(jdk: &Jdk) -> Result<f64> {
    let mut target = RemoteProcess::loaded(jdk)?;
    let answer = target.run(&format!("load {CLASSES}"))?;
    ensure!(answer == [CLASSES.to_string()], "{answer:?}");
    let question = of_javac("com.sun.tools.javac.**")?;
    let proc = Proc::host();
    let (jvm, begin) = (proc.jvm(Pid(target.pid()))?, Instant::now());
    let tracer = TreeTracer::open(&proc, jvm, &question, TreeWants::default())?;
    let (seconds, plan) = (begin.elapsed().as_secs_f64(), tracer.plan());
    println!("| {jdk} | {CLASSES} | {} | {} | {seconds:.2} |", plan.methods.len(), plan.left_out.len());
    drop(tracer);
    target.exit()?;
    Ok(seconds)
}

/// What the compiler calls, five calls deep, in such classes.
fn of_javac(classes: &str) -> Result<Question> {
    Ok(Question {
        entries: vec![Pattern::parse("com.sun.tools.javac.main.JavaCompiler::compile")?],
        packages: vec![Pattern::parse(classes)?],
        depth: 5,
        ..Question::default()
    })
}

fn times(target: &mut RemoteProcess, calls: u32) -> Result<Times> {
    let answer = target.run(&format!("time {calls}"))?;
    let line = answer.first().context("no times")?;
    let times = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [call, readings, plain] = times[..] else { anyhow::bail!("{line:?}") };
    Ok(Times { call, readings, plain })
}

/// The loop, and what it calls.
fn timed() -> TreeMethod {
    TreeMethod { class: "targets.Trees".into(), method: "timed".into(), is_entry: true, ..leaf() }
}

/// An entry method that nobody calls.
fn entry() -> TreeMethod {
    TreeMethod { method: "entry".into(), is_entry: true, ..leaf() }
}

fn leaf() -> TreeMethod {
    TreeMethod {
        class: "targets.Trees$Work".into(),
        method: "leaf".into(),
        signature: "(I)I".into(),
        kind: TreeKind::Java,
        is_entry: false,
        callee: None,
        depth: 0,
        callers: Vec::new(),
    }
}
