//! Trees of a target that counts its own calls: each invocation is a tree with exact counts, and classes are restored.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof::discover::Proc;
use nprof::model::{Pid, TreeCaller, TreeEvent, TreeEventKind, TreeKind, TreeMethod, TreePlan, TreeThread};
use nprof::trace::{TreeLosses, TreeTracer};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

/// How often rings are emptied.
const STEP: Duration = Duration::from_millis(2);
/// So many invocations of a thread find room in its ring, also if nobody reads it meanwhile.
const ROUNDS: u32 = 140;

/// The chosen methods, by their numbers.
const METHODS: [(&str, &str, &str); 10] = [
    ("targets.Trees", "entry", "(I)I"),
    ("targets.Trees", "recursive", "(I)I"),
    ("targets.Trees", "leaf", "(I)I"),
    ("targets.Trees", "caught", "(I)I"),
    ("targets.Trees", "level", "(I)I"),
    ("targets.Trees$Made", "<init>", "(I)V"),
    ("targets.Trees$Base", "<init>", "(I)V"),
    ("targets.Trees", "locked", "(I)I"),
    ("targets.Trees", "clock", "()I"),
    ("java.lang.Thread", "holdsLock", "(Ljava/lang/Object;)Z"),
];
const LEVEL: u32 = 4;
const CLOCK: u32 = 8;

fn plan() -> TreePlan {
    let method = |(number, &(class, method, signature)): (usize, &(&str, &str, &str))| {
        let is_native = class == "java.lang.Thread";
        TreeMethod {
            class: class.into(),
            method: method.into(),
            signature: signature.into(),
            kind: if is_native { TreeKind::Native } else { TreeKind::Java },
            is_entry: number == 0,
            depth: u32::from(number > 0),
            callers: is_native.then(|| TreeCaller { method: CLOCK, lines: Vec::new() }).into_iter().collect(),
        }
    };
    TreePlan { methods: METHODS.iter().enumerate().map(method).collect(), ..TreePlan::default() }
}

/// What threads have told.
#[derive(Debug, Default)]
struct Told {
    /// Whole invocations of the entry method.
    trees: u64,
    /// By method: entered, returned from, left by an exception.
    methods: BTreeMap<u32, [u64; 3]>,
    exceptions: BTreeMap<u32, u64>,
    open: HashMap<TreeThread, Vec<(u32, u64)>>,
    threads: BTreeMap<TreeThread, u64>,
    wrong: Vec<String>,
}

impl Told {
    fn take(&mut self, event: TreeEvent) {
        let open = self.open.entry(event.thread).or_default();
        let counts = self.methods.entry(event.method).or_default();
        match event.kind {
            TreeEventKind::Enter => {
                counts[0] += 1;
                open.push((event.method, event.at_ns));
                return;
            }
            TreeEventKind::Return => counts[1] += 1,
            TreeEventKind::Throw { exception } => {
                counts[2] += 1;
                *self.exceptions.entry(exception).or_default() += 1;
            }
            TreeEventKind::Lost(_) => self.wrong.push(format!("{event:?}")),
        }
        match open.pop() {
            Some((method, since)) if method == event.method && since <= event.at_ns => {}
            other => self.wrong.push(format!("{event:?} after {other:?}")),
        }
        if open.is_empty() {
            self.trees += 1;
            *self.threads.entry(event.thread).or_default() += 1;
        }
    }
}

/// A tracer of a target, for the methods above.
fn open(target: &RemoteProcess) -> Result<TreeTracer> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(target.pid()))?;
    Ok(TreeTracer::with_plan(&proc, jvm, plan())?)
}

/// Has the target do something while events are read.
fn told_while(tracer: &mut TreeTracer, target: &mut RemoteProcess, command: &str) -> Result<Told> {
    let mut told = Told::default();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let answer = target.run(command);
            is_done.store(true, Ordering::Release);
            answer
        });
        while !is_done.load(Ordering::Acquire) {
            tracer.tick(&mut |event| told.take(event))?;
            thread::sleep(STEP);
        }
        running.join().map_err(|_| anyhow::anyhow!("the thread that runs commands panicked"))?.map(drop)
    })?;
    for _ in 0..3 {
        tracer.tick(&mut |event| told.take(event))?;
    }
    Ok(told)
}

/// What so many invocations with the seeds from 0 on come to, by method: calls, and those of them that throw.
fn expected(threads: u64, rounds: u64) -> BTreeMap<u32, [u64; 2]> {
    let mut calls: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for seed in 0..rounds {
        let (in_caught, at_end) = (if seed % 3 == 0 { 3 } else { 0 }, if seed % 10 == 9 { 4 } else { 0 });
        let of_seed = [
            (0, 1, u64::from(at_end > 0)),
            (1, seed % 7 + 1, 0),
            (2, seed % 7 + 3, 0),
            (3, 1, 0),
            (LEVEL, in_caught + at_end, in_caught + at_end),
            (5, 1, 0),
            (6, 1, 0),
            (7, 1, 0),
            (CLOCK, 1, 0),
            (9, 1, 0),
        ];
        for (method, made, thrown) in of_seed {
            let sum = calls.entry(method).or_default();
            sum[0] += threads * made;
            sum[1] += threads * thrown;
        }
    }
    calls
}

/// Check that all of that has been told, in order.
fn must_be_exact(tracer: &TreeTracer, told: &Told, threads: u64, rounds: u64) -> Result<()> {
    ensure!(tracer.losses() == TreeLosses::default(), "{:?}", tracer.losses());
    ensure!(told.wrong.is_empty(), "{:?}", &told.wrong[..told.wrong.len().min(5)]);
    ensure!(told.trees == threads * rounds, "{} trees of {threads} x {rounds}", told.trees);
    ensure!(told.threads.len() as u64 == threads && told.threads.values().all(|&trees| trees == rounds), "{told:?}");
    for (method, [calls, thrown]) in expected(threads, rounds) {
        let seen = told.methods.get(&method).copied().unwrap_or_default();
        let name = METHODS[method as usize].1;
        ensure!(seen == [calls, calls - thrown, thrown], "{name}: {seen:?}, not {calls} of which {thrown} throw");
    }
    let names: Vec<&str> = told.exceptions.keys().filter_map(|&number| tracer.exception_name(number)).collect();
    ensure!(names == ["targets.Trees$Failure"], "{names:?}");
    Ok(())
}

fn follow(jdk: &Jdk, options: &[&str], threads: u32, mode: &str) -> Result<()> {
    let mut target = RemoteProcess::trees(jdk, options)?;
    let mut tracer = open(&target)?;
    let classes = tracer.begin()?;
    ensure!(classes == 3 && tracer.plan().left_out.is_empty(), "{classes} classes, {:?}", tracer.plan().left_out);
    let told = told_while(&mut tracer, &mut target, &format!("run {threads} {ROUNDS} {mode}"))?;
    must_be_exact(&tracer, &told, threads.into(), ROUNDS.into()).with_context(|| format!("{jdk} {options:?}"))?;
    let end = tracer.stop(&mut |_| {})?;
    ensure!(end.restored == 3 && end.behind == 0, "{end:?}");
    target.exit()
}

/// Check each invocation, on one thread and on many, in each mode of the VM.
#[test]
fn each_invocation_is_a_tree() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for options in [&[][..], &["-Xint"], &["-XX:TieredStopAtLevel=1"], &["-Xcomp"]] {
            follow(jdk, options, 1, "platform")?;
            follow(jdk, options, 64, "platform")?;
        }
        Ok(())
    })
}
