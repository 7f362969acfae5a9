//! Ways to get another kernel for the tests, and the emulator that boots it: both lie beside what Cargo builds.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::machine::Machine;
use crate::process;

use super::apt::{self, PrivateApt};

const LIMIT: Duration = Duration::from_secs(5 * 60);
/// The package that depends on a suite's current kernel: the one without drivers, of which an emulator needs none.
pub(super) const PACKAGE: &str = "linux-image-cloud-amd64";

/// The package with the emulator.
pub(super) const EMULATOR: &str = "qemu-system-x86";

/// The emulator with what it needs, unpacked: where another version of one of its packages is installed it cannot be.
pub(super) fn emulator(machine: &Machine) -> Result<()> {
    let scratch = machine.emulator.with_extension("getting");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    let [debs, root] = ["debs", "root"].map(|name| scratch.join(name));
    fs::create_dir_all(debs.join("partial"))?;
    apt::download_with_dependencies(EMULATOR, &debs)?;
    for deb in fs::read_dir(&debs)?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()) {
        if deb.extension().is_some_and(|extension| extension == "deb") {
            process::run(Command::new("dpkg").arg("-x").arg(deb).arg(&root), LIMIT)?;
        }
    }
    fs::rename(root, &machine.emulator)?;
    fs::remove_dir_all(scratch)?;
    Ok(())
}

/// The kernel of a suite of Debian.
pub(super) fn from_suite(machine: &Machine, suite: &str) -> Result<()> {
    fs::create_dir_all(&machine.kernels)?;
    let scratch = tempfile::tempdir_in(&machine.kernels)?;
    let [debs, root] = ["debs", "root"].map(|name| scratch.path().join(name));
    fs::create_dir(&debs)?;
    let apt = PrivateApt::begin(&scratch.path().join("apt"), suite)?;
    let package = apt.dependencies(PACKAGE)?.into_iter().find(|name| name.starts_with("linux-image-"));
    apt.download(&[&package.with_context(|| format!("{PACKAGE} of {suite} depends on no kernel"))?], &debs)?;
    let deb = fs::read_dir(&debs)?.next().context("nothing was downloaded")??.path();
    process::run(Command::new("dpkg").arg("-x").arg(deb).arg(&root), LIMIT)?;
    let file = fs::read_dir(root.join("boot"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-")))
        .context("the package has no kernel")?;
    fs::rename(file, machine.kernels.join(suite))?;
    Ok(())
}
