//! A child process whose output is read line by line, with a limit on every wait and everything it said at hand when
//! something goes wrong.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// How long anything may take before a test fails. Far more than is needed beside the work of others, too: it only ends what hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How long one that has been killed may take to end.
const KILLED: Duration = Duration::from_secs(20);

/// Which of a child's outputs a line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Data.
    Stdout,
    /// Talk.
    Stderr,
}

/// Everything that a child said, in the order in which it was read.
type Transcript = Arc<Mutex<Vec<String>>>;

/// A running child process. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    transcript: Transcript,
}

impl Child {
    /// Starts `command`; `name` is for messages.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        let transcript = Transcript::default();
        let stdout = process.stdout.take().context("stdout is a pipe")?;
        let stderr = process.stderr.take().context("stderr is a pipe")?;
        Ok(Self {
            name: name.to_owned(),
            stdin: process.stdin.take(),
            stdout: read_lines(stdout, "", &transcript),
            stderr: read_lines(stderr, "stderr: ", &transcript),
            process,
            transcript,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes one line to its stdin.
    ///
    /// # Errors
    /// When it no longer reads.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is a pipe")?;
        writeln!(stdin, "{line}").map_err(|error| self.failure(&format!("does not take '{line}': {error}")))
    }

    /// The next line of one of its outputs.
    ///
    /// # Errors
    /// When it ends, or says nothing for [`PATIENCE`].
    pub fn line(&mut self, stream: Stream) -> Result<String> {
        let lines = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        lines.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => self.failure(&format!("said nothing on {stream:?} for {PATIENCE:?}")),
            RecvTimeoutError::Disconnected => self.failure(&format!("ended its {stream:?}")),
        })
    }

    /// The next line of `stream` that begins with `prefix`; lines before it are passed over.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn line_with_prefix(&mut self, stream: Stream, prefix: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let line = self.line(stream).with_context(|| format!("waiting for '{prefix}'"))?;
            if line.starts_with(prefix) {
                return Ok(line);
            }
        }
        bail!(self.failure(&format!("talked for {PATIENCE:?} without '{prefix}'")))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has been reaped.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.process_id()?, signal).with_context(|| format!("{signal:?} to {}", self.name))
    }

    /// Waits for its end and returns how it ended, together with what it had not yet been asked for on stdout.
    ///
    /// # Errors
    /// When it does not end within [`PATIENCE`].
    pub fn wait(&mut self) -> Result<(ExitStatus, String)> {
        if !self.ends_within(PATIENCE)? {
            bail!(self.failure(&format!("did not end within {PATIENCE:?}")));
        }
        let status = self.process.wait()?;
        let mut rest = String::new();
        while let Ok(line) = self.stdout.recv_timeout(PATIENCE) {
            writeln!(rest, "{line}")?;
        }
        Ok((status, rest))
    }

    fn ends_within(&self, limit: Duration) -> Result<bool> {
        let pidfd = pidfd_open(self.process_id()?, PidfdFlags::empty()).context("pidfd")?;
        let limit = Timespec { tv_sec: limit.as_secs().try_into()?, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit))? > 0)
    }

    /// Kills it and reaps it.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// The lines on stderr that have not been asked for. Complete once the child has ended.
    ///
    /// # Errors
    /// When stderr is still open after [`PATIENCE`].
    pub fn rest_of_stderr(&mut self) -> Result<String> {
        let mut rest = String::new();
        loop {
            match self.stderr.recv_timeout(PATIENCE) {
                Ok(line) => writeln!(rest, "{line}")?,
                Err(RecvTimeoutError::Disconnected) => return Ok(rest),
                Err(RecvTimeoutError::Timeout) => bail!(self.failure("keeps its stderr open")),
            }
        }
    }

    /// An error about this child that shows what it said.
    #[must_use]
    pub fn failure(&self, what: &str) -> anyhow::Error {
        let transcript = self.transcript.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow!("{} {what}; it said:\n    {}", self.name, transcript.join("\n    "))
    }

    fn process_id(&self) -> Result<Pid> {
        Pid::from_raw(self.process.id().try_into()?).context("a child's pid is not zero")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Either fails only when it has been reaped already, which is all that is wanted.
        drop(self.process.kill());
        // The kernel may keep a process as long as another one lives, which the test ends later.
        if self.ends_within(KILLED).unwrap_or(true) {
            drop(self.process.wait());
        }
    }
}

/// Reads lines in a separate thread, so that a child never blocks on a full pipe.
fn read_lines(from: impl Read + Send + 'static, label: &'static str, transcript: &Transcript) -> Receiver<String> {
    let (sender, receiver) = channel();
    let transcript = Arc::clone(transcript);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            transcript.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{label}{line}"));
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::spawn("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    /// Check that lines, exit status and the rest of the output arrive.
    #[test]
    fn lines_and_status_arrive() {
        let mut child = shell("read a; echo one; echo \"$a\"; echo talk >&2; echo three; exit 7");
        child.send("two").unwrap();
        assert_eq!(child.line_with_prefix(Stream::Stdout, "tw").unwrap(), "two");
        let (status, rest) = child.wait().unwrap();
        assert_eq!((status.code(), rest.as_str()), (Some(7), "three\n"));
        assert_eq!(child.rest_of_stderr().unwrap(), "talk\n");
    }

    /// Check that a child that ends too early is an error that shows what it said.
    #[test]
    fn an_early_end_shows_the_output() {
        let error = shell("echo confession >&2").line_with_prefix(Stream::Stdout, "ready").unwrap_err();
        assert!(format!("{error:#}").contains("sh ended its Stdout"), "{error:#}");
    }

    /// Check that a signal reaches the child.
    #[test]
    fn a_signal_ends_the_child() {
        use std::os::unix::process::ExitStatusExt;
        let mut child = shell("echo up; read forever");
        child.line(Stream::Stdout).unwrap();
        child.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().0.signal(), Some(15));
    }
}
