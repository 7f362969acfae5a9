//! One look at a VM: which loaders it has, what they loaded since the last look, and what every native method holds
//! now. A full inventory is the same look by someone who remembers nothing.

use std::collections::HashSet;
use std::time::Duration;

use super::known::{Known, KnownClass};
use super::loaders::{Loaders, News};
use super::memory::{MemoryError, RemoteMemory};
use super::natives;
use super::share::{self, Share};
use super::walk::{self, Budget, ChainEnd, Klass, KlassKind, LOADERS_AT_ONCE, Loader};
use super::watch::{self, Sight, Unsure};
use super::{Error, Vm};
use crate::model::{Inventory, Method, VirtAddr};

/// How often a walk is repeated that lost its way. Of walks under heavy unloading nine in ten succeed.
const MAX_WALKS: usize = 10;
/// How often a word is read again that changes while it is read.
const MAX_READS: usize = 3;

/// What a look brought.
#[derive(Debug)]
struct Look {
    changed: Vec<Method>,
    /// Whether all loaders were seen, and nothing was left out for its size.
    complete: bool,
    /// The loaders of whose classes not all were seen.
    broken: Vec<VirtAddr>,
    /// Whether that may be otherwise the next time: not if there is more than nprof is ready to read.
    worth_repeating: bool,
}

impl<M: RemoteMemory> Vm<M> {
    /// Every native method of every loaded class, sorted by name, from a walk over all of them. A walk that loses its
    /// way because classes are unloaded meanwhile is repeated, and what the walks found is united.
    ///
    /// # Errors
    /// [`Error::Memory`] if the process can no longer be read. That methods were missed is no error: see
    /// [`Inventory::complete`].
    pub fn inventory(&mut self) -> Result<Inventory, Error> {
        self.start_over();
        let mut complete = false;
        let begun = share::cpu_time();
        for _ in 0..MAX_WALKS {
            let look = self.look()?;
            complete = look.complete && self.are_gone(&look.broken)?;
            if complete || !look.worth_repeating || share::is_long_since(begun) {
                break;
            }
        }
        // It is rare, whoever calls it: only what is done time and again has its part of the time.
        self.pause = Duration::ZERO;
        let mut methods: Vec<Method> = self.known.methods().collect();
        sort(&mut methods);
        Ok(Inventory { methods, complete })
    }

    /// The methods that are new, or whose code has changed, since the last call of this or of [`Vm::inventory`]. Takes
    /// a millisecond or two where nothing has been loaded.
    ///
    /// A method whose id was reported before with other names is a new method: the VM reuses the memory of unloaded
    /// classes. Methods that are gone are not reported; see [`Vm::known_methods`].
    ///
    /// # Errors
    /// [`Error::Memory`] if the process can no longer be read.
    pub fn refresh(&mut self) -> Result<Vec<Method>, Error> {
        let mut changed = self.look()?.changed;
        sort(&mut changed);
        Ok(changed)
    }

    /// The ids of the methods that were loaded at the last look. What a caller keeps of others can be forgotten.
    pub fn known_methods(&self) -> impl Iterator<Item = VirtAddr> {
        self.known.ids()
    }

    /// Looks once, within its share of memory and time. A VM that takes too much is forgotten.
    fn look(&mut self) -> Result<Look, Error> {
        let begun = self.reader.share().map(Share::begin).transpose();
        let look = begun.map_err(Error::from).and_then(|_begun| self.look_within());
        if matches!(&look, Err(Error::Memory(error)) if error.is_too_much()) {
            (self.known, self.loaders, self.left_out) = (Known::default(), Loaders::default(), true);
        }
        self.reader.rest();
        let kept = self.known.bytes();
        if let Some(share) = self.reader.share() {
            self.pause = share.settle(kept);
        }
        look
    }

    fn look_within(&mut self) -> Result<Look, Error> {
        if self.known.is_too_large() {
            self.start_over();
        }
        let news = self.loaders.follow(&mut self.reader, &self.layout, &self.known)?;
        news.gone.iter().for_each(|&loader| self.known.forget(loader));
        news.loaders.iter().for_each(|loader| self.known.meet(loader.addr));
        // First those that are known: what has changed beyond recognition is read again with the new ones.
        self.watch(|_| true)?;
        let mut budget = Budget::new(self.known.bytes_left());
        let broken = self.walk_new(&news, &mut budget)?;
        let ready = self.recheck()?;
        self.find(&ready, news.boot, &mut budget)?;
        self.watch(|class| class.natives.iter().any(|native| native.word.is_none()))?;
        self.stub.learn(&self.exports, self.known.intrinsic_words());
        Ok(Look {
            changed: self.known.report(self.stub, &self.exports),
            complete: news.complete && !budget.exhausted,
            broken,
            worth_repeating: !budget.exhausted,
        })
    }

    /// Remembers nothing from here on but where loaders were, which makes it cheap to find them again.
    fn start_over(&mut self) {
        self.known = Known::default();
        self.loaders.start_over();
    }

    /// Finds the native methods of what the loaders have loaded since the last look. Returns the loaders whose list
    /// could not be walked.
    fn walk_new(&mut self, news: &News, budget: &mut Budget) -> Result<Vec<VirtAddr>, MemoryError> {
        let mut visited = HashSet::new();
        let mut broken = Vec::new();
        for loaders in news.loaders.chunks(LOADERS_AT_ONCE) {
            let changed = self.changed(loaders)?;
            let newest = changed.iter().map(|loader| loader.newest).collect();
            let ahead = walk::read_ahead(&mut self.reader, &self.layout, newest)?;
            let mut klasses = Vec::new();
            for loader in changed {
                let marks = self.known.marks(loader.addr);
                let (reader, limits) = (&mut self.reader, (&mut visited, &mut *budget));
                let chain = walk::klasses(reader, &self.layout, loader, marks, &ahead, limits)?;
                if chain.end == ChainEnd::Broken {
                    broken.push(loader.addr);
                }
                klasses.extend(self.known.take_chain(loader.addr, &chain));
            }
            self.find(&klasses, news.boot, budget)?;
        }
        Ok(broken)
    }

    /// Those of `loaders` that have another newest class than at the last look.
    fn changed(&mut self, loaders: &[Loader]) -> Result<Vec<Loader>, MemoryError> {
        let marked = |loader: &Loader| (*loader, self.known.marks(loader.addr).first().copied());
        let (known, mut changed): (Vec<_>, Vec<_>) =
            loaders.iter().filter(|loader| !loader.newest.is_null()).map(marked).partition(|(_, mark)| mark.is_some());
        let unchanged = walk::unchanged(&mut self.reader, &self.layout, &known)?;
        changed.extend(known.into_iter().zip(unchanged).filter(|(_, same)| !same).map(|(loader, _)| loader));
        Ok(changed.into_iter().map(|(loader, _)| loader).collect())
    }

    /// Looks again at the classes that were not complete. Returns those that are now.
    fn recheck(&mut self) -> Result<Vec<Klass>, MemoryError> {
        let mut ready = Vec::new();
        for (loader, addr) in self.known.pending() {
            let klass = walk::klass(&mut self.reader, &self.layout, addr)?;
            match klass.filter(|klass| klass.loader == loader) {
                Some(klass) if klass.kind == KlassKind::Loaded => ready.push(klass),
                Some(klass) if klass.kind == KlassKind::Loading => {}
                _ => self.known.settle((loader, addr)),
            }
        }
        Ok(ready)
    }

    /// Finds the native methods of `klasses` and remembers them.
    fn find(&mut self, klasses: &[Klass], boot: Option<VirtAddr>, budget: &mut Budget) -> Result<(), MemoryError> {
        let found = natives::find(&mut self.reader, &self.layout, klasses, budget)?;
        let failed: HashSet<_> = found.failed.iter().map(Klass::key).collect();
        for klass in klasses.iter().filter(|klass| !failed.contains(&klass.key())) {
            self.known.settle(klass.key());
        }
        for klass in &found.failed {
            self.known.retry(klass);
        }
        for class in found.classes {
            self.known.add(class, boot);
        }
        self.close(klasses)
    }

    /// Closes the loaders that were made for one of `klasses` alone.
    fn close(&mut self, klasses: &[Klass]) -> Result<(), MemoryError> {
        let alone = klasses.iter().filter(|klass| self.known.is_alone(klass)).map(|klass| klass.loader);
        let loaders: Vec<VirtAddr> = alone.collect();
        let are_full = walk::are_for_one_class(&mut self.reader, &self.layout, &loaders)?;
        let full = loaders.iter().zip(are_full).filter(|(_, is_full)| *is_full);
        full.for_each(|(&loader, _)| self.known.close(loader));
        Ok(())
    }

    /// Reads what the native methods of the picked classes hold. A class that is no longer what it was is taken out. A
    /// word that differs from the last one counts only if it is the same when it is read again.
    fn watch(&mut self, pick: impl Fn(&KnownClass) -> bool) -> Result<(), MemoryError> {
        let mut unsure: Option<Unsure> = None;
        for _ in 0..MAX_READS {
            let picked = |class: &&KnownClass| match &unsure {
                None => pick(class),
                Some(unsure) => unsure.contains_key(&class.klass.key()),
            };
            let classes: Vec<&KnownClass> = self.known.classes().filter(picked).collect();
            let seen = watch::look_at(&mut self.reader, &self.layout, &classes)?;
            let still_unsure = self.settle(seen, &unsure.unwrap_or_default());
            if still_unsure.is_empty() {
                break;
            }
            unsure = Some(still_unsure);
        }
        Ok(())
    }

    /// Takes over the words that were seen twice. Returns those that have to be read once more.
    fn settle(&mut self, seen: Vec<(Klass, Sight)>, before: &Unsure) -> Unsure {
        let mut unsure = Unsure::new();
        for (klass, sight) in seen {
            match sight {
                Sight::Gone => self.known.drop_class(&klass),
                Sight::Same => {}
                Sight::Changed(words) if before.get(&klass.key()) == Some(&words) => {
                    self.known.set_words(&klass, &words);
                }
                Sight::Changed(words) => {
                    unsure.insert(klass.key(), words);
                }
            }
        }
        unsure
    }

    /// Whether none of `loaders` is in the VM's list any more, so that it does not matter that they could not be walked.
    fn are_gone(&mut self, loaders: &[VirtAddr]) -> Result<bool, MemoryError> {
        if loaders.is_empty() {
            return Ok(true);
        }
        let list = walk::loaders(&mut self.reader, &self.layout, &self.loaders.addresses())?;
        let listed: HashSet<VirtAddr> = list.loaders.iter().map(|loader| loader.addr).collect();
        Ok(list.complete && !loaders.iter().any(|addr| listed.contains(addr)))
    }
}

fn sort(methods: &mut [Method]) {
    methods.sort_by(|a, b| (&a.class, &a.name, &a.signature, a.id).cmp(&(&b.class, &b.name, &b.signature, b.id)));
}
