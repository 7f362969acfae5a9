//! Finds classes by name, methods by class, and the methods that override one.

use std::collections::{HashMap, HashSet};

use super::{DeclaredMethod, LoadedClass};
use crate::classfile::flag;

/// A method: its class, and its place there.
pub(super) type MethodId = (u32, u32);

/// How many classes deep a chain of superclasses is followed: what is longer is a circle.
const DEEPEST: usize = 1_000;

/// The class of everything.
const OBJECT: &str = "java.lang.Object";

/// What a call may lead to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Targets {
    /// The method that it names, where that is declared; `None` where there is none.
    pub(super) named: Option<MethodId>,
    /// The methods with code, or native, that may be called.
    pub(super) methods: Vec<MethodId>,
}

/// Loaded classes, and tables to find them by.
pub(super) struct Hierarchy {
    classes: Vec<LoadedClass>,
    /// The methods of those that the search has come to.
    methods: HashMap<u32, Vec<DeclaredMethod>>,
    by_name: HashMap<String, Vec<u32>>,
    /// The classes that name a class as their superclass or as one of their interfaces.
    below: Vec<Vec<u32>>,
}

impl Hierarchy {
    pub(super) fn new(classes: Vec<LoadedClass>) -> Self {
        let mut by_name: HashMap<String, Vec<u32>> = HashMap::with_capacity(classes.len());
        let mut below = vec![Vec::new(); classes.len()];
        for (number, class) in (0..).zip(&classes) {
            by_name.entry(class.name.to_string()).or_default().push(number);
            for above in class.superclass.iter().chain(&class.interfaces) {
                // The numbers come from elsewhere.
                if let Some(below) = below.get_mut(*above as usize) {
                    below.push(number);
                }
            }
        }
        Self { classes, methods: HashMap::new(), by_name, below }
    }

    /// Takes in the methods of a class.
    pub(super) fn declare(&mut self, class: u32, methods: Vec<DeclaredMethod>) {
        self.methods.insert(class, methods);
    }

    /// Whether the methods of a class are known.
    pub(super) fn is_declared(&self, class: u32) -> bool {
        self.methods.contains_key(&class)
    }

    /// The methods of a class, if they are known.
    pub(super) fn methods(&self, class: u32) -> &[DeclaredMethod] {
        self.methods.get(&class).map_or(&[], Vec::as_slice)
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = (u32, &LoadedClass)> {
        (0..).zip(&self.classes)
    }

    pub(super) fn class(&self, class: u32) -> Option<&LoadedClass> {
        self.classes.get(class as usize)
    }

    pub(super) fn method(&self, (class, method): MethodId) -> Option<(&LoadedClass, &DeclaredMethod)> {
        Some((self.class(class)?, self.methods(class).get(method as usize)?))
    }

    /// The class that the class `from` means by a name. Several loaders may have one of that name: its own loader's is the likeliest, then that of
    /// the boot loader, which all can see.
    pub(super) fn find(&self, name: &str, from: u32) -> Option<u32> {
        // An array has the methods of Object.
        let found = self.by_name.get(if name.starts_with('[') { OBJECT } else { name })?;
        let loader = self.class(from)?.loader;
        let of = |loader| found.iter().copied().find(|class| self.class(*class).is_some_and(|c| c.loader == loader));
        of(loader).or_else(|| of(0)).or_else(|| found.first().copied())
    }

    fn declared(&self, class: u32, name: &str, signature: &str) -> Option<MethodId> {
        let mut methods = (0..).zip(self.methods(class));
        methods.find(|(_, m)| m.name == *name && m.signature == *signature).map(|(place, _)| (class, place))
    }

    /// A class and those that it extends, one after the other.
    pub(super) fn chain(&self, class: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(class), |class| self.class(*class)?.superclass).take(DEEPEST)
    }

    /// A class and everything that it is.
    pub(super) fn above(&self, class: u32) -> HashSet<u32> {
        reached(class, |class| {
            let loaded = self.class(class);
            loaded.into_iter().flat_map(|class| class.superclass.iter().chain(&class.interfaces)).copied()
        })
    }

    /// A class and everything that is one.
    pub(super) fn below(&self, class: u32) -> HashSet<u32> {
        reached(class, |class| self.below.get(class as usize).into_iter().flatten().copied())
    }

    /// The names of a class and of everything that it is.
    pub(super) fn names_above(&self, class: u32) -> HashSet<&str> {
        self.above(class).into_iter().filter_map(|class| Some(&*self.class(class)?.name)).collect()
    }

    /// The method that a name means in a class: its own, one of a superclass, or of an interface.
    pub(super) fn resolve(&self, class: u32, name: &str, signature: &str) -> Option<MethodId> {
        self.inherited(class, name, signature).or_else(|| self.of_interfaces(class, name, signature))
    }

    fn inherited(&self, class: u32, name: &str, signature: &str) -> Option<MethodId> {
        self.chain(class).find_map(|class| self.declared(class, name, signature))
    }

    /// The method of an interface, one with code before an abstract one.
    fn of_interfaces(&self, class: u32, name: &str, signature: &str) -> Option<MethodId> {
        let mut left: Vec<u32> = self.chain(class).collect();
        let mut seen: HashSet<u32> = left.iter().copied().collect();
        let mut fallback = None;
        while let Some(class) = left.pop() {
            if let Some(found) = self.declared(class, name, signature) {
                if !self.is(found, flag::ABSTRACT) {
                    return Some(found);
                }
                fallback = Some(found);
            }
            let interfaces = self.class(class).map(|class| &class.interfaces[..]).unwrap_or_default();
            left.extend(interfaces.iter().copied().filter(|interface| seen.insert(*interface)));
        }
        fallback
    }

    /// Whether a method has one of these flags.
    pub(super) fn is(&self, method: MethodId, flags: u16) -> bool {
        self.method(method).is_some_and(|(_, method)| method.flags & flags != 0)
    }

    /// What a call leads to that names its method exactly.
    pub(super) fn exact(&self, class: u32, name: &str, signature: &str) -> Targets {
        let named = self.resolve(class, name, signature);
        Targets { named, methods: named.filter(|method| !self.is(*method, flag::ABSTRACT)).into_iter().collect() }
    }

    /// What a call may lead to that asks the receiver's class, if that is one of `receivers`. Their methods are known, and those of what they
    /// extend.
    pub(super) fn overriding(
        &self,
        exact: Targets,
        below: &HashSet<u32>,
        receivers: &[u32],
        of: (&str, &str),
    ) -> Targets {
        let mut found: Vec<MethodId> = exact.methods;
        for class in receivers {
            found.extend(self.selected(*class, below, of.0, of.1));
        }
        found.sort_unstable();
        found.dedup();
        Targets { named: exact.named, methods: found }
    }

    /// The method that objects of a class bring in, if one of its own or inherited from outside of the classes `among` that were asked.
    fn selected(&self, class: u32, among: &HashSet<u32>, name: &str, signature: &str) -> Option<MethodId> {
        let is_callable = |method: &MethodId| !self.is(*method, flag::ABSTRACT | flag::STATIC | flag::PRIVATE);
        if let Some(own) = self.declared(class, name, signature) {
            return Some(own).filter(is_callable);
        }
        let loaded = self.class(class)?;
        let comes_from_outside = loaded.superclass.is_some_and(|above| !among.contains(&above));
        if !comes_from_outside || loaded.flags & flag::INTERFACE != 0 {
            return None;
        }
        self.inherited(class, name, signature).filter(is_callable)
    }
}

/// What can be reached from a class, which is part of it.
fn reached<I: IntoIterator<Item = u32>>(class: u32, next: impl Fn(u32) -> I) -> HashSet<u32> {
    let (mut left, mut seen) = (vec![class], HashSet::from([class]));
    while let Some(class) = left.pop() {
        left.extend(next(class).into_iter().filter(|class| seen.insert(*class)));
    }
    seen
}
