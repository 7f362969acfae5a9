//! The groups of the process at the other end of a local socket.
#![expect(unsafe_code, reason = "SO_PEERGROUPS has no safe wrapper here")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::{c_void, gid_t, socklen_t};

/// Enough for most users: one system call.
const USUAL_GROUPS: usize = 64;
/// The most groups that a process can have (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// The supplementary groups that the peer of a connected Unix socket had when it connected. The kernel remembers them:
/// unlike `/proc`, they cannot be another process's by the time they are asked for.
///
/// # Errors
/// What the kernel answers, such as for a descriptor that is no socket.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    match read_groups(socket, USUAL_GROUPS) {
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => read_groups(socket, MOST_GROUPS),
        result => result,
    }
}

fn read_groups(socket: BorrowedFd<'_>, room: usize) -> io::Result<Vec<u32>> {
    let mut groups: Vec<gid_t> = vec![0; room];
    let mut length = socklen_t::try_from(size_of_val(groups.as_slice())).map_err(io::Error::other)?;
    let into: *mut c_void = groups.as_mut_ptr().cast();
    // SAFETY: `into` points to `length` writable bytes, those of `groups`, and both outlive the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, into, &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(length as usize / size_of::<gid_t>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Check that the groups of a peer, here this process itself, are those that the kernel tells the process.
    #[test]
    fn tells_the_groups_of_the_peer() {
        let (here, _there) = UnixStream::pair().unwrap();
        let mut expected: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut found = peer_groups(here.as_fd()).unwrap();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer_groups(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }
}
