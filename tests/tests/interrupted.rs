//! Threads that are stopped anywhere, not at a call, are unwound to stacks that can be.
//!
//! The target `Interrupted` runs code of which it is known which method calls which. Its threads are stopped again and
//! again, wherever they are, and their stacks are unwound from the registers there: in Java code from the instruction
//! itself, in native code from the thread's anchor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof::discover::{Proc, libjvm};
use nprof::model::{Pid, VirtAddr};
use nprof::sys::remote_memory::{ProcessMemory, Span};
use nprof::unwind::{End, FrameKind, Interrupted, JavaFrame, JavaStack, Sample, Threads, Unwinder};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_jdk, say};
use nprof_tests::stopped::{Stopped, StoppedRegisters};

/// Samples of each configuration.
const SAMPLES: usize = 2_000;
/// From one sample to the next.
const PERIOD: Duration = Duration::from_micros(300);
/// More than any of the stacks takes.
const STACK_PAGES: u64 = 24;
const PAGE: u64 = 4096;
/// Threads that are stopped in turn.
const THREADS: usize = 2;
/// Of the stacks of threads in Java code, how many of a thousand have to be complete.
const COMPLETE_PER_MILLE: usize = 990;

/// Which method calls which: the callee first.
const CALLS: [(&str, &str); 56] = [
    ("Spin.turn", "Spin.run"),
    ("Chain.run", "Spin.turn"),
    ("Tables.run", "Spin.turn"),
    ("Stubs.run", "Spin.turn"),
    ("Lambdas.run", "Spin.turn"),
    ("Recursion.run", "Spin.turn"),
    ("Arguments.run", "Spin.turn"),
    ("Locks.run", "Spin.turn"),
    ("Throws.run", "Spin.turn"),
    ("Natives.run", "Spin.turn"),
    ("Maths.run", "Spin.turn"),
    ("Chain.one", "Chain.run"),
    ("Chain.two", "Chain.one"),
    ("Chain.three", "Chain.two"),
    ("Chain.four", "Chain.three"),
    ("Tables.byInterface", "Tables.run"),
    ("Tables.byClass", "Tables.run"),
    ("Tables$Cube.area", "Tables.byInterface"),
    ("Tables$Ball.area", "Tables.byInterface"),
    ("Tables$Cone.area", "Tables.byInterface"),
    ("Tables$Cube.volume", "Tables.byClass"),
    ("Tables$Ball.volume", "Tables.byClass"),
    ("Tables$Cone.volume", "Tables.byClass"),
    ("Tables$Solid.shared", "Tables$Cube.area"),
    ("Tables$Solid.shared", "Tables$Ball.area"),
    ("Tables$Solid.shared", "Tables$Cone.area"),
    ("Tables$Solid.shared", "Tables$Cube.volume"),
    ("Tables$Solid.shared", "Tables$Ball.volume"),
    ("Tables$Solid.shared", "Tables$Cone.volume"),
    ("Stubs.copy", "Stubs.run"),
    ("Stubs.copyObjects", "Stubs.run"),
    ("Stubs.fill", "Stubs.run"),
    ("Stubs.check", "Stubs.run"),
    ("Stubs.compare", "Stubs.run"),
    ("Stubs.text", "Stubs.run"),
    ("Lambdas.apply", "Lambdas.run"),
    ("$$Lambda.applyAsLong", "Lambdas.apply"),
    ("Lambdas.lambda$", "$$Lambda.applyAsLong"),
    ("Lambdas.twice", "$$Lambda.applyAsLong"),
    ("Lambdas.twice", "Lambdas.lambda$"),
    ("Recursion.down", "Recursion.run"),
    ("Recursion.down", "Recursion.down"),
    ("Arguments.wide", "Arguments.run"),
    ("Arguments.fold", "Arguments.wide"),
    ("Locks.guarded", "Locks.run"),
    ("Locks.block", "Locks.run"),
    ("Locks.inner", "Locks.guarded"),
    ("Locks.inner", "Locks.block"),
    ("Throws.risk", "Throws.run"),
    ("Throws.fail", "Throws.risk"),
    ("Natives.hash", "Natives.run"),
    ("Natives.time", "Natives.run"),
    ("Natives.memory", "Natives.run"),
    ("Maths.wave", "Maths.run"),
    ("Maths.power", "Maths.run"),
    ("Interrupted.spin", "Target.obey"),
];

/// Methods that call into the JDK.
const CALL_THE_JDK: [&str; 14] = [
    "Stubs.copy",
    "Stubs.copyObjects",
    "Stubs.fill",
    "Stubs.check",
    "Stubs.compare",
    "Stubs.text",
    "Natives.hash",
    "Natives.time",
    "Natives.memory",
    "Maths.run",
    "Maths.wave",
    "Maths.power",
    "Lambdas.apply",
    "Throws.fail",
];

/// The end of every stack of the threads.
const OUTERMOST: &str = "Spin.run";

/// A method of the target by its short name; `None` for one of the JDK's.
fn short(frame: &JavaFrame) -> Option<String> {
    let class = frame.method.class.strip_prefix("targets.")?;
    if class.contains("$$Lambda") {
        return Some(format!("$$Lambda.{}", frame.method.name));
    }
    let class = class.strip_prefix("Interrupted$").unwrap_or(class);
    let name = if frame.method.name.starts_with("lambda$") { "lambda$" } else { &frame.method.name };
    Some(format!("{class}.{name}"))
}

/// What is wrong with a complete stack.
fn fault(stack: &JavaStack) -> Option<String> {
    let first = stack.frames.iter().position(|frame| short(frame).is_some());
    let last = stack.frames.iter().rposition(|frame| short(frame).is_some());
    let (Some(first), Some(last)) = (first, last) else {
        return Some("no frame of the target's".into());
    };
    let path: Option<Vec<String>> = stack.frames[first..=last].iter().map(short).collect();
    let Some(path) = path else {
        return Some("the JDK in the middle".into());
    };
    if first > 0 && !CALL_THE_JDK.contains(&path[0].as_str()) {
        return Some(format!("{} calls {}", path[0], stack.frames[first - 1].method));
    }
    if path.last().is_none_or(|last| last != OUTERMOST) {
        return Some(format!("{:?} is the last", path.last()));
    }
    if stack.frames[last + 1..].iter().any(|frame| &*frame.method.class != "java.lang.Thread") {
        return Some("not started by a thread".into());
    }
    let wrong = path.windows(2).find(|pair| !CALLS.contains(&(&pair[0], &pair[1])));
    wrong.map(|pair| format!("{} does not call {}", pair[1], pair[0]))
}

/// What came of the samples.
#[derive(Debug, Default)]
struct Tally {
    /// By where the thread was and how its stack ended.
    ends: BTreeMap<(&'static str, String), usize>,
    java: usize,
    java_complete: usize,
    places: BTreeSet<u64>,
    wrong: Vec<String>,
    cut: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (complete, all) = (self.java_complete, self.java);
        let tenths = complete * 1_000 / all.max(1);
        write!(f, "{complete} of {all} complete in Java code ({}.{} %), ", tenths / 10, tenths % 10)?;
        write!(f, "{} wrong, {} places", self.wrong.len(), self.places.len())?;
        self.ends.iter().try_for_each(|((place, end), count)| write!(f, "; {place} {end} {count}"))
    }
}

impl Tally {
    fn add(&mut self, place: &'static str, registers: &StoppedRegisters, stack: &JavaStack) {
        let in_java = place != ANCHORED;
        let end = match stack.end {
            End::Complete => "complete".to_owned(),
            End::Cut(reason) => format!("{reason:?}"),
        };
        *self.ends.entry((place, end)).or_default() += 1;
        self.java += usize::from(in_java);
        self.places.insert(registers.rip);
        if stack.end != End::Complete {
            self.cut.push(format!("{place} {registers:x?} {stack:?}"));
            return;
        }
        self.java_complete += usize::from(in_java);
        if let Some(fault) = fault(stack) {
            let path: Vec<String> = stack.frames.iter().map(|frame| frame.method.to_string()).collect();
            self.wrong.push(format!("{fault}: {place} {registers:x?} {path:?}"));
        }
    }
}

/// A thread that has left Java.
const ANCHORED: &str = "anchored";

/// What runs the innermost frame.
fn place_of(stack: &JavaStack) -> &'static str {
    match stack.frames.first().map(|frame| frame.kind) {
        Some(FrameKind::Interpreted) => "interpreted",
        Some(FrameKind::C1) => "C1",
        Some(FrameKind::C2) => "C2",
        Some(FrameKind::Inlined) => "inlined",
        Some(FrameKind::NativeWrapper) => "wrapper",
        _ => "nowhere",
    }
}

/// A target with all that is needed to look into it.
struct Session {
    target: RemoteProcess,
    memory: ProcessMemory,
    unwinder: Unwinder<ProcessMemory>,
    threads: Threads<ProcessMemory>,
    tids: Vec<u32>,
}

impl Session {
    fn new(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut target = RemoteProcess::interrupted(jdk, options)?;
        target.run(&format!("spin {THREADS}"))?;
        let pid = Pid(target.pid());
        let memory = ProcessMemory::new(pid);
        let libraries = Proc::host().libraries(pid)?;
        let libjvm = libjvm(&libraries).context("no libjvm")?;
        let unwinder = Unwinder::open(memory.clone(), libjvm)?;
        let threads = Threads::open(memory.clone(), libjvm)?;
        let tids = threads_named(target.pid(), "spin-")?;
        ensure!(tids.len() == THREADS, "{} threads spin", tids.len());
        Ok(Self { target, memory, unwinder, threads, tids })
    }

    /// Up to [`STACK_PAGES`] pages of stack from `rsp` on, as many as there are.
    fn copy(&self, rsp: u64) -> Result<Vec<u8>> {
        let first = PAGE - rsp % PAGE;
        let starts = std::iter::once(rsp).chain((0..STACK_PAGES).map(|page| rsp + first + page * PAGE));
        let length = |addr: u64| usize::try_from(PAGE - addr % PAGE);
        let spans =
            starts.map(|addr| Ok(Span { addr: VirtAddr(addr), len: length(addr)? })).collect::<Result<Vec<_>>>()?;
        let mut bytes = vec![0; spans.iter().map(|span| span.len).sum()];
        let read = self.memory.read_spans(&spans, &mut bytes)?;
        bytes.truncate(spans[..read].iter().map(|span| span.len).sum());
        Ok(bytes)
    }

    /// The three words of a thread's anchor.
    fn anchor(&self, tid: u32) -> Result<[VirtAddr; 3]> {
        let thread = self.threads.find(tid).context("a thread that the VM does not know")?;
        let offsets = self.threads.anchor_offsets();
        let mut words = [VirtAddr(0); 3];
        for (word, offset) in words.iter_mut().zip([offsets.sp, offsets.pc, offsets.fp]) {
            let mut bytes = [0; 8];
            self.memory.read_exact(VirtAddr(thread.address.0 + offset), &mut bytes)?;
            *word = VirtAddr(u64::from_le_bytes(bytes));
        }
        Ok(words)
    }

    /// Stops a thread, and unwinds its stack when it has gone on.
    fn sample(&mut self, tid: u32, tally: &mut Tally) -> Result<()> {
        let stopped = Stopped::new(tid)?;
        let registers = stopped.registers()?;
        let stack = self.copy(registers.rsp)?;
        let [sp, pc, fp] = self.anchor(tid)?;
        drop(stopped);
        let stack_base = VirtAddr(registers.rsp);
        if self.unwinder.contains_code(VirtAddr(registers.rip)) {
            let at = Sample {
                pc: VirtAddr(registers.rip),
                sp: stack_base,
                fp: VirtAddr(registers.rbp),
                stack: &stack,
                stack_base,
                frozen: None,
                collections: None,
            };
            let (rax, rbx) = (Some(registers.rax), Some(registers.rbx));
            let thread = Interrupted { at, bcp: registers.r13, rax, rbx };
            let found = self.unwinder.unwind_interrupted(&thread)?;
            tally.add(place_of(&found), &registers, &found);
        } else if let Some(sample) = Sample::at_anchor(sp, pc, fp, &stack, stack_base) {
            let found = self.unwinder.unwind(&sample)?;
            tally.add(ANCHORED, &registers, &found);
        } else {
            *tally.ends.entry(("in C code without an anchor", String::new())).or_default() += 1;
        }
        Ok(())
    }
}

/// The threads of a process whose names begin like that.
fn threads_named(pid: u32, prefix: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        if std::fs::read_to_string(task.path().join("comm"))?.starts_with(prefix) {
            found.push(task.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(found)
}

/// Samples a JVM with these options.
fn sample(jdk: &Jdk, options: &[&str]) -> Result<()> {
    let mut session = Session::new(jdk, options)?;
    let mut tally = Tally::default();
    for turn in 0..SAMPLES {
        let tid = session.tids[turn % THREADS];
        session.sample(tid, &mut tally)?;
        std::thread::sleep(PERIOD);
    }
    say(&format!("JDK {} {options:?}: {tally}", jdk.version));
    let first = |all: &[String]| all.iter().take(8).map(String::as_str).collect::<Vec<_>>().join("\n");
    ensure!(tally.wrong.is_empty(), "{options:?}: {} stacks cannot be:\n{}", tally.wrong.len(), first(&tally.wrong));
    let enough = tally.java_complete * 1_000 >= tally.java * COMPLETE_PER_MILLE;
    ensure!(enough, "{options:?}: {tally}\n{}", first(&tally.cut));
    session.target.exit()
}

/// Check that threads that are stopped anywhere have stacks that can be, however their code is run.
#[test]
fn interrupted_threads_have_possible_stacks() -> Result<()> {
    let all: [&[&str]; 5] = [&[], &["-Xint"], &["-XX:TieredStopAtLevel=1"], &["-XX:-Inline"], &["-Xcomp"]];
    on_every_jdk(|jdk| {
        // All of them, so that a failure shows where else it happens.
        let failures: Vec<String> =
            all.iter().filter_map(|options| sample(jdk, options).err()).map(|error| format!("{error:#}")).collect();
        ensure!(failures.is_empty(), failures.join("\n"));
        Ok(())
    })
}

/// Check the same where compiled code calls interpreted code and the other way round.
#[test]
fn mixed_stacks_are_possible() -> Result<()> {
    let excluded = [
        "targets.Interrupted$Chain::two",
        "targets.Interrupted$Chain::four",
        "targets.Interrupted$Tables::byInterface",
        "targets.Interrupted$Tables$Cube::*",
        "targets.Interrupted$Arguments::wide",
        "targets.Interrupted$Locks::guarded",
    ];
    let excluded = excluded.map(|method| format!("-XX:CompileCommand=exclude,{method}"));
    let mut options = vec!["-XX:CompileCommand=quiet"];
    options.extend(excluded.iter().map(String::as_str));
    on_every_jdk(|jdk| sample(jdk, &options))
}
