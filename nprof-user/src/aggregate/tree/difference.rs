//! Where the time of slow invocations goes that quick ones do not need.
//!
//! Which ones are slow is known at the end alone. So sums are kept by the bucket of an invocation's time, and the slow ones are all
//! those of the highest buckets: exact sums of whole buckets, as near to a tenth of the invocations as these allow.

use std::collections::{BTreeMap, HashMap};

use super::paths::Paths;
use super::sums::Alike;
use crate::model::{Difference, InvocationGroup, PathDifference, PathSum};

/// Fewer invocations are looked at one by one.
const LEAST: u64 = 10;
/// The share of invocations that should be called slow.
const SLOW: f64 = 0.1;
/// The largest share that is called so.
const MOST: f64 = 0.5;

/// Compares the slow ones with the others; `None` where there are too few, or they are too alike.
pub(super) fn between(alike: &BTreeMap<u32, Alike>, paths: &Paths) -> Option<Difference> {
    let first_slow = first_slow(alike)?;
    let (mut slow, mut quick) = (Part::default(), Part::default());
    for (bucket, more) in alike {
        let part = if *bucket >= first_slow { &mut slow } else { &mut quick };
        part.add(more);
    }
    let mut ways: Vec<u32> = slow.paths.keys().chain(quick.paths.keys()).copied().collect();
    ways.sort_unstable();
    ways.dedup();
    let mut differences: Vec<PathDifference> = ways
        .into_iter()
        .map(|way| {
            let of = |part: &Part| part.paths.get(&way).copied().unwrap_or_default();
            PathDifference { path: paths.methods(way), slow: of(&slow), quick: of(&quick) }
        })
        .collect();
    let more = |difference: &PathDifference| {
        mean(difference.slow, slow.group.invocations) - mean(difference.quick, quick.group.invocations)
    };
    differences.sort_by(|a, b| more(b).abs().total_cmp(&more(a).abs()).then_with(|| a.path.cmp(&b.path)));
    Some(Difference { slow: slow.group, quick: quick.group, paths: differences })
}

/// The lowest bucket of slow ones.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn first_slow(alike: &BTreeMap<u32, Alike>) -> Option<u32> {
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

/// One side of the comparison.
#[derive(Default)]
struct Part {
    group: InvocationGroup,
    paths: HashMap<u32, PathSum>,
}

impl Part {
    fn add(&mut self, more: &Alike) {
        self.group = self.group.with(more.group);
        for (way, more) in &more.paths {
            self.paths.entry(*way).or_default().add(*more);
        }
    }
}
