//! The JDKs of this machine, and JVMs of other versions that only run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::target::cargo_target_dir;

/// Where Linux distributions and vendors install JDKs.
const ROOT: &str = "/usr/lib/jvm";

/// The oldest Java version that the targets' sources are written for.
pub const OLDEST_SUPPORTED: u32 = 11;

/// One JDK: with compiler and headers if it is installed, without if it is there to run tests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jdk {
    /// Its feature release: 17, 25.
    pub version: u32,
    /// Its directory, without symbolic links.
    pub home: PathBuf,
}

impl fmt::Display for Jdk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JDK {} ({})", self.version, self.home.display())
    }
}

impl Jdk {
    /// A tool of this JDK: `java`, `javac`.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        self.home.join("bin").join(name)
    }

    /// Every JDK under `/usr/lib/jvm`, oldest first; one that several names lead to is listed once.
    ///
    /// # Errors
    /// When a directory that holds a compiler does not say which version it is.
    pub fn find_all() -> Result<Vec<Self>> {
        find_under(Path::new(ROOT), &["java", "javac"])
    }

    /// The JVMs of other versions that `cargo xtask setup --for test` has put beside what Cargo builds, oldest first.
    ///
    /// # Errors
    /// When one does not say which version it is.
    pub fn find_others() -> Result<Vec<Self>> {
        find_under(&others(), &["java"])
    }
}

/// Where the JVMs of other versions are.
#[must_use]
pub fn others() -> PathBuf {
    cargo_target_dir().join("test-jvms")
}

fn find_under(root: &Path, programs: &[&str]) -> Result<Vec<Jdk>> {
    let Ok(entries) = root.read_dir() else {
        return Ok(Vec::new());
    };
    let mut by_home = BTreeMap::new();
    for entry in entries {
        let home = entry?.path();
        if programs.iter().all(|program| home.join("bin").join(program).exists()) {
            let home = home.canonicalize()?;
            let version = version_of(&home)?;
            by_home.insert(home.clone(), Jdk { version, home });
        }
    }
    let mut found: Vec<Jdk> = by_home.into_values().collect();
    found.sort_by_key(|jdk| jdk.version);
    Ok(found)
}

fn version_of(home: &Path) -> Result<u32> {
    let file = home.join("release");
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    feature_release(&text).with_context(|| format!("no JAVA_VERSION in {}", file.display()))
}

/// The feature release in the text of a `release` file: 8 from `1.8.0_402`, 17 from `17.0.15`.
fn feature_release(release_file: &str) -> Option<u32> {
    let line = release_file.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    let version = line.trim_matches('"');
    let version = version.strip_prefix("1.").unwrap_or(version);
    version.split(['.', '-', '+', '_']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the feature release is read in the old and in the new style.
    #[test]
    fn reads_both_styles_of_version() {
        assert_eq!(feature_release("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"17.0.15\"\n"), Some(17));
        assert_eq!(feature_release("JAVA_VERSION=\"1.8.0_402\"\n"), Some(8));
        assert_eq!(feature_release("JAVA_VERSION=\"26-ea\"\n"), Some(26));
        assert_eq!(feature_release("OS_NAME=\"Linux\"\n"), None);
    }

    /// Check that a directory without JDKs gives none, and that one which does not exist is no error.
    #[test]
    fn nothing_is_found_where_nothing_is() {
        assert_eq!(find_under(Path::new("/proc/self/fd"), &["java"]).unwrap(), []);
        assert_eq!(find_under(Path::new("/nonexistent"), &["java"]).unwrap(), []);
    }
}
