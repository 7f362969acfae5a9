//! What is wrong with a program: for people, the dearest first, and as one document.

use std::io::{self, Write};

use serde::Serialize;

use super::document::Head;
use super::json::{MeasuredTarget, as_map, line, nanoseconds};
use super::notes::{cost, own_time, plural};
use super::run::{Run, Scope};
use super::{names, units, words};
use crate::model::{Certainty, CostKind, Diagnosis, Fault, FaultCost, Losses, Snapshot};

/// How many callers are shown to people.
const CALLERS: usize = 6;

/// Writes what was found, what was looked for, and what is not known.
///
/// # Errors
/// What writing to `w` gives.
pub fn text(diagnosis: &Diagnosis, snapshot: &Snapshot, w: &mut impl Write) -> io::Result<()> {
    let elapsed = units::duration(nanoseconds(snapshot.elapsed));
    match diagnosis.faults.len() as u64 {
        0 => writeln!(w, "nothing found in {elapsed}")?,
        n => writeln!(w, "{} in {elapsed}, the dearest first", plural(n, "finding"))?,
    }
    for (at, fault) in diagnosis.faults.iter().enumerate() {
        writeln!(w)?;
        for line in lines(at + 1, fault, snapshot) {
            writeln!(w, "{}", names::printable(&line))?;
        }
    }
    writeln!(w)?;
    for line in below(diagnosis, snapshot) {
        writeln!(w, "{}", names::printable(&line))?;
    }
    Ok(())
}

fn lines(number: usize, fault: &Fault, snapshot: &Snapshot) -> Vec<String> {
    let mut lines = vec![
        format!("{number}. {} [{}]", fault.method, fault.rule),
        format!("   {}", fault.what),
        format!("   costs     {}", said(fault.cost, snapshot)),
        format!("   evidence  {}", fault.evidence),
    ];
    if !fault.stack.is_empty() {
        let more = if fault.stack.len() > CALLERS { " < …" } else { "" };
        let shown: Vec<&str> = fault.stack.iter().take(CALLERS).map(String::as_str).collect();
        lines.push(format!("   called by {}{more}", shown.join(" < ")));
    }
    lines.push(format!("   advice    {}", fault.advice));
    lines
}

/// `about 12.0 ms of CPU time a second, 4.2 % of what the JVM uses`.
fn said(cost: FaultCost, snapshot: &Snapshot) -> String {
    let certainty = match cost.certainty {
        Certainty::Measured => "",
        Certainty::About => "about ",
        Certainty::AtLeast => "at least ",
        Certainty::AtMost => "at most ",
    };
    let time = units::duration(cost.ns_per_s);
    let of = match cost.kind {
        CostKind::Cpu => format!("{time} of CPU time a second{}", share(cost.ns_per_s, snapshot)),
        CostKind::Wait => format!("{time} of waiting a second (sum over threads)"),
        CostKind::Held => format!("{time} a second in which no collection can begin"),
        CostKind::Tracing => format!("{time} of CPU time a second, for tracing itself"),
    };
    format!("{certainty}{of}")
}

fn share(ns_per_s: u64, snapshot: &Snapshot) -> String {
    let own_ns = own_time(snapshot).map_or(0, nanoseconds) as f64 / snapshot.elapsed.as_secs_f64().max(1e-9);
    if own_ns > 0.0 { format!(", {} of the JVM's", units::percent(ns_per_s as f64 / own_ns)) } else { String::new() }
}

fn below(diagnosis: &Diagnosis, snapshot: &Snapshot) -> Vec<String> {
    let [natives, functions] = diagnosis.called;
    let rules: Vec<&str> = diagnosis.rules.iter().map(|(_, looks_for)| *looks_for).collect();
    let mut lines = vec![
        format!(
            "looked at: {} of {} and {} in {}",
            plural(diagnosis.calls, "call"),
            plural(natives as u64, "native method"),
            plural(functions as u64, "JNI function"),
            units::duration(nanoseconds(snapshot.elapsed))
        ),
        format!("looked for: {}", rules.join("; ")),
        format!("no finding is what costs less than {} a second", units::duration(diagnosis.least_ns_per_s)),
    ];
    lines.extend(diagnosis.unknown.iter().map(|unknown| format!("not known: {unknown}")));
    lines.extend(cost(Run::new(std::slice::from_ref(snapshot), Scope::One)));
    lines.extend(words::losses(&snapshot.losses));
    lines
}

/// Writes the same as one document on one line.
///
/// # Errors
/// What writing to `w` gives.
pub fn json(diagnosis: &Diagnosis, snapshot: &Snapshot, w: &mut impl Write) -> io::Result<()> {
    let findings = diagnosis.faults.iter().map(Finding::of).collect();
    let rules = diagnosis.rules.iter().map(|(rule, looks_for)| Rule { rule, looks_for }).collect();
    let document = Document {
        head: Head::of_measured(snapshot),
        findings,
        looked_at: LookedAt {
            calls: diagnosis.calls,
            methods: diagnosis.called[0],
            functions: diagnosis.called[1],
            least_ns_per_s: diagnosis.least_ns_per_s,
            rules,
        },
        not_known: &diagnosis.unknown,
        losses: snapshot.losses.clone(),
    };
    line(&document, w)
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<MeasuredTarget<'a>>,
    findings: Vec<Finding<'a>>,
    looked_at: LookedAt,
    not_known: &'a [String],
    #[serde(serialize_with = "as_map")]
    losses: Losses,
}

#[derive(Serialize)]
struct Finding<'a> {
    rule: &'static str,
    method: &'a str,
    cost_ns_per_s: u64,
    cost_of: &'static str,
    certainty: &'static str,
    what: &'a str,
    evidence: &'a str,
    stack: &'a [String],
    advice: &'a str,
}

#[derive(Serialize)]
struct LookedAt {
    calls: u64,
    methods: usize,
    functions: usize,
    least_ns_per_s: u64,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    looks_for: &'static str,
}

impl<'a> Finding<'a> {
    fn of(fault: &'a Fault) -> Self {
        Self {
            rule: fault.rule,
            method: &fault.method,
            cost_ns_per_s: fault.cost.ns_per_s,
            cost_of: fault.cost.kind.as_str(),
            certainty: fault.cost.certainty.as_str(),
            what: &fault.what,
            evidence: &fault.evidence,
            stack: &fault.stack,
            advice: &fault.advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::{json, text};
    use crate::model::{Certainty, CostKind, Diagnosis, Fault, FaultCost, Snapshot};
    use crate::render::samples;

    fn sample(faults: Vec<Fault>) -> (Diagnosis, Snapshot) {
        let diagnosis = Diagnosis {
            faults,
            rules: vec![("tiny-calls", "short calls"), ("small-io", "few bytes")],
            called: [3, 1],
            calls: 1_234,
            least_ns_per_s: 1_000_000,
            unknown: vec!["what nobody saw".to_owned()],
        };
        let cpu = (Some(Duration::from_secs(1)), Some(Duration::ZERO));
        (diagnosis, Snapshot { cpu: cpu.0, cost: cpu.1, ..samples::snapshot() })
    }

    fn fault() -> Fault {
        Fault {
            rule: "tiny-calls",
            method: "a.Evil\u{1b}::call".to_owned(),
            cost: FaultCost { ns_per_s: 20_000_000, kind: CostKind::Cpu, certainty: Certainty::AtLeast },
            what: "is called".to_owned(),
            evidence: "many calls".to_owned(),
            stack: (0..8).map(|n| format!("a.A::f{n}")).collect(),
            advice: "call less".to_owned(),
        }
    }

    /// Check what is said of a fault, without what commands a terminal, and below it.
    #[test]
    fn for_people() {
        let (diagnosis, snapshot) = sample(vec![fault()]);
        let mut out = Vec::new();
        text(&diagnosis, &snapshot, &mut out).unwrap();
        let expected = "\
1 finding in 2.50 s, the dearest first

1. a.Evil\\u{1b}::call [tiny-calls]
   is called
   costs     at least 20.0 ms of CPU time a second, 5 % of the JVM's
   evidence  many calls
   called by a.A::f0 < a.A::f1 < a.A::f2 < a.A::f3 < a.A::f4 < a.A::f5 < …
   advice    call less

looked at: 1,234 calls of 3 native methods and 1 JNI function in 2.50 s
looked for: short calls; few bytes
no finding is what costs less than 1.00 ms a second
not known: what nobody saw
tracing cost: ";
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("losses: none\n"), "{text}");
    }

    /// Check that nothing found is said, with what was looked at, and that the document has all of it.
    #[test]
    fn nothing_and_documents() {
        let (diagnosis, snapshot) = sample(Vec::new());
        let mut out = Vec::new();
        text(&diagnosis, &snapshot, &mut out).unwrap();
        assert!(out.starts_with(b"nothing found in 2.50 s\n\nlooked at: 1,234 calls"));
        let (diagnosis, snapshot) = sample(vec![fault()]);
        let mut out = Vec::new();
        json(&diagnosis, &snapshot, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let finding = &document["findings"][0];
        assert_eq!((&finding["rule"], &finding["method"]), (&"tiny-calls".into(), &"a.Evil\u{1b}::call".into()));
        assert_eq!((&finding["cost_ns_per_s"], &finding["certainty"]), (&20_000_000.into(), &"at-least".into()));
        assert_eq!(document["looked_at"]["rules"][1]["rule"], "small-io");
        assert_eq!(document["not_known"][0], "what nobody saw");
    }
}
