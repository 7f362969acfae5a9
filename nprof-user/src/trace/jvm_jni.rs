//! The JNI functions of one JVM: read from its VM, and told to the programs.

use nprof_common::{JniPlaces, JniThrown};

use super::Error;
use super::classes::Classes;
use super::sampling::libjvm_of;
use crate::aggregate::ThrownSum;
use crate::discover::Proc;
use crate::hotspot;
use crate::model::{Jvm, Library, Method, NativeCode, SharedStr, VirtAddr, jni};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Threads;

/// The flag of a VM whose handles of objects are not plain addresses.
const COLOURED_HANDLES: &str = "UseZGC";

/// The functions of a VM.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    /// Those that are in a library.
    pub methods: Vec<Method>,
    /// The names of those that are not.
    pub unseen: Vec<&'static str>,
    /// What classes are known by; `None` if the VM does not say, or handles of objects are not plain addresses.
    pub mirrors: Option<JniPlaces>,
}

impl Functions {
    /// Reads the VM's table of functions.
    ///
    /// # Errors
    /// [`Error::NoJni`] if it is not found.
    pub(super) fn read(proc: &Proc, jvm: &Jvm) -> Result<Self, Error> {
        let no_table = || Error::NoJni { pid: jvm.pid };
        let libraries = proc.libraries(jvm.pid)?;
        let mut threads = Threads::open(ProcessMemory::new(jvm.pid), &libjvm_of(proc, jvm)?)?;
        let known: Vec<(usize, &'static str)> =
            jni::jni_functions(java_version(&jvm.vm_version).ok_or_else(no_table)?).collect();
        let places = known.last().map_or(0, |(place, _)| place + 1);
        // Its end is noticed elsewhere.
        let table = threads.jni_functions(places).ok().flatten().ok_or_else(no_table)?;
        let functions = Self::of(known.iter().map(|&(place, name)| (name, table[place])), &libraries);
        Ok(Self { mirrors: mirrors(proc, jvm)?, ..functions })
    }

    fn of(table: impl Iterator<Item = (&'static str, VirtAddr)>, libraries: &[Library]) -> Self {
        let is_in_library = |address: VirtAddr| {
            libraries.iter().flat_map(|library| &library.mappings).any(|mapping| mapping.contains(address))
        };
        let mut functions = Self::default();
        for (name, address) in table {
            if is_in_library(address) {
                functions.methods.push(as_method(name, address));
            } else {
                functions.unseen.push(name);
            }
        }
        functions
    }
}

/// Names the classes of exceptions for later.
pub(super) fn learn_thrown(classes: &mut Classes, thrown: &[(JniThrown, u64)]) {
    let known = thrown.iter().map(|(thrown, _)| thrown.class);
    known.filter(|class| *class != JniThrown::UNKNOWN).for_each(|class| classes.learn(class));
}

/// Exceptions with the names of their classes, as far as these have been learnt.
pub(super) fn thrown_sums(classes: &Classes, thrown: &[(JniThrown, u64)]) -> Vec<ThrownSum> {
    let sums = thrown.iter().map(|(thrown, count)| ThrownSum {
        method: thrown.method,
        is_cleared: thrown.by != JniThrown::PENDING,
        class: classes.learnt(thrown.class).map(str::to_owned),
        count: *count,
    });
    sums.collect()
}

/// A function as a method. Its identity is no address that the VM has a method at.
fn as_method(name: &'static str, address: VirtAddr) -> Method {
    Method {
        id: VirtAddr(address.0 | 1 << 63),
        class: SharedStr::from(jni::CLASS),
        name: SharedStr::from(name),
        signature: SharedStr::from(""),
        code: NativeCode::Bound(address),
    }
}

fn mirrors(proc: &Proc, jvm: &Jvm) -> Result<Option<JniPlaces>, Error> {
    let libjvm = libjvm_of(proc, jvm)?;
    let [coloured] = hotspot::flags(ProcessMemory::new(jvm.pid), &libjvm, [COLOURED_HANDLES])?;
    if coloured.is_some_and(|flag| flag.is_on) {
        return Ok(None);
    }
    let offsets = hotspot::mirrors(ProcessMemory::new(jvm.pid), &libjvm)?;
    Ok(offsets.map(|offsets| JniPlaces { klass: offsets.klass, mirror: offsets.mirror, ..JniPlaces::default() }))
}

/// The version of Java of a VM: 17 of `17.0.15+6`.
pub(super) fn java_version(release: &str) -> Option<u32> {
    release.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the version of Java is what a VM's release begins with.
    #[test]
    fn versions() {
        assert_eq!(["17.0.15+6", "25.0.3+9-LTS", "11", "26-ea+5"].map(java_version), [17, 25, 11, 26].map(Some));
        assert_eq!(java_version("unknown"), None);
    }

    /// Check that functions in no library are told from the others, which are methods with identities of their own.
    #[test]
    fn functions_without_a_library() {
        let functions = Functions::of([("GetIntField", VirtAddr(0x1000))].into_iter(), &[]);
        let unseen = Functions { unseen: vec!["GetIntField"], ..Functions::default() };
        assert_eq!(functions, unseen);
        assert_ne!(as_method("GetVersion", VirtAddr(0x1000)).id, as_method("GetVersion", VirtAddr(0x2000)).id);
    }
}
