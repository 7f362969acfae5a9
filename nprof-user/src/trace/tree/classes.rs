//! The loaded classes of a target, as its shim lists them.

use std::collections::HashMap;

use nprof_common::wire::ClassesListed;

use crate::hotspot;

/// A loaded class. Its number is its place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its name, dotted.
    pub name: String,
    /// Its access flags.
    pub modifiers: u16,
    /// Whether the VM lets it be changed, so that its class file can be had.
    pub modifiable: bool,
    /// The number of its loader; 0 for the VM's own.
    pub loader: u32,
    /// The class that it extends.
    pub parent: Option<u32>,
    /// The interfaces that it names.
    pub interfaces: Vec<u32>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct ClassList {
    pub classes: Vec<Listed>,
    by_name: HashMap<String, Vec<u32>>,
}

impl ClassList {
    /// Takes a part of the list, as it was in the area. `None` if it is none: a target may say anything.
    pub(super) fn add(&mut self, part: &ClassesListed, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        for _ in 0..part.count {
            let class = reader.class()?;
            let number = u32::try_from(self.classes.len()).ok()?;
            self.by_name.entry(class.name.clone()).or_default().push(number);
            self.classes.push(class);
        }
        reader.0.is_empty().then_some(())
    }

    /// The classes of a name, which several loaders may have.
    pub(super) fn named(&self, name: &str) -> &[u32] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Takes fields off a part.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn class(&mut self) -> Option<Listed> {
        let [modifiers, loader, parent, interfaces] = [self.number()?, self.number()?, self.number()?, self.number()?];
        let interfaces = (0..interfaces).map(|_| self.number()).collect::<Option<Vec<u32>>>()?;
        let length = usize::try_from(self.number()?).ok()?;
        let name = self.take(length)?;
        let name = hotspot::decode(name).unwrap_or_else(|| String::from_utf8_lossy(name).into_owned());
        let is_class = |&number: &u32| number != ClassesListed::NONE;
        Some(Listed {
            name: name.replace('/', "."),
            modifiers: u16::try_from(modifiers & 0xffff).ok()?,
            modifiable: modifiers & ClassesListed::MODIFIABLE != 0,
            loader,
            parent: Some(parent).filter(is_class),
            interfaces: interfaces.into_iter().filter(is_class).collect(),
        })
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
        let class = Listed {
            name: "a.B$C".into(),
            modifiers: 0x421,
            modifiable: true,
            loader: 3,
            parent: None,
            interfaces: vec![7],
        };
        assert_eq!(list.classes, [class.clone(), class]);
        assert_eq!((list.named("a.B$C"), list.named("a.B")), (&[0, 1][..], &[][..]));
        for length in 0..row.len() {
            assert_eq!(ClassList::default().add(&part(1), &row[..length]), None);
        }
        assert_eq!(ClassList::default().add(&part(1), &[&row[..], &[0]].concat()), None);
    }
}
