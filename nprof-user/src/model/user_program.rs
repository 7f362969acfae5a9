//! Programs of the user's own that run at calls beside nprof's.

use std::collections::BTreeMap;
use std::fmt;

/// The end of a call that a program runs at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallEnd {
    /// When the function begins.
    Entry,
    /// When it returns.
    Return,
}

impl CallEnd {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Entry, Self::Return];

    /// The option by which users name programs for it.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Entry => "--on-entry",
            Self::Return => "--on-return",
        }
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Entry => "entry",
            Self::Return => "return",
        })
    }
}

/// What the programs of one object have left of each function, in a map that nprof knows by its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramValues {
    /// The object's name: that of its file up to the first dot.
    pub name: String,
    /// The same for the head of a table.
    pub title: String,
    /// By the dense index of the function: of those at which the programs run.
    pub by_index: BTreeMap<u32, u64>,
}

impl ProgramValues {
    /// The value of a function; `None` if the programs do not run there.
    #[must_use]
    pub fn of(&self, index: u32) -> Option<u64> {
        self.by_index.get(&index).copied()
    }
}
