//! Values that are met again and again, each kept once and known by its number.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by number.
#[derive(Debug)]
pub(super) struct Interner<T> {
    numbers: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// The number of a value, the next free one if it is new.
    pub(super) fn number(&mut self, value: T) -> u32 {
        // Four billion different frames do not fit into any memory.
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(value).or_insert(next)
    }

    /// The same, unless it is new and there are so many already.
    pub(super) fn number_within(&mut self, value: T, most: usize) -> Option<u32> {
        if self.numbers.len() < most { Some(self.number(value)) } else { self.numbers.get(&value).copied() }
    }

    /// The values in the order of their numbers.
    pub(super) fn into_values(self) -> Vec<T> {
        let mut numbered: Vec<(u32, T)> = self.numbers.into_iter().map(|(value, number)| (number, value)).collect();
        numbered.sort_unstable_by_key(|(number, _)| *number);
        numbered.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal values share a number, and that numbers are places in the list.
    #[test]
    fn numbers_are_places() {
        let mut names = Interner::default();
        assert_eq!(["a", "b", "a", "c", "b"].map(|name| names.number(name)), [0, 1, 0, 2, 1]);
        assert_eq!(["c", "d"].map(|name| names.number_within(name, 3)), [Some(2), None]);
        assert_eq!(names.into_values(), ["a", "b", "c"]);
    }
}
