//! The thread that names the stacks of a sampler and adds them up: the first function of a library takes long to look up, and
//! whoever reads stacks is not to wait for it.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use nprof_common::{StackHeader, StackKind};

use super::frames::Frames;
use super::naming::{JavaNames, Names};
use super::off_cpu_samples::OffCpuSamples;
use super::sums::{Of, Share};
use super::{Flow, Sums};
use crate::attach::Collect;
use crate::model::{Library, Pid};

/// Stacks that wait for their names at most: more than are taken while the largest library is looked at. Beyond, the sampler waits.
const QUEUED: usize = 4_096;

/// What the thread is told, in the order in which it was.
#[derive(Debug)]
pub(super) enum Read {
    /// What the process has mapped from now on.
    Libraries(Vec<Library>),
    /// A stack.
    Stack(StackHeader, Frames),
    /// A thread runs again.
    Resumed(StackHeader),
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub sums: Sums,
    /// The stacks of sampled calls, by thread and the time that the call began; only for a timeline.
    pub sampled: HashMap<(u32, u64), u32>,
    /// The numbers that Java frames have in the sums.
    pub java: JavaNames,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Namer {
    queue: SyncSender<Read>,
    thread: JoinHandle<Named>,
}

impl Namer {
    /// Begins to name the stacks of a process.
    pub(super) fn start(pid: Pid, collect: Collect) -> Self {
        let (queue, read) = sync_channel(QUEUED);
        // Names of native code are looked up by what cannot leave its thread.
        let thread = thread::spawn(move || Worker::new(pid, collect).run(&read));
        Self { queue, thread }
    }

    /// Tells the thread what was read.
    pub(super) fn tell(&self, read: Read) {
        // If it has failed, `finish` says so.
        let _sent = self.queue.send(read);
    }

    /// Waits until all that it was told is added up.
    ///
    /// # Errors
    /// If the thread has failed, which is a defect.
    pub(super) fn finish(self) -> io::Result<Named> {
        drop(self.queue);
        self.thread.join().map_err(|_panic| io::Error::other("the thread that names stacks has failed"))
    }
}

/// The thread's own.
struct Worker {
    collect: Collect,
    names: Names,
    off_cpu_samples: OffCpuSamples,
    sums: Sums,
    sampled: HashMap<(u32, u64), u32>,
}

impl Worker {
    fn new(pid: Pid, collect: Collect) -> Self {
        let (off_cpu_samples, sums) = (OffCpuSamples::default(), Sums::default());
        Self { collect, names: Names::new(pid), off_cpu_samples, sums, sampled: HashMap::new() }
    }

    fn run(mut self, queue: &Receiver<Read>) -> Named {
        for read in queue {
            match read {
                Read::Libraries(libraries) => self.names.set_libraries(&libraries),
                Read::Stack(header, frames) => self.add(&header, &frames),
                Read::Resumed(header) => self.off_cpu_samples.resume(&header, &mut self.sums),
            }
        }
        Named { sums: self.sums, sampled: self.sampled, java: self.names.into_java() }
    }

    fn add(&mut self, header: &StackHeader, frames: &Frames) {
        let Self { collect, names, off_cpu_samples, sums, sampled } = self;
        let stack = names.number(frames, sums);
        let record = (header.index != StackHeader::NO_CALL).then_some(header.index);
        let of = |record| Of { record, stack, tid: Some(header.tid) };
        let is_call = |kind| kind == StackKind::Return as u32 || kind == StackKind::Stub as u32;
        match (header.kind, record) {
            (kind, Some(record)) if is_call(kind) => {
                let record = if kind == StackKind::Stub as u32 { Flow::of_stub(record) } else { record };
                sums.add_call(of(Some(record)), Share::of(header));
                if collect.calls {
                    sampled.insert((header.tid, header.now_ns.wrapping_sub(header.time_ns)), stack);
                }
            }
            (kind, _) if kind == StackKind::Stop as u32 => off_cpu_samples.stop(header, of(record), sums),
            _ => {
                let period_ns = collect.period.as_nanos() as f64;
                let share = Share { time_ns: period_ns, self_ns: period_ns, ..Share::default() };
                sums.add_inside(of(record), share);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::Pace;

    use super::*;

    fn header(kind: StackKind, tid: u32) -> StackHeader {
        let index = if kind == StackKind::Return { 3 } else { StackHeader::NO_CALL };
        StackHeader {
            kind: kind as u32,
            index,
            tid,
            probability: Pace::CERTAIN,
            time_ns: 500,
            ..StackHeader::default()
        }
    }

    /// Check that all that was told is added up in its order, each for what it is, however quickly the end comes.
    #[test]
    fn all_is_added_up() {
        let namer = Namer::start(Pid(std::process::id()), Collect { calls: true, ..Collect::nothing() });
        namer.tell(Read::Libraries(Vec::new()));
        for tid in 1..=100 {
            namer.tell(Read::Stack(header(StackKind::Return, tid), Frames::default()));
            namer.tell(Read::Stack(header(StackKind::Stop, tid), Frames::default()));
            namer.tell(Read::Resumed(header(StackKind::Resume, tid)));
        }
        let Named { sums, sampled, .. } = namer.finish().unwrap();
        let summed = sums.finish();
        let calls: u64 = summed.calls.iter().map(|totals| totals.samples).sum();
        let off_cpu_ns: f64 = summed.inside.iter().map(|totals| totals.off_cpu_ns).sum();
        assert_eq!((summed.taken, calls, sampled.len()), (200, 100, 100));
        assert!((off_cpu_ns - 100.0 * 500.0).abs() < 1.0, "{off_cpu_ns}");
    }
}
