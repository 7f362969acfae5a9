//! Columns side by side: stacks that have the same places are one sample with a value for each column.

use std::collections::HashMap;

use super::messages::Sample;
use super::signed;
use super::tables::{Tables, is_native};
use crate::model::{ProfileFrameKind, Weighed, WeighedStack};

/// The samples so far.
pub(super) struct Stacks {
    tables: Tables,
    columns: usize,
    /// Numbers of samples by their places, the innermost first.
    numbers: HashMap<Vec<u32>, usize>,
    samples: Vec<Sample>,
}

impl Stacks {
    pub(super) fn new(main: &str, columns: usize) -> Self {
        Self { tables: Tables::new(main), columns, numbers: HashMap::new(), samples: Vec::new() }
    }

    /// Adds the stacks of one column. What is inlined into what is taken from the first column that has a stack.
    pub(super) fn add(&mut self, weighed: &Weighed, column: usize, value: fn(&WeighedStack) -> u64) {
        let places: Vec<u32> = weighed.frames.iter().map(|frame| self.tables.place(frame)).collect();
        for stack in &weighed.stacks {
            let key: Vec<u32> = stack.frames.iter().rev().map(|frame| places[*frame as usize]).collect();
            let number = match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let location_id = self.locations(weighed, stack, &key);
                    self.samples.push(Sample { location_id, value: vec![0; self.columns] });
                    self.numbers.insert(key, self.samples.len() - 1);
                    self.samples.len() - 1
                }
            };
            let sum = &mut self.samples[number].value[column];
            *sum = sum.saturating_add(signed(value(stack)));
        }
    }

    /// The locations of a stack, the innermost first.
    fn locations(&mut self, weighed: &Weighed, stack: &WeighedStack, places: &[u32]) -> Vec<u64> {
        let kinds: Vec<ProfileFrameKind> =
            stack.frames.iter().rev().map(|frame| weighed.frames[*frame as usize].kind).collect();
        let mut locations = Vec::with_capacity(kinds.len());
        let mut begin = 0;
        for at in 0..kinds.len() {
            let caller = kinds.get(at + 1);
            if !caller.is_some_and(|caller| is_inlined_into(kinds[at], *caller)) {
                locations.push(self.tables.location(&places[begin..=at]));
                begin = at + 1;
            }
        }
        locations
    }

    /// The samples, and the tables that they refer to.
    pub(super) fn finish(self) -> (Vec<Sample>, Tables) {
        (self.samples, self.tables)
    }
}

fn is_inlined_into(kind: ProfileFrameKind, caller: ProfileFrameKind) -> bool {
    match kind {
        ProfileFrameKind::Inlined => caller.is_java() && caller != ProfileFrameKind::NativeMethod,
        ProfileFrameKind::NativeInlined => is_native(caller),
        _ => false,
    }
}
