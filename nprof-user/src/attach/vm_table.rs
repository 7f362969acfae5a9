//! Tells the programs where things lie in each VM that they look into: for whoever reads its stacks, and for its JNI functions.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use aya::maps::{MapData, MapError};
use nprof_common::VmPlaces;
use zerocopy::transmute;

use crate::model::Pid;

/// [`VmPlaces`] as aya passes them to the kernel.
pub(super) type VmEntry = [u64; size_of::<VmPlaces>() / size_of::<u64>()];

/// The VMs by process. Any thread may write.
pub struct VmTable(Mutex<Told>);

/// What the programs were told.
struct Told {
    map: aya::maps::HashMap<MapData, u32, VmEntry>,
    of: HashMap<Pid, OfVm>,
}

/// What they were told of one VM, by whom.
#[derive(Debug, Clone, Copy, Default)]
struct OfVm {
    /// By who reads stacks.
    stacks: Option<VmPlaces>,
    /// By who reads calls of JNI functions.
    jni: Option<VmPlaces>,
}

impl OfVm {
    /// Both together. Who reads stacks says more of what both know.
    fn places(&self) -> Option<VmPlaces> {
        let places = self.stacks.or(self.jni)?;
        Some(VmPlaces { jni: self.jni.unwrap_or(places).jni, ..places })
    }
}

impl VmTable {
    pub(super) fn new(map: aya::maps::HashMap<MapData, u32, VmEntry>) -> Self {
        Self(Mutex::new(Told { map, of: HashMap::new() }))
    }

    /// Says what to read of a VM besides stacks. Until then nothing is.
    ///
    /// # Errors
    /// What the kernel answers, such as for more VMs than there is room for.
    pub fn set(&self, pid: Pid, places: &VmPlaces) -> io::Result<()> {
        self.change(pid, |of| of.stacks = Some(*places))
    }

    /// Says what its JNI functions are looked at with.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_jni(&self, pid: Pid, places: &VmPlaces) -> io::Result<()> {
        self.change(pid, |of| of.jni = Some(*places))
    }

    /// Forgets what was said for stacks. A VM that is not known is forgotten already.
    pub fn forget(&self, pid: Pid) {
        self.forget_part(pid, |of| of.stacks = None);
    }

    /// The same of JNI functions, unless somebody has said something else since: another VM may be in its process.
    pub fn forget_jni(&self, pid: Pid, said: &VmPlaces) {
        self.forget_part(pid, |of| of.jni = of.jni.filter(|now| now != said));
    }

    fn forget_part(&self, pid: Pid, forget: impl FnOnce(&mut OfVm)) {
        if let Err(error) = self.change(pid, forget) {
            tracing::debug!("process {pid}: its VM is not forgotten: {error}");
        }
    }

    fn change(&self, pid: Pid, change: impl FnOnce(&mut OfVm)) -> io::Result<()> {
        // A change is one system call: whoever panicked here has made it or not.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { map, of } = &mut *told;
        let mut of_vm = of.get(&pid).copied().unwrap_or_default();
        change(&mut of_vm);
        let Some(places) = of_vm.places() else {
            of.remove(&pid);
            return match map.remove(&pid.0) {
                Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
                Err(error) => Err(io::Error::other(error)),
            };
        };
        let words: VmEntry = transmute!(places);
        map.insert(pid.0, words, 0).map_err(io::Error::other)?;
        of.insert(pid, of_vm);
        Ok(())
    }
}

impl fmt::Debug for VmTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VmTable").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::JniPlaces;

    use super::*;

    /// Check that neither takes away what the other has said, and that a VM is forgotten when both have.
    #[test]
    fn two_who_tell() {
        let jni = JniPlaces { klass: 8, ..JniPlaces::default() };
        let of = |collections, jni| Some(VmPlaces { collections, jni, ..VmPlaces::default() });
        let places = |stacks, jni| {
            let places = OfVm { stacks, jni }.places();
            places.map(|places| (places.collections, places.jni.klass))
        };
        assert_eq!(places(of(1, JniPlaces::default()), of(2, jni)), Some((1, 8)));
        assert_eq!(places(None, of(2, jni)), Some((2, 8)));
        assert_eq!(places(of(1, JniPlaces::default()), None), Some((1, 0)));
        assert_eq!(places(None, None), None);
    }
}
