//! From calls that are told when they end to what their threads have told in order: for trees of calls that probes see.
//!
//! The innermost call ends first. What a thread tells is kept until the outermost call of it ends, and then put into the order in
//! which it happened.

use std::collections::HashMap;

use crate::model::{EndedCall, TreeEvent, TreeEventKind, TreeThread};

/// How many calls of a thread are kept whose outermost has not ended; those beyond are missing in it.
const MAX_WAITING: usize = 1 << 16;
/// The same of all threads.
const MAX_WAITING_OF_ALL: usize = 1 << 20;

/// Calls of threads that are in others.
#[derive(Debug, Default)]
pub struct NestedCalls {
    threads: HashMap<TreeThread, Waiting>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: Vec<EndedCall>,
    /// Calls for which there was no room here.
    lost: u64,
}

/// A call that is open while they are put in order.
struct Open {
    call: EndedCall,
    /// The exception that is pending after what it has called so far.
    pending: Option<u32>,
}

impl NestedCalls {
    /// Takes in a call that has ended. If it was in no other, it passes on what its thread has told with it, without calls that are not
    /// wanted: their time is their callers'.
    pub fn take(&mut self, call: EndedCall, is_wanted: impl Fn(u32) -> bool, pass: impl FnMut(TreeEvent)) {
        if call.depth > 0 {
            return self.keep(call);
        }
        let Waiting { mut calls, lost } = self.threads.remove(&call.thread).unwrap_or_default();
        self.waiting -= calls.len();
        // Those of a call that could not be told itself are older.
        calls.retain(|of| of.start_ns >= call.start_ns);
        calls.sort_by_key(|of| (of.start_ns, of.depth));
        calls.insert(0, EndedCall { lost: call.lost + lost, ..call });
        tell(&calls, is_wanted, pass);
    }

    fn keep(&mut self, call: EndedCall) {
        let has_room = self.waiting < MAX_WAITING_OF_ALL;
        let waiting = self.threads.entry(call.thread).or_default();
        if has_room && waiting.calls.len() < MAX_WAITING {
            waiting.calls.push(call);
            self.waiting += 1;
        } else {
            waiting.lost += 1;
        }
    }

    /// The threads that have told of calls within others that have not ended.
    pub fn inside(&self) -> impl Iterator<Item = TreeThread> {
        self.threads.keys().copied()
    }

    /// A thread has ended.
    pub fn thread_ended(&mut self, thread: TreeThread) {
        self.waiting -= self.threads.remove(&thread).map_or(0, |waiting| waiting.calls.len());
    }
}

/// Passes on what calls tell, which are in the order in which they began.
fn tell(calls: &[EndedCall], is_wanted: impl Fn(u32) -> bool, mut pass: impl FnMut(TreeEvent)) {
    let mut open: Vec<Open> = Vec::new();
    let mut pass = |call: &EndedCall, at_ns: u64, kind: TreeEventKind| {
        if is_wanted(call.method) {
            pass(TreeEvent { thread: call.thread, at_ns, method: call.method, kind });
        }
    };
    for call in calls {
        while open.last().is_some_and(|last| last.call.depth >= call.depth) {
            close(&mut open, &mut pass);
        }
        pass(call, call.start_ns, TreeEventKind::Enter);
        open.push(Open { call: *call, pending: None });
    }
    while !open.is_empty() {
        close(&mut open, &mut pass);
    }
}

/// The innermost call ends. An exception that was pending before it began is not its own.
fn close(open: &mut Vec<Open>, pass: &mut impl FnMut(&EndedCall, u64, TreeEventKind)) {
    let Some(Open { call, pending }) = open.pop() else { return };
    let caller = open.last_mut().map(|caller| &mut caller.pending);
    let was_pending = pending.is_none() && caller.as_ref().is_some_and(|before| **before == call.exception);
    let kind = match call.exception {
        Some(exception) if !was_pending => TreeEventKind::Throw { exception },
        _ => TreeEventKind::Return,
    };
    let end_ns = call.start_ns + call.time_ns;
    if call.lost > 0 {
        pass(&call, end_ns, TreeEventKind::LostWithin(call.lost));
    }
    pass(&call, end_ns, kind);
    if let Some(before) = caller {
        *before = call.exception;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: TreeThread = TreeThread::Platform(7);

    fn call(method: u32, depth: u32, start_ns: u64, time_ns: u64) -> EndedCall {
        EndedCall { thread: THREAD, start_ns, time_ns, method, depth, lost: 0, exception: None }
    }

    /// What is told once the outermost of these calls has ended, without method 9.
    fn told(calls: &[EndedCall]) -> Vec<(u32, u64, TreeEventKind)> {
        let (mut nested, mut told) = (NestedCalls::default(), Vec::new());
        for call in calls {
            let pass = |event: TreeEvent| told.push((event.method, event.at_ns, event.kind));
            nested.take(*call, |method| method != 9, pass);
        }
        assert_eq!((nested.waiting, nested.inside().count()), (0, 0));
        told
    }

    /// Check that calls get into the order in which they began and ended, and that what is not wanted leaves what it has called to its caller.
    #[test]
    fn in_order() {
        use TreeEventKind::{Enter, LostWithin, Return};
        let stray = call(5, 1, 1, 1);
        let calls = [
            stray,
            call(1, 1, 20, 5),
            call(2, 2, 40, 5),
            call(9, 1, 30, 30),
            EndedCall { lost: 3, ..call(0, 0, 10, 90) },
        ];
        let expected = [
            (0, 10, Enter),
            (1, 20, Enter),
            (1, 25, Return),
            (2, 40, Enter),
            (2, 45, Return),
            (0, 100, LostWithin(3)),
            (0, 100, Return),
        ];
        assert_eq!(told(&calls), expected);
    }

    /// Check that an exception is thrown by the call that it first is pending after, passed on by those around it, and by no call that
    /// finds it there already.
    #[test]
    fn whose_exception() {
        let with = |exception, call| EndedCall { exception: Some(exception), ..call };
        let calls = [
            with(4, call(1, 1, 20, 5)),
            with(4, call(2, 1, 30, 5)),
            call(3, 1, 40, 5),
            with(4, call(1, 2, 51, 5)),
            with(4, call(2, 1, 50, 9)),
            with(4, call(0, 0, 10, 90)),
        ];
        let thrown = told(&calls).into_iter().filter(|(.., kind)| matches!(kind, TreeEventKind::Throw { .. }));
        assert_eq!(
            thrown.map(|(method, at_ns, _)| (method, at_ns)).collect::<Vec<_>>(),
            [(1, 25), (1, 56), (2, 59), (0, 100)]
        );
    }
}
