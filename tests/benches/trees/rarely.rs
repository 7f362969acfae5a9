//! What it costs a program that methods are enhanced which it rarely calls: the Java compiler compiles a tree of sources again and
//! again, with the methods that steer it enhanced and without, in one JVM.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use nprof::discover::Proc;
use nprof::model::{Pid, TreeEvent, TreeEventKind, TreeLosses, TreePlan};
use nprof::trace::{TreeTracer, TreeWants};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::source_tree::SourceTree;
use nprof_tests::usage::main_thread_time;

/// So many methods are enhanced.
const METHODS: usize = 30;
/// So often is everything compiled before: then the JVM has compiled what it will compile.
const WARM_UP: usize = 12;
/// So often is the state changed, by turns: what drifts is not taken for a difference.
const SEGMENTS: usize = 8;
/// So often is everything compiled in each, of which the quickest counts: that is what the host disturbs least.
const COMPILATIONS: usize = 5;
/// So many before those: then the JVM has compiled again what was changed.
const SETTLING: usize = 2;
/// How often what threads tell is read meanwhile, as `nprof tree` does.
const PACE: Duration = Duration::from_millis(20);

/// What was measured, by CPU time of the thread that compiles.
pub(crate) struct Rarely {
    /// The quickest compilation with enhanced methods, in the quickest without.
    pub slowdown: f64,
    /// The quickest compilations without, of two halves of the segments: so far measurements of the same differ.
    pub same: f64,
    /// The first compilation after the first change of a class in the JVM, in the quickest without.
    pub first: f64,
    /// Calls of enhanced methods in a compilation.
    pub calls: f64,
}

/// Measures it on a JDK.
pub(crate) fn rarely(jdk: &Jdk) -> Result<Rarely> {
    let scratch = tempfile::tempdir()?;
    let [sources, classes] = ["sources", "classes"].map(|name| scratch.path().join(name));
    [&sources, &classes].into_iter().try_for_each(std::fs::create_dir)?;
    let tree = SourceTree::write(jdk, &sources)?;
    let mut target = RemoteProcess::compiler(jdk, &tree, &classes)?;
    (0..WARM_UP).try_for_each(|_| target.run("compile 1").map(drop))?;
    let plan = plan(&target)?;
    // With the first change the VM drops everything that it has compiled.
    let first = enhanced(&mut target, &plan, &mut 0, compilation)?;
    (0..WARM_UP).try_for_each(|_| target.run("compile 1").map(drop))?;
    let (mut calls, mut with) = (0u64, f64::INFINITY);
    let mut without = [f64::INFINITY; 2];
    for segment in 0..SEGMENTS {
        if segment % 2 == 0 {
            let half = &mut without[segment / 2 % 2];
            *half = half.min(quickest(&mut target)?);
        } else {
            with = with.min(enhanced(&mut target, &plan, &mut calls, quickest)?);
        }
    }
    target.exit()?;
    ensure!(calls > 0, "no enhanced method was called");
    let least = without[0].min(without[1]);
    #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
    let calls = calls as f64 / (SEGMENTS / 2 * (SETTLING + COMPILATIONS)) as f64;
    Ok(Rarely { slowdown: with / least, same: without[0].max(without[1]) / least, first: first / least, calls })
}

/// The methods that steer a compilation, those nearest to its beginning.
fn plan(target: &RemoteProcess) -> Result<TreePlan> {
    let question = super::of_javac("com.sun.tools.javac.main.JavaCompiler")?;
    let proc = Proc::host();
    let tracer = TreeTracer::open(&proc, proc.jvm(Pid(target.pid()))?, &question, TreeWants::default())?;
    let mut methods = tracer.plan().methods.clone();
    methods.sort_by_key(|method| method.depth);
    methods.truncate(METHODS);
    ensure!(methods.len() == METHODS, "the plan has {} methods", methods.len());
    Ok(TreePlan { methods, ..TreePlan::default() })
}

/// Measures something while the methods are enhanced.
fn enhanced(
    target: &mut RemoteProcess,
    plan: &TreePlan,
    calls: &mut u64,
    measure: impl FnOnce(&mut RemoteProcess) -> Result<f64> + Send,
) -> Result<f64> {
    let proc = Proc::host();
    let mut tracer = TreeTracer::with_plan(&proc, proc.jvm(Pid(target.pid()))?, plan.clone(), TreeWants::default())?;
    tracer.begin()?;
    let mut count = |event: TreeEvent| *calls += u64::from(matches!(event.kind, TreeEventKind::Enter));
    let took = thread::scope(|scope| -> Result<f64> {
        let compiling = scope.spawn(|| measure(target));
        while !compiling.is_finished() {
            tracer.tick(&mut count)?;
            thread::sleep(PACE);
        }
        compiling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    tracer.stop(&mut count)?;
    ensure!(tracer.losses() == TreeLosses::default(), "{:?}", tracer.losses());
    Ok(took)
}

/// The CPU time of the quickest of several compilations.
fn quickest(target: &mut RemoteProcess) -> Result<f64> {
    (0..SETTLING).try_for_each(|_| target.run("compile 1").map(drop))?;
    (0..COMPILATIONS).try_fold(f64::INFINITY, |least, _| Ok(least.min(compilation(target)?)))
}

/// The CPU time of one.
fn compilation(target: &mut RemoteProcess) -> Result<f64> {
    let before = main_thread_time(target.pid())?;
    target.run("compile 1")?;
    Ok(main_thread_time(target.pid())? - before)
}
