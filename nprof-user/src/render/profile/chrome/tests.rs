//! Files are read as viewers read them: slices of a thread must lie within one another, stacks must lead to a root.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::model::{
    ArgumentObject, CallObject, CallValue, CallValues, CutReason, FunctionTotals, ProfileFrame, ProfileFrameKind,
    ProfileMode, ProfileStack, Quality, ThreadName, UnknownArgument,
};
use crate::render::profile::testing::{about, frame, java};

fn function(class: &str, method: &str, library: &str) -> FunctionTotals {
    FunctionTotals {
        class: class.to_owned(),
        method: method.to_owned(),
        signature: "()V".to_owned(),
        library: library.to_owned(),
        ..FunctionTotals::default()
    }
}

fn call(tid: u32, function: u32, start_ns: i64, duration_ns: u64, stack: Option<u32>) -> TimelineCall {
    TimelineCall { tid, function, start_ns, duration_ns, stack, made_with: None }
}

/// Two threads. On the first, `native1` calls back and so calls `read` twice; one call began before the recording.
fn recording() -> Profile {
    let hidden = ProfileFrame { hidden: true, ..java(ProfileFrameKind::C1, "a.Lambda", "run", "()V", 3) };
    Profile {
        about: about(ProfileMode::Calls),
        frames: vec![
            java(ProfileFrameKind::NativeMethod, "a.b.Io", "read", "()V", 0),
            java(ProfileFrameKind::C2, "a.b.Main", "run\"\n", "()V", 12),
            hidden,
            frame(ProfileFrameKind::Native, "libx.so", "callback"),
            java(ProfileFrameKind::NativeMethod, "Näh$1", "native1", "()V", 0),
        ],
        stacks: vec![
            ProfileStack { frames: vec![0, 2, 1, 3, 4, 1], cut: None },
            ProfileStack { frames: vec![0, 1], cut: Some(CutReason::TooDeep) },
        ],
        functions: vec![function("a.b.Io", "read", "libjava.so"), function("Näh$1", "native1", "libx.so")],
        timeline: vec![
            call(11, 0, 1_001, 1_001, Some(0)),
            call(11, 0, 2_002, 998, None),
            call(11, 1, 1_001, 1_999, None),
            call(12, 0, -500, 1_500, Some(1)),
        ],
        threads: [(11, "main"), (12, "pool-1 <w>"), (13, "idle")]
            .map(|(tid, name)| ThreadName { tid, name: name.to_owned() })
            .into(),
        ..Profile::default()
    }
}

fn read(profile: &Profile) -> Value {
    let mut out = Vec::new();
    write(profile, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn events<'a>(document: &'a Value, phase: &str) -> Vec<&'a Value> {
    document["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

/// A time as Perfetto reads it.
#[expect(clippy::cast_possible_truncation, reason = "so does Perfetto")]
fn as_ns(time: &Value) -> i64 {
    (time.as_f64().unwrap() * 1000.0) as i64
}

/// Checks that events are in order, and that of two on a thread one holds the other or they are apart.
fn assert_nested(document: &Value) {
    let mut open: HashMap<u64, Vec<i64>> = HashMap::new();
    let mut latest = 0;
    for event in events(document, "X") {
        let (start, end) = (as_ns(&event["ts"]), as_ns(&event["ts"]) + as_ns(&event["dur"]));
        assert!(start >= latest, "{event}");
        latest = start;
        let ends = open.entry(event["tid"].as_u64().unwrap()).or_default();
        ends.retain(|end| *end > start);
        assert!(ends.last().is_none_or(|outer| *outer >= end), "{event} ends after {ends:?}");
        ends.push(end);
    }
}

/// Check that calls are in order, nested, exact to the nanosecond, and counted from the first of them.
#[test]
fn calls_lie_within_one_another() {
    let document = read(&recording());
    assert_nested(&document);
    let calls = events(&document, "X");
    let fields = |event: &&Value| {
        (
            event["tid"].as_u64().unwrap(),
            event["name"].as_str().unwrap().to_owned(),
            as_ns(&event["ts"]),
            as_ns(&event["dur"]),
        )
    };
    let named = |tid, name: &str, start, duration| (tid, name.to_owned(), start, duration);
    let expected = [
        named(12, "Io.read", 0, 1_500),
        named(11, "Näh$1.native1", 1_501, 1_999),
        named(11, "Io.read", 1_501, 1_001),
        named(11, "Io.read", 2_502, 998),
    ];
    assert_eq!(calls.iter().map(fields).collect::<Vec<_>>(), expected);
    assert!(calls.iter().all(|call| call["pid"] == 1234 && call["cat"] == "native"));
    assert_eq!(document["displayTimeUnit"], "ns");
    assert_eq!(document["otherData"]["started_us"], 0.5);
}

/// Check the arguments of a call with a stack and of one without.
#[test]
fn arguments() {
    let document = read(&recording());
    let calls = events(&document, "X");
    let stack = ["a.b.Main.run\"\n:12", "Näh$1.native1", "a.b.Main.run\"\n:12"];
    let expected = json!({ "class": "a.b.Io", "signature": "()V", "library": "libjava.so", "stack": stack });
    assert_eq!(calls[2]["args"], expected);
    let cut = json!(["a.b.Main.run\"\n:12", "[stack cut: the stack is too deep]"]);
    assert_eq!(calls[0]["args"]["stack"], cut);
    assert_eq!(calls[1]["args"], json!({ "class": "Näh$1", "signature": "()V", "library": "libx.so" }));
    assert!(calls[1].get("sf").is_none());
}

/// Check that what a call was made with is among its arguments, in the form that slow calls have.
#[test]
fn made_with() {
    let mut profile = recording();
    profile.functions[0].signature = "(I[B)J".to_owned();
    let array = ArgumentObject { class: "byte[]".to_owned(), length: Some(9), fd: None, contents: None };
    profile.objects.push(CallObject { object: Some(array), file: None });
    let values = [CallValue::Number(5), CallValue::Object(0), CallValue::Unknown(UnknownArgument::Thrown)];
    profile.timeline[1].made_with = Some(Box::new(CallValues { this: None, values: values.into() }));
    let document = read(&profile);
    let calls = events(&document, "X");
    let expected = json!({
        "this": null,
        "arguments": [{ "type": "int", "value": 5 }, { "type": "byte[]", "class": "byte[]", "length": 9 }],
        "result": { "type": "long", "unknown": "thrown" },
    });
    assert_eq!(calls[3]["args"]["arguments"], expected);
    assert_eq!(calls[2]["args"].get("arguments"), None);
}

/// Check that `sf` leads through the dictionary to the outermost frame, and that shared frames are there once.
#[test]
fn stack_frames() {
    let document = read(&recording());
    let frames = &document["stackFrames"];
    let path = |event: &Value| {
        let mut names = Vec::new();
        let mut next = event.get("sf").cloned();
        while let Some(number) = next {
            let frame = &frames[number.to_string()];
            names.push(format!("{} {}", frame["category"].as_str().unwrap(), frame["name"].as_str().unwrap()));
            next = frame.get("parent").cloned();
        }
        names
    };
    let calls = events(&document, "X");
    let run = "a.b.Main a.b.Main.run\"\n:12";
    assert_eq!(path(calls[0]), ["a.b.Io a.b.Io.read", run]);
    assert_eq!(path(calls[2]), ["a.b.Io a.b.Io.read", run, "Näh$1 Näh$1.native1", run]);
    assert_eq!(frames.as_object().unwrap().len(), 5);
}

/// Check that the process and the threads that made calls are named.
#[test]
fn names_of_threads() {
    let document = read(&recording());
    let names: Vec<Value> = events(&document, "M")
        .iter()
        .map(|event| json!([event["name"], event["pid"], event["tid"], event["args"]["name"]]))
        .collect();
    let expected = [
        json!(["process_name", 1234, 1234, "com.acme.Main"]),
        json!(["thread_name", 1234, 11, "main"]),
        json!(["thread_name", 1234, 12, "pool-1 <w>"]),
    ];
    assert_eq!(names, expected);
}

/// Check that calls without room are spoken of, and only then.
#[test]
fn what_is_missing_is_said() {
    let mut profile = recording();
    let of = |document: &Value| document["otherData"]["calls"].as_str().unwrap().to_owned();
    assert_eq!(of(&read(&profile)), "all 4 timed calls");
    profile.quality = Quality { timeline_lost: 7, ..Quality::default() };
    let document = read(&profile);
    assert_eq!(of(&document), "4 calls; 7 more were left out: there was no room for them");
    assert_eq!(document["otherData"]["calls_left_out"], 7);
    assert_eq!(document["otherData"]["stacks"], "of 2 sampled calls");
}

/// Check that an empty timeline is a valid file.
#[test]
fn empty_recording() {
    let document = read(&Profile::default());
    assert_eq!((events(&document, "X").len(), events(&document, "M").len()), (0, 1));
    assert_eq!(document["stackFrames"], json!({}));
}

/// Check that no time and no number is too large, and that what refers to nothing is left out.
#[test]
fn extremes() {
    let mut profile = recording();
    profile.timeline = vec![
        call(u32::MAX, 0, i64::MIN, u64::MAX, Some(u32::MAX)),
        call(u32::MAX, 0, i64::MAX, u64::MAX, None),
        call(1, u32::MAX, 0, 0, None),
    ];
    let document = read(&profile);
    let calls = events(&document, "X");
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[0]["ts"].as_f64(), calls[0]["tid"].as_u64()), (Some(0.0), Some(u64::from(u32::MAX))));
    assert_eq!(calls[1]["ts"].as_f64(), Some(1.844_674_407_370_955e16));
    assert!(calls[0]["args"].get("stack").is_none());
}

/// Check thousands of nested calls with odd times: none sticks out of the one that holds it.
#[test]
fn deep_nesting_is_exact() {
    let mut profile = recording();
    profile.timeline.clear();
    for root in 0..200 {
        let (start, duration) = (i64::from(root) * 1_000_003, 999_983_u64);
        for depth in 0..20_i64 {
            let inner = duration - u64::try_from(depth).unwrap() * 7;
            profile.timeline.push(call(11, 0, start + depth * 7, inner, None));
        }
    }
    profile.timeline.reverse();
    let document = read(&profile);
    assert_eq!(events(&document, "X").len(), 4_000);
    assert_nested(&document);
}
