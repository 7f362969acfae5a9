//! A JVM process on this host.

use super::Pid;

/// When a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`). Together with the pid it
/// names a process for good: a reused pid has another start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTime(pub u64);

/// Which virtual machine runs in a process, as far as it matters to nprof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JvmKind {
    /// HotSpot with its tables (`gHotSpotVMStructs`): everything works.
    HotSpot,
    /// A HotSpot build without the tables (the "minimal" VM).
    HotSpotMinimal,
    /// Eclipse OpenJ9.
    OpenJ9,
    /// An executable built by GraalVM native-image.
    NativeImage,
}

impl JvmKind {
    /// Whether nprof can read the native methods of such a VM.
    #[must_use]
    pub fn is_supported(self) -> bool {
        matches!(self, Self::HotSpot)
    }

    /// The word for JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HotSpot => "hotspot",
            Self::HotSpotMinimal => "hotspot-minimal",
            Self::OpenJ9 => "openj9",
            Self::NativeImage => "native-image",
        }
    }
}

impl Jvm {
    /// The JDK as people name it: `JDK 17.0.15+6`, `JDK 8u432`; says so where it is not known.
    #[must_use]
    pub fn jdk(&self) -> String {
        match (&*self.vm_version, self.vm_version.strip_prefix("1.8.0_")) {
            ("", _) => "JDK of unknown version".to_owned(),
            (_, Some(update)) => format!("JDK 8u{}", update.split('-').next().unwrap_or(update)),
            (version, None) => format!("JDK {version}"),
        }
    }

    /// Its feature release: 17 of `17.0.15+6`, 8 of `1.8.0_412`; `None` where it is not known.
    #[must_use]
    pub fn feature_release(&self) -> Option<u32> {
        feature_release(&self.vm_version)
    }
}

fn feature_release(version: &str) -> Option<u32> {
    let version = version.strip_prefix("1.").unwrap_or(version);
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// One JVM process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jvm {
    /// Its process id on the host.
    pub pid: Pid,
    /// When it started; tells a reused pid apart.
    pub start_time: StartTime,
    /// The main class, or the jar's file name, or the executable's name where there is neither.
    pub main: String,
    /// What kind of VM it is.
    pub kind: JvmKind,
    /// The VM's name, such as `OpenJDK 64-Bit Server VM`; empty where it is not known.
    pub vm_name: String,
    /// The VM's version, such as `17.0.15+6-Debian-1deb12u1`; empty where it is not known.
    pub vm_version: String,
    /// The user id that it runs as (effective).
    pub uid: u32,
    /// The name of that user on the host, where it has one.
    pub user: Option<String>,
    /// The container's id, from the cgroup path, where it runs in one.
    pub container: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::feature_release;

    /// Check that versions of all forms are understood.
    #[test]
    fn reads_versions() {
        for (version, feature) in
            [("17.0.15+6-Debian-1deb12u1", Some(17)), ("25.0.3+9-LTS", Some(25)), ("1.8.0_412", Some(8)), ("", None)]
        {
            assert_eq!(feature_release(version), feature, "{version}");
        }
        assert_eq!(feature_release("26-ea+5"), Some(26));
        assert_eq!(feature_release("next"), None);
    }
}
