//! Recordings that the command line names.

use std::fs::File;
use std::path::Path;

use anyhow::Context as _;

use crate::model::Profile;
use crate::recording;

/// Reads a recording.
///
/// # Errors
/// If it cannot be read; the error names it.
pub(super) fn open(path: &Path) -> anyhow::Result<Profile> {
    let read = File::open(path)
        .map_err(|source| recording::Error::Io { source })
        .and_then(|mut file| recording::read(&mut file));
    read.with_context(|| path.display().to_string())
}
