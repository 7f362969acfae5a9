//! Writes all records to a file: for tests, until nprof maps them.
//!
//! Lines of words with tabs between them: `sharding NAME`, `unwatched N`, `note TEXT`, and for each method
//! `method CLASS NAME SIGNATURE COUNTED ENTERED ENDED TOTAL_NS MAX_NS INDEX:COUNT…`. The last line is `end`.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use nprof_common::MethodStats;

use crate::agent::Agent;
use crate::jvmti::MethodName;

/// Writes the file beside its place and moves it there when it is whole.
pub(crate) fn write(agent: &Agent, file: &Path) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".part");
    let mut out = BufWriter::new(fs::File::create(&beside)?);
    writeln!(out, "sharding\t{}", agent.sharding.name())?;
    writeln!(out, "unwatched\t{}", agent.methods.unwatched())?;
    for note in agent.notes() {
        writeln!(out, "note\t{}", note.replace(['\n', '\t'], " "))?;
    }
    for (name, stats) in agent.methods.sums() {
        write_method(&mut out, &name, &stats)?;
    }
    writeln!(out, "end")?;
    out.into_inner()?;
    fs::rename(beside, file)
}

fn write_method(out: &mut impl Write, name: &MethodName, stats: &MethodStats) -> io::Result<()> {
    let ended: u64 = stats.histogram.iter().sum();
    let MethodStats { counted, entered, total_ns, max_ns, .. } = stats;
    write!(out, "method\t{}\t{counted}\t{entered}\t{ended}\t{total_ns}\t{max_ns}\t", name)?;
    let filled = stats.histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets: Vec<String> = filled.map(|(bucket, count)| format!("{bucket}:{count}")).collect();
    writeln!(out, "{}", buckets.join(" "))
}
