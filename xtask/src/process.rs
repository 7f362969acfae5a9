//! Child processes with an end: every one has a time limit and a guard.
//!
//! A [`run`] child leads its own process group, so that on a time-out or a Ctrl-C the whole tree below it is
//! ended. A [`Background`] child stays in the terminal's group, where it can draw and is reached by Ctrl-C itself, and
//! is ended when its guard is dropped.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often a running child is looked at.
const TICK: Duration = Duration::from_millis(20);
/// What a child gets between the request to end and its end by force.
const GRACE: Duration = Duration::from_secs(5);

/// Set when this process was asked to end.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that children are ended in order and guards run.
///
/// # Errors
/// When the handlers cannot be installed.
pub(crate) fn catch_signals() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(())
}

fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Runs `command`, with all that it says on standard error, and waits for its success, at most for `limit`.
///
/// # Errors
/// When it cannot be started, exceeds the limit, is interrupted or does not succeed.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    // What is on standard output is a result, and what this says is none.
    let status = Group::start(command.stdout(std::io::stderr()))?.wait(limit)?;
    check(command, status)
}

/// Runs `command`, hands each line of its standard output to `line`, and gives how it ended. Waits at most for `limit`.
///
/// # Errors
/// When it cannot be started, exceeds the limit or is interrupted.
pub(crate) fn run_lines(command: &mut Command, limit: Duration, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    let mut group = Group::start(command.stdout(Stdio::piped()))?;
    let lines = read_lines(group.child.stdout.take());
    while let Some(text) = group.next_line(&lines, deadline)? {
        line(&text);
    }
    group.wait(deadline.saturating_duration_since(Instant::now()))
}

/// Fails unless `status` is success.
///
/// # Errors
/// When it is not; the message names the command.
pub(crate) fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` ended with {status}", describe(command));
    }
    Ok(())
}

/// The command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start `{}`", describe(command)))
}

/// Reads lines on a separate thread, so that the reader of the channel can wait with a limit.
fn read_lines(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stream) = stream {
        thread::spawn(move || {
            for bytes in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// A child that leads its own process group.
struct Group {
    child: Child,
    what: String,
    ended: bool,
}

impl Group {
    fn start(command: &mut Command) -> Result<Self> {
        let child = spawn(command.process_group(0))?;
        let what = describe(command);
        Ok(Self { child, what, ended: false })
    }

    /// The next line, or `None` at the end of the output. A grandchild that keeps the pipe open after the child's
    /// end does not hold this up for longer than the grace period.
    fn next_line(&mut self, lines: &Receiver<String>, mut deadline: Instant) -> Result<Option<String>> {
        loop {
            match lines.recv_timeout(TICK) {
                Ok(text) => return Ok(Some(text)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.ended && self.child.try_wait()?.is_some() {
                self.ended = true;
                deadline = deadline.min(Instant::now() + GRACE);
            }
            if Instant::now() >= deadline && self.ended {
                return Ok(None);
            }
            self.give_up_if_due(deadline)?;
        }
    }

    fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Ok(status);
            }
            self.give_up_if_due(deadline)?;
            thread::sleep(TICK);
        }
    }

    fn give_up_if_due(&self, deadline: Instant) -> Result<()> {
        if interrupted() {
            bail!("interrupted during `{}`", self.what);
        }
        if Instant::now() >= deadline {
            bail!("`{}` took too long and was ended", self.what);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = pid(&self.child) {
            // The group may be gone already: nothing to do then.
            kill_process_group(pid, signal).ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.signal(Signal::TERM);
        end(&mut self.child);
        // The child is gone; what it left in its group goes too.
        self.signal(Signal::KILL);
    }
}

/// The process id of a child as system calls take it.
fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Waits for the end of a child that was asked to end, and enforces it after the grace period.
fn end(child: &mut Child) {
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        thread::sleep(TICK);
    }
    // Both fail only if it has ended by now.
    child.kill().ok();
    child.wait().ok();
}

/// A child in the terminal's process group, ended when dropped.
pub(crate) struct Background {
    child: Child,
    what: String,
    lines: Receiver<String>,
}

impl Background {
    /// Starts `command`. If its standard output is piped, it is read all along, so that the child never blocks.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = spawn(command)?;
        let lines = read_lines(child.stdout.take());
        let what = describe(command);
        Ok(Self { child, what, lines })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first line that it prints: programs say so when they are ready.
    ///
    /// # Errors
    /// When it ends, or prints nothing for `limit`.
    pub(crate) fn first_line(&self, limit: Duration) -> Result<String> {
        self.lines.recv_timeout(limit).with_context(|| format!("`{}` did not say that it is ready", self.what))
    }

    /// Waits for its end, at most for `limit`. After a Ctrl-C, which it has received too, it gets a grace period.
    ///
    /// # Errors
    /// When it exceeds the limit.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let mut deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if interrupted() {
                deadline = deadline.min(Instant::now() + GRACE);
            }
            if Instant::now() >= deadline {
                bail!("`{}` took too long and was ended", self.what);
            }
            thread::sleep(TICK);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Asked first, so that it can clear up after itself.
        if let Some(pid) = pid(&self.child) {
            kill_process(pid, Signal::TERM).ok();
        }
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Check that every line arrives in order, the last without a line feed too, and that the status is the child's.
    #[test]
    fn lines_and_status_are_passed_on() {
        let mut lines = Vec::new();
        let status = run_lines(&mut shell("echo a; echo b; printf c; exit 3"), Duration::from_secs(20), |line| {
            lines.push(line.to_owned())
        })
        .unwrap();
        assert_eq!(lines, ["a", "b", "c"]);
        assert_eq!(status.code(), Some(3));
    }

    /// Check that a time-out is an error that names the command, and ends the whole tree, not only the child.
    #[test]
    fn time_out_ends_the_tree() {
        let mut grandchild = None;
        let error = run_lines(&mut shell("sleep 600 & echo $!; wait"), Duration::from_millis(500), |line| {
            grandchild = line.parse::<i32>().ok()
        })
        .unwrap_err();
        assert!(error.to_string().contains("took too long"), "{error}");
        let stat = format!("/proc/{}/stat", grandchild.unwrap());
        // A signal takes effect in its own time: reaped, or a zombie that init has not reaped yet.
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "the grandchild still runs");
            thread::yield_now();
        }
    }

    /// Check that a failing command is an error that names it.
    #[test]
    fn failure_names_the_command() {
        let error = run(&mut shell("exit 7"), Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().contains("sh -c exit 7"), "{error}");
    }

    /// Check that dropping the guard ends the child.
    #[test]
    fn background_child_ends_with_its_guard() {
        let child = Background::start(shell("echo ready; exec sleep 600").stdout(Stdio::piped())).unwrap();
        assert_eq!(child.first_line(Duration::from_secs(20)).unwrap(), "ready");
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
