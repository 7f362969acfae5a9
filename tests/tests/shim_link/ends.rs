//! What the agent leaves when nprof goes, dies or is replaced, or the JVM ends.

use anyhow::{Context, Result, ensure};
use nprof_common::wire::ToShim;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shim::{Record, library, load_copy};
use nprof_tests::shim_peer::{Bound, COUNT, Connection, Listener, OFF, SAMPLE, TIME};

use super::{
    CALLS, RECORDS, call_shapes, connect, connect_and_scan, counted, has_thread, must_be_right, must_have_come,
    records, target, timed, wait_until,
};
/// Check that a newer nprof takes over under load: the older is told, the newer counts from zero with another number of
/// shards, and never sees a call end that it has not seen begin.
#[test]
fn taking_over_under_load() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        target.run("load 4")?;
        let mut before: Option<Connection> = None;
        let mut last = Vec::new();
        for round in 0..12 {
            let (mut connection, shapes) = connect_and_scan(jdk, &target, 1 + round % 3)?;
            if let Some(mut before) = before.take() {
                ensure!(before.farewell()? == "another nprof has taken over");
                // Calls that were in flight did not end there; none ended without having begun.
                ensure!(records(&before, &last)?.iter().all(|record| record.ended <= record.entered));
            }
            ensure!(
                (0..RECORDS).all(|index| connection.record_at(index).is_ok_and(|record| record == Record::default()))
            );
            connection.watch(&shapes, TIME)?;
            connection.apply()?;
            wait_until("calls", || Ok(records(&connection, &shapes)?.iter().any(|record| record.entered > 0)))?;
            (before, last) = (Some(connection), shapes);
        }
        must_be_right(&target.run("unload")?)?;
        let mut connection = before.context("a connection")?;
        let quiet = records(&connection, &last)?;
        ensure!(quiet.iter().all(|record| record.entered == record.ended && record.counted == 0), "{quiet:?}");
        call_shapes(&mut target)?;
        must_have_come(&connection, &last, &quiet, timed(CALLS))?;
        connection.detach()?;
        target.exit()
    })
}

/// Check that calls are still counted, and no more than that, when nprof has died; that the agent has no thread then; and
/// that the next nprof begins at zero, and can have everything undone.
#[test]
fn nprof_dies() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        let (left_alone, watched) = shapes.split_at(10);
        connection.watch(watched, TIME)?;
        connection.watch(left_alone, OFF)?;
        connection.apply()?;
        call_shapes(&mut target)?;
        let before = records(&connection, &shapes)?;
        connection.die()?;
        wait_until("no thread", || Ok(!has_thread(target.pid())?))?;
        call_shapes(&mut target)?;
        must_have_come(&connection, watched, &before[left_alone.len()..], counted(CALLS))?;
        must_have_come(&connection, left_alone, &before, counted(0))?;

        let (mut next, same) = connect_and_scan(jdk, &target, 3)?;
        ensure!(next.hello()?.taken as usize == shapes.len(), "{:?}", next.hello()?);
        let numbers = |shapes: &[Bound]| shapes.iter().map(|shape| (shape.number, shape.address)).collect::<Vec<_>>();
        ensure!(numbers(&same) == numbers(&shapes), "numbers or addresses are others now");
        let before = records(&connection, &shapes)?;
        call_shapes(&mut target)?;
        must_have_come(&connection, &shapes, &before, counted(0))?;
        next.watch(&same, COUNT)?;
        next.apply()?;
        ensure!(next.hello()?.taken as usize == shapes.len(), "stubs are taken twice");
        call_shapes(&mut target)?;
        must_have_come(&next, &same, &vec![Record::default(); same.len()], counted(CALLS))?;
        next.detach()?;
        target.exit()
    })
}

/// Check that twenty connections under load leave every result right, and that the last one counts exactly.
#[test]
fn many_connections() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        target.run("load 4")?;
        for round in 0..20 {
            let (mut connection, shapes) = connect_and_scan(jdk, &target, 1 + round % 4)?;
            connection.watch(&shapes, [COUNT, TIME, SAMPLE][round as usize % 3])?;
            connection.apply()?;
            match round % 3 {
                0 => connection.die()?,
                _ => connection.detach()?,
            }
        }
        must_be_right(&target.run("unload")?)?;
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        connection.watch(&shapes, COUNT)?;
        connection.apply()?;
        call_shapes(&mut target)?;
        must_have_come(&connection, &shapes, &vec![Record::default(); shapes.len()], counted(CALLS))?;
        connection.detach()?;
        target.exit()
    })
}

/// Check that a JVM ends cleanly while the agent is doing what nprof has said.
#[test]
fn the_jvm_ends_meanwhile() -> Result<()> {
    on_every_jdk(|jdk| {
        for commands in 0..8 {
            let target = target(jdk)?;
            let mut connection = connect(jdk, &target)?;
            connection.welcome(Connection::usual_welcome(RECORDS, 2))?;
            connection.scan()?;
            let all: Vec<Bound> = connection.heard.bound.values().copied().collect();
            connection.watch(&all, TIME)?;
            for command in 0..commands {
                connection.send(if command % 2 == 0 { &ToShim::Apply(0) } else { &ToShim::Scan })?;
            }
            target.exit()?;
            connection.farewell()?;
        }
        Ok(())
    })
}

/// Check that the agent is loaded again by the descriptor of its own file when that has been deleted, and is the same.
#[test]
fn loaded_again_when_deleted() -> Result<()> {
    on_every_jdk(|jdk| {
        let directory = tempfile::tempdir()?;
        let copy = directory.path().join("libcopy.so");
        std::fs::copy(library()?, &copy)?;
        let target = target(jdk)?;
        let listener = Listener::new()?;
        load_copy(jdk, target.pid(), &copy, &listener.option())?;
        let mut first = listener.accept()?;
        std::fs::remove_file(&copy)?;
        let again = format!("/proc/self/fd/{}", first.hello()?.library_fd);
        load_copy(jdk, target.pid(), again.as_ref(), &listener.option())?;
        let second = listener.accept()?;
        ensure!(first.farewell()? == "another nprof has taken over");
        ensure!(first.hello()? == second.hello()?, "{:?}, then {:?}", first.hello()?, second.hello()?);
        target.exit()
    })
}
