//! Programs of the user's own at the sites of nprof's probes: files in, links out.
//!
//! ```text
//! ProgramFiles::read   the files, and which program of each     nothing is loaded
//! ProgramFiles::load   UserPrograms: maps and programs          nothing is attached
//! ProgramLinks         the links of one session, which follow its own probes
//! ```
//!
//! The cookie of a link is the function's dense index; its upper half names the link's gate ([`gates`]).

mod elf;
mod error;
mod gates;
mod links;
mod named_maps;
mod object;

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::error::ProgramError;
use self::gates::Gates;
pub(super) use self::links::ProgramLinks;
use self::named_maps::Names;
use self::object::{Loaded, ObjectFile};
use crate::model::{CallEnd, Method, ProgramValues};

/// A program that the user wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedProgram {
    /// The object file that it is in.
    pub file: PathBuf,
    /// Its name; none where the object has only one for this end.
    pub program: Option<String>,
    /// The end of calls that it runs at.
    pub end: CallEnd,
}

/// Which program of which file.
#[derive(Debug)]
struct Chosen {
    file: usize,
    program: String,
    end: CallEnd,
}

/// The programs that the user wants, and the files that they are in. A file that is named several times is one object: its
/// programs share its maps.
#[derive(Debug)]
pub struct ProgramFiles {
    files: Vec<ObjectFile>,
    chosen: Vec<Chosen>,
}

/// A loaded program.
#[derive(Debug)]
struct Program {
    fd: OwnedFd,
    end: CallEnd,
    name: String,
    /// The place of its object.
    object: usize,
}

/// The programs of the user's in the kernel, by number: the place of each among those that were wanted.
#[derive(Debug)]
pub struct UserPrograms {
    programs: Vec<Program>,
    objects: Vec<Loaded>,
    names: Vec<Mutex<Names>>,
    /// The objects with values, with name and title.
    shown: Vec<(usize, String)>,
    gates: Arc<Gates>,
}

/// How often a program has run, and for how long, while the kernel counted that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Runs {
    /// How often.
    pub count: u64,
    /// For how long.
    pub time: Duration,
}

impl ProgramFiles {
    /// Reads the files and chooses the programs.
    ///
    /// # Errors
    /// For what is no such file, or leaves it open which program is meant.
    pub fn read(wanted: &[WantedProgram]) -> Result<Self, ProgramError> {
        let mut read = Self { files: Vec::new(), chosen: Vec::new() };
        for WantedProgram { file, program, end } in wanted {
            let place = read.place_of(file)?;
            let program = read.files[place].choose(*end, program.as_deref())?;
            read.chosen.push(Chosen { file: place, program, end: *end });
        }
        read.check_names()?;
        Ok(read)
    }

    fn place_of(&mut self, path: &PathBuf) -> Result<usize, ProgramError> {
        let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_absent| path.clone());
        let known = self.files.iter().position(|file| real(&file.path) == real(path));
        known.map_or_else(
            || {
                self.files.push(ObjectFile::read(path)?);
                Ok(self.files.len() - 1)
            },
            Ok,
        )
    }

    /// The names of the objects that results have values of.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter(|file| file.has_values()).map(ObjectFile::name)
    }

    fn check_names(&self) -> Result<(), ProgramError> {
        let shown: Vec<&ObjectFile> = self.files.iter().filter(|file| file.has_values()).collect();
        for (place, file) in shown.iter().enumerate() {
            if let Some(other) = shown[..place].iter().find(|other| other.name().eq_ignore_ascii_case(&file.name())) {
                let files = [other.path.clone(), file.path.clone()];
                return Err(ProgramError::SameName { files, name: file.name() });
            }
        }
        Ok(())
    }

    /// Makes the maps, with room for so many functions in those that nprof knows, and loads the programs.
    ///
    /// # Errors
    /// If the kernel or its verifier refuses something.
    pub fn load(&self, functions: u32) -> Result<UserPrograms, ProgramError> {
        let gates = Gates::new().map_err(ProgramError::Gates)?;
        let mut objects = self.files.iter().map(|file| file.load(functions)).collect::<Result<Vec<Loaded>, _>>()?;
        let mut programs = Vec::new();
        for Chosen { file, program, end } in &self.chosen {
            let fd = objects[*file].program(program, &gates)?;
            let name = format!("{program} of {}", objects[*file].path.display());
            programs.push(Program { fd, end: *end, name, object: *file });
        }
        let names = objects.iter_mut().filter_map(|object| object.names.take()).map(Mutex::new).collect();
        let has_values = |place: &usize| objects[*place].values.is_some();
        let shown = (0..objects.len()).filter(has_values).map(|place| (place, self.files[place].name())).collect();
        Ok(UserPrograms { programs, objects, names, shown, gates })
    }
}

impl UserPrograms {
    /// Tells the programs the name of a function: of one of the methods that are bound to it.
    pub fn name(&self, index: u32, method: &Method) {
        for names in &self.names {
            names.lock().unwrap_or_else(PoisonError::into_inner).set(index, method);
        }
    }

    /// What the programs have left in the maps that nprof knows; a list for each object that has such a map. `chosen` says which
    /// program runs at which function: of others there is no value.
    #[must_use]
    pub fn values(&self, chosen: &[(u32, usize)]) -> Vec<ProgramValues> {
        let of = |(place, name): &(usize, String)| {
            let values = self.objects[*place].values.as_ref()?;
            let is_of_it = |program: usize| self.programs.get(program).is_some_and(|known| known.object == *place);
            let each = chosen.iter().filter(|(_, program)| is_of_it(*program));
            let by_index = each.map(|(index, _)| (*index, values.get(*index))).collect();
            Some(ProgramValues { name: name.clone(), title: name.to_uppercase(), by_index })
        };
        self.shown.iter().filter_map(of).collect()
    }

    /// How often each program has run, and for how long, while the kernel counted that for anybody.
    #[must_use]
    pub fn runs(&self) -> Vec<Runs> {
        let run = |program: &Program| {
            let said = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.fd.as_raw_fd())).unwrap_or_default();
            Runs::of(&said)
        };
        self.programs.iter().map(run).collect()
    }
}

impl Runs {
    /// What the kernel says of a descriptor.
    fn of(said: &str) -> Self {
        let number = |word: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':'));
            line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        Self { count: number("run_cnt"), time: Duration::from_nanos(number("run_time_ns")) }
    }
}

#[cfg(test)]
mod tests;
