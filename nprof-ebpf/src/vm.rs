//! What the programs know of the VMs that they take stacks of, and reading from the current one.

use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use nprof_common::VmPlaces;

/// Where things lie in each VM, by process; zeros for what is not known. The loader says for how many there is room.
#[btf_map]
static NPROF_VM: HashMap<u32, VmPlaces, 1> = HashMap::new();

/// Where things lie in the VM of the current process, if it is one that is known.
#[inline(always)]
pub(crate) fn places() -> Option<&'static VmPlaces> {
    let process = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: user space replaces a value as a whole, and each word is whole. Whoever reads while it does finds words of two
    // values at worst, or of two VMs: where they lead is checked like all that is read of a target.
    unsafe { NPROF_VM.get(process) }
}

/// How many times the VM has begun to collect the heap, and one; 0 if that is not known.
#[inline(always)]
pub(crate) fn collections() -> u64 {
    let counter = places().map_or(0, |places| places.collections);
    if counter == 0 { 0 } else { half(counter).map_or(0, |collections| collections + 1) }
}

/// The word at an address of the current process.
#[inline(always)]
pub(crate) fn word(addr: u64) -> Option<u64> {
    let mut word = 0u64;
    // SAFETY: the word is ours; the helper takes any address.
    let failed = unsafe { bpf_probe_read_user((&raw mut word).cast(), size_of::<u64>() as u32, addr as *const _) };
    (failed == 0).then_some(word)
}

/// The half word at an address of the current process.
#[inline(always)]
pub(crate) fn half(addr: u64) -> Option<u64> {
    let mut half = 0u32;
    // SAFETY: as above.
    let failed = unsafe { bpf_probe_read_user((&raw mut half).cast(), size_of::<u32>() as u32, addr as *const _) };
    (failed == 0).then_some(half as u64)
}
