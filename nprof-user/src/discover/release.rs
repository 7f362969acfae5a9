//! Vendor and version of a JDK from its `release` file: a cheap answer where the VM itself has not been asked.

use std::path::{Path, PathBuf};

use super::process::{ProcessDir, read_to_limit};

/// The file holds a dozen short lines.
const RELEASE_BYTES: u64 = 64 << 10;

/// What the file says; empty where it does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Release {
    /// Who built it: `Eclipse Adoptium`.
    pub(super) vendor: String,
    /// The full version: `25.0.3+9-LTS`.
    pub(super) version: String,
}

impl Release {
    /// Reads the file of the JDK that `libjvm` belongs to, as the target sees it. Nothing is known of a JDK
    /// without the file, or of one that has been deleted.
    pub(super) fn read(process: &ProcessDir, libjvm: &Path) -> Self {
        let Some(libjvm) = process.as_target_sees(libjvm) else {
            return Self::default();
        };
        candidates(&libjvm)
            .into_iter()
            .filter_map(|path| process.open_as_target(&path).ok())
            .filter_map(|file| read_to_limit(file.stream(), RELEASE_BYTES).ok())
            .map(|bytes| Self::parse(&bytes))
            .next()
            .unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(|value| value.trim().trim_matches('"').to_owned())
        };
        Self {
            vendor: value("IMPLEMENTOR").unwrap_or_default(),
            version: value("JAVA_RUNTIME_VERSION").or_else(|| value("JAVA_VERSION")).unwrap_or_default(),
        }
    }
}

/// Where the file may be: above `lib/server/libjvm.so`, or above `jre/lib/amd64/server/libjvm.so` in JDK 8.
fn candidates(libjvm: &Path) -> Vec<PathBuf> {
    libjvm.ancestors().skip(3).take(3).map(|dir| dir.join("release")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that vendor and version are read, and the short version where there is no long one.
    #[test]
    fn reads_vendor_and_version() {
        let new = Release::parse(
            b"IMPLEMENTOR=\"Debian\"\nJAVA_RUNTIME_VERSION=\"17.0.15+6-Debian\"\nJAVA_VERSION=\"17.0.15\"\n",
        );
        assert_eq!(new.vendor, "Debian");
        assert_eq!(new.version, "17.0.15+6-Debian");
        let old = Release::parse(b"JAVA_VERSION=\"1.8.0_412\"\n");
        assert_eq!((old.vendor.as_str(), old.version.as_str()), ("", "1.8.0_412"));
    }

    /// Check that the file is sought where today's JDKs and JDK 8 keep it.
    #[test]
    fn seeks_above_libjvm() {
        let new = candidates(Path::new("/opt/jdk/lib/server/libjvm.so"));
        assert_eq!(new[0], Path::new("/opt/jdk/release"));
        let old = candidates(Path::new("/opt/jdk8/jre/lib/amd64/server/libjvm.so"));
        assert_eq!(old[2], Path::new("/opt/jdk8/release"));
        assert_eq!(candidates(Path::new("/libjvm.so")), Vec::<PathBuf>::new());
    }
}
