//! What the programs know of the VM that they take stacks of, and reading from it.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use nprof_common::VmPlaces;

/// Where things lie in the VM; zeros for what is not known.
#[btf_map]
static NPROF_VM: Array<VmPlaces, 1, 0> = Array::new();

/// Where things lie in the VM.
#[inline(always)]
pub(crate) fn places() -> Option<&'static VmPlaces> {
    // SAFETY: the map gave the pointer; user space writes it as a whole, and each word is whole.
    NPROF_VM.get_ptr(0).map(|places| unsafe { &*places })
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
