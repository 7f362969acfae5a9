//! The files of the package and their places.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;

use super::{make_directory, output, write};

/// Where dpkg keeps a package's documentation.
const DOC: &str = "usr/share/doc/nprof";

/// Files that go as they are: place in the repository, place in the package.
const COPIED: &[(&str, &str)] = &[
    ("packaging/systemd/nprof.service", "usr/lib/systemd/system/nprof.service"),
    ("packaging/nprof.toml", "etc/nprof/nprof.toml"),
    ("packaging/debian/copyright", "usr/share/doc/nprof/copyright"),
    ("packaging/debian/lintian-overrides", "usr/share/lintian/overrides/nprof"),
    ("README.md", "usr/share/doc/nprof/README.md"),
    ("packaging/grafana/nprof.json", "usr/share/doc/nprof/examples/grafana/nprof.json"),
    ("packaging/prometheus/nprof.rules.yml", "usr/share/doc/nprof/examples/prometheus/nprof.rules.yml"),
    ("packaging/kubernetes/daemonset.yaml", "usr/share/doc/nprof/examples/kubernetes/daemonset.yaml"),
    ("packaging/kubernetes/podmonitor.yaml", "usr/share/doc/nprof/examples/kubernetes/podmonitor.yaml"),
];

/// Where each shell looks for completions: as nprof names the file, place in the package.
const COMPLETIONS: &[(&str, &str)] = &[
    ("nprof.bash", "usr/share/bash-completion/completions/nprof"),
    ("_nprof", "usr/share/zsh/vendor-completions/_nprof"),
    ("nprof.fish", "usr/share/fish/vendor_completions.d/nprof.fish"),
];

/// Lays out everything that the package of `binary` installs below `root`, with `work` for what is made on the way.
///
/// # Errors
/// When a file cannot be read or written, or a tool is missing or fails.
pub(super) fn lay_out(binary: &Path, work: &Path, root: &Path) -> Result<()> {
    install_binary(binary, root)?;
    for (from, to) in COPIED {
        write(&root.join(to), &read(&cargo::workspace().join(from))?, 0o644)?;
    }
    let changelog = compressed(&cargo::workspace().join("CHANGELOG.md"))?;
    write(&root.join(DOC).join("changelog.gz"), &changelog, 0o644)?;
    documentation(root)?;
    manual_pages(binary, work, root)?;
    agent(binary, work, root)?;
    completions(binary, work, root)
}

/// The binary without its debug information, which is most of it.
fn install_binary(binary: &Path, root: &Path) -> Result<()> {
    let installed = root.join("usr/bin/nprof");
    write(&installed, &read(binary)?, 0o755)?;
    output(Command::new("strip").arg("--strip-unneeded").arg(&installed)).context("binutils has `strip`")?;
    Ok(())
}

/// The README's links lead to these, to the pictures among them, and to programs to try things with.
fn documentation(root: &Path) -> Result<()> {
    for folder in ["docs", "docs/images", "docs/examples"] {
        let (from, to) = (cargo::workspace().join(folder), root.join(DOC).join(folder));
        for file in files(&from)? {
            write(&to.join(&file), &read(&from.join(&file))?, 0o644)?;
        }
    }
    Ok(())
}

fn manual_pages(binary: &Path, work: &Path, root: &Path) -> Result<()> {
    let made = generated(binary, "man", work)?;
    for page in files(&made)? {
        let place = root.join("usr/share/man/man1").join(format!("{page}.gz"));
        write(&place, &compressed(&made.join(page))?, 0o644)?;
    }
    Ok(())
}

/// What JVMs can be started with.
fn agent(binary: &Path, work: &Path, root: &Path) -> Result<()> {
    let made = generated(binary, "agent", work)?;
    for library in files(&made)? {
        write(&root.join("usr/lib/nprof").join(&library), &read(&made.join(&library))?, 0o644)?;
    }
    Ok(())
}

fn completions(binary: &Path, work: &Path, root: &Path) -> Result<()> {
    let made = generated(binary, "completions", work)?;
    for (from, to) in COMPLETIONS {
        write(&root.join(to), &read(&made.join(from))?, 0o644)?;
    }
    Ok(())
}

/// Has nprof write what it knows about itself.
fn generated(binary: &Path, what: &str, work: &Path) -> Result<std::path::PathBuf> {
    let directory = work.join(what);
    make_directory(&directory)?;
    output(Command::new(binary).args(["generate", what, "--out"]).arg(&directory))?;
    Ok(directory)
}

/// The names of the files in a directory, sorted; those of directories in it left out.
fn files(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let name = entry.file_name().into_string();
        names.push(name.map_err(|name| anyhow::anyhow!("{} is no name for a package", name.display()))?);
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// A file, compressed as Debian wants it: best, and without name and time.
fn compressed(path: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new("gzip");
    let output = command.args(["-9nc"]).arg(path).output().context("cannot start gzip")?;
    crate::process::check(&command, output.status)?;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that everything that is copied is in the repository.
    #[test]
    fn what_is_copied_is_there() {
        for (from, _) in COPIED {
            assert!(cargo::workspace().join(from).is_file(), "{from}");
        }
    }

    /// Check that documents, their pictures and their examples are copied, each to its place.
    #[test]
    fn documents_with_their_pictures() {
        let root = tempfile::tempdir().unwrap();
        documentation(root.path()).unwrap();
        let there = |file: &str| root.path().join(DOC).join("docs").join(file).is_file();
        assert!(there("flamegraphs.md") && there("images/flamegraph.svg") && there("examples/Shop.java"));
    }

    /// Check that compressing twice gives the same bytes: no name, no time.
    #[test]
    fn compression_is_reproducible() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a"), "text").unwrap();
        fs::write(path("b"), "text").unwrap();
        let a = compressed(&path("a")).unwrap();
        assert_eq!(a, compressed(&path("b")).unwrap());
        assert_eq!(a[..2], [0x1f, 0x8b]);
    }
}
