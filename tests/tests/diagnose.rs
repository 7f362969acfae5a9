//! What is wrong with a program is found, with what it costs, and nothing in one that has no fault.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::{Child, Stream};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{ATTACHED, Outcome, UNGOVERNED, outcome, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{say, traced_on_every_jdk};
use rustix::process::Signal;
use serde::Deserialize;

/// The rules, each with the native that it has to find, of the target if it has no class.
const PLANTED: [(&str, &str); 14] = [
    ("waiting-threads", "ask"),
    ("one-slow-call", "answer"),
    ("lock-waits", "store"),
    ("collections-held-up", "hold"),
    ("tiny-calls", "nothing"),
    ("redundant-look-ups", "lookUp"),
    ("array-copies", "copy"),
    ("small-io", "put"),
    ("exceptions", "parse"),
    ("page-faults", "fill"),
    ("system-calls", "list"),
    ("references-kept", "keep"),
    ("programs-started", "java.lang.ProcessImpl::forkAndExec"),
    ("single-stepped", "stepped"),
];
/// Some of them in the order of what they cost, which is far apart: those of a group come before those of the next.
const ORDER: [&[&str]; 4] = [
    &["waiting-threads"],
    &["one-slow-call", "lock-waits", "collections-held-up"],
    &["page-faults", "system-calls"],
    &["references-kept"],
];
const ROUNDS: u32 = 15;
const CLEAN_ROUNDS: u64 = 20_000;

/// A document.
#[derive(Debug, Deserialize)]
struct Diagnosis {
    schema: u32,
    elapsed_ns: u64,
    findings: Vec<Finding>,
    looked_at: LookedAt,
    not_known: Vec<String>,
    losses: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    rule: String,
    method: String,
    cost_ns_per_s: u64,
    cost_of: String,
    evidence: String,
    stack: Vec<String>,
    advice: String,
}

#[derive(Debug, Deserialize)]
struct LookedAt {
    calls: u64,
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    rule: String,
}

/// Its class and name.
fn method(native: &str) -> String {
    if native.contains("::") { native.to_owned() } else { format!("targets.Faulty::{native}") }
}

/// Starts it; everything is attached then.
fn start(target: &RemoteProcess, options: &[&str]) -> Result<Child> {
    let mut nprof = spawn(&[&["diagnose", "--pid", &target.pid().to_string()], options].concat())?;
    nprof.line_with_prefix(Stream::Stderr, ATTACHED)?;
    Ok(nprof)
}

/// Its end, which is a success.
fn ended(nprof: Child) -> Result<Outcome> {
    let ended = outcome(nprof)?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(ended)
}

impl Diagnosis {
    fn read(nprof: Child) -> Result<Self> {
        let text = ended(nprof)?.stdout;
        serde_json::from_str(&text).with_context(|| format!("not a document of the contract: {text}"))
    }

    /// The place of what a rule has found in a native of the target.
    fn place(&self, rule: &str, native: &str) -> Result<usize> {
        let method = method(native);
        let place = self.findings.iter().position(|found| found.rule == rule && found.method == method);
        place.with_context(|| format!("{rule} has not found {method}: {self:#?}"))
    }
}

/// Runs all faults and ends the measurement with Ctrl-C.
fn faults(target: &mut RemoteProcess) -> Result<Diagnosis> {
    let nprof = start(target, &[&UNGOVERNED[..], &["--format", "json", "--duration", "10m"]].concat())?;
    target.run(&format!("faults {ROUNDS}"))?;
    nprof.signal(Signal::INT)?;
    Diagnosis::read(nprof)
}

/// Check that each planted fault is found by its rule, with a cost, numbers and advice; that nothing else is found in these natives; and
/// that the dearest come first.
#[test]
fn planted_faults() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::faulty(jdk, &["-XX:+UseSerialGC"])?;
        let diagnosis = faults(&mut target)?;
        let costs =
            diagnosis.findings.iter().map(|found| format!("{} {:.1}", found.rule, found.cost_ns_per_s as f64 / 1e6));
        say(&format!("{jdk}: in ms a second: {}", costs.collect::<Vec<String>>().join(", ")));
        ensure!(diagnosis.schema == 1 && diagnosis.elapsed_ns > 0, "{diagnosis:?}");
        for (rule, native) in PLANTED {
            let finding = &diagnosis.findings[diagnosis.place(rule, native)?];
            ensure!(
                finding.cost_ns_per_s > 0 && !finding.evidence.is_empty() && !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
        // What the machine is busy with besides may well be found in natives of the JDK.
        let of_target = diagnosis.findings.iter().filter(|found| found.method.starts_with("targets.Faulty::"));
        let others: Vec<&Finding> = of_target.filter(|found| !is_planted(found)).collect();
        ensure!(others.is_empty(), "{others:#?}");
        ensure!(diagnosis.findings.is_sorted_by(|one, next| one.cost_ns_per_s >= next.cost_ns_per_s), "{diagnosis:#?}");
        in_order(&diagnosis)?;
        let slow = &diagnosis.findings[diagnosis.place("one-slow-call", "answer")?];
        ensure!(slow.cost_of == "wait" && slow.stack.iter().any(|frame| frame.contains("Faulty::faults")), "{slow:?}");
        ensure!(diagnosis.losses.values().all(|lost| *lost == 0), "{:?}", diagnosis.losses);
        target.exit()
    })
}

/// Whether a finding is a planted one. What is said of the probes themselves is about other methods, too.
fn is_planted(found: &Finding) -> bool {
    let is_it = |rule: &str, native: &str| found.rule == rule && found.method == method(native);
    found.rule == "single-stepped" || PLANTED.iter().any(|(rule, native)| is_it(rule, native))
}

fn in_order(diagnosis: &Diagnosis) -> Result<()> {
    let native = |rule: &str| PLANTED.iter().find(|(known, _)| *known == rule).map_or("", |(_, native)| native);
    let place = |rule: &str| diagnosis.place(rule, native(rule));
    for pair in ORDER.windows(2) {
        for (dear, cheap) in pair[0].iter().flat_map(|dear| pair[1].iter().map(move |cheap| (dear, cheap))) {
            ensure!(place(dear)? < place(cheap)?, "{dear} after {cheap}: {diagnosis:#?}");
        }
    }
    Ok(())
}

/// Check that nothing is found in a program that does its work as it should, at any cost and within the usual budget, and that this is said
/// together with what was looked at; the end of the JVM ends it.
#[test]
fn clean_program() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        // Two natives, and six functions that they call.
        let everything = clean(jdk, &UNGOVERNED)?;
        ensure!(everything.looked_at.calls >= 8 * CLEAN_ROUNDS, "{everything:?}");
        ensure!(everything.not_known.iter().all(|line| line.contains("GetBooleanField")), "{:?}", everything.not_known);
        ensure!(clean(jdk, &[])?.looked_at.calls > 0, "nothing was seen");
        Ok(())
    })
}

/// What is found in the program without faults, which is nothing.
fn clean(jdk: &Jdk, options: &[&str]) -> Result<Diagnosis> {
    let mut target = RemoteProcess::faulty(jdk, &[])?;
    let nprof = start(&target, &[options, &["--format", "json"]].concat())?;
    target.run(&format!("clean {CLEAN_ROUNDS}"))?;
    target.exit()?;
    let diagnosis = Diagnosis::read(nprof)?;
    ensure!(diagnosis.findings.is_empty(), "{:#?}", diagnosis.findings);
    let rules: Vec<&str> = diagnosis.looked_at.rules.iter().map(|rule| rule.rule.as_str()).collect();
    ensure!(PLANTED.iter().all(|(rule, _)| rules.contains(rule)) && rules.len() == PLANTED.len(), "{rules:?}");
    Ok(diagnosis)
}

/// Check that it ends after its time, says in words that nothing was found, and by what name it knows no method.
#[test]
fn in_words() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::faulty(jdk, &[])?;
        let text = ended(start(&target, &["--duration", "1s", "targets.Faulty"])?)?.stdout;
        ensure!(text.starts_with("nothing found in ") && text.contains("looked for: calls too short"), "{text}");
        ensure!(text.trim_end().ends_with("losses: none"), "{text}");
        let unmatched = outcome(spawn(&["diagnose", "--pid", &target.pid().to_string(), "targets.Faulti"])?)?;
        ensure!(unmatched.code == Some(1) && unmatched.stderr.contains("targets.Faulty"), "{unmatched:?}");
        target.exit()
    })
}
