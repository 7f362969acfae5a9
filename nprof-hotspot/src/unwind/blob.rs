//! One piece of the VM's code: a compiled method, the interpreter, a stub. Of compiled methods all that is needed to
//! name their frames is read at once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::assumption::Assumption;
use super::cfa_offset::CfaOffsets;
use super::layout::{CodeLayout, field, signed_field};
use super::scopes::{PcDesc, Scopes};
use super::{FrameKind, JavaFrame};
use crate::hotspot::{Number, Reader, RemoteMemory, at, is_plausible, number};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// No blob is larger: the VM's default for the whole code cache is 240 MB.
const MAX_BLOB: u64 = 1 << 28;
/// No frame of compiled code is larger.
const MAX_FRAME: u64 = 1 << 20;
/// No part of a compiled method is larger.
const MAX_PART: u64 = 8 << 20;

/// The first bytes of a blob.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) bytes: Vec<u8>,
}

impl Header {
    /// Where the blob's name is.
    pub(super) fn name(&self, layout: &CodeLayout) -> Option<VirtAddr> {
        let name = field(&self.bytes, Number { offset: layout.blob.name, width: 8 })?;
        Some(VirtAddr(name)).filter(|name| is_plausible(*name))
    }

    fn number(&self, wanted: Number) -> Option<u64> {
        field(&self.bytes, wanted)
    }
}

/// What a blob is, as far as its frames differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobKind {
    /// A method that C1 or C2 has compiled.
    Compiled,
    /// The wrapper of a native method.
    NativeWrapper,
    /// Java called by the foreign function interface; where in the frame the way on is kept, in bytes.
    Upcall { frame_data: u64 },
    /// Where the frames of a virtual thread go on that are frozen in the heap.
    Continuation,
    /// Leads from the interpreter into compiled code and back; it has no frame.
    Adapter,
    /// Where the VM takes a compiled frame apart to go on in the interpreter.
    Deoptimisation,
    /// Any other.
    Stub,
}

impl BlobKind {
    fn of(name: &str, upcall_frame_data: Option<u64>) -> Self {
        match (name, upcall_frame_data) {
            ("nmethod", _) => Self::Compiled,
            ("native nmethod", _) => Self::NativeWrapper,
            (name, Some(frame_data)) if name.starts_with("upcall_stub") => Self::Upcall { frame_data },
            (name, _) if name.starts_with("StubRoutines (continuation") => Self::Continuation,
            (name, _) if name.starts_with("I2C/C2I") => Self::Adapter,
            ("DeoptimizationBlob" | "UncommonTrapBlob" | "C2 Runtime uncommon_trap_blob", _) => Self::Deoptimisation,
            _ => Self::Stub,
        }
    }
}

/// One piece of code.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) end: VirtAddr,
    pub(super) kind: BlobKind,
    pub(super) code: Range<VirtAddr>,
    /// In bytes, without the return address of the caller's caller: from a frame's stack pointer to its sender's.
    pub(super) frame_bytes: u64,
    pub(super) assumptions: Vec<Assumption>,
    pub(super) nmethod: Option<Nmethod>,
    /// Its instructions, of stubs in which a thread was interrupted.
    pub(super) text: Option<Arc<[u8]>>,
    /// What they do to the stack, of compiled code in which a thread was interrupted.
    pub(super) depths: Option<Arc<CfaOffsets>>,
}

/// What a compiled method or wrapper has besides.
#[derive(Debug)]
pub(super) struct Nmethod {
    pub(super) method: VirtAddr,
    /// How its own frames are executed.
    pub(super) kind: FrameKind,
    /// Where in a deoptimised frame the address is kept at which it stood, in bytes.
    pub(super) orig_pc_offset: u64,
    pub(super) deopt_handlers: Vec<VirtAddr>,
    /// Where callers enter that are certain of the receiver's class; others come through checks before it.
    pub(super) verified_entry: Option<VirtAddr>,
    pub(super) scopes: Scopes,
    /// The methods that scopes name by number.
    pub(super) metadata: Vec<VirtAddr>,
    /// The frames at the places that have been met, by bytes from the start of the code.
    pub(super) frames: HashMap<i32, Arc<[JavaFrame]>>,
}

impl Blob {
    /// Reads what stands behind a header; `None` if it makes no sense.
    pub(super) fn read<M: RemoteMemory>(
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        begin: VirtAddr,
        header: &Header,
        name: &str,
    ) -> Result<Option<Self>, MemoryError> {
        let Some(mut blob) = Self::of_header(layout, begin, header, name) else {
            return Ok(None);
        };
        if matches!(blob.kind, BlobKind::Compiled | BlobKind::NativeWrapper) {
            let Some(nmethod) = Nmethod::read(reader, layout, begin, header, blob.kind)? else {
                return Ok(None);
            };
            blob.nmethod = Some(nmethod);
        }
        Ok(Some(blob))
    }

    fn of_header(layout: &CodeLayout, begin: VirtAddr, header: &Header, name: &str) -> Option<Self> {
        let places = &layout.blob;
        let size = header.number(places.size).filter(|size| (1..MAX_BLOB).contains(size))?;
        let end = at(begin, size);
        let begin_of_code = places.code_begin.locate(begin, &header.bytes)?;
        let code = begin_of_code..places.code_end.locate(begin, &header.bytes)?;
        let frame_words = u64::try_from(signed_field(&header.bytes, places.frame_size)?.max(0)).ok()?;
        let frame_bytes = frame_words.checked_mul(8).filter(|bytes| *bytes < MAX_FRAME)?;
        let upcall = places.upcall_frame_data.and_then(|place| header.number(place)).filter(|at| *at < MAX_FRAME);
        let kind = BlobKind::of(name, upcall);
        let good = begin <= code.start && code.start <= code.end && code.end <= end;
        good.then(|| Self {
            end,
            kind,
            code,
            frame_bytes,
            assumptions: assumptions(layout, begin, header, kind),
            nmethod: None,
            text: None,
            depths: None,
        })
    }
}

/// What shows that the blob is still the same: for compiled methods the number of the compilation, above all.
fn assumptions(layout: &CodeLayout, begin: VirtAddr, header: &Header, kind: BlobKind) -> Vec<Assumption> {
    let mut fields = vec![Number { offset: layout.blob.name, width: 8 }, layout.blob.size];
    if matches!(kind, BlobKind::Compiled | BlobKind::NativeWrapper) {
        fields.push(Number { offset: layout.nmethod.method, width: 8 });
        fields.push(layout.nmethod.compile_id);
    }
    let assumption = |wanted: Number| {
        let value = header.number(wanted)?;
        Some(Assumption { addr: at(begin, wanted.offset), width: wanted.width, value })
    };
    fields.into_iter().filter_map(assumption).collect()
}

impl Nmethod {
    fn read<M: RemoteMemory>(
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        begin: VirtAddr,
        header: &Header,
        kind: BlobKind,
    ) -> Result<Option<Self>, MemoryError> {
        let Some((mut nmethod, parts)) = Self::of_header(layout, begin, header, kind) else {
            return Ok(None);
        };
        if kind == BlobKind::NativeWrapper {
            return Ok(Some(nmethod));
        }
        let mut found = [None, None, None];
        reader.runs_of(&parts, |run| *run, |index, bytes| found[index] = bytes.map(<[u8]>::to_vec))?;
        let [Some(pcs), Some(scopes), Some(metadata)] = found else {
            return Ok(None);
        };
        nmethod.scopes.pcs = pc_descs(layout, &pcs);
        nmethod.scopes.bytes = scopes;
        nmethod.metadata = metadata.chunks_exact(8).map(|word| VirtAddr(number(word))).collect();
        Ok(Some(nmethod))
    }

    /// What the header says: the nmethod without its descriptions, and where those are (addresses and bytes).
    fn of_header(
        layout: &CodeLayout,
        begin: VirtAddr,
        header: &Header,
        kind: BlobKind,
    ) -> Option<(Self, [(VirtAddr, usize); 3])> {
        let places = &layout.nmethod;
        let part = |from: &super::layout::Place, to: &super::layout::Place| {
            let from = from.locate(begin, &header.bytes)?;
            let bytes = to.locate(begin, &header.bytes)?.0.checked_sub(from.0).filter(|bytes| *bytes <= MAX_PART)?;
            Some((from, usize::try_from(bytes).ok()?))
        };
        let parts = [
            part(&places.pcs_begin, &places.pcs_end)?,
            part(&places.scopes_begin, &places.scopes_end)?,
            part(&places.metadata_begin, &places.metadata_end)?,
        ];
        let level = header.number(places.comp_level)?;
        let nmethod = Self {
            method: VirtAddr(header.number(Number { offset: places.method, width: 8 })?),
            kind: match (kind, level) {
                (BlobKind::NativeWrapper, _) => FrameKind::NativeWrapper,
                (_, 1..=3) => FrameKind::C1,
                _ => FrameKind::C2,
            },
            orig_pc_offset: header.number(places.orig_pc_offset)?,
            deopt_handlers: places.deopt_handlers.iter().filter_map(|h| h.locate(begin, &header.bytes)).collect(),
            verified_entry: places.verified_entry.and_then(|entry| {
                // JDKs that say a distance mean that from the start of the code.
                let from =
                    if entry.is_pointer() { begin } else { layout.blob.code_begin.locate(begin, &header.bytes)? };
                entry.locate(from, &header.bytes)
            }),
            scopes: Scopes { packed_excess: layout.versioned.packed_excess, ..Scopes::default() },
            metadata: Vec::new(),
            frames: HashMap::new(),
        };
        Some((nmethod, parts))
    }
}

fn pc_descs(layout: &CodeLayout, bytes: &[u8]) -> Vec<PcDesc> {
    let places = &layout.nmethod;
    let desc = |bytes: &[u8]| {
        Some(PcDesc {
            pc_offset: i32::try_from(signed_field(bytes, places.pc_offset)?).ok()?,
            scope: u32::try_from(field(bytes, places.scope_offset)?).ok()?,
        })
    };
    bytes.chunks_exact(places.pc_desc_size).filter_map(desc).collect()
}
