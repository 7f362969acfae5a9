//! Whether a VM's collector waits for the end of critical sections, and where it can be seen how long it does.

use super::Error;
use super::jvm_jni::java_version;
use super::prepared::Prepared;
use super::sampling::libjvm_of;
use crate::attach::{Engine, in_full};
use crate::hotspot;
use crate::model::{CollectionsWait, Library, LockerSites, Pid};
use crate::resolve::locker_sites;
use crate::sys::probe_link::ProbeLink;
use crate::sys::remote_memory::ProcessMemory;

/// Those that wait by the lock that all threads in critical sections share, whichever version.
const LOCKING: [&str; 2] = ["UseSerialGC", "UseParallelGC"];
/// The one that waits in a way of its own.
const OTHERWISE: &str = "UseZGC";
/// Those that leave the regions alone which critical sections are about.
const PINNING: [&str; 2] = ["UseShenandoahGC", "UseEpsilonGC"];
/// The one that has come to do so, and since which version of Java.
const G1: &str = "UseG1GC";
const G1_PINS: u32 = 22;

/// How a collector gets on with critical sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It leaves alone what they are about.
    Pins,
    /// It waits by the lock.
    Locks,
    /// It waits in another way, or that is not known.
    Otherwise,
}

/// What is known of a VM that is about to be traced.
#[derive(Debug)]
pub(super) enum Known {
    /// No collection waits.
    Never,
    /// How long they wait is seen at these functions of this library.
    At(Library, LockerSites),
    /// They may.
    Perhaps,
}

impl Prepared {
    /// What is known of the VM's collector.
    ///
    /// # Errors
    /// If the VM cannot be read.
    pub(super) fn collections_wait(&self) -> Result<Known, Error> {
        let libjvm = libjvm_of(self.proc(), self.jvm())?;
        let memory = || ProcessMemory::new(self.jvm().pid);
        let is_on = |flag: Option<hotspot::Flag>| flag.is_some_and(|flag| flag.is_on);
        let locks = hotspot::flags(memory(), &libjvm, LOCKING)?.into_iter().any(is_on);
        let pins = hotspot::flags(memory(), &libjvm, PINNING)?.into_iter().any(is_on);
        let [g1, otherwise] = hotspot::flags(memory(), &libjvm, [G1, OTHERWISE])?.map(is_on);
        let way = way_of([locks, pins, g1, otherwise], java_version(&self.jvm().vm_version));
        Ok(match way {
            Way::Pins => Known::Never,
            Way::Otherwise => Known::Perhaps,
            Way::Locks => match locker_sites(&libjvm.open_path) {
                Ok(Some(sites)) => Known::At(libjvm, sites),
                // Stripped of its names, or of a version that has others.
                Ok(None) => Known::Perhaps,
                Err(error) => {
                    tracing::debug!("{}: not known how long collections wait: {error}", libjvm.name());
                    Known::Perhaps
                }
            },
        })
    }
}

/// Watches how long collections wait as long as it is kept.
#[derive(Debug)]
pub(super) struct LockerWatch {
    links: Vec<ProbeLink>,
    /// What is known besides what is counted.
    pub(super) collections: CollectionsWait,
}

impl LockerWatch {
    /// Begins to, if `engine` is one that can.
    pub(super) fn begin(engine: &Engine, pid: Pid, known: Known) -> Self {
        let (links, collections) = match known {
            Known::Never => (Vec::new(), CollectionsWait::Never),
            Known::Perhaps => (Vec::new(), CollectionsWait::Perhaps),
            Known::At(libjvm, sites) => match engine.watch_locker(pid, &libjvm, &sites) {
                Ok(links) => (links, CollectionsWait::For(Vec::new())),
                Err(error) => {
                    tracing::debug!("process {pid}: not known how long collections wait: {}", in_full(&error));
                    (Vec::new(), CollectionsWait::Perhaps)
                }
            },
        };
        Self { links, collections }
    }

    /// Takes the probes away. What was counted stays.
    pub(super) fn stop(&mut self) {
        self.links.clear();
    }
}

fn way_of([locks, pins, g1, otherwise]: [bool; 4], version: Option<u32>) -> Way {
    match (locks, pins, g1, version) {
        (true, ..) => Way::Locks,
        (_, true, ..) => Way::Pins,
        (_, _, true, Some(version)) if !otherwise => {
            if version < G1_PINS {
                Way::Locks
            } else {
                Way::Pins
            }
        }
        _ => Way::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::{Way, way_of};

    /// Check that it is told by collector and, of G1, by version, and that nothing is said of an unknown one.
    #[test]
    fn by_collector() {
        assert_eq!(way_of([true, false, false, false], None), Way::Locks);
        assert_eq!(way_of([false, true, false, false], None), Way::Pins);
        assert_eq!(
            [17, 21, 22, 25].map(|java| way_of([false, false, true, false], Some(java))),
            [Way::Locks, Way::Locks, Way::Pins, Way::Pins]
        );
        let unknown = [
            way_of([false, false, true, false], None),
            way_of([false; 4], Some(17)),
            way_of([false, false, false, true], Some(25)),
        ];
        assert_eq!(unknown, [Way::Otherwise; 3]);
    }
}
