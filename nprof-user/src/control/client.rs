//! The client's end of the control socket: one request, one reply, and what follows it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::connect::connect;
use super::protocol::{Answer, FOLLOWING_BYTES, REPLY_BYTES, Request, read_reply};

/// How long each step may take; more than the server takes to give up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody is there.
    #[error("nobody answers at {}: is `nprof serve` running? --control names another socket", path.display())]
    Nobody {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is not for this user.
    #[error(
        "no permission to use {}: run as root (sudo), or as a member of the group that `nprof serve` was given with \
         --control-group",
        path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// The connection broke, or it took too long.
    #[error("nprof at {} does not answer", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// What came back is no reply.
    #[error("nprof at {} answers something odd: {what}", path.display())]
    Odd {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// nprof was asked and said no.
    #[error("{reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
}

/// Asks the nprof that serves at `path`.
///
/// # Errors
/// If there is none, if it does not let this user ask, or if it says no.
pub fn ask(path: &Path, request: &Request) -> Result<Answer, AskError> {
    exchange(path, request).map(|(answer, _)| answer)
}

/// Asks for what follows a reply. It is read as it comes.
///
/// # Errors
/// As [`ask`]; reading fails if the connection breaks.
pub fn fetch(path: &Path, request: &Request) -> Result<impl Read + use<>, AskError> {
    let (answer, stream) = exchange(path, request)?;
    match answer.follow {
        Some(bytes) if bytes <= FOLLOWING_BYTES => Ok(stream.take(bytes)),
        Some(bytes) => Err(AskError::Odd { path: path.to_owned(), what: format!("a profile of {bytes} bytes") }),
        None => Err(AskError::Odd { path: path.to_owned(), what: "a reply without a profile".to_owned() }),
    }
}

/// Sends a request and reads the reply. What follows it is still to be read.
fn exchange(path: &Path, request: &Request) -> Result<(Answer, BufReader<UnixStream>), AskError> {
    let broken = |source| AskError::Io { path: path.to_owned(), source };
    let stream = connect(path).map_err(|error| no_connection(path, error))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    let line = request.to_line().map_err(|error| broken(error.into()))?;
    // One that turns us away does not wait for the request; its reason is there to be read all the same.
    let written = (&stream).write_all(&line);
    let mut reply = Vec::new();
    let mut stream = BufReader::new(stream);
    let read = (&mut stream).take(REPLY_BYTES as u64 + 1).read_until(b'\n', &mut reply);
    if reply.is_empty() {
        written.and(read).map_err(broken)?;
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    if reply.len() > REPLY_BYTES {
        return Err(AskError::Odd { path: path.to_owned(), what: format!("a reply of more than {REPLY_BYTES} bytes") });
    }
    let reply = read_reply(&reply).map_err(|what| AskError::Odd { path: path.to_owned(), what })?;
    reply.map(|answer| (answer, stream)).map_err(|reason| AskError::Refused { reason })
}

fn no_connection(path: &Path, source: io::Error) -> AskError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::Nobody { path },
        io::ErrorKind::PermissionDenied => AskError::Denied { path },
        _ => AskError::Io { path, source },
    }
}
