//! Reads what the checks of [`super::kernel`] and [`super::permissions`] decide from.

use std::path::Path;

use super::kernel::{self, KernelVersion, uretprobe_killed_by_seccomp};
use super::process::read_bounded;
use super::status::Status;
use super::{Error, Proc, permissions};
use crate::model::{Finding, Jvm, Library, Verdict};

/// The files that hold one setting of the kernel.
const SETTING_BYTES: u64 = 4 << 10;
const STATUS_BYTES: u64 = 64 << 10;
/// What `/proc/PID/status` says of a process with a seccomp filter.
const FILTER: u32 = 2;

impl Proc {
    /// What this kernel and nprof's own permissions allow. Nothing is changed or attached.
    #[must_use]
    pub fn host_findings(&self) -> Vec<Finding> {
        let setting = |path: &str| read_setting(&self.host_root.join(path));
        let link = |path: &str| std::fs::read_link(self.root.join(path)).ok();
        vec![
            kernel::version_finding(&setting("proc/sys/kernel/osrelease").unwrap_or_default()),
            kernel::btf_finding(self.host_root.join("sys/kernel/btf/vmlinux").exists()),
            self.capabilities_finding(),
            permissions::user_namespace_finding(link("self/ns/user").as_deref()),
            permissions::pid_namespace_finding(link("self/ns/pid").as_deref()),
            kernel::lockdown_finding(setting("sys/kernel/security/lockdown").as_deref()),
            kernel::yama_finding(setting("proc/sys/kernel/yama/ptrace_scope").as_deref()),
        ]
    }

    /// Whether nprof has every capability that it can make use of. Where it has, and is refused all the same, more
    /// of them are no remedy.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.capabilities_finding().verdict == Verdict::Ok
    }

    fn capabilities_finding(&self) -> Finding {
        let status =
            read_bounded(&self.root.join("self/status"), STATUS_BYTES).ok().and_then(|bytes| Status::parse(&bytes));
        permissions::capabilities_finding(status.map_or(0, |status| status.cap_eff))
    }

    /// What tracing this JVM meets: whether its libraries can be opened, and whether return probes are safe in it.
    /// Whether its memory can be read shows when its inventory is read.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn jvm_findings(&self, jvm: &Jvm) -> Result<Vec<Finding>, Error> {
        let status = self.process(jvm.pid).status()?;
        Ok(vec![libraries_finding(&self.libraries(jvm.pid)?), seccomp_finding(self.kernel_version(), status.seccomp)])
    }

    /// The version of the running kernel, where nprof understands it.
    #[must_use]
    pub fn kernel_version(&self) -> Option<KernelVersion> {
        read_setting(&self.root.join("sys/kernel/osrelease"))?.parse().ok()
    }

    /// Whether tracing returns would crash this JVM: it runs under a seccomp filter and the kernel ends return
    /// probes with a system call that filters refuse. Counting entries (`--count-only`) is safe.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn return_probes_crash(&self, jvm: &Jvm) -> Result<bool, Error> {
        let mode = self.process(jvm.pid).status()?.seccomp;
        Ok(self.kernel_version().is_some_and(|kernel| uretprobe_killed_by_seccomp(kernel, mode)))
    }

    /// Whether one link may serve several JVMs. Its hits are told apart by the host's process ids. And it reaches processes of
    /// which nobody knows anything yet: on some kernels a probe on a return would crash those that run under a seccomp filter.
    #[must_use]
    pub fn may_share_links(&self) -> bool {
        let namespace = std::fs::read_link(self.root.join("self/ns/pid")).ok();
        let sees_host = permissions::pid_namespace_finding(namespace.as_deref()).verdict == Verdict::Ok;
        sees_host && self.kernel_version().is_some_and(|kernel| !uretprobe_killed_by_seccomp(kernel, FILTER))
    }
}

fn read_setting(path: &Path) -> Option<String> {
    let bytes = read_bounded(path, SETTING_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

fn libraries_finding(libraries: &[Library]) -> Finding {
    const CHECK: &str = "libraries";
    let closed: Vec<String> = libraries
        .iter()
        .filter(|library| crate::sys::target_file::look(&library.open_path).is_err())
        .map(Library::name)
        .collect();
    let total = libraries.len();
    match closed.first() {
        None => Finding::ok(CHECK, format!("all {total} can be opened")),
        Some(first) => Finding::warn(
            CHECK,
            format!("{} of {total} cannot be opened, such as {first}: their methods are not traced", closed.len()),
            "run nprof as root (sudo), or grant it CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH",
        ),
    }
}

fn seccomp_finding(kernel: Option<KernelVersion>, mode: u32) -> Finding {
    const CHECK: &str = "seccomp";
    match kernel {
        _ if mode == 0 => Finding::ok(CHECK, "no filter"),
        Some(kernel) if uretprobe_killed_by_seccomp(kernel, mode) => Finding::warn(
            CHECK,
            format!(
                "the JVM runs under a seccomp filter, and Linux {kernel} ends return probes with a system call \
                 (uretprobe, 335) that filters refuse: timing calls may crash it"
            ),
            "use --count-only, which needs no return probes, or boot Linux 6.14, 6.13.3 or 6.12.14 or later",
        ),
        Some(kernel) => Finding::ok(CHECK, format!("a filter, which does not see the return probes of Linux {kernel}")),
        None => Finding::warn(
            CHECK,
            "the JVM runs under a seccomp filter, and the kernel's version is not known",
            "use --count-only unless the kernel is known not to be Linux 6.11 to 6.13",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;
    use crate::model::Pid;

    fn verdict_of(findings: &[Finding], check: &str) -> Verdict {
        let finding = findings.iter().find(|f| f.check == check);
        finding.unwrap_or_else(|| panic!("no finding {check}: {findings:?}")).verdict
    }

    /// Check that links are shared neither where nprof sees other process ids than the kernel tells, nor where a process that
    /// is hit unawares would crash.
    #[test]
    fn where_links_are_shared() {
        let may_share = |namespace: &str, release: &str| {
            let host = TestProc::new();
            host.process(Pid(7)).add();
            host.link("proc/self", "7");
            host.link("proc/7/ns/pid", namespace);
            host.file("proc/sys/kernel/osrelease", release);
            host.proc().may_share_links()
        };
        let host = "pid:[4026531836]";
        assert!(may_share(host, "6.18.1") && may_share(host, "6.6.1") && may_share(host, "6.12.14"));
        assert!(!may_share(host, "6.11.0") && !may_share(host, "6.13.2") && !may_share(host, "unknown"));
        assert!(!may_share("pid:[4026532000]", "6.18.1"));
    }

    /// Check that the host's settings reach the checks that decide on them.
    #[test]
    fn reads_the_settings_of_the_host() {
        let host = TestProc::new();
        host.process(Pid(7)).cap_eff("000001ffffffffff").add();
        host.link("proc/self", "7");
        host.link("proc/7/ns/pid", "pid:[4026531836]");
        host.link("proc/7/ns/user", "user:[4026531837]");
        host.file("proc/sys/kernel/osrelease", "6.18.1-test\n");
        let findings = host.proc().host_findings();
        assert_eq!(verdict_of(&findings, "BTF"), Verdict::Fail);
        host.file("sys/kernel/btf/vmlinux", "");
        let findings = host.proc().host_findings();
        assert!(findings.iter().all(|f| f.verdict == Verdict::Ok), "{findings:?}");

        host.file("proc/sys/kernel/osrelease", "5.10.0\n");
        host.file("proc/sys/kernel/yama/ptrace_scope", "3\n");
        host.file("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        let findings = host.proc().host_findings();
        for check in ["kernel", "ptrace scope", "lockdown"] {
            assert_eq!(verdict_of(&findings, check), Verdict::Fail, "{check}");
        }
    }

    /// Check that a filtered JVM is warned about on the kernels that crash it, and only there.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn warns_of_seccomp() {
        let verdict = |kernel, mode| seccomp_finding(kernel, mode).verdict;
        assert_eq!(verdict(Some(KernelVersion(6, 12, 0)), 2), Verdict::Warn);
        assert_eq!(verdict(Some(KernelVersion(6, 12, 0)), 0), Verdict::Ok);
        assert_eq!(verdict(Some(KernelVersion(6, 18, 0)), 2), Verdict::Ok);
        assert_eq!(verdict(None, 2), Verdict::Warn);
    }

    /// Check that a library that cannot be opened is counted and named.
    #[test]
    fn reports_libraries_that_cannot_be_opened() {
        let host = TestProc::new();
        host.process(Pid(9)).maps_libjvm().add();
        let jvm = host.proc().jvm(Pid(9)).unwrap();
        let findings = host.proc().jvm_findings(&jvm).unwrap();
        assert_eq!(verdict_of(&findings, "libraries"), Verdict::Warn);

        host.file("proc/9/map_files/7f0000000000-7f0000100000", "ELF");
        let findings = host.proc().jvm_findings(&jvm).unwrap();
        assert_eq!(verdict_of(&findings, "libraries"), Verdict::Ok);
    }
}
