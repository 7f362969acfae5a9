//! The two text formats. They share the lines of samples; names and comments differ.

use prometheus_client::metrics::MetricType;

use super::number::{push_seconds, push_whole};
use crate::export::durations::{CLASSIC, Durations};
use crate::export::exposition::Exposition;
use crate::export::families::Family;
use crate::export::series::{Series, Value};

/// A bucket's label and the braces around all labels, its value and the end of the line.
const REST_OF_LINE: usize = "{,le=\"0.001048576\"} ".len() + 22;

/// Writes the text format of Prometheus.
pub(in crate::export) fn text(exposition: &Exposition) -> Vec<u8> {
    let mut out = Vec::with_capacity(size(exposition));
    for (family, series) in exposition.families() {
        let (name, suffix, kind) = (family.name, family.suffix(), family.kind.as_str());
        push_all(&mut out, &["# HELP ", name, suffix, " ", &escaped_help(family.help, false), "\n"]);
        push_all(&mut out, &["# TYPE ", name, suffix, " ", kind, "\n"]);
        push_series(&mut out, family, series);
    }
    out
}

/// Writes OpenMetrics: names of families without the ending of their samples, units, and a line that says that all has
/// arrived.
pub(in crate::export) fn open_metrics(exposition: &Exposition) -> Vec<u8> {
    let mut out = Vec::with_capacity(size(exposition));
    for (family, series) in exposition.families() {
        let (name, kind) = (family.name, family.kind.as_str());
        push_all(&mut out, &["# TYPE ", name, " ", kind, "\n"]);
        if !family.unit.is_empty() {
            push_all(&mut out, &["# UNIT ", name, " ", family.unit, "\n"]);
        }
        push_all(&mut out, &["# HELP ", name, " ", &escaped_help(family.help, true), "\n"]);
        push_series(&mut out, family, series);
    }
    push_all(&mut out, &["# EOF\n"]);
    out
}

/// How many bytes all will have, and a little more: growing step by step would copy them several times.
fn size(exposition: &Exposition) -> usize {
    let of_family = |(family, series): (&Family, &[Series])| {
        let lines = if matches!(family.kind, MetricType::Histogram) { CLASSIC.len() + 3 } else { 1 };
        let line = family.name.len() + "_bucket".len() + REST_OF_LINE;
        let head = 3 * family.name.len() + family.help.len() + 64;
        head + series.iter().map(|series| lines * (line + series.labels.text().len())).sum::<usize>()
    };
    exposition.families().map(of_family).sum::<usize>() + 64
}

fn push_series(out: &mut Vec<u8>, family: &Family, all: &[Series]) {
    for series in all {
        let labels = series.labels.text();
        match &series.value {
            Value::Whole(n) => {
                push_name(out, family.name, family.suffix(), labels);
                push_whole(out, *n);
            }
            Value::Nanoseconds(ns) => {
                push_name(out, family.name, family.suffix(), labels);
                push_seconds(out, *ns);
            }
            Value::Share(share) => {
                push_name(out, family.name, family.suffix(), labels);
                out.extend_from_slice(share.to_string().as_bytes());
            }
            Value::Durations(durations) => {
                push_durations(out, family.name, labels, durations);
            }
        }
        out.push(b'\n');
    }
}

/// Writes buckets, sum and count, without the end of the last line.
fn push_durations(out: &mut Vec<u8>, name: &str, labels: &str, durations: &Durations) {
    let count = durations.count();
    let comma = if labels.is_empty() { "" } else { "," };
    let bounds = CLASSIC.iter().map(|(_, le)| *le).zip(durations.cumulative());
    for (le, n) in bounds.chain([("+Inf", count)]) {
        push_all(out, &[name, "_bucket{", labels, comma, "le=\"", le, "\"} "]);
        push_whole(out, n);
        out.push(b'\n');
    }
    push_name(out, name, "_sum", labels);
    push_seconds(out, durations.sum_ns);
    out.push(b'\n');
    push_name(out, name, "_count", labels);
    push_whole(out, count);
}

/// Writes what stands before the value.
fn push_name(out: &mut Vec<u8>, name: &str, suffix: &str, labels: &str) {
    let (open, close) = if labels.is_empty() { ("", " ") } else { ("{", "} ") };
    push_all(out, &[name, suffix, open, labels, close]);
}

fn push_all(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
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
        let text = String::from_utf8(samples::everything().encode(Format::Text)).unwrap();
        samples::assert_golden("metrics.txt", include_str!("golden/metrics.txt"), &text);
    }

    /// Check the same in OpenMetrics.
    #[test]
    fn open_metrics_of_everything() {
        let text = String::from_utf8(samples::everything().encode(Format::OpenMetrics)).unwrap();
        samples::assert_golden("metrics.openmetrics", include_str!("golden/metrics.openmetrics"), &text);
    }

    /// Check that help is escaped as each format wants it.
    #[test]
    fn help_is_escaped() {
        assert_eq!(super::escaped_help("a \"b\"\n\\", false), "a \"b\"\\n\\\\");
        assert_eq!(super::escaped_help("a \"b\"\n\\", true), "a \\\"b\\\"\\n\\\\");
    }

    /// Check that the reckoned size is enough, so that nothing is copied, and not wasteful.
    #[test]
    fn size_is_enough() {
        let everything = samples::everything();
        let size = super::size(&everything);
        for format in [Format::Text, Format::OpenMetrics] {
            let written = everything.encode(format).len();
            assert!((written..written * 2).contains(&size), "{written} bytes in {size}");
        }
    }
}
