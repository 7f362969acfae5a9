//! The calls that threads are in, and how long threads have not been running, as the programs keep both.

use std::fmt;
use std::os::fd::AsFd as _;

use aya::maps::{Array, MapData};
use nprof_common::{Frame, Frames, OffCpu, SLOTS};
use rustix::process::{PidfdFlags, pidfd_open};
use zerocopy::transmute;

use crate::sys::bpf;

/// The frames of a thread as they lie in the kernel.
pub(super) type Slot = [u64; size_of::<Frames>() / size_of::<u64>()];

/// Of `pidfd_open`: any thread, and not only a process's first.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0x80);

/// The calls that are open in any thread, to be read at any time.
pub struct OpenFrames {
    pub(super) slots: Array<MapData, Slot>,
    /// What is known of threads without a slot; `None` if this kernel's map of that cannot be read.
    pub(super) off_cpu: Option<MapData>,
    /// Whether it is known from slots, too.
    pub(super) off_cpu_in_slots: bool,
}

impl OpenFrames {
    /// The calls that a thread (of the initial namespace) is in, outermost first. None also for the few threads whose slot
    /// another one had taken.
    #[must_use]
    pub fn open_calls(&self, tid: u32) -> Vec<Frame> {
        self.slot(tid).map_or_else(Vec::new, |frames| frames.open_calls(tid).to_vec())
    }

    /// How long a thread (of the initial namespace) has not been running since its first traced call, at `now_ns` of the
    /// monotonic clock: as if it had last stopped, or run, at that time. `None` where that is not measured, and before Linux 6.9 of
    /// the few threads whose slot another one had taken.
    #[must_use]
    pub fn off_cpu(&self, tid: u32, now_ns: u64) -> Option<OffCpu> {
        let known = match self.slot(tid).filter(|_| self.off_cpu_in_slots) {
            Some(frames) => frames.off_cpu,
            None => self.stored_off_cpu(tid)?,
        };
        let since_ns = if known.since_ns == 0 { now_ns } else { known.since_ns };
        Some(OffCpu { total_ns: known.total_ns + now_ns.saturating_sub(since_ns), ..known })
    }

    /// What task storage has of a thread.
    fn stored_off_cpu(&self, tid: u32) -> Option<OffCpu> {
        let tid = rustix::process::Pid::from_raw(i32::try_from(tid).ok()?)?;
        let thread = pidfd_open(tid, PIDFD_THREAD).ok()?;
        bpf::lookup_task_storage(self.off_cpu.as_ref()?, thread.as_fd()).ok()
    }

    /// The slot of a thread, if it has one.
    fn slot(&self, tid: u32) -> Option<Frames> {
        let slot = self.slots.get(&(tid & (SLOTS - 1)), 0).ok()?;
        let frames: Frames = transmute!(slot);
        (frames.owner == tid).then_some(frames)
    }
}

impl fmt::Debug for OpenFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFrames").field("off_cpu_in_slots", &self.off_cpu_in_slots).finish_non_exhaustive()
    }
}
