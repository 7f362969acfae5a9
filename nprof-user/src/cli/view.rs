//! How the rows of a table are shown: the options that `trace` has for it.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::render::{By, Order, Scope, View};

/// Which rows, in which order.
#[derive(Debug, Clone, Args)]
pub(super) struct ViewArgs {
    /// The column that rows are ordered by [default: on-cpu, where it is measured; else total]
    #[arg(long, value_name = "COLUMN", value_parser = one_of(&Order::ALL), hide_possible_values = false)]
    sort: Option<Order>,
    /// Show the first N rows of the final table, and what the others add up to
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Add the rows up by this
    #[arg(long, value_name = "WHAT", value_parser = one_of(&By::ALL), conflicts_with = "sort")]
    by: Option<By>,
}

impl ViewArgs {
    /// The view of JVMs in this scope.
    pub(super) fn of(&self, scope: Scope) -> View {
        let top = self.top.and_then(|top| usize::try_from(top).ok());
        View { scope, order: self.sort.unwrap_or_default(), by: self.by, top }
    }

    /// Whether rows are added up, which only tables show.
    pub(super) fn adds_up(&self) -> bool {
        self.by.is_some()
    }
}

/// Reads one of these words.
fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(T, &'static str)],
) -> impl TypedValueParser<Value = T> + use<T> {
    let known = PossibleValuesParser::new(words.iter().map(|(_, word)| *word));
    known.try_map(|word| words.iter().find(|(_, known)| *known == word).map(|(value, _)| *value).ok_or("no such word"))
}
