//! The Kubernetes pod that a process runs in, from its cgroup path.

/// The lengths of a pod's uid: a UUID with dashes, or, for static pods, a hash of 32 digits.
const UUID_LENGTH: usize = 36;
const HASH_LENGTH: usize = 32;

/// The pod's uid in `/proc/PID/cgroup`, of cgroup version 1 or 2, whichever driver the kubelet uses: `…/podUID/…`
/// (cgroupfs) or `…-podUID.slice` with underscores for the dashes (systemd). The deepest one counts.
pub(super) fn pod_uid(cgroup: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(cgroup);
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(uid_in_path)
}

fn uid_in_path(path: &str) -> Option<String> {
    // Some runtimes put more behind a colon: `kubepods-podUID.slice:cri-containerd:ID`.
    path.rsplit(['/', ':']).find_map(|part| {
        let uid = match part.strip_suffix(".slice") {
            Some(slice) => {
                slice.rsplit_once('-').map_or(slice, |(_, last)| last).strip_prefix("pod")?.replace('_', "-")
            }
            None => part.strip_prefix("pod")?.to_owned(),
        };
        is_uid(&uid).then_some(uid)
    })
}

fn is_uid(text: &str) -> bool {
    let dashes = text.bytes().filter(|b| *b == b'-').count();
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits + dashes == text.len() && matches!((text.len(), dashes), (UUID_LENGTH, 4) | (HASH_LENGTH, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8";
    const ID: &str = "8a2b7cdd9a0c3f4e5d6b7a8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7a8b9c0";

    /// Check that the uid is found with both drivers, in both versions of cgroups and in every class of service.
    #[test]
    fn finds_the_uid_with_every_driver() {
        let slice = UID.replace('-', "_");
        let paths = [
            format!("11:cpu:/kubepods/burstable/pod{UID}/{ID}\n"),
            format!("12:pids:/kubepods/pod{UID}/{ID}\n11:cpu:/\n"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice/crio-{ID}.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-{ID}.scope\n"),
            format!("1:name=systemd:/system.slice/containerd.service/kubepods-pod{slice}.slice:cri-containerd:{ID}\n"),
            format!("0::/kubelet/kubepods/pod{UID}/{ID}/init\n"),
        ];
        for path in paths {
            assert_eq!(pod_uid(path.as_bytes()).as_deref(), Some(UID), "{path}");
        }
        let hash = "acb1f1721f61663a180a43c90b2bf760";
        let fixed = format!("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{hash}.slice/x.scope\n");
        assert_eq!(pod_uid(fixed.as_bytes()).as_deref(), Some(hash));
    }

    /// Check that what only looks like a pod is none.
    #[test]
    fn finds_none_elsewhere() {
        for path in [
            "0::/\n",
            "0::/machine.slice/libpod-1.scope\n",
            "0::/user.slice/podman-1234.scope\n",
            "0::/kubepods.slice/kubepods-pod.slice\n",
            "0::/podcast.slice\n",
            "broken\n",
        ] {
            assert_eq!(pod_uid(path.as_bytes()), None, "{path}");
        }
    }
}
