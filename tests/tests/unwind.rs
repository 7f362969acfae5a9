//! The unwinder says what the VM says of its own threads: every frame, every line.
//!
//! Threads of the target `Stacks` wait in a native that has noted the registers of its first instruction. Their stacks
//! are read from there on and unwound, and compared position by position with `Thread.getStackTrace`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::discover::{Proc, libjvm};
use nprof::model::{CutReason, Pid, VirtAddr};
use nprof::sys::remote_memory::ProcessMemory;
use nprof::unwind::{End, FrameKind, JavaFrame, JavaStack, MAX_FRAMES, Sample, Threads, Unwinder};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_jdk, rounds, say};

/// More than any of the stacks takes.
const MAX_STACK_BYTES: u64 = 2 << 20;

/// A frame as the VM tells it: class, method, and line (-1 unknown, -2 native).
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrueFrame {
    class: String,
    method: String,
    line: i64,
}

/// A waiting thread: how it came there, where it is, and its frames.
#[derive(Debug)]
struct Waiting {
    shape: String,
    rsp: u64,
    rbp: u64,
    frames: Vec<TrueFrame>,
}

impl Waiting {
    /// Has the target park a thread in each shape.
    fn all(target: &mut RemoteProcess, shapes: &str) -> Result<Vec<Self>> {
        let mut waiting: Vec<Self> = Vec::new();
        for line in target.run(&format!("park {shapes}"))? {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["stack", shape, rsp, rbp] => waiting.push(Self {
                    shape: shape.into(),
                    // Java prints them as signed numbers; rbp may hold anything.
                    rsp: rsp.parse::<i64>()?.cast_unsigned(),
                    rbp: rbp.parse::<i64>()?.cast_unsigned(),
                    frames: Vec::new(),
                }),
                ["at", class, method, line] => {
                    let frame = TrueFrame { class: class.into(), method: method.into(), line: line.parse()? };
                    waiting.last_mut().context("a frame without a stack")?.frames.push(frame);
                }
                _ => anyhow::bail!("not a frame: {line}"),
            }
        }
        Ok(waiting)
    }

    /// Whether the VM leaves out the frames of the carrier thread, which are on the same stack.
    fn is_virtual(&self, jdk: &Jdk) -> bool {
        self.shape.starts_with("virtual") && jdk.version >= 21
    }

    /// Where what was found differs from what the VM says.
    fn difference(&self, stack: &JavaStack, jdk: &Jdk) -> Option<String> {
        if let Some(difference) = self.difference_within(stack) {
            return Some(difference);
        }
        let expected = self.expected(stack);
        let carrier = stack.frames.get(expected.len()..).unwrap_or_default();
        let right = if self.is_virtual(jdk) && stack.end == End::Complete {
            is_carrier(carrier)
        } else {
            stack.frames.len() == expected.len() || self.is_virtual(jdk)
        };
        let (expected, found) = (expected.len(), stack.frames.len());
        let next = carrier.first().map(told);
        (!right).then(|| format!("{}: {found} frames instead of {expected}, then {next:?}", self.shape))
    }
}

impl Waiting {
    /// The frames that have to be there.
    fn expected(&self, stack: &JavaStack) -> &[TrueFrame] {
        match stack.end {
            End::Complete => &self.frames,
            End::Cut(_) => &self.frames[..stack.frames.len().min(self.frames.len())],
        }
    }

    /// The first frame that is another one than the VM says, or that is missing.
    fn difference_within(&self, stack: &JavaStack) -> Option<String> {
        let expected = self.expected(stack);
        let differs = |(at, expected): (usize, &TrueFrame)| {
            let found = stack.frames.get(at).map(told);
            (found.as_ref() != Some(expected))
                .then(|| format!("{}: frame {at}: expected {expected:?}, found {found:?}", self.shape))
        };
        expected.iter().enumerate().find_map(differs)
    }
}

/// Whether these are the frames of a thread that runs a virtual thread, down to its first one. The VM shows the entry
/// of a virtual thread as one of its frames until it has been unmounted once.
fn is_carrier(frames: &[JavaFrame]) -> bool {
    let names: Vec<String> = frames.iter().map(|frame| frame.method.to_string()).collect();
    let enter = ["jdk.internal.vm.Continuation.enterSpecial", "jdk.internal.vm.Continuation.run"];
    let enters = names.first().is_some_and(|name| enter.contains(&name.as_str()));
    enters && names.last().is_some_and(|name| name == "java.util.concurrent.ForkJoinWorkerThread.run")
}

/// A frame as the VM would tell it.
fn told(frame: &JavaFrame) -> TrueFrame {
    let line = match frame.line {
        Some(line) => i64::from(line),
        None if frame.method.is_native => -2,
        None => -1,
    };
    TrueFrame { class: frame.method.class.to_string(), method: frame.method.name.to_string(), line }
}

/// What was compared so far.
#[derive(Debug, Default)]
struct Tally {
    stacks: usize,
    complete: usize,
    frames: usize,
    kinds: BTreeMap<String, usize>,
    cuts: BTreeMap<CutReason, usize>,
    /// Shapes that were cut, apart from those that are too deep.
    cut_shapes: BTreeSet<String>,
    wrong: Vec<String>,
    cold: Duration,
    warm: Duration,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stacks, complete, frames, kinds, cuts, cut_shapes, .. } = self;
        let wrong = self.wrong.len();
        write!(f, "{stacks} stacks, {complete} complete, {wrong} wrong, {frames} frames {kinds:?}, cut {cuts:?} ")?;
        let each = |all: Duration| all / u32::try_from((*stacks).max(1)).unwrap_or(u32::MAX);
        write!(f, "{cut_shapes:?}, a stack {:?} at first, {:?} again", each(self.cold), each(self.warm))
    }
}

impl Tally {
    fn add(&mut self, waiting: &Waiting, stack: &JavaStack, jdk: &Jdk) {
        self.stacks += 1;
        self.frames += stack.frames.len();
        for frame in &stack.frames {
            *self.kinds.entry(kind_of(frame).to_owned()).or_default() += 1;
        }
        for crossing in &stack.crossings {
            *self.kinds.entry(format!("{:?}", crossing.kind)).or_default() += 1;
        }
        match stack.end {
            End::Complete => self.complete += 1,
            End::Cut(reason) => {
                *self.cuts.entry(reason).or_default() += 1;
                if reason != CutReason::TooDeep {
                    self.cut_shapes.insert(waiting.shape.clone());
                }
            }
        }
        self.wrong.extend(waiting.difference(stack, jdk));
    }
}

impl Tally {
    /// Says what was compared. Fails if a frame is wrong, or a stack cut that need not be.
    fn judge(&self, jdk: &Jdk, what: &str) -> Result<()> {
        say(&format!("JDK {} {what}: {self}", jdk.version));
        let examples = self.wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
        ensure!(self.wrong.is_empty(), "{what}: {} stacks are wrong:\n{examples}", self.wrong.len());
        ensure!(self.cut_shapes.is_empty(), "{what}: cut: {:?} {:?}", self.cuts, self.cut_shapes);
        Ok(())
    }
}

fn kind_of(frame: &JavaFrame) -> &'static str {
    match frame.kind {
        FrameKind::Interpreted => "interpreted",
        FrameKind::C1 => "C1",
        FrameKind::C2 => "C2",
        FrameKind::Inlined => "inlined",
        FrameKind::NativeWrapper => "wrapper",
        _ => "other",
    }
}

fn unwinder(memory: &ProcessMemory) -> Result<Unwinder<ProcessMemory>> {
    let libraries = Proc::host().libraries(memory.pid())?;
    let libjvm = libjvm(&libraries).context("no libjvm")?;
    Ok(Unwinder::open(memory.clone(), libjvm)?)
}

/// A target and its unwinder.
struct Session {
    target: RemoteProcess,
    unwinder: Unwinder<ProcessMemory>,
    threads: Threads<ProcessMemory>,
    memory: ProcessMemory,
}

impl Session {
    fn new(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let target = RemoteProcess::stacks(jdk, options)?;
        let memory = ProcessMemory::new(Pid(target.pid()));
        let libraries = Proc::host().libraries(Pid(target.pid()))?;
        let libjvm = libjvm(&libraries).context("no libjvm")?;
        let unwinder = unwinder(&memory)?;
        let threads = Threads::open(memory.clone(), libjvm)?;
        Ok(Self { target, unwinder, threads, memory })
    }

    /// The anchors of all threads that have one: stack pointer, address and frame pointer of the last Java frame.
    fn anchors(&mut self) -> Result<Vec<[VirtAddr; 3]>> {
        self.threads.refresh()?;
        let offsets = self.threads.anchor_offsets();
        let mut anchors = Vec::new();
        for thread in self.threads.list() {
            let mut words = [VirtAddr(0); 3];
            for (word, offset) in words.iter_mut().zip([offsets.sp, offsets.pc, offsets.fp]) {
                let mut bytes = [0; 8];
                self.memory.read_exact(VirtAddr(thread.address.0 + offset), &mut bytes)?;
                *word = VirtAddr(u64::from_le_bytes(bytes));
            }
            anchors.push(words);
        }
        Ok(anchors)
    }

    /// Goes on with an unwinder that has not seen anything yet.
    fn renew(&mut self) -> Result<()> {
        self.unwinder = unwinder(&self.memory)?;
        Ok(())
    }

    /// The stack of a thread from `rsp` to the end of its mapping, or up to `limit` bytes.
    fn copy(&self, rsp: u64, limit: u64) -> Result<Vec<u8>> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.target.pid()))?;
        let mut end = None;
        for line in maps.lines() {
            let (range, _) = line.split_once(' ').context("maps")?;
            let (from, to) = range.split_once('-').context("maps")?;
            let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
            if (from..to).contains(&rsp) {
                end = Some(to);
            }
        }
        let end = end.context("the stack is not mapped")?.min(rsp + limit);
        let mut bytes = vec![0; usize::try_from(end - rsp)?];
        self.memory.read_exact(VirtAddr(rsp), &mut bytes)?;
        Ok(bytes)
    }

    /// The stack of a thread, unwound.
    fn unwind(&mut self, waiting: &Waiting) -> Result<JavaStack> {
        let bytes = self.copy(waiting.rsp, MAX_STACK_BYTES)?;
        let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes);
        Ok(self.unwinder.unwind(&sample.context("an empty stack")?)?)
    }

    /// Compares threads that wait.
    fn look(&mut self, jdk: &Jdk, waiting: &[Waiting], tally: &mut Tally) -> Result<()> {
        for waiting in waiting {
            let stack = self.unwind(waiting)?;
            tally.add(waiting, &stack, jdk);
        }
        Ok(())
    }

    /// A return probe of another tracer (such as `nprof --all`, run beside) hides the way back into Java.
    fn ensure_unprobed(&self, pc: VirtAddr) -> Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.target.pid()))?;
        let trampoline = maps.lines().find(|line| line.ends_with("[uprobes]")).and_then(|line| line.split('-').next());
        let start = trampoline.map(|start| u64::from_str_radix(start, 16)).transpose()?;
        ensure!(start != Some(pc.0), "another tracer has a return probe on the target: run this test alone");
        Ok(())
    }

    /// Parks threads in `shapes` and compares each of their stacks.
    fn compare(&mut self, jdk: &Jdk, shapes: &str, tally: &mut Tally) -> Result<()> {
        let parked = Waiting::all(&mut self.target, shapes)?;
        let anchors = self.anchors()?;
        for waiting in parked {
            let bytes = self.copy(waiting.rsp, MAX_STACK_BYTES)?;
            let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes)
                .context("an empty stack")?;
            self.ensure_unprobed(sample.pc)?;
            let start = Instant::now();
            let stack = self.unwinder.unwind(&sample)?;
            let cold = start.elapsed();
            let again = self.unwinder.unwind(&sample)?;
            tally.warm += start.elapsed() - cold;
            tally.cold += cold;
            ensure!(stack == again, "{}: another stack the second time", waiting.shape);
            // The native was called with the return address pushed below what the anchor tells.
            let anchor = anchors.iter().find(|[sp, ..]| sp.0 == waiting.rsp + 8);
            let [sp, pc, fp] = *anchor.with_context(|| format!("{}: no thread has its anchor", waiting.shape))?;
            let sample = Sample::at_anchor(sp, pc, fp, &bytes, VirtAddr(waiting.rsp)).context("an empty anchor")?;
            let anchored = self.unwinder.unwind(&sample)?;
            ensure!(anchored == stack, "{}: another stack from the anchor: {anchored:?}", waiting.shape);
            tally.add(&waiting, &stack, jdk);
        }
        self.target.run("release")?;
        Ok(())
    }
}

/// Compares all shapes on a JVM with these options: at once, and when their code is more and more compiled.
fn agree(jdk: &Jdk, options: &[&str], warmings: &[u32], rounds: u32) -> Result<()> {
    let mut session = Session::new(jdk, options)?;
    let mut tally = Tally::default();
    for warming in [0].iter().chain(warmings) {
        session.target.run(&format!("warm {warming} all"))?;
        for _ in 0..rounds {
            session.compare(jdk, "all", &mut tally)?;
        }
    }
    tally.judge(jdk, &format!("{options:?}"))
}

/// Check that stacks of every shape are the VM's own, from the first call until the code is compiled by C2.
#[test]
fn every_frame_is_the_vms_own() -> Result<()> {
    on_every_jdk(|jdk| agree(jdk, &[], &[50, 300, 3_000, 3_000], rounds()?))
}

/// Check the same without the interpreter, without compilers, with one compiler alone.
#[test]
fn every_way_of_execution_agrees() -> Result<()> {
    on_every_jdk(|jdk| {
        agree(jdk, &["-Xint"], &[], rounds()?)?;
        agree(jdk, &["-Xcomp"], &[], rounds()?)?;
        agree(jdk, &["-XX:TieredStopAtLevel=1"], &[2_000], rounds()?)?;
        agree(jdk, &["-XX:-TieredCompilation"], &[12_000], rounds()?)
    })
}

/// Check the same with other collectors and layouts of the VM.
#[test]
fn every_layout_agrees() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut all: Vec<&[&str]> = vec![
            // Without a collection meanwhile.
            &["-XX:+UseZGC", "-Xmx1g", "-XX:MetaspaceSize=256m"],
            &["-XX:+UseSerialGC", "-XX:-UseCompressedOops", "-XX:-SegmentedCodeCache"],
            &["-XX:+PreserveFramePointer"],
            &["-Xshare:off", "-Xcheck:jni"],
            &["-XX:-Inline"],
        ];
        if jdk.version >= 25 {
            all.push(&["-XX:+UseCompactObjectHeaders"]);
        }
        all.into_iter().try_for_each(|options| agree(jdk, options, &[1_000], 1))
    })
}

/// Check that frames in the heap are found after every collection that moves them, or that the stack is cut there: Z
/// moves objects without telling those that refer to them.
#[test]
fn frozen_frames_outlast_collections() -> Result<()> {
    const SHAPES: &str = "virtualYielded,virtualYieldedDeep,virtualYieldedOften,virtualYieldedInStream";
    on_every_jdk(|jdk| {
        let collectors =
            ["-XX:+UseG1GC", "-XX:+UseParallelGC", "-XX:+UseSerialGC", "-XX:+UseShenandoahGC", "-XX:+UseZGC"];
        for collector in collectors.into_iter().filter(|_| jdk.version >= 21) {
            let mut session = Session::new(jdk, &[collector])?;
            let mut tally = Tally::default();
            session.target.run("warm 300 all")?;
            let waiting = Waiting::all(&mut session.target, SHAPES)?;
            for _ in 0..5 {
                session.look(jdk, &waiting, &mut tally)?;
                session.target.run("collect")?;
            }
            if collector == "-XX:+UseZGC" && tally.cuts.keys().eq([&CutReason::FrozenFrames]) {
                tally.cut_shapes.clear();
            }
            tally.judge(jdk, collector)?;
        }
        Ok(())
    })
}

/// Check that frozen frames are left out, and none else, if the thread is said to have gone on.
#[test]
fn frozen_frames_need_the_thread_to_be_there() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint"])?;
        for waiting in Waiting::all(&mut session.target, "direct,virtual,virtualYielded")? {
            let bytes = session.copy(waiting.rsp, MAX_STACK_BYTES)?;
            let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes);
            let stack = session.unwinder.unwind_while(&sample.context("an empty stack")?, || false)?;
            let frozen = waiting.shape == "virtualYielded" && jdk.version >= 21;
            let expected = if frozen { End::Cut(CutReason::FrozenFrames) } else { End::Complete };
            ensure!(stack.end == expected && !stack.frames.is_empty(), "{}: {:?}", waiting.shape, stack.end);
            ensure!(waiting.difference(&stack, jdk).is_none(), "{:?}", waiting.difference(&stack, jdk));
        }
        Ok(())
    })
}

/// Check that a copy of a stack is not completed by the frozen frames of another virtual thread that has taken the place
/// of the first one and looks the same on the stack.
#[test]
fn frozen_frames_of_others_are_not_taken() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint", "-Djdk.virtualThreadScheduler.parallelism=1"])?;
        let (mut cut, mut same_place) = (0, 0);
        for _ in 0..10 * u32::from(jdk.version >= 21) {
            let before = Waiting::all(&mut session.target, "virtualYielded")?.swap_remove(0);
            let bytes = session.copy(before.rsp, MAX_STACK_BYTES)?;
            session.target.run("release")?;
            let after = Waiting::all(&mut session.target, "virtualYieldedDeep")?.swap_remove(0);
            same_place += u32::from(after.rsp == before.rsp);
            let sample = Sample::at_native_entry(VirtAddr(before.rsp), VirtAddr(before.rbp), &bytes);
            let stack = session.unwinder.unwind(&sample.context("an empty stack")?)?;
            cut += u32::from(stack.end == End::Cut(CutReason::FrozenFrames));
            let difference = before.difference(&stack, jdk);
            ensure!(difference.is_none(), "{difference:?}");
            session.target.run("release")?;
        }
        say(&format!("JDK {}: {cut} cut, {same_place} of them with another thread in the same place", jdk.version));
        ensure!(jdk.version < 21 || cut == 10 && same_place > 0, "{cut} cut, {same_place} in the same place");
        Ok(())
    })
}

/// Check that the frames that are not hidden are those that the VM shows without being told to show all; those of JDKs
/// before 21 show all of another thread's frames.
#[test]
fn hidden_frames_are_those_that_the_vm_hides() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-XX:-ShowHiddenFrames"])?;
        session.target.run("warm 300 all")?;
        let mut hidden = BTreeSet::new();
        for waiting in Waiting::all(&mut session.target, "all")? {
            let mut stack = session.unwind(&waiting)?;
            hidden.extend(stack.frames.iter().filter(|frame| frame.hidden).map(|frame| frame.method.name.to_string()));
            if jdk.version >= 21 {
                stack.frames.retain(|frame| !frame.hidden);
                // The carrier's frames have no hidden entry before them then.
                let difference = waiting.difference_within(&stack);
                ensure!(difference.is_none(), "{difference:?}");
            }
        }
        ensure!(hidden.iter().any(|name| name.starts_with("invokeStatic")), "no lambda form is hidden: {hidden:?}");
        Ok(())
    })
}

/// Check the same while classes are loaded, compiled and unloaded, so that addresses come to mean other methods.
#[test]
fn agreement_outlasts_class_unloading() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        let mut tally = Tally::default();
        session.target.run("churn 40")?;
        for _ in 0..20 * rounds()? {
            session.compare(jdk, "fresh,inlined,callback3,lambda,stream,reflection,handle", &mut tally)?;
        }
        tally.judge(jdk, "churn")
    })
}

/// Check that methods whose class has been redefined while they wait are still named, whether they were met before or
/// not, and so are those of the new version.
#[test]
fn redefined_methods_are_named() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        for warming in [0, 3_000] {
            session.target.run(&format!("warm {warming} redefined"))?;
            let waiting = Waiting::all(&mut session.target, "redefined,direct")?;
            let mut tally = Tally::default();
            session.look(jdk, &waiting, &mut tally)?;
            session.target.run("redefine")?;
            session.look(jdk, &waiting, &mut tally)?;
            session.renew()?;
            session.look(jdk, &waiting, &mut tally)?;
            session.target.run("release")?;
            session.compare(jdk, "redefined", &mut tally)?;
            tally.judge(jdk, "redefined")?;
        }
        Ok(())
    })
}

/// Check that code that has been deoptimised while it waited is still named.
#[test]
fn deoptimised_frames_are_named() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xbatch"])?;
        let mut tally = Tally::default();
        session.target.run("warm 20000 deoptimised")?;
        session.compare(jdk, "deoptimised,direct", &mut tally)?;
        ensure!(tally.kinds.contains_key("Deoptimised"), "none was deoptimised: nothing was proven: {tally}");
        tally.judge(jdk, "deoptimised")
    })
}

/// Check that a copy that is too short gives the innermost frames of the whole, and says that it is cut.
#[test]
fn short_copies_give_right_prefixes() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        session.target.run("warm 300 all")?;
        let mut cut = 0;
        for waiting in Waiting::all(&mut session.target, "all")? {
            let whole = session.copy(waiting.rsp, 16 << 10)?;
            for bytes in (8..whole.len()).step_by(88) {
                let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &whole[..bytes])
                    .context("an empty stack")?;
                let stack = session.unwinder.unwind(&sample)?;
                ensure!(stack.end != End::Complete || stack.frames.len() >= waiting.frames.len(), "cut unsaid");
                let difference = waiting.difference(&stack, jdk);
                ensure!(difference.is_none(), "{bytes} bytes: {difference:?}");
                cut += usize::from(stack.end == End::Cut(CutReason::StackTooShort));
            }
        }
        ensure!(cut > 500, "only {cut} stacks were cut: nothing was proven");
        Ok(())
    })
}

/// Check that damaged stacks end, and end the unwinder's work only on this stack: the next one is right again.
#[test]
fn damaged_stacks_do_no_harm() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        session.target.run("warm 300 all")?;
        let mut complete = 0;
        for waiting in Waiting::all(&mut session.target, "all")? {
            let whole = session.copy(waiting.rsp, 4 << 10)?;
            let (rsp, rbp) = (VirtAddr(waiting.rsp), VirtAddr(waiting.rbp));
            for word in 0..whole.len() / 8 {
                for value in [0, 1, u64::MAX, waiting.rsp, waiting.rsp + 8, 1 << 46, 0x1000] {
                    let mut damaged = whole.clone();
                    damaged[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
                    let sample = Sample::at_native_entry(rsp, rbp, &damaged).context("an empty stack")?;
                    complete += usize::from(session.unwinder.unwind(&sample)?.end == End::Complete);
                }
            }
            let sample = Sample::at_native_entry(rsp, rbp, &whole).context("an empty stack")?;
            let difference = waiting.difference(&session.unwinder.unwind(&sample)?, jdk);
            ensure!(difference.is_none(), "{difference:?}");
        }
        // Most words of a stack are none of those that lead on.
        ensure!(complete > 1_000, "only {complete} were followed: the damage was not where it was meant to be");
        Ok(())
    })
}

/// Check that a stack that is too deep has the most frames that are allowed, and says that it is cut.
#[test]
fn deep_stacks_are_cut_visibly() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint"])?;
        let waiting = Waiting::all(&mut session.target, "recursion1500")?;
        let bytes = session.copy(waiting[0].rsp, MAX_STACK_BYTES)?;
        let sample = Sample::at_native_entry(VirtAddr(waiting[0].rsp), VirtAddr(waiting[0].rbp), &bytes);
        let stack = session.unwinder.unwind(&sample.context("an empty stack")?)?;
        ensure!(stack.end == End::Cut(CutReason::TooDeep) && stack.frames.len() == MAX_FRAMES, "{:?}", stack.end);
        ensure!(waiting[0].difference(&stack, jdk).is_none(), "{:?}", waiting[0].difference(&stack, jdk));
        Ok(())
    })
}

/// Prints what a stack costs: run by hand, in a release build.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_stack() -> Result<()> {
    const TIMES: u32 = 2_000;
    on_every_jdk(|jdk| {
        for options in [&[][..], &["-Xint"]] {
            let mut session = Session::new(jdk, options)?;
            session.target.run("warm 3000 direct,inlined,callback3,stream,recursion200")?;
            for waiting in Waiting::all(&mut session.target, "direct,inlined,callback3,stream,recursion200")? {
                let bytes = session.copy(waiting.rsp, 64 << 10)?;
                let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes)
                    .context("an empty stack")?;
                let start = Instant::now();
                let stack = session.unwinder.unwind(&sample)?;
                let cold = start.elapsed();
                let start = Instant::now();
                for _ in 0..TIMES {
                    session.unwinder.unwind(&sample)?;
                }
                let (frames, warm) = (stack.frames.len(), start.elapsed() / TIMES);
                let shape = &waiting.shape;
                say(&format!(
                    "JDK {} {options:?} {shape}: {frames} frames, {cold:?} at first, {warm:?} again",
                    jdk.version
                ));
            }
        }
        Ok(())
    })
}
