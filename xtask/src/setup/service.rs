//! Keeps the service that a package brings from running: nobody who runs tests asked for a server on a port.
//!
//! Debian starts a service when its package is installed, and again at each boot. The first is prevented by a policy
//! for the time of the installation, which systemd's and the older start scripts both ask; the second by masking the
//! unit, which stays. `systemctl unmask UNIT` undoes that.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::machine::Machine;

/// Asked by `invoke-rc.d` and `deb-systemd-invoke` before they start anything.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// The answer "do not".
const DENY: &str = "#!/bin/sh\n# Made by nprof's `cargo xtask setup` for one installation; may be deleted.\nexit 101\n";

/// While it lives, no package starts a service.
#[derive(Debug)]
pub(super) struct NoStart {
    /// The policy to take away again; `None` where the machine has one of its own.
    policy: Option<PathBuf>,
}

impl NoStart {
    /// Begins. A policy that is there already is left as it is.
    ///
    /// # Errors
    /// When the policy cannot be written.
    pub(super) fn begin(machine: &Machine) -> Result<Self> {
        let policy = machine.system(POLICY);
        if policy.exists() {
            return Ok(Self { policy: None });
        }
        fs::write(&policy, DENY).with_context(|| policy.display().to_string())?;
        let this = Self { policy: Some(policy.clone()) };
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))
            .with_context(|| policy.display().to_string())?;
        Ok(this)
    }
}

impl Drop for NoStart {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.policy.as_ref().map(fs::remove_file) {
            eprintln!("setup: {POLICY} stays behind and keeps services from being started: {error}");
        }
    }
}

/// Masks a systemd unit that is not there yet, so that it does not start at boot. A unit that the administrator has
/// changed or masked is left as it is.
///
/// # Errors
/// When the link cannot be made.
pub(super) fn mask(machine: &Machine, unit: &str) -> Result<()> {
    let directory = machine.system("/etc/systemd/system");
    let link = directory.join(unit);
    // Not `exists`, which looks at what a link points to.
    if link.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    symlink("/dev/null", &link).with_context(|| link.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    /// Check that the policy says no while the guard lives, and is gone afterwards.
    #[test]
    fn policy_is_there_for_a_time() {
        let fake = FakeMachine::new();
        fake.file("/usr/sbin/invoke-rc.d");
        let policy = fake.machine.system(POLICY);
        let guard = NoStart::begin(&fake.machine).unwrap();
        let status = std::process::Command::new("sh").arg(&policy).status().unwrap();
        assert_eq!(status.code(), Some(101));
        assert_eq!(fs::metadata(&policy).unwrap().permissions().mode() & 0o777, 0o755);
        drop(guard);
        assert!(!policy.exists());
    }

    /// Check that a policy of the machine's own is neither changed nor taken away.
    #[test]
    fn own_policy_stays() {
        let fake = FakeMachine::new();
        fake.file_with(POLICY, "theirs");
        drop(NoStart::begin(&fake.machine).unwrap());
        assert_eq!(fs::read_to_string(fake.machine.system(POLICY)).unwrap(), "theirs");
    }

    /// Check that a unit is masked once, and that one of the administrator's is left alone.
    #[test]
    fn units_are_masked() {
        let fake = FakeMachine::new();
        fake.file_with("/etc/systemd/system/own.service", "theirs");
        for unit in ["new.service", "new.service", "own.service"] {
            mask(&fake.machine, unit).unwrap();
        }
        let target = fs::read_link(fake.machine.system("/etc/systemd/system/new.service")).unwrap();
        assert_eq!(target, PathBuf::from("/dev/null"));
        assert!(fs::read_link(fake.machine.system("/etc/systemd/system/own.service")).is_err());
    }
}
