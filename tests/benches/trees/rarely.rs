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
use nprof_tests::slowdown::Slowdown;
use nprof_tests::source_tree::SourceTree;
use nprof_tests::usage::main_thread_time;

/// So many methods are enhanced.
const METHODS: usize = 30;
/// So many classes are compiled: some tenths of a second of work, for many compilations say more than long ones.
const CLASSES: usize = 4;
/// So often is everything compiled before: then the JVM has compiled what it will compile.
const WARM_UP: usize = 40;
/// So many pairs are measured, of some compilations without and some with: at least,
const LEAST_PAIRS: usize = 8;
/// and at most, if the interval is not narrow before.
const MOST_PAIRS: usize = 16;
/// Half of an interval in percent that is narrow.
const NARROW: f64 = 1.0;
/// So often is everything compiled on each side of a pair, of which the quickest counts: that is what the host disturbs least.
const COMPILATIONS: usize = 12;
/// So many before those: then the JVM has compiled again what was changed.
const SETTLING: usize = 6;
/// How often what threads tell is read meanwhile, as `nprof tree` does.
const PACE: Duration = Duration::from_millis(20);

/// What was measured, by CPU time of the thread that compiles.
pub(crate) struct Rarely {
    /// By how much compilations with enhanced methods are slower, pair by pair.
    pub slowdown: Slowdown,
    /// How many pairs that took.
    pub pairs: usize,
    /// The first compilation after the first change of a class in the JVM, in the quickest without, in times.
    pub first: f64,
    /// Calls of enhanced methods in a compilation.
    pub calls: f64,
}

/// Measures it on a JDK, in a VM with options.
pub(crate) fn rarely(jdk: &Jdk, options: &[&str]) -> Result<Rarely> {
    let scratch = tempfile::tempdir()?;
    let [sources, classes] = ["sources", "classes"].map(|name| scratch.path().join(name));
    [&sources, &classes].into_iter().try_for_each(std::fs::create_dir)?;
    let tree = SourceTree::generate(&sources, CLASSES)?;
    let mut target = RemoteProcess::compiler(jdk, options, &tree, &classes)?;
    (0..WARM_UP).try_for_each(|_| target.run("compile 1").map(drop))?;
    let plan = plan(&target)?;
    // With the first change the VM drops everything that it has compiled.
    let first = enhanced(&mut target, &plan, &mut 0, compilation)?;
    (0..WARM_UP).try_for_each(|_| target.run("compile 1").map(drop))?;
    let mut calls = 0u64;
    let mut pairs = Vec::new();
    while !is_enough(&pairs) {
        // By turns: what drifts is not taken for a difference.
        if pairs.len() % 2 == 0 {
            let without = quickest(&mut target)?;
            pairs.push((without, enhanced(&mut target, &plan, &mut calls, quickest)?));
        } else {
            let with = enhanced(&mut target, &plan, &mut calls, quickest)?;
            pairs.push((quickest(&mut target)?, with));
        }
    }
    target.exit()?;
    ensure!(calls > 0, "no enhanced method was called");
    let least = pairs.iter().fold(f64::INFINITY, |least, (without, _)| least.min(*without));
    #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
    let calls = calls as f64 / (pairs.len() * (SETTLING + COMPILATIONS)) as f64;
    Ok(Rarely { pairs: pairs.len(), slowdown: Slowdown::of(pairs), first: first / least, calls })
}

/// Whether the pairs say enough, or there is no time for more.
fn is_enough(pairs: &[(f64, f64)]) -> bool {
    let Slowdown { least, most, .. } = Slowdown::of(pairs.iter().copied());
    pairs.len() >= MOST_PAIRS || (pairs.len() >= LEAST_PAIRS && (most - least) / 2.0 <= NARROW)
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
