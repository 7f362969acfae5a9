//! What a kernel release can do for nprof, decided from its version and from what the kernel says about itself.

use std::fmt;
use std::str::FromStr;

use crate::model::Finding;

/// The first kernel with uprobe_multi links.
const UPROBE_MULTI: KernelVersion = KernelVersion(6, 6, 0);

/// The version of a kernel: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion(pub u32, pub u32, pub u32);

/// A kernel release that does not begin with a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel release {0:?} does not begin with a version")]
pub struct KernelVersionError(String);

impl FromStr for KernelVersion {
    type Err = KernelVersionError;

    /// Parses a release as `uname -r` prints it; what follows the numbers is the distribution's.
    fn from_str(release: &str) -> Result<Self, Self::Err> {
        let release = release.trim();
        let numbers = release.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut numbers = numbers.split('.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), patch) => {
                let patch = patch.and_then(Result::ok).unwrap_or(0);
                Ok(Self(major, minor, patch))
            }
            _ => Err(KernelVersionError(release.to_owned())),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Whether a return probe ends a process that runs under a seccomp filter.
///
/// From 6.11 on x86-64 kernels end a return probe with a dedicated system call (`uretprobe`, number 335). A
/// filter that does not know it, such as the default one of most container runtimes, refuses it, and the process
/// crashes. 6.14, 6.13.3 and 6.12.14 no longer ask the filter (kernel commit cf6cb56ef244). A distribution may have
/// mended an older one, which the number does not show: then this errs on the safe side.
#[must_use]
pub fn uretprobe_killed_by_seccomp(kernel: KernelVersion, seccomp_mode: u32) -> bool {
    let affected = match kernel {
        KernelVersion(6, 11, _) => true,
        KernelVersion(6, 12, patch) => patch < 14,
        KernelVersion(6, 13, patch) => patch < 3,
        _ => false,
    };
    cfg!(target_arch = "x86_64") && affected && seccomp_mode != 0
}

/// Whether this kernel has what nprof attaches with. The distribution's release string is shown as it is.
pub(super) fn version_finding(release: &str) -> Finding {
    const CHECK: &str = "kernel";
    let release = release.trim();
    match release.parse::<KernelVersion>() {
        Err(_) => Finding::warn(
            CHECK,
            format!("{release:?} is no version that nprof understands"),
            format!("nprof needs Linux {UPROBE_MULTI} or later"),
        ),
        Ok(version) if version < UPROBE_MULTI => Finding::fail(
            CHECK,
            format!("{release} has no uprobe_multi links (they came with 6.6)"),
            "boot Linux 6.6 or later; nprof has no fallback for older kernels yet",
        ),
        Ok(_) => Finding::ok(CHECK, format!("{release} has uprobe_multi links")),
    }
}

/// Whether the kernel describes its own types (`/sys/kernel/btf/vmlinux`), which task storage needs.
pub(super) fn btf_finding(is_there: bool) -> Finding {
    const CHECK: &str = "BTF";
    if is_there {
        return Finding::ok(CHECK, "the kernel describes its types");
    }
    Finding::fail(
        CHECK,
        "/sys/kernel/btf/vmlinux does not exist: the BPF programs cannot be loaded",
        "use a kernel built with CONFIG_DEBUG_INFO_BTF, as those of distributions are",
    )
}

/// What `/sys/kernel/security/lockdown` allows; `None` where the file does not exist: no lockdown in this kernel.
pub(super) fn lockdown_finding(lockdown: Option<&str>) -> Finding {
    const CHECK: &str = "lockdown";
    match lockdown.map_or("none", active_choice) {
        "confidentiality" => Finding::fail(
            CHECK,
            "the kernel is locked down for confidentiality: BPF programs may not read memory",
            "boot with lockdown=integrity or without lockdown (Secure Boot may enforce it)",
        ),
        mode => Finding::ok(CHECK, format!("{mode}: BPF programs may read memory")),
    }
}

/// The word in brackets of a file such as `none [integrity] confidentiality`.
fn active_choice(choices: &str) -> &str {
    choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or("unknown")
}

/// What Yama's `ptrace_scope` allows; `None` where the file does not exist: no Yama in this kernel.
pub(super) fn yama_finding(ptrace_scope: Option<&str>) -> Finding {
    const CHECK: &str = "ptrace scope";
    match ptrace_scope.map(str::trim) {
        Some("3") => Finding::fail(
            CHECK,
            "kernel.yama.ptrace_scope is 3: nobody may read another process's memory",
            "set kernel.yama.ptrace_scope to 2 or lower in /etc/sysctl.d and reboot (it cannot be lowered before)",
        ),
        Some(scope @ ("1" | "2")) => Finding::ok(CHECK, format!("{scope}: memory can be read with CAP_SYS_PTRACE")),
        Some(scope) => Finding::ok(CHECK, format!("{scope}: memory can be read")),
        None => Finding::ok(CHECK, "this kernel does not restrict it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verdict;

    /// Check that releases of distributions are understood, with and without a patch number.
    #[test]
    fn parses_releases() {
        let parse = |release: &str| release.parse::<KernelVersion>();
        assert_eq!(parse("6.18.44-fc-v657\n"), Ok(KernelVersion(6, 18, 44)));
        assert_eq!(parse("6.12.0-55.el10_0.x86_64"), Ok(KernelVersion(6, 12, 0)));
        assert_eq!(parse("6.6-rc3"), Ok(KernelVersion(6, 6, 0)));
        assert_eq!(parse("5.10.0.1+"), Ok(KernelVersion(5, 10, 0)));
        assert!(parse("").is_err());
        assert!(parse("linux-6.6").is_err());
        assert!(parse("6").is_err());
        assert!(parse("99999999999.1").is_err());
    }

    /// Check that a kernel without BTF fails the check.
    #[test]
    fn judges_btf() {
        assert_eq!(btf_finding(true).verdict, Verdict::Ok);
        assert_eq!(btf_finding(false).verdict, Verdict::Fail);
    }

    /// Check the verdict on either side of the border, and that versions compare by number (6.10 after 6.5).
    #[test]
    fn judges_versions() {
        let verdict = |release| version_finding(release).verdict;
        assert_eq!(verdict("5.15.0-91-generic"), Verdict::Fail);
        assert_eq!(verdict("6.5.13"), Verdict::Fail);
        assert_eq!(verdict("6.6.0"), Verdict::Ok);
        assert_eq!(verdict("6.10.0"), Verdict::Ok);
        assert_eq!(verdict("7.0"), Verdict::Ok);
        assert_eq!(verdict("unknown"), Verdict::Warn);
    }

    /// Check that only kernels with the system call and without its exemption endanger a filtered process.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn knows_when_seccomp_kills() {
        let kills = |major, minor, patch| uretprobe_killed_by_seccomp(KernelVersion(major, minor, patch), 2);
        assert!(!kills(6, 10, 14));
        assert!(kills(6, 11, 0) && kills(6, 11, 99));
        assert!(kills(6, 12, 13) && !kills(6, 12, 14));
        assert!(kills(6, 13, 2) && !kills(6, 13, 3));
        assert!(!kills(6, 14, 0) && !kills(7, 0, 0));
        assert!(!uretprobe_killed_by_seccomp(KernelVersion(6, 11, 0), 0));
    }

    /// Check that the active lockdown mode is taken and no other word of the line.
    #[test]
    fn reads_lockdown() {
        let verdict = |text| lockdown_finding(text).verdict;
        assert_eq!(verdict(None), Verdict::Ok);
        assert_eq!(verdict(Some("[none] integrity confidentiality\n")), Verdict::Ok);
        assert_eq!(verdict(Some("none [integrity] confidentiality\n")), Verdict::Ok);
        assert_eq!(verdict(Some("none integrity [confidentiality]\n")), Verdict::Fail);
    }

    /// Check that only Yama's strictest setting fails.
    #[test]
    fn reads_ptrace_scope() {
        for scope in [None, Some("0\n"), Some("1\n"), Some("2\n")] {
            assert_eq!(yama_finding(scope).verdict, Verdict::Ok, "{scope:?}");
        }
        assert_eq!(yama_finding(Some("3\n")).verdict, Verdict::Fail);
    }
}
