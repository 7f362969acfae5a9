//! The JNI functions of one JVM: read from its VM, and told to the programs; and what of it is kept where its native methods are traced
//! among those of other JVMs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nprof_common::{JniPlaces, JniThrown};

use super::Error;
use super::classes::Classes;
use super::sampling::libjvm_of;
use super::stubs::JniFunction;
use crate::aggregate::{JniPairs, JniRows, ThrownSum, jni_totals};
use crate::attach::{Engine, JniRead, JniTable, PendingPlaces};
use crate::discover::Proc;
use crate::hotspot;
use crate::model::{
    JniTotals, Jvm, Library, Method, MethodSnapshot, NativeCode, Probe, SharedStr, States, VirtAddr, jni,
};
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
        let is_in_library = |address| libraries.iter().any(|library| library.holds(address));
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

/// The functions that a VM of this version has, for stubs: wherever its table leads to.
///
/// # Errors
/// [`Error::NoJni`] if the version is not known.
pub(super) fn functions_with_stubs(jvm: &Jvm) -> Result<Vec<JniFunction>, Error> {
    let version = java_version(&jvm.vm_version).ok_or(Error::NoJni { pid: jvm.pid })?;
    let functions = jni::jni_functions(version);
    Ok(functions.filter_map(|(place, name)| Some(JniFunction { place: u32::try_from(place).ok()?, name })).collect())
}

/// What is kept of the JNI functions of one of many JVMs.
#[derive(Debug)]
pub(super) struct JvmJni {
    table: Arc<JniTable>,
    /// The names of functions that no probe can see.
    unseen: Vec<&'static str>,
    /// The names of the others.
    names: Vec<SharedStr>,
    tells_members: bool,
    classes: Mutex<Classes>,
}

impl JvmJni {
    /// Reads the functions of a VM, and tells the programs of `engine` how they are looked at. Returns the functions to be planned, too.
    /// `pending` says how pending exceptions are found.
    ///
    /// # Errors
    /// If the functions are not found.
    pub(super) fn begin(
        proc: &Proc,
        jvm: &Jvm,
        (engine, table): (&Engine, &Arc<JniTable>),
        pending: impl FnOnce() -> Result<PendingPlaces, Error>,
    ) -> Result<(Self, Vec<Method>), Error> {
        let Functions { methods, unseen, mirrors } = Functions::read(proc, jvm)?;
        let places = JniPlaces { pending_from_env: pending()?.from_env, ..mirrors.unwrap_or_default() };
        let classes = Mutex::new(Classes::begin(proc, jvm, engine.vms(), places)?);
        let names = methods.iter().map(|function| function.name.clone()).collect();
        let jni = Self { table: Arc::clone(table), unseen, names, tells_members: mirrors.is_some(), classes };
        Ok((jni, methods))
    }

    /// Names the classes of exceptions while they are loaded. `records` are those of the JVM, asked for only if there is a class that is
    /// new, of whichever JVM.
    pub(super) fn learn(&self, records: impl FnOnce() -> HashMap<u32, u32>) {
        let (mut thrown, mut classes) = (self.table.thrown(), self.classes());
        classes.ask_again();
        thrown.retain(|(thrown, _)| !classes.is_settled(thrown.class));
        if thrown.is_empty() {
            return;
        }
        let records = records();
        for (thrown, _) in thrown.iter().filter(|(thrown, _)| records.contains_key(&thrown.owner())) {
            classes.learn_once(thrown.class);
        }
    }

    /// Everything that there is for all JVMs.
    pub(super) fn read(&self) -> JniRead {
        self.table.read_all()
    }

    /// The sums of this JVM, of what was `read`. `functions` are the rows of JNI functions and `methods` those of native methods;
    /// `records` says whose each record is, and `probes` are those of JNI functions.
    pub(super) fn totals<'a>(
        &self,
        read: &JniRead,
        (functions, methods): (Vec<MethodSnapshot>, &[MethodSnapshot]),
        (records, states): (HashMap<u32, u32>, States),
        probes: impl Iterator<Item = &'a Probe>,
    ) -> JniTotals {
        let traced: HashSet<&str> = probes.flat_map(|probe| &probe.methods).map(|known| &*known.method.name).collect();
        // The kernel has refused them, or there was no room.
        let others = self.names.iter().filter(|name| !traced.contains(&***name)).cloned();
        let unseen = self.unseen.iter().map(|name| SharedStr::from(*name)).chain(others).collect();
        let pairs = read.calls_of(records.keys().copied());
        // Those that get a name in a moment would be told twice: without it, and with it.
        let (mut thrown, classes) = (read.thrown_of(records.keys().copied()), self.classes());
        thrown.retain(|(thrown, _)| classes.is_settled(thrown.class));
        let thrown = thrown_sums(&classes, &thrown);
        let known = JniPairs { pairs, records, thrown, ..JniPairs::default() };
        jni_totals(JniRows { functions, states, unseen, tells_members: self.tells_members }, methods, &known)
    }

    /// The programs look at nothing in the JVM any more.
    pub(super) fn end(&self) {
        self.classes().end();
    }

    fn classes(&self) -> MutexGuard<'_, Classes> {
        // Whoever panicked here has learnt a name or not.
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
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
