//! The companion agent in a JVM, whose natives it watches as a test says: the test plays nprof ([`crate::shim_peer`]).

use std::path::Path;
use std::thread;

use anyhow::{Result, ensure};
use nprof_common::wire::Welcome;

use crate::jdk::Jdk;
use crate::process::RemoteProcess;
use crate::shim::{Records, agent_path, library, load_copy};
use crate::shim_peer::{Connection, Listener};

/// What is done at calls: mode and chance, such as [`crate::shim_peer::TIME`].
pub type StubOptions = (u32, u32);

/// As many records as the agent has stubs.
const RECORDS: u32 = 4_096;
const SHARDS: u32 = 2;

/// An agent that watches natives.
#[derive(Debug)]
pub struct Watched {
    /// With the agent.
    pub connection: Connection,
    /// What the names of their classes begin with.
    classes: String,
}

impl Watched {
    /// Has the natives of some classes watched in a running JVM; those that are bound later, of any class, too.
    ///
    /// # Errors
    /// When the JVM or the agent does not take it.
    pub fn load(jdk: &Jdk, pid: u32, classes: &str, options: StubOptions) -> Result<Self> {
        Self::load_copy(jdk, pid, &library()?, classes, options)
    }

    /// The same with a copy of the agent.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_copy(jdk: &Jdk, pid: u32, library: &Path, classes: &str, options: StubOptions) -> Result<Self> {
        let listener = Listener::new()?;
        load_copy(jdk, pid, library, &listener.option())?;
        let mut connection = listener.accept()?;
        connection.welcome(welcome(options))?;
        Self::watch(connection, classes, options)
    }

    /// The same in a JVM that `start` starts with the option that it is given: from the first bind on.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_the_start(
        classes: &str,
        options: StubOptions,
        start: impl FnOnce(&str) -> Result<RemoteProcess>,
    ) -> Result<(RemoteProcess, Self)> {
        let listener = Listener::new()?;
        let agent = agent_path(&listener.option())?;
        let (target, connection) = while_welcomed(&listener, options, || start(&agent))?;
        Ok((target, Self::watch(connection, classes, options)?))
    }

    fn watch(connection: Connection, classes: &str, options: StubOptions) -> Result<Self> {
        let mut watched = Self { connection, classes: classes.to_owned() };
        watched.set_options(options)?;
        Ok(watched)
    }

    /// Does something else at the calls from now on.
    ///
    /// # Errors
    /// When the agent does not answer.
    pub fn set_options(&mut self, options: StubOptions) -> Result<()> {
        self.connection.scan()?;
        self.connection.watch(&self.connection.methods_of(&self.classes), options)?;
        self.connection.apply()?;
        Ok(())
    }

    /// What was recorded so far.
    ///
    /// # Errors
    /// When the agent does not answer.
    pub fn records(&mut self) -> Result<Records> {
        self.connection.scan()?;
        self.last_records()
    }

    /// What was recorded of the methods that are known, also after the end of the agent.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn last_records(&self) -> Result<Records> {
        let mut records = Records { notes: self.connection.heard.notes.clone(), ..Records::default() };
        for (name, bound) in self.connection.heard.methods.values() {
            records.add(name, self.connection.record(bound)?);
        }
        Ok(records)
    }

    /// Gives all methods their own addresses back. Returns what was recorded.
    ///
    /// # Errors
    /// When some are left.
    pub fn detach(&mut self) -> Result<Records> {
        self.connection.scan()?;
        self.connection.detach()?;
        self.last_records()
    }

    /// Ends the JVM, of which the agent tells.
    ///
    /// # Errors
    /// When either does not.
    pub fn exit(mut self, target: RemoteProcess) -> Result<()> {
        target.exit()?;
        let reason = self.connection.farewell()?;
        ensure!(reason == "the JVM ends", "{reason}");
        Ok(())
    }
}

/// Does something during which an agent connects. It is told to watch all natives from the first bind on.
///
/// # Errors
/// When that cannot be done, or no agent connects.
pub fn while_welcomed<T>(
    listener: &Listener,
    options: StubOptions,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Connection)> {
    thread::scope(|scope| {
        let connected = scope.spawn(|| {
            let mut connection = listener.accept()?;
            connection.welcome(welcome(options))?;
            Ok::<_, anyhow::Error>(connection)
        });
        let done = work()?;
        let connection = connected.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((done, connection))
    })
}

fn welcome((bind_mode, bind_probability): StubOptions) -> Welcome {
    Welcome { bind_mode, bind_probability, stub_binds: true, ..Connection::usual_welcome(RECORDS, SHARDS) }
}
