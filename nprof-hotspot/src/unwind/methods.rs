//! From a `Method*` to its names, its bytecodes' place and its lines; read once and remembered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::MethodName;
use super::assumption::{Assumption, joined};
use super::freshness::ReadAt;
use super::layout::CodeLayout;
use super::lines::Lines;
use super::symbols::read_texts;
use crate::hotspot::{Number, Reader, RemoteMemory, at, class_name, is_method_descriptor, is_plausible};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// `JVM_ACC_NATIVE`, from the class file format.
const ACC_NATIVE: u64 = 0x100;
/// Of the flags of a `ConstMethod`, in every version.
const HAS_LINES: u64 = 1;
/// More than the bytecodes (64 KB) and all that follows them take.
const MAX_CONST_METHOD: u64 = 1 << 20;
/// Programs have fewer methods on their stacks; beyond, the cache starts over.
const MAX_CACHED: usize = 1 << 17;

/// What is known of a method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: Arc<MethodName>,
    /// Whether the VM leaves its frames out of stack traces.
    pub(super) hidden: bool,
    pub(super) assumptions: Vec<Assumption>,
    pub(super) read_at: ReadAt,
    /// The loader of its class.
    pub(super) loader: VirtAddr,
    /// Address of the first bytecode, and how many bytes there are.
    code: VirtAddr,
    code_size: u64,
    lines: Lines,
}

impl Method {
    /// The index of the bytecode at an address; `None` if it is none of this method's. A native method has none, its
    /// frames are at 0.
    pub(super) fn bci(&self, bytecode: VirtAddr) -> Option<u16> {
        if self.name.is_native {
            return Some(0);
        }
        let offset = bytecode.0.checked_sub(self.code.0).filter(|&offset| offset < self.code_size)?;
        u16::try_from(offset).ok()
    }

    /// Whether a bytecode of this method lies at an address.
    pub(super) fn has_bytecode(&self, bytecode: VirtAddr) -> bool {
        bytecode.0.checked_sub(self.code.0).is_some_and(|offset| offset < self.code_size)
    }

    /// The line of a bytecode index, if it is known.
    pub(super) fn line(&self, bci: u16) -> Option<u32> {
        if self.name.is_native { None } else { self.lines.line(bci) }
    }
}

/// The methods that have been met, by their `Method*`.
#[derive(Debug, Default)]
pub(super) struct Methods {
    known: HashMap<VirtAddr, Arc<Method>>,
    texts: HashSet<Arc<str>>,
}

impl Methods {
    /// The method at `addr`; `None` if there is none.
    pub(super) fn get<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        addr: VirtAddr,
    ) -> Result<Option<Arc<Method>>, MemoryError> {
        if let Some(known) = self.known.get(&addr) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(method) = self.read(reader, layout, addr)? else {
            return Ok(None);
        };
        if self.known.len() >= MAX_CACHED {
            self.clear();
        }
        let method = Arc::new(method);
        self.known.insert(addr, Arc::clone(&method));
        Ok(Some(method))
    }

    pub(super) fn known(&self, addr: VirtAddr) -> Option<&Arc<Method>> {
        self.known.get(&addr)
    }

    pub(super) fn forget(&mut self, addr: VirtAddr) {
        self.known.remove(&addr);
    }

    fn clear(&mut self) {
        self.known.clear();
        self.texts.clear();
    }

    fn read<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        addr: VirtAddr,
    ) -> Result<Option<Method>, MemoryError> {
        let Some(parts) = Parts::read(reader, layout, addr)? else {
            return Ok(None);
        };
        // Before the texts: a text that is newer than its symbol is noticed.
        let symbols = symbol_assumptions(reader, layout, &parts.symbols)?;
        let texts = read_texts(reader, &layout.names, &parts.symbols)?;
        let Ok([Some(class), Some(name), Some(signature)]) = <[_; 3]>::try_from(texts) else {
            return Ok(None);
        };
        let Some(mut class) = class_name(&class).filter(|_| is_name(&name) && is_method_descriptor(&signature)) else {
            return Ok(None);
        };
        if let Some(klass) = parts.anonymous {
            // As the VM tells it.
            class.push_str(&format!("/{:#018x}", klass.0));
        }
        let name = MethodName {
            class: self.intern(class),
            name: self.intern(name),
            signature: self.intern(signature),
            is_native: parts.flags & ACC_NATIVE != 0,
        };
        let hidden = parts.hidden || is_continuation_entry(&name);
        let code = at(parts.const_method, layout.const_method.size);
        let lines = parts.read_lines(reader, layout)?;
        let mut assumptions = parts.assumptions;
        assumptions.extend(symbols);
        let assumptions = joined(assumptions);
        let read_at = ReadAt::default();
        let (loader, code_size) = (parts.loader, parts.code_size);
        Ok(Some(Method { name: Arc::new(name), hidden, assumptions, read_at, loader, code, code_size, lines }))
    }

    fn intern(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}

/// A method on its way: what the VM's structs say of it.
#[derive(Debug)]
struct Parts {
    const_method: VirtAddr,
    flags: u64,
    const_flags: u64,
    hidden: bool,
    total_bytes: u64,
    code_size: u64,
    /// Of class, name and signature.
    symbols: [VirtAddr; 3],
    loader: VirtAddr,
    /// The class, if only its address tells it from others of its name.
    anonymous: Option<VirtAddr>,
    assumptions: Vec<Assumption>,
}

impl Parts {
    fn read<M: RemoteMemory>(
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        addr: VirtAddr,
    ) -> Result<Option<Self>, MemoryError> {
        let method = &layout.names.method;
        let access_flags = Number { offset: method.access_flags, width: 2 };
        let own_flags = layout.hidden.filter(|hidden| !hidden.in_const_method).map_or(access_flags, |h| h.flags);
        let own = [(at(addr, method.const_method), 8), number_at(addr, access_flags), number_at(addr, own_flags)];
        let Some([const_method, flags, own_flags]) = reader.numbers(own)? else {
            return Ok(None);
        };
        let const_method = VirtAddr(const_method);
        let const_layout = &layout.const_method;
        let wanted = [
            (at(const_method, method.constants), 8),
            number_at(const_method, method.name_index),
            number_at(const_method, method.signature_index),
            number_at(const_method, const_layout.flags),
            number_at(const_method, const_layout.total_words),
            number_at(const_method, const_layout.code_size),
        ];
        let Some([pool, name_index, signature_index, const_flags, words, code_size]) = reader.numbers(wanted)? else {
            return Ok(None);
        };
        let hidden = layout.hidden.is_some_and(|hidden| {
            let flags = if hidden.in_const_method { const_flags } else { own_flags };
            flags & hidden.mask != 0
        });
        let total_bytes = words.saturating_mul(8);
        let fits = const_layout.size + code_size <= total_bytes && total_bytes <= MAX_CONST_METHOD;
        let indices = [name_index, signature_index];
        let found = read_symbols(reader, layout, VirtAddr(pool), indices)?;
        let Some(Symbols { klass, symbols, entries }) = found.filter(|_| fits) else {
            return Ok(None);
        };
        let Some([loader]) = reader.numbers([(at(klass, layout.names.klass.loader), 8)])? else {
            return Ok(None);
        };
        let loader = VirtAddr(loader);
        let anonymous = is_anonymous(reader, layout, loader)?.then_some(klass);
        let read = [(wanted[0], pool), (wanted[1], name_index), (wanted[2], signature_index), (wanted[5], code_size)];
        let mut assumptions = read.map(|((addr, width), value)| Assumption { addr, width, value }).to_vec();
        let pointer = |addr, value| Assumption { addr, width: 8, value };
        assumptions.push(pointer(own[0].0, const_method.0));
        assumptions.push(pointer(at(VirtAddr(pool), layout.names.pool.holder), klass.0));
        assumptions.push(pointer(at(klass, layout.names.klass.name), symbols[0].0));
        assumptions.extend(entries);
        Ok(Some(Self {
            const_method,
            flags,
            const_flags,
            hidden,
            total_bytes,
            code_size,
            symbols,
            loader,
            anonymous,
            assumptions,
        }))
    }

    /// Reads the line table, which follows the bytecodes.
    fn read_lines<M: RemoteMemory>(&self, reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Lines, MemoryError> {
        if self.const_flags & HAS_LINES == 0 {
            return Ok(Lines::default());
        }
        let start = layout.const_method.size + self.code_size;
        let length = usize::try_from(self.total_bytes - start).unwrap_or_default();
        let run = [(at(self.const_method, start), length)];
        let mut lines = Lines::default();
        reader.runs_of(
            &run,
            |run| *run,
            |_, bytes| lines = Lines::unpack(bytes.unwrap_or_default(), layout.versioned.packed_excess),
        )?;
        Ok(lines)
    }
}

/// Whether a class is an anonymous one, which has the loader data to itself. JDKs from 15 on have hidden ones in their place,
/// with their own names.
fn is_anonymous<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    loader: VirtAddr,
) -> Result<bool, MemoryError> {
    let Some(offset) = layout.anonymous else {
        return Ok(false);
    };
    Ok(reader.numbers([(at(loader, offset), 1)])?.is_some_and(|[flag]| flag != 0))
}

/// What shows that names are still the same, should their memory be used for others: the VM frees those of a class that goes, and
/// the next class may have its own in their places.
fn symbol_assumptions<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    symbols: &[VirtAddr],
) -> Result<Vec<Assumption>, MemoryError> {
    let Some(tag) = layout.symbol_tag else {
        return Ok(Vec::new());
    };
    let tags = reader.numbers_of(symbols, |&symbol| [number_at(symbol, tag)])?;
    let assumption = |(&symbol, value): (&VirtAddr, Option<[u64; 1]>)| {
        let (addr, width) = number_at(symbol, tag);
        // One that cannot be read any more is an assumption as well: it will not hold.
        Assumption { addr, width, value: value.map_or(u64::MAX, |[value]| value) }
    };
    Ok(symbols.iter().zip(tags).map(assumption).collect())
}

/// What leads from a constant pool to a method's names.
#[derive(Debug)]
struct Symbols {
    /// The class that the pool belongs to.
    klass: VirtAddr,
    /// Of class, name and signature.
    symbols: [VirtAddr; 3],
    /// The pool's entries for name and signature.
    entries: [Assumption; 2],
}

/// What leads from a constant pool to the names at two indices; `None` if nothing does.
fn read_symbols<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    pool: VirtAddr,
    indices: [u64; 2],
) -> Result<Option<Symbols>, MemoryError> {
    let names = &layout.names;
    let entry = |index: u64| (at(pool, names.pool.entries + 8 * index), 8);
    let wanted =
        [(at(pool, names.pool.holder), 8), number_at(pool, names.pool.length), entry(indices[0]), entry(indices[1])];
    let Some([klass, length, name, signature]) = reader.numbers(wanted)? else {
        return Ok(None);
    };
    // Entry 0 of a constant pool is not used, and no class file has more than 65,535.
    let in_pool = |index: &u64| (1..length.min(1 << 16)).contains(index);
    let klass = VirtAddr(klass);
    if !indices.iter().all(in_pool) || !is_plausible(klass) {
        return Ok(None);
    }
    let class = reader.numbers([(at(klass, names.klass.name), 8)])?;
    let entries = [(wanted[2], name), (wanted[3], signature)];
    let entries = entries.map(|((addr, width), value)| Assumption { addr, width, value });
    // The lowest bit is a tag.
    let symbols = |class| [VirtAddr(class), VirtAddr(name & !1), VirtAddr(signature & !1)];
    Ok(class.map(|[class]| Symbols { klass, symbols: symbols(class), entries }))
}

fn number_at(base: VirtAddr, number: Number) -> (VirtAddr, usize) {
    (at(base, number.offset), number.width)
}

/// Whether it is the method in which the VM enters virtual threads: its stack traces end before.
fn is_continuation_entry(name: &MethodName) -> bool {
    &*name.class == "jdk.internal.vm.Continuation" && &*name.name == "enterSpecial"
}

/// Whether any method can have that name (JVMS 4.2.2).
fn is_name(name: &str) -> bool {
    matches!(name, "<init>" | "<clinit>") || !name.is_empty() && !name.contains(['.', ';', '[', '/', '<', '>'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that constructors are methods, unlike what has separators in its name.
    #[test]
    fn knows_names() {
        assert!(["<init>", "<clinit>", "größe$1", "lambda$0"].into_iter().all(is_name));
        assert!(["", "<other>", "a/b", "a;"].into_iter().all(|bad| !is_name(bad)));
    }
}
