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
const MOST_OVER_LIMIT: usize = 8;

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
pub(super) struct Slot {
    peer: Peer,
    is_known: AtomicBool,
    is_over_limit: AtomicBool,
    leave: Notify,
}

impl Slot {
    /// A request was admitted to a guarded page.
    pub(super) fn admit(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether it has no place, so that it gets the health pages alone.
    pub(super) fn is_over_limit(&self) -> bool {
        self.is_over_limit.load(Ordering::Relaxed)
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
pub(super) struct ConnectionSlots {
    /// From the oldest to the newest.
    taken: Vec<Weak<Slot>>,
}

impl ConnectionSlots {
    /// A place for a new connection, or none and a little patience.
    pub(super) fn take(&mut self, address: IpAddr, limits: &Limits) -> Arc<Slot> {
        let taken: Vec<Arc<Slot>> = self.taken.iter().filter_map(Weak::upgrade).collect();
        let (over_limit, within_limit): (Vec<_>, Vec<_>) = taken.iter().cloned().partition(|slot| slot.is_over_limit());
        let peer = Peer::of(address);
        let of_peer = |slot: &&Arc<Slot>| slot.peer == peer;
        let (is_full, yields) = if within_limit.iter().filter(of_peer).count() >= limits.peer_connections {
            (true, within_limit.iter().filter(of_peer).find(|slot| slot.is_stranger()))
        } else {
            (within_limit.len() >= limits.connections, stranger_of_a_crowd(&within_limit))
        };
        let new = Arc::new(Slot {
            peer,
            is_known: AtomicBool::new(false),
            is_over_limit: AtomicBool::new(is_full && yields.is_none()),
            leave: Notify::new(),
        });
        if is_full && let Some(stranger) = yields {
            stranger.is_over_limit.store(true, Ordering::Relaxed);
        }
        let leaves = (is_full && over_limit.len() >= MOST_OVER_LIMIT).then(|| over_limit.first()).flatten();
        if let Some(oldest) = leaves {
            oldest.leave.notify_one();
        }
        let stays = |slot: &&Arc<Slot>| leaves.is_none_or(|leaves| !Arc::ptr_eq(leaves, slot));
        self.taken = taken.iter().filter(stays).chain([&new]).map(Arc::downgrade).collect();
        new
    }
}

/// The oldest stranger of the peer that has the most places.
fn stranger_of_a_crowd(within_limit: &[Arc<Slot>]) -> Option<&Arc<Slot>> {
    let mut places: HashMap<Peer, usize> = HashMap::new();
    for slot in within_limit {
        *places.entry(slot.peer).or_default() += 1;
    }
    let strangers = within_limit.iter().rev().filter(|slot| slot.is_stranger());
    // Of equals the last: the oldest, as they come from the newest on.
    strangers.max_by_key(|slot| places.get(&slot.peer))
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

    fn take(slots: &mut ConnectionSlots, address: &str) -> Arc<Slot> {
        slots.take(address.parse().unwrap(), &LIMITS)
    }

    fn are_over_limit(slots: &[Arc<Slot>]) -> Vec<bool> {
        slots.iter().map(|slot| slot.is_over_limit()).collect()
    }

    /// Check that a peer with all of its places gives up those of strangers, the oldest first, and then gets no more, while
    /// another peer does.
    #[test]
    fn peers_have_limits() {
        let mut slots = ConnectionSlots::default();
        let mut all: Vec<_> = (0..3).map(|_| take(&mut slots, "10.0.0.1")).collect();
        all[1].admit();
        all.push(take(&mut slots, "::ffff:10.0.0.1"));
        assert_eq!(are_over_limit(&all), [true, false, false, false]);
        all[2..].iter().for_each(|slot| slot.admit());
        all.push(take(&mut slots, "10.0.0.1"));
        all.push(take(&mut slots, "10.0.0.2"));
        assert_eq!(are_over_limit(&all), [true, false, false, false, true, false]);
        all.remove(1);
        all.push(take(&mut slots, "10.0.0.1"));
        assert_eq!(are_over_limit(&all), [true, false, false, true, false, false], "a place that is free is taken");
    }

    /// Check that of all peers the one with the most places gives up a stranger's, and that nobody gives up another's.
    #[test]
    fn crowds_give_way() {
        let mut slots = ConnectionSlots::default();
        let alone = take(&mut slots, "10.0.0.1");
        let crowd: Vec<_> = (0..3).map(|n| take(&mut slots, &format!("2001:db8:0:1::{n}"))).collect();
        let late = take(&mut slots, "127.0.0.1");
        assert!(!alone.is_over_limit() && !late.is_over_limit());
        assert_eq!(are_over_limit(&crowd), [true, false, false]);
        [&alone, &late, &crowd[1], &crowd[2]].into_iter().for_each(|slot| slot.admit());
        assert!(take(&mut slots, "10.0.0.3").is_over_limit());
    }

    /// Check that a few may be without a place, and that the oldest of them goes for a newer one.
    #[tokio::test]
    async fn few_over_the_limit() {
        let mut slots = ConnectionSlots::default();
        let within_limit: Vec<_> = (0..3).map(|_| take(&mut slots, "127.0.0.1")).collect();
        within_limit.iter().for_each(|slot| slot.admit());
        let over_limit: Vec<_> = (1..=MOST_OVER_LIMIT + 2).map(|n| take(&mut slots, &format!("127.0.0.{n}"))).collect();
        assert!(over_limit.iter().all(|slot| slot.is_over_limit()));
        for slot in &over_limit[..2] {
            slot.left().await;
        }
        let others = async { over_limit[2].left().await };
        tokio::select! { biased; () = others => panic!("too many left"), () = async {} => {} }
    }
}
