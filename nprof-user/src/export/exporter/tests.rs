//! The exporter's promises, one by one.

use std::time::Duration;

use nprof_common::{Consumed, Counter};

use super::samples::{function, host, jvm, limits, lines, measured};
use super::*;
use crate::model::{BytesPerCall, Collectors, Histogram, MethodSnapshot, Settled, Unseen};

pub(super) fn scrape(exporter: &mut Exporter, living: &[Measured], now: Instant) -> Vec<String> {
    lines(&exporter.collect_with(living, &host(), &Usage::default(), now))
}

/// The values of the series with this beginning.
pub(super) fn values(lines: &[String], start: &str) -> Vec<String> {
    lines.iter().filter_map(|line| line.strip_prefix(start)).map(|rest| rest.trim().to_owned()).collect()
}

const CALLS: &str = "nprof_native_calls_total";

/// Check that a library that unpacks itself under another name at each start goes on with the same series.
#[test]
fn random_names_of_libraries_are_no_new_series() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let unpacked = |calls, name: &str| {
        let mut function = function(0, "A", calls);
        function.library = name.to_owned();
        function
    };
    let before = measured("x", jvm(1, vec![unpacked(1, "libzstd-jni-1.5.5-418338467856899223094.so")]));
    let after = measured("x", jvm(2, vec![unpacked(20, "libzstd-jni-1.5.5-49223370368547758.so")]));
    scrape(&mut exporter, std::slice::from_ref(&before), now);
    exporter.retire(before, now);
    let lines = scrape(&mut exporter, &[after], now);
    let expected = r#"{jvm="x",class="A",method="call",library="libzstd-jni-1.5.5-*.so"} 21"#;
    assert_eq!(values(&lines, CALLS), [expected]);
}

/// Check that JVMs of one name, overloads and functions of one name are one series with the sum.
#[test]
fn what_shares_a_name_is_added_up() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let mut overload = function(1, "A", 20);
    overload.methods[0].method.signature = "(I)V".into();
    let living = [
        measured("x", jvm(1, vec![function(0, "A", 1), overload, function(2, "A", 300)])),
        measured("x", jvm(2, vec![function(0, "A", 4000)])),
        measured("y", jvm(3, vec![function(0, "A", 50_000)])),
    ];
    let lines = scrape(&mut exporter, &living, now);
    assert_eq!(
        values(&lines, CALLS),
        [
            r#"{jvm="x",class="A",method="call",library="liba.so"} 4321"#,
            r#"{jvm="y",class="A",method="call",library="liba.so"} 50000"#
        ]
    );
}

/// Check that cost and CPU time of ended JVMs stay in the sums, and that what is not known yet adds nothing.
#[test]
fn cost_and_cpu_time_are_added_up() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let spent = |pid, spent: Option<(u64, u64)>| {
        let mut jvm = jvm(pid, vec![function(0, "A", 1)]);
        jvm.cost = spent.map(|(cost, _)| Duration::from_millis(cost));
        jvm.cpu = spent.map(|(_, cpu)| Duration::from_secs(cpu));
        measured("x", jvm)
    };
    let mut scraped = |living: &[Measured]| {
        let lines = scrape(&mut exporter, living, now);
        ["nprof_overhead_seconds_total", "nprof_jvm_cpu_seconds_total"].map(|name| values(&lines, name))
    };
    assert_eq!(scraped(&[spent(1, None)]), [[""; 0]; 2]);
    assert_eq!(scraped(&[spent(1, None), spent(2, Some((20, 1)))]), [[r#"{jvm="x"} 0.02"#], [r#"{jvm="x"} 1"#]]);
    exporter.retire(spent(2, Some((40, 2))), now);
    let lines = scrape(&mut exporter, &[spent(1, Some((100, 3)))], now);
    assert_eq!(values(&lines, "nprof_overhead_seconds_total"), [r#"{jvm="x"} 0.14"#]);
    assert_eq!(values(&lines, "nprof_jvm_cpu_seconds_total"), [r#"{jvm="x"} 5"#]);
    assert_eq!(values(&lines, "nprof_overhead_budget_ratio"), ["0.02"]);
}

/// Check that the calls of JVMs of one name are added up by the bytes of each, with those that moved nothing and those of ended JVMs,
/// without those of which nothing is known; and that there are no series of bytes that nobody moved.
#[test]
fn bytes_of_calls_are_added_up() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let counter = Counter::ReadBytes;
    let reading = |pid, calls, total, known: Option<&[(i32, u64)]>| {
        let mut function = function(0, "A", calls);
        let mut consumed = Consumed::default();
        consumed.total[counter as usize] = total;
        let of = |buckets: &[_]| BytesPerCall { counter, max: 0, histogram: Histogram { buckets: buckets.to_vec() } };
        function.bytes_per_call = Some(known.map(of).into_iter().collect());
        function.consumed = Some(Box::new(consumed));
        let mut jvm = jvm(pid, vec![function]);
        jvm.collectors = Collectors::named(&["io"]).unwrap();
        measured("x", jvm)
    };
    let ended = reading(1, 4, 3_000, Some(&[(40, 3)]));
    scrape(&mut exporter, std::slice::from_ref(&ended), now);
    exporter.retire(ended, now);
    // One reads nothing, of another there was no room for what its calls read.
    let living = [reading(2, 7, 0, None), reading(3, 5, 5_000, None)];
    let lines = scrape(&mut exporter, &living, now);
    let of = |name: &str, le: &str| {
        values(&lines, &format!(r#"{name}{{jvm="x",class="A",method="call",library="liba.so"{le}}}"#))
    };
    const NAME: &str = "nprof_native_call_read_size_bytes";
    let buckets = ["4", "256", "1024", "+Inf"].map(|le| of(&format!("{NAME}_bucket"), &format!(",le=\"{le}\"")));
    assert_eq!(buckets, [["8"], ["8"], ["11"], ["11"]], "{lines:#?}");
    assert_eq!(
        (of(&format!("{NAME}_sum"), ""), of(&format!("{NAME}_count"), "")),
        (vec!["3000".into()], vec!["11".into()])
    );
    assert!(!lines.iter().any(|line| line.contains("written_size")), "{lines:#?}");
}

/// Check that the signature tells overloads apart if it is wanted, and that series start over when that changes.
#[test]
fn signature_is_a_label_if_wanted() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let living = [measured("x", jvm(1, vec![function(0, "A", 7)]))];
    scrape(&mut exporter, &living, now);
    exporter.set_limits(Limits { with_signature: true, ..limits() });
    let lines = scrape(&mut exporter, &living, now);
    let expected = r#"{jvm="x",class="A",method="call",library="liba.so",signature="()V"} 7"#;
    assert_eq!(values(&lines, CALLS), [expected]);
}

/// Check that a function keeps the name of its first export when other methods are bound to it later.
#[test]
fn name_of_a_function_stays() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let mut shared = function(0, "B", 1);
    scrape(&mut exporter, &[measured("x", jvm(1, vec![shared.clone()]))], now);
    shared.methods.insert(0, function(0, "A", 0).methods[0].clone());
    let stays = scrape(&mut exporter, &[measured("x", jvm(1, vec![shared.clone()]))], now);
    assert_eq!(values(&stays, CALLS), [r#"{jvm="x",class="B",method="call",library="liba.so"} 1"#]);
    // The first of several by class, however they are ordered.
    shared.methods.reverse();
    let other = scrape(&mut exporter, &[measured("y", jvm(1, vec![shared]))], now);
    assert_eq!(values(&other, "nprof_native_calls_total{jvm=\"y\",class=\"A\"").len(), 1);
}

/// Check that the cap takes the methods with the most time, keeps them for ever, and says what it hides.
#[test]
fn cap_is_sticky() {
    let now = Instant::now();
    let mut exporter = Exporter::new(Limits { series_per_jvm: 2, ..limits() });
    let first = jvm(1, vec![function(0, "A", 1), function(1, "B", 5), function(2, "C", 3)]);
    let lines = scrape(&mut exporter, &[measured("x", first.clone())], now);
    let own = [r#"class="B",method="call",library="liba.so"} 5"#, r#"class="C",method="call",library="liba.so"} 3"#];
    let start = format!("{CALLS}{{jvm=\"x\",");
    let other = r#"class="",method="other",library=""} 1"#;
    assert_eq!(values(&lines, &start), [own[0], own[1], other]);
    assert_eq!(values(&lines, "nprof_series_hidden{jvm=\"x\"} "), ["1"]);

    // D is now by far the busiest, but comes too late; a second JVM's A is the same hidden method.
    let mut grown = first;
    grown.methods.push(function(3, "D", 1000));
    let second = jvm(2, vec![function(7, "A", 20)]);
    exporter.set_limits(Limits { series_per_jvm: 2, ..limits() });
    let living = [measured("x", grown.clone()), measured("x", second)];
    let lines = scrape(&mut exporter, &living, now);
    assert_eq!(values(&lines, &start), [own[0], own[1], r#"class="",method="other",library=""} 1021"#]);
    assert_eq!(values(&lines, "nprof_series_hidden{jvm=\"x\"} "), ["2"]);

    // A higher limit gives new methods a series, and leaves those in the shared one where they are.
    exporter.set_limits(Limits { series_per_jvm: 3, ..limits() });
    grown.methods.push(function(4, "E", 8));
    let lines = scrape(&mut exporter, &[measured("x", grown), living[1].clone()], now);
    assert_eq!(values(&lines, &start)[2], r#"class="E",method="call",library="liba.so"} 8"#);
    assert_eq!(values(&lines, &start)[3], r#"class="",method="other",library=""} 1021"#);
}

/// Check that a method without a class, which would be named as the shared series is, goes there.
#[test]
fn nothing_is_named_as_the_shared_series() {
    let mut exporter = Exporter::new(limits());
    let mut odd = function(0, "", 1);
    odd.methods[0].method.name = "other".into();
    odd.library = String::new();
    let lines = scrape(&mut exporter, &[measured("x", jvm(1, vec![odd, function(1, "", 2)]))], Instant::now());
    assert_eq!(values(&lines, CALLS), [r#"{jvm="x",class="",method="other",library=""} 3"#]);
}

/// Check that series stay for the set time after the last JVM has ended, gauges at zero, and then go together.
#[test]
fn ended_series_stay_for_a_time() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut exporter = Exporter::new(Limits { keep_ended: Duration::from_secs(60), ..limits() });
    let mut busy = function(0, "A", 5);
    busy.in_flight = 2;
    let (one, two) = (measured("x", jvm(1, vec![busy.clone()])), measured("x", jvm(2, vec![busy])));
    scrape(&mut exporter, &[one.clone(), two.clone()], at(0));
    exporter.retire(one, at(1));
    // The other JVM of the group lives on for longer than ended ones are kept.
    let lines = scrape(&mut exporter, std::slice::from_ref(&two), at(100));
    assert!(values(&lines, CALLS)[0].ends_with(" 10"));
    exporter.retire(two, at(100));
    let lines = scrape(&mut exporter, &[], at(159));
    assert!(values(&lines, CALLS)[0].ends_with(" 10"));
    assert!(values(&lines, "nprof_native_calls_in_flight")[0].ends_with(" 0"));
    assert_eq!(values(&lines, "nprof_methods{").iter().filter(|value| value.ends_with(" 0")).count(), 6);
    let lines = scrape(&mut exporter, &[], at(160));
    assert!(!lines.iter().any(|line| line.contains("jvm=\"x\"")), "{lines:?}");
    assert!(exporter.groups.is_empty());
}

/// Check that a group stays that has a living JVM which was not scraped yet, however long ago another ended.
#[test]
fn group_of_an_unseen_jvm_stays() {
    let start = Instant::now();
    let mut exporter = Exporter::new(limits());
    let (one, two) = (jvm(1, vec![function(0, "A", 5)]), jvm(2, vec![function(0, "A", 1)]));
    scrape(&mut exporter, &[measured("x", one.clone())], start);
    exporter.retire(measured("x", one), start);
    let later = start + 2 * limits().keep_ended;
    exporter.retire(measured("y", jvm(3, Vec::new())), later);
    let lines = scrape(&mut exporter, &[measured("x", two)], later);
    assert!(values(&lines, CALLS)[0].ends_with(" 6"), "{lines:?}");
}

/// Check that a JVM that came and went between two scrapes is counted.
#[test]
fn jvm_between_two_scrapes_counts() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    exporter.retire(measured("x", jvm(1, vec![function(0, "A", 9)])), now);
    let lines = scrape(&mut exporter, &[], now);
    assert!(values(&lines, CALLS)[0].ends_with(" 9"));
}

/// Check that ended groups are bounded even if nobody scrapes, and that the oldest go.
#[test]
fn ended_groups_are_bounded() {
    let start = Instant::now();
    let mut exporter = Exporter::new(limits());
    let living = measured("living", jvm(9999, vec![function(0, "A", 1)]));
    scrape(&mut exporter, std::slice::from_ref(&living), start);
    for n in 0..300 {
        exporter.retire(measured(&format!("jvm{n}"), jvm(n, Vec::new())), start + Duration::from_millis(n.into()));
    }
    assert_eq!(exporter.groups.len(), MAX_ENDED_GROUPS + 1);
    let names: Vec<&str> = exporter.groups.keys().map(|labels| labels.0[0].1.as_str()).collect();
    assert!(names.contains(&"living") && names.contains(&"jvm299") && names.contains(&"jvm44"));
    assert!(!names.contains(&"jvm43"));
}

/// Check that new labels begin with the full numbers of the living, and that nothing of the old ones stays.
#[test]
fn relabel_starts_over() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let living = jvm(1, vec![function(0, "A", 5)]);
    exporter.retire(measured("old", jvm(2, vec![function(0, "A", 100)])), now);
    scrape(&mut exporter, &[measured("old", living.clone())], now);
    exporter.relabel();
    let lines = scrape(&mut exporter, &[measured("new", living)], now);
    assert_eq!(values(&lines, CALLS), [r#"{jvm="new",class="A",method="call",library="liba.so"} 5"#]);
}

/// Check that a counter stays where it is if a JVM's numbers are lower for once.
#[test]
fn lower_numbers_are_not_shown() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    scrape(&mut exporter, &[measured("x", jvm(1, vec![function(0, "A", 5)]))], now);
    let lines = scrape(&mut exporter, &[measured("x", jvm(1, vec![function(0, "A", 4)]))], now);
    assert!(values(&lines, CALLS)[0].ends_with(" 5"));
    assert!(values(&lines, "nprof_native_call_duration_seconds_count")[0].ends_with(" 5"));
    let lines = scrape(&mut exporter, &[measured("x", jvm(1, vec![function(0, "A", 6)]))], now);
    assert!(values(&lines, CALLS)[0].ends_with(" 6"));
}

/// Check that what only some methods have is shown only for them, and that times need timed calls.
#[test]
fn only_what_there_is() {
    let mut exporter = Exporter::new(limits());
    let mut snapshot = jvm(1, vec![function(0, "A", 5)]);
    snapshot.timed = false;
    let a = &mut snapshot.methods[0];
    (a.counted, a.histogram, a.total_ns, a.self_ns) = (5, Histogram::default(), 0, Some(0));
    let lines = scrape(&mut exporter, &[measured("x", snapshot)], Instant::now());
    let of_method: Vec<&str> =
        lines.iter().filter(|line| line.contains("class=")).map(|line| line.split('{').next().unwrap()).collect();
    assert_eq!(of_method, ["nprof_native_calls_total", "nprof_native_calls_untimed_total"]);
}

/// Check that estimates are counters of their own that hold what no look takes back, of all that share a series and of JVMs that
/// have ended, and that their errors rise and fall.
#[test]
fn estimates_only_grow() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let hot = |(calls, error_calls), (settled, time_ns), error_ns| {
        let settled = Settled { calls: settled, total_ns: time_ns };
        let unseen = Unseen { calls, error_calls, total_ns: 2 * time_ns, error_ns, settled };
        MethodSnapshot { unseen: Some(unseen), ..function(0, "A", 7) }
    };
    let names = [
        "calls_estimated_total",
        "calls_estimated_error",
        "call_estimated_seconds_total",
        "call_estimated_error_seconds",
    ];
    let of_a = |lines: &[String]| {
        names.map(|name| {
            values(lines, &format!(r#"nprof_native_{name}{{jvm="x",class="A",method="call",library="liba.so"}} "#))
        })
    };
    let scraped = |exporter: &mut Exporter, hot: MethodSnapshot| {
        let lines = scrape(exporter, &[measured("x", jvm(1, vec![hot, function(1, "B", 5)]))], now);
        assert_eq!(values(&lines, CALLS).len(), 2);
        assert!(!lines.iter().any(|line| line.contains("estimated") && line.contains("\"B\"")), "{lines:#?}");
        of_a(&lines).concat()
    };
    assert_eq!(scraped(&mut exporter, function(0, "A", 7)), [""; 0]);
    assert_eq!(scraped(&mut exporter, hot((100, 1200), (0, 0), None)), ["0", "1200"], "no look has timed a call");
    let known = hot((9000, 300), (5000, 2_000_000_000), Some(500_000_000));
    assert_eq!(scraped(&mut exporter, known), ["5000", "300", "2", "0.5"]);
    let corrected = hot((6000, 200), (5500, 2_500_000_000), Some(400_000_000));
    assert_eq!(scraped(&mut exporter, corrected.clone()), ["5500", "200", "2.5", "0.4"]);
    // Whatever comes, a counter does not fall.
    let fallen = hot((10, 200), (10, 1_000_000_000), Some(400_000_000));
    assert_eq!(scraped(&mut exporter, fallen), ["5500", "200", "2.5", "0.4"]);
    exporter.retire(measured("x", jvm(1, vec![corrected])), now);
    let second = measured("x", jvm(2, vec![hot((40, 30), (20, 500_000_000), Some(100_000_000))]));
    assert_eq!(of_a(&scrape(&mut exporter, &[second], now)).concat(), ["5520", "230", "3", "0.5"]);
}

/// Check that a method that is too expensive to watch is not hidden by the limit for having no time of its own, and that those
/// that are hidden share one estimate.
#[test]
fn estimates_count_for_the_limit() {
    let now = Instant::now();
    let mut exporter = Exporter::new(Limits { series_per_jvm: 1, ..limits() });
    let hot = |index, class: &str, calls| {
        let settled = Settled { calls, total_ns: 1000 * calls };
        let unseen = Unseen { calls, error_calls: 10, total_ns: 1000 * calls, error_ns: Some(1000), settled };
        MethodSnapshot { unseen: Some(unseen), ..function(index, class, 0) }
    };
    let methods = vec![function(0, "A", 50), hot(1, "B", 90_000), hot(2, "C", 100), hot(3, "D", 200)];
    let lines = scrape(&mut exporter, &[measured("x", jvm(1, methods))], now);
    let expected = [
        r#"{jvm="x",class="B",method="call",library="liba.so"} 90000"#,
        r#"{jvm="x",class="",method="other",library=""} 300"#,
    ];
    assert_eq!(values(&lines, "nprof_native_calls_estimated_total"), expected);
    assert_eq!(values(&lines, r#"nprof_native_calls_estimated_error{jvm="x",class="","#).len(), 1);
}

/// Check that work and waiting add up to the self time of those of which both are known, also across the end of a JVM, that neither
/// falls, and that nothing is said of methods of which they are not known.
#[test]
fn work_and_waiting_are_the_self_time() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let row = |self_ns, probe_ns, off_cpu_ns| MethodSnapshot {
        self_ns: Some(self_ns),
        probe_ns,
        off_cpu_ns,
        ..function(0, "A", 1)
    };
    let of = |pid, row| measured("x", jvm(pid, vec![row, function(1, "Unknown", 5)]));
    let parts = |exporter: &mut Exporter, living: &[Measured]| {
        let lines = scrape(exporter, living, now);
        ["self", "on_cpu", "off_cpu"].map(|part| {
            let found = values(&lines, &format!("nprof_native_call_{part}_seconds_total{{jvm=\"x\",class=\"A\","));
            found.first().and_then(|found| found.rsplit(' ').next()).map(str::to_owned)
        })
    };
    let expected = |values: [&str; 3]| values.map(|value| Some(value.to_owned()));
    let seconds = |n: u64| n * 1_000_000_000;
    let first = of(1, row(seconds(6), seconds(1), Some(seconds(5))));
    assert_eq!(parts(&mut exporter, std::slice::from_ref(&first)), expected(["7", "2", "5"]));
    exporter.retire(first, now);
    let second = of(2, row(seconds(1), 0, Some(seconds(1))));
    assert_eq!(parts(&mut exporter, &[second]), expected(["8", "2", "6"]));
    // Self time was read a moment before the time off the CPU.
    let second = of(2, row(seconds(1), 0, Some(seconds(3))));
    assert_eq!(parts(&mut exporter, &[second]), expected(["8", "2", "6"]));
    let unknown = scrape(&mut exporter, &[], now).iter().any(|line| line.contains("_cpu_") && line.contains("Unknown"));
    assert!(!unknown);
}

/// Check that what was collected, and nothing else, has series, that it is what calls have consumed themselves, and that it goes on
/// when a JVM ends.
#[test]
fn what_is_collected_has_series() {
    let now = Instant::now();
    let mut exporter = Exporter::new(limits());
    let consuming = |pid, own| {
        let consumed = Consumed { own: [own; nprof_common::COUNTERS], total: [99; nprof_common::COUNTERS] };
        let row = MethodSnapshot { consumed: Some(Box::new(consumed)), ..function(0, "A", 1) };
        let collectors = Collectors::named(&["faults", "locks"]).unwrap();
        measured("x", Snapshot { collectors, ..jvm(pid, vec![row, function(1, "B", 1)]) })
    };
    let first = consuming(1, 3);
    scrape(&mut exporter, std::slice::from_ref(&first), now);
    exporter.retire(first, now);
    let lines = scrape(&mut exporter, &[consuming(2, 4)], now);
    let value = |name: &str| values(&lines, &format!("nprof_native_call_{name}_total{{jvm=\"x\",class=\"A\","));
    let ends = |name: &str| value(name)[0].rsplit(' ').next().map(str::to_owned);
    // Faults are the sum of two counters.
    assert_eq!(["faults", "major_faults", "lock_waits"].map(ends), ["14", "7", "7"].map(|n| Some(n.to_owned())));
    assert_eq!(value("syscalls"), [""; 0]);
    assert!(!lines.iter().any(|line| line.contains("_faults_") && line.contains("class=\"B\"")), "{lines:?}");
}
