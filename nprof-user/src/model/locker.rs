//! Where it can be seen how long critical sections keep a VM from collecting the heap.

use nprof_common::LockerRole;

use super::FileOffset;

/// The functions of the VM that say so: where they can be probed, at their entries and at their returns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockerSites {
    /// At entries.
    pub entries: Vec<(FileOffset, LockerRole)>,
    /// At returns.
    pub returns: Vec<(FileOffset, LockerRole)>,
}
