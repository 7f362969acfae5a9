//! What is remembered of a VM between two looks at it: for each loader where its class list began, and for each class
//! with native methods what those held. Nothing outlives its loader, so it stays as small as what is loaded.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::exports::Exports;
use super::natives::{Native, NativeClass};
use super::stub::{self, Stub};
use super::walk::{Chain, ChainEnd, Klass, KlassKind, LoaderList, MAX_LOADERS, Mark};
use crate::model::{Method, NativeCode, VirtAddr};

/// How many of a loader's newest classes mark where the list was left. One would do if classes whose loading
/// fails were not taken out again.
const MARKS: usize = 4;
/// How many classes may wait for a second look. Those being loaded at one moment are as many as threads.
const MAX_PENDING: usize = 1 << 14;
/// How often a class is looked at again that cannot be read whole.
const MAX_TRIES: u8 = 8;
/// The bytes of names and records that are kept at most for one VM: 250 times what a large program takes.
const MAX_BYTES: usize = 64 << 20;
/// What a native method takes beside its names, about.
pub(super) const NATIVE_BYTES: usize = 256;

/// All that is remembered.
#[derive(Debug, Default)]
pub(super) struct Known {
    loaders: HashMap<VirtAddr, KnownLoader>,
    /// Classes to be looked at again, by loader and address, with the number of times that this was in vain.
    pending: BTreeMap<(VirtAddr, VirtAddr), u8>,
}

#[derive(Debug, Default)]
struct KnownLoader {
    /// The newest classes of the last look, newest first.
    marks: Vec<Mark>,
    /// Classes with native methods.
    classes: BTreeMap<VirtAddr, KnownClass>,
}

/// A class with native methods.
#[derive(Debug)]
pub(super) struct KnownClass {
    pub(super) klass: Klass,
    pub(super) natives: Vec<KnownNative>,
}

/// A native method.
#[derive(Debug)]
pub(super) struct KnownNative {
    /// As it was last reported.
    method: Method,
    pub(super) const_method: VirtAddr,
    is_intrinsic: bool,
    /// The word that holds its code, once that was seen.
    pub(super) word: Option<VirtAddr>,
    is_reported: bool,
}

impl KnownNative {
    /// Where the VM keeps it.
    pub(super) fn id(&self) -> VirtAddr {
        self.method.id
    }

    fn new(native: Native, is_boot: bool) -> Self {
        Self {
            is_intrinsic: is_boot && stub::is_intrinsic(&native.class, &native.name),
            const_method: native.const_method,
            word: None,
            is_reported: false,
            method: Method {
                id: native.method,
                class: native.class,
                name: native.name,
                signature: native.signature,
                code: NativeCode::Unbound,
            },
        }
    }

    fn bytes(&self) -> usize {
        let Method { class, name, signature, .. } = &self.method;
        NATIVE_BYTES + class.len() + name.len() + signature.len()
    }
}

impl Known {
    /// Forgets the loaders that are no longer in `list`, if that is complete. If it never is, forgets everything once it
    /// has grown too large: what is still there is found again.
    pub(super) fn keep_loaders(&mut self, list: &LoaderList) {
        if list.complete {
            let listed: HashSet<VirtAddr> = list.loaders.iter().map(|loader| loader.addr).collect();
            self.loaders.retain(|addr, _| listed.contains(addr));
            self.pending.retain(|(loader, _), _| listed.contains(loader));
        } else if self.loaders.len() > MAX_LOADERS {
            *self = Self::default();
        }
    }

    /// Where the class list of `loader` was left, newest first.
    pub(super) fn marks(&self, loader: VirtAddr) -> &[Mark] {
        self.loaders.get(&loader).map_or(&[], |known| &known.marks[..])
    }

    /// Notes how far a chain was walked and returns its classes that may have native methods.
    pub(super) fn take_chain(&mut self, loader: VirtAddr, chain: &Chain) -> Vec<Klass> {
        let known = self.loaders.entry(loader).or_default();
        match chain.end {
            ChainEnd::Broken => {}
            ChainEnd::Mark(index) => {
                let older = known.marks.split_off(index.min(known.marks.len()));
                known.marks = newest_marks(chain, older);
            }
            ChainEnd::Bottom => {
                // The whole list was seen, so a class that is not in it is gone, or the address is a new loader's.
                let listed: HashSet<VirtAddr> = chain.klasses.iter().map(|klass| klass.addr).collect();
                known.classes.retain(|addr, _| listed.contains(addr));
                self.pending.retain(|(of, addr), _| *of != loader || listed.contains(addr));
                known.marks = newest_marks(chain, Vec::new());
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
        let known = self.loaders.entry(klass.loader).or_default();
        if known.classes.get(&klass.addr).is_some_and(|old| old.is_same(&klass, &natives)) {
            return;
        }
        let is_boot = boot == Some(klass.loader);
        let natives = natives.into_iter().map(|native| KnownNative::new(native, is_boot)).collect();
        known.classes.insert(klass.addr, KnownClass { klass, natives });
    }

    /// Takes out a class that is not what it was, to be looked at again.
    pub(super) fn drop_class(&mut self, klass: &Klass) {
        if let Some(known) = self.loaders.get_mut(&klass.loader) {
            known.classes.remove(&klass.addr);
        }
        self.wait_for(klass);
    }

    /// All classes with native methods.
    pub(super) fn classes(&self) -> impl Iterator<Item = &KnownClass> {
        self.loaders.values().flat_map(|loader| loader.classes.values())
    }

    /// Notes the words that the native methods of a class hold, in their order.
    pub(super) fn set_words(&mut self, klass: &Klass, words: &[VirtAddr]) {
        let class = self.loaders.get_mut(&klass.loader).and_then(|loader| loader.classes.get_mut(&klass.addr));
        let natives = class.into_iter().flat_map(|class| &mut class.natives);
        for (native, word) in natives.zip(words) {
            native.word = Some(*word);
        }
    }

    /// The words that method-handle intrinsics hold.
    pub(super) fn intrinsic_words(&self) -> impl Iterator<Item = VirtAddr> {
        self.classes()
            .flat_map(|class| &class.natives)
            .filter(|native| native.is_intrinsic)
            .filter_map(|native| native.word)
    }

    /// The methods that were never reported, or whose code is not what was reported last.
    pub(super) fn report(&mut self, stub: Stub, exports: &Exports) -> Vec<Method> {
        let classes = self.loaders.values_mut().flat_map(|loader| loader.classes.values_mut());
        let mut changed = Vec::new();
        for native in classes.flat_map(|class| &mut class.natives) {
            let Some(word) = native.word else { continue };
            let code = stub.classify(exports, native.is_intrinsic, word);
            if !native.is_reported || native.method.code != code {
                native.is_reported = true;
                native.method.code = code;
                changed.push(native.method.clone());
            }
        }
        changed
    }

    /// Every method that was reported and is still there.
    pub(super) fn methods(&self) -> impl Iterator<Item = &Method> {
        self.classes().flat_map(|class| &class.natives).filter(|native| native.is_reported).map(|native| &native.method)
    }

    /// How many bytes of names may still be added.
    pub(super) fn bytes_left(&self) -> usize {
        let natives = self.classes().flat_map(|class| &class.natives);
        MAX_BYTES.saturating_sub(natives.map(KnownNative::bytes).sum())
    }
}

impl KnownClass {
    /// What its natives hold, as far as it was seen.
    pub(super) fn words(&self) -> impl Iterator<Item = Option<VirtAddr>> {
        self.natives.iter().map(|native| native.word)
    }

    fn is_same(&self, klass: &Klass, natives: &[Native]) -> bool {
        let identity = |klass: &Klass| (klass.name, klass.loader, klass.methods);
        let pairs = self.natives.iter().zip(natives);
        identity(&self.klass) == identity(klass)
            && self.natives.len() == natives.len()
            && pairs.into_iter().all(|(old, new)| old.method.id == new.method && old.const_method == new.const_method)
    }
}

/// The marks after a walk of `chain`, which ended where `older` begin.
fn newest_marks(chain: &Chain, older: Vec<Mark>) -> Vec<Mark> {
    let newer = chain.klasses.iter().map(Mark::of);
    newer.chain(older).take(MARKS).collect()
}
