//! What natives make and do not let go is found to the unit, whatever else is made and let go meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::jni_report::{Jni, JniReport, LeakRow, LocalsOfRow, LocalsRow};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

const JSON: [&str; 4] = ["--format", "json", "--leaks", "targets.Asking"];
const THREADS: u64 = 6;
/// How often each thread makes one of each kind, in one call.
const MADE: u64 = 4_000;
/// What each of these calls keeps, the class of what it was made of, and how many elements that has.
const KEPT: [(&str, &str, u64, &str, u64); 4] = [
    ("global", "NewGlobalRef", 20, "targets.Asking$Other", 0),
    ("weak", "NewWeakGlobalRef", 10, "targets.Asking$Other", 0),
    ("utf", "GetStringUTFChars", 40, "java.lang.String", 0),
    ("elements", "GetIntArrayElements", 8, "int[]", 8),
];

/// Whether the classes are known of all that is held: with collectors that stop the program, if none did while an object was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Classes {
    Known,
    Unknown,
}

/// Has threads leak, and others make as much and keep nothing.
fn leaked(jdk: &Jdk, options: &[&str]) -> Result<JniReport> {
    let mut target = RemoteProcess::asking(jdk, options)?;
    let jni = Jni::start(target.pid(), &JSON)?;
    target.run(&format!("ask leak {THREADS} 1 {MADE}"))?;
    target.run(&format!("ask leakNothing {THREADS} 1 {MADE}"))?;
    let report = jni.finish()?;
    target.exit()?;
    let lost: Vec<_> = report.losses.iter().filter(|(_, lost)| **lost > 0).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(report)
}

/// Check what was kept: each kind in as many as were planted, by this native method and this function, of this class, and that made and
/// let go add up.
fn must_hold(report: &JniReport, classes: Classes) -> Result<()> {
    let leaks = report.leaks.as_ref().context("no leaks")?;
    let of_leak = leaks.iter().filter(|leak| leak.method.as_deref() == Some("targets.Asking::leak"));
    let mut found: BTreeMap<(&str, &str, Option<&str>), (u64, u64)> = BTreeMap::new();
    for leak in of_leak {
        ensure!(leak.youngest_ns <= leak.oldest_ns && leak.oldest_ns < report.elapsed_ns, "{leak:?}");
        let function = leak.function.as_deref().context("no function")?;
        found.insert((&leak.kind, function, leak.class.as_deref()), (leak.count, leak.elements));
    }
    let expected = KEPT.map(|(kind, function, each, class, elements)| {
        let (class, elements) = if classes == Classes::Known { (Some(class), elements) } else { (None, 0) };
        ((kind, function, class), (each * THREADS, elements * each * THREADS))
    });
    ensure!(found == BTreeMap::from(expected), "{found:?}, not {expected:?}");
    for (kind, _, each, ..) in KEPT {
        let row = report.references[kind];
        ensure!(row.live >= Some(each * THREADS) && row.exact == Some(true), "{kind}: {row:?}");
        let before = row.made_before.context("not told")?;
        ensure!(row.made == row.released - before + row.live.unwrap_or(0), "{kind}: {row:?}");
    }
    let critical = report.references["critical"];
    ensure!(critical.live == Some(0) && critical.made >= 4 * MADE * THREADS, "{critical:?}");
    Ok(())
}

/// Check the planted numbers with tens of thousands of releases in between, among them nested critical holds, copies back and nulls.
#[test]
fn planted_leaks() -> Result<()> {
    traced_on_every_jdk(|jdk| must_hold(&leaked(jdk, &["-XX:+UseSerialGC"])?, Classes::Known))
}

/// Check the same where the VM interprets, and where it checks, whose functions are others.
#[test]
fn interpreted_and_checked() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        must_hold(&leaked(jdk, &["-Xint"])?, Classes::Known)?;
        must_hold(&leaked(jdk, &["-Xcheck:jni", "-XX:+UseParallelGC"])?, Classes::Known)
    })
}

/// Check the same with a collector whose handles are no addresses: everything but the classes.
#[test]
fn without_addresses() -> Result<()> {
    traced_on_every_jdk(|jdk| must_hold(&leaked(jdk, &["-XX:+UseZGC"])?, Classes::Unknown))
}

/// How often the native is called by each of two ways, and how many it keeps of each kind with each call.
const CALLS: u64 = 400;
const KEPT_AT_ONCE: u64 = 8;

/// Check that of each kind both ways are found by which Java has come to make it, with all methods of each and in as many as there are
/// stacks; that a way which was taken for nothing that is held is not there; and that no more stacks are told of than there are things.
#[test]
fn from_where_in_java() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for options in [&["-XX:+UseSerialGC"], &["-Xint"], &["-XX:+UseZGC"]] {
            let mut target = RemoteProcess::asking(jdk, options)?;
            let jni = Jni::start(target.pid(), &JSON)?;
            target.run(&format!("ask leakNothing 1 {CALLS} {KEPT_AT_ONCE}"))?;
            target.run(&format!("ask leakOneWay 1 {CALLS} {KEPT_AT_ONCE}"))?;
            target.run(&format!("ask leakAnother 1 {CALLS} {KEPT_AT_ONCE}"))?;
            let report = jni.finish()?;
            target.exit()?;
            let leaks = report.leaks.context("no leaks")?;
            let of_leak: Vec<_> =
                leaks.iter().filter(|leak| leak.method.as_deref() == Some("targets.Asking::leak")).collect();
            ensure!(of_leak.len() == KEPT.len(), "{options:?}: {of_leak:?}");
            for leak in of_leak {
                both_ways(leak).with_context(|| format!("{options:?}: {leak:?}"))?;
            }
        }
        Ok(())
    })
}

fn both_ways(leak: &LeakRow) -> Result<()> {
    let names = |frames: &[String]| -> Vec<String> {
        let name = |frame: &String| frame.rsplit_once(':').map_or(frame.clone(), |(name, _line)| name.to_owned());
        frames.iter().map(name).take_while(|name| !name.contains("lambda")).collect()
    };
    let found: BTreeSet<Vec<String>> = leak.stacks.iter().map(|stack| names(&stack.frames)).collect();
    let way = |methods: &[&str]| -> Vec<String> {
        methods.iter().map(|method| format!("targets.Asking::{method}")).collect()
    };
    let expected = BTreeSet::from([way(&["oneWay", "once"]), way(&["further", "another", "once"])]);
    ensure!(found == expected, "{found:?}");
    ensure!(
        leak.stacks.iter().all(|stack| stack.frames.iter().any(|frame| frame.starts_with("java.lang.Thread::run")))
    );
    ensure!(leak.count == 2 * CALLS * KEPT_AT_ONCE && leak.stacks_taken <= leak.count);
    ensure!(leak.stacks.iter().map(|stack| stack.seen).sum::<u64>() == leak.stacks_taken);
    ensure!(leak.stack == leak.stacks[0].frames && leak.stacks.is_sorted_by(|a, b| a.seen >= b.seen));
    Ok(())
}

/// Check that what was made before is told apart when it is let go, and that what is not old enough is not shown, but counted.
#[test]
fn born_before_and_too_young() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &[])?;
        target.run("ask keep 1 1 0")?;
        let jni = Jni::start(target.pid(), &[&JSON[..], &["--older-than", "1h"]].concat())?;
        // Lets it go, and makes another one.
        target.run("ask keep 1 2 0")?;
        let report = jni.finish()?;
        target.exit()?;
        let global = report.references["global"];
        ensure!(global.made_before >= Some(1) && global.live >= Some(1), "{global:?}");
        let uses = &report.method(Some("keep"))?.jni;
        ensure!(uses["NewGlobalRef"].calls == 1 && uses["DeleteGlobalRef"].calls == 1, "{uses:?}");
        ensure!(report.leaks.as_ref().is_some_and(Vec::is_empty), "{:?}", report.leaks);
        Ok(())
    })
}

/// Check that calls are told to the unit that hold more local references at once than there is room for, whichever function makes them, with
/// the most: not those that hold as many as there is room for, by frame, or that are given, or let go, or that belong to another native method.
/// With the VM that checks fewer, or it warns.
#[test]
fn local_references() -> Result<()> {
    const ROUNDS: u64 = 40;
    const KINDS: u64 = 5;
    traced_on_every_jdk(|jdk| {
        for (options, held) in [(&[][..], 40), (&["-Xint"], 1_000), (&["-Xcheck:jni"], 20), (&["-XX:+UseZGC"], 33)] {
            let mut target = RemoteProcess::asking(jdk, options)?;
            let jni = Jni::start(target.pid(), &JSON)?;
            target.run(&format!("ask locals {THREADS} {ROUNDS} {held}"))?;
            let report = jni.finish()?;
            target.exit()?;
            let lost: Vec<_> = report.losses.iter().filter(|(_, lost)| **lost > 0).collect();
            ensure!(lost.is_empty(), "{options:?}: {lost:?}");
            // Besides the calls that Java makes again.
            ensure!(report.method(Some("within"))?.calls == Some((KINDS + 2) * THREADS * ROUNDS), "{options:?}");
            let calls = KINDS * THREADS * ROUNDS;
            let expected = locals(&[("beyond", "(Ljava/lang/Object;II)V", calls, held)]);
            ensure!(report.locals_beyond.as_ref() == Some(&expected), "{options:?}: {:?}", report.locals_beyond);
        }
        Ok(())
    })
}

/// What is told of these native methods: name, signature, calls and the most.
fn locals(methods: &[(&str, &str, u64, u64)]) -> LocalsRow {
    let row = |&(method, signature, calls, most): &(&str, &str, u64, u64)| LocalsOfRow {
        class: Some("targets.Asking".to_owned()),
        method: Some(method.to_owned()),
        signature: Some(signature.to_owned()),
        calls,
        most,
    };
    LocalsRow {
        calls: methods.iter().map(|row| row.2).sum(),
        most: methods.iter().map(|row| row.3).max().unwrap_or(0),
        exact: true,
        methods: methods.iter().map(row).collect(),
    }
}

/// Check that a call is told that does not return, such as a loop in native code: it is there that references pile up.
#[test]
fn local_references_of_a_call_that_goes_on() -> Result<()> {
    const HELD: u64 = 100;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &[])?;
        let jni = Jni::start(target.pid(), &JSON)?;
        target.run(&format!("stay {HELD}"))?;
        let report = jni.finish()?;
        target.exit()?;
        let expected = locals(&[("stay", "(Ljava/lang/Object;I)V", 1, HELD)]);
        ensure!(report.locals_beyond.as_ref() == Some(&expected), "{:?}", report.locals_beyond);
        Ok(())
    })
}

/// Check the table.
#[test]
fn table() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::asking(jdk, &["-XX:+UseSerialGC"])?;
        let jni = Jni::start(target.pid(), &["--leaks", "targets.Asking"])?;
        target.run(&format!("ask leak 1 1 {MADE}"))?;
        target.run("ask locals 1 2 40")?;
        let text = jni.text()?;
        let row = |kept: &str, what: &str| {
            let mut lines = text.lines().map(str::trim_start);
            lines.any(|line| line.starts_with(kept) && line.contains(what) && line.contains("targets.Asking::leak, "))
        };
        ensure!(
            row("20 ", "global: targets.Asking$Other") && row("8 ", "elements of arrays: int[] (64 in all)"),
            "{text}"
        );
        let called = |line: &str| line.contains(" stacks: called by targets.Asking::once:");
        ensure!(text.lines().any(called) && text.contains("stacks: of "), "{text}");
        let locals = "\nlocal references beyond the capacity of their frame: in 10 calls, the most 40 at once: 10 with up to 40 in \
                      targets.Asking::beyond\n";
        ensure!(text.contains(locals), "{text}");
        ensure!(text.contains("made and not let go: ") && text.contains("not followed: "), "{text}");
        target.exit()
    })
}
