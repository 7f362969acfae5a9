//! The JDKs of a machine: a compiler and a VM together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::Machine;

/// One JDK.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Jdk {
    /// The version's numbers, such as 17, 0, 15; empty where the JDK does not say.
    version: Vec<u32>,
    /// Its home, without symbolic links.
    pub(crate) home: PathBuf,
}

impl Jdk {
    /// One of its programs, such as `javac`.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.home.join("bin").join(name)
    }
}

/// The newest JDK of the machine.
pub(crate) fn newest(machine: &Machine) -> Option<Jdk> {
    all(machine).pop()
}

/// The home of a JDK of this version.
pub(crate) fn of_version(machine: &Machine, feature: u32) -> Option<PathBuf> {
    all(machine).into_iter().find(|jdk| jdk.version.first() == Some(&feature)).map(|jdk| jdk.home)
}

/// Every JDK below `/usr/lib/jvm` and the one on the PATH, each once, the newest last.
fn all(machine: &Machine) -> Vec<Jdk> {
    let mut homes: Vec<PathBuf> = fs::read_dir(machine.system("/usr/lib/jvm"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    homes.extend(machine.program("javac").and_then(|javac| home_of(&javac)));
    // By canonical path: distributions add symbolic links beside the real directory.
    let unique: BTreeMap<PathBuf, Vec<u32>> = homes
        .into_iter()
        .filter_map(|home| home.canonicalize().ok())
        .filter(|home| home.join("bin/javac").is_file())
        .map(|home| (home.clone(), version(&home)))
        .collect();
    let mut jdks: Vec<Jdk> = unique.into_iter().map(|(home, version)| Jdk { version, home }).collect();
    jdks.sort();
    jdks
}

/// The JDK that a `javac` belongs to: `/usr/bin/javac` is a chain of links into it.
fn home_of(javac: &Path) -> Option<PathBuf> {
    let real = javac.canonicalize().ok()?;
    Some(real.parent()?.parent()?.to_path_buf())
}

/// The version in the JDK's `release` file.
fn version(home: &Path) -> Vec<u32> {
    let release = fs::read_to_string(home.join("release")).unwrap_or_default();
    release
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION="))
        .map(|value| {
            value.trim_matches('"').split(['.', '_', '-', '+']).map_while(|number| number.parse().ok()).collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    /// Check that the newest is chosen by number, not by name, and that a JRE is no JDK.
    #[test]
    fn newest_by_version() {
        let fake = FakeMachine::new();
        assert_eq!(newest(&fake.machine), None);
        for (name, release) in [
            ("temurin-9", "JAVA_VERSION=\"9\"\n"),
            ("a-25", "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.3\"\n"),
            ("java-17", "JAVA_VERSION=\"17.0.15\"\n"),
        ] {
            fake.file(&format!("/usr/lib/jvm/{name}/bin/javac"))
                .file_with(&format!("/usr/lib/jvm/{name}/release"), release);
        }
        fake.file("/usr/lib/jvm/jre-99/bin/java").file_with("/usr/lib/jvm/jre-99/release", "JAVA_VERSION=\"99\"\n");
        let jdk = newest(&fake.machine).unwrap();
        assert!(jdk.home.ends_with("a-25"), "{jdk:?}");
        assert!(jdk.program("javac").is_file());
    }

    /// Check that a JDK elsewhere is found through `javac` on the PATH, and counted once.
    #[test]
    fn jdk_on_the_path() {
        let fake = FakeMachine::new();
        fake.file("/opt/jdk/bin/javac").file("/usr/bin/other");
        std::os::unix::fs::symlink(fake.machine.system("/opt/jdk/bin/javac"), fake.machine.system("/usr/bin/javac"))
            .unwrap();
        let jdks = all(&fake.machine);
        assert_eq!(jdks.len(), 1);
        assert!(jdks[0].home.ends_with("opt/jdk"), "{jdks:?}");
    }
}
