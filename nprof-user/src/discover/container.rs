//! The container that a process runs in, from its cgroup path.

/// Length of a container id: a SHA-256 in hexadecimal, as Docker, containerd, CRI-O and Podman use it.
const ID_LENGTH: usize = 64;

/// The container id in `/proc/PID/cgroup`, of cgroup version 1 or 2.
///
/// Runtimes wrap the id in many ways (`/docker/ID`, `docker-ID.scope`, `cri-containerd-ID.scope`,
/// `kubepods-….slice:cri-containerd:ID`, `libpod-ID.scope/container`); what they share is the id itself. The
/// deepest one counts: a container may run inside another.
pub(super) fn container_id(cgroup: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(cgroup);
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(id_in_path)
}

fn id_in_path(path: &str) -> Option<String> {
    path.rsplit(['/', '-', ':', '.', '_']).find(|part| is_id(part)).map(str::to_owned)
}

fn is_id(part: &str) -> bool {
    part.len() == ID_LENGTH && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "8a2b7cdd9a0c3f4e5d6b7a8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7a8b9c0";
    const OUTER: &str = "1111111111111111111111111111111111111111111111111111111111111111";

    /// Check that the id is found in the paths of all common runtimes, cgroup v1 and v2.
    #[test]
    fn finds_the_id_of_every_runtime() {
        let paths = [
            format!("12:pids:/docker/{ID}\n0::/\n"),
            format!("0::/system.slice/docker-{ID}.scope\n"),
            format!("0::/kubepods.slice/kubepods-podab_cd.slice/cri-containerd-{ID}.scope\n"),
            format!("11:cpu:/kubepods/burstable/pod0f-1a/{ID}\n"),
            format!("1:name=systemd:/system.slice/kubepods-pod1.slice:cri-containerd:{ID}\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope/container\n"),
            format!("0::/machine.slice/libpod-{ID}.scope/container\n"),
            format!("0::/user.slice/user-1.slice/libpod_parent/libpod-{ID}\n"),
            format!("0::/docker/{OUTER}/docker/{ID}\n"),
        ];
        for path in paths {
            assert_eq!(container_id(path.as_bytes()).as_deref(), Some(ID), "{path}");
        }
    }

    /// Check that slices, sessions and other hexadecimal words are not taken for containers.
    #[test]
    fn finds_none_on_the_host() {
        let paths = [
            "0::/\n",
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "4:memory:/jobs/acb1f1721f61663a180a43c90b2bf760\n",
            "broken\n",
        ];
        for path in paths {
            assert_eq!(container_id(path.as_bytes()), None, "{path}");
        }
    }
}
