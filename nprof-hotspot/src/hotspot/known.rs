//! What is remembered of a VM between two looks at it: for each loader where its class list began, and for each class
//! with native methods what those held. Nothing outlives its loader, so it stays as small as what is loaded.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::exports::Exports;
use super::natives::{NATIVE_BYTES, Native, NativeClass};
use super::share;
use super::stub::{self, Stub};
use super::walk::{Chain, ChainEnd, Klass, KlassKind, MAX_LOADERS, Mark};
use crate::model::{Method, NativeCode, SharedStr, VirtAddr};

/// How many of a loader's newest classes mark where the list was left. One would do if classes whose loading
/// fails were not taken out again.
const MARKS: usize = 4;
/// How many classes may wait for a second look. Those being loaded at one moment are as many as threads.
const MAX_PENDING: usize = 1 << 14;
/// How often a class is looked at again that cannot be read whole.
const MAX_TRIES: u8 = 8;
/// The bytes of names and records that are kept at most for one VM: 250 times what a large program takes.
const MAX_BYTES: usize = 64 << 20;

/// All that is remembered.
#[derive(Debug, Default)]
pub(super) struct Known {
    loaders: HashMap<VirtAddr, KnownLoader>,
    /// The loaders that may get further classes.
    open: BTreeSet<VirtAddr>,
    /// Classes with native methods, by loader and address.
    classes: BTreeMap<(VirtAddr, VirtAddr), KnownClass>,
    /// Classes to be looked at again, by loader and address, with the number of times that this was in vain.
    pending: BTreeMap<(VirtAddr, VirtAddr), u8>,
}

/// There can be hundreds of thousands, most of them for one class: they are kept small.
#[derive(Debug, Default)]
struct KnownLoader {
    /// The newest classes of the last look, newest first.
    marks: Box<[Mark]>,
}

/// A class with native methods.
#[derive(Debug)]
pub(super) struct KnownClass {
    pub(super) klass: Klass,
    name: SharedStr,
    /// Whether it is a class of the boot loader.
    is_boot: bool,
    pub(super) natives: Box<[KnownNative]>,
}

/// A native method. There are a thousand in each JVM, traced or not: they are kept small.
#[derive(Debug)]
pub(super) struct KnownNative {
    /// Where the VM keeps it.
    pub(super) id: VirtAddr,
    name: SharedStr,
    signature: SharedStr,
    pub(super) const_method: VirtAddr,
    /// The word that holds its code, once that was seen.
    pub(super) word: Option<VirtAddr>,
    /// What was last reported of its code, if it was.
    reported: Option<NativeCode>,
}

impl KnownNative {
    fn new(native: Native) -> Self {
        let Native { method: id, const_method, name, signature, .. } = native;
        Self { id, name, signature, const_method, word: None, reported: None }
    }

    /// Whether the VM makes its code itself, if it is of this class of the boot loader.
    fn is_intrinsic(&self, class: &str) -> bool {
        stub::is_intrinsic(class, &self.name)
    }

    /// As it was last reported, if it was; its class has this name.
    fn reported_of(&self, class: &SharedStr) -> Option<Method> {
        let code = self.reported?;
        let (class, name, signature) = (class.clone(), self.name.clone(), self.signature.clone());
        Some(Method { id: self.id, class, name, signature, code })
    }
}

impl Known {
    /// Notes that there is a loader. It may get classes until it is known to be complete.
    pub(super) fn meet(&mut self, loader: VirtAddr) {
        if let Entry::Vacant(vacant) = self.loaders.entry(loader) {
            vacant.insert(KnownLoader::default());
            self.open.insert(loader);
        }
    }

    /// Forgets a loader that is gone and all of its classes.
    pub(super) fn forget(&mut self, loader: VirtAddr) {
        self.loaders.remove(&loader);
        self.open.remove(&loader);
        remove_of(loader, &mut self.classes, |_| true);
        remove_of(loader, &mut self.pending, |_| true);
    }

    /// Whether it has grown larger than any VM, because nobody could tell which loaders are gone.
    pub(super) fn is_too_large(&self) -> bool {
        self.loaders.len() > MAX_LOADERS
    }

    /// The loaders that are known.
    pub(super) fn loaders(&self) -> impl Iterator<Item = VirtAddr> {
        self.loaders.keys().copied()
    }

    /// The loaders that may get classes at any time.
    pub(super) fn open_loaders(&self) -> impl Iterator<Item = VirtAddr> {
        self.open.iter().copied()
    }

    /// Whether a class is all that its loader has had so far.
    pub(super) fn is_alone(&self, klass: &Klass) -> bool {
        self.open.contains(&klass.loader) && matches!(self.marks(klass.loader), [only] if *only == Mark::of(klass))
    }

    /// Notes that a loader gets no further classes.
    pub(super) fn close(&mut self, loader: VirtAddr) {
        self.open.remove(&loader);
    }

    /// Where the class list of `loader` was left, newest first.
    pub(super) fn marks(&self, loader: VirtAddr) -> &[Mark] {
        self.loaders.get(&loader).map_or(&[], |known| &known.marks[..])
    }

    /// Notes how far a chain was walked and returns its classes that may have native methods.
    pub(super) fn take_chain(&mut self, loader: VirtAddr, chain: &Chain) -> Vec<Klass> {
        self.meet(loader);
        let known = self.loaders.entry(loader).or_default();
        match chain.end {
            ChainEnd::Broken => {}
            ChainEnd::Mark(index) => {
                known.marks = newest_marks(chain, known.marks.get(index..).unwrap_or_default());
            }
            ChainEnd::Bottom => {
                // The whole list was seen, so a class that is not in it is gone, or the address is a new loader's.
                known.marks = newest_marks(chain, &[]);
                self.open.insert(loader);
                let listed: HashSet<VirtAddr> = chain.klasses.iter().map(|klass| klass.addr).collect();
                remove_of(loader, &mut self.classes, |addr| !listed.contains(&addr));
                remove_of(loader, &mut self.pending, |addr| !listed.contains(&addr));
            }
        }
        let mut loaded = Vec::new();
        for klass in &chain.klasses {
            match klass.kind {
                KlassKind::Loaded => loaded.push(*klass),
                KlassKind::Loading => self.wait_for(klass),
                KlassKind::Array => {}
            }
        }
        loaded
    }

    /// The classes that wait for another look, by loader and address.
    pub(super) fn pending(&self) -> Vec<(VirtAddr, VirtAddr)> {
        self.pending.keys().copied().collect()
    }

    fn wait_for(&mut self, klass: &Klass) {
        if self.pending.len() < MAX_PENDING {
            self.pending.entry(klass.key()).or_default();
        }
    }

    /// Has a class looked at again later. After too many times in vain it is given up.
    pub(super) fn retry(&mut self, klass: &Klass) {
        self.wait_for(klass);
        if let Some(tries) = self.pending.get_mut(&klass.key()) {
            *tries += 1;
            if *tries > MAX_TRIES {
                self.pending.remove(&klass.key());
            }
        }
    }

    /// Ends the wait for a class.
    pub(super) fn settle(&mut self, key: (VirtAddr, VirtAddr)) {
        self.pending.remove(&key);
    }

    /// Adds a class. One that is known already, with the same methods, stays as it is.
    pub(super) fn add(&mut self, found: NativeClass, boot: Option<VirtAddr>) {
        let NativeClass { klass, natives } = found;
        if self.classes.get(&klass.key()).is_some_and(|old| old.is_same(&klass, &natives)) {
            return;
        }
        let Some(name) = natives.first().map(|native| native.class.clone()) else { return };
        let is_boot = boot == Some(klass.loader);
        let natives = natives.into_iter().map(KnownNative::new).collect();
        self.classes.insert(klass.key(), KnownClass { klass, name, is_boot, natives });
    }

    /// Takes out a class that is not what it was, to be looked at again.
    pub(super) fn drop_class(&mut self, klass: &Klass) {
        self.classes.remove(&klass.key());
        self.wait_for(klass);
    }

    /// All classes with native methods.
    pub(super) fn classes(&self) -> impl Iterator<Item = &KnownClass> {
        self.classes.values()
    }

    /// Notes the words that the native methods of a class hold, in their order.
    pub(super) fn set_words(&mut self, klass: &Klass, words: &[VirtAddr]) {
        let natives = self.classes.get_mut(&klass.key()).into_iter().flat_map(|class| &mut class.natives);
        for (native, word) in natives.zip(words) {
            native.word = Some(*word);
        }
    }

    /// The words that method-handle intrinsics hold.
    pub(super) fn intrinsic_words(&self) -> impl Iterator<Item = VirtAddr> {
        let of_boot = self.classes().filter(|class| class.is_boot);
        let intrinsics =
            of_boot.flat_map(|class| class.natives.iter().filter(|native| native.is_intrinsic(&class.name)));
        intrinsics.filter_map(|native| native.word)
    }

    /// The methods that were never reported, or whose code is not what was reported last.
    pub(super) fn report(&mut self, stub: Stub, exports: &Exports) -> Vec<Method> {
        let mut changed = Vec::new();
        for KnownClass { name, is_boot, natives, .. } in self.classes.values_mut() {
            for native in natives {
                let Some(word) = native.word else { continue };
                let code = stub.classify(exports, *is_boot && native.is_intrinsic(name), word);
                if native.reported != Some(code) {
                    native.reported = Some(code);
                    changed.extend(native.reported_of(name));
                }
            }
        }
        changed
    }

    /// Every method that was reported and is still there.
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> {
        self.classes().flat_map(|class| class.natives.iter().filter_map(|native| native.reported_of(&class.name)))
    }

    /// Where the VM keeps those.
    pub(super) fn ids(&self) -> impl Iterator<Item = VirtAddr> {
        self.classes().flat_map(|class| &class.natives).filter(|of| of.reported.is_some()).map(|native| native.id)
    }

    /// How many bytes of names may still be added.
    pub(super) fn bytes_left(&self) -> usize {
        MAX_BYTES.saturating_sub(self.native_bytes())
    }

    /// What is kept of loaders and native methods, about, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.loaders.len() * share::KEPT_LOADER + self.native_bytes()
    }

    fn native_bytes(&self) -> usize {
        self.classes().map(KnownClass::bytes).sum()
    }
}

impl KnownClass {
    /// What its natives hold, as far as it was seen.
    pub(super) fn words(&self) -> impl Iterator<Item = Option<VirtAddr>> {
        self.natives.iter().map(|native| native.word)
    }

    fn bytes(&self) -> usize {
        let names = self.natives.iter().map(|native| native.name.len() + native.signature.len()).sum::<usize>();
        names + self.natives.len() * (NATIVE_BYTES + self.name.len())
    }

    fn is_same(&self, klass: &Klass, natives: &[Native]) -> bool {
        let identity = |klass: &Klass| (klass.name, klass.loader, klass.methods);
        let pairs = self.natives.iter().zip(natives);
        identity(&self.klass) == identity(klass)
            && self.natives.len() == natives.len()
            && pairs.into_iter().all(|(old, new)| old.id == new.method && old.const_method == new.const_method)
    }
}

/// The marks after a walk of `chain`, which ended where `older` begin.
fn newest_marks(chain: &Chain, older: &[Mark]) -> Box<[Mark]> {
    let newer = chain.klasses.iter().map(Mark::of);
    newer.chain(older.iter().copied()).take(MARKS).collect()
}

/// Removes the picked classes of a loader.
fn remove_of<V>(loader: VirtAddr, from: &mut BTreeMap<(VirtAddr, VirtAddr), V>, pick: impl Fn(VirtAddr) -> bool) {
    let all = (loader, VirtAddr(0))..=(loader, VirtAddr(u64::MAX));
    let picked: Vec<_> = from.range(all).map(|(&key, _)| key).filter(|&(_, addr)| pick(addr)).collect();
    for key in picked {
        from.remove(&key);
    }
}
