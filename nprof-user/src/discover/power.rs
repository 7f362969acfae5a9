//! Whether a process may write files that are root's, although it may not do everything that root may.

use super::status::Status;
use super::{Error, Proc};
use crate::model::{Jvm, Pid};

/// Capabilities that lead to such files: `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_SETUID`, `CAP_SYS_MODULE`,
/// `CAP_SYS_RAWIO`, `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN`, `CAP_MKNOD`, `CAP_SETFCAP`.
const WRITES: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 7 | 1 << 16 | 1 << 17 | 1 << 19 | SYS_ADMIN | 1 << 27 | 1 << 31;
/// `CAP_SYS_ADMIN`, with which everything else can be had.
const SYS_ADMIN: u64 = 1 << 21;

impl Proc {
    /// Whether a JVM may write files that are root's, such as root in a container. One that may do everything on this
    /// host is not meant: what it could do through nprof it can do without.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn writes_as_root(&self, jvm: &Jvm) -> Result<bool, Error> {
        let namespace = |process: String| std::fs::read_link(self.root.join(process).join("ns/user")).ok();
        let own = namespace("self".to_owned());
        let same_namespace = own.and_then(|own| Some(own == namespace(Pid::to_string(&jvm.pid))?));
        Ok(writes_as_root(&self.process(jvm.pid).status()?, same_namespace))
    }
}

/// `same_namespace`: whether its capabilities count as nprof's do; `None` where that is not known.
fn writes_as_root(status: &Status, same_namespace: Option<bool>) -> bool {
    let capabilities = if same_namespace == Some(false) { 0 } else { status.cap_permitted };
    let does_everything = same_namespace == Some(true) && capabilities & SYS_ADMIN != 0;
    (status.has_root || capabilities & WRITES != 0) && !does_everything
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 0x1ff_ffff_ffff;
    /// What a container runtime leaves to root.
    const CONTAINER: u64 = 0xa804_25fb;
    const BIND_SERVICE: u64 = 1 << 10;

    fn status(uids: &str, permitted: u64) -> Status {
        let text = format!(
            "Name:\tjava\nState:\tS\nTgid:\t7\nUid:\t{uids}\nGid:\t9\t9\t9\t9\nCapPrm:\t{permitted:016x}\nCapEff:\t0\n"
        );
        Status::parse(text.as_bytes()).unwrap()
    }

    /// Check that root is meant where it is less than root on the host, under any of its user ids.
    #[test]
    fn root_that_is_not_the_hosts() {
        let of = |uids, permitted, same| writes_as_root(&status(uids, permitted), same);
        assert!(of("0\t0\t0\t0", CONTAINER, Some(true)));
        assert!(of("0\t0\t0\t0", 0, Some(true)));
        assert!(of("9\t9\t0\t9", 0, Some(true)));
        assert!(of("0\t0\t0\t0", ALL, Some(false)), "its own namespace in which it may do everything");
        assert!(of("0\t0\t0\t0", ALL, None));
        assert!(!of("0\t0\t0\t0", ALL, Some(true)));
    }

    /// Check that a user is meant only if a capability leads to root's files, and counts.
    #[test]
    fn users_with_capabilities() {
        let of = |permitted, same| writes_as_root(&status("9\t9\t9\t9", permitted), same);
        assert!(!of(0, Some(true)) && !of(BIND_SERVICE, Some(true)) && !of(0, None));
        assert!(of(CONTAINER, Some(true)) && of(1 << 1, None));
        assert!(!of(ALL, Some(false)), "rootless: its capabilities do not count here");
        assert!(!of(ALL, Some(true)));
    }
}
