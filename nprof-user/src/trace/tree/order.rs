//! Brings the events of virtual threads into the order in which they happened: such a thread is on another thread of the kernel each time,
//! and its events are in as many rings. Also leaves out what is in no entry method, which the shim cannot tell of them.
//!
//! # Why the order is right
//! What a virtual thread wrote before is written when it writes something else, wherever that is. So what comes in one round has all that
//! was before it in this round or the next: an event is passed on in the round after it came, together with what is earlier of its
//! thread.

use std::collections::HashMap;

use nprof_common::tree::{Event, EventKind, VIRTUAL};

/// The events of virtual threads that wait, and where each thread is.
#[derive(Debug)]
pub(super) struct Order {
    entries: u32,
    /// Of the round before, and of this one.
    waiting: Vec<Event>,
    new: Vec<Event>,
    /// The methods of a tree that a thread is in.
    inside: HashMap<u64, Vec<u32>>,
    /// The tasks that a thread runs within each other, by their numbers; 0 for one that nobody has told of.
    tasks: HashMap<u64, Vec<u64>>,
}

impl Order {
    /// Trees begin in the first so many methods.
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, waiting: Vec::new(), new: Vec::new(), inside: HashMap::new(), tasks: HashMap::new() }
    }

    /// Takes an event. Those of other threads are passed on at once.
    pub(super) fn take(&mut self, event: Event, pass: &mut dyn FnMut(Event)) {
        if event.thread & VIRTUAL == 0 {
            pass(event);
        } else if event.kind == EventKind::Lost && event.thread == VIRTUAL {
            // Whose events they were is not known: it may be any that are inside, or those that say where a task ends.
            self.tasks.clear();
            self.inside.keys().for_each(|&thread| self.new.push(Event { thread, ..event }));
        } else {
            self.new.push(event);
        }
    }

    /// A round over all rings is done: passes on what is certain.
    pub(super) fn end_round(&mut self, pass: &mut dyn FnMut(Event)) {
        if self.waiting.is_empty() && self.new.is_empty() {
            return;
        }
        let mut certain: HashMap<u64, u64> = HashMap::new();
        for event in &self.waiting {
            let until = certain.entry(event.thread).or_default();
            *until = (*until).max(event.ticks);
        }
        let mut all = std::mem::take(&mut self.waiting);
        all.append(&mut self.new);
        // Events of one ring come in order, and stay so where ticks are the same.
        all.sort_by_key(|event| event.ticks);
        let is_certain = |event: &Event| certain.get(&event.thread).is_some_and(|&until| event.ticks <= until);
        let (passed, waiting): (Vec<Event>, Vec<Event>) = all.into_iter().partition(is_certain);
        self.waiting = waiting;
        for event in passed {
            let was_inside = self.inside.contains_key(&event.thread);
            if self.is_inside(&event) {
                pass(event);
                let begins = event.kind == EventKind::Enter && !was_inside;
                if let Some(task) = self.task(event.thread).filter(|_| begins) {
                    pass(Event { kind: EventKind::Came, detail: task, ..event });
                }
            }
        }
    }

    /// The task that a thread runs, if somebody has told of it.
    fn task(&self, thread: u64) -> Option<u64> {
        self.tasks.get(&thread)?.last().copied().filter(|&task| task != 0)
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self, pass: &mut dyn FnMut(Event)) {
        self.end_round(pass);
        self.end_round(pass);
    }

    /// Whether an event is in an entry method. The same rule as the shim's for other threads.
    fn is_inside(&mut self, event: &Event) -> bool {
        let is_entry = event.method < self.entries;
        match event.kind {
            EventKind::Lost => self.inside.contains_key(&event.thread),
            EventKind::Enter if is_entry => {
                self.inside.entry(event.thread).or_default().push(event.method);
                true
            }
            EventKind::Enter => self.inside.get_mut(&event.thread).map(|inside| inside.push(event.method)).is_some(),
            EventKind::Leave | EventKind::Threw => self.leaves(event),
            EventKind::Handed => self.inside.contains_key(&event.thread),
            // The thread itself is a task where it runs no other; only what begins now comes of it.
            EventKind::Came => {
                let is_first = self.inside.get(&event.thread).is_some_and(|inside| inside.len() == 1);
                is_first && !self.tasks.contains_key(&event.thread)
            }
            EventKind::Begins => {
                self.tasks.entry(event.thread).or_default().push(event.detail);
                false
            }
            EventKind::Ends => {
                self.end_task(event.thread);
                false
            }
            // Virtual threads do not tell.
            EventKind::Waited | EventKind::Consumed => false,
        }
    }

    /// A thread has run the task that it began last. One that began before it was told is unknown.
    fn end_task(&mut self, thread: u64) {
        if let Some(tasks) = self.tasks.get_mut(&thread) {
            tasks.pop();
            if tasks.is_empty() {
                self.tasks.remove(&thread);
            }
        }
    }

    fn leaves(&mut self, event: &Event) -> bool {
        let Some(inside) = self.inside.get_mut(&event.thread) else { return false };
        let place = inside.iter().rposition(|&method| method == event.method);
        inside.truncate(place.unwrap_or(inside.len()));
        if inside.is_empty() {
            self.inside.remove(&event.thread);
        }
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ticks: u64, thread: u64, method: u32, kind: EventKind) -> Event {
        Event { ticks, thread: VIRTUAL | thread, method, kind, detail: 0 }
    }

    fn round(order: &mut Order, events: &[Event]) -> Vec<u64> {
        let mut passed = Vec::new();
        events.iter().for_each(|&event| order.take(event, &mut |event| passed.push(event.ticks)));
        order.end_round(&mut |event| passed.push(event.ticks));
        passed
    }

    /// Check that an event that is found in a ring too late comes in its place all the same.
    #[test]
    fn what_is_found_late_comes_in_order() {
        let mut order = Order::new(1);
        let [first, second, third] = [(1, EventKind::Enter), (2, EventKind::Enter), (3, EventKind::Leave)]
            .map(|(ticks, kind)| event(ticks, 7, u32::from(ticks > 1), kind));
        let last = event(4, 7, 0, EventKind::Leave);
        assert_eq!(round(&mut order, &[third]), [0; 0]);
        assert_eq!(round(&mut order, &[last, second, first]), [1, 2, 3]);
        assert_eq!(round(&mut order, &[]), [4]);
        assert!(order.inside.is_empty());
    }

    /// Check that what is in no entry method is left out, by thread, and that other threads do not wait.
    #[test]
    fn only_within_entry_methods() {
        let mut order = Order::new(1);
        let platform = Event { thread: 5, ..event(9, 0, 3, EventKind::Leave) };
        let events = [
            platform,
            event(1, 1, 2, EventKind::Enter),
            event(2, 2, 0, EventKind::Enter),
            event(3, 2, 2, EventKind::Enter),
            event(4, 1, 2, EventKind::Leave),
            event(5, 2, 0, EventKind::Threw),
            event(6, 2, 2, EventKind::Leave),
        ];
        assert_eq!(round(&mut order, &events), [9]);
        assert_eq!(round(&mut order, &[]), [2, 3, 5]);
    }

    /// Check that an invocation comes of the innermost task that its thread runs, and of nothing where nobody has told of that; and that it comes of
    /// the thread only where that runs no task.
    #[test]
    fn of_the_innermost_task() {
        let mut order = Order::new(1);
        let told = |ticks, kind, detail| Event { detail, ..event(ticks, 7, 0, kind) };
        let calls = |ticks| {
            [told(ticks, EventKind::Enter, 0), told(ticks, EventKind::Came, 99), told(ticks + 1, EventKind::Leave, 0)]
        };
        let mut events = vec![told(1, EventKind::Begins, 40)];
        events.extend(calls(2));
        events.push(told(4, EventKind::Begins, 0));
        events.extend(calls(5));
        events.extend([told(7, EventKind::Ends, 0), told(8, EventKind::Enter, 0), told(9, EventKind::Enter, 0)]);
        events.extend([told(10, EventKind::Leave, 0), told(11, EventKind::Leave, 0), told(12, EventKind::Ends, 0)]);
        events.push(told(13, EventKind::Ends, 0));
        events.extend(calls(14));
        let mut came = Vec::new();
        let mut pass =
            |event: Event| came.extend((event.kind == EventKind::Came).then_some((event.ticks, event.detail)));
        events.into_iter().for_each(|event| order.take(event, &mut pass));
        order.end(&mut pass);
        assert_eq!(came, [(2, 40), (8, 40), (14, 99)]);
        assert!(order.tasks.is_empty());
    }

    /// Check that events without room are told of each thread that is inside, whose they may have been.
    #[test]
    fn lost_ones_may_be_anybodys() {
        let mut order = Order::new(1);
        round(&mut order, &[event(1, 1, 0, EventKind::Enter), event(2, 2, 2, EventKind::Enter)]);
        round(&mut order, &[]);
        round(&mut order, &[event(3, 0, 0, EventKind::Lost)]);
        assert_eq!(round(&mut order, &[]), [3]);
    }
}
