//! One library file: which members want which of its sites, and the groups of sites that shared links hold. No kernel here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::Lane;

use crate::model::Pid;
use crate::sys::probe_link::ProbeLink;

/// A link is worth sharing from so many members on.
const WORTH: usize = 2;
/// How long a site is not shared again that had to leave a shared link.
const COOLING: Duration = Duration::from_secs(60);
/// How long a file's next links wait after its last ones: a JVM that is young adds sites all the time.
const PAUSE: Duration = Duration::from_secs(2);

/// How long it has no shared links after somebody else was found to pay for them; twice as long each time that it happens again soon, up to
/// the longest: where programs come and go all the time that are not traced, each would pay again.
const BACK_OFF: Duration = Duration::from_secs(30);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(600);
/// What happens within so many of the last such times happens again soon.
const SOON: u32 = 4;

/// What members must have in common: who has selected other methods would pay for what it does not want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms(pub u64);

/// What a member wants of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::attach) enum Wish {
    /// All its probes: a shared link may hold them.
    Shared,
    /// The same, by a link for this site alone: it may soon have to go, and the others are not to go with it.
    Single,
    /// Less than that: a shared link would make it pay for more.
    Less,
}

/// What a member wants of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::attach) struct Wishes {
    /// `None` of one that shares nothing.
    pub terms: Option<Terms>,
    /// By offset: how far behind the function's entry the site is, and what is wanted there.
    pub sites: BTreeMap<u64, (u32, Wish)>,
}

/// A site in a shared link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::attach) struct Spot {
    /// What its cookie says instead of a record.
    pub number: u32,
    /// How far behind the function's entry it is.
    pub distance: u32,
}

/// Spots by offset.
pub(in crate::attach) type Spots = BTreeMap<u64, Spot>;

/// The sites of a shared link, or two: one on entries, and one on returns if calls are timed.
#[derive(Debug)]
pub(super) struct Group {
    pub id: u64,
    pub lane: Lane,
    pub spots: Arc<Spots>,
    /// Before the link was asked for: what was attached by then is older.
    pub made: Instant,
    /// Its users are to leave it; then it goes.
    pub is_leaving: bool,
    /// The members whose hits it answers, or did a moment ago.
    pub users: BTreeSet<Pid>,
    /// Taken from here when they are being closed.
    pub links: Vec<ProbeLink>,
    pub is_closing: bool,
}

impl Group {
    /// Whether nobody needs it.
    pub(super) fn is_left(&self) -> bool {
        self.is_leaving && self.users.is_empty()
    }
}

/// Sites that are to get a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub lane: Lane,
    /// By offset, with the distance from the entry.
    pub sites: BTreeMap<u64, u32>,
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub wishes: BTreeMap<Pid, Wishes>,
    pub groups: Vec<Group>,
    /// The numbers of its sites.
    pub numbers: BTreeMap<u64, u32>,
    /// Sites that nothing proves to be a function's.
    pub unproven: BTreeSet<u64>,
    /// Somebody is asking the kernel for its links.
    pub is_forming: bool,
    cooling: BTreeMap<u64, Instant>,
    /// When its next links may be made.
    next: Option<Instant>,
    /// When somebody else was last found to pay, and how long it had no links then.
    refused: Option<(Instant, Duration)>,
}

impl File {
    /// Takes in what a member wants. Returns whether a group has to go for it.
    pub(super) fn declare(&mut self, pid: Pid, wishes: Wishes, now: Instant) -> bool {
        self.wishes.insert(pid, wishes);
        self.dismiss_unwanted(now)
    }

    /// Groups have to go that hold a site of which a member wants less. Returns whether there are any.
    pub(super) fn dismiss_unwanted(&mut self, now: Instant) -> bool {
        let (is_uniform, mut has_to_go) = (self.is_uniform(), false);
        for group in self.groups.iter_mut().filter(|group| !group.is_leaving) {
            let spots = group.spots.iter().filter(|&(at, spot)| is_unwanted(&self.wishes, *at, spot.distance));
            let unwanted: Vec<u64> = spots.map(|(at, _)| *at).collect();
            if !is_uniform || !unwanted.is_empty() {
                (group.is_leaving, has_to_go) = (true, true);
            }
            self.cooling.extend(unwanted.into_iter().map(|at| (at, now + COOLING)));
        }
        has_to_go
    }

    /// Whether a member may use what others of the file use.
    pub(super) fn suits(&self, terms: Option<Terms>) -> bool {
        terms.is_some() && self.wishes.values().all(|wishes| wishes.terms == terms)
    }

    /// All groups have to go, and there are no others for a while. Returns whether there were any.
    pub(super) fn refuse(&mut self, now: Instant) -> bool {
        let before = self.refused.filter(|(at, length)| now.saturating_duration_since(*at) < *length * SOON);
        let is_known = before.is_some_and(|(at, length)| now < at + length);
        if !is_known {
            let length = before.map_or(BACK_OFF, |(_, length)| (length * 2).min(LONGEST_BACK_OFF));
            (self.refused, self.next) = (Some((now, length)), Some(now + length));
        }
        let groups = self.groups.iter_mut().filter(|group| !group.is_leaving);
        groups.map(|group| group.is_leaving = true).count() > 0
    }

    /// There is a pause after links that were made, or were not.
    pub(super) fn pause(&mut self, now: Instant) {
        self.next = Some(now + PAUSE);
    }

    /// When links may be made, if any are wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        let wanted = self.wanted();
        let first = wanted.keys().map(|at| self.cooling.get(at)).min()?;
        Some(self.next.max(first.copied()).unwrap_or_else(Instant::now)).filter(|_| !self.is_forming)
    }

    /// The links that are to be made now. No two that hold a site at the same time are in one lane.
    pub(super) fn plan(&self, now: Instant) -> Vec<Planned> {
        if self.is_forming || self.next.is_some_and(|next| next > now) {
            return Vec::new();
        }
        let (mut single, mut together) = (Vec::new(), BTreeMap::<Lane, BTreeMap<u64, u32>>::new());
        for (at, (distance, is_single)) in self.wanted() {
            let is_held = |lane| self.groups.iter().any(|group| group.lane == lane && group.spots.contains_key(&at));
            let is_cooling = self.cooling.get(&at).is_some_and(|until| *until > now);
            let Some(lane) = Lane::SHARED.into_iter().find(|lane| !is_cooling && !is_held(*lane)) else { continue };
            if is_single {
                single.push(Planned { lane, sites: BTreeMap::from([(at, distance)]) });
            } else {
                together.entry(lane).or_default().insert(at, distance);
            }
        }
        single.extend(together.into_iter().map(|(lane, sites)| Planned { lane, sites }));
        single
    }

    /// The sites that enough members want shared and nobody wants less of, and that no group holds which stays: how far each is
    /// from its entry, and whether it is to have its own link.
    fn wanted(&self) -> BTreeMap<u64, (u32, bool)> {
        let mut counted: BTreeMap<u64, (u32, usize, bool)> = BTreeMap::new();
        if !self.is_uniform() {
            return BTreeMap::new();
        }
        for (at, (distance, wish)) in self.wishes.values().flat_map(|wishes| &wishes.sites) {
            let (_, members, is_single) = counted.entry(*at).or_insert((*distance, 0, false));
            *members += 1;
            *is_single |= *wish == Wish::Single;
        }
        let is_held = |at: &u64| self.groups.iter().any(|group| !group.is_leaving && group.spots.contains_key(at));
        let is_wanted = |at: &u64, distance: u32, members: usize| {
            members >= WORTH && !self.unproven.contains(at) && !is_held(at) && !is_unwanted(&self.wishes, *at, distance)
        };
        let wanted = counted.into_iter().filter(|(at, (distance, members, _))| is_wanted(at, *distance, *members));
        wanted.map(|(at, (distance, _, is_single))| (at, (distance, is_single))).collect()
    }

    fn is_uniform(&self) -> bool {
        let first = self.wishes.values().next().and_then(|wishes| wishes.terms);
        first.is_some() && self.suits(first)
    }
}

/// Whether a member wants less at a site, or means another function.
fn is_unwanted(wishes: &BTreeMap<Pid, Wishes>, at: u64, distance: u32) -> bool {
    let mut wished = wishes.values().filter_map(|wishes| wishes.sites.get(&at));
    wished.any(|&(other, wish)| wish == Wish::Less || other != distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Option<Terms> = Some(Terms(1));

    fn wishes(sites: &[(u64, Wish)]) -> Wishes {
        Wishes { terms: TERMS, sites: sites.iter().map(|(at, wish)| (*at, (0, *wish))).collect() }
    }

    /// Members that want these sites shared.
    fn wanted_by(members: u32, sites: &[u64], now: Instant) -> File {
        let mut file = File::default();
        let sites: Vec<(u64, Wish)> = sites.iter().map(|at| (*at, Wish::Shared)).collect();
        for pid in 0..members {
            file.declare(Pid(pid), wishes(&sites), now);
        }
        file
    }

    /// Has a link made of everything that is planned.
    fn make(file: &mut File, now: Instant) -> Vec<Planned> {
        let planned = file.plan(now);
        for Planned { lane, sites } in planned.clone() {
            let spot = |(at, distance)| (at, Spot { number: 0, distance });
            let (id, spots) = (file.groups.len() as u64, Arc::new(sites.into_iter().map(spot).collect()));
            let (users, links) = (BTreeSet::new(), Vec::new());
            let group = Group { id, lane, spots, made: now, is_leaving: false, users, links, is_closing: false };
            file.groups.push(group);
        }
        planned
    }

    fn planned(lane: Lane, sites: &[u64]) -> Planned {
        Planned { lane, sites: sites.iter().map(|at| (*at, 0)).collect() }
    }

    /// Check that what two members want is shared, once, and what one wants is not.
    #[test]
    fn worth_sharing() {
        let now = Instant::now();
        assert_eq!(wanted_by(1, &[10, 20], now).plan(now), []);
        let mut file = wanted_by(2, &[10, 20], now);
        file.declare(Pid(7), wishes(&[(30, Wish::Shared)]), now);
        assert!(file.due().is_some());
        assert_eq!(make(&mut file, now), [planned(Lane::SharedA, &[10, 20])]);
        assert_eq!((make(&mut file, now), file.due()), (vec![], None));
    }

    /// Check that nothing is shared by members with other terms, or none, and that links go when such a one comes.
    #[test]
    fn terms_are_the_same() {
        let now = Instant::now();
        for terms in [None, Some(Terms(2))] {
            let mut file = wanted_by(2, &[10], now);
            make(&mut file, now);
            assert!(file.suits(TERMS) && !file.suits(terms));
            assert!(file.declare(Pid(7), Wishes { terms, ..wishes(&[]) }, now));
            assert!(file.groups[0].is_leaving && file.plan(now + COOLING).is_empty());
        }
    }

    /// Check that a link goes in which a member wants less, that the other sites get one in the other lane at once, and the site
    /// itself none before it has cooled.
    #[test]
    fn a_site_leaves() {
        let now = Instant::now();
        let mut file = wanted_by(3, &[10, 20], now);
        make(&mut file, now);
        assert!(!file.declare(Pid(0), wishes(&[(10, Wish::Shared), (20, Wish::Shared)]), now));
        assert!(file.declare(Pid(0), wishes(&[(10, Wish::Shared), (20, Wish::Less)]), now));
        assert_eq!(make(&mut file, now), [planned(Lane::SharedB, &[10])]);
        assert!(!file.declare(Pid(0), wishes(&[(10, Wish::Shared), (20, Wish::Shared)]), now));
        assert_eq!(file.plan(now), []);
        assert_eq!(file.due(), Some(now + COOLING));
        // Its first lane is not free as long as the old link is there.
        assert_eq!(file.plan(now + COOLING), [planned(Lane::SharedB, &[20])]);
        file.groups.remove(0);
        assert_eq!(file.plan(now + COOLING), [planned(Lane::SharedA, &[20])]);
    }

    /// Check that no third link is made for a site of which two have to go.
    #[test]
    fn no_lane_is_free() {
        let now = Instant::now();
        let mut file = wanted_by(2, &[10], now);
        for lane in Lane::SHARED {
            assert_eq!(make(&mut file, now), [planned(lane, &[10])]);
            file.groups.iter_mut().for_each(|group| group.is_leaving = true);
        }
        assert_eq!(file.plan(now), []);
    }

    /// Check that a function which may soon have to go gets a link of its own.
    #[test]
    fn single_links() {
        let now = Instant::now();
        let mut file = wanted_by(2, &[10, 20, 30], now);
        let single = [(10, Wish::Shared), (20, Wish::Single), (30, Wish::Shared)];
        file.declare(Pid(1), wishes(&single), now);
        assert_eq!(file.plan(now), [planned(Lane::SharedA, &[20]), planned(Lane::SharedA, &[10, 30])]);
    }

    /// Check that somebody else who pays ends all links of a file, for a while.
    #[test]
    fn refused_for_a_while() {
        let now = Instant::now();
        let mut file = wanted_by(2, &[10], now);
        make(&mut file, now);
        assert!(file.refuse(now) && !file.refuse(now + PAUSE));
        assert_eq!((file.plan(now), file.due()), (vec![], Some(now + BACK_OFF)));
        assert_eq!(file.plan(now + BACK_OFF).len(), 1);
    }

    /// Check that this while is the longer the more often that happens, up to a limit, and short again when it has not for long.
    #[test]
    fn refused_for_longer() {
        let (begin, mut file) = (Instant::now(), File::default());
        let mut now = begin;
        let mut refuse = |now: Instant| {
            file.refuse(now);
            file.next.unwrap() - now
        };
        let lengths: Vec<Duration> = (0..7)
            .map(|_| {
                let length = refuse(now);
                now += length;
                length
            })
            .collect();
        assert_eq!(lengths, [30, 60, 120, 240, 480, 600, 600].map(Duration::from_secs));
        assert_eq!(refuse(now + LONGEST_BACK_OFF * SOON), BACK_OFF);
    }

    /// Check that a function which another member takes to begin elsewhere is not shared.
    #[test]
    fn another_function() {
        let now = Instant::now();
        let mut file = wanted_by(2, &[10], now);
        file.declare(Pid(7), Wishes { terms: TERMS, sites: BTreeMap::from([(10, (4, Wish::Shared))]) }, now);
        assert_eq!(file.plan(now), []);
    }
}
