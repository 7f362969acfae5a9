//! What is asked: entry methods, packages, depth, and how much may be read for the answer.

use std::fmt;

use crate::resolve::pattern::Pattern;

/// Which methods are asked for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The entry methods: where trees begin.
    pub entries: Vec<Pattern>,
    /// The classes whose methods may be nodes; where none are named, those in the packages of the entry methods, and below. Entry methods need
    /// not be in them.
    pub packages: Vec<Pattern>,
    /// How many calls away from an entry method a node is at most.
    pub depth: u32,
    /// How much is read and chosen.
    pub limits: Limits,
}

/// How much is read and chosen at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Methods in the plan.
    pub methods: usize,
    /// Classes of which constants are read.
    pub classes: usize,
    /// Bytes of constants and code.
    pub bytes: usize,
    /// Rows of what was left out.
    pub left_out: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { methods: 2_000, classes: 2_000, bytes: 64 << 20, left_out: 5_000 }
    }
}

/// The limit that ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Methods(usize),
    Classes(usize),
    Bytes(usize),
    LeftOut(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Methods(most) => write!(f, "{most} methods were chosen"),
            Self::Classes(most) => write!(f, "the code of {most} classes was read"),
            Self::Bytes(most) => write!(f, "{} MiB of code were read", most >> 20),
            Self::LeftOut(most) => write!(f, "{most} methods and calls were left out; there are more"),
        }
    }
}
