//! Another kernel than this machine's: a guest in an emulator that runs one program and says how that ended.
//!
//! Its only file system is an archive in memory with that program, the libraries that it was linked with, and
//! `guest_init`. The emulator computes every instruction itself, so it runs wherever it is installed, slowly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cpio::{NewcBuilder, write_cpio};

use crate::target::{Targets, cargo_target_dir};

/// Where the program is in the guest.
pub const PROGRAM: &str = "/program";
/// Where its arguments are, one a line.
pub const ARGUMENTS: &str = "/arguments";
/// Where the compiled targets are.
pub const TARGETS: &str = "/targets";
/// What the guest says before the exit code of its program.
pub const ENDED: &str = "the program has ended: ";

const QEMU: &str = "qemu-system-x86_64";
const INIT: &str = "/init";
const EXECUTABLE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;
/// As long as a guest may take, in seconds: ten times what it does on a quiet machine, for one with much else to do.
const LIMIT: &str = "1800";

/// The kernel of a suite of Debian, where `cargo xtask setup` puts it.
#[must_use]
pub fn kernel(suite: &str) -> PathBuf {
    cargo_target_dir().join("test-kernels").join(suite)
}

/// The emulator, which ends after half an hour: the one that is installed, or the one that `cargo xtask setup` has unpacked. It comes
/// before others: a guest takes the time that it waits for a CPU for its own, and measures in it what probes cost.
#[must_use]
pub fn emulator() -> Option<Command> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new("nice");
    command.args(["--adjustment=-10", "timeout", LIMIT]);
    if std::env::split_paths(&directories).any(|path| path.join(QEMU).is_file()) {
        command.arg(QEMU);
        return Some(command);
    }
    let root = cargo_target_dir().join("test-emulator");
    let program = root.join("usr/bin").join(QEMU);
    let libraries = ["lib", "usr/lib"].map(|directory| root.join(directory).join("x86_64-linux-gnu"));
    command.arg(&program).env("LD_LIBRARY_PATH", std::env::join_paths(libraries).ok()?);
    for firmware in ["qemu", "seabios"] {
        command.arg("-L").arg(root.join("usr/share").join(firmware));
    }
    program.is_file().then_some(command)
}

/// Runs `program` in a guest with that kernel. Returns all that it said.
///
/// # Errors
/// When the guest cannot be started, does not end in time, or the program fails: with all that was said.
pub fn run(kernel: &Path, init: &Path, program: &Path, arguments: &[&str]) -> Result<String> {
    let work = tempfile::tempdir()?;
    let archive = work.path().join("archive");
    pack(&archive, init, program, arguments, work.path())?;
    let mut command = emulator().context("no emulator")?;
    // One thread computes both CPUs by turns. With one for each, a CPU may still execute what the other has replaced in the kernel's
    // code, and the kernel ends itself over a breakpoint that it does not find: seldom, while it starts.
    command.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "2G"]);
    command.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-append"]);
    command.arg("console=ttyS0 quiet panic=-1").arg("-kernel").arg(kernel).arg("-initrd").arg(archive);
    let mut guest = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start the emulator")?;
    let console = BufReader::new(guest.stdout.take().context("stdout is a pipe")?);
    let mut said = String::new();
    for line in console.split(b'\n') {
        said += String::from_utf8_lossy(&line?).trim_end();
        said.push('\n');
    }
    let status = guest.wait()?;
    let ended = said.lines().find_map(|line| line.strip_prefix(ENDED));
    ensure!(status.success() && ended == Some("0"), "the emulator: {status}; the guest said:\n{said}");
    Ok(said)
}

/// Writes the guest's file system.
fn pack(archive: &Path, init: &Path, program: &Path, arguments: &[&str], scratch: &Path) -> Result<()> {
    let programs = [
        (PathBuf::from(INIT), init.to_owned()),
        (PathBuf::from(PROGRAM), without_debug_information(program, scratch)?),
        (Path::new(TARGETS).join("calls"), Targets::get()?.library("calls")),
    ];
    let mut files = BTreeMap::from([(PathBuf::from(ARGUMENTS), arguments.join("\n").into_bytes())]);
    for (place, file) in programs {
        for library in libraries_of(&file)? {
            let content = fs::read(&library)?;
            files.insert(library, content);
        }
        files.insert(place, fs::read(file)?);
    }
    let above = files.keys().flat_map(|place| place.ancestors().skip(1)).filter(|place| place.parent().is_some());
    let directories: BTreeSet<PathBuf> = above.map(Path::to_owned).collect();
    let directories = directories.into_iter().map(|place| (place, DIRECTORY, Vec::new()));
    let entries = directories.chain(files.into_iter().map(|(place, content)| (place, EXECUTABLE, content)));
    let entries = entries.map(|(place, mode, content)| {
        // Names in an archive are relative to where it is unpacked.
        let name = place.to_string_lossy();
        (NewcBuilder::new(name.trim_start_matches('/')).mode(mode).nlink(1), Cursor::new(content))
    });
    write_cpio(entries, File::create(archive)?)?;
    Ok(())
}

/// A copy of a program without what makes it ten times larger. The kernel unpacks the archive with an emulated CPU.
fn without_debug_information(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let copy = scratch.join("program");
    let status = Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(program).status();
    ensure!(status.context("no strip on the path")?.success(), "{} cannot be stripped", program.display());
    Ok(copy)
}

/// The shared libraries of a program, the dynamic linker among them.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("no ldd on the path")?;
    let says = String::from_utf8(output.stdout)?;
    let is_path = |word: &&str| word.starts_with('/');
    Ok(says.lines().filter_map(|line| line.split_whitespace().find(is_path)).map(PathBuf::from).collect())
}
