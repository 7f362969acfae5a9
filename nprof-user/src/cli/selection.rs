//! Which methods a command is about: the patterns that most commands share.

use clap::Args;

use crate::resolve::select::Selection;

/// Which methods.
#[derive(Debug, Clone, Args)]
pub(super) struct SelectionArgs {
    /// Which methods, as globs on class::method; all if there is none
    #[arg(value_name = "PATTERN")]
    pub(super) patterns: Vec<String>,
    /// Leave these methods out; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(super) exclude: Vec<String>,
    /// Only methods whose code is in such a library, as a glob on its file name or path; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(super) library: Vec<String>,
}

/// Which threads.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ThreadArgs {
    /// Only what threads of such a name did, as a glob on the 15 bytes that the kernel keeps of it; may be given several times. How
    /// a method's calls and times divide among threads is estimated from the sampled ones
    #[arg(long = "thread", value_name = "GLOB")]
    pub(super) threads: Vec<String>,
}

impl SelectionArgs {
    /// Whether nothing was typed: all methods are meant.
    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.exclude.is_empty() && self.library.is_empty()
    }

    /// The selection that was typed.
    ///
    /// # Errors
    /// For a pattern that is none.
    pub(super) fn parse(&self) -> anyhow::Result<Selection> {
        Ok(Selection::parse(&self.patterns, &self.exclude, &self.library)?)
    }
}
