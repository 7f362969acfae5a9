//! The companion agent with nprof at the other end, which a test plays: what it tells, what it does when it is told to,
//! and what it leaves when nprof goes. Needs no nprof and no kernel.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_common::wire::{CodeKind, FromShim, How, NO_INDEX, NO_LIBRARY, ToShim, Welcome};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shape_source;
use nprof_tests::shim::{Record, agent_path, library, load, load_copy};
use nprof_tests::shim_peer::{Bound, COUNT, Connection, Listener, OFF, SAMPLE, TIME};

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

/// Check that the agent says who it is, and finds every bound native with its `Method` and its native's address.
#[test]
fn who_and_what() -> Result<()> {
    on_every_jdk(|jdk| {
        let target = target(jdk)?;
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        let hello = connection.hello()?;
        ensure!(
            hello.taken == 0 && hello.stubs == 4_096 && hello.pool_end - hello.pool_start == 4_096 * 64,
            "{hello:?}"
        );
        let own_file = std::fs::metadata(format!("/proc/{}/fd/{}", target.pid(), hello.library_fd))?;
        ensure!(hello.library_fd != NO_LIBRARY && own_file.len() == std::fs::metadata(library()?)?.len(), "{hello:?}");
        ensure!(shapes.iter().all(|shape| shape.how == How::Found && shape.index == NO_INDEX), "{shapes:?}");
        ensure!(shapes.iter().all(|shape| shape.method != 0 && shape.address != 0), "{shapes:?}");
        ensure!(
            connection.methods_of("java.lang.").len() > 50,
            "{} natives",
            connection.methods_of("java.lang.").len()
        );
        ensure!(connection.methods_of("nprof.").is_empty() && connection.heard.notes.is_empty());
        target.exit()?;
        ensure!(connection.farewell()? == "the JVM ends");
        Ok(())
    })
}

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

/// Check that after the end all natives have their addresses back, nothing is recorded any more, the thread is gone, and
/// calls are as fast as they were; and that the next connection begins at zero.
#[test]
fn leaves_no_trace() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        target.run("spin 10000000")?;
        let before = fastest(&mut target)?;
        for _ in 0..2 {
            let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
            let all: Vec<Bound> = connection.heard.bound.values().copied().collect();
            connection.watch(&all, TIME)?;
            connection.apply()?;
            call_shapes(&mut target)?;
            let watched = fastest(&mut target)?;
            ensure!(watched > 2.0 * before, "{before} ns, watched {watched} ns");
            connection.detach()?;
            let frozen = records(&connection, &shapes)?;
            ensure!(frozen.iter().copied().all(timed(CALLS)), "{frozen:?}");
            call_shapes(&mut target)?;
            must_have_come(&connection, &shapes, &frozen, counted(0))?;
            wait_until("no thread", || Ok(!has_thread(target.pid())?))?;
            let after = fastest(&mut target)?;
            ensure!(after < before.midpoint(watched), "{before} ns, watched {watched} ns, then {after} ns");
        }
        target.exit()
    })
}

/// Nanoseconds of a call of the smallest native, at best.
fn fastest(target: &mut RemoteProcess) -> Result<f64> {
    const CALLS: f64 = 2e6;
    let mut fastest = f64::MAX;
    for _ in 0..8 {
        let answer = target.run(&format!("spin {CALLS:.0}"))?.join("");
        fastest = fastest.min(answer.strip_prefix("took ").context("took")?.parse::<f64>()? / CALLS);
    }
    Ok(fastest)
}

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

/// Check that a JVM that starts with the agent is counted from its first calls on, methods of its first phase included,
/// and that one for which no nprof is there starts as if there was no agent.
#[test]
fn from_the_start() -> Result<()> {
    on_every_jdk(|jdk| {
        let listener = Listener::new()?;
        let (mut connection, mut target) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let mut connection = listener.accept()?;
                let (bind_mode, bind_chance) = COUNT;
                let usual = Connection::usual_welcome(RECORDS, 2);
                connection.welcome(Welcome { bind_mode, bind_chance, stub_binds: true, ..usual })?;
                Ok::<_, anyhow::Error>(connection)
            });
            let target = RemoteProcess::stubs(jdk, &[&agent_path(&listener.option())?], &[])?;
            let accepted = accepted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok::<_, anyhow::Error>((accepted, target))
        })?;
        call_shapes(&mut target)?;
        connection.scan()?;
        let shapes = shapes(&connection)?;
        must_have_come(&connection, &shapes, &vec![Record::default(); shapes.len()], counted(CALLS))?;
        let start = connection.methods_of("java.lang.Thread").into_iter().map(|method| connection.record(&method));
        let started: u64 = start.map(|record| record.map(|record| record.counted)).sum::<Result<_>>()?;
        ensure!(started >= THREADS, "{started} calls of natives of Thread");
        ensure!(connection.heard.notes.is_empty(), "{:?}", connection.heard.notes);
        connection.detach()?;
        target.exit()?;

        let absent = listener.path().with_file_name("nobody");
        let agent = agent_path(&format!("connect={}", absent.display()))?;
        let said = std::process::Command::new(jdk.tool("java")).args([&agent, "-version"]).output()?;
        ensure!(said.status.success() && !String::from_utf8_lossy(&said.stderr).contains("nprof"), "{said:?}");
        Ok(())
    })
}

/// Check that methods that are bound later are told of at once, with the records that they are counted in; also in
/// classes and libraries that come and go.
#[test]
fn later_binds() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library_on(jdk, &[])?;
        let mut connection = connect(jdk, &target)?;
        let usual = Connection::usual_welcome(RECORDS, 2);
        connection.welcome(Welcome { bind_mode: TIME.0, stub_binds: true, ..usual })?;
        connection.scan()?;
        target.run("load")?;
        for round in 1..=3 {
            target.run("welcome")?;
            target.run_and_count("late 10")?;
            target.run_and_count("guest 10")?;
            connection.scan()?;
            let late = connection.methods_of("targets.LateLibrary");
            ensure!(connection.record(&late[0])?.ended == 10 * round, "{late:?}");
            let guest = connection.methods_of("guests.Guest");
            let records = records(&connection, &guest)?;
            ensure!(records.iter().any(|record| record.ended == 10), "{guest:?} {records:?}");
            target.run("dismiss")?;
        }
        // The methods of classes that are gone are not found any more, and cannot be watched.
        let gone = connection.methods_of("guests.Guest");
        connection.watch(&gone, COUNT)?;
        let applied = connection.apply()?;
        ensure!(applied.failed as usize == gone.len(), "{applied:?}");
        connection.detach()?;
        target.exit()
    })
}

/// Check that code that the VM makes is told of: what was there before, and what comes.
#[test]
fn code_of_the_vm() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        let mut connection = connect(jdk, &target)?;
        connection.welcome(Welcome { publish_code: true, ..Connection::usual_welcome(RECORDS, 2) })?;
        connection.scan()?;
        let of_kind = |connection: &Connection, wanted| {
            connection
                .heard
                .code
                .iter()
                .filter(|(kind, ..)| *kind == wanted)
                .map(|(.., name)| name.clone())
                .collect::<Vec<_>>()
        };
        let dynamic = of_kind(&connection, CodeKind::Dynamic);
        ensure!(dynamic.iter().any(|name| name.contains("nterpreter")), "{dynamic:?}");
        let spin = "Ltargets/Stubs;.empty()V";
        ensure!(!of_kind(&connection, CodeKind::Load).iter().any(|name| name == spin));
        target.run("spin 2000000")?;
        // Nothing tells when the VM has told of it.
        let deadline = Instant::now() + PATIENCE;
        while !of_kind(&connection, CodeKind::Load).iter().any(|name| name == spin) {
            ensure!(Instant::now() < deadline, "{:?}", of_kind(&connection, CodeKind::Load));
            connection.scan()?;
        }
        ensure!(
            connection
                .heard
                .code
                .iter()
                .all(|(kind, address, name)| { *address != 0 && (*kind == CodeKind::Unload) == name.is_empty() })
        );
        connection.detach()?;
        target.exit()
    })
}

/// Check that a JVM goes on when nprof does not read, that what was not sent is counted, and that the connection works
/// when nprof reads again.
#[test]
fn nprof_does_not_read() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library_on(jdk, &["-Xcomp"])?;
        let mut connection = connect(jdk, &target)?;
        connection.welcome(Welcome { publish_code: true, ..Connection::usual_welcome(RECORDS, 2) })?;
        target.run("load")?;
        for _ in 0..3 {
            target.run("welcome")?;
            target.run_and_count("guest 10")?;
            target.run("dismiss")?;
        }
        ensure!(connection.heard.dropped == 0, "told before anything was read");
        connection.scan()?;
        ensure!(connection.heard.dropped > 0, "nothing was dropped");
        connection.detach()?;
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

/// Check that a JVM ends in good order while the agent is doing what nprof has said.
#[test]
fn the_jvm_ends_meanwhile() -> Result<()> {
    on_every_jdk(|jdk| {
        for commands in 0..8 {
            let target = target(jdk)?;
            let mut connection = connect(jdk, &target)?;
            connection.welcome(Welcome { publish_code: true, ..Connection::usual_welcome(RECORDS, 2) })?;
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
