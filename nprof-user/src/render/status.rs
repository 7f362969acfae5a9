//! The state of a running `nprof serve`, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::grid::{Align, Elastic, Grid, Screen};
use super::names::{cut, printable};
use super::units::{self, percent};
use crate::model::{FunctionStatus, JvmStatus, ProfilesStatus, Status, Tracing};

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// The most columns that labels and reasons take.
const LABELS_WIDTH: usize = 32;
const WHY_WIDTH: usize = 32;

/// Writes the tables: the JVMs, below them the functions that were demoted, below these what was lost.
///
/// # Errors
/// If `out` cannot be written to.
pub fn table(out: &mut impl Write, status: &Status, screen: Screen) -> io::Result<()> {
    writeln!(out, "{}", headline(status))?;
    if status.jvms.is_empty() {
        writeln!(out, "no JVM is traced")?;
    } else {
        lines(out, jvms(&status.jvms), screen)?;
    }
    let demoted = demoted(&status.jvms);
    let is_listed = !demoted.rows.is_empty();
    if is_listed {
        writeln!(out, "\ndemoted, because tracing them costs too much:")?;
        lines(out, demoted, screen)?;
    }
    let unlisted: usize = status.jvms.iter().map(|jvm| jvm.demoted.saturating_sub(jvm.demoted_functions.len())).sum();
    match unlisted {
        0 => {}
        more if is_listed => writeln!(out, "and {more} more")?,
        // Just after they were switched.
        all => writeln!(out, "\ndemoted, because tracing them costs too much: {all}, whose costs are not known yet")?,
    }
    writeln!(out, "\n{}", losses(status))?;
    status.profiles.iter().try_for_each(|of| writeln!(out, "{}", profiles(of)))
}

/// Writes the JSON document.
///
/// # Errors
/// If `out` cannot be written to.
pub fn json(out: &mut impl Write, status: &Status) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        #[serde(flatten)]
        status: &'a Status,
    }
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, status })?;
    writeln!(out)
}

fn lines(out: &mut impl Write, mut grid: Grid<'_>, screen: Screen) -> io::Result<()> {
    grid.make_room(screen);
    grid.lines(screen).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Version, age, budget and prices in one line.
fn headline(status: &Status) -> String {
    let uptime = match status.uptime_s {
        0 => "less than a second".to_owned(),
        seconds => units::duration(seconds.saturating_mul(1_000_000_000)),
    };
    let budget = status
        .overhead_budget
        .map_or_else(|| "no budget".to_owned(), |share| format!("budget {} of each JVM's time", percent(share)));
    let cost = status.call_cost.map(|cost| {
        let [counted, timed] = [cost.counted_ns, cost.timed_ns].map(units::duration);
        format!("; a call costs {counted} if counted, {timed} if timed")
    });
    format!("nprof {}, up {uptime}; {budget}{}", printable(&status.nprof), cost.unwrap_or_default())
}

fn jvms(jvms: &[JvmStatus]) -> Grid<'static> {
    let headers = vec![
        ("PID", Align::Right),
        ("MAIN", Align::Left),
        ("LABELS", Align::Left),
        ("TIMED", Align::Right),
        ("SAMPLED", Align::Right),
        ("COUNTED", Align::Right),
        ("OFF", Align::Right),
        ("DETACHED", Align::Right),
        ("DEMOTED", Align::Right),
        ("COST", Align::Right),
    ];
    let row = |jvm: &JvmStatus| {
        let of = |state| jvm.functions.get(&state).copied().unwrap_or_default();
        let counted = of(Tracing::Counted) + of(Tracing::Returned);
        let counts = [of(Tracing::Timed), of(Tracing::Sampled), counted, of(Tracing::Off), of(Tracing::Detached)];
        let counts = counts.map(|count: usize| count.to_string());
        let mut row = vec![jvm.pid.to_string(), printable(&jvm.main).into_owned(), labels(jvm)];
        row.extend(counts);
        row.extend([jvm.demoted.to_string(), jvm.cost_share.map_or_else(|| "-".to_owned(), percent)]);
        row
    };
    let rows = jvms.iter().map(row).collect();
    Grid { headers, rows, elastic: vec![Elastic::names(1)], expendable: &["LABELS"] }
}

/// The labels that say more than the main class does.
fn labels(jvm: &JvmStatus) -> String {
    let others = jvm.labels.iter().filter(|(name, value)| *name != "jvm" || **value != jvm.main);
    let text: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
    if text.is_empty() { "-".to_owned() } else { cut(&printable(&text.join(" ")), LABELS_WIDTH) }
}

fn demoted(jvms: &[JvmStatus]) -> Grid<'static> {
    let headers = vec![
        ("PID", Align::Right),
        ("METHOD", Align::Left),
        ("IS", Align::Left),
        ("WANTED", Align::Left),
        ("CALLS/S", Align::Right),
        ("WHY", Align::Left),
    ];
    let row = |jvm: &JvmStatus, function: &FunctionStatus| {
        vec![
            jvm.pid.to_string(),
            printable(&format!("{}::{}", function.class, function.method)).into_owned(),
            function.state.to_string(),
            function.wanted.to_string(),
            function.rate.map_or_else(|| "-".to_owned(), units::rate),
            cut(&printable(&function.why), WHY_WIDTH),
        ]
    };
    let rows = jvms.iter().flat_map(|jvm| jvm.demoted_functions.iter().map(move |function| row(jvm, function)));
    Grid { headers, rows: rows.collect(), elastic: vec![Elastic::names(1)], expendable: &["WHY"] }
}

fn losses(status: &Status) -> String {
    let lost: Vec<String> = status
        .losses
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(reason, n)| format!("{} {}", units::count(*n), printable(reason)))
        .collect();
    if lost.is_empty() { "losses: none".to_owned() } else { format!("losses: {}", lost.join(", ")) }
}

/// How much of profiles there is, and how much is missing.
fn profiles(profiles: &ProfilesStatus) -> String {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let stacks = profiles.over_pace + profiles.no_room + profiles.unread;
    let missing = match (profiles.dropped, stacks) {
        (0, 0) => String::new(),
        (0, stacks) => format!("; left out: {} stacks", units::count(stacks)),
        (windows, stacks) => format!("; left out: {} windows, {} stacks", units::count(windows), units::count(stacks)),
    };
    format!(
        "profiles: {} windows in {} of {} MiB, {} stacks{missing}",
        units::count(profiles.windows),
        mib(profiles.bytes),
        mib(profiles.most_bytes),
        units::count(profiles.stacks)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: &Status, columns: Option<usize>) -> String {
        let mut out = Vec::new();
        table(&mut out, status, Screen { ansi: false, columns }).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the whole text: states, labels beside `jvm`, costs, demoted functions, and no escape sequence let through.
    #[test]
    fn shows_people() {
        let expected = r"nprof 0.1.0, up 1.50 h; budget 2 % of each JVM's time; a call costs 620 ns if counted, 1.24 us if timed
 PID  MAIN                LABELS    TIMED  SAMPLED  COUNTED  OFF  DETACHED  DEMOTED    COST
1234  com.acme.shop.Main  team=pay    210        0        1    0         1        3  1.87 %
  77  shop-1.2.jar        -             0        0        0    5         0        0       -

demoted, because tracing them costs too much:
 PID  METHOD                               IS        WANTED  CALLS/S  WHY
1234  java.util.zip.CRC32::updateBytes0    counted   timed   812,346  over the budget
1234  java.lang.System::nanoTime\u{1b}[2J  detached  timed         -  over the budget
and 1 more

losses: 3 unreturned
profiles: 120 windows in 3.0 of 32.0 MiB, 50,000 stacks; left out: 4 windows, 72 stacks
";
        assert_eq!(text(&Status::sample(), None), expected);
    }

    /// Check that functions which are demoted and have no line are told of, beside others that have one and alone.
    #[test]
    fn demoted_functions_without_a_line() {
        let mut status = Status::sample();
        status.jvms[0].demoted_functions.clear();
        let text = text(&status, None);
        assert!(
            text.contains("\n\ndemoted, because tracing them costs too much: 3, whose costs are not known yet\n"),
            "{text}"
        );
    }

    /// Check that an nprof with nothing to do says so.
    #[test]
    fn shows_nothing() {
        let status = Status { nprof: "0.1.0".to_owned(), ..Status::default() };
        assert_eq!(
            text(&status, Some(80)),
            "nprof 0.1.0, up less than a second; no budget\nno JVM is traced\n\nlosses: none\n"
        );
    }

    /// Check that tables fit a terminal.
    #[test]
    fn fits_a_terminal() {
        let mut status = Status::sample();
        status.jvms[0].main = format!("com.{}Main", "very.long.".repeat(20));
        status.jvms[0].demoted_functions[0].why = "a reason of many words ".repeat(9);
        for line in text(&status, Some(100)).lines().skip(1) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    /// Check the JSON document: raw names, every field, the states by their words.
    #[test]
    fn tells_programs() {
        let mut out = Vec::new();
        json(&mut out, &Status::sample()).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&document["schema"], &document["uptime_s"]), (&1.into(), &5400.into()));
        assert_eq!(document["jvms"][0]["functions"], serde_json::json!({"detached": 1, "counted": 1, "timed": 210}));
        assert_eq!(document["jvms"][0]["demoted_functions"][1]["method"], "nanoTime\u{1b}[2J");
        assert_eq!(document["jvms"][0]["demoted_functions"][0]["state"], "counted");
        assert_eq!(document["losses"]["too-deep"], 0);
    }

    /// Check shares from small to whole.
    #[test]
    fn writes_shares() {
        for (share, text) in [(0.0, "0 %"), (0.00012, "0.01 %"), (0.02, "2 %"), (0.205, "20.5 %"), (1.0, "100 %")] {
            assert_eq!(percent(share), text);
        }
    }
}
