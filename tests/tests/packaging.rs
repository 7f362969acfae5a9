//! The Debian package that `cargo xtask package` makes: what it holds, what dpkg is told, and that it works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use nprof_tests::nprof::binary;
use nprof_tests::require::{on_kernel, with_tools};
use nprof_tests::target::cargo_target_dir;
use tempfile::TempDir;

/// What making a package takes; `package` is their word in `NPROF_TEST_REQUIRE`.
const TOOLS: [&str; 4] = ["dpkg-deb", "dpkg-shlibdeps", "strip", "gzip"];
/// The time that the files get, in seconds since 1970, and its day as dpkg-deb shows it, up to the time zone.
const DATE: (&str, &str) = ("1700000000", " 2023-11-1");

/// Runs `test` with the package, which is made once for all tests.
fn with_package(test: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    static PACKAGE: Mutex<Option<(TempDir, PathBuf)>> = Mutex::new(None);
    with_tools("package", &TOOLS, || {
        // The others wait: it takes both CPUs for a while.
        let mut made = PACKAGE.lock().unwrap_or_else(PoisonError::into_inner);
        if made.is_none() {
            let directory = tempfile::tempdir()?;
            let package = make(directory.path())?;
            *made = Some((directory, package));
        }
        let package = made.as_ref().map(|(_, package)| package.clone()).context("the package is made")?;
        drop(made);
        test(&package)
    })
}

/// Makes the package of the binary under test.
fn make(out: &Path) -> Result<PathBuf> {
    let xtask = std::env::var_os("NPROF_XTASK").map_or_else(|| cargo_target_dir().join("debug/xtask"), PathBuf::from);
    ensure!(xtask.exists(), "no xtask at {}: cargo build --package xtask, or set NPROF_XTASK", xtask.display());
    let mut command = Command::new(xtask);
    command.args(["package", "--bin"]).arg(binary()).arg("--out").arg(out).env("SOURCE_DATE_EPOCH", DATE.0);
    Ok(PathBuf::from(printed(&mut command)?.trim_end()))
}

/// What a program prints; that it fails is an error that shows all that it said.
fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} ended with {}:\n{stdout}{stderr}", output.status);
    Ok(stdout.into_owned())
}

fn unpacked(package: &Path) -> Result<TempDir> {
    let root = tempfile::tempdir()?;
    printed(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root.path()))?;
    Ok(root)
}

/// Check that the package holds what a user looks for, all of it root's, writable for nobody else and of one time.
#[test]
fn it_holds_what_it_must() -> Result<()> {
    with_package(|package| {
        let list = printed(Command::new("dpkg-deb").arg("--contents").arg(package))?;
        for (mode, path) in [
            ("-rwxr-xr-x", "./usr/bin/nprof"),
            ("-rw-r--r--", "./usr/lib/systemd/system/nprof.service"),
            ("-rw-r--r--", "./usr/lib/nprof/libnprof_shim.so"),
            ("-rw-r--r--", "./etc/nprof/nprof.toml"),
            ("-rw-r--r--", "./usr/share/man/man1/nprof.1.gz"),
            ("-rw-r--r--", "./usr/share/man/man1/nprof-trace.1.gz"),
            ("-rw-r--r--", "./usr/share/bash-completion/completions/nprof"),
            ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_nprof"),
            ("-rw-r--r--", "./usr/share/fish/vendor_completions.d/nprof.fish"),
            ("-rw-r--r--", "./usr/share/doc/nprof/copyright"),
            ("-rw-r--r--", "./usr/share/doc/nprof/changelog.gz"),
            ("-rw-r--r--", "./usr/share/doc/nprof/README.md"),
            ("-rw-r--r--", "./usr/share/doc/nprof/docs/permissions.md"),
            ("-rw-r--r--", "./usr/share/doc/nprof/examples/grafana/nprof.json"),
            ("-rw-r--r--", "./usr/share/doc/nprof/examples/prometheus/nprof.rules.yml"),
        ] {
            let line = list.lines().find(|line| line.ends_with(&format!(" {path}")));
            let line = line.with_context(|| format!("no {path} in\n{list}"))?;
            ensure!(line.starts_with(mode), "{line}");
        }
        for line in list.lines() {
            let mode = line.split(' ').next().unwrap_or_default();
            ensure!(line.contains(" root/root ") && matches!(mode.get(1..), Some("rwxr-xr-x" | "rw-r--r--")), "{line}");
            ensure!(line.contains(DATE.1), "{line}");
        }
        Ok(())
    })
}

/// Check that dpkg is told the version, the libraries and the settings, and that the check sums are right.
#[test]
fn dpkg_is_told_the_truth() -> Result<()> {
    with_package(|package| {
        let field = |name: &str| printed(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
        ensure!(field("Package")?.trim() == "nprof" && field("Architecture")?.trim() == "amd64");
        ensure!(field("Version")?.trim() == env!("CARGO_PKG_VERSION"));
        let depends = field("Depends")?;
        ensure!(depends.contains("libc6 (>= 2.") && depends.contains("adduser"), "{depends}");
        let root = unpacked(package)?;
        let control = tempfile::tempdir()?;
        printed(Command::new("dpkg-deb").arg("--control").arg(package).arg(control.path()))?;
        ensure!(fs::read_to_string(control.path().join("conffiles"))? == "/etc/nprof/nprof.toml\n");
        let sums = control.path().join("md5sums");
        printed(Command::new("md5sum").args(["--check", "--quiet", "--strict"]).arg(&sums).current_dir(root.path()))?;
        Ok(())
    })
}

/// Check that the installed program runs, and that its manual page names its commands.
#[test]
fn the_installed_program_runs() -> Result<()> {
    with_package(|package| {
        let root = unpacked(package)?;
        let installed = root.path().join("usr/bin/nprof");
        let version = printed(Command::new(&installed).arg("--version"))?;
        ensure!(version == concat!("nprof ", env!("CARGO_PKG_VERSION"), "\n"), "{version}");
        let page = root.path().join("usr/share/man/man1/nprof.1.gz");
        let page = printed(Command::new("gzip").arg("-dc").arg(page))?;
        ensure!(page.contains("nprof\\-trace(1)"), "{page}");
        let completions = root.path().join("usr/share/bash-completion/completions/nprof");
        printed(Command::new("bash").arg("-n").arg(completions))?;
        Ok(())
    })
}

/// Check that making the package again gives the same bytes.
#[test]
fn it_is_reproducible() -> Result<()> {
    with_package(|package| {
        let again = tempfile::tempdir()?;
        ensure!(fs::read(package)? == fs::read(make(again.path())?)?, "two packages of one binary differ");
        Ok(())
    })
}

/// Check that the unit file is right as it is installed, with the program where it says.
#[test]
fn the_unit_is_right() -> Result<()> {
    with_package(|package| {
        with_tools("systemd-analyze", &["systemd-analyze"], || {
            let root = unpacked(package)?;
            let unit = root.path().join("usr/lib/systemd/system/nprof.service");
            let text = fs::read_to_string(&unit)?;
            let program = root.path().join("usr/bin/nprof").display().to_string();
            ensure!(text.contains("=/usr/bin/nprof "), "{text}");
            fs::write(&unit, text.replace("=/usr/bin/nprof ", &format!("={program} ")))?;
            let mut verify = Command::new("systemd-analyze");
            let output = verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&unit).output()?;
            // What systemd passes over, such as a word that it does not know, it only says.
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success() && !said.contains("nprof.service"), "{}\n{said}", output.status);
            Ok(())
        })
    })
}

/// Check that the scripts are sound, and that installing makes the user and starts nothing.
#[test]
fn installing_starts_nothing() -> Result<()> {
    with_package(|package| {
        let control = tempfile::tempdir()?;
        printed(Command::new("dpkg-deb").arg("--control").arg(package).arg(control.path()))?;
        let commands = tempfile::tempdir()?;
        let log = commands.path().join("log");
        // Stand-ins that write down how they were called.
        for name in ["adduser", "deluser", "systemctl", "deb-systemd-invoke"] {
            let stand_in = commands.path().join(name);
            fs::write(&stand_in, format!("#!/bin/sh\necho {name} \"$@\" >> {}\n", log.display()))?;
            printed(Command::new("chmod").arg("+x").arg(&stand_in))?;
        }
        let path = format!("{}:/usr/bin:/bin", commands.path().display());
        for (script, arguments) in
            [("postinst", ["configure", ""]), ("prerm", ["remove", ""]), ("postrm", ["remove", ""])]
        {
            let script = control.path().join(script);
            printed(Command::new("sh").arg("-n").arg(&script))?;
            printed(Command::new(&script).args(arguments).env("PATH", &path))?;
        }
        let log = fs::read_to_string(log)?;
        ensure!(log.starts_with("adduser --system --group "), "{log}");
        for word in ["start", "enable", "deluser"] {
            ensure!(!log.split_whitespace().any(|said| said == word), "{word}:\n{log}");
        }
        Ok(())
    })
}

/// Check on a copy of this machine that dpkg installs, upgrades, removes and purges the package cleanly.
#[test]
fn dpkg_installs_and_purges() -> Result<()> {
    // It takes root, like tracing.
    on_kernel(|| {
        with_package(|package| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install.sh");
            let mut command = Command::new("unshare");
            printed(command.args(["--mount", "sh"]).arg(script).arg(package).current_dir("/")).map(drop)
        })
    })
}

/// Check that Debian's own checker finds no error, where it is installed.
#[test]
fn lintian_finds_no_error() -> Result<()> {
    with_package(|package| {
        with_tools("lintian", &["lintian"], || {
            printed(Command::new("lintian").args(["--fail-on", "error", "--allow-root"]).arg(package)).map(drop)
        })
    })
}
