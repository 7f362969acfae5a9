//! `docs/metrics.md`, made from the table of families and compared with the file that is committed.

use std::fmt::Write;

use super::durations::CLASSIC;
use super::families::TABLE;

const PREAMBLE: &str = "\
# Metrics

What `nprof serve` answers to a scrape of `/metrics`. This file is made from the table in
`nprof-user/src/export/families.rs`; to renew it: `NPROF_RENEW=1 cargo test -p nprof-user --lib export`.

\"JVM\" among the labels stands for `jvm` and every `--label`. JVMs with the same labels share their series: their
numbers are added up. A `signature` label is added after `library` if it is asked for; without it, overloads share a
series. A function that several methods are bound to is shown under the first of them by class and name. What is random
in a library's name, because it unpacks itself from a jar, is `*` in the label.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
";

const RULES: &str = "
## What to rely on

- **Counters never go backwards** while nprof runs. What an ended JVM has done stays in its series. They stay as long as
  a JVM with the same labels lives, and for the set time after the last one; then they go together. At most 256 sets
  of labels without a living JVM are kept.
- **Series are capped** for each set of JVM labels, at `nprof_series_limit`. The first methods get series of their own and
  keep them; of those that come at once, the ones with the most time. All others are added up in one series with
  `class=\"\"`, `method=\"other\"`, `library=\"\"`; `nprof_series_hidden` says how many these are now.
- **Nothing is silently partial.** `nprof_native_calls_untimed_total` says how many calls are in no time,
  `nprof_native_unwatched_seconds_total` for how long calls were not seen, `nprof_demoted_method` where that is so now, and
  `nprof_losses_total` what went wrong.
- Times and counts are exact: whole nanoseconds, written out in seconds. In Protobuf they are 64-bit floats, because the
  format has nothing else.

## Call times

The classic buckets have the same bounds for all methods, powers of 4 of nanoseconds, and their counts are exact:
";

const NATIVE: &str = "
**Native histograms** are sent to a scraper that asks for Protobuf (Prometheus: `--enable-feature=native-histograms` or
`scrape_native_histograms`), together with the classic buckets. nprof measures with four buckets per octave whose bounds are
powers of 2^(1/4) *nanoseconds*. Native histograms of seconds have bounds that are powers of two of *seconds*, and no bound
of the one is a bound of the other. They are exported with schema 3, eight buckets per octave:

- Each bound is named by the nearest one of schema 3, which is **1.56 % higher**, for all buckets alike.
- Each measured bucket becomes two, with half of its calls each; an odd call is in the upper one. That is how
  Prometheus 3 itself divides a bucket when it computes a quantile.
- The zero bucket holds the calls of at most 1 ns (`zero_threshold` 1e-9). The last bucket also holds all calls above
  9.7 hours.
- Number and sum are exact. A quantile is within the bucket of the exact one: between 15 % below it and 21 % above.
";

fn markdown() -> String {
    let mut out = PREAMBLE.to_owned();
    for family in TABLE {
        let name = format!("`{}{}`", family.name, family.suffix());
        writeln!(out, "| {name} | {} | {} | {} |", family.kind.as_str(), family.labels, family.help).unwrap();
    }
    out.push_str(RULES);
    out.push('\n');
    let bounds: Vec<&str> = CLASSIC.iter().map(|(_, le)| *le).chain(["+Inf"]).collect();
    writeln!(out, "`{}`", bounds.join("`, `")).unwrap();
    out.push_str(NATIVE);
    out
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
