//! The connection to nprof.
//!
//! nprof listens, the agent connects when it is loaded with `connect=PATH`. Messages (`nprof_common::wire`) are sent by
//! whichever thread has something to tell, and read by one thread of ours (`service`), which does what they say
//! (`commands`). No thread of the JVM ever waits for nprof: what does not fit into the socket's buffer is dropped and
//! counted. Only our own thread waits a while with its answers.

mod commands;
pub(crate) mod ids;
pub(crate) mod service;
mod signals;
mod socket;
mod trees;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nprof_common::wire::{self, FromShim, MAX_PACKET, ToShim};

use self::socket::Files;
use crate::methods::StubOptions;

/// How long nprof may keep our thread waiting with an answer. After that it is dropped.
const PATIENCE: Duration = Duration::from_secs(5);
/// Long enough for nearly all messages, and short enough for any stack.
const USUAL_PACKET: usize = 2_048;

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    drops: Mutex<Drops>,
    policy: OnceLock<Policy>,
    /// Ids are kept for this connection.
    keeps_ids: AtomicBool,
    /// Trees are followed for this connection.
    trees: Mutex<Option<trees::Session>>,
}

/// What nprof wants to be done without being asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// How methods are watched that are bound from now on; `None` if they are not.
    pub(crate) binds: Option<StubOptions>,
}

/// Messages that were not sent, and how many of them nprof knows of.
#[derive(Debug, Default)]
struct Drops {
    total: u64,
    reported: u64,
    /// Nothing has been sent since nprof was last waited for in vain. It is not waited for again.
    is_hopeless: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nobody listens there.
    #[error("cannot connect to {path}: {source}")]
    Connect {
        /// The socket.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Somebody does, but not one who may tell this process what to do.
    #[error("{path} belongs to user {uid}, who may not trace this process")]
    Peer {
        /// The socket.
        path: String,
        /// Whose it is.
        uid: u32,
    },
    /// There is no thread for it.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl Error {
    /// Whether it means only that no nprof is there.
    pub(crate) fn is_absence(&self) -> bool {
        let Self::Connect { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    }
}

/// Why no more messages come.
#[derive(Debug, thiserror::Error)]
enum Broken {
    /// nprof is gone.
    #[error("nprof is gone")]
    End,
    /// The socket does not work.
    #[error("cannot receive: {0}")]
    Socket(#[from] io::Error),
    /// nprof sends what this agent does not understand.
    #[error("nprof's message is not understood: {0}")]
    Message(#[from] wire::Error),
}

impl Link {
    /// Connects to nprof, and makes sure that it is one.
    pub(crate) fn connect(path: &Path) -> Result<Self, Error> {
        let name = || path.display().to_string();
        let socket = socket::connect(path).map_err(|source| Error::Connect { path: name(), source })?;
        let uid = socket::peer(&socket).map_err(|source| Error::Connect { path: name(), source })?;
        if !socket::may_command(uid) {
            return Err(Error::Peer { path: name(), uid });
        }
        Ok(Self {
            socket,
            drops: Mutex::default(),
            policy: OnceLock::new(),
            keeps_ids: AtomicBool::new(false),
            trees: Mutex::default(),
        })
    }

    /// What nprof wants to be done without being asked; `None` until it has said so.
    pub(crate) fn policy(&self) -> Option<Policy> {
        self.policy.get().copied()
    }

    /// Sends a message, without waiting.
    pub(crate) fn send(&self, message: &FromShim<'_>) {
        with_packet(message, |packet| self.send_packet(packet, Duration::ZERO));
    }

    /// Sends a message of our own thread, which waits for room. Tells whether it has been sent.
    pub(crate) fn answer(&self, message: &FromShim<'_>) -> bool {
        with_packet(message, |packet| self.send_packet(packet, PATIENCE))
    }

    /// Ends the connection, for a reason.
    pub(crate) fn end(&self, reason: &str) {
        self.send(&FromShim::Bye(reason.as_bytes()));
        socket::shut_down(&self.socket);
    }

    /// Tries to send a packet until it has been sent or the patience is at an end; then it is dropped and counted.
    fn send_packet(&self, packet: Option<&[u8]>, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            if packet.is_some_and(|packet| self.try_send(packet)) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Nobody waits while holding the lock.
            let mut drops = self.drops();
            if packet.is_none() || left.is_zero() || drops.is_hopeless {
                drops.total += 1;
                return false;
            }
            drop(drops);
            if !socket::wait_for_room(&self.socket, left) {
                self.drops().is_hopeless = true;
            }
        }
    }

    /// Sends a packet, after the number of those that were dropped before, if that has grown.
    fn try_send(&self, packet: &[u8]) -> bool {
        let mut drops = self.drops();
        if drops.reported < drops.total {
            let total = drops.total;
            let is_sent = with_packet(&FromShim::Dropped(total), |packet| {
                packet.is_some_and(|packet| socket::try_send(&self.socket, packet))
            });
            if !is_sent {
                return false;
            }
            drops.reported = total;
        }
        let is_sent = socket::try_send(&self.socket, packet);
        drops.is_hopeless &= !is_sent;
        is_sent
    }

    fn drops(&self) -> MutexGuard<'_, Drops> {
        self.drops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message of nprof, if one comes within a time: what it is asked for in the middle of something else.
    fn receive_within(&self, limit: Duration) -> Option<ToShim> {
        if !socket::wait_for_message(&self.socket, limit) {
            return None;
        }
        self.receive().ok().map(|(message, _)| message)
    }

    /// The next message of nprof, and the descriptors that came with it.
    fn receive(&self) -> Result<(ToShim, Files), Broken> {
        let mut buffer = [0; USUAL_PACKET];
        let (length, files) = socket::receive(&self.socket, &mut buffer)?;
        if length == 0 {
            return Err(Broken::End);
        }
        Ok((ToShim::decode(&buffer[..length])?, files))
    }
}

/// The packet of a message; `None` if it is longer than a packet may be.
fn with_packet<T>(message: &FromShim<'_>, work: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let mut usual = [0; USUAL_PACKET];
    if let Some(packet) = message.encode(&mut usual) {
        return work(Some(packet));
    }
    work(message.encode(&mut vec![0; MAX_PACKET]))
}
