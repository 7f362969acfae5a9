//! What to do about an error, decided in one place from the error's types.

use std::error::Error as StdError;
use std::io;

use crate::discover;

const PRIVILEGES: &str = "run nprof as root (sudo), or grant it CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, \
    CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH; `nprof check` shows which are missing";

const PROTECTED: &str = "nprof has all capabilities that it can use: a security module or a namespace forbids this; \
    run nprof on the host itself, outside of any container";

/// The fix for the first error of the chain that has one.
pub(super) fn hint(error: &anyhow::Error) -> Option<String> {
    let privileged = discover::Proc::host().is_privileged();
    error.chain().find_map(|cause| hint_for(cause, privileged))
}

fn hint_for(error: &(dyn StdError + 'static), privileged: bool) -> Option<String> {
    let denial = if privileged { PROTECTED } else { PRIVILEGES };
    if let Some(error) = error.downcast_ref::<discover::Error>() {
        return for_discover(error, denial);
    }
    let denied = error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    denied.then(|| denial.to_owned())
}

fn for_discover(error: &discover::Error, denial: &str) -> Option<String> {
    match error {
        discover::Error::NoSuchProcess { .. } | discover::Error::NotAJvm { .. } | discover::Error::Ended { .. } => {
            Some("`nprof ps` lists the JVMs of this host".to_owned())
        }
        discover::Error::IsThread { tgid, .. } => Some(format!("use --pid {tgid}")),
        discover::Error::PermissionDenied { .. } => Some(denial.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::model::Pid;

    /// Check that the cause is found below any number of contexts.
    #[test]
    fn looks_down_the_chain() {
        let thread = discover::Error::IsThread { tid: Pid(43), tgid: Pid(42) };
        let error = Err::<(), _>(thread).context("outer").context("outermost");
        assert_eq!(hint(&error.unwrap_err()).as_deref(), Some("use --pid 42"));
    }

    /// Check that a denied permission is recognised whoever met it, that root is not told to become root, and that
    /// other errors get no such advice.
    #[test]
    fn recognises_a_denied_permission() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(hint_for(&denied, false).unwrap().contains("sudo"));
        assert!(!hint_for(&denied, true).unwrap().contains("sudo"));
        assert_eq!(hint_for(&io::Error::from(io::ErrorKind::NotFound), false), None);
    }
}
