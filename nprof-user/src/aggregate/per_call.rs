//! How many bytes single calls moved, of calls that were recorded in two places.

use nprof_common::{Consumed, Counter};

use crate::model::BytesPerCall;

/// What is known of the calls of one of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub consumed: Option<&'a Consumed>,
    pub bytes: Option<&'a [BytesPerCall]>,
}

impl Recorded<'_> {
    /// Whether all calls are known that have consumed any. Where there was no room for some there is no histogram.
    fn is_whole(self, counter: Counter) -> bool {
        let is_known = self.bytes.iter().copied().flatten().any(|of| of.counter == counter);
        is_known || self.consumed.is_some_and(|consumed| consumed.total[counter as usize] == 0)
    }
}

/// The bytes of the calls of both; `None` if they are not known of one of them, and without those that one of them had no room for.
pub(super) fn sum(one: Recorded<'_>, other: Recorded<'_>) -> Option<Vec<BytesPerCall>> {
    let mut both: Vec<BytesPerCall> = one.bytes?.to_vec();
    for more in other.bytes? {
        match both.iter_mut().find(|of| of.counter == more.counter) {
            Some(sum) => sum.add(more),
            None => both.push(more.clone()),
        }
    }
    both.retain(|of| one.is_whole(of.counter) && other.is_whole(of.counter));
    Some(both)
}
