//! The VM's symbols (names of classes, methods and fields) as text.

use crate::hotspot::{Layout, Reader, RemoteMemory, at, decode};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// Symbols are not longer than two bytes can say, however wide the field is.
const MAX_SYMBOL: u64 = 0xffff;

/// The texts of symbols; `None` for what is none.
pub(super) fn read_texts<M: RemoteMemory>(
    reader: &mut Reader<M>,
    names: &Layout,
    symbols: &[VirtAddr],
) -> Result<Vec<Option<String>>, MemoryError> {
    let symbol = &names.symbol;
    let lengths = reader.numbers_of(symbols, |&addr| [(at(addr, symbol.length.offset), symbol.length.width)])?;
    let length = |length: Option<[u64; 1]>| length.map_or(0, |[length]| length & MAX_SYMBOL);
    let runs: Vec<(VirtAddr, usize)> = symbols
        .iter()
        .zip(lengths)
        .map(|(&addr, bytes)| (at(addr, symbol.body), usize::try_from(length(bytes)).unwrap_or_default()))
        .collect();
    let mut texts = vec![None; symbols.len()];
    reader.runs_of(&runs, |run| *run, |index, bytes| texts[index] = bytes.and_then(decode))?;
    Ok(texts)
}
