//! The trees of two recordings compared: what an invocation does and takes in each.
//!
//! Methods are numbered anew in each run. They are the same if their class, name and signature are; what the VM adds to the names of
//! lambdas' classes is another in each run, and says nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::difference::{Part, compare};
use super::sums::{Weigher, of_stacks};
use crate::aggregate::weigh::NotRecorded;
use crate::model::{
    EntryComparison, EntryTotals, PathDifference, PathSum, RecordedTrees, TreeComparison, TreeMethod, Weighed, Weight,
};

/// Compares the trees of a recording with those of an earlier one, by entry method.
#[must_use]
pub fn compare_trees(before: &RecordedTrees, after: &RecordedTrees) -> TreeComparison {
    let mut numbers = Numbers::default();
    // The names of the later one are shown.
    let new = numbers.of(&after.methods);
    let old = numbers.of(&before.methods);
    let numbers_of = |silenced: &[u32], known: &[u32]| -> Vec<u32> {
        silenced.iter().filter_map(|method| known.get(*method as usize).copied()).collect()
    };
    let silenced = [numbers_of(&before.silenced, &old), numbers_of(&after.silenced, &new)];
    let mut entries: BTreeMap<u32, [Vec<&EntryTotals>; 2]> = BTreeMap::new();
    for (at, trees, known) in [(0, before, &old), (1, after, &new)] {
        for (method, of) in &trees.totals.entries {
            if let Some(&number) = known.get(*method as usize) {
                entries.entry(number).or_default()[at].push(of);
            }
        }
    }
    let paths = |trees: &RecordedTrees, known: &[u32]| -> Vec<Vec<u32>> {
        let path =
            |way| trees.totals.path(way).iter().filter_map(|method| known.get(*method as usize).copied()).collect();
        (0..).take(trees.totals.ways.len()).map(path).collect()
    };
    let (old, new) = (paths(before, &old), paths(after, &new));
    let mut entries: Vec<EntryComparison> = entries
        .into_iter()
        .map(|(method, [before, after])| {
            let failed = [&before, &after].map(|all| all.iter().map(|of| of.failed).fold(0, u64::saturating_add));
            let difference = compare(&part(&after, &new), &part(&before, &old), Vec::clone);
            EntryComparison { method, failed, difference }
        })
        .collect();
    let spent = |entry: &EntryComparison| entry.difference.these.total_ns.max(entry.difference.others.total_ns);
    entries.sort_by_key(|entry| (Reverse(spent(entry)), entry.method));
    TreeComparison { methods: numbers.methods, entries, silenced, losses: [before.losses, after.losses] }
}

/// A comparison as stacks, those of before and those of after: of each entry method as if there had been as many invocations before as there
/// were after. One without invocations in one of both is as it was.
///
/// # Errors
/// If it is not known of all how long threads did not run, and the weight needs that.
pub fn weigh_comparison(comparison: &TreeComparison, weight: Weight) -> Result<[Weighed; 2], NotRecorded> {
    let both = |entry: &EntryComparison| [entry.difference.others, entry.difference.these];
    let Weigher { unit, value } = Weigher::of(weight, comparison.entries.iter().flat_map(both))?;
    let stacks = |of: fn(&PathDifference) -> PathSum, is_scaled: bool| {
        let stacks = comparison.entries.iter().flat_map(move |entry| {
            let [before, after] = both(entry).map(|group| group.invocations);
            let scale = move |value: u64| if is_scaled { scaled(value, before, after) } else { value };
            entry.difference.paths.iter().map(move |path| (path.path.clone(), scale(value(of(path)))))
        });
        of_stacks(unit, &comparison.methods, stacks)
    };
    Ok([stacks(|path| path.others, true), stacks(|path| path.these, false)])
}

/// What a number of so many invocations before would be of as many as after, to the nearest.
fn scaled(value: u64, before: u64, after: u64) -> u64 {
    if before == 0 || after == 0 {
        return value;
    }
    let [value, before, after] = [value, before, after].map(u128::from);
    u64::try_from((value * after + before / 2) / before).unwrap_or(u64::MAX)
}

/// All invocations of an entry method, with paths for keys.
fn part(all: &[&EntryTotals], paths: &[Vec<u32>]) -> Part<Vec<u32>> {
    let mut part = Part::default();
    for alike in all.iter().flat_map(|of| of.alike.values()) {
        part.add(alike, |way| paths.get(way as usize).cloned().unwrap_or_default());
    }
    part
}

/// The methods of both recordings.
#[derive(Debug, Default)]
struct Numbers {
    methods: Vec<TreeMethod>,
    known: HashMap<[String; 3], u32>,
}

impl Numbers {
    /// The numbers of the methods of one.
    fn of(&mut self, methods: &[TreeMethod]) -> Vec<u32> {
        methods.iter().map(|method| self.number(method)).collect()
    }

    fn number(&mut self, method: &TreeMethod) -> u32 {
        let key = [lasting(&method.class), method.method.to_string(), method.signature.to_string()];
        let methods = &mut self.methods;
        *self.known.entry(key).or_insert_with(|| {
            methods.push(method.clone());
            u32::try_from(methods.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// What is the same in each run of a class's name: `a.Main$$Lambda` of `a.Main$$Lambda$14/0x00007f12`.
fn lasting(class: &str) -> String {
    match class.split_once('/') {
        Some((name, _)) => name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('$').to_owned(),
        None => class.to_owned(),
    }
}
