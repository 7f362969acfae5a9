//! Who is at the other end of a connection, and who may be.
//!
//! The mode of the socket keeps others out already. This is the second lock, for a socket whose mode somebody changed.
//! The kernel notes user and groups when a peer connects, so that there is no process id to be reused meanwhile.

use std::io;
use std::os::fd::AsFd;

use tokio::net::UnixStream;

use crate::sys::peer_groups::peer_groups;

/// A process as it was when it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Its supplementary groups.
    pub(super) groups: Vec<u32>,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        Ok(Self { uid: credentials.uid(), gid: credentials.gid(), groups: peer_groups(stream.as_fd())? })
    }
}

/// Who may control: root, nprof's own user, and the members of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) own_uid: u32,
    pub(super) group: Option<u32>,
}

impl Allowed {
    pub(super) fn admits(self, peer: &Peer) -> bool {
        let is_member = |group| peer.gid == group || peer.groups.contains(&group);
        peer.uid == 0 || peer.uid == self.own_uid || self.group.is_some_and(is_member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that root, nprof's user and members of the group, by either kind of membership, are admitted, others not.
    #[test]
    fn admits_few() {
        let peer = |uid, gid, groups: &[u32]| Peer { uid, gid, groups: groups.to_vec() };
        let allowed = Allowed { own_uid: 100, group: Some(50) };
        for few in [peer(0, 0, &[]), peer(100, 1, &[]), peer(7, 50, &[]), peer(7, 7, &[1, 50])] {
            assert!(allowed.admits(&few), "{few:?}");
        }
        assert!(!allowed.admits(&peer(7, 7, &[0, 100])));
        assert!(!Allowed { group: None, ..allowed }.admits(&peer(7, 50, &[50])));
    }
}
