//! Where a thread notes that it runs a continuation, and the code that enters continuations.
//!
//! Newer versions say both in their tables. Those that do not are asked for the code of `Continuation.enterSpecial`, which
//! the VM has generated: it makes room on the stack, keeps what the thread has noted until then, and notes its own stack
//! pointer instead. Such instructions are found nowhere else in it, and they name the place.

use super::code_cache::CodeCache;
use super::entered_layout::EnteredLayout;
use super::layout::{CodeLayout, field};
use super::symbols::read_texts;
use crate::hotspot::{Number, Reader, RemoteMemory, at, classes_of_boot_loader};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

const CLASS: &str = "jdk/internal/vm/Continuation";
const METHOD: &str = "enterSpecial";
/// The class has fewer methods.
const MAX_METHODS: u64 = 1 << 10;
/// The generated code is a few hundred bytes long.
const MAX_CODE_BYTES: u64 = 1 << 14;
/// `sub rsp, …` with one byte, `mov rax, [r15 + …]` with four, `mov [rsp + …], rax` with one, `mov [r15 + …], rsp` with four.
const MAKE_ROOM: [u8; 3] = [0x48, 0x83, 0xec];
const LOAD_OLD: [u8; 3] = [0x49, 0x8b, 0x87];
const KEEP_OLD: [u8; 4] = [0x48, 0x89, 0x44, 0x24];
const NOTE_NEW: [u8; 3] = [0x49, 0x89, 0xa7];
/// All of them together.
const PATTERN_BYTES: usize = 4 + 7 + 5 + 7;

/// What was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entered {
    /// Where in a `JavaThread` the stack pointer is noted at which the innermost continuation was entered; zero if none was.
    pub(super) noted: u64,
    /// How many bytes are kept from there on.
    pub(super) size: u64,
    /// An address in the code that enters continuations.
    pub(super) code: VirtAddr,
}

impl EnteredLayout {
    /// Finds it out; `None` as long as the VM has no such code.
    pub(super) fn find<M: RemoteMemory>(
        self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        cache: &mut CodeCache,
    ) -> Result<Option<Entered>, MemoryError> {
        match self {
            Self::Said { noted, size, code } => {
                let read = reader.numbers([(code, 8)])?.filter(|[code]| *code != 0);
                Ok(read.map(|[code]| Entered { noted, size, code: VirtAddr(code) }))
            }
            Self::InCode { code_of_method } => {
                let Some(method) = method(reader, layout)? else {
                    return Ok(None);
                };
                let Some([nmethod]) = reader.numbers([(at(method, code_of_method), 8)])? else {
                    return Ok(None);
                };
                let Some(begin) = cache.find(reader, layout, VirtAddr(nmethod))? else {
                    return Ok(None);
                };
                let Some(code) = cache.get(begin).map(|blob| blob.code.clone()) else {
                    return Ok(None);
                };
                let bytes = code.end.0.saturating_sub(code.start.0).min(MAX_CODE_BYTES);
                let run = [(code.start, usize::try_from(bytes).unwrap_or_default())];
                let mut found = None;
                reader.runs_of(&run, |run| *run, |_, bytes| found = bytes.and_then(noted))?;
                Ok(found.map(|(noted, size)| Entered { noted, size, code: code.start }))
            }
        }
    }
}

/// The `Method` of the class that enters continuations.
fn method<M: RemoteMemory>(reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Option<VirtAddr>, MemoryError> {
    let names = &layout.names;
    let [Some(klass)] = classes_of_boot_loader(reader, names, [CLASS])? else {
        return Ok(None);
    };
    let Some([array]) = reader.numbers([(at(klass, names.klass.methods), 8)])? else {
        return Ok(None);
    };
    let length = names.array.length;
    let length = reader.numbers([(at(VirtAddr(array), length.offset), length.width)])?;
    let Some([length]) = length.filter(|[length]| *length <= MAX_METHODS) else {
        return Ok(None);
    };
    let entry = |index: u64| at(at(VirtAddr(array), names.array.data), 8 * index);
    let entries: Vec<VirtAddr> = (0..length).map(entry).collect();
    let methods = read_pointers(reader, &entries)?;
    let consts = fields(reader, &methods, names.method.const_method)?;
    let pools = fields(reader, &consts, names.method.constants)?;
    let index = names.method.name_index;
    let indices = reader.numbers_of(&consts, |&addr| [(at(addr, index.offset), index.width)])?;
    let symbol = |(pool, index): (&VirtAddr, Option<[u64; 1]>)| {
        let [index] = index.unwrap_or_default();
        at(at(*pool, names.pool.entries), index.saturating_mul(8))
    };
    let places: Vec<VirtAddr> = pools.iter().zip(indices).map(symbol).collect();
    // The lowest bit of a constant is a tag.
    let symbols: Vec<VirtAddr> = read_pointers(reader, &places)?.iter().map(|symbol| VirtAddr(symbol.0 & !1)).collect();
    let texts = read_texts(reader, names, &symbols)?;
    let found = texts.iter().position(|text| text.as_deref() == Some(METHOD));
    Ok(found.and_then(|found| methods.get(found).copied()))
}

/// What the words at these places point to; null for those that cannot be read, whose fields cannot be either.
fn read_pointers<M: RemoteMemory>(reader: &mut Reader<M>, places: &[VirtAddr]) -> Result<Vec<VirtAddr>, MemoryError> {
    let read = reader.numbers_of(places, |&place| [(place, 8)])?;
    Ok(read.into_iter().map(|word| VirtAddr(word.map_or(0, |[word]| word))).collect())
}

fn fields<M: RemoteMemory>(
    reader: &mut Reader<M>,
    structs: &[VirtAddr],
    offset: u64,
) -> Result<Vec<VirtAddr>, MemoryError> {
    let places: Vec<VirtAddr> = structs.iter().map(|addr| at(*addr, offset)).collect();
    read_pointers(reader, &places)
}

/// Where the code notes its stack pointer in the thread, and how much room it makes before; `None` unless it does so in one
/// way only.
fn noted(code: &[u8]) -> Option<(u64, u64)> {
    let mut found = code.windows(PATTERN_BYTES).filter_map(noted_by);
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

/// The same of the instructions at the start of `code`, if it begins with them.
fn noted_by(code: &[u8]) -> Option<(u64, u64)> {
    let room = code.strip_prefix(&MAKE_ROOM)?;
    let (room, rest) = room.split_first()?;
    let rest = rest.strip_prefix(&LOAD_OLD)?;
    let number = |bytes: &[u8]| field(bytes, Number { offset: 0, width: 4 });
    let (old, rest) = (number(rest)?, rest.get(4..)?.strip_prefix(&KEEP_OLD)?);
    let new = number(rest.get(1..)?.strip_prefix(&NOTE_NEW)?)?;
    // Fields of a thread are not before it, nor far behind.
    (old == new && new < 1 << 16 && *room < 0x80 && room.is_multiple_of(8)).then_some((new, u64::from(*room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As JDK 21.0.8 generates it.
    const OF_21: [u8; 50] = [
        0x38, 0x05, 0x00, 0x00, 0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x40, 0x49, 0x8b, 0x87, 0x30, 0x05, 0x00,
        0x00, 0x48, 0x89, 0x44, 0x24, 0x08, 0x49, 0x89, 0xa7, 0x30, 0x05, 0x00, 0x00, 0x48, 0x89, 0x74, 0x24, 0x10,
        0x89, 0x4c, 0x24, 0x20, 0x48, 0xc7, 0x44, 0x24, 0x18, 0x00, 0x00, 0x00, 0x00, 0xc7,
    ];

    /// Check that the place is read from generated code, as often as it is there, and that code which names two places, or
    /// keeps another word than the one it replaces, says nothing.
    #[test]
    fn reads_the_place_from_code() {
        assert_eq!(noted(&OF_21), Some((0x530, 0x40)));
        assert_eq!(noted(&[OF_21, OF_21].concat()), Some((0x530, 0x40)));
        let mut other = OF_21;
        (other[15], other[27]) = (0x38, 0x38);
        assert_eq!(noted(&other), Some((0x538, 0x40)));
        assert_eq!(noted(&[OF_21, other].concat()), None);
        other[15] = 0x30;
        assert_eq!(noted(&other), None);
        assert_eq!(noted(&OF_21[..30]), None);
    }
}
