//! Walks the VM's lists without its locks: the loaders, and the classes of each.
//!
//! HotSpot pushes both at the head and publishes them with a release store, so a list that is alive can be walked at
//! any time. A list that dies under the walk shows: its memory is reused, and then a class names another loader, a
//! pointer leads nowhere, or a cycle appears. The last loader of the list is the boot loader, always; a walk that does
//! not end there has lost its way.

use std::collections::{HashMap, HashSet};

use super::layout::Layout;
use super::memory::{MemoryError, Reader, RemoteMemory, at, is_plausible};
use super::share;
use crate::model::VirtAddr;

/// More class loaders than a JVM can have classes for.
pub(super) const MAX_LOADERS: usize = 1 << 20;
/// Loaders whose newest classes are read together.
pub(super) const LOADERS_AT_ONCE: usize = 4096;
/// So many classes are not made for a moment.
const LASTING_CLASSES: usize = 16;
/// A list that dies under the walk is walked again, over no more than so many links in all.
const LINKS: usize = 1 << 14;
/// More classes than the VM's own loader has.
const MAX_KLASSES: usize = 1 << 16;
/// The bits of a symbol's length, however wide the field is.
const MAX_SYMBOL: u64 = 0xffff;
/// `InstanceKlass::allocated`, the state before `loaded`: the fields are still being filled. 0 in every version.
const ALLOCATED: u64 = 0;

/// What one pass over the VM may read in all, so that hostile memory cannot make it endless.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) klasses: usize,
    pub(super) methods: usize,
    pub(super) name_bytes: usize,
    /// Whether something was left out because a limit was met.
    pub(super) exhausted: bool,
}

impl Budget {
    /// Far more than the largest programs need: a million classes, 16 million methods. `name_bytes` are left for the
    /// names of native methods.
    pub(super) fn new(name_bytes: usize) -> Self {
        Self { klasses: 1 << 20, methods: 1 << 24, name_bytes, exhausted: false }
    }

    /// Takes `amount` from the resource that `left` picks; `false` once there is not enough.
    pub(super) fn take(&mut self, left: impl Fn(&mut Self) -> &mut usize, amount: usize) -> bool {
        match left(self).checked_sub(amount) {
            Some(rest) => {
                *left(self) = rest;
                true
            }
            None => {
                self.exhausted = true;
                false
            }
        }
    }
}

/// A `ClassLoaderData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loader {
    pub(super) addr: VirtAddr,
    /// The class that it loaded last, or null.
    pub(super) newest: VirtAddr,
}

/// The loaders, newest first.
#[derive(Debug, Default)]
pub(super) struct LoaderList {
    pub(super) loaders: Vec<Loader>,
    /// The boot loader, if the VM has one by now.
    pub(super) boot: Option<VirtAddr>,
    /// Whether the walk ended at the boot loader.
    pub(super) complete: bool,
}

/// Walks the list of loaders. Those that are `expected` in it are read together beforehand: there can be thousands, and
/// a list read link by link costs a call each. What was read is followed just as if it had been read on the way.
pub(super) fn loaders<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    expected: &[VirtAddr],
) -> Result<LoaderList, MemoryError> {
    let boot = boot_loader(reader, layout)?;
    let mut list = LoaderList { boot, ..LoaderList::default() };
    let mut visited = HashSet::new();
    let read = reader.numbers_of(expected, |&addr| links(layout, addr))?;
    let read: HashMap<VirtAddr, [u64; 2]> =
        expected.iter().zip(read).filter_map(|(&addr, links)| Some((addr, links?))).collect();
    let mut addr = reader.pointer(layout.first_loader)?;
    while !addr.is_null() && list.loaders.len() < MAX_LOADERS && visited.insert(addr) {
        let read = match read.get(&addr) {
            Some(&read) => Some(read),
            None => reader.numbers(links(layout, addr))?,
        };
        let Some([next, newest]) = read else {
            return Ok(list);
        };
        reader.take(share::LOADER)?;
        list.loaders.push(Loader { addr, newest: VirtAddr(newest) });
        addr = VirtAddr(next);
    }
    let last = list.loaders.last().map(|loader| loader.addr);
    list.complete = addr.is_null() && boot.is_some() && last == boot;
    Ok(list)
}

/// What is read of a loader to walk on: the next one, and its newest class.
pub(super) fn links(layout: &Layout, loader: VirtAddr) -> [(VirtAddr, usize); 2] {
    [(at(loader, layout.loader.next), 8), newest(layout, loader)]
}

/// Where a loader has its newest class.
pub(super) fn newest(layout: &Layout, loader: VirtAddr) -> (VirtAddr, usize) {
    (at(loader, layout.loader.klasses), 8)
}

/// For each of `loaders`, whether it was made for a single hidden class: it has that one and never gets another, but for
/// arrays of it.
pub(super) fn are_for_one_class<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    loaders: &[VirtAddr],
) -> Result<Vec<bool>, MemoryError> {
    let Some(for_one_class) = layout.loader.for_one_class else {
        return Ok(vec![false; loaders.len()]);
    };
    let flags = reader.numbers_of(loaders, |&addr| [(at(addr, for_one_class), 1)])?;
    Ok(flags.into_iter().map(|flag| flag == Some([1])).collect())
}

/// The loader of `java.lang.Object`. That a loader has no Java object is not enough to know it: a collector clears that
/// of dead loaders too.
pub(super) fn boot_loader<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
) -> Result<Option<VirtAddr>, MemoryError> {
    let object = reader.pointer(layout.object_klass)?;
    let loader = reader.numbers([(at(object, layout.klass.loader), 8)])?;
    Ok(loader.map(|[addr]| VirtAddr(addr)).filter(|&addr| is_plausible(addr)))
}

/// The classes of the VM's own loader with these internal names, such as `java/lang/Thread`, each in the place of its name;
/// `None` for what is not loaded.
pub(crate) fn classes_of_boot_loader<M: RemoteMemory, const N: usize>(
    reader: &mut Reader<M>,
    layout: &Layout,
    names: [&str; N],
) -> Result<[Option<VirtAddr>; N], MemoryError> {
    let mut classes = [None; N];
    let Some(boot) = boot_loader(reader, layout)? else {
        return Ok(classes);
    };
    let mut next = reader.pointer(at(boot, layout.loader.klasses))?;
    for _ in 0..MAX_KLASSES {
        let Some(found) = klass(reader, layout, next)? else { break };
        if let Some(place) = place_of_name(reader, layout, found.name, &names)? {
            classes[place].get_or_insert(found.addr);
            if classes.iter().all(Option::is_some) {
                break;
            }
        }
        next = found.next;
    }
    Ok(classes)
}

/// Which of the names a symbol is. Its text is only read where its length is that of one.
fn place_of_name<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    symbol: VirtAddr,
    names: &[&str],
) -> Result<Option<usize>, MemoryError> {
    let length = (at(symbol, layout.symbol.length.offset), layout.symbol.length.width);
    let Some([length]) = reader.numbers([length])? else { return Ok(None) };
    let length = length & MAX_SYMBOL;
    if names.iter().all(|name| name.len() as u64 != length) {
        return Ok(None);
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    match reader.bytes(at(symbol, layout.symbol.body), &mut text) {
        Ok(()) => Ok(names.iter().position(|name| name.as_bytes() == text)),
        Err(MemoryError::Unreadable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The loaders that have many classes: usually they last as long as the program. Most of the others are made for one
/// hidden class, and go with it.
pub(crate) fn lasting_loaders<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
) -> Result<HashSet<VirtAddr>, MemoryError> {
    let (mut list, mut links) = (LoaderList::default(), 0);
    while !list.complete && links < LINKS {
        reader.forget();
        list = loaders(reader, layout, &[])?;
        links += 1 + list.loaders.len();
    }
    // The VM's own lasts, wherever the walk went.
    let mut lasting: HashSet<VirtAddr> = list.boot.into_iter().collect();
    for loaders in list.loaders.chunks(LOADERS_AT_ONCE) {
        let ahead = read_ahead(reader, layout, loaders.iter().map(|loader| loader.newest).collect())?;
        for loader in loaders {
            let (mut next, mut classes) = (loader.newest, 0);
            while classes < LASTING_CLASSES
                && let Some(found) = read_or_klass(reader, layout, &ahead, next)?
            {
                (next, classes) = (found.next, classes + 1);
            }
            if classes == LASTING_CLASSES {
                lasting.insert(loader.addr);
            }
        }
    }
    Ok(lasting)
}

/// What is read of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Klass {
    pub(super) addr: VirtAddr,
    pub(super) name: VirtAddr,
    /// The class loaded before it by the same loader.
    pub(super) next: VirtAddr,
    pub(super) loader: VirtAddr,
    /// Its `Array<Method*>`.
    pub(super) methods: VirtAddr,
    pub(super) kind: KlassKind,
}

impl Klass {
    /// What tells it from every other class: its loader and its own address.
    pub(super) fn key(&self) -> (VirtAddr, VirtAddr) {
        (self.loader, self.addr)
    }
}

/// What sort of class it is, as far as native methods go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KlassKind {
    /// An array: has no methods of its own.
    Array,
    /// Not complete yet: to be looked at again.
    Loading,
    /// A class or interface whose methods are in place.
    Loaded,
}

/// Reads classes together, and keeps those that are no arrays.
pub(super) fn read_ahead<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    klasses: Vec<VirtAddr>,
) -> Result<HashMap<VirtAddr, Klass>, MemoryError> {
    let read = reader.numbers_of(&klasses, |&addr| klass_fields(layout, addr))?;
    let read = klasses.into_iter().zip(read);
    Ok(read.filter_map(|(addr, fields)| Some((addr, decode_fields(layout, addr, fields?)))).collect())
}

fn read_or_klass<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    ahead: &HashMap<VirtAddr, Klass>,
    addr: VirtAddr,
) -> Result<Option<Klass>, MemoryError> {
    match ahead.get(&addr) {
        Some(&klass) => Ok(Some(klass)),
        None => klass(reader, layout, addr),
    }
}

/// Reads one class.
pub(super) fn klass<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    addr: VirtAddr,
) -> Result<Option<Klass>, MemoryError> {
    if let Some(fields) = reader.numbers(klass_fields(layout, addr))? {
        return Ok(Some(decode_fields(layout, addr, fields)));
    }
    // An array class is smaller than an `InstanceKlass` and may be the last thing that is mapped.
    let header = reader.numbers(header_fields(layout, addr))?;
    Ok(header.and_then(|[helper, name, next, loader]| {
        let array = kind(layout, helper, ALLOCATED) == KlassKind::Array;
        array.then(|| decode(addr, [name, next, loader, 0], KlassKind::Array))
    }))
}

fn klass_fields(layout: &Layout, addr: VirtAddr) -> [(VirtAddr, usize); 6] {
    let [helper, name, next, loader] = header_fields(layout, addr);
    let [methods, state] = instance_fields(layout, addr);
    [helper, name, next, loader, methods, state]
}

fn decode_fields(layout: &Layout, addr: VirtAddr, fields: [u64; 6]) -> Klass {
    let [helper, name, next, loader, methods, state] = fields;
    decode(addr, [name, next, loader, methods], kind(layout, helper, state))
}

fn header_fields(layout: &Layout, addr: VirtAddr) -> [(VirtAddr, usize); 4] {
    let klass = &layout.klass;
    [
        (at(addr, klass.layout_helper.offset), klass.layout_helper.width),
        (at(addr, klass.name), 8),
        (at(addr, klass.next_link), 8),
        (at(addr, klass.loader), 8),
    ]
}

fn instance_fields(layout: &Layout, addr: VirtAddr) -> [(VirtAddr, usize); 2] {
    [
        (at(addr, layout.klass.methods), 8),
        // An enumeration of less than ten values: its first byte tells them apart whatever its width.
        (at(addr, layout.klass.init_state), 1),
    ]
}

fn decode(addr: VirtAddr, words: [u64; 4], kind: KlassKind) -> Klass {
    let [name, next, loader, methods] = words.map(VirtAddr);
    Klass { addr, name, next, loader, methods, kind }
}

/// The layout helper is negative for arrays, positive for instances and 0 until it is known.
fn kind(layout: &Layout, layout_helper: u64, state: u64) -> KlassKind {
    let sign_bit = layout.klass.layout_helper.width * 8 - 1;
    if layout_helper >> sign_bit != 0 {
        KlassKind::Array
    } else if layout_helper == 0 || state == ALLOCATED {
        KlassKind::Loading
    } else {
        KlassKind::Loaded
    }
}

/// How to know a class again at which an earlier walk began: its address alone may have been reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) addr: VirtAddr,
    name: VirtAddr,
    next: VirtAddr,
}

impl Mark {
    pub(super) fn of(klass: &Klass) -> Self {
        Self { addr: klass.addr, name: klass.name, next: klass.next }
    }
}

/// For each loader, whether its newest class is still the marked one, so that nothing was loaded since.
pub(super) fn unchanged<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    loaders: &[(Loader, Option<Mark>)],
) -> Result<Vec<bool>, MemoryError> {
    let words = reader.numbers_of(loaders, |(loader, _)| {
        [(at(loader.newest, layout.klass.name), 8), (at(loader.newest, layout.klass.next_link), 8)]
    })?;
    let same = |((loader, mark), words): (&(Loader, Option<Mark>), Option<[u64; 2]>)| {
        let [name, next] = words?;
        let now = Mark { addr: loader.newest, name: VirtAddr(name), next: VirtAddr(next) };
        Some(*mark == Some(now))
    };
    Ok(loaders.iter().zip(words).map(|pair| same(pair).unwrap_or(false)).collect())
}

/// The classes of a loader, newest first, down to one that was marked.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) klasses: Vec<Klass>,
    pub(super) end: ChainEnd,
}

/// Where a chain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainEnd {
    /// At the mark with this index: what follows is known.
    Mark(usize),
    /// At the loader's first class.
    Bottom,
    /// At something that is no class of this loader.
    Broken,
}

/// Walks the classes of `loader` that are newer than `marks`; those in `ahead` have been read. `visited` are the classes seen in this pass, of all
/// loaders: no class has two.
pub(super) fn klasses<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    loader: Loader,
    marks: &[Mark],
    ahead: &HashMap<VirtAddr, Klass>,
    (visited, budget): (&mut HashSet<VirtAddr>, &mut Budget),
) -> Result<Chain, MemoryError> {
    let mut klasses = Vec::new();
    let mut addr = loader.newest;
    let end = loop {
        if addr.is_null() {
            break ChainEnd::Bottom;
        }
        if !visited.insert(addr) || !budget.take(|budget| &mut budget.klasses, 1) {
            break ChainEnd::Broken;
        }
        let found = read_or_klass(reader, layout, ahead, addr)?;
        let Some(klass) = found.filter(|klass| klass.loader == loader.addr) else {
            break ChainEnd::Broken;
        };
        let mark = Mark::of(&klass);
        if let Some(index) = marks.iter().position(|known| *known == mark) {
            break ChainEnd::Mark(index);
        }
        reader.take(share::KLASS)?;
        klasses.push(klass);
        addr = klass.next;
    };
    Ok(Chain { klasses, end })
}
