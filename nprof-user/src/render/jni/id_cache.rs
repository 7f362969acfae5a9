//! What came of keeping ids: a table and a document.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{ID_FUNCTIONS, IdCacheReport, IdFunctionSum, LookUps};
use crate::render::document::Head;
use crate::render::grid::{Align, Elastic, Grid, Screen};
use crate::render::json::{Target, line, nanoseconds};
use crate::render::notes::plural;
use crate::render::{printable, units};

/// What stands for callers that are not told apart.
const OTHERS: &str = "(other callers)";

/// Writes the table: functions, then their callers, the first `top` of them.
///
/// # Errors
/// What writing to `w` gives.
pub fn id_cache_table(
    report: &IdCacheReport,
    top: Option<usize>,
    screen: Screen,
    w: &mut impl Write,
) -> io::Result<()> {
    let sums = report.functions.iter().zip(ID_FUNCTIONS).filter(|(sum, _)| sum.look_ups.all() > 0);
    let mut rows: Vec<Vec<String>> = sums.map(|(sum, name)| function_row(sum, name)).collect();
    if rows.is_empty() {
        let elapsed = units::duration(nanoseconds(report.elapsed));
        return writeln!(w, "no id was looked up in {elapsed}");
    }
    let shown = top.unwrap_or(report.callers.len()).min(report.callers.len());
    rows.extend(report.callers[..shown].iter().map(|(name, look_ups)| {
        let name = name.as_deref().map_or_else(|| OTHERS.into(), printable);
        row(look_ups, [String::new(), String::new(), String::new()], format!("  {name}"))
    }));
    for line in grid(rows).lines(screen) {
        writeln!(w, "{line}")?;
    }
    writeln!(w)?;
    notes(report, shown).iter().try_for_each(|note| writeln!(w, "{note}"))
}

fn grid(rows: Vec<Vec<String>>) -> Grid<'static> {
    let right = |title| (title, Align::Right);
    let headers = vec![
        right("LOOK-UPS"),
        right("HITS"),
        right("MISSES"),
        right("LEFT ALONE"),
        right("OF A HIT"),
        right("OF THE VM"),
        right("WON"),
        ("JNI FUNCTION / CALLER", Align::Left),
    ];
    Grid { rows, elastic: vec![Elastic::names(headers.len() - 1)], headers, expendable: &["LEFT ALONE", "MISSES"] }
}

fn function_row(sum: &IdFunctionSum, name: &str) -> Vec<String> {
    let times = sum.means().map(|means| means.map(time));
    let [hit, original] = times.unwrap_or_else(|| ["-".to_owned(), "-".to_owned()]);
    let won = sum.won_ns().map_or_else(|| "-".to_owned(), time);
    row(&sum.look_ups, [hit, original, won], name.to_owned())
}

fn row(look_ups: &LookUps, times: [String; 3], label: String) -> Vec<String> {
    let LookUps { hits, misses, left } = *look_ups;
    let mut row: Vec<String> = [look_ups.all(), hits, misses, left].map(units::count).to_vec();
    row.extend(times);
    row.push(label);
    row
}

/// A time that may be negative.
fn time(ns: f64) -> String {
    let text = units::duration(whole(ns.abs()).unsigned_abs());
    if ns < 0.0 { format!("-{text}") } else { text }
}

/// Whole nanoseconds.
#[expect(clippy::cast_possible_truncation, reason = "a sum of nanoseconds")]
fn whole(ns: f64) -> i64 {
    ns.round() as i64
}

fn notes(report: &IdCacheReport, shown: usize) -> Vec<String> {
    let sum = |of: fn(&IdFunctionSum) -> u64| report.functions.iter().map(of).fold(0, u64::saturating_add);
    let hits = sum(|sum| sum.look_ups.hits);
    let timed = sum(|sum| sum.timed);
    let mut notes = Vec::new();
    let more = report.callers.len() - shown + usize::try_from(report.untold).unwrap_or(0);
    if more > 0 {
        notes.push(format!("left out: {} further callers (--top)", units::count(more as u64)));
    }
    notes.push(format!(
        "total: {} in {}, {} answered with what was kept",
        plural(sum(|sum| sum.look_ups.all()), "look-up"),
        units::duration(nanoseconds(report.elapsed)),
        units::count(hits)
    ));
    let wrong = sum(|sum| sum.wrong);
    if wrong > 0 {
        notes.push(format!("wrong: {} hits, found by comparing: please report this", units::count(wrong)));
    }
    if report.behind > 0 {
        notes.push(format!(
            "{} of the JVM now leads through another agent to the shim, which passes calls on",
            plural(report.behind.into(), "function")
        ));
    }
    let won: f64 = report.functions.iter().filter_map(IdFunctionSum::won_ns).sum();
    notes.push(format!(
        "won: {}, by {} that were timed beside the VM's own look-up of the same",
        time(won),
        plural(timed, "hit")
    ));
    notes
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<Target<'a>>,
    id_cache: Cache<'a>,
}

#[derive(Serialize)]
struct Cache<'a> {
    functions: Vec<Function>,
    callers: Vec<Caller<'a>>,
    callers_left_out: u32,
    functions_behind_others: u32,
}

#[derive(Serialize)]
struct Function {
    function: &'static str,
    hits: u64,
    misses: u64,
    left_alone: u64,
    timed: u64,
    hit_ns: Option<f64>,
    vm_ns: Option<f64>,
    won_ns: Option<i64>,
    wrong: u64,
}

#[derive(Serialize)]
struct Caller<'a> {
    caller: Option<&'a str>,
    hits: u64,
    misses: u64,
    left_alone: u64,
}

/// Writes the same as one document on one line.
///
/// # Errors
/// What writing to `w` gives.
pub fn id_cache_json(report: &IdCacheReport, w: &mut impl Write) -> io::Result<()> {
    let function = |(sum, function): (&IdFunctionSum, &'static str)| {
        let (means, LookUps { hits, misses, left }) = (sum.means(), sum.look_ups);
        Function {
            function,
            hits,
            misses,
            left_alone: left,
            timed: sum.timed,
            hit_ns: means.map(|[hit, _]| hit),
            vm_ns: means.map(|[_, vm]| vm),
            won_ns: sum.won_ns().map(whole),
            wrong: sum.wrong,
        }
    };
    let caller = |(name, look_ups): &'_ (Option<String>, LookUps)| (name.clone(), *look_ups);
    let callers: Vec<(Option<String>, LookUps)> = report.callers.iter().map(caller).collect();
    let document = Document {
        head: Head::of(Target::of(&report.jvm), report.started, report.elapsed),
        id_cache: Cache {
            functions: report.functions.iter().zip(ID_FUNCTIONS).map(function).collect(),
            callers: callers
                .iter()
                .map(|(caller, LookUps { hits, misses, left })| Caller {
                    caller: caller.as_deref(),
                    hits: *hits,
                    misses: *misses,
                    left_alone: *left,
                })
                .collect(),
            callers_left_out: report.untold,
            functions_behind_others: report.behind,
        },
    };
    line(&document, w)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::render::samples;

    fn report() -> IdCacheReport {
        let look_ups = LookUps { hits: 10_000, misses: 3, left: 0 };
        let sum = IdFunctionSum { look_ups, timed: 100, hit_ns: 3_000, original_ns: 13_000, wrong: 0 };
        let snapshot = samples::snapshot();
        let callers = vec![(Some("libevil\u{1b}.so+0x10".to_owned()), look_ups), (None, LookUps::default())];
        IdCacheReport {
            started: snapshot.started,
            elapsed: Duration::from_secs(2),
            jvm: snapshot.jvm,
            functions: [sum, IdFunctionSum::default(), IdFunctionSum::default(), IdFunctionSum::default()],
            callers,
            behind: 1,
            untold: 2,
        }
    }

    fn text(report: &IdCacheReport, top: Option<usize>) -> String {
        let mut out = Vec::new();
        id_cache_table(report, top, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the table: functions that were called, callers as far as they are wanted, and what is said below.
    #[test]
    fn shows_functions_and_callers() {
        let text = text(&report(), Some(1));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "LOOK-UPS    HITS  MISSES  LEFT ALONE  OF A HIT  OF THE VM      WON  JNI FUNCTION / CALLER",
                "  10,003  10,000       3           0     30 ns     130 ns  1.00 ms  GetMethodID",
                "  10,003  10,000       3           0                                  libevil\\u{1b}.so+0x10",
                "",
                "left out: 3 further callers (--top)",
                "total: 10,003 look-ups in 2.00 s, 10,000 answered with what was kept",
                "1 function of the JVM now leads through another agent to the shim, which passes calls on",
                "won: 1.00 ms, by 100 hits that were timed beside the VM's own look-up of the same",
            ]
        );
    }

    /// Check that a JVM in which nothing was looked up has no table, and that a loss is one.
    #[test]
    fn nothing_and_less() {
        let mut report = report();
        report.functions[0].hit_ns = 23_000;
        assert!(text(&report, None).contains("won: -1.00 ms"));
        report.functions = Default::default();
        assert_eq!(text(&report, None), "no id was looked up in 2.00 s\n");
    }

    /// Check the document.
    #[test]
    fn document() {
        let mut out = Vec::new();
        id_cache_json(&report(), &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let cache = &document["id_cache"];
        assert_eq!(cache["functions"][0]["won_ns"], 1_000_000);
        assert!(cache["functions"][1]["won_ns"].is_null() && cache["callers"][1]["caller"].is_null());
        assert_eq!((&cache["callers_left_out"], &cache["functions_behind_others"]), (&2.into(), &1.into()));
    }
}
