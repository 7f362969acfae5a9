//! Waiting is told from work by `nprof tree`, whose shares are compared with the target's own clocks: on the host and in containers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::container::{Container, Root, Sort};
use nprof_tests::nprof::outcome;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::stolen::Stolen;
use serde_json::Value;

use crate::tree_cli::{follow, printed};

/// Works, and then waits.
const BOTH: &str = "targets.Trees$Waiting::both";
/// So many times.
const WAITS: u64 = 5;

/// The invocations of a method that works and then waits, so many times, and the last line.
fn working_and_waiting(target: &mut RemoteProcess, args: &[&str]) -> Result<(Vec<Value>, Value)> {
    let rounds = WAITS.to_string();
    let child = follow(target, BOTH, &[&["--format", "json", "-n", &rounds], args].concat())?;
    target.run(&format!("waiting {rounds}"))?;
    let (trees, last) = printed(outcome(child)?)?;
    ensure!(trees.len() as u64 == WAITS, "{trees:?}");
    Ok((trees, last))
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}

/// Checks that a target's waiting is told from its work, in each method and in all of an invocation: what a host has stolen is work to the
/// scheduler, and not to the target's clock. Returns the invocations.
fn must_tell_waiting(target: &mut RemoteProcess) -> Result<Vec<Value>> {
    /// What each of both takes, by the target's own clocks.
    const NS: f64 = 20e6;
    let stolen = Stolen::from_now_on()?;
    let (trees, last) = working_and_waiting(target, &[])?;
    let mut more = stolen.ns()? / NS;
    for tree in &trees {
        let (of_works, of_waits) = (&tree["root"]["children"][0], &tree["root"]["children"][1]);
        ensure!(of_works["method"] == "works" && of_waits["method"] == "waits", "{tree}");
        let on_cpu = |node: &Value| Ok::<f64, anyhow::Error>(number(&node["total_ns"])? - number(&node["off_cpu_ns"])?);
        let (works, waits) = (on_cpu(of_works)? / NS, number(&of_waits["self_off_cpu_ns"])? / NS);
        let told = format!("{works} of work, {more} stolen, {waits} of waiting: {tree}");
        ensure!((0.95..1.3 + more).contains(&works) && waits > 0.95, "{told}");
        more -= (works - 1.3).max(0.0);
        ensure!(on_cpu(of_waits)? < NS * (0.25 + more), "{told}");
        let both = number(&of_works["off_cpu_ns"])? + number(&of_waits["off_cpu_ns"])?;
        ensure!(number(&tree["off_cpu_ns"])? >= both, "{tree}");
    }
    ensure!(number(&last["summary"]["entries"][0]["off_cpu_ns"])? > 0.95 * NS * WAITS as f64, "{last}");
    Ok(trees)
}

/// Check that waiting is told from work, in each method and in all of an invocation, and that it is not known where it was not asked for.
#[test]
fn told_from_work() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        must_tell_waiting(&mut target)?;
        let (trees, last) = working_and_waiting(&mut target, &["--no-off-cpu"])?;
        for tree in trees {
            ensure!(tree["off_cpu_ns"].is_null() && tree["root"]["self_off_cpu_ns"].is_null(), "{tree}");
        }
        ensure!(last["summary"]["entries"][0]["off_cpu_ns"].is_null(), "{last}");
        target.exit()
    })
}

/// Checks the same in a container, and that threads have the host's numbers.
fn told_in(sort: &Sort, before: impl Fn(&Container) -> Result<()>) -> Result<()> {
    let sort = Sort { main: "targets.Trees", ..sort.clone() };
    traced_on_every_jdk(|jdk| {
        let mut container = Container::start(jdk, &sort)?;
        before(&container)?;
        for tree in must_tell_waiting(&mut container)? {
            let task = format!("/proc/{}/task/{}", container.pid(), tree["tid"]);
            ensure!(Path::new(&task).exists() && tree["thread"] == "java", "{tree}");
        }
        Ok(())
    })
}

/// Check the same in containers as they mostly are, with a user namespace, with a root that is read-only, and without `/proc`.
#[test]
fn told_in_containers() -> Result<()> {
    let in_namespace = Sort { user_namespace: true, ..Sort::default() };
    told_in(&Sort::default(), |_| Ok(())).context("as they mostly are")?;
    told_in(&in_namespace, |_| Ok(())).context("with a user namespace")?;
    told_in(&in_namespace, Container::harden).context("hardened")?;
    told_in(&Sort { root: Root::Chroot, ..Sort::default() }, Container::unmount_root).context("without `/proc`")
}
