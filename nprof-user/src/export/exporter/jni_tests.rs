//! Series of JNI functions: what they are of, that counters never fall, and how many there may be.

use std::time::{Duration, Instant};

use super::jni::MAX_EXCEPTIONS;
use super::samples::{function, jvm, limits, measured};
use super::tests::{scrape, values};
use super::{Exporter, Measured};
use crate::model::{
    Bound, JniReferences, JniResource, JniThrownSum, JniTotals, MethodSnapshot, Resources, Settled, SharedStr,
    Snapshot, States, Tracing, Unseen,
};

/// A JNI function with so many calls of a microsecond.
fn jni(name: &str, calls: u64) -> MethodSnapshot {
    let mut row = function(500, "JNIEnv", calls);
    (row.methods[0].method.name, row.methods[0].bound) = (name.into(), Bound::JniFunction);
    row
}

fn totals(functions: Vec<MethodSnapshot>) -> JniTotals {
    let mut states = States::default();
    states.functions[Tracing::Timed as usize] = functions.len();
    let (redundant, references, thrown) = (Vec::new(), Vec::new(), Vec::new());
    JniTotals { functions, states, unseen: 8, redundant, references, critical: [0; 2], thrown }
}

fn references(resource: JniResource, made: u64, let_go: u64, is_whole: bool) -> JniReferences {
    JniReferences { resource, sums: Resources { made, let_go, made_before: 0 }, is_whole }
}

fn threw(method: Option<&str>, class: Option<&str>, pending: u64, cleared: u64) -> JniThrownSum {
    let method = method.map(|name| ("a.N".into(), SharedStr::from(name)));
    JniThrownSum { method, class: class.map(str::to_owned), pending, cleared }
}

fn of(pid: u32, jni: JniTotals) -> Measured {
    measured("x", Snapshot { jni: Some(Box::new(jni)), ..jvm(pid, vec![function(0, "A", 5)]) })
}

/// Check that there are no series of JNI functions where none are traced.
#[test]
fn off_by_default() {
    let lines =
        scrape(&mut Exporter::new(limits()), &[measured("x", jvm(1, vec![function(0, "A", 5)]))], Instant::now());
    assert!(!lines.iter().any(|line| line.contains("jni")), "{lines:?}");
}

/// Check that functions have their own series and none of methods', that look-ups and critical sections add up over JVMs that share
/// labels, and that all of it goes on when one ends.
#[test]
fn functions_and_what_is_looked_at() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let known = |calls| JniTotals {
        redundant: vec![("GetMethodID".into(), [calls / 2, 500_000_000 * calls])],
        critical: [calls, 1_000_000_000 * calls],
        ..totals(vec![jni("GetMethodID", calls)])
    };
    let lines = scrape(&mut exporter, &[of(1, known(4)), of(2, known(6))], now);
    let labels = r#"{jvm="x",function="GetMethodID",family="look-ups"}"#;
    let value = |lines: &[String], name: &str| values(lines, name).concat();
    assert_eq!(value(&lines, "nprof_jni_calls_total"), format!("{labels} 10"));
    assert_eq!(value(&lines, "nprof_jni_call_self_seconds_total"), format!("{labels} 0.00001"));
    assert_eq!(value(&lines, "nprof_jni_redundant_lookups_total"), r#"{jvm="x",function="GetMethodID"} 5"#);
    assert_eq!(value(&lines, "nprof_jni_redundant_lookup_seconds_total"), r#"{jvm="x",function="GetMethodID"} 5"#);
    assert_eq!(value(&lines, "nprof_jni_critical_sections_total"), r#"{jvm="x"} 10"#);
    assert_eq!(value(&lines, "nprof_jni_critical_section_seconds_total"), r#"{jvm="x"} 10"#);
    assert_eq!(value(&lines, r#"nprof_jni_functions{jvm="x",state="timed"} "#), "2");
    assert_eq!(value(&lines, r#"nprof_jni_functions{jvm="x",state="unseen"} "#), "16");
    assert!(!lines.iter().any(|line| line.contains("JNIEnv")), "{lines:?}");
    exporter.retire(of(1, known(8)), now);
    let lines = scrape(&mut exporter, &[of(2, known(6))], now);
    assert_eq!(value(&lines, "nprof_jni_calls_total"), format!("{labels} 14"));
    assert_eq!(value(&lines, "nprof_jni_critical_sections_total"), r#"{jvm="x"} 14"#);
    // What is lower for once is not shown.
    let lines = scrape(&mut exporter, &[of(2, known(2))], now);
    assert_eq!(value(&lines, "nprof_jni_critical_sections_total"), r#"{jvm="x"} 14"#);
    assert_eq!(value(&lines, "nprof_jni_redundant_lookups_total"), r#"{jvm="x",function="GetMethodID"} 7"#);
}

/// Check that what is demoted is said, with its gaps and its estimates.
#[test]
fn demoted_functions_are_marked() {
    let mut hot = jni("ExceptionCheck", 100);
    (hot.traced.tracing, hot.counted, hot.traced.unwatched) = (Tracing::Detached, 90, Duration::from_secs(2));
    let settled = Settled { calls: 5_000, total_ns: 1_000_000_000 };
    hot.unseen = Some(Unseen { calls: 6_000, error_calls: 300, total_ns: 1, error_ns: Some(7), settled });
    let lines = scrape(&mut Exporter::new(limits()), &[of(1, totals(vec![hot]))], Instant::now());
    for (name, value) in [
        ("nprof_jni_calls_untimed_total", "90"),
        ("nprof_jni_unwatched_seconds_total", "2"),
        ("nprof_jni_calls_estimated_total", "5000"),
        ("nprof_jni_calls_estimated_error", "300"),
        ("nprof_jni_call_estimated_seconds_total", "1"),
    ] {
        let found = values(&lines, &format!(r#"{name}{{jvm="x",function="ExceptionCheck",family="exceptions"}} "#));
        assert_eq!(found, [value], "{name}");
    }
    let demoted =
        r#"nprof_demoted_jni_function{jvm="x",function="ExceptionCheck",family="exceptions",state="detached"} "#;
    assert_eq!(values(&lines, demoted), ["1"]);
}

/// Check that live references are the living JVMs', may be fewer than none, and are not told if they are not known of one JVM, while
/// what was made and let go stays.
#[test]
fn references_that_live() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let with = |pid, made, let_go, is_whole| {
        let references = vec![references(JniResource::Global, made, let_go, is_whole)];
        of(pid, JniTotals { references, ..totals(Vec::new()) })
    };
    let global = |lines: &[String]| {
        ["made_total", "released_total", "live"]
            .map(|what| values(lines, &format!(r#"nprof_jni_references_{what}{{jvm="x",kind="global"}} "#)).concat())
    };
    let both = [with(1, 9, 4, true), with(2, 1, 8, true)];
    assert_eq!(global(&scrape(&mut exporter, &both, now)), ["10", "12", "-2"]);
    let both = [with(1, 9, 4, true), with(2, 1, 8, false)];
    assert_eq!(global(&scrape(&mut exporter, &both, now)), ["10", "12", ""]);
    exporter.retire(with(2, 1, 8, false), now);
    assert_eq!(global(&scrape(&mut exporter, &[with(1, 9, 4, true)], now)), ["10", "12", "5"]);
}

/// Check that exceptions are told by method and class, that so many have series of their own, and that the others share one, which is
/// said.
#[test]
fn exceptions_are_capped() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let name = |number: usize| format!("e.E{number:03}");
    let thrown = |many: usize| (0..many).map(|number| threw(Some("n"), Some(&name(number)), 1, 2)).collect();
    let with = |thrown| of(1, JniTotals { thrown, ..totals(Vec::new()) });
    let first = vec![threw(Some("n"), Some("e.Late"), 7, 0), threw(None, None, 0, 3)];
    let lines = scrape(&mut exporter, &[with(first.clone())], now);
    let series = |class: &str, method: &str, exception: &str, state: &str| {
        format!(
            r#"nprof_jni_exceptions_total{{jvm="x",class="{class}",method="{method}",exception="{exception}",state="{state}"}} "#
        )
    };
    assert_eq!(values(&lines, &series("a.N", "n", "e.Late", "pending")), ["7"]);
    assert_eq!(values(&lines, &series("", "none", "unknown", "cleared")), ["3"]);
    let surplus = 5;
    let mut many: Vec<JniThrownSum> = thrown(MAX_EXCEPTIONS - first.len() + surplus);
    many.extend(first);
    let lines = scrape(&mut exporter, &[with(many)], now);
    assert_eq!(values(&lines, "nprof_jni_exceptions_total{").len(), 2 * (MAX_EXCEPTIONS + 1));
    assert_eq!(values(&lines, r#"nprof_jni_exceptions_hidden{jvm="x"} "#), [surplus.to_string()]);
    assert_eq!(values(&lines, &series("", "other", "other", "pending")), [surplus.to_string()]);
    assert_eq!(values(&lines, &series("", "other", "other", "cleared")), [(2 * surplus).to_string()]);
    assert_eq!(values(&lines, &series("a.N", "n", "e.Late", "pending")), ["7"]);
}
