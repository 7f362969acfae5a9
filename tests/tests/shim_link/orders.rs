//! What the agent does when it is told to, in any order, and what it refuses.

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use nprof_common::wire::{FromShim, ToShim, Welcome};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shim::Record;
use nprof_tests::shim_peer::{Bound, COUNT, Connection, OFF, SAMPLE, TIME};

use super::{
    CALLS, RECORDS, call_shapes, connect, connect_and_scan, counted, must_be_right, must_have_come, records, target,
    timed,
};
/// Check that methods are counted and timed as they are told, from 4 threads, with fewer shards than CPUs and with more;
/// that the manner changes at once; and that methods that are no longer wanted have their own addresses back.
#[test]
fn watched_as_told() -> Result<()> {
    on_every_jdk(|jdk| {
        for shards in [1, 2, 7] {
            let mut target = target(jdk)?;
            let (mut connection, shapes) = connect_and_scan(jdk, &target, shards)?;
            connection.watch(&shapes, COUNT)?;
            let applied = connection.apply()?;
            ensure!(applied.stubbed as usize == shapes.len() && applied.restored + applied.failed == 0, "{applied:?}");
            let zero = vec![Record::default(); shapes.len()];
            call_shapes(&mut target)?;
            let mut before = must_have_come(&connection, &shapes, &zero, counted(CALLS))?;
            for mode in [TIME, SAMPLE, OFF, COUNT] {
                connection.watch(&shapes, mode)?;
                // Messages are followed in their order: when this is answered, those before have been.
                connection.apply()?;
                call_shapes(&mut target)?;
                before = must_have_come(&connection, &shapes, &before, |come| match mode {
                    OFF => counted(0)(come),
                    COUNT => counted(CALLS)(come),
                    TIME => timed(CALLS)(come),
                    _ => come.calls() == CALLS && come.entered == come.ended && come.entered > 0 && come.counted > 0,
                })?;
            }
            let (wanted, unwanted) = shapes.split_at(shapes.len() / 2);
            unwanted.iter().try_for_each(|shape| connection.send(&ToShim::Unwatch(shape.number)))?;
            let applied = connection.apply()?;
            ensure!(applied.restored as usize == unwanted.len() && applied.failed == 0, "{applied:?}");
            call_shapes(&mut target)?;
            must_have_come(&connection, wanted, &before, counted(CALLS))?;
            must_have_come(&connection, unwanted, &before[wanted.len()..], counted(0))?;
            connection.detach()?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that what nprof would never say ends the connection, with a reason, and does no harm to the JVM.
#[test]
fn nonsense_from_nprof() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        let usual = Connection::usual_welcome(RECORDS, 2);
        let bad_welcomes = [
            (Welcome { version: 99, ..usual }, "version"),
            (Welcome { record_bytes: 1_535, ..usual }, "1535"),
            (Welcome { shards: 0, ..usual }, "cannot map"),
            (Welcome { records: 0, ..usual }, "cannot map"),
            (Welcome { records: RECORDS + 1, ..usual }, "cannot map"),
            (Welcome { records: u32::MAX, shards: u32::MAX, ..usual }, "cannot map"),
            (Welcome { first: u64::MAX - 63, ..usual }, "cannot map"),
            (Welcome { bind_mode: 17, ..usual }, "mode 17"),
        ];
        let memory = Connection::memory_for(&usual)?;
        for (welcome, reason) in bad_welcomes {
            let mut connection = connect(jdk, &target)?;
            connection.send_with(&ToShim::Welcome(welcome), Some(memory.as_fd()))?;
            let given = connection.farewell()?;
            ensure!(given.contains(reason), "{welcome:?}: {given}");
        }
        let read_only = std::fs::File::open("/proc/self/exe")?;
        for file in [None, Some(read_only.as_fd())] {
            let mut connection = connect(jdk, &target)?;
            connection.send_with(&ToShim::Welcome(usual), file)?;
            let given = connection.farewell()?;
            ensure!(given.contains("map"), "{given}");
        }
        let mut hello = [0; 64];
        let hello = FromShim::Detached(1).encode(&mut hello).context("fits")?.to_vec();
        for bytes in [&b"?"[..], &[0; 8], &[0xff; 64], &[0; 4_096], &hello] {
            let mut connection = connect(jdk, &target)?;
            connection.send_bytes(bytes, None)?;
            let given = connection.farewell()?;
            ensure!(given.contains("not understood") || given.contains("cannot receive"), "{given}");
        }
        let mut connection = connect(jdk, &target)?;
        connection.send(&ToShim::Scan)?;
        ensure!(connection.farewell()?.contains("has not welcomed"));
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        connection.watch(&[Bound { number: u32::MAX, ..shapes[0] }], TIME)?;
        connection.send(&ToShim::Unwatch(u32::MAX - 1))?;
        ensure!(connection.apply()?.failed == 0);
        connection.welcome(usual)?;
        ensure!(connection.farewell()?.contains("welcomed this agent already"));
        call_shapes(&mut target)?;
        target.exit()
    })
}

/// Check that any order of commands, broken off at any point, leaves every result right, and that all can be counted and
/// undone afterwards.
#[test]
fn commands_by_chance() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut state = 0x6e70_726f_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).map(|random| random % end)
        };
        let mut target = target(jdk)?;
        target.run("load 4")?;
        for _ in 0..15 {
            let (connection, _) = connect_and_scan(jdk, &target, 1 + u32::try_from(below(4)?)?)?;
            let all: Vec<Bound> = connection.heard.bound.values().copied().collect();
            for _ in 0..below(200)? {
                let method = all[below(all.len())?];
                match below(40)? {
                    0 => connection.send(&ToShim::Scan)?,
                    1 => connection.send(&ToShim::Apply(0))?,
                    2..10 => connection.send(&ToShim::Unwatch(method.number))?,
                    _ => connection.watch(&[method], [OFF, COUNT, TIME, SAMPLE][below(4)?])?,
                }
            }
            connection.die()?;
        }
        must_be_right(&target.run("unload")?)?;
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        connection.watch(&shapes, TIME)?;
        connection.apply()?;
        call_shapes(&mut target)?;
        must_have_come(&connection, &shapes, &vec![Record::default(); shapes.len()], timed(CALLS))?;
        connection.detach()?;
        target.exit()
    })
}

/// Check that the JVM has nothing to say about any of it, even one that checks all uses of its interface: natives of
/// both of the JDK's own loaders are bound to stubs and back.
#[test]
fn in_silence() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stubs(jdk, &["-Xcheck:jni"], &[])?;
        let said = target.run("platform")?;
        ensure!(said.len() == 1, "{said:?}");
        for _ in 0..2 {
            let mut connection = connect(jdk, &target)?;
            connection.welcome(Connection::usual_welcome(RECORDS, 2))?;
            connection.scan()?;
            let all: Vec<Bound> = connection.heard.bound.values().copied().collect();
            connection.watch(&all, COUNT)?;
            connection.apply()?;
            let again = target.run("platform")?;
            ensure!(again == said, "{again:?}");
            let unix = connection.methods_of("com.sun.security.auth.module.UnixSystem");
            ensure!(records(&connection, &unix)?.iter().map(|record| record.counted).sum::<u64>() == 1, "{unix:?}");
            let (some, _) = all.split_at(all.len() / 2);
            some.iter().try_for_each(|method| connection.send(&ToShim::Unwatch(method.number)))?;
            connection.apply()?;
            let again = target.run("platform")?;
            ensure!(again == said, "{again:?}");
            connection.detach()?;
            let again = target.run("platform")?;
            ensure!(again == said && connection.heard.notes.is_empty(), "{again:?} {:?}", connection.heard.notes);
        }
        target.exit()
    })
}
