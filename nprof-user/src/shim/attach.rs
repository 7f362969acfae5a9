//! The protocol by which a running HotSpot JVM is asked to load a library: that of the JDK's own tools.
//!
//! A JVM listens at `/tmp/.java_pidN` from the first time on that it was asked to: by a file `.attach_pidN` in its working
//! directory or in `/tmp`, and SIGQUIT. Without the file the signal makes it print its threads. N is its number in its own
//! namespace. A request is a few strings that each end with a zero byte; the answer is text.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::Error;
use super::connection::is_peer;
use super::target::{Directory, Target, remove};
use crate::discover::{Proc, Standing};
use crate::model::Pid;

/// How often it is looked whether the JVM listens.
const STEP: Duration = Duration::from_millis(5);
/// What a JVM says that listens and has not started yet: "Dynamic agent loading is only permitted in the live phase".
const TOO_EARLY: &str = "live phase";
/// An answer is a line or two.
const ANSWER_BYTES: u64 = 64 << 10;
/// How much of an answer is shown, in characters.
const SHOWN: usize = 500;

/// Whether a JVM listens already, so that no signal is needed.
pub(super) fn listens(proc: &Proc, pid: Pid, standing: &Standing) -> bool {
    proc.directory_inside(pid, Path::new("/tmp")).is_ok_and(|tmp| socket_in(&tmp, standing).is_some())
}

/// Has the JVM load `library` with `options`, both as it sees them. To be called as the target's user. `may_signal` is
/// asked right before the signal is sent, if it has to be.
pub(super) fn load(
    target: &Target<'_>,
    library: &Path,
    options: &str,
    may_signal: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = match connected(target)? {
        Some(stream) => stream,
        None => ask_to_listen(target, may_signal)?,
    };
    let deadline = Instant::now() + target.patience;
    loop {
        let answer = ask(target, stream, &["load", &library.display().to_string(), "true", options])?;
        match judge(&answer) {
            Ok(()) => return Ok(()),
            Err(said) if said.contains(TOO_EARLY) && Instant::now() < deadline => {}
            Err(said) => return Err(Error::NotLoaded { pid: target.pid(), said }),
        }
        target.pass(STEP)?;
        let gone = || Error::NotListening { pid: target.pid(), waited: target.patience };
        stream = connected(target)?.ok_or_else(gone)?;
    }
}

/// Makes the JVM listen, and connects.
fn ask_to_listen(target: &Target<'_>, may_signal: impl FnOnce() -> Result<(), Error>) -> Result<UnixStream, Error> {
    let _request = Request::make(target)?;
    may_signal()?;
    target.quit()?;
    let deadline = Instant::now() + target.patience;
    while Instant::now() < deadline {
        if let Some(stream) = connected(target)? {
            return Ok(stream);
        }
        target.pass(STEP)?;
    }
    Err(Error::NotListening { pid: target.pid(), waited: target.patience })
}

/// A connection to the JVM; `None` if it does not listen. The socket may be left over of a process that had its number,
/// or be that of a JVM with the same number in another container, with which the directory is shared.
fn connected(target: &Target<'_>) -> Result<Option<UnixStream>, Error> {
    let Some(file) = socket_in(&target.tmp.fd, &target.standing) else {
        return Ok(None);
    };
    match connect_to(&file, target.patience) {
        Ok(stream) if is_peer(&stream, target.pid()) => Ok(Some(stream)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(source) => Err(target.attach_error(source)),
    }
}

/// The file of the JVM's socket, if it is one and the target's own.
fn socket_in(tmp: &OwnedFd, standing: &Standing) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(tmp, socket_name(standing), flags, Mode::empty()).ok()?;
    let found = fstat(&file).ok()?;
    let good = FileType::from_raw_mode(found.st_mode) == FileType::Socket && found.st_uid == standing.euid;
    good.then_some(file)
}

fn socket_name(standing: &Standing) -> String {
    format!(".java_pid{}", standing.ns_pid)
}

fn connect_to(file: &OwnedFd, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connecting waits where too many wait already.
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(patience))?;
    }
    // By the open file: its path may lead elsewhere by now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Sends a request and reads the answer to its end.
fn ask(target: &Target<'_>, mut stream: UnixStream, words: &[&str]) -> Result<String, Error> {
    let mut request = b"1\0".to_vec();
    for word in words {
        request.extend_from_slice(word.as_bytes());
        request.push(0);
    }
    let deadline = Instant::now() + target.patience;
    stream.write_all(&request).map_err(|source| target.no_answer(source))?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while (answer.len() as u64) < ANSWER_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(target.no_answer(io::ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(Some(left)).map_err(|source| target.attach_error(source))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(target.no_answer(source)),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether the JVM has loaded the library; the error is what it said instead.
///
/// The first line is whether the request was understood, then comes text: what the agent returned, or why there is none.
fn judge(answer: &str) -> Result<(), String> {
    let (code, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let text = text.trim();
    match code.trim() {
        "" => Err("it hung up without an answer".into()),
        "0" if text == "return code: 0" => Ok(()),
        code if text.is_empty() => Err(format!("its answer is {}", shown(code))),
        _ => Err(shown(text)),
    }
}

/// Text of the target's in one line of sensible length.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Target<'_> {
    fn attach_error(&self, source: io::Error) -> Error {
        let socket = self.tmp.inside.join(socket_name(&self.standing));
        Error::Attach { pid: self.pid(), socket, source }
    }

    fn no_answer(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                Error::NoAnswer { pid: self.pid(), waited: self.patience }
            }
            _ => self.attach_error(source),
        }
    }
}

/// The file that tells the JVM what SIGQUIT means. It is removed when this is dropped.
#[derive(Debug)]
struct Request<'a> {
    directory: &'a Directory,
    name: String,
}

impl<'a> Request<'a> {
    /// Makes it where the JVM looks for it.
    fn make(target: &'a Target<'_>) -> Result<Self, Error> {
        let name = format!(".attach_pid{}", target.standing.ns_pid);
        let mut tried = Vec::new();
        for directory in target.asked_in() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&directory.fd, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(_) => return Ok(Self { directory, name }),
                // It says the same: another tool asks at the moment, or has left it. The JVM cares whose it is.
                Err(Errno::EXIST) if is_owned(directory, &name, target.standing.euid) => {
                    return Ok(Self { directory, name });
                }
                Err(error) => tried.push(format!("{}: {error}", directory.inside.display())),
            }
        }
        Err(Error::NoRequest { pid: target.pid(), tried })
    }
}

fn is_owned(directory: &Directory, name: &str, uid: u32) -> bool {
    statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_uid == uid)
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        remove(self.directory.fd.as_fd(), &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests;
