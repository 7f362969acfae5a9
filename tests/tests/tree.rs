//! Trees of a target that counts its own calls: each invocation is a tree with exact counts, and classes are restored.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::calls::Question;
use nprof::classfile::ClassFile;
use nprof::discover::Proc;
use nprof::model::{Pid, TreeCaller, TreeEvent, TreeEventKind, TreeKind, TreeLosses, TreeMethod, TreePlan, TreeThread};
use nprof::resolve::pattern::Pattern;
use nprof::trace::{TreeTracer, TreeWants};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{does_not_concern, traced_on_every_jdk};

/// How often rings are emptied.
const STEP: Duration = Duration::from_millis(2);
/// So many invocations of a thread find room in its ring, also if nobody reads it meanwhile.
const ROUNDS: u32 = 140;

/// The chosen methods, by their numbers.
const METHODS: [(&str, &str, &str); 10] = [
    ("targets.Trees$Work", "entry", "(I)I"),
    ("targets.Trees$Work", "recursive", "(I)I"),
    ("targets.Trees$Work", "leaf", "(I)I"),
    ("targets.Trees$Work", "caught", "(I)I"),
    ("targets.Trees$Work", "level", "(I)I"),
    ("targets.Trees$Made", "<init>", "(I)V"),
    ("targets.Trees$Base", "<init>", "(I)V"),
    ("targets.Trees$Work", "locked", "(I)I"),
    ("targets.Trees$Work", "clock", "()I"),
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
            callee: None,
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
pub(crate) struct Told {
    /// Whole invocations of the entry method.
    pub(crate) trees: u64,
    /// By method: entered, returned from, left by an exception.
    pub(crate) methods: BTreeMap<u32, [u64; 3]>,
    exceptions: BTreeMap<u32, u64>,
    open: HashMap<TreeThread, Vec<(u32, u64)>>,
    threads: BTreeMap<TreeThread, u64>,
    pub(crate) wrong: Vec<String>,
    /// Tasks that were made, and invocations that came of one.
    pub(crate) tasks: [u64; 2],
    /// How long threads have not been running, each time.
    waits: Vec<Option<u64>>,
}

impl Told {
    pub(crate) fn take(&mut self, event: TreeEvent) {
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
            TreeEventKind::Lost(_) | TreeEventKind::LostWithin(_) | TreeEventKind::Consumed { .. } => {
                self.wrong.push(format!("{event:?}"));
            }
            TreeEventKind::Waited(off_ns) => {
                self.waits.push(off_ns);
                return;
            }
            TreeEventKind::Hands(_) | TreeEventKind::Comes(_) => {
                self.tasks[usize::from(matches!(event.kind, TreeEventKind::Comes(_)))] += 1;
                return;
            }
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
    open_with(target, true)
}

fn open_with(target: &RemoteProcess, off_cpu: bool) -> Result<TreeTracer> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(target.pid()))?;
    Ok(TreeTracer::with_plan(&proc, jvm, plan(), TreeWants { off_cpu, ..TreeWants::default() })?)
}

/// Has the target do something while events are read.
pub(crate) fn told_while(tracer: &mut TreeTracer, target: &mut RemoteProcess, command: &str) -> Result<Told> {
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
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop)
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

/// The files of the classes, as the VM has them.
fn files(tracer: &mut TreeTracer) -> Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for class in ["targets.Trees$Work", "targets.Trees$Made", "targets.Trees$Base"] {
        let [file] = &tracer.class_files(class)?[..] else { anyhow::bail!("not one file of {class}") };
        files.push(file.clone());
    }
    Ok(files)
}

/// Check that a class is what it was. The VM may keep constants that nothing uses any more, behind those that there were.
pub(crate) fn must_be_the_same(before: &[u8], after: &[u8]) -> Result<()> {
    let [ends @ .., _] = [before, after, &[]].map(|file| ClassFile::parse(file).map(|class| class.pool_end));
    let [of_before, of_after] = ends.map(Result::unwrap_or_default);
    ensure!(of_before > 0 && of_after >= of_before, "a class has lost constants");
    let pool = ClassFile::POOL_COUNT_AT + 2..of_before;
    ensure!(before[pool.clone()] == after[pool], "a class has other constants");
    ensure!(before[of_before..] == after[of_after..], "a class has other methods");
    Ok(())
}

/// A tracer as soon as the shim has finished with who was there before.
pub(crate) fn open_again(target: &RemoteProcess, off_cpu: bool) -> Result<TreeTracer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open_with(target, off_cpu) {
            Err(_) if Instant::now() < deadline => thread::yield_now(),
            opened => return opened,
        }
    }
}

/// A number that a command answers with, by its name.
pub(crate) fn memory(target: &mut RemoteProcess) -> Result<BTreeMap<String, u64>> {
    let answer = target.run("memory")?;
    let pool = |line: &String| Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?));
    Ok(answer.iter().filter_map(pool).collect())
}

fn follow(jdk: &Jdk, options: &[&str], threads: u32, mode: &str) -> Result<()> {
    let mut target = RemoteProcess::trees(jdk, options)?;
    follow_in(&mut target, threads, mode).with_context(|| format!("{jdk} {options:?}"))?;
    target.exit()
}

/// Check that all of so many threads is told, and that classes are restored.
pub(crate) fn follow_in(target: &mut RemoteProcess, threads: u32, mode: &str) -> Result<()> {
    let mut tracer = open(target)?;
    let classes = tracer.begin()?;
    ensure!(classes == 3 && tracer.plan().left_out.is_empty(), "{classes} classes, {:?}", tracer.plan().left_out);
    let told = told_while(&mut tracer, target, &format!("run {threads} {ROUNDS} {mode}"))?;
    must_be_exact(&tracer, &told, threads.into(), ROUNDS.into())?;
    let end = tracer.stop(&mut |_| {})?;
    ensure!(end.restored == 3 && end.behind == 0, "{end:?}");
    Ok(())
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

/// Check the same of virtual threads, which go from one thread of the kernel to another in between.
#[test]
fn virtual_threads() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        if jdk.version < 21 {
            return does_not_concern(jdk, "it has no virtual threads");
        }
        let mut target = RemoteProcess::trees(jdk, &["-Djdk.virtualThreadScheduler.parallelism=4"])?;
        let mut tracer = open(&target)?;
        tracer.begin()?;
        // As many as find room in the rings of two carriers, if nobody reads them meanwhile.
        let (threads, rounds) = (40, 10);
        let told = told_while(&mut tracer, &mut target, &format!("run {threads} {rounds} virtual"))?;
        must_be_exact(&tracer, &told, threads, rounds)?;
        ensure!(told.threads.keys().all(|thread| matches!(thread, TreeThread::Virtual(_))), "{:?}", told.threads);
        tracer.stop(&mut |_| {})?;
        target.exit()
    })
}

/// Check that classes are what they were, byte by byte, when nprof has ended and when it has gone without a word, and that methods tell
/// nothing then.
#[test]
fn classes_are_restored() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let mut tracer = open(&target)?;
        let before = files(&mut tracer)?;
        for is_killed in [false, true] {
            tracer.begin()?;
            target.run("run 2 20 platform")?;
            if !is_killed {
                let mut told = Told::default();
                let end = tracer.stop(&mut |event| told.take(event))?;
                ensure!(told.trees == 40 && end.restored == 3, "{} trees, {end:?}", told.trees);
            }
            drop(tracer);
            tracer = open_again(&target, true)?;
            let mut told = Told::default();
            target.run("run 2 20 platform")?;
            tracer.tick(&mut |event| told.take(event))?;
            ensure!(told.methods.is_empty(), "{told:?}");
            for (before, after) in before.iter().zip(files(&mut tracer)?) {
                must_be_the_same(before, &after)?;
            }
        }
        target.exit()
    })
}

/// Check that invocations for which there is no room are left out as a whole, and counted: each is told or counted, and none in part.
#[test]
fn what_has_no_room_is_counted() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let mut tracer = open(&target)?;
        tracer.begin()?;
        // Nobody reads meanwhile.
        let (threads, rounds) = (3, 1_000);
        target.run(&format!("run {threads} {rounds} platform"))?;
        let mut told = Told::default();
        tracer.stop(&mut |event| told.take(event))?;
        let losses = tracer.losses();
        ensure!(told.wrong.is_empty(), "{:?}", told.wrong.first());
        ensure!(losses.events == 0 && losses.invocations > 0 && losses.without_ring == 0, "{losses:?}");
        ensure!(told.trees + losses.invocations == threads * rounds, "{} trees, {losses:?}", told.trees);
        target.exit()
    })
}

/// Check that nothing grows in a JVM whose classes are enhanced and restored again and again while it works. It interprets: a VM that compiles
/// keeps old versions as long as the code that it made of them, which it removes when it sees fit.
#[test]
fn nothing_grows() -> Result<()> {
    const CYCLES: u32 = 50;
    const WARM: u32 = 10;
    /// A quarter of what one cycle would leave behind, if it left anything.
    const NOISE: u64 = 4 << 10;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &["-Xint"])?;
        let mut warm = BTreeMap::new();
        for cycle in 0..CYCLES {
            let mut tracer = open_again(&target, cycle % 10 == 0)?;
            tracer.begin()?;
            let told = told_while(&mut tracer, &mut target, "run 4 100 platform")?;
            ensure!(told.trees == 400 && told.wrong.is_empty(), "{} trees in cycle {cycle}", told.trees);
            let end = tracer.stop(&mut |_| {})?;
            ensure!(end.restored == 3 && end.behind == 0, "{end:?}");
            drop(tracer);
            // Versions of classes that nobody uses any more go when garbage is collected.
            let now = memory(&mut target)?;
            if cycle == WARM {
                warm = now;
            }
        }
        let end = memory(&mut target)?;
        let of_classes = |pool: &str| pool == "Metaspace" || pool == "Compressed_Class_Space";
        for (pool, &used) in end.iter().filter(|(pool, _)| of_classes(pool)) {
            let before = warm.get(pool).copied().unwrap_or_default();
            ensure!(used < before + NOISE, "{pool}: {before} -> {used} in {} cycles", CYCLES - WARM);
        }
        target.exit()
    })
}

/// Check the plan of what an entry method calls, with the lambda that it makes, and that it is followed.
#[test]
fn the_plan_is_followed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let proc = Proc::host();
        let question = Question {
            entries: vec![Pattern::parse("targets.Trees$Work::entry")?],
            packages: vec![Pattern::parse("targets.**")?],
            depth: 5,
            ..Question::default()
        };
        let mut tracer = TreeTracer::open(&proc, proc.jvm(Pid(target.pid()))?, &question, TreeWants::default())?;
        tracer.begin()?;
        let told = told_while(&mut tracer, &mut target, &format!("run 2 {ROUNDS} platform"))?;
        ensure!(told.wrong.is_empty() && tracer.losses() == TreeLosses::default(), "{:?}", told.wrong.first());
        let wanted = expected(2, ROUNDS.into());
        let plan = tracer.plan().clone();
        for (number, &(class, name, _)) in (0..).zip(&METHODS[..9]) {
            let of_plan = plan.methods.iter().position(|method| &*method.class == class && &*method.method == name);
            let of_plan = of_plan.with_context(|| format!("{name} is not in {plan:?}"))?;
            let calls = told.methods.get(&u32::try_from(of_plan)?).map_or(0, |counts| counts[0]);
            ensure!(calls == wanted[&number][0], "{name}: {calls}, not {:?}", wanted[&number]);
        }
        let lambda = plan.methods.iter().position(|method| method.method.starts_with("lambda$apply"));
        let lambda = u32::try_from(lambda.context("no lambda")?)?;
        ensure!(told.methods.get(&lambda).map(|counts| counts[0]) == Some(2 * u64::from(ROUNDS)), "{told:?}");
        tracer.stop(&mut |_| {})?;
        target.exit()
    })
}

/// Check that calls of methods in whose place compilers put code of their own are told of where they are made: no less when it is compiled.
#[test]
fn intrinsics_are_told_of_by_their_callers() -> Result<()> {
    const ROUNDS: u64 = 200;
    const TIMES: u64 = 10;
    /// Texts that are the same object are equal without a look.
    const SAME: [u64; 3] = [4, 3, 3];
    let looks = SAME.iter().cycle().zip(0..ROUNDS).map(|(same, _)| TIMES - same).sum();
    let expected = [
        ("java.lang.Integer::bitCount", TreeKind::Intrinsic, ROUNDS * TIMES),
        ("java.lang.Math::max", TreeKind::Intrinsic, ROUNDS * TIMES),
        ("java.lang.String::equals", TreeKind::Java, ROUNDS * TIMES),
        ("java.lang.StringBuilder::<init>", TreeKind::Intrinsic, ROUNDS),
        ("java.lang.StringBuilder::append", TreeKind::Intrinsic, ROUNDS),
        ("java.lang.StringBuilder::toString", TreeKind::Intrinsic, ROUNDS),
        ("java.lang.StringLatin1::equals", TreeKind::Intrinsic, looks),
        ("java.lang.System::arraycopy", TreeKind::Native, ROUNDS),
        ("targets.Trees$Replaced::replaced", TreeKind::Java, ROUNDS),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, kind, calls)| (name.to_owned(), (kind, calls))).collect();
    let packages = ["Integer", "Math", "String", "StringBuilder", "StringLatin1", "System"];
    let question = Question {
        entries: vec![Pattern::parse("targets.Trees$Replaced::replaced")?],
        packages: packages
            .map(|class| Pattern::parse(&format!("java.lang.{class}")))
            .into_iter()
            .collect::<Result<_, _>>()?,
        depth: 2,
        ..Question::default()
    };
    traced_on_every_jdk(|jdk| {
        for options in [&["-Xcomp", "-XX:-TieredCompilation"][..], &["-Xint"]] {
            let mut target = RemoteProcess::trees(jdk, options)?;
            let proc = Proc::host();
            let mut tracer = TreeTracer::open(&proc, proc.jvm(Pid(target.pid()))?, &question, TreeWants::default())?;
            tracer.begin()?;
            let told = told_while(&mut tracer, &mut target, &format!("replaced {ROUNDS}"))?;
            ensure!(told.wrong.is_empty() && tracer.losses() == TreeLosses::default(), "{:?}", told.wrong.first());
            let calls: BTreeMap<String, (TreeKind, u64)> = (0..)
                .zip(&tracer.plan().methods)
                .map(|(number, method)| {
                    let calls = told.methods.get(&number).map_or(0, |counts| counts[0]);
                    (format!("{}::{}", method.class, method.method), (method.kind, calls))
                })
                .collect();
            ensure!(calls == expected, "{jdk} {options:?}: {calls:?}");
            tracer.stop(&mut |_| {})?;
            target.exit()?;
        }
        Ok(())
    })
}
