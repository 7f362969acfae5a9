//! What a live recording is written as can be read by readers that are not ours.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use libdd_profiling_protobuf::prost_impls::Profile as Pprof;
use nprof_tests::nprof::run;
use nprof_tests::require::traced_on_every_jdk;
use prost::Message as _;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;
use tempfile::TempDir;

use crate::callers::{COUNTED, Callers, Recording, function, read};

/// Natives that call back, work and sleep, one after the other.
const WHEEL: &str = "outer:4,callBackTwice:2,nap1:1,direct:4,recursion40:2 2 3000 60000";

/// A recording in every format, by the ending of its file.
struct Written(TempDir);

impl Written {
    fn new(target: &mut Callers) -> Result<Self> {
        let directory = TempDir::new()?;
        let recording =
            Recording::start(target.pid(), &[&COUNTED[..], &["--timeline", "--max-stacks", "5000"]].concat())?;
        target.run(&format!("go {WHEEL}"))?;
        let recorded = recording.finish_file()?;
        for ending in ["svg", "folded", "pb.gz", "speedscope.json", "trace.json", "nprof"] {
            let (from, to) = (recorded.file(), directory.path().join(format!("f.{ending}")));
            let [from, to] = [&from, &to].map(|path| path.to_str().unwrap_or_default());
            // By time, natives that do next to nothing are too narrow to be drawn.
            let weight = if ending == "svg" { "calls" } else { "time" };
            let run = run(&["flamegraph", from, "--weight", weight, "-o", to])?;
            ensure!(run.code == Some(0), "{ending}: {run:?}");
        }
        Ok(Self(directory))
    }

    fn bytes(&self, ending: &str) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.0.path().join(format!("f.{ending}")))?)
    }

    fn json(&self, ending: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.bytes(ending)?)?)
    }
}

/// Check that each format of one recording opens, and that they agree on the sums.
#[test]
fn every_format_opens() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::start(jdk, &[])?;
        let written = Written::new(&mut target)?;
        let profile = read(&written.0.path().join("f.nprof"))?;
        let total_ns: u64 = profile.functions.iter().map(|function| function.self_ns).sum();
        let calls: u64 = profile.functions.iter().map(|function| function.calls).sum();
        let folded = String::from_utf8(written.bytes("folded")?)?;
        xml_is_well_formed(&written.bytes("svg")?)
            .with_context(|| format!("svg of {:?}:\n{folded}", profile.quality))?;
        let values = folded.lines().map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?));
        ensure!(values.sum::<Result<u64>>()? == total_ns, "folded");
        let sums = pprof_sums(&written.bytes("pb.gz")?)?;
        ensure!(
            sums.first() == Some(&calls) && sums.get(1) == Some(&total_ns),
            "{sums:?}: {calls} calls, {total_ns} ns"
        );
        speedscope_adds_up(&written.json("speedscope.json")?, total_ns).context("speedscope")?;
        let events = complete_events(&written.json("trace.json")?)?;
        ensure!(events as u64 == calls, "{events} events of {calls} calls: {:?}", profile.quality);
        ensure!(function(&profile, "callBack")?.calls > 0);
        target.exit()
    })
}

fn xml_is_well_formed(bytes: &[u8]) -> Result<()> {
    let (mut reader, mut open, mut boxes) = (Reader::from_reader(bytes), 0_i32, 0);
    let mut buffer = Vec::new();
    loop {
        match reader.read_event_into(&mut buffer)? {
            Event::Start(_) => open += 1,
            Event::End(_) => open -= 1,
            Event::Empty(tag) if tag.name().as_ref() == b"rect" => boxes += 1,
            Event::Eof => break,
            _ => {}
        }
        buffer.clear();
    }
    ensure!(open == 0 && boxes > 40, "{open} tags are open, {boxes} boxes");
    Ok(())
}

fn pprof_sums(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain)?;
    let profile = Pprof::decode(plain.as_slice())?;
    let mut sums = vec![0; profile.sample_types.len()];
    for sample in &profile.samples {
        for (sum, value) in sums.iter_mut().zip(&sample.values) {
            *sum += u64::try_from(*value)?;
        }
    }
    Ok(sums)
}

fn speedscope_adds_up(document: &Value, total_ns: u64) -> Result<()> {
    let frames = document["shared"]["frames"].as_array().context("frames")?.len() as u64;
    let profiles = document["profiles"].as_array().context("profiles")?;
    let mut sums = Vec::new();
    for profile in profiles {
        let (samples, weights) = (profile["samples"].as_array(), profile["weights"].as_array());
        let (samples, weights) = (samples.context("samples")?, weights.context("weights")?);
        ensure!(samples.len() == weights.len());
        let indices = samples.iter().filter_map(Value::as_array).flatten();
        ensure!(indices.map(Value::as_u64).all(|index| index.is_some_and(|index| index < frames)));
        sums.push(weights.iter().filter_map(Value::as_u64).sum::<u64>());
    }
    ensure!(sums.contains(&total_ns), "{sums:?} instead of {total_ns}");
    Ok(())
}

/// The number of calls in a timeline. Those of a thread have to lie beside or within each other.
fn complete_events(document: &Value) -> Result<usize> {
    let events = document["traceEvents"].as_array().context("traceEvents")?;
    let mut by_thread: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (start, duration) = (event["ts"].as_f64().context("ts")?, event["dur"].as_f64().context("dur")?);
        by_thread.entry(event["tid"].as_u64().context("tid")?).or_default().push((start, start + duration));
    }
    for calls in by_thread.values_mut() {
        calls.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for (start, end) in calls {
            // Numbers of JSON are floats here: half a nanosecond.
            open.retain(|until| *until > *start + 0.000_5);
            ensure!(open.iter().all(|until| *end <= *until + 0.000_5), "a call ends after the one that it lies in");
            open.push(*end);
        }
    }
    ensure!(by_thread.len() == 2, "{} threads instead of two", by_thread.len());
    Ok(by_thread.values().map(Vec::len).sum())
}
