//! The loaded classes of a target, as its shim lists them.

use std::collections::HashMap;

use nprof_common::wire::ClassesListed;

use crate::calls::{DeclaredMethod, LoadedClass};
use crate::hotspot;
use crate::model::{Method, NativeCode, VirtAddr};

/// All of them. The number of a class is its place.
#[derive(Debug, Default)]
pub(super) struct ClassList {
    pub classes: Vec<LoadedClass>,
    by_name: HashMap<String, Vec<u32>>,
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

    /// Methods of classes, as names are suggested of them.
    pub(super) fn methods(&self, classes: &[u32], methods: &[Vec<DeclaredMethod>]) -> Vec<Method> {
        let of_class = |(number, methods): (&u32, &Vec<DeclaredMethod>)| {
            let class = &self.classes.get(*number as usize)?.name;
            let method = |method: &DeclaredMethod| Method {
                id: VirtAddr(0),
                class: class.clone(),
                name: method.name.clone(),
                signature: method.signature.clone(),
                code: NativeCode::Unbound,
            };
            Some(methods.iter().map(method).collect::<Vec<Method>>())
        };
        classes.iter().zip(methods).filter_map(of_class).flatten().collect()
    }

    /// The classes of a name, which several loaders may have.
    pub(super) fn named(&self, name: &str) -> &[u32] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The methods of so many classes, as they were in the area. `None` if they are none: a target may say anything.
pub(super) fn methods_listed(classes: u32, bytes: &[u8]) -> Option<Vec<Vec<DeclaredMethod>>> {
    let mut reader = Reader(bytes);
    let listed = (0..classes).map(|_| {
        let count = reader.number()?;
        (0..count).map(|_| reader.method()).collect::<Option<Vec<_>>>()
    });
    let listed: Vec<_> = listed.collect::<Option<_>>()?;
    reader.0.is_empty().then_some(listed)
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
        };
        assert_eq!(list.classes, [class.clone(), class]);
        assert_eq!((list.named("a.B$C"), list.named("a.B")), (&[0, 1][..], &[][..]));
        for length in 0..row.len() {
            assert_eq!(ClassList::default().add(&part(1), &row[..length]), None);
        }
        assert_eq!(ClassList::default().add(&part(1), &[&row[..], &[0]].concat()), None);
    }

    /// Check that methods come class by class, and that what ends too early or too late is no list.
    #[test]
    fn reads_methods() {
        let row =
            [&1_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"m", &3_u32.to_le_bytes(), b"()V"];
        let bytes = [&row.concat()[..], &0_u32.to_le_bytes()].concat();
        let method = DeclaredMethod { name: "m".into(), signature: "()V".into(), flags: 9 };
        assert_eq!(methods_listed(2, &bytes), Some(vec![vec![method], vec![]]));
        assert_eq!((methods_listed(1, &bytes), methods_listed(3, &bytes)), (None, None));
        assert_eq!(methods_listed(2, &bytes[..bytes.len() - 4]), None);
    }

    /// Check that hidden classes are called what Java calls them.
    #[test]
    fn hidden_classes() {
        assert_eq!(hidden("a.B$$Lambda.0x00007f"), "a.B$$Lambda/0x00007f");
        assert_eq!(hidden("a.B"), "a.B");
    }
}
