//! The companion agent with nprof at the other end, which a test plays. Needs no nprof and no kernel.

mod ends;
mod orders;
mod told;
mod undone;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::shape_source;
use nprof_tests::shim::{Record, load};
use nprof_tests::shim_peer::{Bound, Connection, Listener};

const GENERATED: &str = "targets.Generated";
const THREADS: u64 = 4;
const ROUNDS: u64 = 25;
const CALLS: u64 = THREADS * ROUNDS;
const RECORDS: u32 = 1_024;

/// A target whose natives are bound.
fn target(jdk: &Jdk) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::stubs(jdk, &[], &[])?;
    must_be_right(&target.run("shapes 1 1")?)?;
    Ok(target)
}

/// Has a running JVM load the agent, which connects.
fn connect(jdk: &Jdk, target: &RemoteProcess) -> Result<Connection> {
    let listener = Listener::new()?;
    load(jdk, target.pid(), &listener.option())?;
    listener.accept()
}

/// The same, welcomed, with the generated natives known.
fn connect_and_scan(jdk: &Jdk, target: &RemoteProcess, shards: u32) -> Result<(Connection, Vec<Bound>)> {
    let mut connection = connect(jdk, target)?;
    connection.welcome(Connection::usual_welcome(RECORDS, shards))?;
    connection.scan()?;
    let shapes = shapes(&connection)?;
    Ok((connection, shapes))
}

/// The generated natives, of which there must be all.
fn shapes(connection: &Connection) -> Result<Vec<Bound>> {
    let named = connection.heard.bound.iter().filter(|(name, _)| name.class == GENERATED && name.method != "hash");
    let shapes: Vec<Bound> = named.map(|(_, bound)| *bound).collect();
    ensure!(shapes.len() == shape_source::count(), "{} shapes are known", shapes.len());
    Ok(shapes)
}

/// Calls all generated natives and checks that no result is wrong.
fn call_shapes(target: &mut RemoteProcess) -> Result<()> {
    must_be_right(&target.run(&format!("shapes {THREADS} {ROUNDS}"))?)
}

fn must_be_right(answer: &[String]) -> Result<()> {
    ensure!(answer.len() == 1 && answer[0].ends_with(" wrong 0"), "{answer:?}");
    Ok(())
}

/// The records of methods; of those that have one.
fn records(connection: &Connection, methods: &[Bound]) -> Result<Vec<Record>> {
    methods.iter().map(|method| connection.record(method)).collect()
}

/// Checks what has come to each record since an earlier moment.
fn must_have_come(
    connection: &Connection,
    methods: &[Bound],
    before: &[Record],
    right: impl Fn(Record) -> bool,
) -> Result<Vec<Record>> {
    let after = records(connection, methods)?;
    for (before, after) in before.iter().zip(&after) {
        let come = Record {
            counted: after.counted - before.counted,
            entered: after.entered - before.entered,
            ended: after.ended - before.ended,
            ..*after
        };
        ensure!(right(come), "{before:?}, then {after:?}");
    }
    Ok(after)
}

fn counted(calls: u64) -> impl Fn(Record) -> bool {
    move |come| (come.counted, come.entered, come.ended) == (calls, 0, 0)
}

fn timed(calls: u64) -> impl Fn(Record) -> bool {
    move |come| (come.counted, come.entered, come.ended) == (0, calls, calls) && come.max_ns <= come.total_ns
}

/// Waits until something is so that nothing tells of.
fn wait_until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether the agent has its thread.
fn has_thread(pid: u32) -> Result<bool> {
    let names = std::fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Ok(names.into_iter().any(|name| name == "nprof-shim\n"))
}
