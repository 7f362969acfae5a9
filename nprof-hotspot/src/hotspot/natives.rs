//! Finds the native methods of classes: from a class to its methods, to those that are native, to their names.
//!
//! Every stage reads one kind of struct for many methods at once. A method that fails a check is dropped and its class
//! is handed back to be looked at again: either it is being unloaded, or it is being redefined.

use super::layout::{Layout, Number};
use super::memory::{MemoryError, Reader, RemoteMemory, at, is_plausible, number};
use super::names;
use super::walk::{Budget, Klass};
use crate::model::{SharedStr, VirtAddr};

/// `JVM_ACC_NATIVE`, from the class file format.
const ACC_NATIVE: u64 = 0x100;
/// A class file holds no more methods.
const MAX_METHODS: usize = 65_535;
/// Classes whose method arrays are read together.
const CLASSES_AT_ONCE: usize = 512;
/// Methods whose flags are read together; a class with more is read alone.
const METHODS_AT_ONCE: usize = 4_096;
/// Methods whose names are read together: no more than 12 MB, however long the names say that they are.
const NAMES_AT_ONCE: usize = 64;

/// What a native method takes beside its names, about.
pub(super) const NATIVE_BYTES: usize = 256;

/// A class with native methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NativeClass {
    pub(super) klass: Klass,
    pub(super) natives: Vec<Native>,
}

/// A native method, before it is known what it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Native {
    /// Its `Method*`.
    pub(super) method: VirtAddr,
    /// Its `ConstMethod*`: another one would mean another method.
    pub(super) const_method: VirtAddr,
    pub(super) class: SharedStr,
    pub(super) name: SharedStr,
    pub(super) signature: SharedStr,
}

/// What was found in some classes.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) classes: Vec<NativeClass>,
    /// Classes that could not be read whole.
    pub(super) failed: Vec<Klass>,
}

/// Finds the native methods of `klasses`, all of which are loaded.
pub(super) fn find<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &Layout,
    klasses: &[Klass],
    budget: &mut Budget,
) -> Result<Found, MemoryError> {
    let mut found = Found::default();
    for chunk in klasses.chunks(CLASSES_AT_ONCE) {
        let mut search = Search {
            reader: &mut *reader,
            layout,
            budget: &mut *budget,
            klasses: chunk,
            failed: vec![false; chunk.len()],
        };
        let natives = search.run()?;
        let failed = std::mem::take(&mut search.failed);
        group(chunk, natives, &mut found.classes);
        let failed = chunk.iter().zip(failed).filter(|(_, failed)| *failed);
        found.failed.extend(failed.map(|(klass, _)| *klass));
    }
    Ok(found)
}

/// Puts the natives, which are in the order of `klasses`, with their classes.
fn group(klasses: &[Klass], natives: Vec<(usize, Native)>, classes: &mut Vec<NativeClass>) {
    let mut last = None;
    for (class, native) in natives {
        if last != Some(class) {
            last = Some(class);
            classes.push(NativeClass { klass: klasses[class], natives: Vec::new() });
        }
        if let Some(open) = classes.last_mut() {
            open.natives.push(native);
        }
    }
}

/// The search in one chunk of classes.
struct Search<'a, M> {
    reader: &'a mut Reader<M>,
    layout: &'a Layout,
    budget: &'a mut Budget,
    klasses: &'a [Klass],
    /// Which of `klasses` could not be read whole.
    failed: Vec<bool>,
}

/// A method on its way through the stages; fields are filled from top to bottom.
#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    /// Index of its class in the chunk.
    class: usize,
    method: VirtAddr,
    const_method: VirtAddr,
    pool: VirtAddr,
    /// Indices of name and signature in the constant pool.
    indices: [u64; 2],
    /// Symbols of class, name and signature, and their lengths in bytes.
    symbols: [VirtAddr; 3],
    lengths: [usize; 3],
}

impl<M: RemoteMemory> Search<'_, M> {
    fn run(&mut self) -> Result<Vec<(usize, Native)>, MemoryError> {
        let arrays = self.array_lengths()?;
        let mut natives = Vec::new();
        let mut rest = &arrays[..];
        while !rest.is_empty() {
            let (group, after) = rest.split_at(group_len(rest));
            let mut candidates = self.methods(group)?;
            self.keep_native(&mut candidates)?;
            self.find_pools(&mut candidates)?;
            self.find_symbols(&mut candidates)?;
            for chunk in candidates.chunks(NAMES_AT_ONCE) {
                self.read_names(chunk, &mut natives)?;
            }
            rest = after;
        }
        Ok(natives)
    }

    /// The classes that have methods, with the number of those.
    fn array_lengths(&mut self) -> Result<Vec<(usize, usize)>, MemoryError> {
        let length = self.layout.array.length;
        let lengths = self.reader.numbers_of(self.klasses, |klass| [field(klass.methods, length)])?;
        let mut arrays = Vec::new();
        for (class, length) in lengths.into_iter().enumerate() {
            let length = length.and_then(|[length]| usize::try_from(length).ok());
            match length.filter(|&length| length <= MAX_METHODS) {
                Some(0) => {}
                Some(length) if self.budget.take(|budget| &mut budget.methods, length) => {
                    arrays.push((class, length));
                }
                _ => self.failed[class] = true,
            }
        }
        Ok(arrays)
    }

    /// Every method of the classes in `arrays`.
    fn methods(&mut self, arrays: &[(usize, usize)]) -> Result<Vec<Candidate>, MemoryError> {
        let Self { reader, layout, klasses, failed, .. } = self;
        let mut candidates = Vec::new();
        let run = |&(class, length): &(usize, usize)| (at(klasses[class].methods, layout.array.data), length * 8);
        reader.runs_of(arrays, run, |index, pointers| {
            let (class, _) = arrays[index];
            let Some(pointers) = pointers else {
                failed[class] = true;
                return;
            };
            candidates.extend(pointers.chunks_exact(8).map(|pointer| Candidate {
                class,
                method: VirtAddr(number(pointer)),
                ..Candidate::default()
            }));
        })?;
        Ok(candidates)
    }

    /// Drops the methods that are not native.
    fn keep_native(&mut self, candidates: &mut Vec<Candidate>) -> Result<(), MemoryError> {
        let flags = self.layout.method.access_flags;
        let flags = self.reader.numbers_of(candidates, |method| [(at(method.method, flags), 2)])?;
        let mut flags = flags.into_iter();
        candidates.retain(|candidate| match flags.next().flatten() {
            Some([flags]) => flags & ACC_NATIVE != 0,
            None => {
                self.failed[candidate.class] = true;
                false
            }
        });
        Ok(())
    }

    /// Follows a method to its constant pool and checks that this belongs to the method's class.
    fn find_pools(&mut self, candidates: &mut Vec<Candidate>) -> Result<(), MemoryError> {
        let Layout { method, pool, .. } = self.layout;
        let klasses = self.klasses;
        self.stage(
            candidates,
            |candidate| [(at(candidate.method, method.const_method), 8)],
            |candidate, [const_method]| {
                candidate.const_method = VirtAddr(const_method);
                true
            },
        )?;
        self.stage(
            candidates,
            |candidate| {
                [
                    (at(candidate.const_method, method.constants), 8),
                    field(candidate.const_method, method.name_index),
                    field(candidate.const_method, method.signature_index),
                ]
            },
            |candidate, [pool, name, signature]| {
                candidate.pool = VirtAddr(pool);
                candidate.indices = [name, signature];
                true
            },
        )?;
        self.stage(
            candidates,
            |candidate| [(at(candidate.pool, pool.holder), 8), field(candidate.pool, pool.length)],
            |candidate, [holder, length]| {
                // Entry 0 of a constant pool is not used, and no class file has more than 65,535.
                let in_pool = |&index: &u64| (1..length.min(1 << 16)).contains(&index);
                holder == klasses[candidate.class].addr.0 && candidate.indices.iter().all(in_pool)
            },
        )
    }

    /// Finds the symbols of class, name and signature.
    fn find_symbols(&mut self, candidates: &mut Vec<Candidate>) -> Result<(), MemoryError> {
        let Layout { pool, symbol, .. } = self.layout;
        let klasses = self.klasses;
        self.stage(
            candidates,
            |candidate| {
                let entry = |index| (at(candidate.pool, pool.entries + 8 * index), 8);
                candidate.indices.map(entry)
            },
            |candidate, [name, signature]| {
                // The lowest bit is a tag.
                let [name, signature] = [name, signature].map(|entry| VirtAddr(entry & !1));
                candidate.symbols = [klasses[candidate.class].name, name, signature];
                true
            },
        )?;
        self.stage(
            candidates,
            |candidate| candidate.symbols.map(|at| field(at, symbol.length)),
            |candidate, lengths| {
                // Symbols are not longer than two bytes can say, however wide the field is.
                candidate.lengths = lengths.map(|length| (length & 0xffff) as usize);
                true
            },
        )
    }

    /// Reads the same numbers of every candidate and drops those that lack one or that `accept` refuses.
    fn stage<const N: usize>(
        &mut self,
        candidates: &mut Vec<Candidate>,
        wanted: impl Fn(&Candidate) -> [(VirtAddr, usize); N],
        accept: impl Fn(&mut Candidate, [u64; N]) -> bool,
    ) -> Result<(), MemoryError> {
        let mut numbers = self.reader.numbers_of(candidates, wanted)?.into_iter();
        candidates.retain_mut(|candidate| {
            let good = numbers.next().flatten().is_some_and(|numbers| accept(candidate, numbers));
            self.failed[candidate.class] |= !good;
            good
        });
        Ok(())
    }

    /// Reads the text of the three symbols of each candidate and keeps those that are names.
    fn read_names(&mut self, candidates: &[Candidate], natives: &mut Vec<(usize, Native)>) -> Result<(), MemoryError> {
        let runs: Vec<(VirtAddr, usize)> =
            candidates.iter().flat_map(|candidate| candidate.symbols.into_iter().zip(candidate.lengths)).collect();
        let body = self.layout.symbol.body;
        let mut texts = Vec::with_capacity(runs.len());
        self.reader.runs_of(
            &runs,
            |&(symbol, length)| (at(symbol, body), length),
            |_, text| texts.push(text.and_then(names::decode)),
        )?;
        for (candidate, texts) in candidates.iter().zip(texts.chunks_exact(3)) {
            let bytes: usize = candidate.lengths.iter().sum();
            match named(candidate, texts) {
                Some(native) if self.budget.take(|budget| &mut budget.name_bytes, bytes + NATIVE_BYTES) => {
                    self.reader.take(bytes + NATIVE_BYTES)?;
                    natives.push((candidate.class, native));
                }
                _ => self.failed[candidate.class] = true,
            }
        }
        Ok(())
    }
}

/// How many of `arrays` to read together.
fn group_len(arrays: &[(usize, usize)]) -> usize {
    let mut methods = 0;
    let fit = arrays.iter().take_while(|(_, length)| {
        methods += length;
        methods <= METHODS_AT_ONCE
    });
    fit.count().max(1)
}

/// The native method with these texts for class, name and signature, if they can be that.
fn named(candidate: &Candidate, texts: &[Option<String>]) -> Option<Native> {
    let [Some(class), Some(name), Some(signature)] = texts else {
        return None;
    };
    let legal =
        names::is_method_name(name) && names::is_method_descriptor(signature) && is_plausible(candidate.const_method);
    Some(Native {
        method: candidate.method,
        const_method: candidate.const_method,
        class: names::class_name(class)?.into(),
        name: name.as_str().into(),
        signature: signature.as_str().into(),
    })
    .filter(|_| legal)
}

fn field(base: VirtAddr, number: Number) -> (VirtAddr, usize) {
    (at(base, number.offset), number.width)
}
