//! Why a recording cannot be read, and what to do about it.

use std::io;

use super::limits;

/// A recording that cannot be read. Whoever reports it knows the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file itself cannot be read.
    #[error("cannot be read")]
    Io {
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It begins otherwise than a recording.
    #[error("not a recording of nprof: `nprof record -o run.nprof` makes one")]
    NotARecording,
    /// Its format is not known yet.
    #[error("recorded by a newer nprof (format {version}, this nprof knows {known}): install that version to read it")]
    Newer {
        /// The version of the file's format.
        version: u32,
        /// The latest version that this nprof knows.
        known: u32,
    },
    /// It ends too early.
    #[error("the recording is cut short: copy it again from where it was made, or record again")]
    CutShort,
    /// Its content makes no sense.
    #[error("the recording is damaged ({what}): copy it again from where it was made, or record again")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// A part of it is no message that nprof writes.
    #[error("the recording is damaged: copy it again from where it was made, or record again")]
    Part {
        /// What is wrong with it.
        #[source]
        source: prost::DecodeError,
    },
    /// It would not fit into memory.
    #[error(
        "the recording takes more than {} GiB: record for a shorter time, with fewer methods or without a timeline",
        limits::MOST >> 30
    )]
    TooLarge,
    /// It would take far more memory than its size lets anybody expect.
    #[error(
        "the recording would take more memory than {} MiB and {} times its size, as none that nprof makes: it is \
         damaged, or made to fill memory",
        limits::FLOOR >> 20,
        limits::RATIO
    )]
    Inflated,
}

impl Error {
    /// What an error while reading means. What gzip finds wrong comes as one of three kinds.
    pub(super) fn reading(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::CutShort,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Self::Damaged { what: "its checksum" },
            _ => Self::Io { source },
        }
    }
}
