//! A target in its own JVM, started with a handshake and driven by commands (`tests/targets/Target.java`).

mod targets;

use std::collections::BTreeMap;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::child::{Child, Stream};
use crate::jdk::Jdk;
use crate::name::MethodName;

/// The environment variable with the number of a target of which there are many.
pub const NUMBER: &str = "NPROF_TEST_NUMBER";

/// A target that has said that it is ready. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct RemoteProcess {
    child: Child,
    pid: u32,
}

/// Calls made to one C function: as the Java code counted them, and as the function itself did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// The methods that are bound to the function.
    pub methods: Vec<MethodName>,
    /// Calls made, by the Java code.
    pub made: u64,
    /// Calls begun, by the C code.
    pub counted: u64,
}

/// Calls that timed themselves from the inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfTimed {
    /// The method.
    pub method: MethodName,
    /// Calls made.
    pub calls: u64,
    /// The sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl RemoteProcess {
    /// Any other program that speaks the protocol.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn program(command: &mut Command) -> Result<Self> {
        Self::started(Child::spawn("a program", command)?)
    }

    fn start(jdk: &Jdk, command: &mut Command) -> Result<Self> {
        Self::started(Child::spawn(&format!("target on {jdk}"), command)?)
    }

    fn started(mut child: Child) -> Result<Self> {
        let ready = child.line_with_prefix(Stream::Stdout, "ready ")?;
        let pid = child.pid();
        ensure!(ready == format!("ready {pid}"), "another process answered: {ready}");
        Ok(Self { child, pid })
    }

    /// A target in a pid namespace, where it is the first process; `command` becomes its parent outside.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn in_namespaces(jdk: &Jdk, command: &mut Command) -> Result<Self> {
        let mut child = Child::spawn(&format!("contained target on {jdk}"), command)?;
        let ready = child.line_with_prefix(Stream::Stdout, "ready ")?;
        ensure!(ready == "ready 1", "another process answered: {ready}");
        let parent = child.pid();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let pid = number(children.trim()).with_context(|| format!("not one child of {parent}"))?;
        Ok(Self { child, pid })
    }

    /// Its process id, on the host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it run a command and returns the data lines of its answer.
    ///
    /// # Errors
    /// When the target says that the command failed, or says nothing.
    pub fn run(&mut self, command: &str) -> Result<Vec<String>> {
        self.child.send(&format!("run {command}"))?;
        let mut answer = Vec::new();
        loop {
            let line = self.child.line(Stream::Stdout).with_context(|| format!("running '{command}'"))?;
            match line.split(' ').next() {
                Some("done") => return Ok(answer),
                Some("failed") => bail!(self.child.failure(&line)),
                _ => answer.push(line),
            }
        }
    }

    /// Has it run a command that it never answers.
    ///
    /// # Errors
    /// When the target no longer reads.
    pub fn leave_to(&mut self, command: &str) -> Result<()> {
        self.child.send(&format!("run {command}"))
    }

    /// Makes a known number of calls: `rounds` of `shape` (or `all`) on each of `threads` threads.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn calls(&mut self, shape: &str, threads: u32, rounds: u32) -> Result<Vec<Called>> {
        self.run_and_count(&format!("calls {shape} {threads} {rounds}"))
    }

    /// Runs a command that answers with the calls that it made.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_and_count(&mut self, command: &str) -> Result<Vec<Called>> {
        let mut functions: BTreeMap<u32, Called> = BTreeMap::new();
        for line in self.run(command)? {
            let words: Vec<&str> = line.split(' ').collect();
            let ["made", class, method, signature, made, counter, counted] = words[..] else {
                bail!("not a count: {line}");
            };
            let function = functions.entry(number(counter)?).or_insert_with(|| Called {
                methods: Vec::new(),
                made: 0,
                counted: 0,
            });
            function.methods.push(MethodName::new(class, method, signature));
            function.made += number::<u64>(made)?;
            function.counted = number(counted)?;
        }
        Ok(functions.into_values().collect())
    }

    /// Makes `calls` calls that time themselves: `sleep` with nanoseconds, `work`, and `uneven` for
    /// one of a hundred calls, with iterations as argument.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn self_timed(&mut self, what: &str, calls: u32, argument: u64) -> Result<SelfTimed> {
        let answer = self.run(&format!("{what} {calls} {argument}"))?.join("\n");
        let words: Vec<&str> = answer.split(' ').collect();
        let ["timed", class, method, signature, calls, total_ns, max_ns] = words[..] else {
            bail!("not a time: {answer}");
        };
        Ok(SelfTimed {
            method: MethodName::new(class, method, signature),
            calls: number(calls)?,
            total_ns: number(total_ns)?,
            max_ns: number(max_ns)?,
        })
    }

    /// What a command has taken that is answered by `took NANOSECONDS`, by the target's own clock.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn took_ns(&mut self, command: &str) -> Result<f64> {
        let answer = self.run(command)?.join("\n");
        Ok(answer.strip_prefix("took ").with_context(|| format!("{command}: not a time: {answer}"))?.parse()?)
    }

    /// Nanoseconds per call of the target's smallest native, the best of several runs.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn speed_ns(&mut self, calls: u32) -> Result<f64> {
        let answer = self.run(&format!("speed {calls}"))?.join("\n");
        number(answer.strip_prefix("speed ").with_context(|| format!("not a speed: {answer}"))?)
    }

    /// Ends it the hard way.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()
    }

    /// Ends it cleanly.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub fn exit(self) -> Result<()> {
        self.last_words().map(drop)
    }

    /// Ends it cleanly, and gives what it has said on its standard error.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub fn last_words(mut self) -> Result<String> {
        self.child.send("exit")?;
        let (status, _) = self.child.wait()?;
        ensure!(status.success(), self.child.failure(&format!("ended with {status}")));
        self.child.rest_of_stderr()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }
}

fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(text: &str) -> Result<T> {
    text.parse().with_context(|| format!("not a number: {text}"))
}
