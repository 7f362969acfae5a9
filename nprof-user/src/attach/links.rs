//! The links of one target's probes of one kind, on entries or on returns, and how a probe is taken out of one.

use std::collections::HashSet;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::Error;
use super::gentle::Gentle;
use super::sites::{Outcome, link_all};
use crate::model::{Library, LibraryId, Pid, Probe};
use crate::sys::probe_link::ProbeLink;

/// How many links are closed at the same time, each by a thread, for all targets together.
const CLOSED_TOGETHER: usize = 64;
/// A target's own few are urgent: they do not wait for those of others.
const FEW: usize = 2;

/// How many more may be closed now.
static ROOM: (Mutex<usize>, Condvar) = (Mutex::new(CLOSED_TOGETHER), Condvar::new());

/// A site, and the index of its probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedSite {
    pub index: u32,
    pub offset: u64,
    /// How far behind the function's entry that is.
    pub distance: u32,
}

impl From<&Probe> for IndexedSite {
    fn from(probe: &Probe) -> Self {
        Self { index: probe.index, offset: probe.site.offset.0, distance: probe.site.distance() }
    }
}

/// A link, and what it holds.
#[derive(Debug)]
struct Group<L> {
    library: LibraryId,
    sites: Vec<IndexedSite>,
    link: L,
}

/// Links of one kind.
#[derive(Debug)]
pub(super) struct Links<L = ProbeLink> {
    groups: Vec<Group<L>>,
}

impl<L> Default for Links<L> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

/// Makes a link for sites of a library.
pub(super) type Link<'a, L = ProbeLink> = dyn FnMut(&Library, &[IndexedSite]) -> io::Result<L> + 'a;

/// Links that are to be closed: their other sites have been linked again.
#[derive(Debug)]
pub(super) struct Replaced<L = ProbeLink> {
    pub links: Vec<L>,
    /// The sites that they held and that have another link now.
    pub kept: Vec<(LibraryId, Vec<IndexedSite>)>,
    /// Indices that no link holds once these are closed.
    pub dropped: Vec<u32>,
    /// Indices that could not be taken out.
    pub stuck: Vec<u32>,
}

impl<L> Replaced<L> {
    fn nothing() -> Self {
        Self { links: Vec::new(), kept: Vec::new(), dropped: Vec::new(), stuck: Vec::new() }
    }

    /// The indices of the sites that have another link now.
    pub(super) fn kept_indices(&self) -> Vec<u32> {
        self.kept.iter().flat_map(|(_, sites)| sites).map(|site| site.index).collect()
    }
}

impl<L> Links<L> {
    /// Links sites of a library, by as few links as it takes.
    ///
    /// # Errors
    /// What has nothing to do with the code at the sites, such as missing permission.
    pub(super) fn add(
        &mut self,
        (id, library): (LibraryId, &Library),
        sites: &[IndexedSite],
        link: &mut Link<'_, L>,
    ) -> Result<Outcome<IndexedSite>, Error> {
        let mut linked = Vec::new();
        let outcome = link_all(sites, &mut |batch: &[IndexedSite]| {
            linked.push((link(library, batch)?, batch.to_vec()));
            Ok(())
        });
        let outcome = outcome.map_err(|source| Error::Library { library: library.path.clone(), source })?;
        self.groups.extend(linked.into_iter().map(|(link, sites)| Group { library: id, sites, link }));
        Ok(outcome)
    }

    /// Gives the sites that share a link with one of `unwanted` a link without it. The old links are still open: both
    /// hold the sites until the caller closes what is returned.
    pub(super) fn replace(&mut self, libraries: &[Library], unwanted: &[u32], link: &mut Link<'_, L>) -> Replaced<L> {
        let mut replaced = Replaced::nothing();
        let is_unwanted = |site: &IndexedSite| unwanted.contains(&site.index);
        let (old, untouched): (Vec<_>, Vec<_>) =
            self.groups.drain(..).partition(|group| group.sites.iter().any(is_unwanted));
        self.groups = untouched;
        for group in old {
            let (dropped, kept): (Vec<IndexedSite>, Vec<_>) = group.sites.iter().partition(|site| is_unwanted(site));
            let dropped = dropped.into_iter().map(|site| site.index);
            match relink(libraries, group.library, &kept, link) {
                Ok(new) => {
                    replaced.dropped.extend(dropped);
                    replaced.links.push(group.link);
                    if let Some(link) = new {
                        replaced.kept.push((group.library, kept.clone()));
                        self.groups.push(Group { library: group.library, sites: kept, link });
                    }
                }
                Err(error) => {
                    let library = libraries.get(group.library.0).map(Library::name).unwrap_or_default();
                    warn_unless_ended(&format!("{library}: probes cannot be taken away"), &error);
                    replaced.stuck.extend(dropped);
                    self.groups.push(group);
                }
            }
        }
        replaced
    }

    /// Whether a link holds this site and no other.
    pub(super) fn is_single(&self, index: u32) -> bool {
        self.single(index).is_some()
    }

    /// The link that holds this site and no other, which this has no more.
    pub(super) fn take_single(&mut self, index: u32) -> Option<L> {
        let place = self.single(index)?;
        Some(self.groups.swap_remove(place).link)
    }

    fn single(&self, index: u32) -> Option<usize> {
        self.groups.iter().position(|group| matches!(group.sites[..], [site] if site.index == index))
    }

    /// All links.
    pub(super) fn links(&self) -> impl Iterator<Item = &L> {
        self.groups.iter().map(|group| &group.link)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All links, which this has no more.
    pub(super) fn take(&mut self) -> impl Iterator<Item = L> {
        self.groups.drain(..).map(|group| group.link)
    }

    /// The indices of all sites.
    fn indices(&self) -> HashSet<u32> {
        self.groups.iter().flat_map(|group| &group.sites).map(|site| site.index).collect()
    }
}

/// Says what went wrong with a target; of one that has ended it is no news.
pub(super) fn warn_unless_ended(what: &str, error: &io::Error) {
    let is_gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
    if is_gone {
        tracing::debug!("{what}: {error}");
    } else {
        tracing::warn!("{what}: {error}");
    }
}

/// A link for the sites of a library; none for no site.
fn relink<L>(
    libraries: &[Library],
    library: LibraryId,
    sites: &[IndexedSite],
    link: &mut Link<'_, L>,
) -> io::Result<Option<L>> {
    if sites.is_empty() {
        return Ok(None);
    }
    let library = libraries.get(library.0).ok_or(io::ErrorKind::InvalidInput)?;
    link(library, sites).map(Some)
}

/// Closes links. The kernel waits for running programs at the close of each: together that takes no longer than for one.
pub(super) fn close<L: Send>(links: Vec<L>) {
    let is_urgent = links.len() <= FEW;
    thread::scope(|scope| {
        for link in links {
            let room = (!is_urgent).then(Room::take);
            // Where there can be no thread it is closed here.
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, move || drop((link, room))) {
                tracing::debug!("no thread to close a link by: {error}");
            }
        }
    });
}

/// Closes all links of a target that goes on, one after the other, with pauses ([`Gentle`]). An entry goes before its return, so that calls which have begun are ended; nothing is put back for
/// the first of the two.
pub(super) fn close_gently<L: Send>(pid: Pid, entries: &mut Links<L>, returns: &mut Links<L>) {
    let with_return = returns.indices();
    let (first, alone): (Vec<Group<L>>, Vec<_>) =
        entries.groups.drain(..).partition(|group| group.sites.iter().all(|site| with_return.contains(&site.index)));
    close(first.into_iter().map(|group| group.link).collect());
    let last = returns.groups.drain(..).chain(alone).map(|group| (group.link, group.sites.len()));
    let last: Vec<(L, usize)> = last.collect();
    let mut gentle = Gentle::begin(pid, last.iter().map(|(_, sites)| sites).sum());
    thread::scope(|scope| {
        for (link, sites) in last {
            gentle.wait_for(sites);
            // The kernel waits for running programs, too, which need not be waited for before the next.
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, move || drop(link)) {
                tracing::debug!("no thread to close a link by: {error}");
            }
        }
    });
}

/// Room for one more thread that closes a link.
struct Room;

impl Room {
    /// Waits until there is some.
    fn take() -> Self {
        let (room, is_given) = &ROOM;
        let left = room.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = is_given.wait_while(left, |left| *left == 0).unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        Self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let (room, is_given) = &ROOM;
        *room.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        is_given.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A link that says when it is closed.
    struct Noted(&'static str, Sender<&'static str>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.send(self.0).ok();
        }
    }

    fn links<const N: usize>(sender: &Sender<&'static str>, groups: [(&'static str, &[u32]); N]) -> Links<Noted> {
        let site = |&index: &u32| IndexedSite { index, offset: u64::from(index), distance: 0 };
        let group = |(name, indices): (&'static str, &[u32])| Group {
            library: LibraryId(0),
            sites: indices.iter().map(site).collect(),
            link: Noted(name, sender.clone()),
        };
        Links { groups: groups.map(group).into() }
    }

    /// Check that entries go before their returns, and then one link after the other.
    #[test]
    fn entries_go_first() {
        let (sender, receiver) = channel();
        let mut entries = links(&sender, [("counted", &[3]), ("entry", &[1, 2])]);
        let mut returns = links(&sender, [("return 1", &[1]), ("return 2", &[2])]);
        close_gently(Pid(std::process::id()), &mut entries, &mut returns);
        let closed: Vec<&str> = receiver.try_iter().collect();
        assert_eq!(closed.len(), 4);
        assert_eq!(closed[0], "entry");
        assert!(entries.groups.is_empty() && returns.groups.is_empty());
    }

    /// Check that no more have room at a time than there is, and that all get it.
    #[test]
    fn room_is_bounded() {
        let (inside, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * CLOSED_TOGETHER {
                scope.spawn(|| {
                    let _room = Room::take();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * CLOSED_TOGETHER);
        assert!((1..=CLOSED_TOGETHER).contains(&most.into_inner()));
    }
}
