//! What the agent tells: who it is, which methods there are, what is bound later.

use anyhow::{Result, ensure};
use nprof_common::wire::{How, MOST_STUBS, NO_INDEX, NO_LIBRARY, Welcome};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shim::{Record, agent_path, library};
use nprof_tests::shim_peer::{COUNT, Connection, Listener, TIME};

use super::{
    CALLS, RECORDS, THREADS, call_shapes, connect, connect_and_scan, counted, must_have_come, records, shapes, target,
};

/// Binds of a class that are told of and not read: a socket keeps some hundred of them.
const UNREAD_BINDS: usize = 1_000;

/// Check that the agent says who it is, and finds every bound native with its `Method` and its native's address.
#[test]
fn who_and_what() -> Result<()> {
    on_every_jdk(|jdk| {
        let target = target(jdk)?;
        let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
        let hello = connection.hello()?;
        ensure!(
            hello.taken == 0
                && hello.stubs == MOST_STUBS
                && hello.pool_end - hello.pool_start == u64::from(MOST_STUBS) * 64,
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

/// Check that a JVM that starts with the agent is counted from its first calls on, methods of its first phase included,
/// and that one for which no nprof is there starts as if there was no agent.
#[test]
fn from_the_start() -> Result<()> {
    on_every_jdk(|jdk| {
        let listener = Listener::new()?;
        let (mut connection, mut target) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let mut connection = listener.accept()?;
                let (bind_mode, bind_probability) = COUNT;
                let usual = Connection::usual_welcome(RECORDS, 2);
                connection.welcome(Welcome { bind_mode, bind_probability, stub_binds: true, ..usual })?;
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

/// Check that a JVM goes on when nprof does not read, that what was not sent is counted, and that the connection works
/// when nprof reads again.
#[test]
fn nprof_does_not_read() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut connection = connect(jdk, &target)?;
        connection.welcome(Connection::usual_welcome(RECORDS, 2))?;
        // Before the agent has read the welcome, it tells of no binds. When this is answered, it has.
        connection.apply()?;
        target.run(&format!("register {UNREAD_BINDS}"))?;
        ensure!(connection.heard.dropped == 0, "told before anything was read");
        connection.scan()?;
        ensure!(connection.heard.dropped > 0, "nothing was dropped");
        connection.detach()?;
        target.exit()
    })
}
