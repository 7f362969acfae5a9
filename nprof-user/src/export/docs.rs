//! `docs/metrics.md`, made from the table of families and compared with the file that is committed.

use std::fmt::Write;

use super::distribution::{CLASSIC, CLASSIC_BYTES, Classic};
use super::families::TABLE;

const PREAMBLE: &str = "\
# Metrics

The metrics that `nprof serve` exports at `/metrics`. This file is generated from the table in
`nprof-user/src/export/families.rs`. To update it, run `NPROF_RENEW=1 cargo test -p nprof-user --lib export`.

In the labels column, \"JVM\" stands for `jvm` and every `--label`. JVMs with the same labels share their series: their values
are summed. With `with-signature`, a `signature` label follows `library`; without it, overloads share a series. If several
methods are bound to one function, the series carries the first of them by class and name. The random part of a library's
name, as in libraries that are unpacked from a jar, is replaced with `*`.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
";

const RULES: &str = "
## Guarantees

- **Counters never decrease** while nprof runs. When a JVM ends, its series stay: as long as another JVM with the same labels
  runs, and for `keep-ended` after the last one has ended. Then they are removed together. nprof keeps at most 256 sets of
  labels without a running JVM.
- **The number of series is limited** for each set of JVM labels, to `nprof_series_limit` methods. Methods get their own series
  first come, first served, and keep them; of methods that appear at the same time, those with the most time come first. All
  others are aggregated into one series with `class=\"\"`, `method=\"other\"`, `library=\"\"`; `nprof_series_hidden` is the
  number of methods currently in it.
- **A method that is too expensive to watch** is estimated: its calls are `nprof_native_calls_total` plus
  `nprof_native_calls_estimated_total`; no call is in both. The estimate extrapolates from the last look, which the next look may
  correct downwards, but a counter must not decrease. So the series only cover the time up to the last look, which nothing
  corrects any more, and grow with each look: a few times a second or, if many methods are too expensive, every few seconds.
  `nprof_native_calls_estimated_error` is the error of the counter as a whole; relative to the counter, it is a good guess for the
  error of a rate. If it exceeds the counter, their sum is only an upper bound.
- **Missing data is reported.** `nprof_native_calls_untimed_total` counts calls without a duration,
  `nprof_native_unwatched_seconds_total` is how long calls went unseen, `nprof_demoted_method` shows which methods are currently
  affected, and `nprof_losses_total` counts measurement failures.
- Durations and counts are exact, except for estimates: whole nanoseconds, printed as seconds. In Protobuf they are 64-bit floats, as the format has no
  other type for them.

## Call durations

The classic buckets have the same bounds for all methods, powers of 4 in nanoseconds, and exact counts:
";

const NATIVE: &str = "
**Exemplars**: scrapers that request OpenMetrics (Prometheus: `--enable-feature=exemplar-storage`, for `query_exemplars`) get, behind the
number of a bucket, the slowest call of that bucket since their last scrape: `# {thread=\"pool-1\",caller=\"com.acme.Shop::load:17\"} 0.138599408
1764000656.4772`, with the calling Java method, the time as it was measured, and when the call ended. They are the calls of the log of slow
calls (`slow`, [slow-calls.md](slow-calls.md#a-log-of-slow-calls)); without it there are none. An exemplar stays until another call takes its
place. Text and Protobuf have none.

**Native histograms** are exported to scrapers that request Protobuf (Prometheus: `--enable-feature=native-histograms` or
`scrape_native_histograms`), along with the classic buckets. nprof measures with four buckets per octave, with bounds at powers
of 2^(1/4) *nanoseconds*. The bounds of native histograms are powers of two in *seconds*, so the two never coincide. nprof
exports schema 3, eight buckets per octave:

- Each bound is replaced with the nearest one of schema 3, which is **1.56 % higher** for every bucket.
- Each measured bucket is split into two, with half of the calls each; an odd call goes to the upper one. Prometheus 3 splits
  buckets the same way when it computes a quantile.
- The zero bucket holds calls of at most 1 ns (`zero_threshold` 1e-9). The last bucket also holds all calls longer than
  9.7 hours.
- Count and sum are exact. A quantile falls into the same bucket as the exact one: it is at most 15 % too low or 21 % too high.

**Pushed by OTLP** ([serve.md](serve.md#push)), durations are `nprof_native_call_duration_nanoseconds`, an exponential histogram of
scale 2 with the very buckets that nprof measures with: in nanoseconds no bound has to be replaced. All other metrics have the names and
units above.

## Bytes per call

With `collect`, `nprof_native_call_read_size_bytes` and its kin say how many bytes single calls moved
([collectors.md](collectors.md#bytes-per-call)): 17 series for each method and number of bytes, of methods only that moved any. Their sum
is of the calls with nested ones; `nprof_native_call_read_bytes_total` is without. The count is that of the calls of which it is known:
all timed ones, unless the kernel had no room. The classic buckets are powers of 4 in bytes:

";

const SIZES: &str = "
Calls that moved nothing are in the first one. Native histograms are exactly what was measured, in schema 2, and so are those pushed by
OTLP, in scale 2; the zero bucket holds calls of no byte and of one (`zero_threshold` 1).
";

fn markdown() -> String {
    let mut out = PREAMBLE.to_owned();
    for family in TABLE {
        let name = format!("`{}{}`", family.name, family.suffix());
        writeln!(out, "| {name} | {} | {} | {} |", family.kind.as_str(), family.labels, family.help).unwrap();
    }
    out.push_str(RULES);
    out.push('\n');
    bounds(&mut out, &CLASSIC);
    out.push_str(NATIVE);
    bounds(&mut out, &CLASSIC_BYTES);
    out.push_str(SIZES);
    out
}

fn bounds(out: &mut String, classic: &Classic) {
    let bounds: Vec<&str> = classic.iter().map(|(_, le)| *le).chain(["+Inf"]).collect();
    writeln!(out, "`{}`", bounds.join("`, `")).unwrap();
}

/// Check that `docs/metrics.md` is what the table says.
#[test]
fn metrics_md_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let current = markdown();
    if std::env::var_os("NPROF_RENEW").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == current,
        "docs/metrics.md is not what the table of families says; renew it with \
         `NPROF_RENEW=1 cargo test -p nprof-user --lib export`"
    );
}
