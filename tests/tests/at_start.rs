//! JVMs that are started with the shim, as a package installs it: nothing is loaded into them any more, and all that takes the shim
//! works.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::Stream;
use nprof_tests::code::mappings;
use nprof_tests::jar::Jar;
use nprof_tests::nprof::{outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{Serve, UNGOVERNED};
use nprof_tests::shim::still_stubbed;
use rustix::process::Signal;

use crate::TARGETS;
use crate::serve::{settled, until_counted};
use crate::tiers::must_count_by_stubs;

/// The option that loads the shim, which nprof writes to a directory.
fn agent(directory: &Path) -> Result<String> {
    let made = run(&["generate", "agent", "--out", &directory.display().to_string()])?;
    ensure!(made.code == Some(0), "{made:?}");
    Ok(format!("-agentpath:{}", directory.join("libnprof_shim.so").display()))
}

/// Checks that a JVM has no other shim than the one in a directory.
fn must_have_one(target: &RemoteProcess, directory: &Path) -> Result<()> {
    let mapped = mappings(target.pid())?.into_iter().map(|mapping| mapping.path);
    let shims: Vec<_> = mapped.filter(|path| path.to_string_lossy().contains("libnprof_shim")).collect();
    let is_own = |path: &std::path::PathBuf| path.starts_with(directory);
    ensure!(!shims.is_empty() && shims.iter().all(is_own), "{shims:?}");
    Ok(())
}

/// Check that stubs count exactly in it, that no second library is loaded, and that the JVM does not complain of an agent that came late.
#[test]
fn stubs() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let mut target = RemoteProcess::shapes_on(jdk, &[&agent(directory.path())?])?;
        must_count_by_stubs(&mut target)?;
        must_have_one(&target, directory.path())?;
        let said = target.last_words()?;
        ensure!(!said.contains("agent"), "{said}");
        Ok(())
    })
}

/// Check that each command that takes the shim finds it there.
#[test]
fn all_commands() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let mut target = RemoteProcess::shapes_on(jdk, &[&agent(directory.path())?])?;
        target.calls("all", 1, 1)?;
        let (pid, out) = (target.pid().to_string(), directory.path().join("out").display().to_string());
        let of = |command, more: &[&str]| {
            let args = [&[command, "--pid", &pid, "--tier", "stub", "-d", "300ms"], more].concat();
            let done = run(&args)?;
            ensure!(done.code == Some(0), "{args:?}: {done:?}");
            Ok::<_, anyhow::Error>(())
        };
        of("record", &["-o", &out, TARGETS])?;
        of("flamegraph", &["--format", "folded", "-o", &out, TARGETS])?;
        of("jni", &[])?;
        must_have_one(&target, directory.path())?;
        target.exit()
    })
}

/// Check that a service counts by it without being told so, each call.
#[test]
fn a_service() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let jar = Jar::new(jdk, "at-start")?;
        let serve = Serve::start(&[&UNGOVERNED[..], &[TARGETS]].concat())?;
        let mut target = jar.start_with(&[&agent(directory.path())?])?;
        until_counted(&serve, jar.name(), &mut target)?;
        let before = settled(&serve, jar.name(), &mut target)?;
        target.calls("static", 3, 400)?;
        let after = settled(&serve, jar.name(), &mut target)?;
        ensure!(after == before + 1200, "{before}, then {after}");
        ensure!(!still_stubbed(target.pid())?.is_empty(), "nothing is counted by stubs");
        must_have_one(&target, directory.path())?;
        ensure!(serve.finish()?.success(), "the service has not ended well");
        target.exit()
    })
}

/// Since this release the VM always notes which code is made of which method.
const RECORDS_DEPENDENCIES: u32 = 23;

/// Check that the first class that is changed in it has the VM drop only what it has compiled of that class. In an older JVM that loads the shim
/// later, it drops everything, and the plan says so.
#[test]
fn first_change() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for at_start in [true, false] {
            let drops_all = !at_start && jdk.version < RECORDS_DEPENDENCIES;
            let directory = tempfile::tempdir()?;
            let log = directory.path().join("log");
            let mut options = vec![format!("-Xlog:redefine+class+nmethod=debug:file={}", log.display())];
            if at_start {
                options.push(agent(directory.path())?);
            }
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let mut target = RemoteProcess::trees(jdk, &options)?;
            target.run("load 1")?;
            let pid = target.pid().to_string();
            let entry = ["tree", "--pid", &pid, "targets.Trees$Work::entry", "--format", "json"];
            let plan = || Ok::<_, anyhow::Error>(run(&[&entry[..], &["--plan"]].concat())?.stdout);
            let said = format!("\"drops_code\":{drops_all}");
            ensure!(plan()?.contains(&said), "at start: {at_start}: {}", plan()?);
            let mut tree = spawn(&entry)?;
            tree.line_with_prefix(Stream::Stderr, "following ")?;
            tree.signal(Signal::INT)?;
            let done = outcome(tree)?;
            ensure!(done.code == Some(0), "{done:?}");
            // The second change does not.
            ensure!(plan()?.contains("\"drops_code\":false"), "at start: {at_start}: {}", plan()?);
            target.exit()?;
            let said = fs::read_to_string(&log)?;
            let first = said.lines().find(|line| line.contains("Marked")).with_context(|| said.clone())?;
            ensure!(first.contains("all nmethods") == drops_all, "at start: {at_start}: {first}");
        }
        Ok(())
    })
}
