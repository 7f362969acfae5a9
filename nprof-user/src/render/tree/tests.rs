//! Trees as text, JSON, timeline, plan and summary.

use std::time::Duration;

use jiff::Timestamp;
use nprof_common::Counter;
use serde_json::Value;

use super::*;
use crate::aggregate::{TreeSums, Trees, compare_trees, summarize_trees};
use crate::model::{
    About, Collectors, HandOver, JniStep, Jvm, KeptInvocation, LeftOut, LeftOutReason, Losses, Missing, RecordedTrees,
    Submission, TreeCaller, TreeEvent, TreeEventKind, TreeKind, TreeMethod, TreeNode, TreePlan, Unfinished,
};
use crate::render::grid::Screen;
use crate::render::samples;

const MAIN: TreeThread = TreeThread::Platform(4711);

/// A plan with a method of each kind; the fourth is native.
fn plan() -> TreePlan {
    let method = |class: &str, method: &str, signature: &str, depth, callers: &[(u32, &[u16])]| TreeMethod {
        class: class.into(),
        method: method.into(),
        signature: signature.into(),
        kind: if method.ends_with('0') { TreeKind::Native } else { TreeKind::Java },
        is_entry: depth == 0,
        depth,
        callee: None,
        callers: callers.iter().map(|(method, lines)| TreeCaller { method: *method, lines: lines.to_vec() }).collect(),
    };
    let left_out = |what: &str, why| LeftOut { what: what.to_owned(), why };
    TreePlan {
        methods: vec![
            method("com.acme.shop.OrderService", "get", "(I)V", 0, &[]),
            method("com.acme.shop.Dao", "load", "(I)V", 1, &[(0, &[42])]),
            method("com.acme.shop.Dao", "load", "(J)V", 2, &[(1, &[50, 52])]),
            method("com.acme.net.Wire", "read0", "()I", 2, &[(1, &[88])]),
            method("com.acme.json.Json", "write", "()V", 1, &[(0, &[43])]),
            method("com.other.Json", "write", "()V", 2, &[(4, &[7])]),
        ],
        left_out: vec![
            left_out("java.util.HashMap::get(Ljava/lang/Object;)Ljava/lang/Object;", LeftOutReason::Package),
            left_out("com.acme.Deep::a()V", LeftOutReason::Depth),
            left_out("com.acme.Deep::b()V", LeftOutReason::Depth),
            left_out("com.acme.Odd::c()V", LeftOutReason::ClassFile("it is too large".to_owned())),
            left_out("java.lang.reflect.Method::invoke in com.acme.shop.Dao::load(I)V", LeftOutReason::Reflection),
        ],
        limit: None,
        for_tasks: vec!["java.util.concurrent.FutureTask::run()V".to_owned()],
        drops_code: true,
    }
}

fn context() -> TreeContext {
    let wall: Timestamp = "2026-03-01T07:00:00Z".parse().unwrap();
    let mut context = TreeContext::new(plan(), TreeClock { wall, monotonic_ns: 1_000_000_000 });
    context.learn_exception(0, "java.io.IOException".into());
    context.learn_exception(1, "com.acme.shop.OrderNotFoundException".into());
    context
}

/// Makes an invocation of steps: a method that is entered, or how it is left, and how many microseconds pass before.
fn invocation(steps: &[(u64, u32, TreeEventKind)]) -> Invocation {
    let mut trees = Trees::new(&plan().methods, true);
    let mut now = 2_500_000_000;
    let mut ended = None;
    for &(us, method, kind) in steps {
        now += us * 1000;
        ended = ended.or(trees.take(&TreeEvent { thread: MAIN, at_ns: now, method, kind }));
    }
    ended.expect("the entry method is left")
}

use TreeEventKind::{Enter, Lost, Return, Throw};

/// A slow invocation with everything in it.
fn slow() -> Invocation {
    let mut steps = vec![(0, 0, Enter), (100, 1, Enter), (300, 2, Enter)];
    for read in 0..12 {
        steps.extend([(5, 2, Return), (10, 3, Enter), (1_000 + read * 200, 3, Return), (1, 2, Enter)]);
    }
    steps.extend([(40, 2, Throw { exception: 0 }), (10, 1, Throw { exception: 0 })]);
    steps.extend([(50, 4, Enter), (4, 5, Enter), (9, 5, Return), (700, 4, Return), (60, 0, Return)]);
    invocation(&steps)
}

fn text(invocation: &Invocation, columns: Option<usize>) -> String {
    let mut out = Vec::new();
    let shown = ShownInvocation { number: 12, invocation, thread: Some("http-7"), marked_ns: None };
    tree_text(&context(), shown, false, Screen { ansi: false, columns }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn run<'a>(summary: &'a TreeSummary, jvm: &'a Jvm, losses: &'a Losses) -> TreeRun<'a> {
    TreeRun {
        pid: jvm.pid.0,
        main: &jvm.main,
        summary,
        elapsed: Duration::from_secs(30),
        shown: 3,
        min_ns: Some(10_000_000),
        reached: ShownLimits { min_ns: Some(10_000_000), ..ShownLimits::default() },
        fewer: "--depth, --package",
        remark: None,
        silenced: &[2, 1],
        losses,
    }
}

/// Sums of quick invocations and slow ones.
fn sums() -> TreeSums {
    let mut sums = TreeSums::default();
    for _ in 0..18 {
        sums.add(&invocation(&[
            (0, 0, Enter),
            (100, 1, Enter),
            (20, 3, Enter),
            (700, 3, Return),
            (9, 1, Return),
            (9, 0, Return),
        ]));
    }
    sums.add(&Invocation { number: 19, ..slow() });
    sums.add(&slow());
    sums.add(&invocation(&[(0, 0, Enter), (4, 1, Lost(3))]));
    sums
}

/// Check the whole picture: columns, folded calls, natives, exceptions, the slow path, what is summed up.
#[test]
fn tree_for_people() {
    assert_golden("tree.txt", include_str!("golden/tree.txt"), &text(&slow(), None));
}

/// Check that a failure, a deep recursion and what is missing are said.
#[test]
fn incomplete_trees() {
    let mut steps: Vec<(u64, u32, TreeEventKind)> = (0..15).map(|_| (1_000, 1, Enter)).collect();
    steps.insert(0, (0, 0, Enter));
    steps.extend([(5, 4, Return), (7, 3, Enter), (7, 0, Throw { exception: 1 })]);
    let lost = invocation(&[(0, 0, Enter), (4, 1, Enter), (4, 1, Return), (1, 1, Enter), (1, 0, Lost(3))]);
    let all = text(&invocation(&steps), None) + &text(&lost, None);
    assert_golden("incomplete.txt", include_str!("golden/incomplete.txt"), &all);
}

/// Check that no line is wider than the screen, whatever is drawn.
#[test]
fn lines_fit() {
    for columns in [60, 80, 120] {
        for line in text(&slow(), Some(columns)).lines() {
            assert!(crate::render::names::width(line) <= columns, "{line}");
        }
    }
    assert!(text(&slow(), None).lines().all(|line| crate::render::names::width(line) <= 80));
}

/// Check the plan: methods by depth, and what is left out with reasons.
#[test]
fn plan_for_people() {
    let mut out = Vec::new();
    tree_plan(&context(), true, Screen::default(), &mut out).unwrap();
    let plan = String::from_utf8(out).unwrap();
    assert_golden("plan.txt", include_str!("golden/plan.txt"), &plan);
}

/// Check the summary: quantiles, the slowest, where its time went, and what is not in the numbers.
#[test]
fn summary_for_people() {
    let jvm = samples::snapshot().jvm;
    let losses = Losses { counts: vec![("tree-events", 3), ("tree-invocations", 0)] };
    let summary =
        summarize_trees(sums().totals(), Unfinished { begun_before: 1, still_inside: 2, ..Unfinished::default() });
    let mut out = Vec::new();
    tree_summary(&context(), &run(&summary, &jvm, &losses), true, Screen::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_golden("summary.txt", include_str!("golden/summary.txt"), &text);
}

/// Check that it is said by which limits some are not shown, and nothing where all are.
#[test]
fn limits_are_named() {
    let (jvm, losses, summary) =
        (samples::snapshot().jvm, Losses::default(), summarize_trees(sums().totals(), Unfinished::default()));
    let notes = |shown, min_ns, most, most_in_second| {
        let reached = ShownLimits { min_ns, most, most_in_second };
        tree_notes(&context(), &TreeRun { shown, reached, silenced: &[], ..run(&summary, &jvm, &losses) })
    };
    let first = |shown, min_ns, most, most_in_second| notes(shown, min_ns, most, most_in_second).remove(0);
    assert_eq!(first(3, None, Some(3), None), "shown: 3 of 21 (-n 3)");
    assert_eq!(
        first(3, Some(1_000), Some(3), Some(20)),
        "shown: 3 of 21 (--min 1.00 us, -n 3, at most 20 in a second)"
    );
    assert_eq!(first(3, None, None, None), "shown: 3 of 21");
    assert!(notes(21, None, None, None).iter().all(|note| !note.contains("shown")));
}

/// Compares with a golden file. With `NPROF_RENEW=1` in the environment the file is written instead.
fn assert_golden(file: &str, golden: &str, actual: &str) {
    if std::env::var_os("NPROF_RENEW").is_some() {
        let path = format!("{}/src/render/tree/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        return std::fs::write(path, actual).unwrap();
    }
    assert_eq!(actual, golden, "{file}");
}

fn document(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Value {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    serde_json::from_slice(&out).unwrap()
}

/// Check the fields that scripts rely on.
#[test]
fn invocation_for_programs() {
    let slow = slow();
    let shown = ShownInvocation { number: 12, invocation: &slow, thread: Some("http-7"), marked_ns: None };
    let line = document(|out| tree_json(&context(), shown, out));
    assert_eq!(line["schema"], 1);
    assert_eq!(line["entry"], "com.acme.shop.OrderService::get");
    assert_eq!((&line["thread"], &line["tid"], &line["virtual"]), (&"http-7".into(), &4711.into(), &Value::Null));
    assert_eq!(line["started"], "2026-03-01T07:00:01.5Z");
    assert_eq!(line["total_ns"], 26_665_000);
    let root = &line["root"];
    assert_eq!((&root["kind"], &root["calls"], &root["exception"]), (&"java".into(), &1.into(), &Value::Null));
    assert_eq!(root["exceptions"][0]["caught"], 1);
    let load = &root["children"][0];
    assert_eq!((&load["exception"], &load["lines"][0]), (&"java.io.IOException".into(), &42.into()));
    let read = &load["children"][1];
    let expected = serde_json::json!({
        "class": "com.acme.net.Wire", "method": "read0", "signature": "()I", "kind": "native", "lines": [88],
        "calls": 12, "without_end": 0, "total_ns": 25_200_000, "self_ns": 25_200_000, "min_ns": 1_000_000,
        "max_ns": 3_200_000, "off_cpu_ns": null, "self_off_cpu_ns": null, "exception": null, "exceptions": [],
        "children": [],
    });
    assert_eq!(read, &expected);
}

/// Check the last line and the line of a plan.
#[test]
fn summary_and_plan_for_programs() {
    let (jvm, losses) = (samples::snapshot().jvm, Losses { counts: vec![("tree-events", 3)] });
    let summary = summarize_trees(sums().totals(), Unfinished::default());
    let line = document(|out| tree_summary_json(&context(), &run(&summary, &jvm, &losses), out));
    let entry = &line["summary"]["entries"][0];
    assert_eq!((&entry["invocations"], &entry["without_end"], &entry["slowest"]), (&20.into(), &1.into(), &19.into()));
    assert_eq!((&line["summary"]["losses"]["tree-events"], &line["summary"]["shown"]), (&3.into(), &3.into()));
    assert_eq!(entry["difference"]["paths"][0]["path"][2], "com.acme.net.Wire::read0");
    let plan = &document(|out| tree_plan_json(&context(), out))["plan"];
    assert_eq!(plan["methods"].as_array().unwrap().len(), 6);
    assert_eq!(plan["methods"][2]["callers"][0]["lines"], serde_json::json!([50, 52]));
    assert_eq!((&plan["left_out"][1]["reason"], &plan["left_out"][1]["count"]), (&"depth".into(), &2.into()));
    assert_eq!(plan["left_out"][3]["detail"], "it is too large");
}

/// Check that the deepest tree can be read by a reader with the usual limit.
#[test]
fn deepest_tree_is_readable() {
    let mut steps: Vec<(u64, u32, TreeEventKind)> = (0..60).map(|_| (1, 0, Enter)).collect();
    steps.extend((0..60).map(|_| (1, 0, Return)));
    let deep = invocation(&steps);
    let shown = ShownInvocation { number: 1, invocation: &deep, thread: None, marked_ns: None };
    let line = document(|out| tree_json(&context(), shown, out));
    assert_eq!((&line["missing"]["cut"], &line["thread"]), (&12.into(), &"thread 4711".into()));
}

/// Check that the timeline is one document in which calls lie within one another, with the threads' names.
#[test]
fn timeline_of_invocations() {
    let (context, slow, jvm, losses) = (context(), slow(), samples::snapshot().jvm, Losses::default());
    let summary = summarize_trees(sums().totals(), Unfinished::default());
    let mut out = Vec::new();
    let mut timeline = TreeTimeline::begin(&context, 7, "com.acme.Main", &mut out).unwrap();
    for number in [1, 2] {
        let shown = ShownInvocation { number, invocation: &slow, thread: Some("http-7"), marked_ns: None };
        timeline.write(&context, shown, &mut out).unwrap();
    }
    timeline.finish(&context, &run(&summary, &jvm, &losses), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let named = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((named("M"), named("X")), (2, 2 * slow.calls.len()));
    let root = events.iter().find(|event| event["ph"] == "X").unwrap();
    assert_eq!(
        (&root["name"], &root["ts"], &root["dur"]),
        (&"OrderService::get".into(), &1_500_000.0.into(), &26_665.0.into())
    );
    assert_eq!(document["otherData"]["shown"], 3);
}

/// Check that waiting stands in the heading, at the methods themselves, and in the comparison of slow and quick ones, where it is much.
#[test]
fn waiting_is_shown() {
    let waited = |us: u64| TreeEventKind::Waited(Some(us * 1_000));
    let of = |us: u64| {
        let mut one = invocation(&[
            (0, 0, Enter),
            (100, 1, Enter),
            (us, 1, waited(us / 2)),
            (10, 1, Return),
            (50, 0, waited(30)),
            (0, 0, Return),
        ]);
        one.knows_off = true;
        one
    };
    let shown = text(&of(10_000), Some(80));
    assert!(shown.contains("took 10.2 ms (5.03 ms off-CPU) in") && shown.contains(": off-CPU 5.00 ms\n"), "{shown}");
    assert!(!shown.contains("of SELF"), "{shown}");
    assert!(text(&of(100), Some(80)).contains(": off-CPU 30.0 us of SELF\n"));
    let mut sums = TreeSums::default();
    for us in [vec![1_000; 18], vec![10_000; 2]].concat() {
        sums.add(&of(us));
    }
    let summary = summarize_trees(sums.totals(), Unfinished::default());
    let (jvm, losses) = (samples::snapshot().jvm, Losses::default());
    let mut out = Vec::new();
    tree_summary(&context(), &run(&summary, &jvm, &losses), true, Screen { ansi: false, columns: Some(80) }, &mut out)
        .unwrap();
    let summary = String::from_utf8(out).unwrap().replace("\n  ", " ");
    assert!(
        summary.contains("took 10.2 ms each, 5.03 ms of it off-CPU, the others 1.16 ms, 530 us of it"),
        "{summary}"
    );
    assert!(summary.contains("SLOW  OFF-CPU"), "{summary}");
}

/// Check that what was collected stands below the heading with nested calls, at the methods without them, and in JSON both ways.
#[test]
fn consumption_is_shown() {
    let used = |counter: Counter, amount| TreeEventKind::Consumed { counter: counter as u32, amount };
    let mut one = invocation(&[
        (0, 0, Enter),
        (0, 1, used(Counter::MinorFaults, 3)),
        (100, 1, Enter),
        (10_000, 1, used(Counter::MinorFaults, 1_200)),
        (0, 1, used(Counter::ReadBytes, 5 << 20)),
        (10, 1, Return),
        (50, 0, Return),
    ]);
    assert!(!text(&one, Some(80)).contains("consumed"));
    one.collectors = Collectors::named(&["faults", "io", "syscalls"]).unwrap();
    let unknown = text(&one, Some(80));
    assert!(unknown.contains("\nwhat it consumed is not known\n"), "{unknown}");
    let shown = ShownInvocation { number: 12, invocation: &one, thread: None, marked_ns: None };
    let root = document(|out| tree_json(&context(), shown, out))["root"].take();
    assert!(root.get("collected").is_some_and(Value::is_null) && root["collected_total"].is_null(), "{root}");
    one.knows_used = true;
    let shown = text(&one, Some(80));
    assert!(shown.contains("\nconsumed faults 1,203, read 5.00 MiB\n"), "{shown}");
    assert!(shown.contains("faults 3 of SELF\n") && shown.contains(": faults 1,200, read 5.00 MiB\n"), "{shown}");
    let shown = ShownInvocation { number: 12, invocation: &one, thread: None, marked_ns: None };
    let root = document(|out| tree_json(&context(), shown, out))["root"].take();
    assert_eq!((&root["collected"]["faults"], &root["collected_total"]["faults"]), (&3.into(), &1_203.into()));
    assert_eq!(root["children"][0]["collected"]["read_bytes"], 5 << 20);
    one.collectors = Collectors::named(&["locks"]).unwrap();
    assert!(text(&one, Some(80)).contains("\nconsumed nothing of locks\n"));
}

/// Check that it is said who has submitted what an invocation is part of, and what came of what: in text, in JSON, and as an arrow.
#[test]
fn links_are_shown() {
    let mut one = slow();
    let by = Submission { invocation: 7, thread: MAIN, method: 1, at_ns: one.started_ns - 12_300, is_thread: false };
    one.submitted_by = Some(by);
    let (stage, thread) = (3, 2);
    let handed = |node, task, came: &[u64]| HandOver { node, task, came: came.to_vec() };
    one.handed_over = vec![handed(1, 4, &[15]), handed(1, 8, &[13]), handed(1, thread, &[]), handed(0, stage, &[])];
    let shown = text(&one, None);
    assert_eq!(
        shown.lines().nth(2),
        Some("submitted by Dao::load(int) in #7 (thread 4711), 12.3 us before it began"),
        "{shown}"
    );
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(words.join(" ").contains("Dao::load(int): handed over 2 tasks and 1 thread: #13, #15, let"), "{shown}");
    let json = |one: &Invocation| {
        let shown = ShownInvocation { number: 12, invocation: one, thread: None, marked_ns: None };
        document(|out| tree_json(&context(), shown, out))
    };
    let line = json(&one);
    let (by, root) = (&line["submitted_by"], &line["root"]);
    assert_eq!((&by["by"], &by["invocation"], &by["tid"]), (&"task".into(), &7.into(), &4711.into()));
    assert_eq!((&by["method"], &by["before_ns"]), (&"load".into(), &12_300.into()));
    assert_eq!(
        root["children"][0]["handed_over"],
        serde_json::json!({ "tasks": 2, "threads": 1, "invocations": [13, 15] })
    );
    assert!(root["handed_over"].is_null());
    let mut out = Vec::new();
    let mut timeline = TreeTimeline::begin(&context(), 7, "com.acme.Main", &mut out).unwrap();
    let shown = ShownInvocation { number: 12, invocation: &one, thread: None, marked_ns: None };
    timeline.write(&context(), shown, &mut out).unwrap();
    let (jvm, losses, summary) = (samples::snapshot().jvm, Losses::default(), TreeSummary::default());
    timeline.finish(&context(), &run(&summary, &jvm, &losses), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let end = |phase: &str| events.iter().find(|event| event["ph"] == phase).unwrap();
    let began = end("s")["ts"].as_f64().unwrap();
    assert!((began - 1_499_987.7).abs() < 0.001, "{began}");
    assert_eq!((&end("s")["bp"], &end("f")["bp"]), (&Value::Null, &"e".into()));
    assert_eq!((&end("s")["id"], &end("f")["ts"]), (&end("f")["id"], &1_500_000.0.into()));
    one.submitted_by = one.submitted_by.map(|by| Submission { is_thread: true, ..by });
    assert!(text(&one, None).contains("\nin a thread that was started by Dao::load(int) in #7 (thread 4711), 12.3 us"));
}

/// Check that layers of JNI functions have their names without a class and what they are for, that calls which took long are marked and others
/// are not, and that calls which could not be told are.
#[test]
fn layers_of_jni_functions() {
    let method = |class: &str, method: &str, kind| TreeMethod {
        class: class.into(),
        method: method.into(),
        signature: "".into(),
        kind,
        is_entry: kind == TreeKind::Native,
        callee: None,
        depth: 0,
        callers: Vec::new(),
    };
    let mut context = TreeContext::new(TreePlan::default(), context().clock);
    context.learn_methods(&[
        method("a.Cache", "put", TreeKind::Native),
        method("JNIEnv", "NewGlobalRef", TreeKind::Jni(JniStep::Creation)),
        method("JNIEnv", "DeleteGlobalRef", TreeKind::Jni(JniStep::Release)),
        TreeMethod {
            callee: Some("a.Cache::load(I)V".into()),
            ..method("JNIEnv", "CallVoidMethod", TreeKind::Jni(JniStep::Call))
        },
    ]);
    let node = |method, children: &[u32], max_ns| TreeNode {
        method,
        children: children.to_vec(),
        calls: 1,
        total_ns: max_ns,
        min_ns: max_ns,
        max_ns,
        ..TreeNode::default()
    };
    let nodes = vec![node(0, &[1, 2, 3], 9_000), node(1, &[], 5_000), node(2, &[], 2_000), node(3, &[], 1_000)];
    let missing = Missing { lost_calls: 4, ..Missing::default() };
    let invocation = Invocation { missing, ..Invocation::new(TreeThread::Platform(7), nodes) };
    let shown = ShownInvocation { number: 1, invocation: &invocation, thread: None, marked_ns: Some(5_000) };
    let mut out = Vec::new();
    tree_text(&context, shown, false, Screen::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let expected = [
        " 9.00 us   9.00 us        > Cache::put: native",
        " 5.00 us                  >   NewGlobalRef: creation",
        " 2.00 us                      DeleteGlobalRef: release",
        " 1.00 us                      CallVoidMethod a.Cache::load(int): call",
        "! 4 calls could not be told: their time is part of their callers' SELF",
    ];
    assert_eq!(text.lines().skip(2).take(5).collect::<Vec<_>>(), expected, "{text}");
}

/// What a recording has of the invocations of [`sums`], of which one slow one is kept, and a quick one.
fn recorded() -> RecordedTrees {
    let quick = invocation(&[(0, 0, Enter), (100, 1, Enter), (9, 1, Return), (9, 0, Return)]);
    let kept = |number, invocation| KeptInvocation { number, thread: Some("http-7".to_owned()), invocation };
    RecordedTrees {
        began: context().clock,
        elapsed: Duration::from_secs(30),
        methods: plan().methods,
        exceptions: [(0, "java.io.IOException".to_owned())].into(),
        totals: sums().into_totals(),
        unfinished: Unfinished { still_inside: 2, ..Unfinished::default() },
        silenced: vec![2],
        kept: vec![kept(2, quick), kept(19, slow())],
        ..RecordedTrees::default()
    }
}

/// Check that a recording's trees are those of a run: the slowest first, as many as wanted, with what all have in common, and that it is said
/// how many there are.
#[test]
fn trees_of_a_recording() {
    let (about, trees) = (About { pid: 7, main: "com.acme.Main".to_owned(), ..About::default() }, recorded());
    let written = |most| {
        let mut out = Vec::new();
        ShownTrees::new(&about, &trees, most).text(false, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let (one, own) = (written(1), text(&slow(), None).replace("#12 ", "#19 "));
    assert!(one.starts_with("the slowest invocations\n\n#19 ") && one.contains(&own), "{one}");
    assert!(
        !one.contains("#2 ") && one.contains("20 invocations of com.acme.shop.OrderService::get in 30.0 s"),
        "{one}"
    );
    let flat = one.replace("\n  ", " ");
    assert!(flat.contains("Where the 25.8 ms more went, per invocation:"), "{one}");
    assert!(flat.contains("the recording has the 2 slowest as whole trees (--trees 2 shows them)"), "{one}");
    assert!(flat.contains("2 invocations that had not ended") && flat.contains("shown: 1 of 21"), "{one}");
    assert!(
        written(2).contains("\n#2 ") && !written(2).contains("--trees") && !written(0).contains("slowest invocations"),
        "{}",
        written(2)
    );
    let of = |most| document(|out| crate::render::json::line(&ShownTrees::new(&about, &trees, most), out));
    let shown =
        ShownInvocation { number: 19, invocation: &trees.kept[1].invocation, thread: Some("http-7"), marked_ns: None };
    assert_eq!(of(2)["invocations"][0], document(|out| tree_json(&context(), shown, out)));
    assert_eq!((&of(2)["invocations"][1]["number"], &of(0)["invocations"]), (&2.into(), &serde_json::json!([])));
    assert_eq!((&of(0)["summary"]["entries"][0]["invocations"], &of(0)["summary"]["pid"]), (&20.into(), &7.into()));
    let (title, notes) = ShownTrees::new(&about, &trees, 0).captions();
    assert!(title.starts_with("20 invocations of") && !notes.iter().any(|note| note.contains("shown")), "{notes:?}");
}

/// Check the comparison of two recordings: how much more an invocation takes, on which paths, in which order, and what is in one alone.
#[test]
fn recordings_compared() {
    let before = recorded();
    let mut after = before.clone();
    for alike in after.totals.entries.values_mut().flat_map(|of| of.alike.values_mut()) {
        alike.group.total_ns += 3_000_000 * alike.group.invocations;
        let calls = alike.group.invocations;
        let (way, _) = (0..).zip(&after.totals.ways).find(|(_, way)| way.method == 3).unwrap();
        let sum = alike.ways.entry(way).or_default();
        (sum.calls, sum.self_ns) = (sum.calls + 2 * calls, sum.self_ns + 3_000_000 * calls);
    }
    let text = |before: &RecordedTrees, after: &RecordedTrees, top| {
        let mut out = Vec::new();
        tree_difference(&compare_trees(before, after), top, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let more = text(&before, &after, 2);
    assert_golden("diff.txt", include_str!("golden/diff.txt"), &more);
    assert!(text(&after, &before, 2).contains("B took -3.00 ms each"), "{}", text(&after, &before, 2));
    assert!(text(&before, &before, 0).contains("B took 0 ns each (+0.0 %)"));
    let (text_of_both, mut lossy) = (text(&before, &before, 0), before.clone());
    assert!(
        text_of_both.replace("\n  ", " ").contains("in B not followed to the end") && !text_of_both.contains("losses")
    );
    (lossy.silenced, lossy.losses.events) = (Vec::new(), 3);
    let some = text(&before, &lossy, 0);
    assert!(some.contains("\nin A not followed") && some.contains("\nin B, losses: 3 tree-events"), "{some}");
    assert!(!some.contains("in B not followed"), "{some}");
    let mut other = before.clone();
    other.methods[0].method = "put".into();
    let apart = text(&before, &other, 0);
    assert!(apart.contains("OrderService::get, A before and B after\nA: 20 invocations, 3.42 ms each"), "{apart}");
    assert!(apart.contains("B: none\n") && apart.contains("A: none\nB: 20 ") && !apart.contains("CALLS"), "{apart}");
}
