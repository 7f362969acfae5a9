//! Whether a VM's collector waits for the end of critical sections.

use super::Error;
use super::jvm_jni::java_version;
use super::prepared::Prepared;
use super::sampling::libjvm_of;
use crate::hotspot;
use crate::sys::remote_memory::ProcessMemory;

/// Those that wait, whichever version.
const WAITING: [&str; 3] = ["UseSerialGC", "UseParallelGC", "UseZGC"];
/// Those that leave the regions alone which critical sections are about.
const PINNING: [&str; 2] = ["UseShenandoahGC", "UseEpsilonGC"];
/// The one that has come to do so, and since which version of Java.
const G1: &str = "UseG1GC";
const G1_PINS: u32 = 22;

impl Prepared {
    /// Whether the VM's collector waits for the end of critical sections; `None` if the VM does not say which collector it has.
    ///
    /// # Errors
    /// If the VM cannot be read.
    pub fn waits_for_critical(&self) -> Result<Option<bool>, Error> {
        let libjvm = libjvm_of(self.proc(), self.jvm())?;
        let memory = || ProcessMemory::new(self.jvm().pid);
        let is_on = |flag: Option<hotspot::Flag>| flag.is_some_and(|flag| flag.is_on);
        let waits = hotspot::flags(memory(), &libjvm, WAITING)?.into_iter().any(is_on);
        let pins = hotspot::flags(memory(), &libjvm, PINNING)?.into_iter().any(is_on);
        let [g1] = hotspot::flags(memory(), &libjvm, [G1])?.map(is_on);
        Ok(waits_by([waits, pins, g1], java_version(&self.jvm().vm_version)))
    }
}

fn waits_by([waits, pins, g1]: [bool; 3], version: Option<u32>) -> Option<bool> {
    match (waits, pins, g1) {
        (true, ..) => Some(true),
        (_, true, _) => Some(false),
        (_, _, true) => Some(version? < G1_PINS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::waits_by;

    /// Check that it is told by collector and, of G1, by version, and that nothing is said of an unknown one.
    #[test]
    fn by_collector() {
        assert_eq!(waits_by([true, false, false], None), Some(true));
        assert_eq!(waits_by([false, true, false], None), Some(false));
        assert_eq!(
            [17, 21, 22, 25].map(|java| waits_by([false, false, true], Some(java))),
            [true, true, false, false].map(Some)
        );
        assert_eq!((waits_by([false, false, true], None), waits_by([false; 3], Some(17))), (None, None));
    }
}
