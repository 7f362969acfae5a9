//! The orders that the rows of a comparison can have: one for each column.

use std::sync::LazyLock;

use crate::model::{COLLECTORS, Collectors, Column};

/// By which column rows are ordered: the largest number first, names from A to Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiffOrder {
    /// How much the time changed, up or down.
    #[default]
    Change,
    /// The same as a share of what it was.
    Percent,
    /// How far the change may be off.
    Error,
    /// The time before.
    TimeBefore,
    /// The time after.
    TimeAfter,
    /// The calls before.
    CallsBefore,
    /// The calls after.
    CallsAfter,
    /// How much what the calls have consumed of this changed.
    Consumed(&'static Column),
    /// The class, then the method.
    Method,
}

/// Every order with the word for it.
static WORDS: LazyLock<Vec<(DiffOrder, &'static str)>> = LazyLock::new(|| {
    let columns = COLLECTORS.iter().flat_map(|collector| collector.columns);
    let consumed = columns.map(|column| (DiffOrder::Consumed(column), column.name));
    DiffOrder::ALL.into_iter().chain(consumed).collect()
});

impl DiffOrder {
    const ALL: [(Self, &str); 8] = [
        (Self::Change, "change"),
        (Self::Percent, "percent"),
        (Self::Error, "error"),
        (Self::TimeBefore, "time-a"),
        (Self::TimeAfter, "time-b"),
        (Self::CallsBefore, "calls-a"),
        (Self::CallsAfter, "calls-b"),
        (Self::Method, "method"),
    ];

    /// Every word for an order.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(_, word)| *word)
    }

    /// The order of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        WORDS.iter().find(|(_, known)| *known == word).map(|(order, _)| *order)
    }

    /// Why two recordings that have both collected this cannot be compared in the order; `None` if they can.
    #[must_use]
    pub fn missing(self, collected: Collectors) -> Option<&'static str> {
        let Self::Consumed(column) = self else { return None };
        let is_missing = collected.columns().all(|other| other != column);
        is_missing.then_some("that was not collected in both recordings (`nprof record --collect`)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every order has a word of its own.
    #[test]
    fn words_tell_orders_apart() {
        let words: std::collections::BTreeSet<&str> = DiffOrder::words().collect();
        assert_eq!(words.len(), DiffOrder::words().count());
        assert!(WORDS.iter().all(|(order, word)| DiffOrder::of(word) == Some(*order)));
        assert_eq!(DiffOrder::of("colour"), None);
    }
}
