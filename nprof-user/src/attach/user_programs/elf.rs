//! What has to hold of an object file before aya's reader gets it, which takes it for granted.

use object::elf::{EM_BPF, FileHeader64};
use object::read::elf::ElfFile;
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _};

/// Checks that a file is an object for BPF, and that its symbols are inside of their sections.
///
/// # Errors
/// What is wrong, to follow "FILE is no object of BPF programs: ".
pub(super) fn check_elf(bytes: &[u8]) -> Result<(), String> {
    let damaged = |error: object::Error| error.to_string();
    let file = ElfFile::<FileHeader64<LittleEndian>>::parse(bytes)
        .map_err(|_error| "it is not a 64-bit little-endian ELF file".to_owned())?;
    if file.elf_header().e_machine.get(LittleEndian) != EM_BPF {
        return Err("it is compiled for another machine than BPF".to_owned());
    }
    for symbol in file.symbols() {
        let Some(section) = symbol.section_index() else { continue };
        let section = file.section_by_index(section).map_err(damaged)?;
        let end = symbol.address().checked_sub(section.address()).and_then(|start| start.checked_add(symbol.size()));
        if end.is_none_or(|end| end > section.size()) {
            return Err(format!("its symbol {} is not inside of its section", symbol.name().unwrap_or_default()));
        }
    }
    for section in file.sections() {
        section.data().map_err(damaged)?;
    }
    Ok(())
}
