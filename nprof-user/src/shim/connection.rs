//! The conversation with a shim: packets of a local socket, one message each.
//!
//! The other end is the target, which may be slow, gone or hostile: nothing here waits without a limit, and what is no
//! message ends the conversation.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nprof_common::wire::{self, Hello, ToShim, Welcome};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with, recv, send, sendmsg,
    sockopt::{Timeout, set_socket_timeout, socket_peercred},
};

use super::Error;
use super::allowance::Allowance;
use super::message::FromShimOwned;
use super::target::{Target, is_readable};
use crate::model::Pid;

/// How long a message may wait for the shim to read those before it. It reads at once, unless the process is stopped.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a target that is to connect still lives.
const ACCEPT_STEP: Duration = Duration::from_millis(50);
/// Longer than any message of nprof's.
const LONGEST_SENT: usize = 256;

/// A connection to the shim of one process. Dropping it leaves the stubs to themselves: they count, and nobody reads.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<OwnedFd>,
    pid: Pid,
    hello: Hello,
    /// What has been received last.
    packet: Vec<u8>,
    /// How much it may still say.
    allowance: Allowance,
    /// What it had said when something could not be sent.
    unread: VecDeque<FromShimOwned>,
}

impl Connection {
    /// Begins the conversation with what has connected, which must be process `pid`.
    ///
    /// # Errors
    /// If it does not greet before `deadline`, or speaks another version.
    pub(super) fn begin(socket: OwnedFd, pid: Pid, deadline: Instant) -> Result<Self, Error> {
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_PATIENCE))
            .map_err(|source| Error::Socket { pid, source: source.into() })?;
        let mut packet = vec![0; wire::MAX_PACKET];
        loop {
            let left = deadline.checked_duration_since(Instant::now()).ok_or(Error::Silent { pid })?;
            match receive(&socket, pid, &mut packet, left)? {
                Some((FromShimOwned::Hello(hello), _)) if hello.version != wire::VERSION => {
                    return Err(Error::Version { pid, shim: hello.version });
                }
                Some((FromShimOwned::Hello(hello), _)) if is_possible(&hello) => {
                    return Ok(Self {
                        socket: Arc::new(socket),
                        pid,
                        hello,
                        packet,
                        allowance: Allowance::new(Instant::now()),
                        unread: VecDeque::new(),
                    });
                }
                Some((FromShimOwned::Hello(_), _)) => {
                    return Err(Error::NoMessage { pid, source: wire::Error::Value });
                }
                Some((FromShimOwned::Bye(reason), _)) => return Err(Error::Bye { pid, reason }),
                Some(_) => return Err(Error::Unexpected { pid }),
                // A signal interrupted the waiting.
                None => {}
            }
        }
    }

    /// Who the shim is.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Another way to tell the shim something, as long as the connection is there.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender { socket: Arc::downgrade(&self.socket) }
    }

    /// Tells the shim where and how to record, and gives it the map to record in, and that of rows if there are some.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn welcome(&mut self, welcome: Welcome, maps: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.send_with(ToShim::Welcome(welcome), maps)
    }

    /// Has the shim make ready for trees, in this memory, with so many rows of threads in another if there are some.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn prepare_trees(&mut self, memory: BorrowedFd<'_>, rows: Option<(BorrowedFd<'_>, u32)>) -> Result<(), Error> {
        match rows {
            Some((map, rows)) => self.send_with(ToShim::PrepareTrees(rows), &[memory, map]),
            None => self.send_with(ToShim::PrepareTrees(0), &[memory]),
        }
    }

    /// Tells the shim something, with up to two descriptors.
    fn send_with(&mut self, message: ToShim, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(self.failed(Errno::NOBUFS));
        }
        let mut buffer = [0; LONGEST_SENT];
        let packet = message.encode(&mut buffer).ok_or_else(|| self.failed(Errno::MSGSIZE))?;
        let sent = sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| self.last_words(error))
    }

    /// Tells the shim something. What it does about it, and when, it answers by messages.
    ///
    /// # Errors
    /// If the shim is gone, or has not read for five seconds.
    pub fn send(&mut self, message: ToShim) -> Result<(), Error> {
        let mut buffer = [0; LONGEST_SENT];
        let packet = message.encode(&mut buffer).ok_or_else(|| self.failed(Errno::MSGSIZE))?;
        send(&self.socket, packet, SendFlags::NOSIGNAL).map(drop).map_err(|error| self.last_words(error))
    }

    /// The next message; `None` if none comes within `timeout`, or a signal interrupts the waiting, or it is a note and there
    /// were many.
    ///
    /// # Errors
    /// If the shim is gone, says more than any shim has to say, or what it says is no message.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<FromShimOwned>, Error> {
        let pid = self.pid;
        let Some((message, bytes)) = receive(&self.socket, pid, &mut self.packet, timeout)? else {
            return Ok(None);
        };
        if self.allowance.is_exceeded(bytes, Instant::now()) {
            return Err(Error::Flood { pid });
        }
        match message {
            FromShimOwned::Hello(_) => Err(Error::Unexpected { pid }),
            FromShimOwned::Note(text) => Ok(self.allowance.note(&text).map(FromShimOwned::Note)),
            message => Ok(Some(message)),
        }
    }

    fn failed(&self, error: Errno) -> Error {
        failed(self.pid, error)
    }

    /// Why nothing could be sent: a shim that leaves says why before it does.
    /// What else it has said is there to be received.
    fn last_words(&mut self, error: Errno) -> Error {
        while let Ok(Some(message)) = self.receive(Duration::ZERO) {
            if let FromShimOwned::Bye(reason) = message {
                return Error::Bye { pid: self.pid, reason };
            }
            self.unread.push_back(message);
        }
        self.failed(error)
    }

    /// The next of what was said before something could not be sent.
    pub fn unread(&mut self) -> Option<FromShimOwned> {
        self.unread.pop_front()
    }
}

/// Tells the shim of a connection something, from any thread. It does not hold the connection open.
#[derive(Debug, Clone, Default)]
pub struct Sender {
    socket: Weak<OwnedFd>,
}

impl Sender {
    /// Whether the connection is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.socket.strong_count() > 0
    }

    /// Tells the shim something, unless it would have to be waited for. Returns whether it was told.
    #[must_use]
    pub fn try_send(&self, message: ToShim) -> bool {
        let mut buffer = [0; LONGEST_SENT];
        let Some((socket, packet)) = self.socket.upgrade().zip(message.encode(&mut buffer)) else { return false };
        send(&*socket, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }
}

impl AsFd for Connection {
    /// To wait for the next message together with other things.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether a shim can be like this: by these numbers maps are made.
fn is_possible(hello: &Hello) -> bool {
    let counts = [hello.stubs, hello.taken, hello.records];
    counts.iter().all(|&count| count <= wire::MOST_STUBS) && hello.pool_start <= hello.pool_end
}

/// The next message and its length in bytes.
fn receive(
    socket: &OwnedFd,
    pid: Pid,
    packet: &mut [u8],
    timeout: Duration,
) -> Result<Option<(FromShimOwned, usize)>, Error> {
    if !is_readable(socket.as_fd(), timeout).map_err(|error| failed(pid, error))? {
        return Ok(None);
    }
    // With `TRUNC` the length of the packet is told, also of one that is longer than the buffer.
    let mut next = || recv(socket, &mut *packet, RecvFlags::DONTWAIT | RecvFlags::TRUNC);
    // That the other end is closed, with something unread, is told once before what was said until then.
    let length = match next().or_else(|error| if error == Errno::CONNRESET { next() } else { Err(error) }) {
        Ok((_, 0)) => return Err(Error::Gone { pid }),
        Ok((_, length)) => length,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(failed(pid, error)),
    };
    let received = packet.get(..length).ok_or(wire::Error::Length);
    let message = received.and_then(FromShimOwned::decode).map_err(|source| Error::NoMessage { pid, source })?;
    Ok(Some((message, length)))
}

/// Waits for the shim of process `pid` to connect. Others that connect are turned away.
pub(super) fn accept(listener: &OwnedFd, target: &Target<'_>) -> Result<OwnedFd, Error> {
    let pid = target.pid();
    let deadline = Instant::now() + target.patience;
    while Instant::now() < deadline {
        target.pass(Duration::ZERO)?;
        if !is_readable(listener.as_fd(), ACCEPT_STEP).map_err(|error| failed(pid, error))? {
            continue;
        }
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) if is_peer(&socket, pid) => return Ok(socket),
            Ok(_) => tracing::debug!("another process than {pid} has connected in the shim's place"),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(failed(pid, error)),
        }
    }
    Err(Error::NotConnected { pid, waited: target.patience })
}

/// Whether process `pid` is at the other end. The kernel remembers who listened or connected.
pub(super) fn is_peer(socket: impl AsFd, pid: Pid) -> bool {
    socket_peercred(socket).is_ok_and(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(pid.0))
}

fn failed(pid: Pid, error: Errno) -> Error {
    match error {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Error::Gone { pid },
        Errno::AGAIN => Error::Stuck { pid, waited: SEND_PATIENCE },
        error => Error::Socket { pid, source: io::Error::from(error) },
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use nprof_common::wire::FromShim;
    use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SocketType, recvmsg, socketpair};

    use super::*;

    const PID: Pid = Pid(4711);
    const HELLO: Hello = Hello {
        version: wire::VERSION,
        stubs: 8,
        taken: 1,
        records: 8,
        sharding: 0,
        steady_clock: true,
        library_fd: 9,
        pool_start: 0x1000,
        pool_end: 0x2000,
        chosen_site: 0x1800,
        rowless_site: 0x1900,
    };
    const WELCOME: Welcome = Welcome {
        version: wire::VERSION,
        shards: 2,
        record_bytes: 1536,
        first: 0,
        records: 8,
        bind_mode: 1,
        bind_probability: 0,
        bind_threshold_ns: u64::MAX,
        bind_asked: true,
        tell_binds: true,
        stub_binds: true,
        rows: 0,
        consumed: false,
        bytes: 0,
    };

    /// The two ends, of which the second is the shim's.
    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn say(shim: &OwnedFd, message: FromShim<'_>) {
        send(shim, message.encode(&mut [0; 512]).unwrap(), SendFlags::empty()).unwrap();
    }

    fn begin(socket: OwnedFd) -> Result<Connection, Error> {
        Connection::begin(socket, PID, Instant::now() + Duration::from_millis(50))
    }

    /// A connection that has begun, and the shim's end.
    fn begun() -> (Connection, OwnedFd) {
        let (here, shim) = pair();
        say(&shim, FromShim::Hello(HELLO));
        (begin(here).unwrap(), shim)
    }

    /// Check that messages go both ways, one packet each, and that no message is no error.
    #[test]
    fn messages_go_both_ways() {
        let (mut connection, shim) = begun();
        assert_eq!(connection.hello(), &HELLO);
        assert_eq!(connection.receive(Duration::ZERO).unwrap(), None);
        say(&shim, FromShim::Dropped(3));
        say(&shim, FromShim::Note(b"well"));
        assert_eq!(connection.receive(Duration::ZERO).unwrap(), Some(FromShimOwned::Dropped(3)));
        assert_eq!(connection.receive(Duration::ZERO).unwrap(), Some(FromShimOwned::Note("well".into())));
        connection.send(ToShim::Apply(5)).unwrap();
        let mut buffer = [0; 512];
        let (length, _) = recv(&shim, &mut buffer[..], RecvFlags::empty()).unwrap();
        assert_eq!(ToShim::decode(&buffer[..length]), Ok(ToShim::Apply(5)));
    }

    /// Check that the map arrives together with the welcome.
    #[test]
    fn welcome_carries_the_map() {
        let (mut connection, shim) = begun();
        let map = std::fs::File::open("/dev/zero").unwrap();
        connection.welcome(WELCOME, &[map.as_fd()]).unwrap();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut buffer = [0; 512];
        let received =
            recvmsg(&shim, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_eq!(ToShim::decode(&buffer[..received.bytes]), Ok(ToShim::Welcome(WELCOME)));
        let fds: Vec<OwnedFd> = control
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect();
        let device = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_rdev;
        assert_eq!(fds.iter().map(|fd| device(fd.as_fd())).collect::<Vec<_>>(), [device(map.as_fd())]);
    }

    /// Check that who does not greet, greets in another version or says something else is not taken for a shim.
    #[test]
    fn strangers_are_turned_away() {
        let (here, _shim) = pair();
        assert!(matches!(begin(here), Err(Error::Silent { .. })));
        for (message, understood) in [
            (FromShim::Hello(Hello { version: 99, ..HELLO }), "version 99"),
            (FromShim::Bye(b"full"), "full"),
            (FromShim::Detached(0), "out of turn"),
            (FromShim::Hello(Hello { records: u32::MAX, ..HELLO }), "not understood"),
            (FromShim::Hello(Hello { taken: wire::MOST_STUBS + 1, ..HELLO }), "not understood"),
            (FromShim::Hello(Hello { pool_start: u64::MAX, ..HELLO }), "not understood"),
        ] {
            let (here, shim) = pair();
            say(&shim, message);
            let error = begin(here).unwrap_err().to_string();
            assert!(error.contains(understood), "{error}");
        }
    }

    /// Check that a shim that leaves is understood: when it is told something too late, and when it has left that unread.
    #[test]
    fn last_words_are_heard() {
        let heard =
            |error: Error| assert!(matches!(&error, Error::Bye { reason, .. } if reason == "no /proc"), "{error}");
        let (mut connection, shim) = begun();
        say(&shim, FromShim::Bye(b"no /proc"));
        drop(shim);
        heard(connection.send(ToShim::Apply(1)).unwrap_err());
        let (mut connection, shim) = begun();
        say(&shim, FromShim::Bye(b"no /proc"));
        connection.send(ToShim::Apply(1)).unwrap();
        drop(shim);
        heard(connection.send(ToShim::Apply(2)).unwrap_err());
        let (mut connection, shim) = begun();
        connection.send(ToShim::Apply(1)).unwrap();
        drop(shim);
        assert!(matches!(connection.send(ToShim::Apply(2)).unwrap_err(), Error::Gone { .. }));
    }

    /// Check that what a shim had said when it was gone is not lost where that is noticed by telling it something.
    #[test]
    fn nothing_that_was_said_is_lost() {
        let (mut connection, shim) = begun();
        say(&shim, FromShim::Dropped(7));
        say(&shim, FromShim::Detached(8));
        drop(shim);
        assert!(matches!(connection.send(ToShim::Apply(1)).unwrap_err(), Error::Gone { .. }));
        assert!(matches!(connection.unread(), Some(FromShimOwned::Dropped(7))));
        assert!(matches!(connection.unread(), Some(FromShimOwned::Detached(8))));
        assert!(connection.unread().is_none());
    }

    /// Check that a shim that never stops talking is not listened to for ever, and that of many notes a few come through.
    #[test]
    fn floods_end_the_conversation() {
        let (mut connection, shim) = begun();
        let (mut notes, mut others) = (0, 0);
        let flood = std::thread::spawn(move || {
            let mut sent = 0;
            let (mut note, mut dropped) = ([0; 64], [0; 64]);
            let note = FromShim::Note(b"look here").encode(&mut note).unwrap();
            let dropped = FromShim::Dropped(1).encode(&mut dropped).unwrap();
            while [note, dropped].iter().all(|packet| send(&shim, packet, SendFlags::NOSIGNAL).is_ok()) {
                sent += 2;
            }
            sent
        });
        let error = loop {
            match connection.receive(Duration::from_secs(10)) {
                Ok(Some(FromShimOwned::Note(_))) => notes += 1,
                Ok(Some(_)) => others += 1,
                Ok(None) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Flood { .. }), "{error}");
        drop(connection);
        let sent: u32 = flood.join().unwrap();
        assert!(others >= 1 << 17 && others <= sent / 2 + 1, "{others} of {sent}");
        assert!((1..others / 1000).contains(&notes), "{notes} notes beside {others} others");
    }

    /// Check that nonsense, a packet that is too long, a second greeting and the end are told apart.
    #[test]
    fn misbehaviour_ends_the_conversation() {
        let (mut connection, shim) = begun();
        send(&shim, b"nonsense", SendFlags::empty()).unwrap();
        let no_message = |received| matches!(received, Err(Error::NoMessage { source: wire::Error::Length, .. }));
        assert!(no_message(connection.receive(Duration::ZERO)));
        send(&shim, &vec![0; wire::MAX_PACKET + 1], SendFlags::empty()).unwrap();
        assert!(no_message(connection.receive(Duration::ZERO)));
        say(&shim, FromShim::Hello(HELLO));
        assert!(matches!(connection.receive(Duration::ZERO), Err(Error::Unexpected { .. })));
        drop(shim);
        assert!(matches!(connection.receive(Duration::ZERO), Err(Error::Gone { .. })));
        assert!(matches!(connection.send(ToShim::Scan), Err(Error::Gone { .. })));
    }
}
