//! The VM's list of class loaders, followed from look to look at the cost of what is new in it.
//!
//! HotSpot puts a new loader before all others and takes dead ones out anywhere. So a look walks from the front to the
//! first loader that is where it was, and compares one stretch of the rest with what it was. The stretch moves on from
//! look to look: most lists fit into one, and of a longer one what was taken out is noticed after a few looks. An
//! address that serves another loader meanwhile stands in the front then, and is known by that.

use std::collections::{HashMap, HashSet};

use super::known::Known;
use super::layout::Layout;
use super::memory::{MemoryError, Reader, RemoteMemory};
use super::share;
use super::walk::{self, Loader, MAX_LOADERS};
use crate::model::VirtAddr;

/// How many loaders of those that are known are compared at each look.
const STRETCH: usize = 2048;
/// How often in a row a look may lose its way before the whole list is walked again.
const MAX_LOST: u8 = 2;

/// The list as it was at the last look.
#[derive(Debug)]
pub(super) struct Loaders {
    /// The oldest first, and null where one has gone.
    order: Vec<VirtAddr>,
    /// Where each of them is in `order`.
    places: HashMap<VirtAddr, usize>,
    /// Whether `order` is the whole list, down to the boot loader.
    is_whole: bool,
    /// The place at which the next stretch begins; it goes down from there.
    cursor: usize,
    lost: u8,
    stretch: usize,
}

/// What a look at the list brought.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The loaders that may have new classes, with the newest class of each.
    pub(super) loaders: Vec<Loader>,
    /// Those that are no longer in the list; the addresses of some may be others' by now, which are in `loaders`.
    pub(super) gone: Vec<VirtAddr>,
    /// The boot loader, if the VM has one by now.
    pub(super) boot: Option<VirtAddr>,
    /// Whether the list is known down to the boot loader.
    pub(super) complete: bool,
}

/// Where a walk from the front ended.
enum Front {
    /// At a loader that is where it was, in this place; before it stood these, newest first.
    Met { before: Vec<Loader>, place: usize },
    /// Nowhere: the list changed under the walk, or has nothing left of what it was.
    Lost,
}

impl Default for Loaders {
    fn default() -> Self {
        Self { order: Vec::new(), places: HashMap::new(), is_whole: false, cursor: 0, lost: 0, stretch: STRETCH }
    }
}

impl Loaders {
    /// Compares no more than `stretch` loaders at a look.
    #[cfg(test)]
    pub(super) fn set_stretch(&mut self, stretch: usize) {
        self.stretch = stretch;
    }

    /// Looks at the list once.
    pub(super) fn follow<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &Layout,
        known: &Known,
    ) -> Result<News, MemoryError> {
        if !self.is_whole || self.lost > MAX_LOST {
            return self.walk_all(reader, layout, known);
        }
        let lost = self.lost;
        let boot = walk::boot_loader(reader, layout)?;
        let mut news = News { boot, complete: true, ..News::default() };
        match self.walk_front(reader, layout, known, boot)? {
            Front::Met { before, place } => self.take_front(before, place, &mut news),
            Front::Lost => self.lost += 1,
        }
        let is_round = self.compare(reader, layout, &mut news)?;
        if is_round && self.lost == lost {
            self.lost = 0;
        }
        read_open(reader, layout, known, &mut news)?;
        self.compact();
        Ok(news)
    }

    /// Has the whole list walked at the next look. Where its loaders were is remembered.
    pub(super) fn start_over(&mut self) {
        self.is_whole = false;
    }

    /// The loaders at the last look, the newest first.
    pub(super) fn addresses(&self) -> Vec<VirtAddr> {
        self.order.iter().rev().copied().filter(|addr| !addr.is_null()).collect()
    }

    /// Walks the list as a whole, as if for the first time.
    fn walk_all<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &Layout,
        known: &Known,
    ) -> Result<News, MemoryError> {
        let list = walk::loaders(reader, layout, &self.addresses())?;
        self.order = list.loaders.iter().rev().map(|loader| loader.addr).collect();
        self.places = self.order.iter().copied().zip(0..).collect();
        self.is_whole = list.complete;
        (self.cursor, self.lost) = (self.order.len(), 0);
        let gone = if list.complete {
            known.loaders().filter(|addr| !self.places.contains_key(addr)).collect()
        } else {
            Vec::new()
        };
        Ok(News { loaders: list.loaders, gone, boot: list.boot, complete: list.complete })
    }

    /// Walks from the newest loader to the first that is where it was.
    fn walk_front<M: RemoteMemory>(
        &self,
        reader: &mut Reader<M>,
        layout: &Layout,
        known: &Known,
        boot: Option<VirtAddr>,
    ) -> Result<Front, MemoryError> {
        let mut before = Vec::new();
        let mut visited = HashSet::new();
        let mut addr = reader.pointer(layout.first_loader)?;
        while visited.len() < MAX_LOADERS && visited.insert(addr) {
            let Some([next, newest]) = reader.numbers(walk::links(layout, addr))? else { break };
            let loader = Loader { addr, newest: VirtAddr(newest) };
            if let Some(&place) = self.places.get(&addr)
                && self.below(place).unwrap_or_default().0 == next
                && (boot == Some(addr) || is_same(reader, layout, known, loader)?)
            {
                return Ok(Front::Met { before, place });
            }
            reader.take(share::LOADER)?;
            before.push(loader);
            addr = VirtAddr(next);
        }
        Ok(Front::Lost)
    }

    /// Puts what stood `before` the loader in `place` there, instead of what was there.
    fn take_front(&mut self, before: Vec<Loader>, place: usize, news: &mut News) {
        let listed: HashSet<VirtAddr> = before.iter().map(|loader| loader.addr).collect();
        for addr in self.order.drain(place + 1..).filter(|addr| !addr.is_null() && !listed.contains(addr)) {
            self.places.remove(&addr);
            news.gone.push(addr);
        }
        for loader in before.iter().rev() {
            let former = self.places.insert(loader.addr, self.order.len());
            if let Some(former) = former.filter(|&former| former <= place) {
                // It has died behind, and its memory is another's now.
                self.order[former] = VirtAddr::default();
                news.gone.push(loader.addr);
            }
            self.order.push(loader.addr);
        }
        // The walk has been along all that stands before it.
        self.cursor = self.cursor.min(place);
        news.loaders = before;
    }

    /// Follows the links of one stretch and takes out what they pass over. Returns whether that was the last stretch.
    fn compare<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &Layout,
        news: &mut News,
    ) -> Result<bool, MemoryError> {
        let top = self.order.len().saturating_sub(1);
        let live = self.order[..=self.cursor.min(top)].iter().rev().filter(|addr| !addr.is_null());
        let stretch: Vec<VirtAddr> = live.take(self.stretch).copied().collect();
        let read = reader.numbers_of(&stretch, |&addr| walk::links(layout, addr))?;
        let read: HashMap<VirtAddr, Option<[u64; 2]>> = stretch.iter().copied().zip(read).collect();
        let mut next = stretch.first().copied();
        while let Some((addr, links)) = next.and_then(|addr| Some((addr, read.get(&addr)?))) {
            let place = self.places.get(&addr).copied().unwrap_or_default();
            let Some((to, newest)) = links.and_then(|[next, newest]| Some((self.next_place(next, place)?, newest)))
            else {
                // This one is dead itself, which the link of the one before it will show.
                (self.cursor, self.lost) = (top, self.lost + 1);
                return Ok(false);
            };
            news.loaders.push(Loader { addr, newest: VirtAddr(newest) });
            self.take_out(to.map_or(0, |to| to + 1)..place, news);
            self.cursor = to.unwrap_or(top);
            next = to.map(|to| self.order[to]);
        }
        Ok(next.is_none())
    }

    /// Where the loader is that follows the one in `place`: `Some(None)` after the last one, `None` if the link leads to
    /// where no loader is or was behind that place.
    fn next_place(&self, next: u64, place: usize) -> Option<Option<usize>> {
        if next == 0 {
            return (place == 0).then_some(None);
        }
        self.places.get(&VirtAddr(next)).copied().filter(|&to| to < place).map(Some)
    }

    fn take_out(&mut self, places: std::ops::Range<usize>, news: &mut News) {
        for addr in &mut self.order[places] {
            if !addr.is_null() {
                self.places.remove(addr);
                news.gone.push(std::mem::take(addr));
            }
        }
    }

    /// The loader that follows the one in `place`.
    fn below(&self, place: usize) -> Option<VirtAddr> {
        self.order[..place].iter().rev().copied().find(|addr| !addr.is_null())
    }

    /// Closes the gaps once they are the most.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.places.len() {
            self.order.retain(|addr| !addr.is_null());
            self.places = self.order.iter().copied().zip(0..).collect();
            self.cursor = self.order.len();
        }
    }
}

/// Whether the loader's newest class is the one that it was.
fn is_same<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    known: &Known,
    loader: Loader,
) -> Result<bool, MemoryError> {
    let mark = known.marks(loader.addr).first().copied();
    let same = walk::unchanged(reader, layout, &[(loader, mark)])?;
    Ok(mark.is_some() && same.first() == Some(&true))
}

/// Adds the loaders that may get classes at any time and that have not been looked at yet.
fn read_open<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    known: &Known,
    news: &mut News,
) -> Result<(), MemoryError> {
    let taken: HashSet<VirtAddr> =
        news.loaders.iter().map(|loader| loader.addr).chain(news.gone.iter().copied()).collect();
    let open: Vec<VirtAddr> = known.open_loaders().filter(|addr| !taken.contains(addr)).collect();
    let newest = reader.numbers_of(&open, |&addr| [walk::newest(layout, addr)])?;
    let read = open.iter().zip(newest).filter_map(|(&addr, newest)| Some((addr, newest?)));
    news.loaders.extend(read.map(|(addr, [newest])| Loader { addr, newest: VirtAddr(newest) }));
    Ok(())
}
