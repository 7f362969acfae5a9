//! Who else has files mapped.

use std::collections::BTreeSet;

use super::Proc;
use super::at_once::at_once;
use crate::model::{FileId, Pid};

impl Proc {
    /// Those of the files that some process has mapped which is not one of `known` and not nprof. What may not be looked into is
    /// passed over.
    #[must_use]
    pub fn mapped_by_others(&self, files: &BTreeSet<FileId>, known: &BTreeSet<Pid>) -> BTreeSet<FileId> {
        let Ok(mut pids) = self.pids() else { return files.clone() };
        pids.retain(|pid| !known.contains(pid) && pid.0 != std::process::id());
        let mapped = at_once(
            pids,
            || (),
            |(), pid| match self.mappings(pid) {
                Ok(mappings) => {
                    mappings.iter().map(|mapping| mapping.file).filter(|file| files.contains(file)).collect()
                }
                Err(_) => BTreeSet::new(),
            },
        );
        mapped.into_iter().flatten().collect()
    }
}
