//! Why the inventory of a JVM cannot be taken.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::memory::MemoryError;
use crate::elf::Fault;

/// What stands between nprof and a VM's tables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file of the VM cannot be opened.
    #[error("cannot open {}", path.display())]
    LibraryFile {
        /// The file, as the target names it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file of the VM is not what nprof can read.
    #[error("{} is not a 64-bit little-endian ELF library", path.display())]
    BadLibrary {
        /// The file, as the target names it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Fault,
    },
    /// The mappings of the VM's file do not fit its headers.
    #[error("the mappings of {} do not fit the file", path.display())]
    NotMapped {
        /// The file, as the target names it.
        path: PathBuf,
    },
    /// The VM was built without the tables.
    #[error("the VM has no tables that describe it")]
    NoTables,
    /// The VM has only just been started and has not filled its tables.
    #[error("the VM is still starting: its tables are empty")]
    NotReady,
    /// The tables have no end or no sensible form.
    #[error("the VM's tables are damaged")]
    BadTables,
    /// The VM's tables lack entries that are needed: another version. Their names are for the log alone.
    #[error("the VM does not publish what is needed")]
    MissingEntry {
        /// All of them.
        missing: Vec<TableEntry>,
    },
    /// An entry of the tables cannot be right.
    #[error("what the VM publishes makes no sense")]
    BadEntry {
        /// The first such entry.
        entry: TableEntry,
    },
    /// The memory of the process cannot be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Error {
    /// Writes which entries are missing or wrong to the log (`-vv`): users can do nothing about them, who mends nprof can.
    pub(crate) fn logged(self) -> Self {
        match &self {
            Self::MissingEntry { missing } => tracing::debug!("the VM's tables lack {}", list(missing)),
            Self::BadEntry { entry } => tracing::debug!("the VM's tables have an impossible entry for {entry}"),
            _ => {}
        }
        self
    }

    /// Whether this VM can never be read: it is of a kind or version that does not publish what is needed.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::BadLibrary { .. } | Self::NoTables | Self::MissingEntry { .. } | Self::BadEntry { .. })
    }
}

/// An entry of the VM's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// The VM's type, such as `Klass`.
    pub type_name: String,
    /// Its field, such as `_next_link`.
    pub field: String,
}

impl TableEntry {
    pub(super) fn new(type_name: &str, field: &str) -> Self {
        Self { type_name: type_name.to_owned(), field: field.to_owned() }
    }
}

impl fmt::Display for TableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.type_name, self.field)
    }
}

fn list(entries: &[TableEntry]) -> String {
    let names: Vec<String> = entries.iter().map(ToString::to_string).collect();
    names.join(", ")
}
