//! How long the calls have lasted that have not returned, and for how much of it their threads ran.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::TracedJvm;
use crate::attach::{Engine, OpenFrames};
use crate::discover::Proc;
use crate::model::{OpenTime, Pid, Snapshot, Tier};
use crate::profile::{Moment, open_times};

/// The calls of a JVM's threads that have not returned.
#[derive(Debug)]
pub(in crate::trace) struct OpenCalls {
    proc: Proc,
    pid: Pid,
    frames: Arc<OpenFrames>,
    /// Whether it is measured how long threads do not run.
    off_cpu: bool,
    /// Until when calls of each thread have lasted, once tracing has ended.
    end: OnceLock<HashMap<u32, Moment>>,
}

impl OpenCalls {
    /// Those of a JVM.
    pub(in crate::trace) fn of(proc: Proc, pid: Pid, engine: &Engine) -> Self {
        let (frames, off_cpu) = (Arc::clone(engine.open_frames()), engine.measures_off_cpu());
        Self { proc, pid, frames, off_cpu, end: OnceLock::new() }
    }

    /// Tracing ends now: calls that return later have not lasted longer.
    pub(super) fn end(&self) {
        self.end.get_or_init(|| self.moments());
    }

    /// This moment, of each thread that is in a call.
    fn moments(&self) -> HashMap<u32, Moment> {
        // A process that is gone has no thread.
        let tids = self.proc.tids(self.pid).unwrap_or_default();
        let inside = tids.into_iter().filter(|tid| !self.frames.open_calls(*tid).is_empty());
        let is_on_cpu = |tid| self.proc.is_on_cpu(self.pid, tid) == Some(true);
        inside.map(|tid| (tid, Moment::of(tid, &self.frames, || is_on_cpu(tid)))).collect()
    }

    /// By record, what the calls add up to that are open.
    fn by_record(&self) -> HashMap<u32, OpenTime> {
        let mut sums: HashMap<u32, OpenTime> = HashMap::new();
        let moments = self.end.get().cloned().unwrap_or_else(|| self.moments());
        for (tid, moment) in &moments {
            for call in open_times(&self.frames.open_calls(*tid), *moment) {
                let sum = sums.entry(call.record).or_default();
                sum.calls += 1;
                sum.self_ns = sum.self_ns.saturating_add(call.self_ns);
                let off_cpu_ns = sum.off_cpu_ns.zip(call.off_cpu_ns.filter(|_| self.off_cpu));
                sum.off_cpu_ns = off_cpu_ns.map(|(sum, more)| sum.saturating_add(more));
            }
        }
        sums
    }
}

impl TracedJvm {
    /// Adds what is known of calls that have not returned: of those that probes time, as only their frames are known.
    pub(super) fn add_open(&self, snapshot: &mut Snapshot) {
        let Some(open) = self.open.get().filter(|_| self.known.timed) else { return };
        let is_open = snapshot.methods.iter().any(|row| row.in_flight > 0 && row.tier == Tier::Kernel);
        let by_record = if is_open { open.by_record() } else { HashMap::new() };
        let records: HashMap<u32, u32> = self.records().collect();
        for row in &mut snapshot.methods {
            let found = records.get(&row.index).and_then(|record| by_record.get(record)).copied();
            row.open = match row.in_flight {
                0 => Some(OpenTime::default()),
                // Some may have begun since, or their threads have no slot.
                calls => found.filter(|found| found.calls >= calls && row.tier == Tier::Kernel),
            };
        }
    }
}
