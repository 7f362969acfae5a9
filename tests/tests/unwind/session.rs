//! A target and what unwinds it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof::discover::{Proc, libjvm};
use nprof::model::{Pid, VirtAddr};
use nprof::sys::remote_memory::ProcessMemory;
use nprof::unwind::{JavaStack, Sample, Threads, Unwinder};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

use super::tally::Tally;
use super::waiting::Waiting;

/// More than any of the stacks takes.
pub(super) const MAX_STACK_BYTES: u64 = 2 << 20;

fn unwinder(memory: &ProcessMemory) -> Result<Unwinder<ProcessMemory>> {
    let libraries = Proc::host().libraries(memory.pid())?;
    let libjvm = libjvm(&libraries).context("no libjvm")?;
    Ok(Unwinder::open(memory.clone(), libjvm)?)
}

/// A target and its unwinder.
pub(super) struct Session {
    pub(super) target: RemoteProcess,
    pub(super) unwinder: Unwinder<ProcessMemory>,
    threads: Threads<ProcessMemory>,
    memory: ProcessMemory,
}

impl Session {
    pub(super) fn new(jdk: &Jdk, options: &[&str]) -> Result<Self> {
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
    pub(super) fn renew(&mut self) -> Result<()> {
        self.unwinder = unwinder(&self.memory)?;
        Ok(())
    }

    /// The stack of a thread from `rsp` to the end of its mapping, or up to `limit` bytes.
    pub(super) fn copy(&self, rsp: u64, limit: u64) -> Result<Vec<u8>> {
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
    pub(super) fn unwind(&mut self, waiting: &Waiting) -> Result<JavaStack> {
        let bytes = self.copy(waiting.rsp, MAX_STACK_BYTES)?;
        let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes);
        Ok(self.unwinder.unwind(&sample.context("an empty stack")?)?)
    }

    /// Compares threads that wait.
    pub(super) fn look(&mut self, jdk: &Jdk, waiting: &[Waiting], tally: &mut Tally) -> Result<()> {
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
    pub(super) fn compare(&mut self, jdk: &Jdk, shapes: &str, tally: &mut Tally) -> Result<()> {
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
