//! Where the unwinder finds what it reads in this VM: looked up once in its tables. Everything in which JDKs differ
//! stands here: [`Place`] hides who points to what, and [`Versioned`] holds what no table says.

use std::collections::HashMap;

use super::collections_layout::CollectionsLayout;
use super::frozen_layout::FrozenLayout;
use super::object_layout::ObjectsLayout;
use crate::hotspot::{Error, Layout, Lookup, Number, TableEntry, Tables, number};
use crate::model::VirtAddr;

/// Everything that the unwinder has to know; offsets in bytes.
#[derive(Debug, Clone)]
pub(super) struct CodeLayout {
    /// Classes, methods and names, as the inventory reads them.
    pub(super) names: Layout,
    pub(super) statics: Statics,
    pub(super) heap: HeapLayout,
    pub(super) blob: BlobLayout,
    pub(super) nmethod: NmethodLayout,
    pub(super) const_method: ConstMethodLayout,
    /// `None` where the VM does not say which methods it hides.
    pub(super) hidden: Option<HiddenFlag>,
    pub(super) entry: EntryLayout,
    /// Of a `ClassLoaderData`: whether it is that of one anonymous class. Versions without such classes have none.
    pub(super) anonymous: Option<u64>,
    /// Of a `Symbol`: a random number that it gets when it is made. Versions without it have none.
    pub(super) symbol_tag: Option<Number>,
    /// How objects lie in the heap; `None` where the VM does not say.
    pub(super) objects: Option<ObjectsLayout>,
    /// What leads to frames in the heap; `None` where there are none.
    pub(super) frozen: Option<FrozenLayout>,
    /// Where collections of the heap are counted; `None` where they are not.
    pub(super) collections: Option<CollectionsLayout>,
    pub(super) versioned: Versioned,
}

/// Static variables of the VM.
#[derive(Debug, Clone)]
pub(super) struct Statics {
    /// The list of code heaps.
    pub(super) heaps: VirtAddr,
    /// The interpreter's queue of stubs.
    pub(super) interpreter: VirtAddr,
    /// Where a call from native code into Java returns to.
    pub(super) call_stub_return: VirtAddr,
    /// Lowest address and end of the memory that is set aside for code.
    pub(super) code_low: VirtAddr,
    pub(super) code_high: VirtAddr,
    /// The feature release: 17, 25.
    pub(super) major_version: VirtAddr,
}

/// `GrowableArray<CodeHeap*>`, `CodeHeap`, `VirtualSpace`, `HeapBlock` and `StubQueue`.
#[derive(Debug, Clone)]
pub(super) struct HeapLayout {
    pub(super) list_length: Number,
    pub(super) list_data: u64,
    /// Of a `CodeHeap`: first address and end of its memory, first address of its segment map, size of a segment.
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) segment_map: u64,
    pub(super) log2_segment_size: Number,
    /// Of a `HeapBlock`: whether it is used, and its size.
    pub(super) block_used: Number,
    pub(super) block_size: u64,
    /// Of the interpreter's `StubQueue`.
    pub(super) stub_buffer: u64,
    pub(super) stub_limit: Number,
}

/// `CodeBlob`.
#[derive(Debug, Clone)]
pub(super) struct BlobLayout {
    pub(super) name: u64,
    pub(super) size: Number,
    /// In words.
    pub(super) frame_size: Number,
    pub(super) code_begin: Place,
    pub(super) code_end: Place,
    /// Of an `UpcallStub`: where in its frame the way on is kept. JDKs before 22 have none.
    pub(super) upcall_frame_data: Option<Number>,
    /// How much of a blob has to be read for all fields of `BlobLayout` and [`NmethodLayout`].
    pub(super) header_bytes: usize,
}

/// `nmethod`.
#[derive(Debug, Clone)]
pub(super) struct NmethodLayout {
    pub(super) method: u64,
    pub(super) compile_id: Number,
    pub(super) comp_level: Number,
    pub(super) orig_pc_offset: Number,
    pub(super) pcs_begin: Place,
    pub(super) pcs_end: Place,
    pub(super) scopes_begin: Place,
    pub(super) scopes_end: Place,
    pub(super) metadata_begin: Place,
    pub(super) metadata_end: Place,
    pub(super) deopt_handlers: Vec<Place>,
    pub(super) verified_entry: Option<Place>,
    /// Of a `PcDesc`.
    pub(super) pc_offset: Number,
    pub(super) scope_offset: Number,
    pub(super) pc_desc_size: usize,
}

/// `ConstMethod`.
#[derive(Debug, Clone)]
pub(super) struct ConstMethodLayout {
    /// Its size in bytes; the bytecodes follow.
    pub(super) size: u64,
    /// The words that it takes with all that follows it.
    pub(super) total_words: Number,
    pub(super) code_size: Number,
    pub(super) flags: Number,
}

/// The flag of methods that the VM leaves out of stack traces: lambda forms and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HiddenFlag {
    /// The flags that it is one of: of a `Method` or, since JDK 21, of its `ConstMethod`.
    pub(super) flags: Number,
    pub(super) in_const_method: bool,
    pub(super) mask: u64,
}

impl HiddenFlag {
    fn of(look: &mut Lookup<'_>, constants: &HashMap<String, i32>, const_method: &ConstMethodLayout) -> Option<Self> {
        // Not in the tables, but a neighbour is, two bits below (JDK 21 to 25).
        if constants.get("ConstMethodFlags::_misc_has_default_annotations") == Some(&(1 << 10)) {
            return Some(Self { flags: const_method.flags, in_const_method: true, mask: 1 << 12 });
        }
        let mask = constants.get("Method::_hidden").and_then(|mask| u64::try_from(*mask).ok())?;
        look.find("Method", "_flags")?;
        Some(Self { flags: look.number("Method", "_flags"), in_const_method: false, mask })
    }
}

/// How one goes on behind a frame in which native code called Java.
#[derive(Debug, Clone)]
pub(super) struct EntryLayout {
    /// Words from the frame pointer to the slot with the `JavaCallWrapper`.
    pub(super) wrapper_slot: i64,
    /// Of a `JavaCallWrapper`.
    pub(super) anchor: u64,
    /// Of a `JavaFrameAnchor`.
    pub(super) last_sp: u64,
    pub(super) last_pc: u64,
    pub(super) last_fp: u64,
}

/// What no table says, by feature release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Versioned {
    /// What each byte of a packed number is higher by than what it stands for.
    pub(super) packed_excess: u8,
    /// Words from the frame pointer of an interpreted frame to its `Method*`, and to the address of its bytecode.
    pub(super) interpreted_method: i64,
    pub(super) interpreted_bytecode: i64,
    /// The same to where its local variables are, which JDKs before 21 do not need.
    pub(super) interpreted_locals: i64,
    /// What the elements of an array begin at a multiple of, if they are smaller.
    pub(super) array_alignment: u64,
}

impl Versioned {
    pub(super) fn of(major_version: u32) -> Self {
        Self {
            packed_excess: u8::from(major_version >= 20),
            interpreted_method: -3,
            interpreted_bytecode: if major_version <= 8 { -7 } else { -8 },
            interpreted_locals: -7,
            array_alignment: if major_version >= 23 { 4 } else { 8 },
        }
    }
}

/// How a blob says where a part of it is: a pointer or the blob itself, and an offset from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The field with the pointer; without one the blob itself is meant.
    pointer: Option<u64>,
    /// The field with the offset; without one there is none.
    offset: Option<Number>,
}

impl Place {
    fn pointer(field: u64) -> Self {
        Self { pointer: Some(field), offset: None }
    }

    pub(super) fn is_pointer(&self) -> bool {
        self.pointer.is_some()
    }

    pub(super) fn in_blob(offset: Number) -> Self {
        Self { pointer: None, offset: Some(offset) }
    }

    fn behind(pointer: u64, offset: Number) -> Self {
        Self { pointer: Some(pointer), offset: Some(offset) }
    }

    /// The address, for the blob at `blob` that begins with `header`. `None` if an offset is negative: there is no
    /// such part.
    pub(super) fn locate(&self, blob: VirtAddr, header: &[u8]) -> Option<VirtAddr> {
        let base = match self.pointer {
            Some(offset) => field(header, Number { offset, width: 8 })?,
            None => blob.0,
        };
        let offset = match self.offset {
            Some(offset) => u64::try_from(signed_field(header, offset)?).ok()?,
            None => 0,
        };
        base.checked_add(offset).map(VirtAddr)
    }

    /// The first byte after the fields that are read.
    fn end(&self) -> u64 {
        let pointer = self.pointer.map_or(0, |offset| offset + 8);
        pointer.max(self.offset.map_or(0, end_of))
    }
}

fn end_of(number: Number) -> u64 {
    number.offset + number.width as u64
}

/// A number in bytes that were read from the start of a struct.
pub(super) fn field(bytes: &[u8], wanted: Number) -> Option<u64> {
    let start = usize::try_from(wanted.offset).ok()?;
    bytes.get(start..start.checked_add(wanted.width)?).map(number)
}

/// The same, with its sign.
pub(super) fn signed_field(bytes: &[u8], wanted: Number) -> Option<i64> {
    let unused_bits = 64_u32.checked_sub(8 * u32::try_from(wanted.width).ok()?)?;
    let value = field(bytes, wanted)?;
    Some((value.checked_shl(unused_bits)?).cast_signed() >> unused_bits)
}

impl CodeLayout {
    /// Looks everything up. `major_version` is asked for once it is known where it lies.
    ///
    /// # Errors
    /// As [`Layout::of`].
    pub(super) fn of(
        tables: &Tables,
        constants: &HashMap<String, i32>,
        major_version: impl FnOnce(VirtAddr) -> Result<u32, Error>,
    ) -> Result<Self, Error> {
        let names = Layout::of(tables)?;
        let mut look = Lookup::new(tables);
        let statics = Statics {
            heaps: look.variable("CodeCache", "_heaps"),
            interpreter: look.variable("AbstractInterpreter", "_code"),
            call_stub_return: look.variable("StubRoutines", "_call_stub_return_address"),
            code_low: look.variable("CodeCache", "_low_bound"),
            code_high: look.variable("CodeCache", "_high_bound"),
            major_version: look.variable("Abstract_VM_Version", "_vm_major_version"),
        };
        let heap = heap_layout(&mut look);
        let nmethod = nmethod_layout(&mut look);
        let blob = blob_layout(&mut look, &nmethod);
        let const_method = const_method_layout(&mut look);
        let hidden = HiddenFlag::of(&mut look, constants, &const_method);
        let entry = entry_layout(&mut look, constants)?;
        // The upper half of a word; the lower is a count of references.
        let symbol_tag =
            look.find("Symbol", "_hash_and_refcount").map(|entry| Number { offset: entry.offset + 2, width: 2 });
        let anonymous = look.find("ClassLoaderData", "_is_anonymous").map(|entry| entry.offset);
        let collections = CollectionsLayout::of(&mut look);
        look.finish()?;
        let versioned = Versioned::of(major_version(statics.major_version)?);
        let objects = ObjectsLayout::of(tables, constants);
        let frozen = FrozenLayout::of(tables, objects.as_ref());
        Ok(Self {
            names,
            statics,
            heap,
            blob,
            nmethod,
            const_method,
            hidden,
            entry,
            anonymous,
            symbol_tag,
            objects,
            frozen,
            collections,
            versioned,
        })
    }
}

fn heap_layout(look: &mut Lookup<'_>) -> HeapLayout {
    let low = look.offset("VirtualSpace", "_low");
    let high = look.offset("VirtualSpace", "_high");
    let memory = look.offset("CodeHeap", "_memory");
    let block_header = look.find("HeapBlock", "_header").map_or(0, |entry| entry.offset);
    let used = look.find("HeapBlock::Header", "_used").map_or(0, |entry| entry.offset);
    HeapLayout {
        list_length: look.number("GrowableArrayBase", "_len"),
        list_data: look.offset("GrowableArray<int>", "_data"),
        low: memory + low,
        high: memory + high,
        segment_map: look.offset("CodeHeap", "_segmap") + low,
        log2_segment_size: look.number("CodeHeap", "_log2_segment_size"),
        block_used: Number { offset: block_header + used, width: 1 },
        block_size: look.size("HeapBlock"),
        stub_buffer: look.offset("StubQueue", "_stub_buffer"),
        stub_limit: look.number("StubQueue", "_buffer_limit"),
    }
}

fn blob_layout(look: &mut Lookup<'_>, nmethod: &NmethodLayout) -> BlobLayout {
    let name = look.offset("CodeBlob", "_name");
    let size = look.number("CodeBlob", "_size");
    let frame_size = look.number("CodeBlob", "_frame_size");
    let (code_begin, code_end) = if look.find("CodeBlob", "_code_begin").is_some() {
        // Up to JDK 22.
        (Place::pointer(look.offset("CodeBlob", "_code_begin")), Place::pointer(look.offset("CodeBlob", "_code_end")))
    } else {
        (
            Place::in_blob(look.number("CodeBlob", "_code_offset")),
            Place::in_blob(look.number("CodeBlob", "_data_offset")),
        )
    };
    // A struct around one int.
    let upcall_frame_data =
        look.find("UpcallStub", "_frame_data_offset").map(|entry| Number { offset: entry.offset, width: 4 });
    let places = [code_begin, code_end];
    let own = [name + 8, end_of(size), end_of(frame_size), upcall_frame_data.map_or(0, end_of)];
    let end = own.into_iter().chain(places.iter().map(Place::end)).max().unwrap_or_default();
    BlobLayout {
        name,
        size,
        frame_size,
        code_begin,
        code_end,
        upcall_frame_data,
        header_bytes: usize::try_from(end.max(nmethod.end())).unwrap_or_default(),
    }
}

impl NmethodLayout {
    /// The first byte after the fields that are read.
    fn end(&self) -> u64 {
        let numbers = [self.compile_id, self.comp_level, self.orig_pc_offset].into_iter().map(end_of);
        let places = [self.pcs_begin, self.pcs_end, self.scopes_begin, self.scopes_end, self.metadata_begin];
        let places = places.into_iter().chain([self.metadata_end]).chain(self.deopt_handlers.iter().copied());
        let places = places.chain(self.verified_entry);
        numbers.chain(places.map(|place| place.end())).chain([self.method + 8]).max().unwrap_or_default()
    }
}

fn nmethod_layout(look: &mut Lookup<'_>) -> NmethodLayout {
    let [pcs_begin, pcs_end, scopes_begin, scopes_end, metadata_begin, metadata_end] =
        if look.find("nmethod", "_immutable_data").is_some() { split_parts(look) } else { parts_in_blob(look) };
    NmethodLayout {
        method: look.offset("CompiledMethod", "_method"),
        compile_id: look.number("nmethod", "_compile_id"),
        // An enum of one byte since JDK 20 or so, an int before; levels are below 5 and little-endian.
        comp_level: Number { offset: look.offset("nmethod", "_comp_level"), width: 1 },
        orig_pc_offset: look.number("nmethod", "_orig_pc_offset"),
        pcs_begin,
        pcs_end,
        scopes_begin,
        scopes_end,
        metadata_begin,
        metadata_end,
        deopt_handlers: deopt_handlers(look),
        verified_entry: verified_entry(look),
        pc_offset: look.number("PcDesc", "_pc_offset"),
        scope_offset: look.number("PcDesc", "_scope_decode_offset"),
        pc_desc_size: usize::try_from(look.size("PcDesc")).unwrap_or(usize::MAX).max(8),
    }
}

/// The parts of an nmethod where they all lie in the blob (17, 21).
fn parts_in_blob(look: &mut Lookup<'_>) -> [Place; 6] {
    let scopes = Place::pointer(look.offset("CompiledMethod", "_scopes_data_begin"));
    let pcs = Place::in_blob(look.number("nmethod", "_scopes_pcs_offset"));
    let after_pcs = Place::in_blob(look.number("nmethod", "_dependencies_offset"));
    let metadata = Place::in_blob(look.number("nmethod", "_metadata_offset"));
    [pcs, after_pcs, scopes, pcs, metadata, scopes]
}

/// The same where data is kept apart from code (25).
fn split_parts(look: &mut Lookup<'_>) -> [Place; 6] {
    let immutable = look.offset("nmethod", "_immutable_data");
    let mutable = look.offset("CodeBlob", "_mutable_data");
    let pcs = Place::behind(immutable, look.number("nmethod", "_scopes_pcs_offset"));
    let scopes = Place::behind(immutable, look.number("nmethod", "_scopes_data_offset"));
    let immutable_end = Place::behind(immutable, look.number("nmethod", "_immutable_data_size"));
    let metadata = Place::behind(mutable, look.number("CodeBlob", "_relocation_size"));
    let mutable_end = Place::behind(mutable, look.number("CodeBlob", "_mutable_data_size"));
    [pcs, scopes, scopes, immutable_end, metadata, mutable_end]
}

/// Where the VM lets return the frames that it has deoptimised.
fn deopt_handlers(look: &mut Lookup<'_>) -> Vec<Place> {
    let pointers = ["_deopt_handler_begin", "_deopt_mh_handler_begin"];
    let offsets = ["_deopt_handler_offset", "_deopt_mh_handler_offset"];
    let mut places = Vec::new();
    for field in pointers {
        if look.find("CompiledMethod", field).is_some() {
            places.push(Place::pointer(look.offset("CompiledMethod", field)));
        }
    }
    for field in offsets {
        if look.find("nmethod", field).is_some() {
            places.push(Place::in_blob(look.number("nmethod", field)));
        }
    }
    if places.is_empty() {
        // Without it deoptimised frames could not be told: name it as missing.
        look.offset("nmethod", offsets[0]);
    }
    places
}

/// Where a compiled method begins for those that know its receiver.
fn verified_entry(look: &mut Lookup<'_>) -> Option<Place> {
    if look.find("nmethod", "_verified_entry_point").is_some() {
        return Some(Place::pointer(look.offset("nmethod", "_verified_entry_point")));
    }
    look.find("nmethod", "_verified_entry_offset")?;
    Some(Place::in_blob(look.number("nmethod", "_verified_entry_offset")))
}

fn const_method_layout(look: &mut Lookup<'_>) -> ConstMethodLayout {
    ConstMethodLayout {
        size: look.size("ConstMethod"),
        total_words: look.number("ConstMethod", "_constMethod_size"),
        code_size: look.number("ConstMethod", "_code_size"),
        flags: look.number("ConstMethod", "_flags"),
    }
}

fn entry_layout(look: &mut Lookup<'_>, constants: &HashMap<String, i32>) -> Result<EntryLayout, Error> {
    const SLOT: &str = "frame::entry_frame_call_wrapper_offset";
    let Some(&slot) = constants.get(SLOT) else {
        let entry = TableEntry { type_name: "frame".into(), field: "entry_frame_call_wrapper_offset".into() };
        return Err(Error::MissingEntry { missing: vec![entry] }.logged());
    };
    Ok(EntryLayout {
        wrapper_slot: i64::from(slot),
        anchor: look.offset("JavaCallWrapper", "_anchor"),
        last_sp: look.offset("JavaFrameAnchor", "_last_Java_sp"),
        last_pc: look.offset("JavaFrameAnchor", "_last_Java_pc"),
        last_fp: look.offset("JavaFrameAnchor", "_last_Java_fp"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a part is found by pointer, in the blob and behind a pointer, and that a negative offset means none.
    #[test]
    fn locates_parts() {
        let mut header = vec![0; 24];
        header[0..8].copy_from_slice(&0x5000_u64.to_le_bytes());
        header[8..12].copy_from_slice(&(-1_i32).to_le_bytes());
        header[12..14].copy_from_slice(&0x40_u16.to_le_bytes());
        let [none, some] = [Number { offset: 8, width: 4 }, Number { offset: 12, width: 2 }];
        let locate = |place: Place| place.locate(VirtAddr(0x1000), &header);
        assert_eq!(locate(Place::pointer(0)), Some(VirtAddr(0x5000)));
        assert_eq!(locate(Place::in_blob(some)), Some(VirtAddr(0x1040)));
        assert_eq!(locate(Place::behind(0, some)), Some(VirtAddr(0x5040)));
        assert_eq!(locate(Place::in_blob(none)), None);
        assert_eq!(locate(Place::pointer(20)), None);
    }

    /// Check that packed numbers changed with JDK 20 and interpreted frames after JDK 8.
    #[test]
    fn knows_what_versions_changed() {
        assert_eq!(Versioned::of(17).packed_excess, 0);
        assert_eq!(Versioned::of(25).packed_excess, 1);
        assert_eq!([8, 11, 25].map(|major| Versioned::of(major).interpreted_bytecode), [-7, -8, -8]);
    }
}
