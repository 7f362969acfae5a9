//! One look at a VM: which loaders it has, what they loaded since the last look, and what every native method holds
//! now. A full inventory is the same look by someone who remembers nothing.

use std::collections::HashSet;

use super::known::{Known, KnownClass};
use super::memory::{MemoryError, RemoteMemory};
use super::natives;
use super::walk::{self, Budget, ChainEnd, Klass, KlassKind, Loader, LoaderList, Mark};
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
    /// Whether all loaders and all their classes were seen.
    complete: bool,
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
        self.known = Known::default();
        let mut complete = false;
        for _ in 0..MAX_WALKS {
            let look = self.look()?;
            complete = look.complete;
            if complete || !look.worth_repeating {
                break;
            }
        }
        let mut methods: Vec<Method> = self.known.methods().cloned().collect();
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
        self.known.methods().map(|method| method.id)
    }

    fn look(&mut self) -> Result<Look, Error> {
        let list = walk::loaders(&mut self.reader, &self.layout, &self.loaders)?;
        self.loaders = list.loaders.iter().map(|loader| loader.addr).collect();
        self.known.keep_loaders(&list);
        // First those that are known: what has changed beyond recognition is read anew with the new ones.
        self.watch(|_| true)?;
        let mut budget = Budget::new(self.known.bytes_left());
        let (mut klasses, broken) = self.walk_new(&list, &mut budget)?;
        klasses.extend(self.recheck()?);
        self.find(&klasses, list.boot, &mut budget)?;
        self.watch(|class| class.natives.iter().any(|native| native.word.is_none()))?;
        self.stub.learn(&self.exports, self.known.intrinsic_words());
        Ok(Look {
            changed: self.known.report(self.stub, &self.exports),
            complete: list.complete && !budget.exhausted && self.are_gone(&broken)?,
            worth_repeating: !budget.exhausted,
        })
    }

    /// Walks what the loaders have loaded since the last look. Also returns the loaders whose list could not be walked.
    fn walk_new(&mut self, list: &LoaderList, budget: &mut Budget) -> Result<(Vec<Klass>, Vec<VirtAddr>), MemoryError> {
        let heads: Vec<(Loader, Option<Mark>)> = list
            .loaders
            .iter()
            .filter(|loader| !loader.newest.is_null())
            .map(|loader| (*loader, self.known.marks(loader.addr).first().copied()))
            .collect();
        let unchanged = walk::unchanged(&mut self.reader, &self.layout, &heads)?;
        let changed = heads.iter().zip(unchanged).filter(|(_, same)| !same);
        let mut visited = HashSet::new();
        let (mut klasses, mut broken) = (Vec::new(), Vec::new());
        for ((loader, _), _) in changed {
            let chain = walk::klasses(
                &mut self.reader,
                &self.layout,
                *loader,
                self.known.marks(loader.addr),
                &mut visited,
                budget,
            )?;
            if chain.end == ChainEnd::Broken {
                broken.push(loader.addr);
            }
            klasses.extend(self.known.take_chain(loader.addr, &chain));
        }
        Ok((klasses, broken))
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
        let list = walk::loaders(&mut self.reader, &self.layout, &self.loaders)?;
        let listed: HashSet<VirtAddr> = list.loaders.iter().map(|loader| loader.addr).collect();
        Ok(list.complete && !loaders.iter().any(|addr| listed.contains(addr)))
    }
}

fn sort(methods: &mut [Method]) {
    methods.sort_by(|a, b| (&a.class, &a.name, &a.signature, a.id).cmp(&(&b.class, &b.name, &b.signature, b.id)));
}
