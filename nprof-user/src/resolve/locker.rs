//! The functions of a VM by which critical sections keep it from collecting the heap: where they can be probed to tell for how long.

use std::path::Path;

use nprof_common::LockerRole;

use super::image::{Image, ImageError};
use crate::model::{FileOffset, LockerSites};

/// A function, what it does, and whether its entry and its return are of interest.
type Function = (&'static str, LockerRole, [bool; 2]);

/// What a VM has, by how it keeps collections from beginning: as a whole, or it is not known.
const KINDS: [[Function; 2]; 2] = [
    // From JDK 25 on: who is to collect waits itself.
    [
        ("_ZN8GCLocker5blockEv", LockerRole::Blocks, [true, true]),
        ("_ZN8GCLocker7unblockEv", LockerRole::Unblocks, [true, false]),
    ],
    // Before: a collection that may not begin is given up, and made by the thread that ends the last section.
    [
        ("_ZN8GCLocker22check_active_before_gcEv", LockerRole::Checks, [false, true]),
        ("_ZN14GCLockerTracer16report_gc_lockerEv", LockerRole::Cleared, [true, false]),
    ],
];

/// Where the functions of the VM can be probed which `path` opens; `None` if it has no names of them.
///
/// # Errors
/// If the file cannot be read or is no plausible 64-bit ELF file.
pub fn locker_sites(path: &Path) -> Result<Option<LockerSites>, ImageError> {
    let image = Image::open(path)?;
    for kind in KINDS {
        let places = image.internal(&kind.map(|(name, ..)| name))?;
        let places: Option<Vec<FileOffset>> = places.into_iter().map(|place| Some(place?.start)).collect();
        let Some(places) = places else { continue };
        let mut sites = LockerSites::default();
        for (place, (_, role, [entry, back])) in places.into_iter().zip(kind) {
            sites.entries.extend(entry.then_some((place, role)));
            sites.returns.extend(back.then_some((place, role)));
        }
        return Ok(Some(sites));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing is found in what is no VM.
    #[test]
    fn not_in_others() {
        assert_eq!(locker_sites(&std::env::current_exe().unwrap()).unwrap(), None);
    }
}
