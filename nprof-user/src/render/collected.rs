//! What calls consumed: as an object of JSON, numbers by the names of what is collected, and in words.

use nprof_common::{Consumed, Counters};
use serde::{Serialize, Serializer};

use super::units;
use crate::model::{Collectors, Column};

/// The numbers, in the order of the collectors.
pub(super) struct Collected(Vec<(&'static str, u64)>);

impl Collected {
    /// Of each column one of its two numbers. `None` where nothing is collected, `null` where it is not known.
    pub(super) fn of(
        collectors: Collectors,
        consumed: Option<&Consumed>,
        number: fn(&Column, &Consumed) -> u64,
    ) -> Option<Option<Self>> {
        Self::each(collectors, consumed, number)
    }

    /// The same of one call.
    pub(super) fn of_call(collectors: Collectors, counters: Option<&Counters>) -> Option<Option<Self>> {
        Self::each(collectors, counters, Column::of)
    }

    fn each<T>(collectors: Collectors, of: Option<&T>, number: impl Fn(&Column, &T) -> u64) -> Option<Option<Self>> {
        let numbers = |of| Self(collectors.columns().map(|column| (column.name, number(column, of))).collect());
        (!collectors.is_empty()).then(|| of.map(numbers))
    }
}

/// What was collected, as far as it is not nothing; empty for nothing.
pub(super) fn in_words(collectors: Collectors, counters: &Counters) -> String {
    let numbers = collectors.columns().map(|column| (column, column.of(counters))).filter(|(_, number)| *number > 0);
    let words = |(column, number): (&Column, u64)| {
        format!("{} {}", column.title.to_lowercase(), units::counted(number, column.unit))
    };
    numbers.map(words).collect::<Vec<_>>().join(", ")
}

impl Serialize for Collected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
