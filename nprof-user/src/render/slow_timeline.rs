//! The slowest calls as a timeline, in the trace event format that Perfetto and `chrome://tracing` open: each on the track of its thread,
//! with all that is known of it as the arguments of its slice.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::microseconds::Microseconds;
use super::slow_call::SlowCall as AsJson;
use super::track_name::TrackName;
use super::{json, names};
use crate::model::{SlowCall, Snapshot};

/// Writes the slowest calls of some JVMs that were traced together. Times are counted from when the first of them began.
///
/// # Errors
/// Those of `out`.
pub fn write(snapshots: &[Snapshot], mut out: &mut dyn Write) -> io::Result<()> {
    let mut calls: Vec<(&Snapshot, &SlowCall)> = snapshots
        .iter()
        .filter_map(|snapshot| Some((snapshot, snapshot.slow.as_ref()?)))
        .flat_map(|(snapshot, slow)| slow.slowest.iter().map(move |call| (snapshot, call)))
        .collect();
    // Of those that begin together the longest is first: it holds the others.
    calls.sort_by_key(|(_, call)| (began_ns(call), Reverse(call.time_ns)));
    let origin_ns = calls.first().map_or(0, |(_, call)| began_ns(call));
    let events = names_of(&calls).into_iter().map(Event::Name);
    let events =
        events.chain(calls.iter().map(|(snapshot, call)| Event::Call(Box::new(slice(snapshot, call, origin_ns)))));
    let document = Document {
        display_time_unit: "ns",
        other_data: OtherData::of(snapshots, &calls),
        trace_events: events.collect(),
    };
    json::line(&document, &mut out)
}

/// When a call began, by the kernel's monotonic clock.
fn began_ns(call: &SlowCall) -> u64 {
    call.ended_ns.saturating_sub(call.time_ns)
}

/// The names of the processes and the threads of calls.
fn names_of<'a>(calls: &[(&'a Snapshot, &'a SlowCall)]) -> Vec<TrackName<'a>> {
    let mut tracks = BTreeMap::new();
    for (snapshot, call) in calls {
        let pid = snapshot.jvm.pid.0;
        tracks.insert((pid, None), TrackName::of_process(pid, &snapshot.jvm.main));
        tracks.insert((pid, Some(call.tid)), TrackName::of_thread(pid, call.tid, &call.thread));
    }
    tracks.into_values().collect()
}

fn slice<'a>(snapshot: &Snapshot, call: &'a SlowCall, origin_ns: u64) -> Slice<'a> {
    Slice {
        ph: "X",
        pid: snapshot.jvm.pid.0,
        tid: call.tid,
        ts: Microseconds(began_ns(call).saturating_sub(origin_ns)),
        dur: Microseconds(call.time_ns),
        name: names::short(&call.method.class, &call.method.name),
        cat: "native",
        args: AsJson::of(call, snapshot.collectors),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    display_time_unit: &'static str,
    other_data: OtherData,
    trace_events: Vec<Event<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Event<'a> {
    Name(TrackName<'a>),
    Call(Box<Slice<'a>>),
}

#[derive(Serialize)]
struct Slice<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: Microseconds,
    dur: Microseconds,
    name: String,
    cat: &'static str,
    args: AsJson<'a>,
}

/// What the file says about itself.
#[derive(Serialize)]
struct OtherData {
    what: &'static str,
    calls: usize,
    slow_calls: u64,
    unread: u64,
    first_ended: Option<String>,
    nprof: &'static str,
}

impl OtherData {
    fn of(snapshots: &[Snapshot], calls: &[(&Snapshot, &SlowCall)]) -> Self {
        let slow = || snapshots.iter().filter_map(|snapshot| snapshot.slow.as_ref());
        Self {
            what: "the slowest calls of native methods",
            calls: calls.len(),
            slow_calls: slow().map(|slow| slow.total).sum(),
            unread: slow().map(|slow| slow.unread).sum(),
            first_ended: calls.iter().map(|(_, call)| call.ended).min().map(|ended| ended.to_string()),
            nprof: env!("CARGO_PKG_VERSION"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Argument, ArgumentValue, CallArguments, SlowCalls};
    use crate::render::samples;

    fn document(snapshots: &[Snapshot]) -> Value {
        let mut out = Vec::new();
        write(snapshots, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn snapshot(calls: Vec<SlowCall>) -> Snapshot {
        let slow = SlowCalls { total: 70, slowest: calls, ..SlowCalls::default() };
        Snapshot { slow: Some(slow), ..samples::snapshot() }
    }

    /// Check that each call is a slice of its thread at its time, the outer one before the one within it, with what it was made with and
    /// what it returned.
    #[test]
    fn slices_with_arguments() {
        let number = |value| Argument { declared: "int".to_owned(), value: ArgumentValue::Integer(value), file: None };
        let known = CallArguments { this: None, arguments: vec![number(7)], result: Some(number(8)) };
        let call = |ended_ns, time_ns| SlowCall { ended_ns, time_ns, ..samples::slow_call() };
        let inner = SlowCall { arguments: Some(Some(Box::new(known))), ..call(9_000, 5_000) };
        let document = document(&[snapshot(vec![inner, call(10_000, 6_000), call(4_500, 1_500)])]);
        let events = document["traceEvents"].as_array().unwrap();
        let kinds: Vec<_> = events.iter().map(|event| event["ph"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["M", "M", "X", "X", "X"]);
        assert_eq!(events[1]["args"]["name"], "pool\u{1b}-1");
        let times: Vec<_> = events[2..].iter().map(|event| (&event["ts"], &event["dur"])).collect();
        assert_eq!(times, [(&json!(0.0), &json!(1.5)), (&json!(1.0), &json!(6.0)), (&json!(1.0), &json!(5.0))]);
        let made_with = &events[4]["args"]["arguments"];
        assert_eq!(made_with["arguments"], json!([{"type": "int", "value": 7}]));
        assert_eq!(made_with["result"], json!({"type": "int", "value": 8}));
        assert_eq!((events[4]["tid"].as_u64(), events[3]["args"].get("arguments")), (Some(77), None));
        assert_eq!((&document["otherData"]["calls"], &document["otherData"]["slow_calls"]), (&3.into(), &70.into()));
    }

    /// Check that there is a timeline where no call was slow, or nobody looked for them.
    #[test]
    fn nothing_slow() {
        for snapshots in [vec![snapshot(Vec::new())], vec![samples::snapshot()], Vec::new()] {
            let document = document(&snapshots);
            assert_eq!((&document["traceEvents"], &document["otherData"]["calls"]), (&json!([]), &0.into()));
        }
    }
}
