//! What each call of a timeline was made with (`record --timeline --args`).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof::model::{Argument, ArgumentObject, ArgumentValue, CallArguments, Profile, UnknownArgument};
use nprof_tests::nprof::run;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::callers::Recording;

const MS: u64 = 1_000_000;
/// How long calls are to sleep, one after the other.
const SLEEPS_MS: [u64; 6] = [3, 1, 7, 2, 9, 4];
const ROUNDS: usize = 5;
const CALLS: usize = 20;
const PLAIN: &str = "targets.Plain::*";

/// The calls of a method in the order in which they began: what is known of each.
fn calls(profile: &Profile, method: &str, signature: &str) -> Vec<Option<CallArguments>> {
    let is_it = |of: usize| (&*profile.functions[of].method, &*profile.functions[of].signature) == (method, signature);
    let calls = profile.timeline.iter().filter(|call| is_it(call.function as usize));
    let known = calls.map(|call| call.made_with.as_ref()?.in_full(signature, &profile.objects));
    known.collect()
}

fn known(profile: &Profile, method: &str, signature: &str) -> Result<Vec<CallArguments>> {
    let calls: Option<Vec<CallArguments>> = calls(profile, method, signature).into_iter().collect();
    let calls = calls.with_context(|| format!("not known of all calls of {method}: {:?}", profile.quality))?;
    ensure!(calls.len() == ROUNDS * CALLS, "{} calls of {method}: {:?}", calls.len(), profile.quality);
    Ok(calls)
}

fn values(calls: &[CallArguments]) -> impl Iterator<Item = Vec<&ArgumentValue>> {
    calls.iter().map(|call| call.arguments.iter().map(|argument| &argument.value).collect())
}

fn result(call: &CallArguments) -> Option<&ArgumentValue> {
    call.result.as_ref().map(|result| &result.value)
}

fn object(class: &str, length: Option<u32>) -> ArgumentValue {
    ArgumentValue::Object(ArgumentObject { class: class.to_owned(), length, fd: None, contents: None })
}

/// A recording of natives of several shapes, each called as often.
fn recorded(target: &mut RemoteProcess, args: &[&str]) -> Result<Profile> {
    const SHAPES: [&str; 4] = ["static", "instance", "overloaded", "arguments"];
    // All are bound then, and each call is seen.
    for shape in SHAPES {
        target.run(&format!("calls {shape} 1 1"))?;
    }
    let recording = Recording::start(target.pid(), args)?;
    for _ in 0..ROUNDS {
        for shape in SHAPES {
            target.run(&format!("calls {shape} 1 {CALLS}"))?;
        }
    }
    recording.finish()
}

/// Check that numbers and results of every single call are those that were passed, in registers and on the stack, that objects are what
/// they are or are not known, and that most are known once the first calls are over; and that no contents are in a recording.
#[test]
fn of_each_call() -> Result<()> {
    use ArgumentValue::{Boolean, Char, Integer, Unknown};
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let profile = recorded(&mut target, &["--timeline", "--args", PLAIN])?;
        ensure!(profile.quality.timeline_lost == 0 && profile.quality.losses.is_empty(), "{:?}", profile.quality);
        let add = known(&profile, "add", "(II)I")?;
        ensure!(values(&add).all(|of| of == [&Integer(1), &Integer(2)]), "{add:?}");
        ensure!(add.iter().all(|call| result(call) == Some(&Integer(3)) && call.this.is_none()), "{add:?}");
        let twice = known(&profile, "twice", "(J)J")?;
        ensure!(values(&twice).all(|of| of == [&Integer(21)]), "{twice:?}");
        let this = |call: &CallArguments| call.this.as_ref().map(|this| this.class.clone());
        let classes: BTreeMap<Option<String>, usize> = twice.iter().fold(BTreeMap::new(), |mut classes, call| {
            *classes.entry(this(call)).or_default() += 1;
            classes
        });
        let of_plain = classes.get(&Some("targets.Plain".to_owned())).copied().unwrap_or(0);
        let unknown = classes.get(&None).copied().unwrap_or(0);
        ensure!(of_plain + unknown == twice.len() && of_plain > unknown, "{classes:?}");
        const MANY: &str = "(IJFDBSCZIJFDLjava/lang/Object;I)D";
        let float = Unknown(UnknownArgument::FloatRegister);
        let heap = Unknown(UnknownArgument::Heap);
        let tally = object("targets.Crowd$Tally", None);
        for call in known(&profile, "many", MANY)? {
            let of: Vec<&ArgumentValue> = call.arguments.iter().map(|argument| &argument.value).collect();
            let numbers = [Integer(1), Integer(2), float.clone(), float.clone(), Integer(5), Integer(6), Char(7)];
            let more = [Boolean(true), Integer(9), Integer(10), float.clone(), float.clone()];
            ensure!(of[..12] == numbers.iter().chain(&more).collect::<Vec<_>>(), "{call:?}");
            ensure!((*of[12] == tally || *of[12] == heap) && *of[13] == Integer(14), "{call:?}");
            ensure!(result(&call) == Some(&float), "{call:?}");
        }
        let over = known(&profile, "over", "(Ljava/lang/String;[I)I")?;
        let whole = [object("java.lang.String", None), object("int[]", Some(1))];
        let is_whole = |of: &Vec<&ArgumentValue>| *of == whole.iter().collect::<Vec<_>>();
        let or_unknown = |of: Vec<&ArgumentValue>| of.iter().zip(&whole).all(|(of, it)| **of == *it || **of == heap);
        ensure!(values(&over).filter(is_whole).count() > over.len() / 2, "{over:?}");
        ensure!(values(&over).all(or_unknown), "{over:?}");
        ensure!(over.iter().all(|call| result(call) == Some(&Integer(4))), "{over:?}");
        target.exit()
    })
}

/// Check that each call has its own arguments, in the order in which they were made, and that the timeline shows them.
#[test]
fn in_their_order() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let mut target = RemoteProcess::shapes(jdk)?;
        target.self_timed("sleep", 1, 1)?;
        let recording = Recording::start(target.pid(), &["--timeline", "--args", "targets.Timed::sleep"])?;
        for ms in SLEEPS_MS {
            target.self_timed("sleep", 1, ms * MS)?;
        }
        let recorded = recording.finish_file()?;
        let expected = SLEEPS_MS.map(|ms| ArgumentValue::Integer(i64::try_from(ms * MS).unwrap_or(i64::MAX)));
        let calls = calls(&recorded.profile()?, "sleep", "(J)V");
        let asked: Vec<Option<&Argument>> = calls.iter().map(|call| call.as_ref()?.arguments.first()).collect();
        let asked: Vec<Option<&ArgumentValue>> = asked.into_iter().map(|of| of.map(|of| &of.value)).collect();
        ensure!(asked == expected.iter().map(Some).collect::<Vec<_>>(), "{calls:?}");
        let timeline = directory.path().join("t.trace.json");
        let (file, to) = (recorded.file(), timeline.to_str().context("a path in UTF-8")?.to_owned());
        let drawn = run(&["flamegraph", file.to_str().context("a path in UTF-8")?, "-o", &to])?;
        ensure!(drawn.code == Some(0), "{drawn:?}");
        let document: Value = serde_json::from_str(&std::fs::read_to_string(&timeline)?)?;
        let events = document["traceEvents"].as_array().context("events")?;
        let shown = events.iter().filter(|event| event["ph"] == "X").map(|event| &event["args"]["arguments"]);
        let shown: Vec<&Value> = shown.collect();
        let expected: Vec<Value> = SLEEPS_MS
            .map(|ms| json!({"this": null, "arguments": [{"type": "long", "value": ms * MS}], "result": null}))
            .into();
        ensure!(shown == expected.iter().collect::<Vec<_>>(), "{document}");
        target.exit()
    })
}

/// Check that nothing of it is there unless somebody asks for it.
#[test]
fn only_where_asked_for() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let profile = recorded(&mut target, &["--timeline", PLAIN])?;
        ensure!(profile.timeline.len() >= 4 * ROUNDS * CALLS, "{:?}", profile.quality);
        ensure!(profile.timeline.iter().all(|call| call.made_with.is_none()) && profile.objects.is_empty());
        target.exit()
    })
}
