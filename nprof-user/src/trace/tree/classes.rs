//! The loaded classes of a target, as its shim lists them.

use std::collections::{BTreeSet, HashMap};

use nprof_common::wire::ClassesListed;

use crate::calls::{DeclaredMethod, LoadedClass};
use crate::hotspot;
use crate::model::{Method, NativeCode, VirtAddr};
use crate::resolve::nearest::nearest;
use crate::resolve::pattern::{ClassName, Pattern};

/// All of them. The number of a class is its place.
#[derive(Debug, Default)]
pub(super) struct ClassList {
    pub classes: Vec<LoadedClass>,
    by_name: HashMap<String, Vec<u32>>,
    /// So many have their methods.
    pub with_methods: usize,
}

impl ClassList {
    /// Takes a part of the list, as it was in the area. `None` if it is none: a target may say anything.
    pub(super) fn add(&mut self, part: &ClassesListed, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        for _ in 0..part.count {
            let class = reader.class()?;
            let number = u32::try_from(self.classes.len()).ok()?;
            self.by_name.entry(class.name.to_string()).or_default().push(number);
            self.classes.push(class);
        }
        reader.0.is_empty().then_some(())
    }

    /// Takes the methods of a part of the classes, likewise.
    pub(super) fn add_methods(&mut self, part: &ClassesListed, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        for _ in 0..part.count {
            let count = reader.number()?;
            let methods = (0..count).map(|_| reader.method()).collect::<Option<Vec<_>>>()?;
            self.classes.get_mut(self.with_methods)?.methods = methods;
            self.with_methods += 1;
        }
        reader.0.is_empty().then_some(())
    }

    /// The packages of the methods that some patterns select, each with those below it.
    pub(super) fn packages(&self, entries: &[Pattern]) -> Vec<Pattern> {
        let mut packages = BTreeSet::new();
        for class in &self.classes {
            let package = class.name.rfind('.').map_or("", |dot| &class.name[..dot]);
            if packages.contains(package) {
                continue;
            }
            let name = ClassName::of(&class.name);
            let of_class = entries.iter().filter(|entry| entry.matches_class(&name));
            if of_class
                .into_iter()
                .any(|entry| class.methods.iter().any(|m| entry.matches_method(&m.name, &m.signature)))
            {
                packages.insert(package);
            }
        }
        packages.into_iter().filter_map(|package| Pattern::package(package).ok()).collect()
    }

    /// The names of methods that a pattern may have meant which selects none.
    pub(super) fn nearest(&self, pattern: &str) -> Vec<String> {
        let methods = self.classes.iter().flat_map(|class| {
            class.methods.iter().map(|method| Method {
                id: VirtAddr(0),
                class: class.name.clone(),
                name: method.name.clone(),
                signature: method.signature.clone(),
                code: NativeCode::Unbound,
            })
        });
        nearest(pattern, &methods.collect::<Vec<Method>>())
    }

    /// The classes of a name, which several loaders may have.
    pub(super) fn named(&self, name: &str) -> &[u32] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Takes fields off a part.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn class(&mut self) -> Option<LoadedClass> {
        let [modifiers, loader, parent, interfaces] = [self.number()?, self.number()?, self.number()?, self.number()?];
        let interfaces = (0..interfaces).map(|_| self.number()).collect::<Option<Vec<u32>>>()?;
        let is_class = |&number: &u32| number != ClassesListed::NONE;
        Some(LoadedClass {
            name: hidden(&self.text()?.replace('/', ".")).into(),
            loader,
            superclass: Some(parent).filter(is_class),
            interfaces: interfaces.into_iter().filter(is_class).collect(),
            flags: u16::try_from(modifiers & 0xffff).ok()?,
            is_modifiable: modifiers & ClassesListed::MODIFIABLE != 0,
            methods: Vec::new(),
        })
    }

    fn method(&mut self) -> Option<DeclaredMethod> {
        let flags = u16::try_from(self.number()?).ok()?;
        Some(DeclaredMethod { name: self.text()?.into(), signature: self.text()?.into(), flags })
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let text = self.take(length)?;
        Some(hotspot::decode(text).unwrap_or_else(|| String::from_utf8_lossy(text).into_owned()))
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

/// A class as Java names it: what is behind the last dot of a hidden class is told by a slash.
fn hidden(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((before, suffix)) if suffix.starts_with("0x") => format!("{before}/{suffix}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(count: u32) -> ClassesListed {
        ClassesListed { first: 0, count, total: count, bytes: 0 }
    }

    /// Check that a class is read as it was written, that two loaders may have one of the same name, and that what ends too early, or too
    /// late, is no list.
    #[test]
    fn reads_a_list() {
        let numbers = [0x8000_0421, 3, u32::MAX, 2, 7, u32::MAX, 5].map(u32::to_le_bytes);
        let row = [numbers.as_flattened(), b"a/B$C"].concat();
        let mut list = ClassList::default();
        assert_eq!(list.add(&part(2), &[&row[..], &row].concat()), Some(()));
        let class = LoadedClass {
            name: "a.B$C".into(),
            loader: 3,
            superclass: None,
            interfaces: vec![7],
            flags: 0x421,
            is_modifiable: true,
            methods: Vec::new(),
        };
        assert_eq!(list.classes, [class.clone(), class]);
        assert_eq!((list.named("a.B$C"), list.named("a.B")), (&[0, 1][..], &[][..]));
        for length in 0..row.len() {
            assert_eq!(ClassList::default().add(&part(1), &row[..length]), None);
        }
        assert_eq!(ClassList::default().add(&part(1), &[&row[..], &[0]].concat()), None);
    }

    /// Check that methods come to their classes, in order.
    #[test]
    fn reads_methods() {
        let row =
            [&1_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"m", &3_u32.to_le_bytes(), b"()V"];
        let bytes = [&row.concat()[..], &0_u32.to_le_bytes()].concat();
        let class = [0, 0, u32::MAX, 0, 1].map(u32::to_le_bytes).as_flattened().to_vec();
        let mut list = ClassList::default();
        list.add(&part(2), &[&class[..], b"A", &class, b"B"].concat()).unwrap();
        assert_eq!(list.add_methods(&part(2), &bytes), Some(()));
        let method = DeclaredMethod { name: "m".into(), signature: "()V".into(), flags: 9 };
        assert_eq!((&list.classes[0].methods[..], &list.classes[1].methods[..]), (&[method][..], &[][..]));
        assert_eq!(list.add_methods(&part(1), &bytes[..bytes.len() - 4]), None);
    }

    /// Check that hidden classes are called what Java calls them.
    #[test]
    fn hidden_classes() {
        assert_eq!(hidden("a.B$$Lambda.0x00007f"), "a.B$$Lambda/0x00007f");
        assert_eq!(hidden("a.B"), "a.B");
    }
}
