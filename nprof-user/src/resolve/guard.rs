//! Where a probe may sit that the kernel would write into every process that has the file mapped.
//!
//! A bound address is one that the target names. In the middle of an instruction a breakpoint changes what the code
//! computes: for the target alone, which could do so itself, where the kernel keeps probes to it, and for everybody
//! where it does not. There only proven starts of functions are probed, and a proof is worth nothing if the target's
//! user may have written the file that it comes from.

use std::collections::HashSet;

use super::image::{Image, ImageError};
use crate::model::{FileOffset, SkipReason};
use crate::native::function_starts;
use crate::sys::target_file::About;

/// Who writes the system's files.
const ROOT: u32 = 0;
/// The permission of others than the owner to write. With an access list, this is what the list grants at most.
const OTHERS_WRITE: u32 = 0o022;

/// What is asked of a place before a probe may reach everyone there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Whose files are believed.
    owner: u32,
    /// Whether the target's user may have written these too.
    forgeable: bool,
}

impl Guard {
    /// For a target whose user may have written root's files or not.
    #[must_use]
    pub fn new(writes_as_root: bool) -> Self {
        Self { owner: ROOT, forgeable: writes_as_root }
    }

    /// As [`Self::new`], where another user's files are believed.
    #[cfg(test)]
    pub(super) fn believing(owner: u32) -> Self {
        Self { owner, forgeable: false }
    }

    /// Why a function must not be probed, for those among `entries` that must not.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn refused(self, image: &Image, entries: &[FileOffset]) -> Result<Vec<(FileOffset, SkipReason)>, ImageError> {
        let error = |source| image.read_error(source);
        if self.forgeable || !self.believes(image.file().about()) {
            return Ok(entries.iter().map(|entry| (*entry, SkipReason::UntrustedFile)).collect());
        }
        let covered = function_starts(image.file()).map_err(error)?;
        let mut left: HashSet<FileOffset> = entries.iter().copied().collect();
        image.exports().for_each(|export| {
            left.remove(&export);
        });
        left.retain(|entry| image.address_of(*entry).is_none_or(|at| covered.of(at) != Some(at)));
        // Most files need not be asked for the names of their functions, which may be many.
        if !left.is_empty() {
            image.named_functions(|start| {
                left.remove(&start);
            })?;
        }
        Ok(left.into_iter().map(|entry| (entry, SkipReason::UnprovenStart)).collect())
    }

    /// Whether only the owner can have written a file: what has to hold for a program too before the kernel runs it
    /// as its owner, whoever starts it. (Who mounts a file system that says what he likes gets it without that.)
    fn believes(self, file: &About) -> bool {
        file.owner() == self.owner && file.mode() & OTHERS_WRITE == 0 && !file.is_nosuid()
    }
}
