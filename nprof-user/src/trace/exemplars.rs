//! Of the slow calls that somebody hears of one by one: the slowest of each method and power of four, for scrapes to show.

use std::collections::HashMap;

use crate::model::{Exemplar, VirtAddr};

/// The most that are kept of a JVM: a few for each of a hundred methods.
const MOST: usize = 512;

/// The exemplars of a JVM.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    kept: HashMap<(VirtAddr, u32), Kept>,
}

#[derive(Debug)]
struct Kept {
    exemplar: Exemplar,
    /// Whether a scrape has had it. It is shown until there is another, but stands back for any.
    is_shown: bool,
}

impl Exemplars {
    /// Takes in a call.
    pub(super) fn add(&mut self, exemplar: Exemplar) {
        let key = (exemplar.method.id, power_of_four(exemplar.time_ns));
        let stays = |kept: &Kept| {
            let is_same = kept.exemplar.method.is_same(&exemplar.method);
            !kept.is_shown && is_same && kept.exemplar.time_ns >= exemplar.time_ns
        };
        match self.kept.get(&key) {
            Some(kept) if stays(kept) => return,
            None if self.kept.len() >= MOST => self.forget_oldest(),
            _ => {}
        }
        self.kept.insert(key, Kept { exemplar, is_shown: false });
    }

    /// All of them, for a scrape.
    pub(super) fn show(&mut self) -> Vec<Exemplar> {
        self.kept.values_mut().for_each(|kept| kept.is_shown = true);
        self.kept.values().map(|kept| kept.exemplar.clone()).collect()
    }

    fn forget_oldest(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.exemplar.ended).map(|(key, _)| *key);
        oldest.map(|key| self.kept.remove(&key));
    }
}

/// The power of four nanoseconds that a time does not exceed: each bucket of a metric is made of some of these.
fn power_of_four(ns: u64) -> u32 {
    (u64::BITS - ns.saturating_sub(1).leading_zeros()).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::model::{Method, NativeCode};

    fn exemplar(id: u64, time_ns: u64, second: u64) -> Exemplar {
        let (class, name, signature) = ("a.A".into(), "m".into(), "()V".into());
        let method = Method { id: VirtAddr(id), class, name, signature, code: NativeCode::Unbound };
        let ended = Timestamp::UNIX_EPOCH + Duration::from_secs(second);
        Exemplar { method, time_ns, ended, thread: String::new(), caller: String::new() }
    }

    fn shown(exemplars: &mut Exemplars) -> Vec<(u64, u64)> {
        let mut shown: Vec<_> = exemplars.show().iter().map(|of| (of.method.id.0, of.time_ns)).collect();
        shown.sort_unstable();
        shown
    }

    /// Check that the slowest since the last scrape is kept, of each method and bucket; and that what was shown stays until another
    /// comes, a quicker one too.
    #[test]
    fn the_slowest_since_the_last_scrape() {
        let mut exemplars = Exemplars::default();
        for (id, time_ns) in [(1, 900), (1, 1_000), (1, 950), (1, 1_024), (1, 1_025), (2, 5)] {
            exemplars.add(exemplar(id, time_ns, 0));
        }
        assert_eq!(shown(&mut exemplars), [(1, 1_024), (1, 1_025), (2, 5)]);
        assert_eq!(shown(&mut exemplars), [(1, 1_024), (1, 1_025), (2, 5)]);
        exemplars.add(exemplar(1, 700, 1));
        // Bound since, it is the same method.
        let mut quicker = exemplar(1, 650, 1);
        quicker.method.code = NativeCode::Bound(VirtAddr(0x1000));
        exemplars.add(quicker);
        exemplars.add(exemplar(1, 600, 1));
        assert_eq!(shown(&mut exemplars), [(1, 700), (1, 1_025), (2, 5)]);
    }

    /// Check that there is an end to them, and that the oldest go.
    #[test]
    fn are_bounded() {
        let mut exemplars = Exemplars::default();
        (0..=MOST as u64).for_each(|id| exemplars.add(exemplar(id, 5, id)));
        let shown = shown(&mut exemplars);
        assert_eq!((shown.len(), shown[0]), (MOST, (1, 5)));
    }

    /// Check that a power of four is in its own bucket and what is longer in the next.
    #[test]
    fn powers_of_four() {
        assert_eq!([0, 1, 2, 4, 5, 16, 17, 256, 257, u64::MAX].map(power_of_four), [0, 0, 1, 1, 2, 2, 3, 4, 5, 32]);
    }
}
