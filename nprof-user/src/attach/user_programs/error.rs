//! Why programs of the user's cannot run.

use std::io;
use std::path::PathBuf;

use aya_obj::relocation::EbpfRelocationError;

use crate::model::CallEnd;
use crate::sys::small_file;

/// Why programs of the user's cannot run. Each message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] small_file::Error),
    /// The file is no BPF object.
    #[error("{} is no object of BPF programs: {why}", file.display())]
    NotBpf {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No program of the object says by its section that it is for this end of a call.
    #[error(
        "{} has no program for {}: sections of these are called `{}`; it has {there}",
        file.display(), end.option(), sections(*end)
    )]
    NoProgram {
        /// The file.
        file: PathBuf,
        /// The end.
        end: CallEnd,
        /// The programs that it has.
        there: String,
    },
    /// Several programs of the object are for this end of a call.
    #[error("{} has several programs for {}: say which, as in `{}:{first}`; it has {there}", file.display(), end.option(), file.display())]
    SeveralPrograms {
        /// The file.
        file: PathBuf,
        /// The end.
        end: CallEnd,
        /// One of them.
        first: String,
        /// The programs that it has.
        there: String,
    },
    /// The object has no program of the name that was given.
    #[error("{} has no program `{program}`; it has {there}", file.display())]
    NoSuchProgram {
        /// The file.
        file: PathBuf,
        /// What was asked for.
        program: String,
        /// The programs that it has.
        there: String,
    },
    /// The program is of a type that cannot run at calls of functions.
    #[error(
        "`{program}` of {} is a program for other events: its section has to be called `uprobe`, `uretprobe`, `kprobe` or `kretprobe`",
        file.display()
    )]
    WrongType {
        /// The file.
        file: PathBuf,
        /// The program.
        program: String,
    },
    /// A map is to be pinned.
    #[error("the map `{map}` of {} asks to be pinned: nprof leaves nothing behind in the kernel; declare it without", file.display())]
    Pinned {
        /// The file.
        file: PathBuf,
        /// The map.
        map: String,
    },
    /// There are too many maps.
    #[error("{} has {maps} maps; {limit} are the most", file.display())]
    TooManyMaps {
        /// The file.
        file: PathBuf,
        /// How many.
        maps: usize,
        /// The most.
        limit: usize,
    },
    /// A map that nprof knows by its name is not as it has to be.
    #[error("the map `{map}` of {} has to be {expected}", file.display())]
    Layout {
        /// The file.
        file: PathBuf,
        /// The map.
        map: &'static str,
        /// As what it has to be declared.
        expected: &'static str,
    },
    /// Two objects with values would have one name.
    #[error("{} and {} would both be called `{name}` in the results: rename one", files[0].display(), files[1].display())]
    SameName {
        /// The files.
        files: [PathBuf; 2],
        /// The name.
        name: String,
    },
    /// The maps cannot be made.
    #[error("the maps of {} cannot be made", file.display())]
    Maps {
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: Box<aya::EbpfError>,
    },
    /// The programs do not fit this kernel, or each other.
    #[error("the programs of {} cannot be linked", file.display())]
    Linked {
        /// The file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: Box<EbpfRelocationError>,
    },
    /// The programs refer to types that this kernel does not have.
    #[error("the programs of {} cannot be fitted to this kernel: {why}", file.display())]
    Types {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The verifier does not take a program.
    #[error("this kernel's verifier refuses `{program}` of {}: {reason} (-vv shows all that it says)", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The program.
        program: String,
        /// The verifier's last word.
        reason: String,
    },
    /// The kernel does not take a program, for another reason.
    #[error("`{program}` of {} cannot be loaded", file.display())]
    Load {
        /// The file.
        file: PathBuf,
        /// The program.
        program: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The words that say which links answer cannot be made.
    #[error("cannot make the array by which programs are switched")]
    Gates(#[source] io::Error),
}

fn sections(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Entry => "uprobe` or `kprobe",
        CallEnd::Return => "uretprobe` or `kretprobe",
    }
}
