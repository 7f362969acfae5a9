//! Where the time of slow invocations goes that quick ones do not need.
//!
//! Which ones are slow is known at the end alone. So sums are kept by the bucket of an invocation's time, and the slow ones are all
//! those of the highest buckets: exact sums of whole buckets, as near to a tenth of the invocations as these allow.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::model::{AlikeTotals, Difference, InvocationGroup, PathDifference, PathSum, TreeTotals};

/// Fewer invocations are looked at one by one.
const LEAST: u64 = 10;
/// The share of invocations that should be called slow.
const SLOW: f64 = 0.1;
/// The largest share that is called so.
const MOST: f64 = 0.5;

/// Compares the slow ones with the others; `None` where there are too few, or they are too alike.
pub(super) fn between(alike: &BTreeMap<u32, AlikeTotals>, totals: &TreeTotals) -> Option<Difference> {
    let first_slow = first_slow(alike)?;
    let (mut slow, mut quick) = (Part::default(), Part::default());
    for (bucket, more) in alike {
        let part = if *bucket >= first_slow { &mut slow } else { &mut quick };
        part.add(more, |way| way);
    }
    Some(compare(&slow, &quick, |way| totals.path(*way)))
}

/// Compares two groups of invocations, of which each way is known by a key. Those ways come first that explain the most.
pub(super) fn compare<K: Eq + Hash>(these: &Part<K>, others: &Part<K>, path: impl Fn(&K) -> Vec<u32>) -> Difference {
    let mut differences: Vec<PathDifference> = Vec::new();
    let of = |part: &Part<K>, way: &K| part.paths.get(way).copied().unwrap_or_default();
    let only_others = others.paths.keys().filter(|way| !these.paths.contains_key(*way));
    for way in these.paths.keys().chain(only_others) {
        differences.push(PathDifference { path: path(way), these: of(these, way), others: of(others, way) });
    }
    let more = |difference: &PathDifference| {
        mean(difference.these, these.group.invocations) - mean(difference.others, others.group.invocations)
    };
    differences.sort_by(|a, b| more(b).abs().total_cmp(&more(a).abs()).then_with(|| a.path.cmp(&b.path)));
    Difference { these: these.group, others: others.group, paths: differences }
}

/// The lowest bucket of slow ones.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn first_slow(alike: &BTreeMap<u32, AlikeTotals>) -> Option<u32> {
    let all: u64 = alike.values().map(|alike| alike.group.invocations).sum();
    if all < LEAST {
        return None;
    }
    let mut above = 0;
    let mut best: Option<(f64, u32)> = None;
    for (bucket, alike) in alike.iter().rev() {
        above += alike.group.invocations;
        let share = above as f64 / all as f64;
        let off = (share - SLOW).abs();
        if share <= MOST && best.is_none_or(|(least, _)| off < least) {
            best = Some((off, *bucket));
        }
    }
    best.map(|(_, bucket)| bucket)
}

#[expect(clippy::cast_precision_loss, reason = "to put them in order")]
fn mean(sum: PathSum, invocations: u64) -> f64 {
    sum.self_ns as f64 / invocations.max(1) as f64
}

/// One side of a comparison.
#[derive(Debug)]
pub(super) struct Part<K> {
    group: InvocationGroup,
    paths: HashMap<K, PathSum>,
}

impl<K> Default for Part<K> {
    fn default() -> Self {
        Self { group: InvocationGroup::default(), paths: HashMap::new() }
    }
}

impl<K: Eq + Hash> Part<K> {
    /// Adds invocations, of which a way has this key.
    pub(super) fn add(&mut self, more: &AlikeTotals, key: impl Fn(u32) -> K) {
        self.group = self.group.with(more.group);
        for (way, more) in &more.ways {
            self.paths.entry(key(*way)).or_default().add(*more);
        }
    }
}
