//! JNI functions with stubs in the VM's table: each call is counted, whatever its arguments, nothing that is passed or returned changes, and
//! the table is left as it was found.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::id_cache_report::IdCache;
use nprof_tests::jdk::Jdk;
use nprof_tests::jni_report::{Jni, JniCallerRow, JniFunctionRow, JniStubReport};
use nprof_tests::nprof::run;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::shim::load;
use nprof_tests::shim_peer::{COUNT, Connection, Listener, OFF, SAMPLE, TIME};

const STUBS: [&str; 4] = ["--tier", "stub", "--format", "json"];
const TYPES: [&str; 10] = ["Object", "Boolean", "Byte", "Char", "Short", "Int", "Long", "Float", "Double", "Void"];
/// So often functions may be called by the JDK itself that its own natives use, meanwhile.
const BY_THE_JDK: u64 = 500;
/// `GetVersion`, `CallDoubleMethod` and its twin, in the table.
const VERSION: u32 = 4;
const DOUBLE: u32 = 58;
const DOUBLE_LISTED: u32 = 59;

/// The functions that call methods and constructors.
fn calling() -> Vec<String> {
    let forms = |name: String| ["", "V", "A"].map(|form| format!("{name}{form}"));
    let methods =
        ["", "Nonvirtual", "Static"].into_iter().flat_map(|kind| TYPES.map(|of| format!("Call{kind}{of}Method")));
    methods.chain(["NewObject".to_owned()]).flat_map(forms).collect()
}

/// The functions that read and write fields.
fn fields() -> Vec<String> {
    let of = |of: &str| {
        ["Get", "Set"]
            .into_iter()
            .flat_map(move |does| [format!("{does}{of}Field"), format!("{does}Static{of}Field")])
            .collect()
    };
    TYPES[..9].iter().flat_map(|name| -> Vec<String> { of(name) }).collect()
}

/// Has it done in some threads as often, which must go right.
fn does(target: &mut RemoteProcess, what: &str, threads: u64, rounds: u64) -> Result<()> {
    let answer = target.run(&format!("{what} {threads} {rounds}"))?;
    // With -Xcheck:jni the VM speaks as well.
    ensure!(answer.iter().any(|line| line == "wrong 0"), "{what}: {:?}", answer.last());
    Ok(())
}

fn number(target: &mut RemoteProcess, command: &str) -> Result<u64> {
    let answer = target.run(command)?;
    answer.iter().rev().find_map(|line| line.parse().ok()).with_context(|| format!("{command}: {answer:?}"))
}

fn finish(jni: Jni) -> Result<JniStubReport> {
    let text = jni.text()?;
    let report: JniStubReport =
        serde_json::from_str(&text).with_context(|| format!("not a document of the contract: {text}"))?;
    let lost: Vec<_> = report.losses.iter().filter(|(_, lost)| **lost > 0).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    ensure!(report.tier == "stub" && report.not_seen.is_empty(), "{report:?}");
    let untold = report.methods.is_none() && report.references.is_none() && report.look_ups.is_none();
    ensure!(untold && report.exceptions.is_none(), "what stubs do not know: {report:?}");
    Ok(report)
}

/// Checks that functions were called so often, and by the JDK besides if it calls them.
fn must_be_called<'a>(
    rows: &BTreeMap<String, JniFunctionRow>,
    functions: impl IntoIterator<Item = &'a str>,
    calls: u64,
) -> Result<()> {
    for function in functions {
        let row = rows.get(function).with_context(|| format!("no row of {function}"))?;
        let is_the_jdks =
            ["GetIntField", "SetIntField", "GetLongField", "SetLongField", "GetObjectField"].contains(&function);
        let more = row.calls.checked_sub(calls).with_context(|| format!("{function}: {row:?}, not {calls}"))?;
        ensure!(more == 0 || is_the_jdks && more <= BY_THE_JDK, "{function}: {row:?}, not {calls}");
        ensure!(row.counted == 0 && row.in_flight == 0, "{function}: {row:?}");
        ensure!(
            row.self_ns.is_some_and(|own| own <= row.total_ns && row.on_cpu_ns <= Some(own)),
            "{function}: {row:?}"
        );
    }
    Ok(())
}

/// Check the counts of all functions that call methods, of all that read and write fields, those that no probe sees included, and of some
/// others; and that arguments by the dozen and results are what they were, from one and several threads, however the JVM runs.
#[test]
fn every_call_is_counted_and_right() -> Result<()> {
    const OTHERS: [&str; 7] = [
        "NewWeakGlobalRef",
        "DeleteWeakGlobalRef",
        "NewDoubleArray",
        "SetDoubleArrayRegion",
        "GetDoubleArrayRegion",
        "MonitorEnter",
        "MonitorExit",
    ];
    traced_on_every_jdk(|jdk| {
        for (options, threads, rounds) in
            [(&[][..], 1, 300), (&[], 3, 300), (&["-Xint"], 3, 40), (&["-Xcheck:jni"], 2, 3), (&["-XX:+UseZGC"], 2, 40)]
        {
            let mut target = RemoteProcess::functions(jdk, options)?;
            let jni = Jni::start(target.pid(), &STUBS)?;
            ensure!(number(&mut target, "replaced")? == 229, "not all functions have stubs");
            for what in ["calls", "fields", "others"] {
                does(&mut target, what, threads, rounds)?;
            }
            let report = finish(jni).with_context(|| format!("{options:?}"))?;
            let calls = threads * rounds;
            must_be_called(&report.functions, calling().iter().map(String::as_str), calls)
                .with_context(|| format!("{options:?}"))?;
            must_be_called(&report.functions, fields().iter().map(String::as_str), calls)?;
            must_be_called(&report.functions, OTHERS, calls)?;
            ensure!(!report.partial && number(&mut target, "replaced")? == 0);
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that it is told who has called a function, about as often as each has, what no Java method has called included; also of
/// functions with any number of arguments.
#[test]
fn callers_are_estimated() -> Result<()> {
    // Of each round, with a call of `call`, which calls `leaf`.
    const BY_LEAF: u64 = 3;
    const BY_CALL: u64 = 2;
    const ROUNDS: u64 = 6_000_000;
    const OUTSIDE: u64 = 15_000 * 2_000;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &[])?;
        let jni = Jni::start(target.pid(), &STUBS)?;
        target.run(&format!("ask call 2 {} 0", ROUNDS / 2))?;
        target.run("ask outside 1 15000 2000")?;
        target.run("ask callEach 2 300000 3")?;
        let report = finish(jni)?;
        let version = &report.functions["GetVersion"];
        ensure!(version.calls == (BY_LEAF + BY_CALL) * ROUNDS + OUTSIDE, "{version:?}");
        let callers: Vec<_> = report.callers.iter().filter(|caller| caller.function == "GetVersion").collect();
        let told = || format!("{callers:?}, {} lost", report.callers_lost);
        for (method, calls) in [(Some("leaf"), BY_LEAF * ROUNDS), (Some("call"), BY_CALL * ROUNDS), (None, OUTSIDE)] {
            let is_it = |caller: &&&JniCallerRow| caller.method.as_deref() == method;
            let caller = callers.iter().find(is_it).with_context(|| format!("no {method:?}: {}", told()))?;
            ensure!(method.is_none() || caller.class.as_deref() == Some("targets.Asking"), "{caller:?}");
            // More than twice the error is seen once in ten thousand times; calls that begin suddenly are not sampled as others at first.
            let allowed = 2 * caller.calls_error + version.calls / 10;
            ensure!(caller.calls.abs_diff(calls) <= allowed, "{method:?} {calls}: {}", told());
            ensure!(caller.samples > 20, "{}", told());
        }
        ensure!(callers.len() == 3, "{}", told());
        let is_listed =
            |caller: &&JniCallerRow| ["CallIntMethod", "CallNonvirtualIntMethod"].contains(&&*caller.function);
        let mut listed = report.callers.iter().filter(is_listed).peekable();
        ensure!(listed.peek().is_some(), "of none of its functions with any number of arguments: {:?}", report.callers);
        ensure!(listed.all(|caller| caller.method.as_deref() == Some("callEach")), "{:?}", report.callers);
        target.exit()
    })
}

/// Check that calls within calls are counted at each depth, and that the time of those within is not the outer ones' own.
#[test]
fn calls_within_calls() -> Result<()> {
    const DEPTH: u64 = 200;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::functions(jdk, &[])?;
        let jni = Jni::start(target.pid(), &STUBS)?;
        target.run(&format!("nested {DEPTH}"))?;
        let report = finish(jni)?;
        must_be_called(&report.functions, ["CallStaticVoidMethod"], DEPTH)?;
        must_be_called(&report.functions, ["GetVersion"], DEPTH + 1)?;
        let outer = &report.functions["CallStaticVoidMethod"];
        ensure!(outer.self_ns.is_some_and(|own| own < outer.total_ns / 2), "{outer:?}");
        target.exit()
    })
}

/// Check that the table is as it was when nprof has ended or has been killed, and that threads that call all the while notice nothing.
#[test]
fn the_table_is_put_back() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::functions(jdk, &[])?;
        let pid = target.pid();
        for kills in [false, true] {
            std::thread::scope(|scope| {
                let calls = scope.spawn(|| does(&mut target, "calls", 2, 20_000));
                for _ in 0..3 {
                    let jni = Jni::start(pid, &STUBS)?;
                    if kills { jni.kill()? } else { drop(finish(jni)?) }
                }
                calls.join().unwrap_or_else(|_| anyhow::bail!("the calls were not made"))
            })?;
            let deadline = Instant::now() + PATIENCE;
            while number(&mut target, "replaced")? > 0 {
                ensure!(kills && Instant::now() < deadline, "the table is not put back");
            }
            does(&mut target, "calls", 1, 10)?;
        }
        target.exit()
    })
}

/// Check that another agent's functions are called for each call, whether they came before or later, that what it does not let be timed is
/// counted and said, and that neither order of their leaving harms the other.
#[test]
fn other_agents() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::functions(jdk, &[])?;
        comes_before(&mut target)?;
        comes_later(&mut target)?;
        target.exit()
    })
}

/// Asks once for the version, and calls each of the other functions, of which one more is the agent's.
fn both(target: &mut RemoteProcess) -> Result<u64> {
    let before = number(target, "wrapped")?;
    does(target, "calls", 1, 5)?;
    target.run("nested 0")?;
    Ok(number(target, "wrapped")? - before)
}

fn comes_before(target: &mut RemoteProcess) -> Result<()> {
    target.run("wrap true")?;
    let jni = Jni::start(target.pid(), &STUBS)?;
    ensure!(both(target)? == 6, "the agent's functions were not called");
    let report = finish(jni)?;
    must_be_called(&report.functions, ["GetVersion"], 1)?;
    let untimed = &report.functions["CallDoubleMethod"];
    ensure!((untimed.calls, untimed.counted) == (5, 5) && report.partial, "{untimed:?}");
    must_be_called(&report.functions, ["CallIntMethod", "CallDoubleMethodV", "CallNonvirtualDoubleMethod"], 5)?;
    ensure!(number(target, "replaced")? == 2, "the agent's functions are gone");
    target.run("wrap false")?;
    ensure!(number(target, "replaced")? == 0);
    Ok(())
}

fn comes_later(target: &mut RemoteProcess) -> Result<()> {
    let jni = Jni::start(target.pid(), &STUBS)?;
    target.run("wrap true")?;
    ensure!(both(target)? == 6, "the agent's functions were not called");
    let report = finish(jni)?;
    must_be_called(&report.functions, ["GetVersion"], 1)?;
    // The agent makes the one of the other.
    must_be_called(&report.functions, ["CallDoubleMethodV"], 10)?;
    ensure!(number(target, "replaced")? == 2, "the agent's functions are gone");
    ensure!(both(target)? == 6);
    // Ours are behind the agent's by now: they count from there, and are left there again.
    let jni = Jni::start(target.pid(), &STUBS)?;
    ensure!(both(target)? == 6);
    must_be_called(&finish(jni)?.functions, ["GetVersion"], 1)?;
    // The agent puts ours back, which only pass on what they are called for, until the next nprof takes them away.
    target.run("wrap false")?;
    does(target, "calls", 1, 5)?;
    let jni = Jni::start(target.pid(), &STUBS)?;
    does(target, "calls", 1, 5)?;
    must_be_called(&finish(jni)?.functions, ["CallDoubleMethod", "CallDoubleMethodV"], 5)?;
    ensure!(number(target, "replaced")? == 0);
    Ok(())
}

/// Check what a stub does in each mode, and that it changes while functions are called; that one that is not watched any more is out of the
/// table, and all are when nprof goes without a word.
#[test]
fn modes() -> Result<()> {
    const CALLS: u64 = 2_000;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::functions(jdk, &[])?;
        let mut connection = connect(jdk, &target)?;
        let functions = [VERSION, DOUBLE, DOUBLE_LISTED];
        let mut before = (0, 0);
        for (mode, counted, timed) in
            [(OFF, 0.0, 0.0), (COUNT, 1.0, 0.0), (SAMPLE, 0.5, 0.5), (TIME, 0.0, 1.0), (OFF, 0.0, 0.0)]
        {
            functions.iter().try_for_each(|place| connection.watch_function(*place, mode))?;
            let applied = connection.apply()?;
            ensure!((applied.stubbed, applied.failed) == (3, 0), "{applied:?}");
            ensure!(number(&mut target, "replaced")? == 3);
            does(&mut target, "calls", 1, CALLS)?;
            let record = connection.function_record(DOUBLE)?;
            let listed = connection.function_record(DOUBLE_LISTED)?;
            ensure!(record.entered == record.ended && listed.entered == listed.ended, "{record:?}, {listed:?}");
            ensure!(record.counted + record.entered == listed.counted + listed.entered, "{record:?}, {listed:?}");
            let [was_counted, was_timed] = [record.counted - before.0, record.entered - before.1];
            let is = |calls: u64, part: f64| (calls as f64 - part * CALLS as f64).abs() < 0.02 * CALLS as f64;
            ensure!(is(was_counted, counted) && is(was_timed, timed), "{mode:?}: {record:?}");
            ensure!(was_counted + was_timed == if mode == OFF { 0 } else { CALLS }, "{mode:?}: {record:?}");
            before = (record.counted, record.entered);
        }
        ensure!(connection.function_record(VERSION)?.counted == 0);
        connection.unwatch_function(DOUBLE)?;
        ensure!(connection.apply()?.restored == 1 && number(&mut target, "replaced")? == 2);
        connection.die()?;
        let deadline = Instant::now() + PATIENCE;
        while number(&mut target, "replaced")? > 0 {
            ensure!(Instant::now() < deadline, "the table is not put back");
        }
        target.exit()
    })
}

fn connect(jdk: &Jdk, target: &RemoteProcess) -> Result<Connection> {
    let listener = Listener::new()?;
    load(jdk, target.pid(), &listener.option())?;
    let mut connection = listener.accept()?;
    connection.welcome(Connection::usual_welcome(64, 4))?;
    Ok(connection)
}

/// Check that what stubs do not tell is refused in words that say who does, and that nobody takes the shim away from who keeps ids.
#[test]
fn what_stubs_do_not_tell() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::functions(jdk, &[])?;
        let pid = target.pid().to_string();
        let refused = |more: &[&str], why: &str| -> Result<()> {
            let refused = run(&[&["jni", "--pid", &pid, "--tier", "stub"], more].concat())?;
            ensure!(refused.code == Some(2) && refused.stderr.contains(why), "{more:?}: {refused:?}");
            Ok(())
        };
        for (more, what) in [
            (&["targets.*"][..], "chosen native methods"),
            (&["--by", "java"], "--by java"),
            (&["--leaks"], "--leaks"),
            (&["--tree"], "--tree"),
        ] {
            refused(more, what)?;
            refused(more, "leave out `--tier stub`")?;
        }
        let cache = IdCache::start(target.pid())?;
        refused(&[], "another nprof uses the shim")?;
        ensure!(number(&mut target, "replaced")? == 4);
        let kept = cache.finish()?;
        ensure!(kept.functions_behind_others == 0, "{kept:?}");
        // And after that, both in turn.
        let jni = Jni::start(target.pid(), &STUBS)?;
        does(&mut target, "calls", 1, 5)?;
        must_be_called(&finish(jni)?.functions, calling().iter().map(String::as_str), 5)?;
        ensure!(number(&mut target, "replaced")? == 0);
        target.exit()
    })
}
