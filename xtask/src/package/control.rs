//! What dpkg is told about the package: the directory `DEBIAN`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;

use super::{ARCHITECTURE, output, write};

/// The scripts that dpkg runs, from `packaging/debian`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// What the scripts call, beside what is essential.
const SCRIPTS_NEED: &str = "adduser, init-system-helpers (>= 1.52)";

const DESCRIPTION: &str = "\
Description: count and time the native calls of JVMs
 nprof shows where Java virtual machines cross into native code: how often each
 native (JNI) method is called and how long it takes, live, with eBPF from
 outside of the JVM: no agent, no flag, no restart.
 .
 The service exports Prometheus metrics of every JVM of the host. It is
 installed switched off: systemctl enable --now nprof.
 .
 Linux 6.6 or later and HotSpot JVMs are needed; nprof check tells.
";

/// Writes `DEBIAN` for the files that lie below `root`.
///
/// # Errors
/// When a file cannot be read or written, or a tool is missing or fails.
pub(super) fn write_directory(work: &Path, root: &Path) -> Result<()> {
    let files = files_below(root)?;
    let mut sums = String::new();
    let mut bytes = 0;
    for file in &files {
        sums += &output(Command::new("md5sum").arg(file).current_dir(root))?;
        sums.push('\n');
        bytes += fs::metadata(root.join(file))?.len();
    }
    let directory = root.join("DEBIAN");
    for script in SCRIPTS {
        let path = cargo::workspace().join("packaging/debian").join(script);
        write(&directory.join(script), &fs::read(&path).with_context(|| path.display().to_string())?, 0o755)?;
    }
    write(&directory.join("md5sums"), sums.as_bytes(), 0o644)?;
    write(&directory.join("conffiles"), conffiles(&files).as_bytes(), 0o644)?;
    let depends = format!("{}, {SCRIPTS_NEED}", libraries(work, root)?);
    write(&directory.join("control"), fields(&depends, bytes).as_bytes(), 0o644)
}

/// The fields of the package. `bytes` is the size of its files.
fn fields(depends: &str, bytes: u64) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let kilobytes = bytes.div_ceil(1024);
    format!(
        "Package: nprof\nVersion: {version}\nArchitecture: {ARCHITECTURE}\n\
         Maintainer: The nprof authors <nprof@localhost>\nInstalled-Size: {kilobytes}\nDepends: {depends}\n\
         Section: admin\nPriority: optional\n{DESCRIPTION}"
    )
}

/// Files that the administrator may change: dpkg keeps the changes. All of `/etc` are such.
fn conffiles(files: &[PathBuf]) -> String {
    let settings = files.iter().filter(|file| file.starts_with("etc"));
    settings.map(|file| format!("/{}\n", file.display())).collect()
}

/// The packages of the shared libraries that the binary needs, in the versions that it needs them in. Debian's own
/// tool knows in which version of a library each function appeared that the binary calls.
fn libraries(work: &Path, root: &Path) -> Result<String> {
    // It wants to be run in a source package.
    let source = work.join("source");
    write(&source.join("debian/control"), b"Source: nprof\n\nPackage: nprof\nArchitecture: any\n", 0o644)?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.args(["-O", "--warnings=0"]).arg(root.join("usr/bin/nprof")).current_dir(&source);
    let text = output(&mut command).context("apt-get install dpkg-dev brings dpkg-shlibdeps")?;
    let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.with_context(|| format!("dpkg-shlibdeps found no libraries: {text}"))?.to_owned())
}

/// The regular files below a directory, as paths from there on, sorted.
fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push(path.strip_prefix(root)?.to_path_buf());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the fields are those of one paragraph: no empty line, each line a field or a continuation.
    #[test]
    fn fields_are_one_paragraph() {
        let text = fields("libc6 (>= 2.34)", 1025);
        assert!(text.contains("\nInstalled-Size: 2\nDepends: libc6 (>= 2.34)\n"), "{text}");
        for line in text.lines() {
            assert!(line.starts_with(' ') || line.contains(": "), "{line:?}");
        }
        assert!(text.ends_with('\n'));
    }

    /// Check that files are found at any depth, and that those of /etc alone are the administrator's.
    #[test]
    fn settings_are_conffiles() {
        let directory = tempfile::tempdir().unwrap();
        for file in ["usr/share/doc/a", "etc/nprof/nprof.toml", "usr/bin/etc"] {
            write(&directory.path().join(file), b"", 0o644).unwrap();
        }
        let files = files_below(directory.path()).unwrap();
        assert_eq!(files, ["etc/nprof/nprof.toml", "usr/bin/etc", "usr/share/doc/a"].map(PathBuf::from));
        assert_eq!(conffiles(&files), "/etc/nprof/nprof.toml\n");
    }
}
