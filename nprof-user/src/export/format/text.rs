//! The two text formats. They share the lines of samples; names and comments differ.

use std::io::{self, Write};

use super::Format;
use super::number::{push_seconds, push_whole};
use crate::export::distribution::{By, Distribution};
use crate::export::exemplars::{self, Exemplars};
use crate::export::exposition::{AllSeries, Exposition};
use crate::export::families::Family;
use crate::export::series::Value;
use crate::model::Exemplar;

/// Writes the text format of Prometheus.
pub(in crate::export) fn text(exposition: &Exposition, out: &mut impl Write) -> io::Result<()> {
    for (family, series) in exposition.families() {
        let (name, suffix, kind) = (family.name, family.suffix(), family.kind.as_str());
        push_all(out, &["# HELP ", name, suffix, " ", &escaped_help(family.help, false), "\n"])?;
        push_all(out, &["# TYPE ", name, suffix, " ", kind, "\n"])?;
        push_series(out, family, series, Format::Text)?;
    }
    Ok(())
}

/// Writes OpenMetrics: names of families without the ending of their samples, units, and a line that says that all has
/// arrived.
pub(in crate::export) fn open_metrics(exposition: &Exposition, out: &mut impl Write) -> io::Result<()> {
    for (family, series) in exposition.families() {
        let (name, kind) = (family.name, family.kind.as_str());
        push_all(out, &["# TYPE ", name, " ", kind, "\n"])?;
        if !family.unit.is_empty() {
            push_all(out, &["# UNIT ", name, " ", family.unit, "\n"])?;
        }
        push_all(out, &["# HELP ", name, " ", &escaped_help(family.help, true), "\n"])?;
        push_series(out, family, series, Format::OpenMetrics)?;
    }
    push_all(out, &["# EOF\n"])
}

fn push_series(out: &mut impl Write, family: &Family, all: AllSeries<'_>, format: Format) -> io::Result<()> {
    for series in all.iter() {
        let labels = series.labels.text();
        if let Some(of) = series.value.distribution() {
            let exemplars = series.value.exemplars().filter(|_| format.shows_exemplars());
            push_distribution(out, (family.name, labels), of, exemplars)?;
        } else {
            push_name(out, family.name, family.suffix(), labels)?;
            push_number(out, &series.value)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn push_number(out: &mut impl Write, value: &Value) -> io::Result<()> {
    match value {
        Value::Whole(n) => push_whole(out, *n),
        Value::Difference(n) => write!(out, "{n}"),
        Value::Nanoseconds(ns) => push_seconds(out, *ns),
        Value::Share(share) => write!(out, "{share}"),
        Value::Durations(of, _) | Value::Bytes(of) => push_whole(out, of.count()),
    }
}

/// Writes buckets, sum and count, without the end of the last line.
fn push_distribution(
    out: &mut impl Write,
    (name, labels): (&str, &str),
    (by, of): (By, &Distribution),
    exemplars: Option<&Exemplars>,
) -> io::Result<()> {
    let count = of.count();
    let comma = if labels.is_empty() { "" } else { "," };
    let bounds = by.classic().iter().map(|(_, le)| *le).zip(of.cumulative(by.classic()));
    for (bucket, (le, n)) in bounds.chain([("+Inf", count)]).enumerate() {
        push_all(out, &[name, "_bucket{", labels, comma, "le=\"", le, "\"} "])?;
        push_whole(out, n)?;
        if let Some(exemplar) = exemplars.and_then(|exemplars| exemplars.of(bucket)) {
            push_exemplar(out, exemplar)?;
        }
        out.write_all(b"\n")?;
    }
    push_name(out, name, "_sum", labels)?;
    match by {
        By::Time => push_seconds(out, of.sum)?,
        By::Bytes => push_whole(out, of.sum)?,
    }
    out.write_all(b"\n")?;
    push_name(out, name, "_count", labels)?;
    push_whole(out, count)
}

/// Writes a single call behind the number of those of its bucket: who made it, how long it took, and when it ended.
fn push_exemplar(out: &mut impl Write, exemplar: &Exemplar) -> io::Result<()> {
    push_all(out, &[" # {", &exemplars::labels(exemplar), "} "])?;
    push_seconds(out, exemplar.time_ns)?;
    out.write_all(b" ")?;
    push_seconds(out, u64::try_from(exemplar.ended.as_nanosecond()).unwrap_or(0))
}

/// Writes what stands before the value.
fn push_name(out: &mut impl Write, name: &str, suffix: &str, labels: &str) -> io::Result<()> {
    let (open, close) = if labels.is_empty() { ("", " ") } else { ("{", "} ") };
    push_all(out, &[name, suffix, open, labels, close])
}

fn push_all(out: &mut impl Write, parts: &[&str]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part.as_bytes()))
}

/// A help text as the formats want it: only OpenMetrics also escapes quotes.
fn escaped_help(help: &str, quotes: bool) -> String {
    let escaped = help.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { escaped.replace('"', "\\\"") } else { escaped }
}

#[cfg(test)]
mod tests {
    use crate::export::exporter::samples;
    use crate::export::format::Format;

    /// Check the whole text for a host with one of everything.
    #[test]
    fn text_of_everything() {
        let text = String::from_utf8(samples::written(&samples::everything(), Format::Text)).unwrap();
        samples::assert_golden("metrics.txt", include_str!("golden/metrics.txt"), &text);
    }

    /// Check the same in OpenMetrics.
    #[test]
    fn open_metrics_of_everything() {
        let text = String::from_utf8(samples::written(&samples::everything(), Format::OpenMetrics)).unwrap();
        samples::assert_golden("metrics.openmetrics", include_str!("golden/metrics.openmetrics"), &text);
    }

    /// Check that help is escaped as each format wants it.
    #[test]
    fn help_is_escaped() {
        assert_eq!(super::escaped_help("a \"b\"\n\\", false), "a \"b\"\\n\\\\");
        assert_eq!(super::escaped_help("a \"b\"\n\\", true), "a \\\"b\\\"\\n\\\\");
    }
}
