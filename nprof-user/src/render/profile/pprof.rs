//! The gzipped protocol buffer that `go tool pprof` and its relatives read.
//!
//! Calls have the columns `calls/count`, `wall/nanoseconds` and, if measured, `off-cpu/nanoseconds`; samples by timer have
//! `samples/count` and `cpu/nanoseconds`. There is no column for self time beside `wall`: what pprof calls *flat* is it.
//! The format's numbers are signed; what is greater than they can be is written as the greatest.

mod messages;
mod otlp;
mod stacks;
mod tables;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

pub use self::otlp::otlp;

use self::messages::{Part, Sample, ValueType};
use self::stacks::Stacks;
use self::tables::Strings;
use crate::model::{About, ProfileMode, Unit, Weighed, WeighedStack, Weight};
use crate::render::json::nanoseconds;

/// Writes a profile with a column for each of `columns`. Readers show `wall` first, or the first column without it.
///
/// # Errors
/// Those of `out`.
pub fn write(about: &About, columns: &[(Weight, Weighed)], out: &mut dyn Write) -> io::Result<()> {
    let Pieces { head, samples, tables } = pieces(about, columns);
    let mut file = GzEncoder::new(out, Compression::default());
    put(&mut file, &head)?;
    for sample in samples {
        put(&mut file, &Part { sample: vec![sample], ..Part::default() })?;
    }
    put(&mut file, &tables)?;
    file.finish()?;
    Ok(())
}

/// A profile in the pieces that it is written in.
struct Pieces {
    head: Part,
    samples: Vec<Sample>,
    tables: Part,
}

fn pieces(about: &About, columns: &[(Weight, Weighed)]) -> Pieces {
    let columns = columns_of(about.mode, columns);
    let mut stacks = Stacks::new(&about.main, columns.len());
    let mut order: Vec<(usize, &Column<'_>)> = columns.iter().enumerate().collect();
    // Where columns disagree on what was inlined, the default one counts: it goes first.
    order.sort_by_key(|(_, column)| !column.is_default);
    for (number, column) in order {
        stacks.add(column.weighed, number, column.value);
    }
    let (samples, mut tables) = stacks.finish();
    let head = header(about, &columns, &mut tables.strings);
    Pieces { head, samples, tables: tables.finish() }
}

/// Writes a piece of the profile. Messages one after the other are one message to a reader, with all their lists joined;
/// so the encoded whole is never in memory.
fn put(file: &mut impl Write, part: &Part) -> io::Result<()> {
    file.write_all(&part.encode_to_vec())
}

/// One number of each sample.
struct Column<'a> {
    kind: &'static str,
    unit: &'static str,
    weighed: &'a Weighed,
    value: fn(&WeighedStack) -> u64,
    /// Whether it is what readers show unless told otherwise.
    is_default: bool,
}

/// The columns that are written, in the order of the format's convention: counts first.
fn columns_of(mode: ProfileMode, given: &[(Weight, Weighed)]) -> Vec<Column<'_>> {
    let find = |wanted| given.iter().find(|(weight, _)| *weight == wanted).map(|(_, weighed)| weighed);
    let time = find(Weight::Time);
    let own = find(Weight::SelfTime).filter(|_| time.is_none());
    let columns = match mode {
        ProfileMode::OnCpu => {
            let cpu = time.or(own);
            vec![cpu.map(samples), cpu.map(|weighed| column("cpu", weighed))]
        }
        ProfileMode::Calls => vec![
            find(Weight::Calls).map(|weighed| column("calls", weighed)),
            time.map(|weighed| column("wall", weighed)),
            own.map(|weighed| column("self", weighed)),
            find(Weight::OnCpu).map(|weighed| column("on-cpu", weighed)),
            find(Weight::OffCpu).map(|weighed| column("off-cpu", weighed)),
        ],
    };
    let mut columns: Vec<Column<'_>> = columns.into_iter().flatten().collect();
    let place = |kinds: &[&str]| columns.iter().position(|column| kinds.contains(&column.kind));
    let default = place(&["on-cpu", "cpu"]).or_else(|| place(&["wall"])).unwrap_or(0);
    if let Some(column) = columns.get_mut(default) {
        column.is_default = true;
    }
    columns
}

fn column<'a>(kind: &'static str, weighed: &'a Weighed) -> Column<'a> {
    let unit = match weighed.unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Calls => "count",
    };
    Column { kind, unit, weighed, value: |stack| stack.value, is_default: false }
}

/// How many samples each stack rests on.
fn samples(weighed: &Weighed) -> Column<'_> {
    Column { kind: "samples", unit: "count", weighed, value: |stack| stack.samples, is_default: false }
}

/// Everything about the profile as a whole.
fn header(about: &About, columns: &[Column<'_>], strings: &mut Strings) -> Part {
    let (period_kind, period_unit, period) = match about.mode {
        ProfileMode::OnCpu => ("cpu", "nanoseconds", about.period_ns.unwrap_or(0)),
        // Every call is counted.
        ProfileMode::Calls => ("calls", "count", 1),
    };
    let comment = format!("nprof {}: {} (pid {}) on {}, {}", about.nprof, about.main, about.pid, about.host, about.vm);
    let default = columns.iter().find(|column| column.is_default);
    Part {
        sample_type: columns.iter().map(|column| value_type(column.kind, column.unit, strings)).collect(),
        time_nanos: i64::try_from(about.started.as_nanosecond()).unwrap_or_default(),
        duration_nanos: signed(nanoseconds(about.elapsed)),
        period_type: Some(value_type(period_kind, period_unit, strings)),
        period: signed(period),
        comment: vec![strings.of(&comment)],
        default_sample_type: default.map_or(0, |column| strings.of(column.kind)),
        ..Part::default()
    }
}

fn value_type(kind: &str, unit: &str, strings: &mut Strings) -> ValueType {
    ValueType { kind: strings.of(kind), unit: strings.of(unit) }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
