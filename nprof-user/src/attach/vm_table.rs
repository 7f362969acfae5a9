//! Tells the programs where things lie in each VM that they take stacks of.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use aya::maps::{HashMap, MapData, MapError};
use nprof_common::VmPlaces;
use zerocopy::transmute;

use crate::model::Pid;

/// [`VmPlaces`] as aya passes them to the kernel.
pub(super) type VmEntry = [u64; size_of::<VmPlaces>() / size_of::<u64>()];

/// The VMs by process. Any thread may write.
pub struct VmTable(Mutex<HashMap<MapData, u32, VmEntry>>);

impl VmTable {
    pub(super) fn new(map: HashMap<MapData, u32, VmEntry>) -> Self {
        Self(Mutex::new(map))
    }

    /// Says what to read of a VM besides stacks. Until then nothing is.
    ///
    /// # Errors
    /// What the kernel answers, such as for more VMs than there is room for.
    pub fn set(&self, pid: Pid, places: &VmPlaces) -> io::Result<()> {
        let words: VmEntry = transmute!(*places);
        self.change(|map| map.insert(pid.0, words, 0)).map_err(io::Error::other)
    }

    /// Forgets a VM. One that is not known is forgotten already.
    pub fn forget(&self, pid: Pid) {
        match self.change(|map| map.remove(&pid.0)) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => tracing::debug!("process {pid}: its VM is not forgotten: {error}"),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<MapData, u32, VmEntry>) -> T) -> T {
        // A change is one system call: whoever panicked here has made it or not.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for VmTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VmTable").finish_non_exhaustive()
    }
}
