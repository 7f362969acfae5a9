//! `cargo xtask setup`: look at what building and testing need, say what is missing and why, and install it.
//!
//! What is needed is a table ([`needs`]); how to get it is [`remedy`]. A machine that has everything is left alone,
//! after a look that takes milliseconds.

mod apt;
mod jvms;
mod kernels;
mod needs;
mod pip;
mod remedy;
mod service;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::machine::Machine;
use needs::{NEEDS, Need};
pub(crate) use needs::{Purpose, debian_toolchain as debian_for_bpf, rustup_toolchain as nightly_for_bpf};

/// The command.
///
/// # Errors
/// When something is missing and cannot be installed.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let purpose = purpose(arguments)?;
    let installed = ensure(purpose)?;
    if installed == 0 {
        for need in needed_for(purpose) {
            let place = need.found(&Machine::this()).unwrap_or_default();
            eprintln!("setup: {:<24} {place}", need.what);
        }
        eprintln!("setup: nothing to do");
    }
    Ok(ExitCode::SUCCESS)
}

fn purpose(arguments: &[String]) -> Result<Purpose> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["--for", "build"] => Ok(Purpose::Build),
        ["--for", "bpf"] => Ok(Purpose::Bpf),
        ["--for", "test"] => Ok(Purpose::Test),
        _ => bail!("unknown arguments {words:?}; use `--for build`, `--for bpf` or `--for test`"),
    }
}

/// Installs what `purpose` needs and this machine lacks, and gives the number of things that were missing.
///
/// # Errors
/// When something cannot be installed; the message says how to do it by hand.
pub(crate) fn ensure(purpose: Purpose) -> Result<usize> {
    let machine = Machine::this();
    let missing = missing(&machine, purpose);
    for need in &missing {
        eprintln!("setup: missing: {}, {}", need.what, need.why);
    }
    let is_by_hand = |need: &&&Need| need.remedies(&machine).next().is_none();
    let by_hand: Vec<&&Need> = missing.iter().filter(is_by_hand).collect();
    if !by_hand.is_empty() {
        bail!("setup can install this only as root on Debian 12; by hand:{}", instructions(&by_hand));
    }
    for need in &missing {
        install(need, &machine).with_context(|| format!("cannot install {}", need.what))?;
    }
    Ok(missing.len())
}

fn needed_for(purpose: Purpose) -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(move |need| need.purpose <= purpose)
}

fn missing(machine: &Machine, purpose: Purpose) -> Vec<&'static Need> {
    needed_for(purpose).filter(|need| need.found(machine).is_none()).collect()
}

/// Tries the remedies in order until the thing is there.
fn install(need: &Need, machine: &Machine) -> Result<()> {
    for remedy in need.remedies(machine) {
        eprintln!("setup: {}", remedy.by_hand());
        let result = remedy.apply(machine);
        if let Some(place) = need.found(machine) {
            eprintln!("setup: installed {}: {place}", need.what);
            return Ok(());
        }
        match result {
            Ok(()) => eprintln!("setup: {} is still missing after that", need.what),
            Err(error) => eprintln!("setup: that did not work: {error:#}"),
        }
    }
    bail!("what was tried did not work; by hand:{}", instructions(&[&need]))
}

/// What to do by hand, for a machine that this command cannot change.
fn instructions(needs: &[&&Need]) -> String {
    let mut text = String::new();
    for need in needs {
        let ways: Vec<String> = need.remedies.iter().map(|way| way.by_hand()).collect();
        text += &format!("\n  {}:\n    {}", need.what, ways.join("\n    or: "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    fn names(needs: &[&Need]) -> Vec<&'static str> {
        needs.iter().map(|need| need.what).collect()
    }

    /// Check that on an empty machine everything is missing, and only what the purpose needs is asked for.
    #[test]
    fn empty_machine_lacks_everything() {
        let fake = FakeMachine::new();
        let build = missing(&fake.machine, Purpose::Build);
        let test = missing(&fake.machine, Purpose::Test);
        let bpf = missing(&fake.machine, Purpose::Bpf);
        assert_eq!(names(&build), ["a C compiler", "a JDK"]);
        assert_eq!(names(&bpf), ["a C compiler", "a JDK", "an eBPF toolchain", "bpf-linker"]);
        assert!(test.len() > bpf.len());
        let programs = missing(&fake.machine, Purpose::Programs);
        assert_eq!(programs.len(), NEEDS.len());
        let tomcat = "Tomcat 9 with its native library";
        assert!(names(&programs).contains(&tomcat) && !names(&test).contains(&tomcat), "a benchmark's alone");
    }

    /// Check that a machine with all of the build's needs is left alone.
    #[test]
    fn complete_machine_lacks_nothing() {
        let fake = FakeMachine::new();
        fake.file("/usr/bin/cc")
            .file("/usr/include/stdio.h")
            .file("/usr/lib/jvm/jdk/bin/javac")
            .file("/usr/bin/rustc")
            .file("/usr/lib/rustlib/bpfel-unknown-none/lib/libcore.rlib")
            .file("/root/.cargo/bin/bpf-linker");
        assert_eq!(names(&missing(&fake.machine, Purpose::Bpf)), [""; 0]);
    }

    /// Check that without root nothing is tried and the instructions name the packages.
    #[test]
    fn without_root_the_way_is_named() {
        let mut fake = FakeMachine::new();
        fake.file("/usr/bin/apt-get");
        fake.machine.is_root = false;
        let needs = missing(&fake.machine, Purpose::Build);
        let jdk = needs.iter().find(|need| need.what == "a JDK").unwrap();
        assert_eq!(jdk.remedies(&fake.machine).count(), 0);
        let text = instructions(&[jdk]);
        assert!(text.contains("apt-get install openjdk-17-jdk-headless"), "{text}");
        fake.machine.is_root = true;
        assert_eq!(jdk.remedies(&fake.machine).count(), 1);
    }

    /// Check that the arguments choose the purpose and that a wrong one is refused.
    #[test]
    fn arguments_choose_the_purpose() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        assert_eq!(purpose(&[]).unwrap(), Purpose::Build);
        assert_eq!(purpose(&words("--for test")).unwrap(), Purpose::Test);
        assert!(purpose(&words("--for fun")).is_err());
    }
}
