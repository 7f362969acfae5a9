//! Tasks that one thread hands to another: the invocations of both are linked, each with the right one, and what is not known is not linked.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, ensure};
use nprof_tests::child::{Child, Stream};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use serde_json::Value;

const SUBMIT: &str = "targets.Handing::submit";
const WORK: &str = "targets.Handing::work";

/// The ways in which tasks are known again.
const LINKED: [&str; 13] = [
    "lambda",
    "runnable",
    "callable",
    "all",
    "scheduled",
    "supplied",
    "run",
    "stage",
    "composed",
    "forkjoin",
    "thread",
    "own",
    "forked",
];
/// Those that there are since virtual threads are.
const VIRTUAL: [&str; 2] = ["virtual", "pertask"];
const THREADS: u64 = 3;
const ROUNDS: u64 = 4;

fn follow(target: &RemoteProcess, entries: &[&str], format: &str, invocations: u64) -> Result<Child> {
    let (pid, count) = (target.pid().to_string(), invocations.to_string());
    let args = ["--package", "targets.**", "--max-overhead", "off", "--format", format, "-n", &count];
    let mut child = spawn(&[&["tree", "--pid", &pid], entries, &args].concat())?;
    child.line_with_prefix(Stream::Stderr, "following ")?;
    Ok(child)
}

/// The trees of submitting in these ways and of what was submitted. So many of each round are submitted where nobody looks.
fn trees(jdk: &Jdk, options: &[&str], ways: &[&str], unseen: u64) -> Result<Vec<Value>> {
    let mut target = RemoteProcess::handing(jdk, options)?;
    let each_round = 2 * (ways.len() as u64 - u64::from(unseen > 0)) + unseen;
    let child = follow(&target, &[SUBMIT, WORK], "json", THREADS * ROUNDS * each_round)?;
    target.run(&format!("hand {THREADS} {ROUNDS} {}", ways.join(",")))?;
    let done = outcome(child)?;
    ensure!(done.code == Some(0), "{:?}: {}", done.code, done.stderr);
    let mut lines = done.stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Value>>>()?;
    let last = lines.pop().context("nothing was printed")?;
    ensure!(last["summary"]["losses"].as_object().is_some_and(|losses| losses.values().all(|of| *of == 0)), "{last}");
    target.exit()?;
    Ok(lines)
}

fn by_number(trees: &[Value]) -> HashMap<u64, &Value> {
    trees.iter().filter_map(|tree| Some((tree["number"].as_u64()?, tree))).collect()
}

/// How often it has marked: submitting and what was submitted do so equally often, and no others.
fn marks(tree: &Value) -> u64 {
    let children = tree["root"]["children"].as_array().into_iter().flatten();
    children.filter(|child| child["method"] == "mark").filter_map(|child| child["calls"].as_u64()).sum()
}

/// Check that what was submitted is linked with who submitted it, and the other way round.
fn must_be_linked(trees: &[Value], ways: &[&str]) -> Result<()> {
    let numbers = by_number(trees);
    ensure!(numbers.len() == trees.len(), "{} numbers of {} trees", numbers.len(), trees.len());
    let (submits, works): (Vec<&Value>, Vec<&Value>) = trees.iter().partition(|tree| tree["entry"] == SUBMIT);
    ensure!(submits.len() == works.len(), "{} and {}", submits.len(), works.len());
    let mut came: BTreeMap<u64, u64> = BTreeMap::new();
    for work in works {
        let by = &work["submitted_by"];
        let submitter = by["invocation"].as_u64().with_context(|| format!("it is not linked: {work}"))?;
        let submit = numbers.get(&submitter).with_context(|| format!("nobody has this number: {work}"))?;
        ensure!(marks(submit) == marks(work), "{work}, submitted by {submit}");
        ensure!(
            ["submit", "joined"].iter().any(|method| by["method"] == *method)
                && by["tid"] == submit["tid"]
                && by["virtual"] == submit["virtual"],
            "{work}, {submit}"
        );
        ensure!(by["before_ns"].as_u64() <= submit["total_ns"].as_u64(), "{work}, {submit}");
        let by_thread = ["thread", "own", "virtual"].iter().any(|way| ways.contains(way));
        ensure!(by["by"] == "task" || by_thread, "{work}");
        let number = work["number"].as_u64().context("a number")?;
        ensure!(came.insert(submitter, number).is_none(), "two of {submit}");
    }
    for submit in submits {
        // It has waited for the end of what it has submitted.
        let number = submit["number"].as_u64().context("a number")?;
        let root = &submit["root"];
        let nodes = root["children"].as_array().into_iter().flatten().chain([root]);
        let handed: Vec<&Value> =
            nodes.flat_map(|node| node["handed_over"]["invocations"].as_array()).flatten().collect();
        ensure!(handed == [&Value::from(came[&number])], "{submit}: {came:?}");
        ensure!(submit["submitted_by"].is_null(), "{submit}");
    }
    Ok(())
}

/// Check that tasks are linked in each way of the JDK, by itself and all at once from several threads, interpreted and compiled.
#[test]
fn each_task_has_its_submitter() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let virtual_ways = if jdk.version >= 21 { &VIRTUAL[..] } else { &[] };
        let ways = [&LINKED[..], virtual_ways].concat();
        for way in &ways {
            must_be_linked(&trees(jdk, &[], &[way], 0)?, &[way]).with_context(|| (*way).to_owned())?;
        }
        for options in [&["-Xint"][..], &["-Xcomp"]] {
            must_be_linked(&trees(jdk, options, &ways, 0)?, &ways).with_context(|| format!("{options:?}"))?;
        }
        Ok(())
    })
}

/// Check that what was submitted where nobody looks is linked with nobody, nor are objects that are executed again and again; and that what is
/// submitted in between is linked as ever.
#[test]
fn what_is_not_known_is_not_linked() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let trees = trees(jdk, &[], &["unseen", "executed", "constant", "runnable", "thread"], 2)?;
        let numbers = by_number(&trees);
        let works = trees.iter().filter(|tree| tree["entry"] == WORK);
        let linked: Vec<&Value> = works.filter(|tree| !tree["submitted_by"].is_null()).collect();
        ensure!(linked.len() as u64 == 2 * THREADS * ROUNDS, "{} are linked", linked.len());
        for work in linked {
            let submit = numbers[&work["submitted_by"]["invocation"].as_u64().context("a number")?];
            ensure!(marks(submit) == marks(work), "{work}, submitted by {submit}");
        }
        Ok(())
    })
}

/// Check what people read, the arrows of a timeline, and that the plan says what is changed in the JDK; and that nothing is changed there where
/// nothing is handed over.
#[test]
fn links_are_shown() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::handing(jdk, &[])?;
        let pid = target.pid().to_string();
        for (entry, changed) in [(SUBMIT, true), (WORK, false)] {
            let plan = run(&["tree", "--pid", &pid, entry, "--plan", "--format", "json"])?;
            let plan: Value = serde_json::from_str(&plan.stdout)?;
            let methods = plan["plan"]["for_tasks"].as_array().context("a list")?;
            let has = methods.contains(&"java.util.concurrent.FutureTask::run()V".into());
            ensure!(has == changed && methods.is_empty() != changed, "{plan}");
        }
        let child = follow(&target, &[SUBMIT, WORK], "text", 2)?;
        target.run("hand 1 1 scheduled")?;
        let text = outcome(child)?.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let number = |entry: &str| {
            let before = text.split(&format!(" {entry} took ")).next().unwrap_or_default();
            before
                .rsplit('#')
                .next()
                .and_then(|number| number.parse::<u64>().ok())
                .with_context(|| format!("{entry}: {text}"))
        };
        let (submit, work) = (number(SUBMIT)?, number(WORK)?);
        let lines =
            [format!("submitted by Handing::submit in #{submit} (thread "), format!("handed over 1 task: #{work}")];
        ensure!(lines.iter().all(|line| text.contains(line)), "{lines:?}: {text}");
        let child = follow(&target, &[SUBMIT, WORK], "perfetto", 2)?;
        target.run("hand 1 1 scheduled")?;
        let timeline: Value = serde_json::from_str(&outcome(child)?.stdout)?;
        let events = timeline["traceEvents"].as_array().context("a list")?;
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let ([from], [to]) = (&of("s")[..], &of("f")[..]) else { anyhow::bail!("not one arrow: {timeline}") };
        let calls = of("X");
        let around = |end: &Value, name: &str| {
            let number = |value: &Value| value.as_f64().unwrap_or_default();
            let is_around = |call: &&&Value| {
                let began = number(&call["ts"]);
                call["name"] == name
                    && call["tid"] == end["tid"]
                    && began <= number(&end["ts"])
                    && number(&end["ts"]) <= began + number(&call["dur"])
            };
            calls.iter().filter(is_around).count()
        };
        ensure!(from["id"] == to["id"] && to["bp"] == "e", "{from}, {to}");
        ensure!(around(from, "Handing::submit") == 1 && around(to, "Handing::work") == 1, "{timeline}");
        target.exit()
    })
}
