//! The first process of a guest (`nprof_tests::guest`): mounts what programs expect, runs the one that it is there for, says how
//! that ended, and switches the guest off.
#![expect(clippy::print_stdout, reason = "the console is all that a guest has")]

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use nprof_tests::guest::{ARGUMENTS, ENDED, PROGRAM, TARGETS};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};

/// File system and place.
const MOUNTS: [(&str, &str); 6] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
    ("tmpfs", "/tmp"),
];

fn main() -> ExitCode {
    if std::process::id() != 1 {
        println!("this is the first process of a guest, and nothing else");
        return ExitCode::FAILURE;
    }
    match run() {
        Ok(code) => println!("{ENDED}{code}"),
        Err(error) => println!("the guest cannot run its program: {error:#}"),
    }
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => ExitCode::SUCCESS,
        // The kernel panics when its first process ends, and so ends the emulator.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> Result<i32> {
    for (kind, place) in MOUNTS {
        std::fs::create_dir_all(place)?;
        mount(kind, place, kind, MountFlags::empty(), None).with_context(|| format!("cannot mount {place}"))?;
    }
    let arguments = std::fs::read_to_string(ARGUMENTS)?;
    let status = Command::new(PROGRAM).args(arguments.lines()).env("NPROF_TEST_TARGETS", TARGETS).status()?;
    Ok(status.code().unwrap_or(-1))
}
