//! How many bytes a call consumed, in documents: quantiles of the timed calls, with traced calls that they made. For JSON of runs and of
//! recordings, and for CSV.

use serde::{Serialize, Serializer};

use super::buckets::Buckets;
use super::per_call::PerCall;
use super::rows::Row;
use super::run::Run;
use crate::model::{BytesPerCall, Collectors, Column};

/// The quantiles, and what columns of CSV end with that have them.
const QUANTILES: [(f64, &str); 3] = [(0.50, "p50"), (0.90, "p90"), (0.99, "p99")];

/// What is known of each column of bytes, by its name.
pub(super) struct Columns<'a>(Vec<(&'static str, Option<OfColumn<'a>>)>);

/// What is known of one.
#[derive(Serialize)]
struct OfColumn<'a> {
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
    /// Calls that consumed none: they are in the quantiles and not in the histogram.
    none: u64,
    histogram: Buckets<'a>,
}

impl<'a> Columns<'a> {
    /// Those of a function; `None` where no bytes are collected. A column of which nothing is known is `null`.
    pub(super) fn of(collectors: Collectors, function: PerCall<'a>) -> Option<Self> {
        let columns = collectors.columns().filter(|column| column.per_call.is_some());
        let all: Vec<_> = columns.map(|column| (column.name, OfColumn::of(function, column))).collect();
        (!all.is_empty()).then_some(Self(all))
    }
}

impl<'a> OfColumn<'a> {
    fn of(function: PerCall<'a>, column: &Column) -> Option<Self> {
        const NOTHING: &crate::model::Histogram = &crate::model::Histogram { buckets: Vec::new() };
        let (found, none) = function.column(column)?;
        let [p50, p90, p99] = QUANTILES.map(|(q, _)| function.quantile(column, q));
        let histogram = Buckets::of(found.map_or(NOTHING, |of: &BytesPerCall| &of.histogram));
        Some(Self { p50: p50?, p90: p90?, p99: p99?, max: found.map_or(0, |of| of.max), none, histogram })
    }
}

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, of)| (name, of)))
    }
}

/// The columns of CSV that the bytes of single calls have, each behind a comma.
pub(super) fn csv_header(run: Run<'_>) -> String {
    let names = |column: &'static Column| {
        let words = QUANTILES.into_iter().map(|(_, word)| word).chain(["max"]);
        words.map(move |word| format!(",{}_{word}", column.name))
    };
    run.collectors().columns().filter(|column| column.per_call.is_some()).flat_map(names).collect()
}

/// Their fields, empty where nothing is known.
pub(super) fn csv_fields(run: Run<'_>, row: &Row<'_>) -> Vec<String> {
    let text = |bytes: Option<u64>| bytes.map_or_else(String::new, |bytes| bytes.to_string());
    let function = PerCall::of(row.measured);
    let fields = |column: &'static Column| {
        let max = function.column(column).map(|(found, _)| found.map_or(0, |of| of.max));
        QUANTILES.map(|(q, _)| function.quantile(column, q)).into_iter().chain([max]).map(text)
    };
    run.collectors().columns().filter(|column| column.per_call.is_some()).flat_map(fields).collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;
    use serde_json::{Value, json};

    use crate::model::{BytesPerCall, Histogram, Snapshot};
    use crate::render::grid::Screen;
    use crate::render::run::{Scope, View};
    use crate::render::{csv, json, samples, table};

    /// Two functions of which `io` is collected: one of 5 calls, 3 of which have read, the other without any.
    fn snapshot() -> Snapshot {
        let mut snapshot = samples::collected();
        let histogram = Histogram { buckets: vec![(40, 2), (48, 1)] };
        let read = BytesPerCall { counter: Counter::ReadBytes, max: 4_000, histogram };
        for row in &mut snapshot.methods {
            row.bytes_per_call = Some(Vec::new());
        }
        snapshot.methods.iter_mut().find(|row| row.calls == 5).unwrap().bytes_per_call = Some(vec![read]);
        snapshot
    }

    fn document(snapshot: &Snapshot) -> Value {
        let mut out = Vec::new();
        json::json(std::slice::from_ref(snapshot), View::from(Scope::One), &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        document["methods"].as_array().unwrap().iter().find(|row| row["calls"] == 5).unwrap()["bytes_per_call"].clone()
    }

    /// Check that calls that read nothing count as 0 bytes, that bytes of which there were none are none of all calls, and that what is
    /// not known is null: where some were consumed and no histogram had room, and where stubs have timed.
    #[test]
    fn of_each_column() {
        let mut snapshot = snapshot();
        let histogram = json!({ "schema": 2, "buckets": [[40, 2], [48, 1]] });
        let read = json!({ "p50": 940, "p90": 3_712, "p99": 3_712, "max": 4_000, "none": 2, "histogram": histogram });
        let nothing = json!({ "schema": 2, "buckets": [] });
        let written = json!({ "p50": 0, "p90": 0, "p99": 0, "max": 0, "none": 5, "histogram": nothing });
        assert_eq!(document(&snapshot), json!({ "read_bytes": read, "written_bytes": written }));
        for unknown in [Some(Vec::new()), None] {
            snapshot.methods.iter_mut().for_each(|row| row.bytes_per_call = unknown.clone());
            assert_eq!(document(&snapshot)["read_bytes"], Value::Null);
        }
        assert_eq!(document(&samples::collected())["written_bytes"], Value::Null);
    }

    /// Check that the table and CSV have the same numbers, and columns for them where they are known.
    #[test]
    fn in_tables() {
        let jvms = [snapshot()];
        let mut out = Vec::new();
        csv::csv(&jvms, View::from(Scope::One), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let names = ["read_bytes", "written_bytes"].map(|of| format!(",{of}_p50,{of}_p90,{of}_p99,{of}_max"));
        assert!(text.lines().next().unwrap().ends_with(&names.concat()), "{text}");
        assert!(text.lines().any(|line| line.ends_with(",940,3712,3712,4000,0,0,0,0")), "{text}");
        let shown = |jvms: &[Snapshot]| {
            let mut out = Vec::new();
            table::table(jvms, View::from(Scope::One), Screen::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(shown(&jvms).contains("READ ~P50"), "{}", shown(&jvms));
        assert!(!shown(&[samples::collected()]).contains("READ ~P50"));
    }
}
