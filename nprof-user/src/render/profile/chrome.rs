//! The timeline of calls, in the trace event format that Perfetto and `chrome://tracing` open.
//!
//! Each call is a complete event (`"ph": "X"`) on the track of its thread. Times are microseconds with three decimals, exact
//! to the nanosecond, from the start of the recording or, if earlier, of the first call. The stack of a sampled call is there
//! twice: in `sf`, which `chrome://tracing` shows, and in its arguments, because Perfetto ignores `sf`.

mod events;
mod stack_frames;

use std::cmp::Reverse;
use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use self::events::{Events, Origin};
use self::stack_frames::StackFrames;
use crate::model::{About, Profile, TimelineCall};
use crate::render::json;
use crate::render::microseconds::Microseconds;

/// Writes the timeline of a recording. Writes in small pieces: `out` should be buffered.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, mut out: &mut dyn Write) -> io::Result<()> {
    let calls = in_order(&profile.timeline);
    let origin = Origin::of(&calls);
    let frames = StackFrames::of(profile, &calls);
    let document = Document {
        display_time_unit: "ns",
        other_data: OtherData::of(profile, &calls, origin),
        trace_events: Events { profile, calls: &calls, frames: &frames, origin },
        stack_frames: &frames,
    };
    json::line(&document, &mut out)
}

/// The calls as they begin. Of those that begin together the longest is first: it holds the others.
fn in_order(calls: &[TimelineCall]) -> Vec<&TimelineCall> {
    let mut calls: Vec<&TimelineCall> = calls.iter().collect();
    calls.sort_by_key(|call| (call.start_ns, call.tid, Reverse(call.duration_ns)));
    calls
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    display_time_unit: &'static str,
    other_data: OtherData<'a>,
    trace_events: Events<'a>,
    stack_frames: &'a StackFrames<'a>,
}

/// What the file says about itself.
struct OtherData<'a> {
    about: &'a About,
    calls: usize,
    left_out: u64,
    with_stack: usize,
    origin: Origin,
}

impl<'a> OtherData<'a> {
    fn of(profile: &'a Profile, calls: &[&TimelineCall], origin: Origin) -> Self {
        Self {
            about: &profile.about,
            calls: calls.len(),
            left_out: profile.quality.timeline_lost,
            with_stack: calls.iter().filter(|call| call.stack.is_some()).count(),
            origin,
        }
    }

    /// Whether it is all that happened.
    fn completeness(&self) -> String {
        match self.left_out {
            0 => format!("all {} timed calls", self.calls),
            left_out => format!("{} calls; {left_out} more were left out: there was no room for them", self.calls),
        }
    }
}

impl Serialize for OtherData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("what", "calls of native methods")?;
        map.serialize_entry("calls", &self.completeness())?;
        map.serialize_entry("calls_left_out", &self.left_out)?;
        map.serialize_entry("stacks", &format!("of {} sampled calls", self.with_stack))?;
        map.serialize_entry("main", &self.about.main)?;
        map.serialize_entry("vm", &self.about.vm)?;
        map.serialize_entry("host", &self.about.host)?;
        map.serialize_entry("kernel", &self.about.kernel)?;
        map.serialize_entry("nprof", &self.about.nprof)?;
        map.serialize_entry("started", &self.about.started.to_string())?;
        map.serialize_entry("started_us", &Microseconds(self.origin.recording_ns()))?;
        map.serialize_entry("elapsed_us", &Microseconds(json::nanoseconds(self.about.elapsed)))?;
        map.end()
    }
}

#[cfg(test)]
mod tests;
