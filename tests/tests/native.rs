//! Native frames of real JVMs: from a system call down to the Java code that called, from where Java goes on.
//!
//! Threads of the target `Stacks` wait in a native, below libc's semaphore. `/proc` tells where they are in that call;
//! the native itself has noted where it was entered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::discover::{Proc, libjvm};
use nprof::model::{CutReason, Pid, VirtAddr};
use nprof::native::{CodeAddress, NativeEnd, NativeSample, NativeStack, NativeUnwinder, Symbolizer};
use nprof::sys::remote_memory::ProcessMemory;
use nprof::unwind::{End, Sample, Unwinder};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_jdk, say};

/// More than any of the stacks takes.
const MAX_STACK_BYTES: u64 = 1 << 20;
/// Native, Java, and Java that was called by native code.
const SHAPES: &str = "direct,inlined,callback3,lambda,recursion200";

/// A range of addresses.
type Range = std::ops::Range<u64>;

/// A target with its unwinders.
struct Session {
    target: RemoteProcess,
    memory: ProcessMemory,
    native: NativeUnwinder,
    symbolizer: Symbolizer,
    java: Unwinder<ProcessMemory>,
}

/// A thread in a system call.
struct Called {
    sp: u64,
    pc: u64,
    stack: Vec<u8>,
}

impl Session {
    fn new(jdk: &Jdk) -> Result<Self> {
        let target = RemoteProcess::stacks(jdk, &[])?;
        let pid = Pid(target.pid());
        let libraries = Proc::host().libraries(pid)?;
        let memory = ProcessMemory::new(pid);
        let java = Unwinder::open(memory.clone(), libjvm(&libraries).context("no libjvm")?)?;
        let (mut native, mut symbolizer) = (NativeUnwinder::new(pid), Symbolizer::new(pid));
        native.set_libraries(&libraries);
        symbolizer.set_libraries(&libraries);
        Ok(Self { target, memory, native, symbolizer, java })
    }

    /// The mappings whose line of `/proc/PID/maps` is wanted.
    fn ranges(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Range>> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.target.pid()))?;
        let lines = maps.lines().filter(|line| wanted(line));
        let range = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
        };
        Ok(lines.filter_map(range).collect())
    }

    /// Code that is in no file: the VM's own.
    fn code_cache(&self) -> Result<Vec<Range>> {
        self.ranges(|line| line.contains("rwxp") && !line.contains('/'))
    }

    /// The threads of the target that are in a system call.
    fn called(&self) -> Result<Vec<Called>> {
        let mapped = self.ranges(|_| true)?;
        let mut all = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", self.target.pid()))? {
            let text = std::fs::read_to_string(task?.path().join("syscall"))?;
            let words =
                text.split_whitespace().filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
            let [.., sp, pc] = words.collect::<Vec<_>>()[..] else { continue };
            let range = mapped.iter().find(|range| range.contains(&sp)).context("the stack is not mapped")?;
            let mut stack = vec![0; usize::try_from(range.end.min(sp + MAX_STACK_BYTES) - sp)?];
            self.memory.read_exact(VirtAddr(sp), &mut stack)?;
            all.push(Called { sp, pc, stack });
        }
        Ok(all)
    }

    /// Unwinds to Java code; the frame pointer is not known.
    fn unwind(&mut self, called: &Called, code_cache: &[Range]) -> NativeStack {
        let (pc, sp) = (VirtAddr(called.pc), VirtAddr(called.sp));
        let sample = NativeSample { pc, sp, fp: None, stack: &called.stack, stack_base: sp, probed: &[] };
        self.native.unwind(&sample, &|pc| code_cache.iter().any(|range| range.contains(&pc.0)))
    }

    fn functions(&mut self, stack: &NativeStack) -> Vec<String> {
        let named = self.symbolizer.name_all(&stack.frames);
        named.iter().flat_map(|frames| frames.iter()).map(|frame| frame.function.to_string()).collect()
    }
}

/// Check that a thread that waits in libc is followed through its native to the very place where Java called it, and
/// that its Java frames are the same from there.
#[test]
fn native_frames_lead_to_java() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk)?;
        session.target.run("warm 3000 all")?;
        let parked = session.target.run(&format!("park {SHAPES}"))?;
        let code_cache = session.code_cache()?;
        let called = session.called()?;
        for line in parked.iter().filter(|line| line.starts_with("stack ")) {
            let [_, shape, rsp, rbp] = line.split(' ').collect::<Vec<_>>()[..] else { anyhow::bail!("{line}") };
            let (rsp, rbp) = (rsp.parse::<i64>()?.cast_unsigned(), rbp.parse::<i64>()?.cast_unsigned());
            // The thread whose stack holds the native's frame near its end.
            let inside = |called: &&Called| called.sp < rsp && rsp - called.sp < 2_000;
            let called = called.iter().find(inside).with_context(|| format!("{shape} is in no system call"))?;
            let stack = session.unwind(called, &code_cache);
            let functions = session.functions(&stack);
            let NativeEnd::Java(rest) = stack.end else { anyhow::bail!("{shape}: {functions:?} {:?}", stack.end) };
            ensure!(stack.guessed == 0 && functions.last().is_some_and(|name| name == "wait_in_slot"), "{functions:?}");
            ensure!(rest.sp.0 == rsp + 8, "{shape}: {rest:?}, not {rsp:x}");
            ensure!(rest.fp.is_none_or(|fp| fp.0 == rbp), "{shape}: {rest:?}, not {rbp:x}");
            let bytes = &called.stack[usize::try_from(rsp - called.sp)?..];
            let entry = Sample::at_native_entry(VirtAddr(rsp), VirtAddr(rbp), bytes).context("an empty stack")?;
            let (pc, sp, fp) = (rest.pc, rest.sp, rest.fp.unwrap_or(VirtAddr(rbp)));
            let from_rest = Sample {
                pc,
                sp,
                fp,
                stack: &called.stack,
                stack_base: VirtAddr(called.sp),
                frozen: None,
                collections: None,
            };
            let (expected, found) = (session.java.unwind(&entry)?, session.java.unwind(&from_rest)?);
            ensure!(found == expected && found.end == End::Complete, "{shape}: {found:?}");
        }
        session.target.run("release")?;
        Ok(())
    })
}

/// Check that threads in system calls are followed to Java or to their first frame. `/proc` does not tell their frame
/// pointers: some functions cannot be left without, and then the stack has to say so.
#[test]
fn threads_of_the_vm_are_complete() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk)?;
        session.target.run(&format!("park {SHAPES}"))?;
        let code_cache = session.code_cache()?;
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for called in session.called()? {
            let stack = session.unwind(&called, &code_cache);
            let functions = session.functions(&stack);
            let end = match stack.end {
                NativeEnd::Java(_) => "Java",
                NativeEnd::Complete => "complete",
                NativeEnd::Cut(CutReason::NoUnwindInfo) => "frame pointer wanted",
                NativeEnd::Cut(reason) => anyhow::bail!("{reason}: {functions:?}"),
            };
            *ends.entry(end.to_owned()).or_default() += 1;
            ensure!(stack.guessed == 0, "{functions:?}");
            if stack.end == NativeEnd::Complete {
                ensure!(functions.iter().any(|name| name.contains("start")), "{functions:?}");
            }
        }
        say(&format!("JDK {}: {ends:?}", jdk.version));
        let ended = |how| ends.get(how).copied().unwrap_or(0);
        ensure!(ended("Java") >= 5 && ended("complete") >= 5 && ended("frame pointer wanted") <= 2, "{ends:?}");
        session.target.run("release")?;
        Ok(())
    })
}

/// Prints what frames cost: run by hand, in a release build.
#[test]
#[ignore = "a measurement"]
fn cost_of_native_frames() -> Result<()> {
    const TIMES: u32 = 1_000;
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk)?;
        session.target.run(&format!("park {SHAPES}"))?;
        let (code_cache, called) = (session.code_cache()?, session.called()?);
        let (mut frames, mut warm) = (0, Duration::ZERO);
        let start = Instant::now();
        for called in &called {
            frames += session.unwind(called, &code_cache).frames.len();
        }
        let cold = start.elapsed();
        for called in &called {
            let start = Instant::now();
            for _ in 0..TIMES {
                session.unwind(called, &code_cache);
            }
            warm += start.elapsed() / TIMES;
        }
        let stacks = called.len();
        say(&format!("JDK {}: {stacks} stacks, {frames} frames: {cold:?} at first, {warm:?} again", jdk.version));
        cost_of_names(&mut session, jdk)
    })
}

/// The same for names: 100,000 addresses all over libjvm, a thousand in one go.
fn cost_of_names(session: &mut Session, jdk: &Jdk) -> Result<()> {
    let code = session.ranges(|line| line.contains(" r-xp ") && line.ends_with("/libjvm.so"))?;
    let code = code.first().context("no libjvm")?;
    let step = usize::try_from((code.end - code.start) / 100_000)?;
    let place = |address| CodeAddress { address: VirtAddr(address), is_return: true };
    let places: Vec<CodeAddress> = code.clone().step_by(step).map(place).collect();
    for what in ["at first", "again"] {
        let start = Instant::now();
        for places in places.chunks(1_000) {
            session.symbolizer.name_all(places);
        }
        say(&format!("JDK {}: {} names of libjvm {what} in {:?}", jdk.version, places.len(), start.elapsed()));
    }
    Ok(())
}
