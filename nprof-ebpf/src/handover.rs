//! Who counts a hit where there is a choice: one of a function's probes while one link takes over from another, or a
//! stub that has counted it before: [`nprof_common::switch`].

use nprof_common::{Frames, Mode, Switch};

use crate::{maps, threads};

/// What the probe of this lane does at a hit whose switch is not settled on it: a [`Mode`].
///
/// Out of line: no hit comes here but in the moments of a hand-over, and where the target has stubs.
#[cold]
#[inline(never)]
pub(crate) fn mode(index: u32, lane: u64, sp: u64, is_marked: bool) -> u64 {
    // All programs of a hit must see the same word, whichever CPU they run on.
    let Some(stats) = maps::first_shard(index) else { return Mode::Off as u64 };
    // SAFETY: the map gave the pointer. Volatile, because user space changes the word at any time.
    let switch = Switch(unsafe { (&raw const (*stats).switch).read_volatile() });
    if switch.is_counted_by_stub(is_marked) {
        return Mode::Off as u64;
    }
    let is_named = switch.lane() as u64 == lane;
    let answers = match switch.epoch() {
        None => is_named,
        Some(epoch) if is_named => !take_mark(index, epoch, sp),
        Some(epoch) => switch.to() as u64 == lane && leave_mark(index, epoch, sp),
    };
    if answers { switch.mode() } else { Mode::Off as u64 }
}

/// Leaves word for the older probe of the same hit. If there is no place for it, that one has to answer.
#[inline(always)]
fn leave_mark(index: u32, epoch: u32, sp: u64) -> bool {
    let Some(frames) = threads::frames_or_new() else { return false };
    // SAFETY: the map gave the pointer, and no other thread has this one's frames.
    let frames = unsafe { &mut *frames };
    (frames.mark_sp, frames.mark_index, frames.mark_epoch) = (sp, index, epoch);
    true
}

/// Whether the newer probe has left word for this hit, which is used up by this.
#[inline(always)]
fn take_mark(index: u32, epoch: u32, sp: u64) -> bool {
    let Some(frames) = threads::frames() else { return false };
    // SAFETY: as above.
    let frames: &mut Frames = unsafe { &mut *frames };
    let marked = frames.mark_sp == sp && frames.mark_index == index && frames.mark_epoch == epoch;
    if marked {
        frames.mark_sp = 0;
    }
    marked
}
