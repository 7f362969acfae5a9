//! apt for packages that are only unpacked: those of the system stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;

const LIMIT: Duration = Duration::from_secs(10 * 60);
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Downloads a package and what it needs that is not installed, from where the system takes its packages.
pub(super) fn download_with_dependencies(package: &str, into: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["install", "--download-only", "--yes", "--quiet", "--no-install-recommends"]);
    command.args(["-o", &option("Dir::Cache::archives", into), "-o", "APT::Sandbox::User=root", package]);
    process::run(&mut command, LIMIT)
}

/// apt with its own lists and settings, for any suite of Debian.
pub(super) struct PrivateApt {
    state: PathBuf,
    sources: PathBuf,
}

impl PrivateApt {
    /// Reads the lists of a suite into a directory.
    pub(super) fn begin(directory: &Path, suite: &str) -> Result<Self> {
        let (state, sources) = (directory.join("state"), directory.join("sources"));
        fs::create_dir_all(state.join("lists/partial"))?;
        fs::create_dir_all(&sources)?;
        let site = site()?;
        let source = format!("Types: deb\nURIs: {site}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYS}\n");
        fs::write(sources.join("suite.sources"), source)?;
        let apt = Self { state, sources };
        process::run(apt.command("apt-get").args(["update", "--quiet"]), LIMIT)?;
        Ok(apt)
    }

    /// Downloads packages into a directory.
    pub(super) fn download(&self, packages: &[&str], into: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        process::run(download.arg("download").args(packages).current_dir(into), LIMIT)
    }

    /// The packages that one depends on.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        process::run_lines(self.command("apt-cache").args(["depends", package]), LIMIT, |line| {
            found.extend(line.trim().strip_prefix("Depends: ").map(str::to_owned));
        })?;
        Ok(found)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-o", &option("Dir::State", &self.state), "-o", &option("Dir::Cache", &self.state)]);
        command.args(["-o", "Dir::State::status=/dev/null", "-o", "Dir::Etc::SourceList=/dev/null"]);
        command.args(["-o", &option("Dir::Etc::SourceParts", &self.sources), "-o", "APT::Sandbox::User=root"]);
        command
    }
}

fn option(name: &str, value: &Path) -> String {
    format!("{name}={}", value.display())
}

/// The mirror that the system takes Debian from.
fn site() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(ORIGIN) $(LABEL) $(SITE)", "Created-By: Packages"]);
    let mut found = None;
    process::run_lines(&mut command, LIMIT, |line| {
        found = found.take().or_else(|| line.strip_prefix("Debian Debian ").map(str::to_owned));
    })?;
    found.context("apt knows no mirror of Debian")
}
