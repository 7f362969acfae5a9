//! What to do about an error, decided in one place from the error's types.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use crate::attach::ProgramError;
use crate::config::FileError;
use crate::control::{AskError, BindError};
use crate::discover;
use crate::export::http;
use crate::push;
use crate::recording;
use crate::shim;
use crate::sys::small_file;
use crate::trace;

use super::save::SaveError;

const PRIVILEGES: &str = "run nprof as root (sudo), or grant it CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, \
    CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH; `nprof check` shows which are missing";

const PROTECTED: &str = "nprof has all capabilities that it can use: a security module or a namespace forbids this; \
    run nprof on the host itself, outside of any container";

/// The fix for the first error of the chain that has one. `has_tiers` says whether probes would do where stubs cannot be had.
pub(super) fn hint(error: &anyhow::Error, has_tiers: bool) -> Option<String> {
    let privileged = discover::Proc::host().is_privileged();
    // Where a file or a socket was refused, the privileges for tracing are no help.
    if let Some(set_up) = error.chain().find_map(for_set_up) {
        return set_up;
    }
    error.chain().find_map(|cause| hint_for(cause, privileged, has_tiers))
}

/// What to do where a service cannot be set up: `None` if the error is of another kind, `Some(None)` if its message says
/// it all.
fn for_set_up(error: &(dyn StdError + 'static)) -> Option<Option<String>> {
    if let Some(error) = error.downcast_ref::<http::Error>() {
        return Some(for_endpoint(error));
    }
    if let Some(error) = error.downcast_ref::<push::Error>() {
        return Some(for_receiver(error));
    }
    match error.downcast_ref::<ProgramError>() {
        Some(ProgramError::File(small_file::Error::Read { path, source })) => return Some(for_file(path, source)),
        // What the kernel answers may be a want of privileges.
        Some(ProgramError::Load { .. } | ProgramError::Maps { .. } | ProgramError::Gates(_)) | None => {}
        Some(_) => return Some(None),
    }
    match error.downcast_ref::<FileError>() {
        Some(FileError::Io { path, source }) => return Some(for_file(path, source)),
        Some(_) => return Some(None),
        None => {}
    }
    if error.is::<recording::Error>() || error.is::<SaveError>() {
        return Some(None);
    }
    match error.downcast_ref::<BindError>() {
        Some(BindError::Io { source, .. }) if is_denied(source) => {
            Some(Some("choose a path where nprof may write with --control, or run it as root (sudo)".to_owned()))
        }
        Some(_) => Some(None),
        None => error.is::<AskError>().then_some(None),
    }
}

fn for_endpoint(error: &http::Error) -> Option<String> {
    match error {
        http::Error::Listen { address, source } => match source.kind() {
            io::ErrorKind::AddrInUse => Some(format!(
                "something listens there already, perhaps another nprof: `ss -ltnp` shows what; stop it, or choose \
                 another address than {address} with --listen"
            )),
            io::ErrorKind::AddrNotAvailable => {
                Some("this host has no such address: `ip address` shows those that it has".to_owned())
            }
            io::ErrorKind::PermissionDenied => Some(
                "ports below 1024 are for root and CAP_NET_BIND_SERVICE: choose a higher one with --listen".to_owned(),
            ),
            _ => None,
        },
        http::Error::File(small_file::Error::Read { path, source }) => for_file(path, source),
        _ => None,
    }
}

fn for_receiver(error: &push::Error) -> Option<String> {
    match error {
        push::Error::File(small_file::Error::Read { path, source }) => for_file(path, source),
        _ => None,
    }
}

fn for_file(path: &Path, source: &io::Error) -> Option<String> {
    is_denied(source).then(|| format!("let the user that nprof runs as read {}", path.display()))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn hint_for(error: &(dyn StdError + 'static), privileged: bool, has_tiers: bool) -> Option<String> {
    let denial = if privileged { PROTECTED } else { PRIVILEGES };
    if let Some(error) = error.downcast_ref::<discover::Error>() {
        return for_discover(error, denial);
    }
    match error.downcast_ref::<trace::Error>() {
        Some(trace::Error::Shim(error)) => return for_shim(error, denial, has_tiers),
        Some(trace::Error::ChosenCalls { .. }) => {
            return Some("omit --slow, or record with --tier kernel: stubs count and time without stacks".to_owned());
        }
        Some(error @ trace::Error::Unreadable { .. }) => return error.advice(),
        _ => {}
    }
    error.downcast_ref::<io::Error>().is_some_and(is_denied).then(|| denial.to_owned())
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

fn for_shim(error: &shim::Error, denial: &str, has_tiers: bool) -> Option<String> {
    match error {
        shim::Error::Refused(shim::Refusal::Process(error)) | shim::Error::Process(error) => {
            for_discover(error, denial)
        }
        error if !has_tiers => error.advice_without_tiers(),
        shim::Error::Refused(refusal) => refusal.advice(),
        // Where stubs cannot be, probes can.
        _ => Some("use --tier kernel".to_owned()),
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
        assert_eq!(hint(&error.unwrap_err(), true).as_deref(), Some("use --pid 42"));
    }

    /// Check that a refused port, file or socket is not answered with the privileges for tracing.
    #[test]
    fn set_up_has_advice_of_its_own() {
        let failed = |kind: io::ErrorKind| io::Error::from(kind);
        let listen = |kind| http::Error::Listen { address: "127.0.0.1:80".parse().unwrap(), source: failed(kind) };
        let denied = || failed(io::ErrorKind::PermissionDenied);
        let of = |error: anyhow::Error| hint(&error, true).unwrap_or_default();
        assert!(of(listen(io::ErrorKind::PermissionDenied).into()).contains("CAP_NET_BIND_SERVICE"));
        assert!(of(listen(io::ErrorKind::AddrInUse).into()).contains("--listen"));
        let key = small_file::Error::Read { path: "/k".into(), source: denied() };
        assert_eq!(of(http::Error::from(key).into()), "let the user that nprof runs as read /k");
        let headers = small_file::Error::Read { path: "/h".into(), source: denied() };
        assert_eq!(of(push::Error::from(headers).into()), "let the user that nprof runs as read /h");
        let config = FileError::Io { path: "/c".into(), source: denied() };
        assert_eq!(of(config.into()), "let the user that nprof runs as read /c");
        let socket = BindError::Io { path: "/s".into(), source: denied() };
        assert!(of(socket.into()).contains("--control"));
        assert_eq!(of(BindError::NoGroup { group: "ops".to_owned() }.into()), "");
    }

    /// Check that the shim's own advice is given, and that the other tier is named where there is none.
    #[test]
    fn advice_about_the_shim() {
        let of = |error: shim::Error| hint(&anyhow::Error::new(trace::Error::from(error)), true).unwrap();
        let refusal = shim::Refusal::AttachDisabled { pid: Pid(7) };
        let advice = refusal.advice().unwrap();
        assert_eq!(of(refusal.into()), advice);
        assert_eq!(of(shim::Error::Silent { pid: Pid(7) }), "use --tier kernel");
        let gone = shim::Error::Process(discover::Error::NoSuchProcess { pid: Pid(7) });
        assert_eq!(of(gone), "`nprof ps` lists the JVMs of this host");
    }

    /// Check that trees, which probes cannot make, are not answered with probes, and that what helps the shim is said all the same.
    #[test]
    fn trees_have_no_other_tier() {
        let of = |error: shim::Error| hint(&anyhow::Error::new(trace::Error::from(error)), false);
        let pid = Pid(7);
        let disabled = shim::Refusal::AttachDisabled { pid };
        assert_eq!(of(disabled.into()).as_deref(), Some("restart it without that option"));
        assert_eq!(of(shim::Error::Silent { pid }), None);
        assert_eq!(of(shim::Refusal::TooOld { pid, jdk: "JDK 8".to_owned() }.into()), None);
        let gone = shim::Error::Process(discover::Error::NoSuchProcess { pid });
        assert_eq!(of(gone).as_deref(), Some("`nprof ps` lists the JVMs of this host"));
    }

    /// Check that where stubs can be had and stacks cannot, it is said what needs which, and not that stubs cannot be had.
    #[test]
    fn advice_about_slow_calls() {
        let missing = crate::hotspot::Error::NoTables;
        let error = trace::Error::ChosenCalls { pid: Pid(7), source: Box::new(missing.into()) };
        let error = anyhow::Error::new(error);
        assert!(
            format!("{error:#}")
                .starts_with("no stacks of calls that stubs see in process 7, though there can be stubs: ")
        );
        assert_eq!(
            hint(&error, true).as_deref(),
            Some("omit --slow, or record with --tier kernel: stubs count and time without stacks")
        );
    }

    /// Check that a denied permission is recognised whoever met it, that root is not told to become root, and that
    /// other errors get no such advice.
    #[test]
    fn recognises_a_denied_permission() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(hint_for(&denied, false, true).unwrap().contains("sudo"));
        assert!(!hint_for(&denied, true, true).unwrap().contains("sudo"));
        assert_eq!(hint_for(&io::Error::from(io::ErrorKind::NotFound), false, true), None);
    }
}
