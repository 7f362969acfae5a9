//! Which connections have a place, and what becomes of one that is too many.
//!
//! A connection is a stranger's until a request of it is admitted to a guarded page. Where places run out, of one peer or
//! of all, the oldest stranger gives up its own: who only holds a connection open keeps nobody out. A connection without a
//! place is not left without a word: it still has the health pages, and an answer to all else that says why not. There are
//! a few of these at a time, and the oldest is closed for a newer one. So a probe of a load balancer, which asks as soon as
//! it has connected, gets its answer however many others there are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::Limits;

/// Connections without a place at a time.
const STANDING: usize = 8;

/// Who is at the other end: an address, where one machine has many all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Peer {
    /// This host, by whichever of its addresses.
    Here,
    /// Another, by its address of four bytes, or the network of its address of sixteen.
    There(u64),
}

impl Peer {
    fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        match address {
            address if address.is_loopback() => Self::Here,
            IpAddr::V4(address) => Self::There(u64::from(address.to_bits())),
            // A machine has the whole of such a network to itself. The upper half of 128 bits fits.
            IpAddr::V6(address) => Self::There(u64::try_from(address.to_bits() >> 64).unwrap_or_default()),
        }
    }
}

/// The place of one connection, or that it has none.
#[derive(Debug)]
pub(super) struct Seat {
    peer: Peer,
    is_known: AtomicBool,
    is_standing: AtomicBool,
    leave: Notify,
}

impl Seat {
    /// A request was admitted to a guarded page.
    pub(super) fn admit(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether it has no place, so that it gets the health pages alone.
    pub(super) fn is_standing(&self) -> bool {
        self.is_standing.load(Ordering::Relaxed)
    }

    /// Ends when the connection is to be closed for another.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    fn is_stranger(&self) -> bool {
        !self.is_known.load(Ordering::Relaxed)
    }
}

/// The places of an endpoint. A place is free when its connection drops it.
#[derive(Debug, Default)]
pub(super) struct Seats {
    /// From the oldest to the newest.
    taken: Vec<Weak<Seat>>,
}

impl Seats {
    /// A place for a new connection, or none and a little patience.
    pub(super) fn take(&mut self, address: IpAddr, limits: &Limits) -> Arc<Seat> {
        let taken: Vec<Arc<Seat>> = self.taken.iter().filter_map(Weak::upgrade).collect();
        let (standing, seated): (Vec<_>, Vec<_>) = taken.iter().cloned().partition(|seat| seat.is_standing());
        let peer = Peer::of(address);
        let of_peer = |seat: &&Arc<Seat>| seat.peer == peer;
        let (is_full, yields) = if seated.iter().filter(of_peer).count() >= limits.peer_connections {
            (true, seated.iter().filter(of_peer).find(|seat| seat.is_stranger()))
        } else {
            (seated.len() >= limits.connections, stranger_of_a_crowd(&seated))
        };
        let new = Arc::new(Seat {
            peer,
            is_known: AtomicBool::new(false),
            is_standing: AtomicBool::new(is_full && yields.is_none()),
            leave: Notify::new(),
        });
        if is_full && let Some(stranger) = yields {
            stranger.is_standing.store(true, Ordering::Relaxed);
        }
        let leaves = (is_full && standing.len() >= STANDING).then(|| standing.first()).flatten();
        if let Some(oldest) = leaves {
            oldest.leave.notify_one();
        }
        let stays = |seat: &&Arc<Seat>| leaves.is_none_or(|leaves| !Arc::ptr_eq(leaves, seat));
        self.taken = taken.iter().filter(stays).chain([&new]).map(Arc::downgrade).collect();
        new
    }
}

/// The oldest stranger of the peer that has the most places.
fn stranger_of_a_crowd(seated: &[Arc<Seat>]) -> Option<&Arc<Seat>> {
    let mut places: HashMap<Peer, usize> = HashMap::new();
    for seat in seated {
        *places.entry(seat.peer).or_default() += 1;
    }
    let strangers = seated.iter().rev().filter(|seat| seat.is_stranger());
    // Of equals the last: the oldest, as they come from the newest on.
    strangers.max_by_key(|seat| places.get(&seat.peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 4,
        peer_connections: 3,
        header_bytes: 0,
        request_time: std::time::Duration::ZERO,
        response_time: std::time::Duration::ZERO,
        idle: std::time::Duration::ZERO,
    };

    fn take(seats: &mut Seats, address: &str) -> Arc<Seat> {
        seats.take(address.parse().unwrap(), &LIMITS)
    }

    fn are_standing(seats: &[Arc<Seat>]) -> Vec<bool> {
        seats.iter().map(|seat| seat.is_standing()).collect()
    }

    /// Check that a peer with all of its places gives up those of strangers, the oldest first, and then gets no more, while
    /// another peer does.
    #[test]
    fn peers_have_limits() {
        let mut seats = Seats::default();
        let mut all: Vec<_> = (0..3).map(|_| take(&mut seats, "10.0.0.1")).collect();
        all[1].admit();
        all.push(take(&mut seats, "::ffff:10.0.0.1"));
        assert_eq!(are_standing(&all), [true, false, false, false]);
        all[2..].iter().for_each(|seat| seat.admit());
        all.push(take(&mut seats, "10.0.0.1"));
        all.push(take(&mut seats, "10.0.0.2"));
        assert_eq!(are_standing(&all), [true, false, false, false, true, false]);
        all.remove(1);
        all.push(take(&mut seats, "10.0.0.1"));
        assert_eq!(are_standing(&all), [true, false, false, true, false, false], "a place that is free is taken");
    }

    /// Check that of all peers the one with the most places gives up a stranger's, and that nobody gives up another's.
    #[test]
    fn crowds_give_way() {
        let mut seats = Seats::default();
        let alone = take(&mut seats, "10.0.0.1");
        let crowd: Vec<_> = (0..3).map(|n| take(&mut seats, &format!("2001:db8:0:1::{n}"))).collect();
        let late = take(&mut seats, "127.0.0.1");
        assert!(!alone.is_standing() && !late.is_standing());
        assert_eq!(are_standing(&crowd), [true, false, false]);
        [&alone, &late, &crowd[1], &crowd[2]].into_iter().for_each(|seat| seat.admit());
        assert!(take(&mut seats, "10.0.0.3").is_standing());
    }

    /// Check that a few may be without a place, and that the oldest of them goes for a newer one.
    #[tokio::test]
    async fn few_stand() {
        let mut seats = Seats::default();
        let seated: Vec<_> = (0..3).map(|_| take(&mut seats, "127.0.0.1")).collect();
        seated.iter().for_each(|seat| seat.admit());
        let standing: Vec<_> = (1..=STANDING + 2).map(|n| take(&mut seats, &format!("127.0.0.{n}"))).collect();
        assert!(standing.iter().all(|seat| seat.is_standing()));
        for seat in &standing[..2] {
            seat.left().await;
        }
        let others = async { standing[2].left().await };
        tokio::select! { biased; () = others => panic!("too many left"), () = async {} => {} }
    }
}
