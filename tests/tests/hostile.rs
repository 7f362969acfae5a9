//! JVMs that mean no good: nprof does not fall for them, and says why it leaves them out.

use anyhow::{Result, ensure};
use nprof_tests::nprof::{Trace, run, run_within};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::target::Targets;

use crate::TARGETS;

/// What the data of nprof may take: what it has for one JVM, and as much again for itself.
const DATA_BYTES: u64 = 256 << 20;

/// Check that a library which is only called like the shim is not spoken to: without being told to, nprof uses probes and
/// says why, and with `--tier stub` it refuses. The library ends its JVM when it is asked for anything.
#[test]
fn a_decoy_of_the_shim() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let decoy = directory.path().join("libnprof_shim.so");
        std::fs::copy(Targets::get()?.library("libhostile.so"), &decoy)?;
        let mut target = RemoteProcess::shapes_on(jdk, &[&format!("-agentpath:{}", decoy.display())])?;
        let pid = target.pid().to_string();
        let refusal = "libnprof_shim.so in process";

        let trace = Trace::start(target.pid(), &[TARGETS])?;
        ensure!(!trace.announcement.contains("by stubs"), "{}", trace.announcement);
        let called = target.calls("static", 1, 100)?;
        crate::tiers::must_add_up(&trace.finish()?, &called)?;

        let said = run(&["trace", "--pid", &pid, "--duration", "100ms", TARGETS])?.stderr;
        ensure!(said.contains(refusal) && said.contains("is traced by the kernel alone"), "{said}");
        let stub = run(&["trace", "--pid", &pid, "--tier", "stub", "--duration", "100ms", TARGETS])?;
        ensure!(stub.code == Some(2) && stub.stderr.contains(refusal), "{stub:?}");
        target.exit()
    })
}

/// Check that a JVM with a million loaders that are none is left out with the reason, before it has filled memory.
#[test]
fn forged_loaders() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let forged = format!("-agentpath:{}=loaders=1000000", Targets::get()?.library("libhostile.so").display());
        // No garbage is collected: the VM would follow the list too.
        let options = ["-XX:+UnlockExperimentalVMOptions", "-XX:+UseEpsilonGC", "-Xmx512m", &forged];
        let mut target = RemoteProcess::shapes_on(jdk, &options)?;
        let pid = target.pid().to_string();
        for command in [&["trace", "--duration", "100ms"][..], &["methods"]] {
            let ended = run_within(DATA_BYTES, &[command, &["--pid", &pid]].concat())?;
            let says_why = ended.stderr.contains("more than the 128 MiB that nprof has for one JVM");
            ensure!(ended.code == Some(2) && says_why, "{command:?}: {ended:?}");
        }
        target.kill()
    })
}
