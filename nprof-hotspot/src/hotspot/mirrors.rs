//! How a class is known from its Java object (its *mirror*), and the object from the class.

use super::Error;
use super::exports::Exports;
use super::layout::Lookup;
use super::memory::{Reader, RemoteMemory};
use super::tables::Tables;
use crate::model::Library;

/// No object of a class has the VM's field further from its start.
const MAX_OFFSET: u64 = 1 << 10;

/// Where the two lead to each other, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorOffsets {
    /// From a class's Java object to the address of its `Klass`.
    pub klass: u64,
    /// From a `Klass` to the address of the place that holds the address of the object.
    pub mirror: u64,
}

/// Reads them from the VM whose memory is `memory` and whose library is mapped where `libjvm` says; `None` if it does not say.
///
/// # Errors
/// As [`super::Vm::open`].
pub fn mirrors<M: RemoteMemory>(memory: M, libjvm: &Library) -> Result<Option<MirrorOffsets>, Error> {
    let mut reader = Reader::new(memory);
    let tables = Tables::read(&mut reader, &Exports::of(libjvm)?)?;
    let mut look = Lookup::new(&tables);
    let Some(mirror) = look.find("Klass", "_java_mirror") else {
        return Ok(None);
    };
    let variable = look.variable("java_lang_Class", "_klass_offset");
    if look.finish().is_err() {
        return Ok(None);
    }
    let klass = reader.numbers([(variable, 4)])?;
    let is_good = |klass: &u64| (1..MAX_OFFSET).contains(klass);
    Ok(klass.map(|[klass]| klass).filter(is_good).map(|klass| MirrorOffsets { klass, mirror: mirror.offset }))
}
