//! Invocations from what threads tell ([`Trees`]), and what all of them have in common ([`TreeSums`]).
//!
//! Each thread has its own open invocation: it begins where an entry method is entered, and is handed out when that one is left. An
//! entry method that is called within is a node like others. What fits nothing is counted and changes no time: a wrong number is
//! worse than none.

mod compare;
mod difference;
mod links;
mod nested;
mod open;
mod paths;
mod slowest;
mod sums;

use std::collections::HashMap;

pub use self::compare::{compare_trees, weigh_comparison};
pub use self::nested::NestedCalls;
pub use self::slowest::SlowestTrees;
pub use self::sums::{TreeSums, summarize_trees, trees_by_time, weigh_trees, weigh_trees_all};

use nprof_common::tree::TaskKind;

use self::links::Links;
use self::open::{Known, Open};
use crate::model::{
    Collectors, Invocation, Submission, TreeEvent, TreeEventKind, TreeKind, TreeMethod, TreeThread, Unfinished,
};

/// How many threads can be inside of invocations at the same time. Virtual threads can be millions.
const MAX_INSIDE: usize = 100_000;

/// Puts invocations together.
#[derive(Debug)]
pub struct Trees {
    methods: Vec<Facts>,
    keeps_calls: bool,
    /// What is known of invocations by platform threads besides their calls.
    known: Known,
    threads: HashMap<TreeThread, State>,
    unfinished: Unfinished,
    /// How many have begun.
    begun: u64,
    links: Links,
}

/// What has to be known of a method here.
#[derive(Debug, Clone, Copy)]
struct Facts {
    is_entry: bool,
    /// Whether its callers tell of it.
    is_told_of: bool,
}

/// Where a thread is, if that is not outside.
#[derive(Debug)]
enum State {
    /// In an invocation.
    Inside(Box<Open>),
    /// Nobody knows, because events were lost.
    Adrift {
        /// Whether it was in an invocation, which has been handed out as it was.
        was_inside: bool,
    },
}

impl Trees {
    /// Invocations of the entry methods among these, whose places are their numbers. With `keeps_calls` they have their single calls.
    #[must_use]
    pub fn new(methods: &[TreeMethod], keeps_calls: bool) -> Self {
        let mut trees = Self {
            methods: Vec::new(),
            keeps_calls,
            known: Known::default(),
            threads: HashMap::new(),
            unfinished: Unfinished::default(),
            begun: 0,
            links: Links::default(),
        };
        trees.know(methods);
        trees
    }

    /// The methods are these from now on: those that were known before, and perhaps more.
    pub fn know(&mut self, methods: &[TreeMethod]) {
        let facts =
            |method: &TreeMethod| Facts { is_entry: method.is_entry, is_told_of: method.kind != TreeKind::Java };
        self.methods = methods.iter().map(facts).collect();
    }

    /// The same, where platform threads tell how long they do not run.
    #[must_use]
    pub fn knowing_off(self, knows_off: bool) -> Self {
        Self { known: Known { off: knows_off, ..self.known }, ..self }
    }

    /// The same, where they tell what these collectors need.
    #[must_use]
    pub fn collecting(self, collectors: Collectors) -> Self {
        Self { known: Known { used: !collectors.is_empty(), collectors, ..self.known }, ..self }
    }

    /// Takes in what a thread tells. Returns the invocation that ends with it.
    pub fn take(&mut self, event: &TreeEvent) -> Option<Invocation> {
        if let TreeEventKind::Lost(events) = event.kind {
            return self.lose(event.thread, events);
        }
        if let TreeEventKind::Hands(task) | TreeEventKind::Comes(task) = event.kind {
            self.take_task(event, task);
            return None;
        }
        if let TreeEventKind::Waited(_) | TreeEventKind::Consumed { .. } = event.kind {
            // Of the innermost call, whatever it was told with: a task is no method.
            if let Some(State::Inside(open)) = self.threads.get_mut(&event.thread) {
                open.take(event, |_| false);
            }
            return None;
        }
        let place = usize::try_from(event.method).unwrap_or(usize::MAX);
        let Some(&facts) = self.methods.get(place) else {
            self.unfinished.unknown += 1;
            return None;
        };
        match self.threads.get_mut(&event.thread) {
            Some(State::Inside(open)) => {
                let methods = &self.methods;
                open.take(event, |method| methods[method as usize].is_told_of);
                if open.is_over() { self.hand_out(event.thread) } else { None }
            }
            _ if facts.is_entry => {
                self.outside(event);
                None
            }
            _ => None,
        }
    }

    /// Says in an invocation that was handed out what it came of, and what came of it. Returns whether that was all: otherwise what it came of
    /// has not been seen yet, and is what another thread has told, or will soon.
    pub fn link(&self, invocation: &mut Invocation) -> bool {
        self.links.link(invocation)
    }

    /// A thread makes a task, or is in one.
    fn take_task(&mut self, event: &TreeEvent, task: u64) {
        let Some(State::Inside(open)) = self.threads.get_mut(&event.thread) else { return };
        open.take(event, |_| false);
        let invocation = open.number;
        match (event.kind, open.innermost()) {
            (TreeEventKind::Hands(_), Some(method)) => {
                let is_thread = TaskKind::of(task) == TaskKind::Thread;
                let by = Submission { invocation, thread: event.thread, method, at_ns: event.at_ns, is_thread };
                self.links.made(task, by);
            }
            _ if open.task == Some(task) => self.links.came(task, invocation),
            _ => {}
        }
    }

    /// The threads that are in invocations.
    pub fn inside(&self) -> impl Iterator<Item = TreeThread> {
        self.threads.iter().filter(|(_, state)| matches!(state, State::Inside(_))).map(|(thread, _)| *thread)
    }

    /// A thread has ended, and all that it told was taken in. Returns whether it was inside of an invocation, which is counted.
    pub fn thread_ended(&mut self, thread: TreeThread) -> bool {
        let was_inside = matches!(self.threads.remove(&thread), Some(State::Inside(_)));
        self.unfinished.died_inside += u64::from(was_inside);
        was_inside
    }

    /// What has not become an invocation so far.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        Unfinished { still_inside: self.inside().count() as u64, ..self.unfinished }
    }

    /// An entry method is entered or left by a thread that is in no invocation.
    fn outside(&mut self, event: &TreeEvent) {
        let before = self.threads.remove(&event.thread);
        match (event.kind, before) {
            (TreeEventKind::Enter, before) => {
                if self.threads.len() >= MAX_INSIDE {
                    self.unfinished.crowded += 1;
                    return;
                }
                // A virtual thread does not run, either, where it has no thread of the kernel.
                let is_virtual = matches!(event.thread, TreeThread::Virtual(_));
                let known = if is_virtual { Known { off: false, used: false, ..self.known } } else { self.known };
                self.begun += 1;
                let mut open = Open::begin(self.begun, event, self.keeps_calls, known);
                open.missing.is_after_loss = before.is_some();
                self.threads.insert(event.thread, State::Inside(Box::new(open)));
            }
            (_, None) => self.unfinished.begun_before += 1,
            (_, Some(State::Adrift { was_inside })) => self.unfinished.lost_beginnings += u64::from(!was_inside),
            (_, Some(State::Inside(_))) => {}
        }
    }

    /// Events of a thread are missing. Where it is now is not known, nor what its calls took that were open.
    fn lose(&mut self, thread: TreeThread, events: u64) -> Option<Invocation> {
        let ended = match self.threads.get_mut(&thread) {
            Some(State::Inside(open)) => {
                open.lose(events);
                self.hand_out(thread)
            }
            _ => None,
        };
        self.threads.insert(thread, State::Adrift { was_inside: ended.is_some() });
        ended
    }

    fn hand_out(&mut self, thread: TreeThread) -> Option<Invocation> {
        match self.threads.remove(&thread) {
            Some(State::Inside(open)) => Some(open.finish(thread)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
