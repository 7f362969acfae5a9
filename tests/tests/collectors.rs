//! What calls consume is what the target knows that it has consumed, to the unit, whoever counts it.

use std::collections::BTreeMap;

use ::nprof::model::{BytesPerCall, Histogram, Profile};
use anyhow::{Context, Result, ensure};
use nprof_common::Counter;
use nprof_tests::child::Stream;
use nprof_tests::nprof::{self, Outcome, Trace};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{BytesRow, Row};
use nprof_tests::require::{on_kernel, say, traced_on_every_jdk};
use nprof_tests::serve::{Serve, UNGOVERNED};
use nprof_tests::stolen::Stolen;

use rustix::process::Signal;
use serde_json::Value;

use crate::callers::Recording;

/// Everything that can be collected.
const ALL: &str = "faults,switches,io,disk,net,syscalls,locks,mapped,alloc";
const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
const PAGE: u64 = 4096;
const CALLS: u64 = THREADS * ROUNDS;
/// Who counts: probes, and then stubs.
const TIERS: [&str; 2] = ["kernel", "stub"];

type Numbers = BTreeMap<String, u64>;

/// What one call of a native consumes that is told to consume so much.
type OfOne<'a> = (&'a str, u64, &'a [(&'a str, u64)]);

/// What each native consumes.
const EACH: [OfOne<'_>; 7] = [
    (
        "touch",
        33,
        &[("faults", 33), ("major_faults", 0), ("syscalls", 3), ("read_bytes", 0), ("mapped_bytes", 33 * PAGE)],
    ),
    ("call", 7, &[("syscalls", 7), ("faults", 0), ("lock_waits", 0), ("sent_bytes", 0), ("alloc_bytes", 0)]),
    ("map", 5, &[("mapped_bytes", 15 * PAGE), ("syscalls", 3), ("allocations", 0)]),
    ("allocate", 5_000, &[("alloc_bytes", 8 * 5_000), ("allocations", 7), ("read_bytes", 0)]),
    ("copy", 5_000, &[("read_bytes", 5_000), ("written_bytes", 5_000), ("syscalls", 2), ("sent_bytes", 0)]),
    ("talk", 3_000, &[("sent_bytes", 3_000), ("received_bytes", 3_000), ("read_bytes", 0)]),
    ("lock", 3, &[("lock_waits", 3), ("syscalls", 6), ("disk_read_bytes", 0), ("disk_written_bytes", 0)]),
];

/// What a target has said: switches in naps, nanoseconds of work.
type Said = [u64; 2];

fn said(lines: &[String]) -> Result<Said> {
    let number = |word: &str| -> Result<u64> {
        let line = lines.iter().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("nothing of {word}"))?.parse()?)
    };
    Ok([number("switches")?, number("ran")?])
}

/// Has a native called, `amount` each time, by several threads. Returns its row, and what the target has said.
fn consumed(target: &mut RemoteProcess, tier: &str, what: &str, amount: u64) -> Result<(Row, Said)> {
    let command = format!("consume {what} {THREADS} {ROUNDS} {amount}");
    // What is done once in a process is done now: functions are bound, libraries' pages are there.
    let before = said(&target.run(&command)?)?;
    let options = ["--tier", tier, "--max-overhead", "off", "--collect", ALL, "targets.Consuming"];
    let trace = Trace::start(target.pid(), &options)?;
    let after = said(&target.run(&command)?)?;
    let report = trace.finish()?;
    report.must_be_lossless()?;
    let row = report.methods.into_iter().find(|row| row.method == what).with_context(|| format!("no row of {what}"))?;
    ensure!(row.calls == CALLS && row.tier == tier, "{row:?}");
    Ok((row, [after[0] - before[0], after[1] - before[1]]))
}

/// The numbers of a row, of these names.
fn must_be(numbers: Option<&Numbers>, expected: &[(&str, u64)]) -> Result<()> {
    let numbers = numbers.context("nothing was collected")?;
    for (name, number) in expected {
        ensure!(numbers.get(*name) == Some(number), "{name} should be {number}: {numbers:?}");
    }
    Ok(())
}

/// Check that page faults, system calls, bytes, and waits for locks are those of the native, with several threads at once:
/// the probes' own system calls and what is only looked at are no part of them.
#[test]
fn everything_to_the_unit() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        for (tier, (what, amount, of_one)) in TIERS.into_iter().flat_map(|tier| EACH.map(|of| (tier, of))) {
            let (row, _) = consumed(&mut target, tier, what, amount)?;
            let expected: Vec<(&str, u64)> = of_one.iter().map(|(name, number)| (*name, number * CALLS)).collect();
            must_be(row.collected.as_ref(), &expected).with_context(|| format!("{what} by {tier}"))?;
            ensure!(row.collected == row.collected_total, "{row:?}");
        }
        target.exit()
    })
}

/// What `nprof tree` collects.
const IN_TREES: &str = "faults,switches,io,disk,net,syscalls,locks,mapped";

/// Check that each invocation of a Java method that calls a native has what that consumed, to the unit: at the native, and in all of it.
#[test]
fn invocations_have_their_own() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        // What the VM does in a method's name is its own as well: code that has just been compiled is first used there.
        let mut target = RemoteProcess::consuming_with(jdk, &["-Xint"])?;
        for (what, amount, of_one) in EACH.into_iter().filter(|(what, ..)| *what != "allocate") {
            let trees = trees(&mut target, what, amount)?;
            ensure!(trees.len() as u64 == CALLS, "{what}: {} invocations", trees.len());
            let mut with_more_faults = 0;
            for tree in &trees {
                let native = &tree["root"]["children"][0];
                ensure!(native["method"] == what && native["kind"] == "native", "{tree}");
                let [all, own] = ["collected_total", "collected"].map(|which| &tree["root"][which]);
                for (name, number) in of_one.iter().filter(|(name, _)| !name.starts_with("alloc")) {
                    let found = |of: &Value| of[*name].as_u64().with_context(|| format!("no {name}: {tree}"));
                    let of_native = found(&native["collected"])?;
                    // What tells may touch a page of a thread's stack that nothing has touched before, until it has read the counters.
                    let has_more = *name == "faults" && of_native > *number;
                    with_more_faults += u64::from(has_more);
                    ensure!(has_more || of_native == *number, "{what}: {name} should be {number}: {tree}");
                    ensure!(found(&native["collected_total"])? == of_native, "{what}: {name}: {tree}");
                    ensure!(found(all)? == of_native + found(own)?, "{what}: {name}: {tree}");
                }
            }
            ensure!(20 * with_more_faults <= CALLS, "{what}: {with_more_faults} of {CALLS} have more faults");
        }
        target.exit()
    })
}

/// The invocations of the method that has a native called, by several threads. What is done once in a process and at a call site is done before.
fn trees(target: &mut RemoteProcess, what: &str, amount: u64) -> Result<Vec<Value>> {
    let command = format!("consume {what} {THREADS} {ROUNDS} {amount}");
    target.run(&command)?;
    let (pid, all) = (target.pid().to_string(), (2 * CALLS).to_string());
    let options =
        ["tree", "--pid", &pid, "--max-overhead", "off", "--collect", IN_TREES, "--format", "json", "-n", &all];
    let mut following = nprof::spawn(&[&options[..], &["targets.Consuming::once"]].concat())?;
    following.line_with_prefix(Stream::Stderr, "following ")?;
    target.run(&command)?;
    target.run(&command)?;
    let Outcome { code, stdout, stderr } = nprof::outcome(following)?;
    ensure!(code == Some(0), "{code:?}: {stderr:?}");
    let lines = stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Value>>>()?;
    // The last line is about all of them.
    let (_, trees) = lines.split_last().context("nothing was printed")?;
    ensure!(trees.len() as u64 == 2 * CALLS, "{} lines", trees.len());
    // In the order in which they ended; those of the second time have begun behind all others.
    Ok(trees.iter().filter(|tree| tree["number"].as_u64().is_some_and(|number| number > CALLS)).cloned().collect())
}

/// Check that everything is to the unit, page faults included, twenty times out of twenty, of a single thread and of 64 at once, and on
/// virtual threads; of all natives in one run.
#[test]
fn by_one_thread_and_by_many() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let has_virtual = jdk.version >= 21;
        let threads = [("consume", 1), ("consume", 64), ("virtually", 64)];
        let threads = threads.into_iter().filter(|(how, _)| has_virtual || *how == "consume");
        for (tier, (how, threads)) in threads.flat_map(|of| TIERS.map(|tier| (tier, of))) {
            by_threads(&mut target, tier, how, threads)
                .with_context(|| format!("{how} with {threads} threads by {tier}"))?;
        }
        target.exit()
    })
}

fn by_threads(target: &mut RemoteProcess, tier: &str, how: &str, threads: u64) -> Result<()> {
    const TIMES: u64 = 20;
    let each = EACH.iter().map(|(what, amount, of_one)| {
        (*what, *amount, of_one.iter().map(|(name, number)| (*name, number * threads * TIMES)).collect::<Vec<_>>())
    });
    let each: Vec<_> = each.collect();
    let run = |target: &mut RemoteProcess| -> Result<()> {
        each.iter()
            .try_for_each(|(what, amount, _)| target.run(&format!("{how} {what} {threads} {TIMES} {amount}")).map(drop))
    };
    // What is done once in a process is done now.
    run(target)?;
    let options = ["--tier", tier, "--max-overhead", "off", "--collect", ALL, "targets.Consuming"];
    let trace = Trace::start(target.pid(), &options)?;
    run(target)?;
    let report = trace.finish()?;
    report.must_be_lossless()?;
    for (what, _, expected) in &each {
        let row = report.methods.iter().find(|row| row.method == *what).with_context(|| format!("no row of {what}"))?;
        ensure!(row.calls == threads * TIMES && row.tier == tier, "{row:?}");
        must_be(row.collected.as_ref(), expected).with_context(|| (*what).to_owned())?;
    }
    Ok(())
}

/// Check that each call is known by the bytes that it has moved, those that have moved none included, by probes and by stubs; and that one
/// that asks an allocator seven times is one call.
#[test]
fn bytes_of_each_call() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        for tier in TIERS {
            let trace =
                Trace::start(target.pid(), &["--tier", tier, "--collect", "io,net,alloc", "targets.Consuming"])?;
            for (what, amount) in [("copy", 5_000), ("copy", 100), ("copy", 0), ("allocate", 700)] {
                target.run(&format!("consume {what} {THREADS} {ROUNDS} {amount}"))?;
            }
            let report = trace.finish()?;
            report.must_be_lossless()?;
            let row = |what: &str| report.methods.iter().find(|row| row.method == what).context("no row");
            let bytes = |what: &str, name: &str| -> Result<Option<BytesRow>> {
                row(what)?.bytes_per_call.as_ref().and_then(|of| of.get(name).cloned()).context("no such bytes")
            };
            ensure!(row("copy")?.tier == tier, "{:?}", row("copy")?);
            for name in ["read_bytes", "written_bytes"] {
                let read = bytes("copy", name)?.context("not known")?;
                // 2^(26.58/4) and 2^(49.15/4) are 100 and 5,000.
                ensure!(read.histogram.buckets == [(27, CALLS), (50, CALLS)], "{name}: {read:?}");
                ensure!((read.none, read.max, read.p50) == (CALLS, 5_000, 99), "{name}: {read:?}");
            }
            let sent = bytes("copy", "sent_bytes")?.context("not known")?;
            ensure!((sent.none, sent.max, sent.p99) == (3 * CALLS, 0, 0), "{sent:?}");
            let allocated = bytes("allocate", "alloc_bytes")?.context("not known")?;
            ensure!((allocated.none, allocated.max) == (0, 8 * 700), "{allocated:?}");
            ensure!(allocated.histogram.buckets == [(50, CALLS)], "{allocated:?}");
        }
        target.exit()
    })
}

/// Check that threads leave the CPU in a native as often as the kernel told the native itself.
#[test]
fn switches_are_the_kernels() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        for tier in TIERS {
            let (row, [voluntary, _]) = consumed(&mut target, tier, "nap", 2)?;
            let numbers = row.collected.context("nothing was collected")?;
            ensure!(
                voluntary > CALLS && numbers["switches"] - numbers["preemptions"] == voluntary,
                "{tier}: {voluntary}: {numbers:?}"
            );
        }
        target.exit()
    })
}

/// Check that stubs know how long threads ran in a native that works and sleeps: within 2 % of what the threads' own clocks say,
/// or 20 us a call, but for what a host has stolen from them. And that work and waiting are all there is.
#[test]
fn stubs_tell_work_from_waiting() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let stolen = Stolen::from_now_on()?;
        let (row, [_, ran_ns]) = consumed(&mut target, "stub", "work", 2)?;
        let stolen = stolen.share()?;
        let (on_cpu_ns, off_cpu_ns) = row.on_cpu_ns.zip(row.off_cpu_ns).with_context(|| format!("{row:?}"))?;
        let (total_ns, tolerated) = (row.total_ns.context("no time")?, (ran_ns / 50).max(20_000 * CALLS) as f64);
        say(&format!("JDK {}: {ran_ns} ns by the threads' clocks, {on_cpu_ns} found, {stolen:.3} stolen", jdk.version));
        let difference = on_cpu_ns as f64 - ran_ns as f64;
        ensure!((-tolerated..tolerated + stolen * total_ns as f64).contains(&difference), "{ran_ns} ns: {row:?}");
        ensure!(on_cpu_ns + off_cpu_ns == total_ns && row.self_ns == Some(total_ns), "{row:?}");
        target.exit()
    })
}

/// Check that a target has the rows of its threads to read, and can do nothing else with them, and that they are gone with nprof.
#[test]
fn rows_are_only_read() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let pid = target.pid();
        let mapped = || -> Result<Vec<String>> {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
            let rows = maps.lines().filter(|line| line.contains("bpf-map"));
            Ok(rows.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
        };
        let trace = Trace::start(pid, &["--tier", "stub", "targets.Consuming"])?;
        target.run("consume call 2 1 1")?;
        ensure!(mapped()? == ["r--s"], "{:?}", mapped()?);
        trace.finish()?.must_be_lossless()?;
        ensure!(mapped()?.is_empty(), "{:?}", mapped()?);
        let trace = Trace::start(pid, &["--tier", "stub", "--no-off-cpu", "targets.Consuming"])?;
        target.run("consume call 2 1 1")?;
        ensure!(mapped()?.is_empty(), "{:?}", mapped()?);
        let report = trace.finish()?;
        ensure!(report.methods.iter().all(|row| row.self_ns.is_none() && row.on_cpu_ns.is_none()), "{report:?}");
        target.exit()
    })
}

/// Check that what nested calls consumed is told apart from what a native consumed itself.
#[test]
fn nested_calls_have_their_own() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        for tier in TIERS {
            let (row, _) = consumed(&mut target, tier, "outer", 20)?;
            ensure!(row.self_ns < row.total_ns, "{row:?}");
            let (own, total) = (row.collected.context("own")?, row.collected_total.context("total")?);
            // The VM makes some of its own between the two natives.
            for (name, number) in [("faults", 20 * CALLS), ("syscalls", 3 * CALLS)] {
                ensure!(
                    total[name] - own[name] == number && own[name] >= number,
                    "{tier} {name}: {own:?} of {total:?}"
                );
            }
        }
        target.exit()
    })
}

/// Check that calls that ended with an exception, raised in the native or by Java that it called, are told from those that returned
/// something, and that what returned zero is.
#[test]
fn how_calls_ended() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let ended = |row: &Row| -> Result<[u64; 3]> {
            let numbers = row.collected.as_ref().context("nothing was collected")?;
            Ok(["zero_results", "negative_results", "exceptions"].map(|name| numbers[name]))
        };
        let mut target = RemoteProcess::shapes(jdk)?;
        for how in [
            &["--collect=results"][..],
            &["--exit-only"],
            &["--rule=targets.Throwing::**=exit"],
            &["--exit-only", "--rule=targets.Plain::**=time", "--collect=faults"],
        ] {
            let trace = Trace::start(target.pid(), &[how, &["targets.Throwing", "targets.Plain"]].concat())?;
            let mut called = target.calls("throwing", 2, 50)?;
            called.extend(target.calls("static", 2, 50)?);
            let report = trace.finish()?;
            report.must_equal(&called)?;
            for row in report.methods.iter().filter(|row| row.calls > 0) {
                let thrown = if row.class == "targets.Throwing" { row.calls } else { 0 };
                ensure!(ended(row)?[2] == thrown, "{how:?}: {row:?}");
                let is_at_exit = match how {
                    ["--collect=results"] => false,
                    ["--exit-only"] => true,
                    _ => row.class == "targets.Throwing",
                };
                ensure!((row.state == "returned") == is_at_exit, "{how:?}: {row:?}");
                let counted = if is_at_exit { row.calls } else { 0 };
                ensure!(row.counted == counted, "{how:?}: {row:?}");
            }
        }
        target.exit()?;
        let mut target = RemoteProcess::consuming(jdk)?;
        let trace = Trace::start(target.pid(), &["--collect=results", "targets.Consuming"])?;
        (0..3).try_for_each(|_| target.run("consume call 1 1 1").map(drop))?;
        let report = trace.finish()?;
        let row = report.methods.iter().find(|row| row.method == "napSwitches").context("no row")?;
        ensure!((row.calls, ended(row)?) == (3, [3, 0, 0]), "{row:?}");
        target.exit()
    })
}

/// Check that a recording and the metrics of a service have what calls consumed, to the unit, and that the metrics split the time of
/// a native that sleeps into work and waiting, of which there is more.
#[test]
fn recordings_and_metrics_have_it() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let (copy, nap) =
            (format!("consume copy {THREADS} {ROUNDS} 5000"), format!("consume nap {THREADS} {ROUNDS} 2"));
        target.run(&copy)?;
        let only = ["--jvm", "targets.Consuming", "targets.Consuming", "--collect", "io,faults"];
        let serve = Serve::start(&[&UNGOVERNED[..], &only].concat())?;
        for tier in TIERS {
            let args = ["--tier", tier, "--collect", "io", "targets.Consuming"];
            let recording = Recording::start(target.pid(), &args)?;
            target.run(&copy)?;
            target.run(&nap)?;
            must_have_bytes(&recording.finish()?).context(tier)?;
        }
        let samples = serve.samples()?;
        for name in ["read", "written"] {
            let family = format!("nprof_native_call_{name}_size_bytes");
            let of = |end: &str, le: &[(&str, &str)]| {
                samples.count(&format!("{family}_{end}"), &[&[("method", "copy")][..], le].concat())
            };
            ensure!(of("count", &[])? == 2 * CALLS && of("sum", &[])? == 2 * 5_000 * CALLS, "{name}");
            ensure!(of("bucket", &[("le", "4096")])? == 0 && of("bucket", &[("le", "16384")])? == 2 * CALLS, "{name}");
            // A nap moves nothing.
            ensure!(samples.value(&format!("{family}_count"), &[("method", "nap")])?.is_none(), "{name}");
        }
        for name in ["read_bytes", "written_bytes"] {
            let exported = samples.count(&format!("nprof_native_call_{name}_total"), &[("method", "copy")])?;
            ensure!(exported == 2 * 5_000 * CALLS, "{name}: {exported}");
        }
        let seconds = |part: &str| -> Result<f64> {
            let value = samples.value(&format!("nprof_native_call_{part}_seconds_total"), &[("method", "nap")])?;
            value.with_context(|| part.to_owned())
        };
        let (own, on_cpu, off_cpu) = (seconds("self")?, seconds("on_cpu")?, seconds("off_cpu")?);
        ensure!((own - on_cpu - off_cpu).abs() < 1e-9 && off_cpu > on_cpu, "{own} is not {on_cpu} and {off_cpu}");
        target.exit()
    })
}

/// A recording has what `copy` was called for, and that each call was for as much; and that naps moved nothing.
fn must_have_bytes(profile: &Profile) -> Result<()> {
    let recorded = profile.functions.iter().find(|function| function.method == "copy").context("no row")?;
    let consumed = recorded.consumed.as_deref().context("nothing was collected")?;
    let columns = profile.about.collectors.columns().map(|column| (column.name, column.own(consumed)));
    let columns: Vec<(&str, u64)> = columns.collect();
    ensure!(columns == [("read_bytes", 5_000 * CALLS), ("written_bytes", 5_000 * CALLS)], "{columns:?}");
    // 2^(49.15/4) is 5,000.
    let of = |counter| {
        let histogram = Histogram { buckets: vec![(50, CALLS)] };
        BytesPerCall { counter, max: 5_000, histogram }
    };
    let mut each = recorded.bytes_per_call.clone().context("not known of each call")?;
    each.sort_by_key(|bytes| bytes.counter as usize);
    ensure!(each == [Counter::ReadBytes, Counter::WrittenBytes].map(of), "{each:?}");
    let nap = profile.functions.iter().find(|function| function.method == "nap").context("no row of naps")?;
    ensure!(nap.bytes_per_call == Some(Vec::new()), "{nap:?}");
    Ok(())
}

/// Check that probes on an allocator that cost more than the budget are taken away, that this is said, and that nothing is shown of
/// what was counted until then.
#[test]
fn allocations_keep_to_the_budget() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let (pid, every) = (target.pid().to_string(), "--interval=100ms");
        let of = ["trace", "--format=json", every, "--pid", &pid, "--max-overhead=1%", "targets.Consuming"];
        let mut child = nprof::spawn(&[&of[..], &["--collect=io,alloc"]].concat())?;
        child.line_with_prefix(Stream::Stderr, nprof::ATTACHED)?;
        let mut is_shown = true;
        for _ in 0..100 {
            target.run("consume allocate 2 2000 64")?;
            let line = child.line(Stream::Stdout)?;
            is_shown = line.contains("alloc_bytes") || !line.contains("read_bytes");
            if !is_shown {
                break;
            }
        }
        ensure!(!is_shown, "calls of the allocator are still counted");
        child.signal(Signal::INT)?;
        let outcome = nprof::outcome(child)?;
        ensure!(outcome.code == Some(0) && !outcome.stdout.contains("alloc_bytes"), "{outcome:?}");
        ensure!(outcome.stderr.contains("what threads allocate was too expensive to count"), "{outcome:?}");
        target.exit()
    })
}

/// Check that nothing is said of what is not collected, and that what cannot be is an error that says why.
#[test]
fn only_what_is_wanted() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let trace = Trace::start(target.pid(), &["targets.Consuming"])?;
        target.run("consume call 1 1 1")?;
        let report = trace.finish()?;
        ensure!(report.methods.iter().all(|row| row.collected.is_none()), "{report:?}");
        let trace = Trace::start(target.pid(), &["--collect", "io", "targets.Consuming"])?;
        target.run("consume copy 1 1 10")?;
        let report = trace.finish()?;
        let row = report.methods.iter().find(|row| row.method == "copy").context("no row")?;
        let names: Vec<&str> = row.collected.iter().flatten().map(|(name, _)| name.as_str()).collect();
        ensure!(names == ["read_bytes", "written_bytes"], "{names:?}");
        target.exit()
    })?;
    on_kernel(|| {
        for (args, told) in [
            (
                ["--collect", "colour"],
                "[possible values: faults, switches, io, disk, net, syscalls, locks, mapped, alloc, results]",
            ),
            (["--collect=io", "--sort=faults"], "`--sort faults` needs that to be collected"),
            (["--collect=io", "--exit-only"], "omit `--exit-only`"),
            (["--collect=io", "--count-only"], "cannot be used with '--count-only'"),
        ] {
            let run = nprof::run(&[&["trace", "--pid", "1"][..], &args].concat())?;
            ensure!(run.code == Some(2) && run.stderr.contains(told), "{run:?}");
        }
        Ok(())
    })
}
