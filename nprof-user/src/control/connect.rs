//! Connecting without waiting: to a server that does not take its connections, a plain `connect` waits for good.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with};

/// A connection to the socket at `path`, whose reads and writes wait as usual.
///
/// # Errors
/// `WouldBlock` if somebody listens there who has more connections waiting than he can have.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};

    use super::*;

    /// Check that a server which does not take its connections is told from one that is not there, without waiting.
    #[test]
    fn does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let deaf = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&deaf, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        listen(&deaf, 0).unwrap();
        let waiting: Vec<io::Result<UnixStream>> = (0..4).map(|_| connect(&path)).collect();
        assert!(waiting[0].is_ok());
        assert_eq!(waiting[3].as_ref().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
