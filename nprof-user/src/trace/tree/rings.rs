//! Reads the rings of a target's threads.

use nprof_common::tree::{Event, LOST, RING_EVENTS, RINGS, SKIPPED, WRITTEN};

use crate::shim::TreeMemory;

/// How far each ring has been read, and what was not in it.
#[derive(Debug)]
pub(super) struct Rings {
    read: Vec<u64>,
    /// Events that mean nothing, or were overwritten: a target that keeps to the rules has none.
    unreadable: u64,
}

/// What is missing in the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RingLosses {
    pub events: u64,
    pub invocations: u64,
    pub without_ring: u64,
}

impl Rings {
    pub(super) fn new() -> Self {
        Self { read: vec![0; RINGS], unreadable: 0 }
    }

    /// Passes on what has been written since the last time, ring by ring.
    pub(super) fn drain(&mut self, memory: &TreeMemory, mut pass: impl FnMut(Event)) {
        for (ring, read) in self.read.iter_mut().enumerate() {
            let written = memory.head(ring, WRITTEN);
            let there = written.wrapping_sub(*read);
            if there == 0 {
                continue;
            }
            if there > RING_EVENTS as u64 {
                // No thread writes over what has not been read.
                self.unreadable = self.unreadable.saturating_add(there.min(u64::from(u32::MAX)));
            } else {
                for at in 0..there {
                    match memory.event(ring, read.wrapping_add(at)) {
                        Some(event) => pass(event),
                        None => self.unreadable += 1,
                    }
                }
            }
            *read = written;
            memory.have_read(ring, written);
        }
    }

    /// What is missing until now.
    pub(super) fn losses(&self, memory: &TreeMemory) -> RingLosses {
        let sum = |word| (0..RINGS).fold(0_u64, |sum, ring| sum.saturating_add(memory.head(ring, word)));
        RingLosses {
            events: sum(LOST).saturating_add(self.unreadable),
            invocations: sum(SKIPPED),
            without_ring: memory.without_ring(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::tree::EventKind;

    use super::*;

    fn event(method: u32) -> Event {
        Event { ticks: 1, thread: 2, method, kind: EventKind::Enter, detail: 0 }
    }

    /// Check that each event is read once, also where a ring begins again, and that a ring that says it holds more than fits does no harm.
    #[test]
    fn each_event_once() {
        let memory = TreeMemory::new().unwrap();
        let (mut rings, mut seen) = (Rings::new(), Vec::new());
        let rounds = 5 * u32::try_from(RING_EVENTS).unwrap() / 2;
        for method in 0..rounds {
            memory.write(3, &event(method));
            if method % 1_000 == 0 {
                rings.drain(&memory, |event| seen.push(event.method));
            }
        }
        rings.drain(&memory, |event| seen.push(event.method));
        assert_eq!(seen, (0..rounds).collect::<Vec<_>>());
        assert_eq!(rings.losses(&memory), RingLosses::default());
        let unread = u32::try_from(RING_EVENTS).unwrap() + 1;
        (0..unread).for_each(|method| memory.write(RINGS - 1, &event(method)));
        rings.drain(&memory, |event| seen.push(event.method));
        assert_eq!(seen.len(), rounds as usize);
        assert_eq!(rings.losses(&memory).events, u64::from(unread));
    }
}
