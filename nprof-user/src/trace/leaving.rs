//! Takes the probes of a survey away, those first that are hit.
//!
//! The kernel needs the lock of the target's address space for each, and waits some milliseconds for it as long as threads hit probes. A
//! function that nobody called while it was counted may be called all the time a moment later. Were its probe the last of hundreds
//! to go, its callers would be slowed until then: for a third of a second, in a server whose requests came just then.
//!
//! The others stay until the probes that trace are there, as far as there is room: each instruction that the kernel writes for a probe, or
//! puts back, interrupts all CPUs that run the target, whatever they do there. Where one probe comes before the other goes, nothing is
//! written.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use crate::attach::Session;
use crate::collect::Reader;
use crate::sys::{priority, probe_link};

/// How many probes that are not hit go in a step, if none is: that is how many one that is hit has to wait for.
const TOGETHER: usize = 8;
/// How many are on their way out at the same time. The kernel waits for running programs at the end of each.
const UNDER_WAY: usize = 64;
/// How often it is looked which are hit.
const STEP: Duration = Duration::from_millis(1);
/// From so many calls in a step on a probe goes at once.
const HIT: u64 = 4;

/// Where the sessions of a survey go when their functions have been counted.
#[derive(Debug)]
pub(super) struct Leaving(Sender<Left>);

/// A session whose probes are to go.
struct Left {
    session: Session,
    functions: Vec<Function>,
}

/// A function whose probe is still there.
struct Function {
    index: u32,
    record: u32,
    /// All its calls at the last look.
    calls: u64,
    /// Those since the one before.
    hits: u64,
}

impl Leaving {
    /// Takes away what it is given, on a thread of its own: what is hit at once, and what more than `kept` others are; the rest when
    /// this is dropped.
    pub(super) fn start(reader: Reader, kept: usize) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            // As long as a probe's removal waited for a CPU, the target would run into the probe.
            priority::raise_above_all();
            take_away(&reader, &receiver, kept);
        });
        Self(sender)
    }

    /// Takes away a session's probes: each of these functions has links of its own.
    pub(super) fn take(&self, session: Session, functions: impl Iterator<Item = (u32, u32)>) {
        let functions = functions.map(|(index, record)| Function { index, record, calls: 0, hits: 0 }).collect();
        if let Err(unsent) = self.0.send(Left { session, functions }) {
            // The thread is gone: nothing is left attached for that.
            unsent.0.session.give_back();
        }
    }
}

fn take_away(reader: &Reader, receiver: &Receiver<Left>, kept: usize) {
    let mut left: Vec<Left> = Vec::new();
    let mut is_over = false;
    while !is_over || !left.is_empty() {
        is_over = receive(receiver, &mut left);
        left.iter_mut().for_each(|one| one.look(reader));
        step(&mut left, if is_over { 0 } else { kept });
        for gone in left.extract_if(.., |one| one.is_gone()) {
            gone.session.give_back();
        }
        thread::sleep(STEP);
    }
}

/// Takes in what has come. Returns whether no more will.
fn receive(receiver: &Receiver<Left>, left: &mut Vec<Left>) -> bool {
    loop {
        match receiver.try_recv() {
            Ok(one) => left.push(one),
            Err(error) => return error == TryRecvError::Disconnected,
        }
    }
}

/// Has the next probes go, of more than `kept`.
fn step(left: &mut [Left], kept: usize) {
    let closing: usize = left.iter_mut().map(|one| one.session.closing()).sum();
    let under_way = closing + probe_link::left();
    let is_any_hit = left.iter().flat_map(|one| &one.functions).any(Function::is_hit);
    let functions = left.iter().map(|one| one.functions.len()).sum();
    let mut room = if is_any_hit { 0 } else { room(functions, kept, under_way) };
    for Left { session, functions } in left {
        for function in next(functions, &mut room) {
            session.drop_single(&[function.index]);
        }
    }
}

/// How many functions that are not hit are to go now, of so many, where some are on their way out.
fn room(functions: usize, kept: usize, under_way: usize) -> usize {
    functions.saturating_sub(kept).min(TOGETHER).min(UNDER_WAY.saturating_sub(under_way))
}

/// Those of the functions that are next: all that are hit, and others as long as there is room.
fn next(functions: &mut Vec<Function>, room: &mut usize) -> Vec<Function> {
    let mut next: Vec<Function> = functions.extract_if(.., |function| function.is_hit()).collect();
    let quiet = functions.drain(..(*room).min(functions.len()));
    *room -= quiet.len();
    next.extend(quiet);
    next
}

impl Function {
    fn is_hit(&self) -> bool {
        self.hits >= HIT
    }
}

impl Left {
    fn look(&mut self, reader: &Reader) {
        for function in &mut self.functions {
            let calls = reader.begun(function.record);
            function.hits = calls.saturating_sub(function.calls);
            function.calls = calls;
        }
    }

    /// Whether all probes have gone, as far as they could one by one.
    fn is_gone(&self) -> bool {
        self.functions.is_empty() && self.session.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that so many stay as are to be kept, and that the others go a few at a time.
    #[test]
    fn some_are_kept() {
        assert_eq!(room(100, 100, 0), 0);
        assert_eq!(room(103, 100, 0), 3);
        assert_eq!(room(500, 0, 0), TOGETHER);
        assert_eq!(room(500, 0, UNDER_WAY - 1), 1);
        assert_eq!(room(500, 0, UNDER_WAY + 1), 0);
    }

    /// Check that a probe that is hit goes before all that are not, even if there is no room, and that the others go a few at a time.
    #[test]
    fn what_is_hit_goes_first() {
        let function = |index, hits| Function { index, record: index, calls: hits, hits };
        let mut functions: Vec<Function> = (0..20).map(|index| function(index, 0)).collect();
        functions.extend([function(20, HIT), function(21, HIT - 1), function(22, 100 * HIT)]);
        let indices = |next: Vec<Function>| next.into_iter().map(|function| function.index).collect::<Vec<u32>>();
        let mut room = 2;
        assert_eq!(indices(next(&mut functions, &mut room)), [20, 22, 0, 1]);
        assert_eq!((room, indices(next(&mut functions, &mut room))), (0, vec![]));
        functions[0].hits = HIT;
        assert_eq!(indices(next(&mut functions, &mut room)), [2]);
        room = 100;
        let rest = indices(next(&mut functions, &mut room));
        assert_eq!((rest.len(), rest.last(), room), (18, Some(&21), 82));
    }
}
