//! Symbols: the functions and variables that a file names.

use object::elf::{SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_TLS, SectionHeader64, SectionType, Sym64};
use object::read::elf::{SectionHeader as _, Sym as _};
use object::{LittleEndian, ReadRef};

use super::Fault;
use crate::model::ElfAddr;

/// The longest name that is looked at, in bytes, and what all names that are asked for may take together.
const MAX_NAME: usize = 16 << 10;
const MAX_NAMES: usize = 64 << 20;

/// The symbols of one table.
#[derive(Debug, Default)]
pub struct Symbols<'data> {
    symbols: &'data [Sym64<LittleEndian>],
    names: &'data [u8],
}

impl<'data> Symbols<'data> {
    /// Reads the first table of a kind; one without symbols if there is none.
    pub(super) fn read(
        sections: &[SectionHeader64<LittleEndian>],
        kind: SectionType,
        limit: u64,
        data: impl ReadRef<'data>,
    ) -> Result<Self, Fault> {
        let table = sections.iter().find(|section| section.sh_type(LittleEndian) == kind);
        let names = table.and_then(|table| sections.get(table.sh_link(LittleEndian) as usize));
        let Some((table, names)) = table.zip(names) else { return Ok(Self::default()) };
        if table.sh_size(LittleEndian).max(names.sh_size(LittleEndian)) > limit {
            return Err(Fault::TooLarge);
        }
        Ok(Self { symbols: table.data_as_array(LittleEndian, data)?, names: names.data(LittleEndian, data)? })
    }

    /// The addresses of what is in the file.
    pub fn addresses(&self) -> impl Iterator<Item = ElfAddr> {
        self.defined().map(address)
    }

    /// The addresses of functions. Other things, such as labels, are left out.
    pub fn functions(&self) -> impl Iterator<Item = ElfAddr> {
        self.defined().filter(|symbol| symbol.st_type() == STT_FUNC).map(address)
    }

    /// Name and address of what is in the file under a name that begins with one of these. An item is an error if the name has
    /// no end, or all names together are longer than those of any real library.
    pub fn named(&self, beginnings: &[&str]) -> impl Iterator<Item = Result<(&'data str, ElfAddr), Fault>> {
        let mut left = MAX_NAMES;
        self.defined().filter_map(move |symbol| {
            let name = self.name(symbol, beginnings, &mut left).transpose()?;
            Some(name.map(|name| (name, address(symbol))))
        })
    }

    /// Address and size, in bytes, of the first function with just this name.
    ///
    /// # Errors
    /// If a name that begins like it has no end.
    pub fn function(&self, name: &str) -> Result<Option<(ElfAddr, u64)>, Fault> {
        let mut left = MAX_NAMES;
        for symbol in self.defined().filter(|symbol| symbol.st_type() == STT_FUNC) {
            if self.name(symbol, &[name], &mut left)? == Some(name) {
                return Ok(Some((address(symbol), symbol.st_size(LittleEndian))));
            }
        }
        Ok(None)
    }

    /// What is in the file: not in another one, no variable of a thread, and no function that chooses the function.
    fn defined(&self) -> impl Iterator<Item = &'data Sym64<LittleEndian>> {
        self.symbols.iter().filter(|symbol| {
            symbol.st_shndx(LittleEndian) != SHN_UNDEF && !matches!(symbol.st_type(), STT_TLS | STT_GNU_IFUNC)
        })
    }

    /// The name of a symbol, if it begins with one of these. Its length is taken from what is `left` for names.
    fn name(
        &self,
        symbol: &Sym64<LittleEndian>,
        beginnings: &[&str],
        left: &mut usize,
    ) -> Result<Option<&'data str>, Fault> {
        let rest = self.names.get(symbol.st_name(LittleEndian) as usize..).unwrap_or_default();
        if !beginnings.iter().any(|beginning| rest.starts_with(beginning.as_bytes())) {
            return Ok(None);
        }
        let name = &rest[..rest.len().min(MAX_NAME)];
        let end = name.iter().position(|&byte| byte == 0).ok_or(Fault::TooLarge)?;
        *left = left.checked_sub(end).ok_or(Fault::TooLarge)?;
        Ok(str::from_utf8(&name[..end]).ok())
    }
}

fn address(symbol: &Sym64<LittleEndian>) -> ElfAddr {
    ElfAddr(symbol.st_value(LittleEndian))
}

#[cfg(test)]
mod tests {
    use object::pod;

    use super::*;

    /// Symbols as they stand in a file: each of section 1, with a place in the names and an address.
    fn words(symbols: &[(u64, u64)]) -> Vec<u64> {
        symbols.iter().flat_map(|(name, address)| [name | 1 << 48, *address, 0]).collect()
    }

    fn symbols<'a>(words: &'a [u64], names: &'a [u8]) -> Symbols<'a> {
        Symbols { symbols: pod::slice_from_all_bytes(pod::bytes_of_slice(words)).unwrap(), names }
    }

    /// Check that names are chosen by how they begin, and that a place outside of the names has none.
    #[test]
    fn names_by_their_beginning() {
        let words = words(&[(0, 1), (4, 2), (6, 3), (99, 4)]);
        let symbols = symbols(&words, b"abc\0b\0ad\0");
        let named: Vec<(&str, ElfAddr)> = symbols.named(&["a", "x"]).map(Result::unwrap).collect();
        assert_eq!(named, [("abc", ElfAddr(1)), ("ad", ElfAddr(3))]);
        assert_eq!(symbols.addresses().count(), 4);
    }

    /// Check that a function is found by its whole name, and that other things of that name are none.
    #[test]
    fn a_function_by_its_name() {
        let words: Vec<u64> = [(4, 1, 0), (0, 2, 1), (0, 2, 9)]
            .iter()
            .flat_map(|(name, kind, at)| [name | kind << 32 | 1 << 48, *at, 7])
            .collect();
        let symbols = symbols(&words, b"abc\0b\0");
        assert_eq!(symbols.function("abc").unwrap(), Some((ElfAddr(1), 7)));
        assert_eq!([symbols.function("ab").unwrap(), symbols.function("b").unwrap()], [None; 2]);
    }

    /// Check that a name without an end, a long one, and one that many symbols share are refused before they are copied.
    #[test]
    fn hostile_names_are_refused() {
        let refused = |words: &[u64], names: &[u8]| {
            let last = symbols(words, names).named(&["a"]).last();
            matches!(last, Some(Err(Fault::TooLarge)))
        };
        let one = words(&[(0, 1)]);
        assert!(refused(&one, b"abc"));
        let long = |length: usize| [vec![b'a'; length], vec![0]].concat();
        assert!(refused(&one, &long(MAX_NAME)) && !refused(&one, &long(MAX_NAME - 1)));
        let shared = |count: usize| words(&vec![(0, 1); count]);
        let most = MAX_NAMES / (MAX_NAME - 1);
        assert!(refused(&shared(most + 1), &long(MAX_NAME - 1)) && !refused(&shared(most), &long(MAX_NAME - 1)));
    }
}
