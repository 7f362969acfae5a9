//! The calls of a timeline, one by one, as they come out of the kernel; with what they were made with, where that is wanted.

use std::collections::HashMap;

use nprof_common::{CallEvent, MadeCall, Referent};

use super::arguments::{Heap, NotedWords};
use super::interner::Interner;
use super::stacks::Stacks;
use crate::attach::{Collect, Feeds};
use crate::discover::Proc;
use crate::model::{CallObject, Pid};
use crate::unwind::HeapObject;

/// More calls are not kept: 40 bytes each.
const MOST: usize = 5_000_000;
/// The same where it is kept what they were made with, which takes some 150 bytes.
const MOST_MADE: usize = 1_000_000;
/// More different objects are not kept, of which there may be as many as calls.
const MOST_OBJECTS: usize = 500_000;

/// The calls of a timeline.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The calls, in the order in which they have ended.
    pub calls: Vec<CallEvent>,
    /// What each of them was made with; empty if that is not wanted.
    pub made: Vec<NotedWords>,
    /// Calls beyond what is kept.
    pub too_many: u64,
    objects: Interner<CallObject>,
}

/// Where objects and files are looked at.
pub(super) struct Target<'a> {
    pub(super) proc: &'a Proc,
    pub(super) pid: Pid,
    pub(super) stacks: &'a mut Stacks,
}

impl Timeline {
    /// Reads what has come.
    pub(super) fn read(&mut self, feeds: &mut Feeds, collect: &Collect, target: Target<'_>) {
        if !collect.tells_args() {
            return feeds.read_calls(
                |call| {
                    if self.calls.len() < MOST { self.calls.push(call) } else { self.too_many += 1 }
                },
            );
        }
        let Self { calls, made, objects, too_many } = self;
        let mut now = Now { target, collections: 0, files: HashMap::new(), objects };
        feeds.read_made_calls(|call: &MadeCall| {
            if calls.len() >= MOST_MADE {
                *too_many += 1;
                return;
            }
            now.collections = call.collections;
            calls.push(call.call);
            made.push(NotedWords::of_timeline(call, &mut now));
        });
    }

    /// The objects that calls were made with, by their numbers.
    #[must_use]
    pub fn take_objects(&mut self) -> Vec<CallObject> {
        std::mem::take(&mut self.objects).into_values()
    }
}

/// The target while what has come is read. What a descriptor names is looked up once in that time, which is a few milliseconds.
struct Now<'a> {
    target: Target<'a>,
    collections: u64,
    files: HashMap<i32, Option<String>>,
    objects: &'a mut Interner<CallObject>,
}

impl Heap for Now<'_> {
    fn object(&mut self, referent: &Referent) -> Option<HeapObject> {
        // Its end is noticed elsewhere.
        self.target.stacks.next_object(referent, self.collections.checked_sub(1)?).ok()?
    }

    fn file(&mut self, fd: i32) -> Option<String> {
        let Target { proc, pid, .. } = self.target;
        self.files.entry(fd).or_insert_with(|| proc.file(pid, fd)).clone()
    }

    fn number(&mut self, object: CallObject) -> Option<u32> {
        self.objects.number_within(object, MOST_OBJECTS)
    }
}
