//! The socket: connecting, who is at the other end, packets and descriptors.

#![expect(unsafe_code, reason = "asks the kernel for the credentials of the peer")]

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, recvmsg, send, shutdown, socket_with, sockopt,
};

/// As large a buffer as everybody may have on most machines.
const BUFFER: usize = 212_992;

/// Connects to a socket that somebody listens at. Does not wait if that somebody has too much to do.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // A smaller one does as well.
    let _smaller = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    // Our own thread waits for messages.
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// The user of the process at the other end.
pub(super) fn peer(socket: &OwnedFd) -> io::Result<u32> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the variable takes as many bytes as the length says.
    let code = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, credentials.as_mut_ptr().cast(), &raw mut length)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: three integers, which were zero and may have been filled. (The process may be 0: one that is not seen from
    // this namespace. A type that rules that out would be wrong here.)
    Ok(unsafe { credentials.assume_init() }.uid)
}

/// Whether a user may tell this process what to do: the machine's root, or who runs this process.
pub(super) fn may_command(uid: u32) -> bool {
    // Where nobody says that there are users without a number, there are none.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_else(|_| WHOLE.into());
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
    is_superior(uid, rustix::process::geteuid().as_raw(), &map, overflow)
}

/// What the kernel says of a user namespace that has all users.
const WHOLE: &str = "0 0 4294967295";

/// The root of the machine has no number in a user namespace that does not contain it: it looks like everybody who has
/// none. Such a one can only be here because it could reach into this namespace.
fn is_superior(uid: u32, own: u32, uid_map: &str, overflow: u32) -> bool {
    let is_whole = uid_map.split_ascii_whitespace().eq(WHOLE.split(' '));
    uid == 0 || uid == own || uid == overflow && !is_whole
}

/// Sends a packet; `false` if there is no room, or nobody to read it. Who is to know of the latter reads the end.
pub(super) fn try_send(socket: &OwnedFd, packet: &[u8]) -> bool {
    send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

/// Waits until there may be room again. `false` when the time is over, or nobody is there.
pub(super) fn wait_for_room(socket: &OwnedFd, limit: Duration) -> bool {
    wait_for(socket, PollFlags::OUT, limit)
}

/// Waits until there is a message. `false` when the time is over, or nobody is there.
pub(super) fn wait_for_message(socket: &OwnedFd, limit: Duration) -> bool {
    wait_for(socket, PollFlags::IN, limit)
}

fn wait_for(socket: &OwnedFd, what: PollFlags, limit: Duration) -> bool {
    let limit =
        Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() };
    let mut polled = [PollFd::new(socket, what)];
    let ready = poll(&mut polled, Some(&limit));
    let gone = PollFlags::HUP | PollFlags::ERR;
    matches!(ready, Ok(1..)) && !polled[0].revents().intersects(gone)
}

/// The descriptors that came with a packet.
pub(super) type Files = [Option<OwnedFd>; 2];

/// The next packet, and the descriptors that came with it. Nothing, when nobody is there any more.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Files)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done?,
        }
    };
    let mut files = Files::default();
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.iter_mut().zip(rights.flatten()).for_each(|(place, file)| *place = Some(file));
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
    }
    Ok((message.bytes, files))
}

/// Ends the connection, for all threads that use it.
pub(super) fn shut_down(socket: &OwnedFd) {
    // It may have ended by itself.
    let _ended = shutdown(socket, Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "         0     100000      65536\n";

    /// Check that root and the own user may command, others not; and that one without a number may where root has none.
    #[test]
    fn who_may_command() {
        assert!(is_superior(0, 1_000, WHOLE, 65_534) && is_superior(1_000, 1_000, WHOLE, 65_534));
        assert!(!is_superior(1_001, 1_000, WHOLE, 65_534) && !is_superior(65_534, 1_000, WHOLE, 65_534));
        assert!(is_superior(65_534, 1_000, PART, 65_534) && !is_superior(1_001, 1_000, PART, 65_534));
    }
}
