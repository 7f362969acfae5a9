//! What nprof may do on this host: its capabilities and the namespaces that it runs in.

use std::path::Path;

use crate::model::{Finding, Verdict};

/// A capability by its kernel number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capability {
    bit: u32,
    name: &'static str,
}

const DAC_OVERRIDE: Capability = Capability { bit: 1, name: "CAP_DAC_OVERRIDE" };
const DAC_READ_SEARCH: Capability = Capability { bit: 2, name: "CAP_DAC_READ_SEARCH" };
const SYS_PTRACE: Capability = Capability { bit: 19, name: "CAP_SYS_PTRACE" };
const SYS_ADMIN: Capability = Capability { bit: 21, name: "CAP_SYS_ADMIN" };
const PERFMON: Capability = Capability { bit: 38, name: "CAP_PERFMON" };
const BPF: Capability = Capability { bit: 39, name: "CAP_BPF" };
const CHECKPOINT_RESTORE: Capability = Capability { bit: 40, name: "CAP_CHECKPOINT_RESTORE" };

/// One thing that nprof does, and the capabilities of which any one lets it.
struct Need {
    /// The first is the narrowest: the one to grant.
    any_of: &'static [Capability],
    to: &'static str,
    /// What it means to have none of them.
    without: Verdict,
}

const NEEDS: &[Need] = &[
    Need { any_of: &[BPF, SYS_ADMIN], to: "load BPF programs", without: Verdict::Fail },
    Need { any_of: &[PERFMON, SYS_ADMIN], to: "attach probes", without: Verdict::Fail },
    Need { any_of: &[SYS_PTRACE], to: "look into processes of other users", without: Verdict::Warn },
    Need {
        any_of: &[CHECKPOINT_RESTORE, SYS_ADMIN],
        to: "open mapped files that are deleted or in a container",
        without: Verdict::Warn,
    },
    Need {
        any_of: &[DAC_READ_SEARCH, DAC_OVERRIDE],
        to: "open deleted files that other users have mapped",
        without: Verdict::Warn,
    },
];

/// The inode of the host's process-id namespace, fixed in the kernel (`PROC_PID_INIT_INO`).
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The inode of the host's user namespace, fixed in the kernel (`PROC_USER_INIT_INO`).
const HOST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Whether the effective capabilities, bits as in `CapEff`, are enough.
pub(super) fn capabilities_finding(effective: u64) -> Finding {
    const CHECK: &str = "capabilities";
    let holds = |capability: &Capability| effective >> capability.bit & 1 == 1;
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.any_of.iter().any(holds)).collect();
    let Some(verdict) = missing.iter().map(|need| need.without).max() else {
        return Finding::ok(CHECK, "enough to load, attach and read");
    };
    let grant = |need: &&Need| need.any_of.first().map_or("", |capability| capability.name);
    let says: Vec<String> = missing.iter().map(|need| format!("{} (to {})", grant(need), need.to)).collect();
    let names: Vec<&str> = missing.iter().map(grant).collect();
    Finding {
        check: CHECK,
        verdict,
        says: format!("missing: {}", says.join(", ")),
        fix: Some(format!("run nprof as root (sudo), or grant it {}", names.join(", "))),
    }
}

/// Whether nprof sees the host's process ids, which BPF programs report. `link` is the target of
/// `/proc/self/ns/pid`.
pub(super) fn pid_namespace_finding(link: Option<&Path>) -> Finding {
    const CHECK: &str = "pid namespace";
    match link.and_then(Path::to_str) {
        Some(HOST_PID_NAMESPACE) => Finding::ok(CHECK, "nprof sees the host's process ids"),
        Some(_) => Finding::fail(
            CHECK,
            "nprof runs in a container with its own process ids; the kernel reports the host's",
            "start the container with --pid=host (Kubernetes: hostPID: true), or run nprof on the host",
        ),
        None => Finding::warn(CHECK, "/proc/self/ns/pid cannot be read", "mount /proc, or run nprof on the host"),
    }
}

/// Whether nprof's capabilities count on the host. `link` is the target of `/proc/self/ns/user`.
pub(super) fn user_namespace_finding(link: Option<&Path>) -> Finding {
    const CHECK: &str = "user namespace";
    match link.and_then(Path::to_str) {
        // A kernel without user namespaces has no such file.
        None | Some(HOST_USER_NAMESPACE) => Finding::ok(CHECK, "capabilities count on the host"),
        Some(_) => Finding::fail(
            CHECK,
            "nprof runs in a user namespace (a rootless container): its capabilities do not count on the host",
            "run nprof on the host as root, or in a container that is not rootless",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(capabilities: &[Capability]) -> u64 {
        capabilities.iter().map(|c| 1 << c.bit).sum()
    }

    /// Check that root passes, and the narrow set that can replace it, and the older wide one.
    #[test]
    fn accepts_enough() {
        let narrow = [BPF, PERFMON, SYS_PTRACE, CHECKPOINT_RESTORE, DAC_READ_SEARCH];
        let wide = [SYS_ADMIN, SYS_PTRACE, DAC_OVERRIDE];
        for effective in [0x1ff_ffff_ffff, bits(&narrow), bits(&wide)] {
            assert_eq!(capabilities_finding(effective).verdict, Verdict::Ok);
        }
    }

    /// Check that exactly the missing capability is named, and what it is needed for.
    #[test]
    fn names_what_is_missing() {
        let finding = capabilities_finding(bits(&[SYS_ADMIN, DAC_OVERRIDE]));
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.says, "missing: CAP_SYS_PTRACE (to look into processes of other users)");
        let all = capabilities_finding(0);
        assert_eq!(all.verdict, Verdict::Fail);
        let fix = all.fix.unwrap();
        for need in NEEDS {
            assert!(fix.contains(need.any_of[0].name), "{fix}");
        }
    }

    /// Check that only the host's own namespaces pass.
    #[test]
    fn tells_the_host_from_a_container() {
        let pid = |link| pid_namespace_finding(Some(Path::new(link))).verdict;
        assert_eq!(pid("pid:[4026531836]"), Verdict::Ok);
        assert_eq!(pid("pid:[4026532441]"), Verdict::Fail);
        assert_eq!(pid_namespace_finding(None).verdict, Verdict::Warn);
        let user = |link| user_namespace_finding(Some(Path::new(link))).verdict;
        assert_eq!(user("user:[4026531837]"), Verdict::Ok);
        assert_eq!(user("user:[4026532440]"), Verdict::Fail);
    }
}
