//! How a native frame is called.
//!
//! A function has many addresses, so its name is demangled once and shared. Names come from the target's files: their
//! length is bounded, also after demangling, which can make a short name very long.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use blazesym::symbolize::{CodeInfo, Sym};
use cpp_demangle::DemangleOptions;

use crate::model::ElfAddr;

/// The longest name, in bytes; templates of libjvm reach one thousand.
const MAX_NAME: usize = 16 << 10;
/// How many functions inlined into each other are told.
const MAX_INLINED: usize = 100;

/// One function at one place, as people want to see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// The demangled name; `libx.so+0x1234` where nothing names it: where the function begins, in the file's own
    /// numbering, or the very address if that is not known either. `[unknown]` outside of all libraries.
    pub function: Arc<str>,
    /// The library's file name; empty outside of all libraries.
    pub library: Arc<str>,
    /// The source file, where debug information tells it.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// Whether the compiler has inlined it into the frame that follows it.
    pub inlined: bool,
    /// Whether it belongs to the VM.
    pub is_vm: bool,
}

/// The library that names are given in.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) library: Arc<str>,
    pub(super) is_vm: bool,
}

impl Owner {
    /// The frame of a function.
    fn frame(&self, function: Arc<str>) -> NativeFrame {
        let library = Arc::clone(&self.library);
        NativeFrame { function, library, file: None, line: None, inlined: false, is_vm: self.is_vm }
    }

    /// The frame of a function without a name.
    pub(super) fn nameless(&self, address: u64) -> Arc<[NativeFrame]> {
        Arc::from([self.frame(format!("{}+{address:#x}", self.library).into())])
    }
}

/// The frame of an address that lies in no library.
pub(super) fn unknown() -> Arc<[NativeFrame]> {
    let owner = Owner { library: "".into(), is_vm: false };
    Arc::from([owner.frame("[unknown]".into())])
}

/// Names that were given before.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the name that the file has.
    functions: HashMap<Box<str>, Arc<str>>,
    files: HashMap<Box<str>, Arc<str>>,
    /// Functions without a name, by library and place.
    nameless: HashMap<(Arc<str>, ElfAddr), Arc<[NativeFrame]>>,
    /// What all of them take, in bytes.
    size: usize,
}

impl Names {
    /// What the names take, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The frames that a symbol stands for, the innermost first.
    pub(super) fn frames(&mut self, symbol: &Sym<'_>, owner: &Owner) -> Arc<[NativeFrame]> {
        let mut frames = Vec::new();
        for inner in symbol.inlined.iter().rev().take(MAX_INLINED) {
            frames.push(NativeFrame { inlined: true, ..self.frame(&inner.name, inner.code_info.as_ref(), owner) });
        }
        frames.push(self.frame(&symbol.name, symbol.code_info.as_deref(), owner));
        frames.into()
    }

    /// The frame of a function without a name: one for all its addresses.
    pub(super) fn nameless(&mut self, start: ElfAddr, owner: &Owner) -> Arc<[NativeFrame]> {
        let frames = self.nameless.entry((Arc::clone(&owner.library), start)).or_insert_with(|| {
            let frames = owner.nameless(start.0);
            self.size += frames[0].function.len();
            frames
        });
        Arc::clone(frames)
    }

    fn frame(&mut self, function: &str, place: Option<&CodeInfo<'_>>, owner: &Owner) -> NativeFrame {
        let function = keep(&mut self.functions, &mut self.size, function, readable);
        let path = place.map(|place| place.to_path().to_string_lossy().into_owned());
        let file = path.map(|path| keep(&mut self.files, &mut self.size, &path, |path| shortened(path.to_owned())));
        NativeFrame { file, line: place.and_then(|place| place.line), ..owner.frame(function) }
    }
}

/// What was made of a name before, or what `make` makes of it.
fn keep(known: &mut HashMap<Box<str>, Arc<str>>, size: &mut usize, name: &str, make: fn(&str) -> String) -> Arc<str> {
    if let Some(known) = known.get(name) {
        return Arc::clone(known);
    }
    let made: Arc<str> = make(name).into();
    *size += name.len() + made.len();
    known.insert(name.into(), Arc::clone(&made));
    made
}

/// A C++ or Rust name as people write it; any other as it is.
fn readable(mangled: &str) -> String {
    let demangled = if mangled.len() > MAX_NAME { None } else { rust(mangled).or_else(|| cpp(mangled)) };
    demangled.unwrap_or_else(|| shortened(mangled.to_owned()))
}

fn rust(mangled: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(mangled).ok()?;
    let mut text = Bounded::default();
    write!(text, "{name:#}").ok()?;
    Some(text.0)
}

fn cpp(mangled: &str) -> Option<String> {
    // Only these are C++: the parser takes other names for types.
    if !mangled.starts_with("_Z") && !mangled.starts_with("__Z") {
        return None;
    }
    let name = cpp_demangle::Symbol::new(mangled).ok()?;
    let mut text = Bounded::default();
    name.structured_demangle(&mut text, &DemangleOptions::default()).ok()?;
    Some(text.0)
}

/// A name of bearable length.
fn shortened(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

/// Text that refuses to become longer than a name may be.
#[derive(Debug, Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that C++ and Rust names become readable, and that others stay.
    #[test]
    fn names_are_demangled() {
        for (mangled, expected) in [
            ("_ZN9JavaCalls11call_helperEP9JavaValue", "JavaCalls::call_helper(JavaValue*)"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("JVM_Sleep", "JVM_Sleep"),
            ("_Zthis is none", "_Zthis is none"),
            ("i", "i"),
        ] {
            assert_eq!(readable(mangled), expected);
        }
    }

    /// Check that a name whose readable form would double with each letter stays bounded.
    #[test]
    fn exploding_names_are_bounded() {
        assert!(readable(&doubling(8)).len() > 256, "it is no C++ name");
        for mangled in [doubling(60), "x".repeat(1 << 20)] {
            assert!(readable(&mangled).len() <= MAX_NAME, "{mangled:.80}");
        }
    }

    /// `f(P<i, i>, P<that, that>, P<that, that>, …)`: the n-th parameter is twice as long as the one before.
    fn doubling(parameters: usize) -> String {
        const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let substitution = |number: usize| match number {
            0 => "S_".to_owned(),
            more if more <= 36 => format!("S{}_", char::from(DIGITS[more - 1])),
            more => format!("S1{}_", char::from(DIGITS[more - 37])),
        };
        // S_ is P itself, S0_ the first pair, S1_ the second.
        let mut name = "_Z1f1PIiiE".to_owned();
        for number in 1..parameters {
            let before = substitution(number);
            name.push_str(&format!("S_I{before}{before}E"));
        }
        name
    }

    /// Check that the same name is the same text, so that it is kept once.
    #[test]
    fn names_are_shared() {
        let mut names = Names::default();
        let owner = Owner { library: "libx.so".into(), is_vm: false };
        let first = names.frame("_ZN1A1bEv", None, &owner);
        let size = names.size();
        let again = names.frame("_ZN1A1bEv", None, &owner);
        assert!(Arc::ptr_eq(&first.function, &again.function));
        assert_eq!((&*first.function, names.size()), ("A::b()", size));
    }
}
