//! Whose record a hit of a link is for that serves many processes: [`nprof_common::shared`].

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_map;
use nprof_common::shared::{Member, place, slot, strangers};

use crate::atomic;

/// [`Member`]s by slot. The loader sets the size, of this and the next: one entry where no link serves many.
#[btf_map]
static NPROF_MEMBERS: Array<u64, 1, 0> = Array::new();

/// Numbers of records by row and site.
#[btf_map]
static NPROF_PLACES: Array<u32, 1, 0> = Array::new();

/// What is known of strangers.
#[btf_map]
static NPROF_STRANGERS: Array<u64, { strangers::WORDS as usize }, { BPF_F_MMAPABLE as usize }> = Array::new();

/// The record of the current process for a site; `None` if it has none there. One that is no member pays for a link that is
/// not for it: that is noted, so that user space can take the link away.
#[inline(always)]
pub(crate) fn record(site: u32) -> Option<u32> {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: the map gives a valid pointer. Volatile, because user space changes the word at any time.
    let member = NPROF_MEMBERS.get_ptr(slot(tgid)).map(|member| unsafe { member.read_volatile() });
    let Some(row) = member.and_then(|member| Member(member).row_of(tgid)) else {
        note_stranger(tgid, site);
        return None;
    };
    let found = NPROF_PLACES.get_ptr(place(row, site))?;
    // SAFETY: as above.
    let record = unsafe { found.read_volatile() };
    (record != 0).then_some(record)
}

/// Notes a hit of a process that is no member.
#[cold]
#[inline(never)]
fn note_stranger(tgid: u32, site: u32) {
    if let Some(hits) = NPROF_STRANGERS.get_ptr_mut(strangers::HITS) {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::add(hits, 1) };
    }
    if let Some(last) = NPROF_STRANGERS.get_ptr_mut(strangers::LAST) {
        // SAFETY: as above; whichever of several is written last will do.
        unsafe { last.write_volatile(u64::from(tgid) << 32 | u64::from(site)) };
    }
}
