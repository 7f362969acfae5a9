//! The events: names of the process and of its threads, then the calls. They are made while they are written.

use std::collections::HashSet;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::stack_frames::{StackFrames, callers};
use crate::model::{CallArguments, FunctionTotals, Profile, TimelineCall};
use crate::render::arguments::Arguments;
use crate::render::microseconds::Microseconds;
use crate::render::profile::names;
use crate::render::track_name::TrackName;

/// What the times of a file are counted from, in nanoseconds from the start of the recording: 0 or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin(i64);

impl Origin {
    /// The start of the recording or, if it is earlier, of the first of these calls: times below 0 are no times to readers.
    pub(super) fn of(calls: &[&TimelineCall]) -> Self {
        Self(calls.first().map_or(0, |call| call.start_ns.min(0)))
    }

    /// When the recording started.
    pub(super) fn recording_ns(self) -> u64 {
        self.0.unsigned_abs()
    }

    /// A time from the start of the recording as one from here.
    fn nanoseconds(self, start_ns: i64) -> u64 {
        u64::try_from(i128::from(start_ns) - i128::from(self.0)).unwrap_or(0)
    }
}

/// All events of a file.
pub(super) struct Events<'a> {
    pub(super) profile: &'a Profile,
    /// In the order of their starts.
    pub(super) calls: &'a [&'a TimelineCall],
    pub(super) frames: &'a StackFrames<'a>,
    pub(super) origin: Origin,
}

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let about = &self.profile.about;
        let mut list = serializer.serialize_seq(None)?;
        list.serialize_element(&TrackName::of_process(about.pid, &about.main))?;
        let with_calls: HashSet<u32> = self.calls.iter().map(|call| call.tid).collect();
        for thread in self.profile.threads.iter().filter(|thread| with_calls.contains(&thread.tid)) {
            list.serialize_element(&TrackName::of_thread(about.pid, thread.tid, &thread.name))?;
        }
        for call in self.calls {
            // Every call has a function: that is checked where recordings are read.
            if let Some(function) = self.profile.functions.get(call.function as usize) {
                let made_with = call.made_with.as_ref();
                let made_with = made_with.and_then(|of| of.in_full(&function.signature, &self.profile.objects));
                list.serialize_element(&self.complete(call, function, made_with.as_ref()))?;
            }
        }
        list.end()
    }
}

impl Events<'_> {
    fn complete<'a>(
        &'a self,
        call: &TimelineCall,
        function: &'a FunctionTotals,
        made_with: Option<&'a CallArguments>,
    ) -> Complete<'a> {
        Complete {
            ph: "X",
            pid: self.profile.about.pid,
            tid: call.tid,
            ts: Microseconds(self.origin.nanoseconds(call.start_ns)),
            dur: Microseconds(call.duration_ns),
            name: names::short(&function.class, &function.method),
            cat: "native",
            sf: call.stack.and_then(|stack| self.frames.innermost(stack)),
            args: Details {
                class: &function.class,
                signature: &function.signature,
                library: &function.library,
                arguments: made_with.map(Arguments::of),
                stack: call.stack.and_then(|stack| callers(self.profile, stack)),
            },
        }
    }
}

/// A call from its entry to its return.
#[derive(Serialize)]
struct Complete<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: Microseconds,
    dur: Microseconds,
    name: String,
    cat: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sf: Option<usize>,
    args: Details<'a>,
}

/// What the event of a call is shown with.
#[derive(Serialize)]
struct Details<'a> {
    class: &'a str,
    signature: &'a str,
    library: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Arguments<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<String>>,
}
