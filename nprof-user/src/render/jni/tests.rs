//! The table and the document, of two native methods and two functions.

use std::time::Instant;

use nprof_common::JniCalls;
use serde_json::Value;

use super::{JniBy, JniView, csv, json, table};
use crate::model::{
    Bound, BuffersMade, CollectionWaits, CollectionsWait, CriticalSections, Estimate, JavaName, JniCallback, JniCaller,
    JniCallers, JniExceptions, JniHeldSnapshot, JniLocalsSnapshot, JniSnapshot, JniUse, LocalsBeyond, LocalsKnown,
    MethodSnapshot, ProbeCost,
};
use crate::render::grid::Screen;
use crate::render::samples;

const CALLS: JniCalls = JniCalls {
    calls: 100,
    timed: 100,
    total_ns: 50_000,
    child_ns: 0,
    off_ns: 20_000,
    max_ns: 9_000,
    vain: 10,
    unknown: 0,
    redundant: 80,
    redundant_ns: 24_000,
};

fn function(index: u32, name: &str, calls: u64) -> MethodSnapshot {
    let mut function = samples::function(index, "JNIEnv", calls, 50_000);
    function.methods[0].bound = Bound::JniFunction;
    function.methods[0].method.name = name.into();
    function
}

fn sample() -> JniSnapshot {
    let mut snapshot = samples::snapshot();
    snapshot.methods = vec![
        samples::function(0, "a.Hot", 10, 100_000),
        samples::function(1, "a.Evil\u{1b}", 5, 1_000),
        function(2, "GetMethodID", 100),
        function(3, "DeleteGlobalRef", 60),
    ];
    let lets_go = JniCalls { calls: 30, timed: 30, total_ns: 300, vain: 10, ..JniCalls::NONE };
    let uses = [(Some(0), 2, CALLS), (Some(1), 3, lets_go), (None, 3, lets_go)];
    let critical = CriticalSections { method: Some(0), sections: 3, total_ns: 900, longest_ns: 400 };
    JniSnapshot {
        snapshot,
        uses: uses.map(|(method, function, calls)| JniUse { method, function, calls, error_ns: 0 }).to_vec(),
        callbacks: Vec::new(),
        critical: vec![critical],
        collections: CollectionsWait::Perhaps,
        buffers: vec![BuffersMade { method: Some(1), buffers: 3, bytes: 4096, largest_bytes: 2048 }],
        unseen: vec!["GetIntField"],
        tells_members: true,
        is_by_stubs: false,
        callers: JniCallers::default(),
        held: None,
        thrown: [(Some(0), 3, 1), (None, 0, 2)]
            .map(|(method, pending, cleared)| JniExceptions {
                method,
                class: Some("a.E\u{1b}".to_owned()),
                pending,
                cleared,
            })
            .to_vec(),
    }
}

/// The same with a function that calls Java: two methods that share a name, and one of which it is not known, for two callers.
fn calling_java() -> JniSnapshot {
    let mut jni = sample();
    jni.snapshot.methods.push(function(4, "CallIntMethod", 30));
    let calls = |calls: u64| JniCalls { calls, timed: calls, total_ns: 1_000 * calls, max_ns: 2_000, ..JniCalls::NONE };
    let made = |method, count| JniUse { method, function: 4, calls: calls(count), error_ns: 0 };
    jni.uses.extend([made(Some(0), 25), made(None, 5)]);
    let [one, other] = ["(I)I", "(J)I"].map(|signature| samples::method("b.Back", "back", signature));
    let called = [(Some(0), Some(&one), 12), (Some(0), Some(&other), 10), (Some(0), None, 3), (None, Some(&one), 5)];
    let called = called.map(|(method, java, count)| JniCallback { made: made(method, count), java: java.cloned() });
    jni.callbacks = called.to_vec();
    jni
}

fn text(jni: &JniSnapshot, by: JniBy) -> String {
    let mut out = Vec::new();
    table(jni, JniView { by, top: None }, Screen::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(jni: &JniSnapshot) -> Value {
    let mut out = Vec::new();
    json(jni, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Check the rows of native methods: the dearest first, each with its functions, calls of nobody in a row of their own, and no name that
/// commands a terminal.
#[test]
fn by_method() {
    let text = text(&sample(), JniBy::Method);
    let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(
        rows,
        [
            " ON-CPU     TIME  CALLS  PER CALL     AVG      MAX  METHOD / JNI FUNCTION",
            "30.0 us  50.0 us    100      10.0  500 ns  9.00 us  a.Hot::call (10 calls, 50 % of the time)",
            "30.0 us  50.0 us    100      10.0  500 ns  9.00 us    GetMethodID [look-ups]: 80 redundant, 24.0 us lost, 10 not found",
            " 300 ns   300 ns     30         -   10 ns     0 ns  (outside of traced native methods)",
            " 300 ns   300 ns     30         -   10 ns     0 ns    DeleteGlobalRef [references]",
            " 300 ns   300 ns     30      6.00   10 ns     0 ns  a.Evil\\u{1b}::call (5 calls, 30 % of the time)",
            " 300 ns   300 ns     30      6.00   10 ns     0 ns    DeleteGlobalRef [references]",
        ]
    );
}

/// Check that the marks of methods and of functions are explained whose rows are shown, and no others.
#[test]
fn marks_of_rows_that_are_shown() {
    let mut jni = sample();
    jni.snapshot.methods[1].untimed = 1;
    jni.snapshot.methods[2].cost = Some(ProbeCost::SingleStepped);
    let explained = |by, top| {
        let mut out = Vec::new();
        table(&jni, JniView { by, top: Some(top) }, Screen::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        ["\n? ", "\n! "].map(|mark| text.contains(mark))
    };
    assert_eq!([1, 2, 3].map(|top| explained(JniBy::Method, top)), [[false, true], [false, true], [true, true]]);
    assert_eq!([0, 1, 2].map(|top| explained(JniBy::Function, top)), [[false; 2], [false, true], [true, true]]);
}

/// Check that what was not watched all the time is not said to have had no calls.
#[test]
fn nothing_was_seen() {
    let mut jni = sample();
    jni.uses.clear();
    let first = |jni: &JniSnapshot, by| text(jni, by).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first(&jni, JniBy::Method), "no JNI function was called in 2.50 s");
    jni.snapshot.methods[2].counted = 1;
    let seen = "no JNI function was seen to be called in 2.50 s; --tier stub counts every call";
    assert_eq!(first(&jni, JniBy::Function), seen);
    assert_eq!(first(&jni, JniBy::Java), "no Java method was seen to be called by native code in 2.50 s");
}

/// So many of the calls of a function by a method of a class, give or take four.
fn caller(method: Option<&str>, function: usize, calls: u64) -> JniCaller {
    let estimate = |value| Estimate { value, error: 4 };
    let name =
        |method: &str| JavaName { class: "a.A".to_owned(), method: method.to_owned(), signature: "()V".to_owned() };
    JniCaller {
        function,
        caller: method.map(name),
        samples: calls * 2,
        calls: estimate(calls),
        self_ns: estimate(500 * calls),
        on_cpu_ns: estimate(300 * calls),
    }
}

/// The functions, as stubs count them.
fn by_stubs() -> JniSnapshot {
    let mut snapshot = samples::snapshot();
    snapshot.methods = vec![function(2, "GetMethodID", 100), function(3, "CallIntMethod", 60)];
    let made = |place: usize| JniUse { method: None, function: place, calls: CALLS, error_ns: 0 };
    JniSnapshot {
        snapshot,
        uses: vec![made(0), made(1)],
        critical: Vec::new(),
        unseen: Vec::new(),
        tells_members: false,
        is_by_stubs: true,
        callers: JniCallers {
            all: vec![caller(Some("lookUp"), 0, 70), caller(None, 0, 30), caller(Some("lookUp"), 1, 60)],
            lost: 0,
        },
        thrown: Vec::new(),
        ..sample()
    }
}

/// Check the rows of callers, each with what it has called.
#[test]
fn callers_of_stubs() {
    let text = text(&by_stubs(), JniBy::Method);
    let rows: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(
        rows,
        [
            "39.0 us  65.0 us    130         -    -    -  a.A::lookUp≈",
            "21.0 us  35.0 us     70         -    -    -    GetMethodID [look-ups]",
            "18.0 us  30.0 us     60         -    -    -    CallIntMethod [calls]",
            "9.00 us  15.0 us     30         -    -    -  (no Java method, or not known)≈",
            "9.00 us  15.0 us     30         -    -    -    GetMethodID [look-ups]",
        ]
    );
}

/// Check that of what stubs have counted nothing is said that they do not know, and that this is said.
#[test]
fn what_stubs_know() {
    let jni = by_stubs();
    let text = text(&jni, JniBy::Function);
    let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(
        rows[1..],
        [
            "30.0 us  50.0 us    100         -  500 ns  9.00 us  CallIntMethod [calls]",
            "18.0 us  30.0 us     60         -       -        -    a.A::lookUp≈",
            "30.0 us  50.0 us    100         -  500 ns  9.00 us  GetMethodID [look-ups]",
            "21.0 us  35.0 us     70         -       -        -    a.A::lookUp≈",
            "9.00 us  15.0 us     30         -       -        -    (no Java method, or not known)≈",
        ]
    );
    assert!(text.contains("≈ of a caller: estimated from 320 calls whose"), "{text}");
    assert!(text.contains("not told by stubs: which Java") && text.contains("by family: "), "{text}");
    for unknown in
        ["redundant (", "references: ", "direct buffers: ", "exceptions: ", "critical sections: ", "would be won"]
    {
        assert!(!text.contains(unknown), "{unknown}: {text}");
    }
    let mut out = Vec::new();
    json(&jni, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&document["tier"], &document["functions"]["CallIntMethod"]["calls"]), (&"stub".into(), &60.into()));
    for unknown in ["methods", "java", "references", "look_ups", "exceptions", "critical", "leaks", "direct_buffers"] {
        assert!(document[unknown].is_null(), "{unknown}: {document}");
    }
    let told = &document["callers"][0];
    assert_eq!((&told["method"], &told["calls"], &told["calls_error"]), (&"lookUp".into(), &70.into(), &4.into()));
    assert!(document["callers"][1]["class"].is_null() && read(&sample())["callers"].is_null(), "{document}");
    let mut out = Vec::new();
    csv(&jni, &mut out).unwrap();
    let rows = String::from_utf8(out).unwrap();
    assert!(rows.lines().any(|row| row.starts_with(",,,CallIntMethod,calls,,,,100,100,")), "{rows}");
    assert!(rows.lines().skip(1).all(|row| row.contains(",0,,,,,")), "{rows}");
}

/// Check that a document of eight times as many native methods takes no more than three times eight times as long.
#[test]
fn a_document_of_many_methods() {
    let of = |methods: u32| {
        let mut jni = sample();
        let native = (0..methods).map(|index| samples::function(index, "a.One", 10, 1_000));
        jni.snapshot.methods = native.chain([function(methods, "GetMethodID", 100)]).collect();
        let used = |method| JniUse { method: Some(method), function: methods as usize, calls: CALLS, error_ns: 0 };
        jni.uses = (0..methods as usize).map(used).collect();
        jni
    };
    let (few, many) = (of(1_000), of(8_000));
    let time = |jni: &JniSnapshot| {
        let began = Instant::now();
        json(jni, &mut Vec::new()).unwrap();
        began.elapsed()
    };
    let fastest = |jni| (0..3).map(|_| time(jni)).min().unwrap();
    let [few, many] = [&few, &many].map(fastest);
    assert!(many < 24 * few, "{few:?}, then {many:?}");
}

/// Check the rows of functions, with their callers.
#[test]
fn by_function() {
    let text = text(&sample(), JniBy::Function);
    let names: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(|line| line[52..].trim_end()).collect();
    let expected = [
        "JNI FUNCTION / METHOD",
        "GetMethodID [look-ups]",
        "  a.Hot::call: 80 redundant, 24.0 us lost, 10 not found",
        "DeleteGlobalRef [references]",
        "  (outside of traced native methods)",
        "  a.Evil\\u{1b}::call",
    ];
    assert_eq!(names, expected);
}

/// Check that Java methods stand below the function that calls them, overloads told apart, with those that are not known, and above their
/// callers where they are the rows; and that both add up.
#[test]
fn java_methods() {
    let jni = calling_java();
    let has_rows = |by, expected: &[&str]| {
        let text = text(&jni, by);
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        let fits = |rows: &[&str]| rows.iter().zip(expected).all(|(row, end)| row.ends_with(end));
        assert!(rows.windows(expected.len()).any(fits), "{expected:?}\n{text}");
        text
    };
    let [one, other, unknown] = ["b.Back::back(int)", "b.Back::back(long)", "(Java method not known)"];
    let [one_below, other_below, unknown_below] = [one, other, unknown].map(|name| format!("  2.00 us      {name}"));
    let of_first = ["  2.00 us    CallIntMethod [calls]", &one_below, &other_below, &unknown_below];
    let by_method = has_rows(JniBy::Method, &of_first);
    assert!(by_method.lines().any(|line| line.contains(" 12 ") && line.ends_with(one)), "{by_method}");
    let (outside, native) = ("    (outside of traced native methods)", "    a.Hot::call");
    let by_java = has_rows(JniBy::Java, &[one, native, outside, other, native, unknown, native]);
    let line = format!(
        "Java called: 30 calls of 2 methods: {one} 17 (17.0 us), {other} 10 (10.0 us), 3 of which the method is not known"
    );
    assert!(by_java.lines().any(|known| known == line), "{by_java}");
}

/// Check that each call is in one row, calls of Java in one for each method, and that names cannot command a terminal or a spreadsheet.
#[test]
fn rows_for_spreadsheets() {
    let mut out = Vec::new();
    csv(&calling_java(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1..4],
        [
            "a.Hot,call,()V,GetMethodID,look-ups,,,,100,100,50000,30000,9000,0,90,80,24000,timed,timed",
            "a.Hot,call,()V,CallIntMethod,calls,b.Back,back,(I)I,12,12,12000,12000,2000,0,12,,,timed,timed",
            "a.Hot,call,()V,CallIntMethod,calls,b.Back,back,(J)I,10,10,10000,10000,2000,0,10,,,timed,timed",
        ]
    );
    assert!(lines.contains(&",,,CallIntMethod,calls,b.Back,back,(I)I,5,5,5000,5000,2000,0,5,,,,timed"), "{text}");
    let calls: u64 = lines[1..].iter().filter_map(|line| line.split(',').nth(8)?.parse::<u64>().ok()).sum();
    assert_eq!(calls, 100 + 30 + 30 + 30);
}

/// Check that it is said how long collections waited, or that they do not, and that it is in the document.
#[test]
fn collections_wait() {
    let mut jni = sample();
    let line = |jni: &JniSnapshot| {
        let text = text(jni, JniBy::Method);
        text.lines().find_map(|line| Some(line.split_once("in a.Hot::call: ")?.1.to_owned())).unwrap()
    };
    let waits =
        |method, collections, total_ns, longest_ns| CollectionWaits { method, collections, total_ns, longest_ns };
    jni.collections = CollectionsWait::Never;
    assert_eq!(line(&jni), "collections do not wait for their end, as what they are about is pinned");
    let document = read(&jni);
    assert_eq!((&document["collections_wait"], &document["collections_waited"]), (&false.into(), &Value::Null));
    jni.collections = CollectionsWait::For(vec![]);
    assert_eq!(line(&jni), "no collection waited for their end");
    jni.collections = CollectionsWait::For(vec![waits(Some(0), 2, 300, 200), waits(None, 1, 7, 7)]);
    assert_eq!(line(&jni), "3 collections waited 307 ns for their end, the longest 200 ns in a.Hot::call");
    let document = read(&jni);
    let known =
        |of: &Value| [&of["collections"], &of["total_ns"], &of["longest_ns"]].map(|number| number.as_u64().unwrap());
    assert_eq!(known(&document["collections_waited"]), [3, 307, 200]);
    let of_hot = document["methods"].as_array().unwrap().iter().find(|row| row["class"] == "a.Hot").unwrap();
    assert_eq!(known(&of_hot["collections_waited"]), [2, 300, 200]);
}

/// Check that it is said which calls held too many local references, that there is none, or that it is not known, and nothing where nobody
/// asks; and the same in the document.
#[test]
fn locals_beyond_their_frame() {
    const WHAT: &str = "local references beyond the capacity of their frame: ";
    let mut jni = sample();
    let line = |jni: &JniSnapshot| {
        text(jni, JniBy::Method).lines().find_map(|line| line.strip_prefix(WHAT)).map(str::to_owned)
    };
    assert_eq!((line(&jni), &read(&jni)["locals_beyond"]), (None, &Value::Null));
    let beyond = |method, calls, most| LocalsBeyond { method, calls, most };
    let mut held = |beyond: &[LocalsBeyond], known| {
        let locals = JniLocalsSnapshot { beyond: beyond.to_vec(), known };
        jni.held = Some(JniHeldSnapshot { locals, ..JniHeldSnapshot::default() });
        (line(&jni).unwrap(), read(&jni)["locals_beyond"].clone())
    };
    let two = [beyond(Some(1), 2, 1_000), beyond(Some(0), 30, 17)];
    let (line, document) = held(&two, LocalsKnown::Exactly);
    assert_eq!(
        line,
        "in 32 calls, the most 1,000 at once: 2 with up to 1,000 in a.Evil\\u{1b}::call, 30 with up to 17 in a.Hot::call"
    );
    assert_eq!((&document["calls"], &document["most"], &document["exact"]), (&32.into(), &1_000.into(), &true.into()));
    let last = &document["methods"][1];
    assert_eq!((&last["class"], &last["calls"], &last["most"]), (&"a.Hot".into(), &30.into(), &17.into()));
    let (line, document) = held(&[], LocalsKnown::Partly);
    assert!(line.starts_with("none; not exact: "), "{line}");
    assert_eq!((&document["calls"], &document["exact"]), (&0.into(), &false.into()));
    let (line, document) = held(&two, LocalsKnown::Not);
    assert!(line.starts_with("not known, because ") && document.is_null(), "{line}");
}

/// Check what is said below: sums, what was let go, sections, the blind spot, and last what would be won.
#[test]
fn below_the_table() {
    let text = text(&sample(), JniBy::Method);
    for line in [
        "total: 160 calls of JNI functions by 2 native methods in 2.50 s, 30 outside of them: 30.6 us on CPU, 50.6 us in all (sum over threads)",
        "look-ups: 100, of these 80 redundant (the same had been found before), which took 24.0 us; 10 found nothing",
        "references: global 0 made, 40 let go (local ones are also let go when the native method returns)",
        "critical sections: 3 with 900 ns, the longest 400 ns in a.Hot::call: collections may have to wait for their end",
        "direct buffers: 3 made with 4.00 KiB, the largest 2.00 KiB: 3 with 4.00 KiB in a.Evil\\u{1b}::call",
        "not seen: GetIntField: the VM has made them as code of its own, where no probe can be (-XX:-UseFastJNIAccessors)",
        "exceptions: 3 pending when a native method returned (3 in a.Hot::call), 3 cleared before that by ExceptionClear",
        "exceptions by class: a.E\\u{1b} 3 pending, 3 cleared",
        "losses: none",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    assert_eq!(text.lines().last(), Some("would be won by keeping what was looked up: 24.0 us of redundant look-ups"));
}

/// Check that times that are lost in what is not known of the probes' part are said to be at most that.
#[test]
fn lost_times() {
    let mut jni = sample();
    for made in &mut jni.uses {
        made.error_ns = 400;
    }
    let text = text(&jni, JniBy::Method);
    let row = text.lines().find(|line| line.contains("GetMethodID")).unwrap();
    assert!(
        row.starts_with("<70.0 us") && row.contains(" 500 ns  9.00 us ") && row.contains(", <56.0 us lost"),
        "{row}"
    );
    let small = text.lines().find(|line| line.contains("DeleteGlobalRef")).unwrap();
    assert!(small.contains("<12.3 us") && small.contains("<410 ns") && small.contains("<400 ns"), "{small}");
    assert!(text.lines().last().unwrap().contains(": <56.0 us of redundant look-ups"), "{text}");
}

/// Check that a family of whose calls none was timed is not said to have taken no time.
#[test]
fn families_that_were_not_timed() {
    let mut jni = sample();
    for made in &mut jni.uses[1..] {
        made.calls = JniCalls { timed: 0, total_ns: 0, ..made.calls };
    }
    assert!(text(&jni, JniBy::Method).contains("references not timed (60)"), "{}", text(&jni, JniBy::Method));
}

/// Check that sums of which not all was seen are said to be that, that nothing is won for certain, and that sections are not made of what
/// may not belong together.
#[test]
fn not_all_was_seen() {
    let mut jni = sample();
    jni.snapshot.methods[2].counted = 40;
    jni.snapshot.methods.push(MethodSnapshot { counted: 1, ..function(4, "ReleasePrimitiveArrayCritical", 7) });
    let text = text(&jni, JniBy::Method);
    for part in ["critical sections: not known, because", "not all calls were seen and timed"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.lines().last().unwrap().contains(": at least 24.0 us of redundant look-ups"), "{text}");
    let mut out = Vec::new();
    json(&jni, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&document["partial"], &document["critical"]), (&Value::Bool(true), &Value::Null));
}

/// Check the document: rows by cost, names of the target as they are, nothing for what is not told.
#[test]
fn document() {
    let mut jni = sample();
    jni.tells_members = false;
    let document = read(&jni);
    assert_eq!(document["methods"][0]["class"], "a.Hot");
    assert_eq!(document["methods"][0]["jni"]["GetMethodID"]["redundant"], Value::Null);
    assert_eq!(document["methods"][0]["jni"]["GetMethodID"]["on_cpu_ns"], 30_000);
    assert_eq!(document["methods"][0]["critical"]["longest_ns"], 400);
    assert_eq!(document["methods"][1]["class"], "a.Evil\u{1b}");
    assert_eq!((&document["methods"][2]["class"], &document["methods"][2]["jni_calls"]), (&Value::Null, &30.into()));
    assert_eq!(document["functions"]["DeleteGlobalRef"]["calls"], 60);
    assert_eq!(document["references"]["global"]["released"], 40);
    let exceptions = &document["methods"][0]["exceptions"]["classes"][0];
    assert_eq!((&exceptions["class"], &exceptions["pending"]), (&"a.E\u{1b}".into(), &3.into()));
    assert_eq!(document["exceptions"]["classes"][0]["cleared"], 3);
    assert_eq!(document["not_seen"][0], "GetIntField");
    assert_eq!(document["methods"][0]["jni"]["GetMethodID"]["java"], Value::Null);
    let mut out = Vec::new();
    json(&calling_java(), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let of_one = &document["methods"][0]["jni"]["CallIntMethod"]["java"];
    assert_eq!(
        (&of_one[0]["method"], &of_one[0]["calls"], &of_one[2]["method"]),
        (&"back".into(), &12.into(), &Value::Null)
    );
    assert_eq!((&document["java"][0]["calls"], &document["java"][1]["signature"]), (&17.into(), &"(J)I".into()));
}
