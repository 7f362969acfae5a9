//! Which methods a reference may lead to. The VM is asked for the methods of classes as far as that needs them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Classes;
use super::hierarchy::{Hierarchy, MethodId, Targets};
use super::references::Reference;
use crate::classfile::flag;
use crate::resolve::pattern::{ClassName, Pattern};

/// Whose methods are asked for, of the classes that the receiver of a virtual call may have. Of those of `Object` all are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Receivers {
    All,
    /// Those that may bring in a node.
    Chosen,
}

/// What is known of the classes, and which of them are asked for.
pub(super) struct Resolver<'a, C: Classes> {
    pub(super) classes: &'a mut C,
    pub(super) hierarchy: Hierarchy,
    /// The classes whose methods may be nodes.
    packages: Vec<Pattern>,
    chosen_classes: HashMap<u32, bool>,
    entry_classes: HashSet<u32>,
    /// Classes of which the methods of everything above are known.
    resolvable: HashSet<u32>,
    virtual_targets: HashMap<(u32, String, String, Receivers), Targets>,
}

impl<'a, C: Classes> Resolver<'a, C> {
    pub(super) fn new(classes: &'a mut C, hierarchy: Hierarchy, packages: &[Pattern]) -> Self {
        Self {
            classes,
            hierarchy,
            packages: packages.to_vec(),
            chosen_classes: HashMap::new(),
            entry_classes: HashSet::new(),
            resolvable: HashSet::new(),
            virtual_targets: HashMap::new(),
        }
    }

    /// Where no packages were asked for, those of some methods are meant, each with those below it.
    pub(super) fn default_packages(&mut self, methods: &[MethodId]) {
        if !self.packages.is_empty() {
            return;
        }
        let classes = methods.iter().filter_map(|(class, _)| self.hierarchy.class(*class));
        let packages = classes.map(|class| class.name.rfind('.').map_or("", |dot| &class.name[..dot]));
        let names: BTreeSet<&str> = packages.collect();
        self.packages = names.into_iter().filter_map(|name| Pattern::package(name).ok()).collect();
    }

    /// Takes note of a class that has an entry method, which need not be in the packages.
    pub(super) fn add_entry(&mut self, class: u32) {
        self.entry_classes.insert(class);
    }

    /// Asks for the methods of classes that are not known yet.
    pub(super) fn declare(&mut self, classes: impl IntoIterator<Item = u32>) -> Result<(), C::Error> {
        let unknown = classes.into_iter().filter(|class| !self.hierarchy.is_declared(*class));
        let unknown: Vec<u32> = unknown.collect::<BTreeSet<u32>>().into_iter().collect();
        if !unknown.is_empty() {
            let methods = self.classes.methods(&unknown)?;
            unknown.into_iter().zip(methods).for_each(|(class, methods)| self.hierarchy.declare(class, methods));
        }
        Ok(())
    }

    /// What a reference may lead to, and the class that it names; `None` where that is not loaded.
    pub(super) fn targets(&mut self, from: u32, reference: &Reference) -> Result<Option<Targets>, C::Error> {
        let Some(class) = self.hierarchy.find(&reference.class, from) else { return Ok(None) };
        let exact = self.exact(class, &reference.name, &reference.signature)?;
        // What overrides a method of other packages in other packages is no news.
        let is_asked_for = exact.named.is_some_and(|named| self.is_chosen(named.0));
        let receivers = if is_asked_for { Receivers::All } else { Receivers::Chosen };
        self.reached(class, reference, receivers).map(Some)
    }

    /// The methods that a reference may lead to, whatever packages they are in.
    pub(super) fn all_targets(&mut self, from: u32, reference: &Reference) -> Result<Vec<MethodId>, C::Error> {
        let Some(class) = self.hierarchy.find(&reference.class, from) else { return Ok(Vec::new()) };
        Ok(self.reached(class, reference, Receivers::All)?.methods)
    }

    /// The methods that implement an abstract one.
    pub(super) fn implementing(&mut self, class: u32, name: &str, signature: &str) -> Result<Vec<MethodId>, C::Error> {
        Ok(self.overriding(class, name, signature, Receivers::All)?.methods)
    }

    fn reached(&mut self, class: u32, reference: &Reference, receivers: Receivers) -> Result<Targets, C::Error> {
        if reference.is_virtual {
            self.overriding(class, &reference.name, &reference.signature, receivers)
        } else {
            self.exact(class, &reference.name, &reference.signature)
        }
    }

    fn exact(&mut self, class: u32, name: &str, signature: &str) -> Result<Targets, C::Error> {
        if self.resolvable.insert(class) {
            self.declare(self.hierarchy.above(class))?;
        }
        Ok(self.hierarchy.exact(class, name, signature))
    }

    fn overriding(
        &mut self,
        class: u32,
        name: &str,
        signature: &str,
        receivers: Receivers,
    ) -> Result<Targets, C::Error> {
        let key = (class, name.to_owned(), signature.to_owned(), receivers);
        if let Some(known) = self.virtual_targets.get(&key) {
            return Ok(known.clone());
        }
        let exact = self.exact(class, name, signature)?;
        let is_bound = |method| self.hierarchy.is(method, flag::PRIVATE | flag::FINAL | flag::STATIC);
        let found = if exact.named.is_some_and(is_bound) {
            exact
        } else {
            let below = self.hierarchy.below(class);
            let may_be = |class: &u32| receivers == Receivers::All || self.may_bring_in(*class);
            let classes: Vec<u32> = below.iter().copied().filter(may_be).collect();
            let chains: Vec<u32> = classes.iter().flat_map(|class| self.hierarchy.chain(*class)).collect();
            self.declare(chains)?;
            self.hierarchy.overriding(exact, &below, &classes, (name, signature))
        };
        self.virtual_targets.insert(key, found.clone());
        Ok(found)
    }

    /// Whether objects of a class may bring in a method that is or can be a node.
    fn may_bring_in(&mut self, class: u32) -> bool {
        let chain: Vec<u32> = self.hierarchy.chain(class).collect();
        chain.into_iter().any(|class| self.entry_classes.contains(&class) || self.is_chosen(class))
    }

    /// Whether methods of a class may be nodes.
    pub(super) fn is_chosen(&mut self, class: u32) -> bool {
        if let Some(known) = self.chosen_classes.get(&class) {
            return *known;
        }
        let chosen = self.hierarchy.class(class).is_some_and(|class| self.is_in_packages(&class.name));
        self.chosen_classes.insert(class, chosen);
        chosen
    }

    pub(super) fn is_in_packages(&self, class: &str) -> bool {
        let name = ClassName::of(class);
        self.packages.iter().any(|package| package.matches_class(&name))
    }
}
