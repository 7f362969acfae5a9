//! The unwind information of one library: from an address to the rule by which its frame leads to its caller.
//!
//! The compiler has written down, for ranges of code, small programs that say for each instruction where the caller's
//! registers are. They are indexed when a library is read, and run when an address is asked for.

use std::io;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry,
    LittleEndian, UnwindContext, UnwindOffset, UnwindSection,
};

use super::covered::{Covered, FunctionStarts, Ranges};
use super::library_file::read_headers;
use super::rule::Rule;
use crate::elf::{Fault, Sections};
use crate::model::ElfAddr;
use crate::sys::target_file::TargetFile;

/// No unwind information of a real library comes near this, in bytes.
const MAX_SECTION: u64 = 64 << 20;
/// No program for one function comes near this, in bytes: what is longer would cost too much to run.
const MAX_PROGRAM: usize = 1 << 20;
/// An address in these files has as many bytes.
const ADDRESS_SIZE: u8 = 8;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What running the programs needs; it is large, so it is used again and again.
pub(super) type Context = UnwindContext<usize>;

/// The two formats, which differ in details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    EhFrame,
    DebugFrame,
}

/// One section with its index.
#[derive(Debug)]
struct Part {
    format: Format,
    bytes: Vec<u8>,
    bases: BaseAddresses,
    covered: Ranges,
}

/// All unwind information of one library.
#[derive(Debug)]
pub(super) struct UnwindTable {
    parts: Vec<Part>,
}

/// Where the functions of a library begin that its unwind information speaks of; nowhere in a file that is none.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn function_starts(file: &TargetFile) -> io::Result<FunctionStarts> {
    match read_headers(file) {
        Ok((_, sections)) => Ok(UnwindTable::read(file, &sections, MAX_SECTION)?.into_starts()),
        Err(Fault::Read(error)) => Err(error),
        Err(_) => Ok(FunctionStarts::default()),
    }
}

impl UnwindTable {
    /// Reads and indexes what a file has, up to `room` bytes of it. What is damaged is left out.
    pub(super) fn read(file: &TargetFile, sections: &Sections, room: u64) -> io::Result<Self> {
        let mut table = Self { parts: Vec::new() };
        for (format, name) in [(Format::EhFrame, ".eh_frame"), (Format::DebugFrame, ".debug_frame")] {
            let room = room.saturating_sub(table.size());
            if let Some(bytes) = sections.bytes(file, name, MAX_SECTION.min(room))? {
                table.parts.push(Part::new(format, bytes, bases(sections)));
            }
        }
        Ok(table)
    }

    /// How much of the files it keeps, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// Where functions begin, which is all that is kept of it.
    pub(super) fn into_starts(self) -> FunctionStarts {
        FunctionStarts::new(self.parts.into_iter().map(|part| part.covered))
    }

    /// The rule for the frame of a function that is at `address`; `None` if nothing is said about it.
    pub(super) fn rule(&self, address: ElfAddr, context: &mut Context) -> Option<Rule> {
        self.parts.iter().find_map(|part| part.rule(address, context))
    }
}

/// What addresses in the sections may be relative to.
fn bases(sections: &Sections) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(sections.address(".eh_frame"))
        .set_eh_frame_hdr(sections.address(".eh_frame_hdr"))
        .set_text(sections.address(".text"))
        .set_got(sections.address(".got"))
}

impl Part {
    fn new(format: Format, bytes: Vec<u8>, bases: BaseAddresses) -> Self {
        let mut part = Self { format, bytes, bases, covered: Ranges::default() };
        let covered = match format {
            Format::EhFrame => index(&part.eh_frame(), &part.bases),
            Format::DebugFrame => index(&part.debug_frame(), &part.bases),
        };
        part.covered = Ranges::new(covered);
        part
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(ADDRESS_SIZE);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(ADDRESS_SIZE);
        section
    }

    fn rule(&self, address: ElfAddr, context: &mut Context) -> Option<Rule> {
        let program = self.covered.at(address)?.program as usize;
        match self.format {
            Format::EhFrame => run(&self.eh_frame(), &self.bases, program, address.0, context),
            Format::DebugFrame => run(&self.debug_frame(), &self.bases, program, address.0, context),
        }
    }
}

/// The ranges that a section says something about, up to where it is damaged.
fn index<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Vec<Covered> {
    let mut covered = Vec::new();
    // Functions that follow each other mostly share what they have in common.
    let mut common: Option<CommonInformationEntry<Slice<'a>>> = None;
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let function = partial.parse(|section, bases, offset| {
            let place: usize = UnwindOffset::into(offset);
            if let Some(known) = common.as_ref().filter(|known| known.offset() == place) {
                return Ok(known.clone());
            }
            let read = section.cie_from_offset(bases, offset)?;
            common = Some(read.clone());
            Ok(read)
        });
        covered.extend(function.ok().and_then(|function| range(&function)));
    }
    covered
}

fn range(function: &FrameDescriptionEntry<Slice<'_>>) -> Option<Covered> {
    if function.entry_len() > MAX_PROGRAM {
        return None;
    }
    let start = u32::try_from(function.initial_address()).ok()?;
    let len = u32::try_from(function.len()).ok().filter(|len| *len > 0)?;
    Some(Covered { start, len, program: u32::try_from(function.offset()).ok()? })
}

/// Runs the program that stands at `program`, up to `address`.
fn run<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    program: usize,
    address: u64,
    context: &mut Context,
) -> Option<Rule> {
    let function = section.fde_from_offset(bases, program.into(), S::cie_from_offset).ok()?;
    let row = function.unwind_info_for_address(section, bases, context, address).ok()?;
    Rule::of(row, section, function.cie())
}
