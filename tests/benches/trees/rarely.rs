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
/// So often is everything compiled before: then the JVM has compiled what it will compile.
const WARM_UP: usize = 12;
/// How often what threads tell is read meanwhile, as `nprof tree` does.
const PACE: Duration = Duration::from_millis(20);
/// So many pairs are measured.
const ROUNDS: usize = 8;

/// What was measured.
pub(crate) struct Rarely {
    /// By CPU time of the thread that compiles.
    pub slowdown: Slowdown,
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
    let (mut pairs, mut calls) = (Vec::new(), 0u64);
    for round in 0..ROUNDS {
        // By turns first: what drifts is not taken for a difference.
        let mut times = [0.0; 2];
        for state in [round % 2, 1 - round % 2] {
            times[state] = measured(&mut target, (state == 1).then_some(&plan), &mut calls)?;
        }
        pairs.push((times[0], times[1]));
    }
    target.exit()?;
    ensure!(calls > 0, "no enhanced method was called");
    // Everything was compiled twice in a round with them.
    #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
    let calls = calls as f64 / (2.0 * ROUNDS as f64);
    Ok(Rarely { slowdown: Slowdown::of(pairs), calls })
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

/// The CPU time of one compilation.
fn measured(target: &mut RemoteProcess, plan: Option<&TreePlan>, calls: &mut u64) -> Result<f64> {
    let Some(plan) = plan else {
        return second(target);
    };
    let proc = Proc::host();
    let mut tracer = TreeTracer::with_plan(&proc, proc.jvm(Pid(target.pid()))?, plan.clone(), TreeWants::default())?;
    tracer.begin()?;
    let mut count = |event: TreeEvent| *calls += u64::from(matches!(event.kind, TreeEventKind::Enter));
    let took = thread::scope(|scope| -> Result<f64> {
        let compiling = scope.spawn(|| second(target));
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

/// That of the second of two: with the first the VM compiles what was changed, which is no part of what is measured.
fn second(target: &mut RemoteProcess) -> Result<f64> {
    target.run("compile 1")?;
    let before = main_thread_time(target.pid())?;
    target.run("compile 1")?;
    Ok(main_thread_time(target.pid())? - before)
}
