//! An object file of the user's: read and checked before anything is loaded, then loaded.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::maps::PinningType;
use aya_obj::{Object, ProgramSection};

use super::elf::check_elf;
use super::error::ProgramError;
use super::gates::Gates;
use super::named_maps::{Layout, Names, VALUES, Values};
use crate::attach::error::in_full;
use crate::attach::relocate::relocate;
use crate::model::CallEnd;
use crate::sys::bpf::{Program, load_uprobe_multi};
use crate::sys::small_file;

/// The longest file that is read, in bytes: most of one is debug information.
const LONGEST: u64 = 16 << 20;
/// The most maps of an object.
const MAPS: usize = 64;

/// A file that holds programs. Nothing is loaded yet.
#[derive(Debug)]
pub(super) struct ObjectFile {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
    parsed: Object,
}

/// What was made of an object in the kernel. The maps live as long as this or the programs.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Its maps, without those below: the programs are given their descriptors when they are loaded.
    _maps: Ebpf,
    /// The programs with the maps in their places, not yet loaded.
    linked: Object,
    pub(super) path: PathBuf,
    pub(super) names: Option<Names>,
    pub(super) values: Option<Values>,
}

impl ObjectFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is no object of programs, or has maps that it must not have.
    pub(super) fn read(path: &Path) -> Result<Self, ProgramError> {
        let bytes = small_file::read_at_most(path, LONGEST)?;
        let bad = |why| ProgramError::NotBpf { file: path.to_path_buf(), why };
        check_elf(&bytes).map_err(bad)?;
        // What is checked is all that a compiler could get wrong; whatever else is wrong must not end nprof.
        let parsed = catch_unwind(AssertUnwindSafe(|| Object::parse(&bytes)));
        let parsed = parsed.map_err(|_panic| bad("it is damaged".to_owned()))?;
        let parsed = parsed.map_err(|error| bad(in_full(&error)))?;
        let file = Self { path: path.to_path_buf(), bytes, parsed };
        if file.parsed.programs.is_empty() {
            return Err(bad("there is no program in it".to_owned()));
        }
        file.check_maps()?;
        Ok(file)
    }

    fn check_maps(&self) -> Result<(), ProgramError> {
        let (file, maps) = (|| self.path.clone(), &self.parsed.maps);
        if maps.len() > MAPS {
            return Err(ProgramError::TooManyMaps { file: file(), maps: maps.len(), limit: MAPS });
        }
        for (name, map) in maps {
            if map.pinning() != PinningType::None {
                return Err(ProgramError::Pinned { file: file(), map: name.clone() });
            }
            if let Some(layout) = Layout::of(name).filter(|layout| !layout.fits(map)) {
                return Err(ProgramError::Layout { file: file(), map: layout.name, expected: layout.expected });
            }
        }
        Ok(())
    }

    /// The program for an end of calls: the one that is named, or the only one whose section says that it is for that end.
    ///
    /// # Errors
    /// If there is no such program, it cannot run there, or there are several.
    pub(super) fn choose(&self, end: CallEnd, named: Option<&str>) -> Result<String, ProgramError> {
        let (file, there) = (|| self.path.clone(), || self.there());
        if let Some(name) = named {
            let Some(program) = self.parsed.programs.get(name) else {
                return Err(ProgramError::NoSuchProgram { file: file(), program: name.to_owned(), there: there() });
            };
            let is_probe = end_of(&program.section).is_some();
            let wrong = || ProgramError::WrongType { file: file(), program: name.to_owned() };
            return is_probe.then(|| name.to_owned()).ok_or_else(wrong);
        }
        let programs = self.parsed.programs.iter();
        let mut fit = programs.filter(|(_, program)| end_of(&program.section) == Some(end)).map(|(name, _)| name);
        match (fit.next(), fit.next()) {
            (None, _) => Err(ProgramError::NoProgram { file: file(), end, there: there() }),
            (Some(only), None) => Ok(only.clone()),
            (Some(first), Some(second)) => {
                let first = first.min(second).clone();
                Err(ProgramError::SeveralPrograms { file: file(), end, first, there: there() })
            }
        }
    }

    /// `count_entry (uprobe), note (tracepoint)`.
    fn there(&self) -> String {
        let section = |program: &aya_obj::Program| match &program.section {
            ProgramSection::KProbe => "kprobe",
            ProgramSection::KRetProbe => "kretprobe",
            ProgramSection::UProbe { .. } => "uprobe",
            ProgramSection::URetProbe { .. } => "uretprobe",
            _ => "for other events",
        };
        let programs = self.parsed.programs.iter();
        let mut programs: Vec<String> =
            programs.map(|(name, program)| format!("`{name}` ({})", section(program))).collect();
        programs.sort();
        programs.join(", ")
    }

    /// What it is called in results: the file's name up to the first dot.
    pub(super) fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        file.split('.').find(|part| !part.is_empty()).unwrap_or_default().to_owned()
    }

    /// Whether it has values to show.
    pub(super) fn has_values(&self) -> bool {
        self.parsed.maps.keys().any(|name| name.eq_ignore_ascii_case(VALUES))
    }

    /// Makes its maps, those that nprof knows with room for so many functions.
    ///
    /// # Errors
    /// What the kernel answers, and if the programs do not fit it.
    pub(super) fn load(&self, functions: u32) -> Result<Loaded, ProgramError> {
        // As in `read`: what no compiler makes must not end nprof.
        let loaded = catch_unwind(AssertUnwindSafe(|| self.load_undamaged(functions)));
        let damaged = || ProgramError::NotBpf { file: self.path.clone(), why: "it is damaged".to_owned() };
        loaded.unwrap_or_else(|_panic| Err(damaged()))
    }

    fn load_undamaged(&self, functions: u32) -> Result<Loaded, ProgramError> {
        let file = || self.path.clone();
        let mut loader = EbpfLoader::new();
        for name in self.parsed.maps.keys().filter(|name| Layout::of(name).is_some()) {
            loader.map_max_entries(name, functions);
        }
        let maps = loader.allow_unsupported_maps().load(&self.bytes);
        let mut maps = maps.map_err(|error| ProgramError::Maps { file: file(), source: Box::new(error) })?;
        let mut linked = self.parsed.clone();
        if linked.has_btf_relocations() {
            let types = |why| ProgramError::Types { file: file(), why };
            let kernel = Btf::from_sys_fs().map_err(|error| types(in_full(&error)))?;
            linked.relocate_btf(&kernel).map_err(|error| types(in_full(&error)))?;
        }
        relocate(&mut linked, &maps).map_err(|error| ProgramError::Linked { file: file(), source: Box::new(error) })?;
        let (names, values) = (Names::take(&mut maps), Values::take(&mut maps));
        Ok(Loaded { _maps: maps, linked, path: file(), names, values })
    }
}

impl Loaded {
    /// Loads one of its programs, behind the gates.
    ///
    /// # Errors
    /// If the verifier refuses it.
    pub(super) fn program(&self, name: &str, gates: &Gates) -> Result<OwnedFd, ProgramError> {
        let missing =
            || ProgramError::NoSuchProgram { file: self.path.clone(), program: name.to_owned(), there: String::new() };
        let program = self.linked.programs.get(name).ok_or_else(missing)?;
        let function = self.linked.functions.get(&program.function_key()).ok_or_else(missing)?;
        let sleepable = matches!(
            program.section,
            ProgramSection::UProbe { sleepable: true } | ProgramSection::URetProbe { sleepable: true }
        );
        let instructions = gates.before(&function.instructions);
        let program = Program { name, instructions: &instructions, license: &program.license, sleepable };
        load_uprobe_multi(program).map_err(|refused| {
            let (file, program) = (self.path.clone(), name.to_owned());
            match refused.reason {
                Some(reason) => ProgramError::Refused { file, program, reason },
                None => ProgramError::Load { file, program, source: refused.answer },
            }
        })
    }
}

/// The end of calls that a program is for by its section; `None` if it is for other events.
fn end_of(section: &ProgramSection) -> Option<CallEnd> {
    match section {
        ProgramSection::UProbe { .. } | ProgramSection::KProbe => Some(CallEnd::Entry),
        ProgramSection::URetProbe { .. } | ProgramSection::KRetProbe => Some(CallEnd::Return),
        _ => None,
    }
}
