//! How long the largest answer to a scrape takes to be written, and what memory that needs: by nprof, and by a registry of
//! the crate `prometheus-client` with the same series of methods.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod collector;
mod jvms;

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use nprof::export::{Exporter, Format, Origin};
use nprof::push::Bodies;
use nprof_tests::bars::median;
use nprof_tests::usage::{Usage, megabytes};
use prometheus_client::encoding::{prometheus_protobuf, text};

use self::jvms::{JVMS, METHODS};

/// How often each is written.
const ROUNDS: usize = 20;
/// Says which writer a process measures.
const ONLY: &str = "--only";

/// Writes all series once.
type Writer = Box<dyn Fn() -> Result<Vec<u8>>>;

/// Makes the series and who writes them.
type Make = fn() -> Writer;

/// The writers by name.
const WRITERS: [(&str, Make); 6] = [
    ("nprof, text 0.0.4", || own(Format::Text)),
    ("nprof, OpenMetrics", || own(Format::OpenMetrics)),
    ("nprof, Protobuf", || own(Format::Protobuf)),
    ("nprof, OTLP, compressed", otlp),
    ("the crate, OpenMetrics", crate_text),
    ("the crate, Protobuf", crate_protobuf),
];

fn main() -> Result<()> {
    // Of one writer alone? Cargo adds its own flag.
    if let Some(name) = env::args().skip_while(|argument| argument != ONLY).nth(1) {
        let (name, writer) = WRITERS.iter().find(|(known, _)| *known == name).context("no such writer")?;
        return measure(name, &writer());
    }
    same_series()?;
    println!("## {JVMS} JVMs with {METHODS} methods each, written by\n");
    println!("| writer | MB | ms, the middle of {ROUNDS} | MB of memory at most |\n| --- | --- | --- | --- |");
    for (name, _) in WRITERS {
        // Each in a separate process: memory that one has freed would be the next one's for nothing.
        let status = Command::new(env::current_exe()?).args([ONLY, name]).status()?;
        ensure!(status.success(), "{name}: {status}");
    }
    println!();
    Ok(())
}

/// Checks that nprof and the crate write as many series of methods.
fn same_series() -> Result<()> {
    let [own, others] = [own(Format::OpenMetrics), crate_text()].map(|write| {
        let text = write()?;
        anyhow::Ok(text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"nprof_native_call")).count())
    });
    let (own, others) = (own?, others?);
    ensure!(own == others && own > 0, "{own} series are compared with {others}");
    Ok(())
}

/// Prints a row.
fn measure(name: &str, write: &Writer) -> Result<()> {
    let own = process::id();
    // This resets the peak of resident memory.
    fs::write("/proc/self/clear_refs", "5")?;
    let before = Usage::of(own)?.resident;
    let size = write()?.len();
    let memory = Usage::of(own)?.peak.saturating_sub(before);
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        write()?;
        Ok(1e3 * began.elapsed().as_secs_f64())
    });
    let middle = median(times.collect::<Result<Vec<f64>>>()?);
    println!("| {name} | {:.1} | {middle:.1} | {:.1} |", megabytes(size as u64), megabytes(memory));
    Ok(())
}

/// What a scrape of nprof takes once its series are added up.
fn own(format: Format) -> Writer {
    let exposition = Exporter::new(jvms::limits()).collect(&jvms::measured(), &jvms::host(), Instant::now());
    Box::new(move || {
        let mut out = Vec::new();
        exposition.write(format, &mut out)?;
        Ok(out)
    })
}

/// What a push takes.
fn otlp() -> Writer {
    let exposition = Exporter::new(jvms::limits()).collect(&jvms::measured(), &jvms::host(), Instant::now());
    Box::new(move || {
        let mut bodies = Bodies::default();
        exposition.otlp(&Origin::here(), Timestamp::now(), |request, points| bodies.push(request, points));
        Ok(bodies.gzipped().concat())
    })
}

fn crate_text() -> Writer {
    let registry = collector::registry(&Arc::new(jvms::measured()));
    Box::new(move || {
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out.into_bytes())
    })
}

fn crate_protobuf() -> Writer {
    let registry = collector::registry(&Arc::new(jvms::measured()));
    Box::new(move || Ok(prometheus_protobuf::encode_to_vec(&registry)?))
}
