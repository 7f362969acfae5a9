//! Slow calls (`--slow`): which are listed, and what is said of each.

use std::cmp::Reverse;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nprof::model::Profile;
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{Report, SlowCallRow, SlowCallRows, WaitRow};
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{OPEN_METRICS, Serve, TEXT};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::callers::{Recording, read};

const MS: u64 = 1_000_000;
/// Slow is what takes this long.
const SLOW: &str = "10ms";
/// Calls that sleep so long; some of them are slow.
const SLEEPS_MS: [u64; 8] = [30, 2, 45, 1, 20, 3, 60, 1];
const SLEEPERS: usize = 4;

fn slow(report: &Report, pid: u32) -> Result<&SlowCallRows> {
    let target = report.targets.iter().find(|target| target.pid == pid).context("no such target")?;
    target.slow.as_ref().context("slow calls")
}

/// The calls in a timeline that are slower than the threshold: method and thread, of each as many as there are.
fn slow_in_timeline(profile: &Profile) -> Vec<(MethodName, u32)> {
    let named = |function: u32| {
        let function = &profile.functions[function as usize];
        MethodName::new(&function.class, &function.method, &function.signature)
    };
    let slow = profile.timeline.iter().filter(|call| call.duration_ns >= 10 * MS);
    slow.map(|call| (named(call.function), call.tid)).collect()
}

/// Check that what is listed is what the timeline of a recording has, which was made of the same calls: all of these and no
/// others, the slowest first; with threads and callers, how long they were off the CPU, and where they waited.
#[test]
fn exactly_those_of_the_timeline() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let natives = ["targets.Timed::sleep", "targets.Timed::work"];
        let trace = Trace::start(target.pid(), &[&["--tier", "kernel", "--slow", SLOW][..], &natives].concat())?;
        let recording = Recording::start(target.pid(), &[&["--timeline"][..], &natives].concat())?;
        for ms in SLEEPS_MS {
            target.self_timed("sleep", 1, ms * MS)?;
        }
        // Longer than any sleep, on every machine.
        target.self_timed("work", 1, 300 * MS)?;
        target.self_timed("work", 1000, 1000)?;
        let profile = read(&recording.finish_file()?.file())?;
        let report = trace.finish()?;
        report.must_be_lossless()?;
        let slow = slow(&report, target.pid())?;
        let mut listed: Vec<_> = slow.calls.iter().map(|call| (call.name(), call.tid)).collect();
        let mut expected = slow_in_timeline(&profile);
        listed.sort();
        expected.sort();
        ensure!(listed == expected && listed.len() > SLEEPERS, "{expected:?}: {slow:?}");
        ensure!((slow.total, slow.unread, slow.threshold_ns) == (listed.len() as u64, 0, Some(10 * MS)), "{slow:?}");
        ensure!(slow.calls.is_sorted_by(|a, b| a.time_ns >= b.time_ns) && slow.calls[0].method == "work", "{slow:?}");
        slow.calls.iter().try_for_each(must_be_known)?;
        let sleeps = slow.calls.iter().filter(|call| call.method == "sleep");
        must_sleep(&sleeps.cloned().collect::<Vec<_>>())?;
        target.exit()
    })
}

fn is_a_sleep(wait: &WaitRow) -> bool {
    wait.kernel.iter().any(|function| function.contains("nanosleep"))
}

/// All these calls have slept. Where a thread was not seen to run again, which kernels of sandboxes hide now and then, it is known how
/// long it waited and not where.
fn must_sleep(calls: &[SlowCallRow]) -> Result<()> {
    let waits: Vec<&WaitRow> = calls.iter().filter_map(|call| call.wait.as_ref()).collect();
    let hidden = waits.iter().filter(|wait| wait.kernel.is_empty()).count();
    let slept = waits.iter().filter(|wait| is_a_sleep(wait)).count();
    ensure!(slept + hidden == calls.len() && hidden <= calls.len().div_ceil(10), "{calls:?}");
    Ok(())
}

/// Check that a timeline has exactly the calls of the list, each as a slice of its length on its thread, with what it was made with.
#[test]
fn as_a_timeline() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let file = directory.path().join("slow.trace.json");
        let mut target = RemoteProcess::shapes(jdk)?;
        let options = ["--slow", SLOW, "--args", "--slow-timeline", file.to_str().context("a path in UTF-8")?];
        let trace = Trace::start(target.pid(), &[&options[..], &["--tier", "kernel", "targets.Timed::*"]].concat())?;
        for ms in SLEEPS_MS {
            target.self_timed("sleep", 1, ms * MS)?;
        }
        let report = trace.finish()?;
        let slow = slow(&report, target.pid())?;
        let timeline: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let events = timeline["traceEvents"].as_array().context("events")?;
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        let of_slice = |slice: &&Value| Some((slice["tid"].as_u64()?, slice["args"]["time_ns"].as_u64()?));
        let mut sliced: Vec<(u64, u64)> = slices.iter().filter_map(of_slice).collect();
        let mut listed: Vec<_> = slow.calls.iter().map(|call| (call.tid.into(), call.time_ns)).collect();
        sliced.sort_unstable();
        listed.sort_unstable();
        ensure!(sliced == listed && listed.len() >= SLEEPERS, "{listed:?}: {timeline}");
        // One after the other, as they were made, with the time that each was to sleep.
        let asked = slices.iter().map(|slice| slice["args"]["arguments"]["arguments"][0]["value"].as_u64());
        // Of the short ones some may have waited for a CPU.
        let asked: Vec<_> = asked.filter(|ns| *ns >= Some(10 * MS)).collect();
        let expected: Vec<_> = SLEEPS_MS.iter().filter(|ms| **ms >= 10).map(|ms| Some(ms * MS)).collect();
        ensure!(asked == expected, "{asked:?}: {timeline}");
        let ends = slices.iter().map(|slice| Some((slice["ts"].as_f64()?, slice["dur"].as_f64()?)));
        let ends = ends.collect::<Option<Vec<_>>>().context("times")?;
        ensure!(ends.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{timeline}");
        target.exit()
    })
}

/// All that can be known of it is.
fn must_be_known(call: &SlowCallRow) -> Result<()> {
    let callers: Vec<&str> = call.callers.iter().filter_map(|caller| Some(caller.rsplit_once(':')?.0)).collect();
    ensure!(callers.contains(&"targets.Shapes::timed") && callers.contains(&"targets.Target::serve"), "{call:?}");
    ensure!(!call.thread.is_empty() && call.tid != 0 && call.tier == "kernel", "{call:?}");
    ensure!(call.off_cpu_ns.zip(call.on_cpu_ns).is_some_and(|(off, on)| off + on == call.time_ns), "{call:?}");
    let wait_ns = call.wait.as_ref().map(|wait| wait.ns);
    ensure!(wait_ns <= call.off_cpu_ns && (wait_ns.is_some() || call.method == "work"), "{call:?}");
    Ok(())
}

/// Check that the list is the slowest of many more than it has room for, that all of them are counted, and that what the slowest
/// was is what the totals say.
#[test]
fn the_slowest_of_many() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        of_many(jdk, "kernel", "targets.Timed::*").context("kernel")?;
        // Until the shim is told what is selected, its stubs choose calls of whatever is bound.
        of_many(jdk, "stub", "*").context("stub")
    })
}

fn of_many(jdk: &Jdk, tier: &str, natives: &str) -> Result<()> {
    const CALLS: u32 = 100_000;
    let mut target = RemoteProcess::shapes(jdk)?;
    let trace = Trace::start(target.pid(), &["--tier", tier, "--slow", "1ns", natives])?;
    // Neither what comes before a flood is pushed out by it nor what comes after.
    target.self_timed("sleep", 2, 30 * MS)?;
    target.self_timed("work", CALLS, 500)?;
    target.self_timed("sleep", 1, 30 * MS)?;
    let report = trace.finish()?;
    let slow = slow(&report, target.pid())?;
    let calls: u64 = report.methods.iter().map(|row| row.calls).sum();
    // What a stub has read as no time at all is not slow.
    ensure!((u64::from(CALLS)..=calls).contains(&slow.total) && slow.calls.len() == 50, "{calls} calls: {slow:?}");
    ensure!(slow.unread == 0, "{calls} calls: {slow:?}");
    ensure!(slow.calls.is_sorted_by(|a, b| a.time_ns >= b.time_ns), "{slow:?}");
    let sleeps: Vec<_> = slow.calls.iter().filter(|call| call.method == "sleep").collect();
    ensure!(sleeps.len() == 3 && slow.calls.iter().all(|call| call.tier == tier), "{slow:?}");
    let row = report.needed_row(&MethodName::new("targets.Timed", "sleep", "(J)V"))?;
    ensure!(row.max_ns == Some(sleeps[0].time_ns), "{row:?} {sleeps:?}");
    target.exit()
}

/// Check that it is known where calls waited that stubs have timed, and for how long at once: each for its own time, of shorter and longer
/// ones, one after the other in one thread.
#[test]
fn where_calls_of_stubs_waited() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        target.self_timed("sleep", 1, MS)?;
        let options = ["--tier", "stub", "--slow", SLOW, "targets.Timed::sleep"];
        let trace = Trace::start(target.pid(), &options)?;
        for ms in SLEEPS_MS {
            target.self_timed("sleep", 1, ms * MS)?;
        }
        let report = trace.finish()?;
        report.must_be_lossless()?;
        let calls = &slow(&report, target.pid())?.calls;
        ensure!(calls.len() >= SLEEPERS && calls.iter().all(|call| call.tier == "stub"), "{calls:?}");
        must_sleep(calls)?;
        for call in calls {
            let (wait_ns, off_ns) = call.wait.as_ref().map(|wait| wait.ns).zip(call.off_cpu_ns).context("no wait")?;
            // It sleeps once, and may wait for a CPU besides.
            ensure!(wait_ns <= off_ns && off_ns <= call.time_ns, "{call:?}");
        }
        // The wait of each is its own, and no shorter than it was to sleep, but for what the thread ran when the kernel's timer was set already:
        // not a microsecond, unless the host does something else with the CPU meanwhile.
        let waited = |call: &SlowCallRow| Some([call.wait.as_ref()?.ns, call.on_cpu_ns?]);
        let mut waits: Vec<[u64; 2]> = calls.iter().filter_map(waited).collect();
        let mut sleeps = SLEEPS_MS.map(|ms| ms * MS);
        waits.sort_unstable_by_key(|[ns, _]| Reverse(*ns));
        sleeps.sort_unstable_by_key(|ns| Reverse(*ns));
        ensure!(waits.iter().zip(sleeps).all(|([waited, ran], slept)| waited + ran >= slept), "{calls:?}");
        waits.dedup_by_key(|[ns, _]| *ns);
        ensure!(waits.len() == calls.len(), "two calls have one wait: {calls:?}");
        target.exit()
    })
}

/// Check that calls of methods that nobody has asked for are not told, though their stubs are there from their first call on, and take
/// the place of none that is: neither before it is known which methods are selected nor later.
#[test]
fn of_methods_that_were_asked_for() -> Result<()> {
    const UNSELECTED: [&str; 1] = ["targets.Timed::work"];
    const NEVER_SLOW: [&str; 3] = ["--slow", "targets.Timed::sleep=off", "targets.Timed::*"];
    traced_on_every_jdk(|jdk| {
        only_work(jdk, &UNSELECTED).context("not selected")?;
        only_work(jdk, &NEVER_SLOW).context("never slow")
    })
}

fn only_work(jdk: &Jdk, wanted: &[&str]) -> Result<()> {
    let mut target = RemoteProcess::shapes(jdk)?;
    let trace = Trace::start(target.pid(), &[&["--tier", "stub", "--slow", "1ms"][..], wanted].concat())?;
    // Both are bound by their first calls. There are more sleeps than the list has room for, and each takes longer than what is to be there.
    target.self_timed("sleep", 60, 20 * MS)?;
    target.self_timed("work", 3, 2 * MS)?;
    target.self_timed("sleep", 60, 20 * MS)?;
    let report = trace.finish()?;
    let slow = slow(&report, target.pid())?;
    ensure!(slow.calls.len() == 3 && slow.calls.iter().all(|call| call.method == "work"), "{slow:?}");
    ensure!((slow.total, slow.unread) == (3, 0), "{slow:?}");
    target.exit()
}

/// Check that methods have the thresholds of the last pattern that selects them, whether probes or stubs time them.
#[test]
fn thresholds_by_pattern() -> Result<()> {
    traced_on_every_jdk(|jdk| ["kernel", "stub"].into_iter().try_for_each(|tier| by_pattern(jdk, tier).context(tier)))
}

fn by_pattern(jdk: &Jdk, tier: &str) -> Result<()> {
    let mut target = RemoteProcess::shapes(jdk)?;
    // The library is loaded and its methods are bound: what is said of them holds from the first call on.
    target.self_timed("sleep", 1, 1)?;
    let of_sleeps = ["--slow", "targets.Timed::*=off", "--slow", "targets.Timed::sleep=50ms"];
    let trace =
        Trace::start(target.pid(), &[&["--tier", tier, "--slow", "1ns", "targets.Timed"][..], &of_sleeps].concat())?;
    target.self_timed("sleep", 40, MS)?;
    target.self_timed("sleep", 3, 60 * MS)?;
    target.self_timed("work", 1, 100 * MS)?;
    let report = trace.finish()?;
    let slow = slow(&report, target.pid())?;
    let is_slow = |call: &SlowCallRow| call.method == "sleep" && call.time_ns >= 50 * MS && call.tier == tier;
    ensure!(slow.calls.iter().all(is_slow) && (3..20).contains(&slow.total), "{slow:?}");
    ensure!(slow.calls.len() as u64 == slow.total && slow.threshold_ns == Some(1), "{slow:?}");
    let row = report.needed_row(&MethodName::new("targets.Timed", "work", "(J)J"))?;
    ensure!(row.calls == 1 && row.max_ns > Some(50 * MS), "{row:?}");
    target.exit()
}

/// Check that it is said of each call what it consumed, to the unit, and how long it waited, and of a call that makes others with
/// theirs; whether probes or stubs have timed it.
#[test]
fn what_calls_consumed() -> Result<()> {
    traced_on_every_jdk(|jdk| ["kernel", "stub"].into_iter().try_for_each(|tier| consumed_by(jdk, tier).context(tier)))
}

fn consumed_by(jdk: &Jdk, tier: &str) -> Result<()> {
    let mut target = RemoteProcess::consuming(jdk)?;
    target.run("consume call 1 1 1")?;
    let options = ["--tier", tier, "--collect", "syscalls,io", "--slow", "1ns", "targets.Consuming"];
    let trace = Trace::start(target.pid(), &options)?;
    target.run("consume call 2 5 7")?;
    target.run("consume copy 1 3 5000")?;
    target.run("consume outer 1 2 20")?;
    target.run("consume nap 1 4 20")?;
    let report = trace.finish()?;
    let slow = slow(&report, target.pid())?;
    let calls = |method: &str| slow.calls.iter().filter(|call| call.method == method).collect::<Vec<_>>();
    let consumed = |name: &str, method: &str| -> Vec<Option<u64>> {
        calls(method).iter().map(|call| call.collected.as_ref()?.get(name).copied()).collect()
    };
    ensure!(consumed("syscalls", "call") == [Some(7); 10], "system calls: {slow:?}");
    ensure!(consumed("read_bytes", "call") == [Some(0); 10], "read: {slow:?}");
    ensure!(consumed("written_bytes", "copy") == [Some(5_000); 3], "written: {slow:?}");
    let nested = consumed("syscalls", "outer");
    ensure!(nested.len() == 2 && nested.iter().all(|syscalls| *syscalls >= Some(6)), "nested: {slow:?}");
    ensure!(slow.calls.iter().all(|call| call.tier == tier), "tiers: {slow:?}");
    ensure!(
        calls("nap").len() == 4 && calls("nap").iter().all(|call| call.off_cpu_ns > call.on_cpu_ns),
        "off the CPU: {slow:?}"
    );
    // They have ended, and their names are those at the ends of their calls.
    ensure!(calls("nap").iter().all(|call| call.thread.starts_with("Thread-")), "names: {slow:?}");
    let waited = |call: &&SlowCallRow| call.wait.as_ref().is_some_and(|wait| Some(wait.ns) <= call.off_cpu_ns);
    ensure!(calls("nap").iter().all(waited), "waited: {slow:?}");
    target.exit()
}

/// Reads documents until one has what is wanted of it.
fn until(trace: &mut Trace, has_it: impl Fn(&Report) -> bool) -> Result<()> {
    let began = Instant::now();
    while !has_it(&trace.next_report()?) {
        ensure!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}");
    }
    Ok(())
}

/// Check that the slow calls of each JVM are its own with `--all`, in those that start later, too, and stay when it ends.
#[test]
fn of_all_jvms() -> Result<()> {
    // A thread that has slept waits for a CPU, too: on a busy machine for some tens of milliseconds, which are not to make a call slow.
    const SLOW: &str = "200ms";
    traced_on_every_jdk(|jdk| {
        let mut before = RemoteProcess::shapes(jdk)?;
        let mut trace = Trace::start_all(&["--interval", "100ms", "--slow", SLOW, "targets.Timed::*"])?;
        let mut later = RemoteProcess::shapes(jdk)?;
        let pids = [before.pid(), later.pid()];
        // Both have loaded their library and bound the method by then.
        before.self_timed("sleep", 1, MS)?;
        later.self_timed("sleep", 1, MS)?;
        let natives = |report: &Report, pid| {
            let target = report.targets.iter().find(|target| target.pid == pid);
            target.and_then(|target| Some(target.functions.as_ref()?.timed)).unwrap_or(0)
        };
        until(&mut trace, |report| {
            let [of_one, of_other] = pids.map(|pid| natives(report, pid));
            of_one > 0 && of_one == of_other && pids.iter().all(|pid| slow(report, *pid).is_ok())
        })?;
        before.self_timed("sleep", 2, 250 * MS)?;
        later.self_timed("sleep", 3, 300 * MS)?;
        later.exit()?;
        until(&mut trace, |report| report.targets.iter().any(|target| target.pid == pids[1] && target.ended))?;
        let report = trace.finish()?;
        for (pid, calls) in [(pids[0], 2), (pids[1], 3)] {
            let slow = slow(&report, pid)?;
            // What one has called that ends at once is not known any more when it is looked at.
            let is_known = |call: &SlowCallRow| pid == pids[1] || !call.callers.is_empty();
            must_sleep(&slow.calls)?;
            ensure!(
                slow.total == calls && slow.calls.len() as u64 == calls && slow.calls.iter().all(is_known),
                "process {pid}: {slow:?}, of {:?}",
                report.methods.iter().filter(|row| row.method == "sleep").collect::<Vec<_>>()
            );
        }
        before.exit()
    })
}

/// Bound, labels and time of each exemplar.
fn exemplars(metrics: &str) -> Vec<[String; 3]> {
    let of_line = |line: &str| {
        let (bucket, exemplar) = line.split_once(" # {")?;
        let (labels, numbers) = exemplar.split_once("} ")?;
        let bound = bucket.rsplit_once("le=\"")?.1.split('"').next()?;
        Some([bound, labels, numbers.split(' ').next()?].map(str::to_owned))
    };
    metrics.lines().filter_map(of_line).collect()
}

/// Check that a service logs slow calls with what is known of them, not more than it may at once, and that those that it left out
/// are counted: together they are all that were made. The metrics have the slowest of them as exemplars, in the format for that alone.
#[test]
fn logged_by_a_service() -> Result<()> {
    const CALLS: u64 = 100;
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let log = directory.path().join("slow.json");
        let mut target = RemoteProcess::shapes(jdk)?;
        let file = log.to_str().context("a path in UTF-8")?;
        let wanted = ["--slow", SLOW, "--slow-log", file, "--max-overhead", "off", "--jvm", "targets.Shapes"];
        let serve = Serve::start(&[&wanted[..], &["targets.Timed::sleep"]].concat())?;
        target.self_timed("sleep", u32::try_from(CALLS)?, 11 * MS)?;
        // Those that come now are not slow.
        serve.ctl_succeeds(&["slow", "targets.Timed::*=1h"])?;
        target.self_timed("sleep", 10, 11 * MS)?;
        let began = Instant::now();
        let exemplars = loop {
            // What is logged is read a moment after it has ended.
            let exemplars = exemplars(&serve.scrape(OPEN_METRICS)?);
            ensure!(began.elapsed() < PATIENCE, "no exemplars within {PATIENCE:?}");
            if !exemplars.is_empty() {
                break exemplars;
            }
        };
        ensure!(self::exemplars(&serve.scrape(TEXT)?).is_empty(), "{exemplars:?}");
        for [bound, labels, seconds] in exemplars {
            let known = labels.starts_with("thread=\"") && labels.contains(",caller=\"targets.Shapes::timed:");
            let seconds = seconds.parse::<f64>()?;
            ensure!(known && (0.01..bound.parse()?).contains(&seconds), "{bound} {labels} {seconds}");
        }
        serve.finish()?;
        let text = std::fs::read_to_string(&log)?;
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let (calls, ends): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| line["time_ns"].is_u64());
        let dropped: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
        ensure!(calls.len() as u64 + dropped == CALLS && dropped > 0 && ends.len() == 1, "{text}");
        let mut slow = Vec::new();
        for line in calls {
            let call: SlowCallRow = serde_json::from_value(line.clone())?;
            ensure!(call.time_ns >= 10 * MS && call.off_cpu_ns >= Some(10 * MS), "{line}");
            ensure!(line["pid"] == target.pid() && line["main"] == "targets.Shapes", "{line}");
            slow.push(call);
        }
        must_sleep(&slow)?;
        target.exit()
    })
}

/// What is said of the arguments and the result of each call of a method, once its references could be followed.
fn arguments_of(slow: &SlowCallRows, method: &str, signature: &str) -> Option<Value> {
    let calls = slow.calls.iter().filter(|call| (&*call.method, &*call.signature) == (method, signature));
    let mut known = calls.filter_map(|call| call.arguments.clone());
    // Of these methods only this one is an object's.
    let is_whole = |arguments: &Value| method != "twice" || !arguments["this"].is_null();
    known.find(|known| is_whole(known) && !known.to_string().contains(r#""unknown":"heap""#))
}

/// Calls natives of many shapes until what is said of the arguments of one is complete: the programs are told how to follow references
/// while the first calls are made. Only that one is traced, or its slowest call might be quicker than fifty of the others. Most calls of a
/// stub take no time beyond its own.
fn with_arguments(jdk: &Jdk, options: &[&str], [method, signature]: [&str; 2]) -> Result<Value> {
    let mut target = RemoteProcess::shapes(jdk)?;
    let pattern = format!("targets.Plain::{method}{signature}");
    let natives_of = ["--interval", "100ms", "--slow", "1ns", "--max-overhead", "off", &pattern];
    let mut trace = Trace::start(target.pid(), &[options, &natives_of].concat())?;
    let began = Instant::now();
    let known = loop {
        for shape in ["static", "instance", "overloaded", "arguments"] {
            target.run(&format!("calls {shape} 1 100"))?;
        }
        let report = trace.next_report()?;
        let slow_calls = slow(&report, target.pid()).ok();
        if let Some(known) = slow_calls.and_then(|slow| arguments_of(slow, method, signature)) {
            let is_of_tier = |call: &SlowCallRow| options.contains(&&*call.tier);
            ensure!(slow_calls.is_some_and(|slow| slow.calls.iter().all(is_of_tier)), "{report:?}");
            break known;
        }
        ensure!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {:?}", slow(&report, target.pid())?);
    };
    trace.finish()?.must_be_lossless()?;
    target.exit()?;
    Ok(known)
}

const MANY: &str = "(IJFDBSCZIJFDLjava/lang/Object;I)D";
const OVER: &str = "(Ljava/lang/String;[I)I";

/// Check that arguments and results are those that were passed, in registers and on the stack, with classes and lengths of objects,
/// and that floating-point numbers, which nobody can read, are not made up; and that contents are shown only where asked for. Whether
/// probes have timed the calls or stubs.
#[test]
fn what_calls_were_made_with() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        ["kernel", "stub"].into_iter().try_for_each(|tier| made_with(jdk, tier).with_context(|| format!("by {tier}")))
    })
}

fn made_with(jdk: &Jdk, tier: &str) -> Result<()> {
    let number = |declared: &str, value: i64| json!({"type": declared, "value": value});
    let float = |declared: &str| json!({"type": declared, "unknown": "float-register"});
    let options = ["--args", "--tier", tier];
    let natives = [["add", "(II)I"], ["twice", "(J)J"], ["many", MANY], ["over", OVER]];
    let known = natives.map(|native| with_arguments(jdk, &options, native));
    let known = known.into_iter().collect::<Result<Vec<_>>>()?;
    let [add, twice, many, over] = &known[..] else { bail!("{known:?}") };
    ensure!(add["arguments"] == json!([number("int", 1), number("int", 2)]), "{add}");
    ensure!(add["result"] == number("int", 3) && add["this"].is_null(), "{add}");
    ensure!(twice["arguments"] == json!([number("long", 21)]) && twice["result"] == number("long", 42), "{twice}");
    ensure!(twice["this"] == json!({"class": "targets.Plain"}), "{twice}");
    let object = json!({"type": "java.lang.Object", "class": "targets.Crowd$Tally"});
    let expected = json!([
        number("int", 1), number("long", 2), float("float"), float("double"), number("byte", 5), number("short", 6),
        number("char", 7), {"type": "boolean", "value": true}, number("int", 9), number("long", 10), float("float"),
        float("double"), object, number("int", 14)
    ]);
    ensure!(many["arguments"] == expected && many["result"] == float("double"), "{many}");
    let array = json!({"type": "int[]", "class": "int[]", "length": 1});
    let text = json!({"type": "java.lang.String", "class": "java.lang.String"});
    ensure!(over["arguments"] == json!([text, array]) && over["result"] == number("int", 4), "{over}");
    let shown = with_arguments(jdk, &[&options[..], &["--arg-contents"]].concat(), natives[3])?;
    let text = &shown["arguments"][0];
    ensure!(text["contents"] == "one" && text["has_more"] == false, "{shown:?}");
    Ok(())
}
