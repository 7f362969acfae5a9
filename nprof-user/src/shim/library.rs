//! The shim's library: the one that this nprof brings, and one that a JVM has loaded.

use std::path::PathBuf;

use super::Refusal;
use crate::discover::{self, Proc};
use crate::model::{Jvm, Library, Method, NativeCode, Pid};

/// The file, built together with nprof.
///
/// It needs glibc 2.18 in the target (`nprof-shim/src/glibc.rs`). On an older one the JVM does not load it, and says so.
pub(super) static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnprof_shim.so"));

/// What it is called wherever it lies: by this it is known among a JVM's libraries.
pub(super) const NAME: &str = "libnprof_shim.so";

/// The package of the shim's own classes.
const PACKAGE: &str = "nprof.shim.";

/// Whether a method is one of the shim's own, which nobody wants to be traced.
#[must_use]
pub fn is_own(method: &Method) -> bool {
    method.class.starts_with(PACKAGE)
}

/// A shim that is in a JVM, connected or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Its library.
    pub library: Library,
}

/// The shim that is loaded into a JVM; `None` if there is none.
///
/// # Errors
/// If the process is gone or may not be looked into.
pub fn find(proc: &Proc, jvm: &Jvm) -> Result<Option<Loaded>, discover::Error> {
    Ok(among(&proc.libraries(jvm.pid)?))
}

/// The same among the libraries of a JVM.
#[must_use]
pub fn among(libraries: &[Library]) -> Option<Loaded> {
    libraries.iter().find(|library| library.name() == NAME).map(|library| Loaded { library: library.clone() })
}

impl Loaded {
    /// Whether the VM holds an address in it for a method: that of a stub.
    #[must_use]
    pub fn holds(&self, method: &Method) -> bool {
        let NativeCode::Bound(address) = method.code else { return false };
        self.library.mappings.iter().any(|mapping| mapping.contains(address))
    }

    /// A path by which the target opens the very file that it has loaded: loading that again loads nothing twice.
    pub(super) fn path_inside(&self, proc: &Proc, pid: Pid) -> Result<PathBuf, Refusal> {
        let file = &self.library.open_path;
        // The shim keeps its own file open, since nobody else knows it once it has been unlinked.
        if let Some(number) = proc.descriptor_of(pid, file)? {
            return Ok(format!("/proc/self/fd/{number}").into());
        }
        let path = proc.path_inside(pid, &self.library.path).filter(|path| proc.finds(pid, path, file));
        path.ok_or(Refusal::FileLost { pid })
    }
}

#[cfg(test)]
mod tests {
    use object::read::elf::{ElfFile64, FileHeader};
    use object::{LittleEndian, Object, ObjectSymbol};

    use super::*;

    /// Check that the embedded file is a library that a JVM can load while it runs, with names for profilers.
    #[test]
    fn is_an_agent() {
        let library = object::File::parse(BYTES).unwrap();
        for name in ["Agent_OnLoad", "Agent_OnAttach"] {
            assert!(library.dynamic_symbols().any(|symbol| symbol.is_global() && symbol.name() == Ok(name)), "{name}");
        }
        assert!(library.symbols().any(|symbol| symbol.name() == Ok("nprof_stub_slow")));
    }

    /// Check that the embedded file loads into a process with glibc 2.18, however new that of the machine is where it was
    /// built.
    #[test]
    fn needs_no_new_glibc() {
        let library: ElfFile64<'_, LittleEndian> = ElfFile64::parse(BYTES).unwrap();
        let (header, endian) = (library.elf_header(), LittleEndian);
        let sections = header.sections(endian, BYTES).unwrap();
        let (mut needs, names) = sections.gnu_verneed(endian, BYTES).unwrap().expect("it uses glibc");
        let strings = sections.strings(endian, BYTES, names).unwrap();
        let mut newest = [0, 0];
        while let Some((_, mut versions)) = needs.next().unwrap() {
            while let Some(version) = versions.next().unwrap() {
                let name = std::str::from_utf8(version.name(endian, strings).unwrap()).unwrap();
                if let Some(numbers) = name.strip_prefix("GLIBC_") {
                    let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().unwrap()).collect();
                    newest = newest.max([numbers[0], numbers[1]]);
                }
            }
        }
        assert!(newest > [2, 0] && newest <= [2, 18], "needs glibc {newest:?}");
    }
}
