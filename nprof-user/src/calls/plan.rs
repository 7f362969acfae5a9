//! From a question to a plan.

use super::hierarchy::Hierarchy;
use super::native_entries;
use super::question::Question;
use super::search::Search;
use super::{Classes, Planned};

/// Finds the methods to enhance.
///
/// # Errors
/// When the VM cannot be asked any more.
pub fn plan<C: Classes>(classes: &mut C, question: &Question) -> Result<Planned, C::Error> {
    let hierarchy = Hierarchy::new(classes.loaded()?);
    let mut search = Search::new(classes, hierarchy, question);
    search.choose_entries()?;
    search.run()?;
    native_entries::find_callers(&mut search)?;
    Ok(search.finish())
}
