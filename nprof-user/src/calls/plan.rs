//! From a question to a plan.

use super::hierarchy::Hierarchy;
use super::native_entries;
use super::search::Search;
use super::{Classes, Limits, Planned};
use crate::resolve::pattern::Pattern;

/// Which methods are asked for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The entry methods: where trees begin.
    pub entries: Vec<Pattern>,
    /// The classes whose methods may be nodes; none for all. Entry methods need not be in them.
    pub packages: Vec<Pattern>,
    /// How many calls away from an entry method a node is at most.
    pub depth: u32,
    /// How much is read and chosen.
    pub limits: Limits,
}

/// Finds the methods to enhance.
///
/// # Errors
/// When the VM cannot be asked any more.
pub fn plan<C: Classes>(classes: &mut C, question: &Question) -> Result<Planned, C::Error> {
    let hierarchy = Hierarchy::new(classes.loaded()?);
    let mut search = Search::new(classes, hierarchy, question);
    search.choose_entries();
    search.run()?;
    native_entries::find_callers(&mut search)?;
    Ok(search.finish())
}
