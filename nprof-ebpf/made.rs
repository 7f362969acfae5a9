// What the checked-in BPF object was made of, so that nobody uses one whose sources have changed since. Shared by the
// build script of `nprof-user`, which looks, and by `cargo xtask bpf`, which makes the object: std alone.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// The object, below the workspace.
pub(crate) const OBJECT: &str = "nprof-ebpf/nprof.bpf.o";
/// The note beside it.
pub(crate) const NOTE: &str = "nprof-ebpf/nprof.bpf.txt";
/// The crates that it is compiled with, by the beginning of their names.
const LIBRARIES: &str = "aya-ebpf";

/// The note: a line for each fact.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// The compiler and its version.
    pub(crate) compiler: String,
    /// The linker and its version.
    pub(crate) linker: String,
    /// The sources, below the workspace.
    pub(crate) sources: Vec<String>,
    /// What [`fingerprint`] of those was.
    pub(crate) fingerprint: String,
}

impl Made {
    /// Reads the note of a workspace.
    pub(crate) fn read(workspace: &Path) -> io::Result<Self> {
        let mut made = Self::default();
        for line in fs::read_to_string(workspace.join(NOTE))?.lines() {
            let (fact, value) = line.split_once(' ').unwrap_or((line, ""));
            match fact {
                "compiler" => made.compiler = value.to_owned(),
                "linker" => made.linker = value.to_owned(),
                "source" => made.sources.push(value.to_owned()),
                "fingerprint" => made.fingerprint = value.to_owned(),
                _ => {}
            }
        }
        Ok(made)
    }

    /// Whether the sources are those that the object was made of.
    pub(crate) fn is_current(&self, workspace: &Path) -> io::Result<bool> {
        Ok(!self.sources.is_empty() && fingerprint(workspace, &self.sources)? == self.fingerprint)
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# How nprof.bpf.o was made: by `cargo xtask bpf`, which also writes this.")?;
        writeln!(f, "compiler {}", self.compiler)?;
        writeln!(f, "linker {}", self.linker)?;
        for source in &self.sources {
            writeln!(f, "source {source}")?;
        }
        writeln!(f, "fingerprint {}", self.fingerprint)
    }
}

/// A number that is another one if a source changes, or the version of a library. It is no protection against intent.
pub(crate) fn fingerprint(workspace: &Path, sources: &[String]) -> io::Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for source in sources {
        hash = fnv1a(hash, source.as_bytes());
        hash = fnv1a(hash, &fs::read(workspace.join(source))?);
    }
    let lock = fs::read_to_string(workspace.join("Cargo.lock"))?;
    let begins = format!("name = \"{LIBRARIES}");
    for package in lock.split("[[package]]").map(str::trim).filter(|package| package.starts_with(&begins)) {
        hash = fnv1a(hash, package.as_bytes());
    }
    Ok(format!("{hash:016x}"))
}

/// FNV-1a, of 64 bits.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
