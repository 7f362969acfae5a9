//! `trace` as CSV: a header and one row for each function with calls, of all JVMs. Times are whole nanoseconds.
//!
//! Fields are quoted by RFC 4180 where they need it; lines end with a line feed alone, as Unix tools expect. Names are the
//! target's: what could command a terminal is an escape as in the table, and what a spreadsheet would take for a formula
//! begins with an apostrophe. What was not measured is an empty field. The losses have no place in the rows: whoever writes CSV tells them elsewhere.

use std::borrow::Cow;
use std::io::{self, Write};

use super::groups::{self, By};
use super::order::{self, Order};
use super::rows::Row;
use super::run::{Run, Scope, View};
use super::{bytes_per_call, json, names};
use crate::model::{Column, ProgramValues, Snapshot};

const HEADER: &str = "pid,class,method,signature,library,bound,tier,calls,in_flight,untimed,total_ns,self_ns,max_ns,\
                      p50_ns,p90_ns,p99_ns,traced_after_ns,cost,aliases,counted,unwatched_ns,state,jvm,ended,estimated_total_ns,\
                      probe_ns,probe_error_ns,cost_ns,estimated_calls,estimate_error,\
                      estimate_error_ns,off_cpu_ns,on_cpu_ns,open_ns,open_on_cpu_ns";

/// The columns of groups, behind the name.
const OF_GROUPS: &str = "functions,calls,calls_error,on_cpu_ns,on_cpu_error_ns,self_ns";

/// What makes a spreadsheet run a cell. No number here is negative.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// Writes the header and the rows, in the order of the JSON document. `aliases` are separated by blanks. New columns come
/// last, so that scripts that go by position go on working.
///
/// # Errors
/// What writing to `w` gives.
pub fn csv(jvms: &[Snapshot], view: View, w: &mut impl Write) -> io::Result<()> {
    let order = view.order;
    if let Some(by) = view.by {
        return grouped(by, &order::all(jvms, order), order, w);
    }
    let run = Run::new(jvms, Scope::All);
    let (collectors, programs) = (run.collectors(), run.programs());
    let collected: String = collectors.columns().flat_map(|column| [",", column.name]).collect();
    let of_programs = programs.iter().map(|programs| format!(",{}", quoted(&format!("program.{}", programs.name))));
    let per_call = bytes_per_call::csv_header(run);
    writeln!(w, "{HEADER}{collected}{}{per_call}", of_programs.collect::<String>())?;
    for row in order::all(jvms, order) {
        let mut fields = fields(&row);
        let number = |column: &Column| Some(column.own(row.measured.consumed.as_deref()?).to_string());
        fields.extend(collectors.columns().map(|column| number(column).unwrap_or_default()));
        let values = &row.snapshot.programs;
        let value = |programs: &ProgramValues| Some(programs.of(row.measured.index)?.to_string());
        fields.extend(values.iter().map(|programs| value(programs).unwrap_or_default()));
        fields.extend(bytes_per_call::csv_fields(run, &row));
        let fields: Vec<Cow<'_, str>> = fields.iter().map(|field| quoted(field)).collect();
        writeln!(w, "{}", fields.join(","))?;
    }
    Ok(())
}

/// The same added up: a row for each group.
fn grouped(by: By, rows: &[Row<'_>], order: Order, w: &mut impl Write) -> io::Result<()> {
    let (groups, shape) = groups::of(by, order, rows);
    // Threads of one name are told apart by their number.
    let has_tids = by == By::Thread;
    writeln!(w, "{},{OF_GROUPS}{}", by.word(), if has_tids { ",tid" } else { "" })?;
    for group in groups.documents(shape) {
        let timed = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
        let times = [group.on_cpu_ns, group.on_cpu_error_ns, group.self_ns].map(timed).join(",");
        let tid = has_tids.then(|| format!(",{}", group.tid.map_or_else(String::new, |tid| tid.to_string())));
        write!(w, "{},{},{},{},{times}", quoted(group.name), group.functions, group.calls, group.calls_error)?;
        writeln!(w, "{}", tid.unwrap_or_default())?;
    }
    Ok(())
}

fn fields(row: &Row<'_>) -> Vec<String> {
    let snapshot = row.snapshot;
    let measured = row.measured;
    let method = &row.first.method;
    let timed = |ns: Option<u64>| ns.filter(|_| snapshot.timed).map_or_else(String::new, |ns| ns.to_string());
    let aliases: Vec<String> = row.aliases().into_iter().map(names::qualified).collect();
    vec![
        snapshot.jvm.pid.to_string(),
        method.class.to_string(),
        method.name.to_string(),
        method.signature.to_string(),
        measured.library.clone(),
        row.first.bound.to_string(),
        measured.tier.as_str().to_owned(),
        measured.calls.to_string(),
        timed(Some(measured.in_flight)),
        measured.untimed.to_string(),
        timed(Some(measured.total_ns)),
        timed(measured.self_ns),
        timed(Some(measured.max_ns)),
        timed(row.quantile_ns(0.50)),
        timed(row.quantile_ns(0.90)),
        timed(row.quantile_ns(0.99)),
        json::nanoseconds(measured.traced_after).to_string(),
        measured.cost.map_or_else(String::new, |cost| cost.to_string()),
        aliases.join(" "),
        measured.counted.to_string(),
        json::nanoseconds(measured.traced.unwatched).to_string(),
        measured.traced.tracing.to_string(),
        snapshot.jvm.main.clone(),
        snapshot.ended.to_string(),
        timed(row.estimated_total_ns()),
        timed(Some(measured.probe_ns)),
        timed(Some(measured.probe_error_ns)),
        measured.cost_ns.map_or_else(String::new, |ns| ns.to_string()),
        measured.unseen.map_or_else(String::new, |_unseen| row.calls().to_string()),
        row.error().map_or_else(String::new, |error| format!("{error:.4}")),
        timed(row.estimate_error_ns()),
        timed(measured.off_cpu_ns),
        timed(row.worked().map(|worked| worked.value)),
        timed(row.open_ns()),
        timed(row.open_on_cpu_ns()),
    ]
}

/// The field without what commands a terminal or a spreadsheet, in quotes where it needs them.
pub(super) fn quoted(field: &str) -> Cow<'_, str> {
    let field = names::printable(field);
    let is_formula = field.starts_with(FORMULA);
    if is_formula || field.contains([',', '"']) {
        let mark = if is_formula { "'" } else { "" };
        Cow::Owned(format!("\"{mark}{}\"", field.replace('"', "\"\"")))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, csv, quoted};
    use crate::model::Snapshot;
    use crate::render::samples;
    use crate::render::{Scope, View};

    fn text(jvms: &[Snapshot]) -> String {
        let mut out = Vec::new();
        csv(jvms, View::from(Scope::All), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the whole output for a snapshot with one of everything.
    #[test]
    fn everything() {
        assert_eq!(text(&[samples::eventful()]), include_str!("golden/trace.csv"));
    }

    /// Check that what was collected has its own columns, behind all others, and what single calls have moved those behind them.
    #[test]
    fn collected() {
        let text = text(&[samples::collected()]);
        let mut lines = text.lines();
        let first = ",on_cpu_ns,open_ns,open_on_cpu_ns,faults,major_faults,read_bytes,written_bytes,read_bytes_p50,";
        assert!(lines.next().unwrap().contains(first), "{text}");
        assert!(lines.next().unwrap().ends_with(",1240,6,5242880,0,,,,,,,,"), "{text}");
    }

    /// Check that what programs of the user's have counted has its own columns, empty where none of them runs.
    #[test]
    fn values_of_programs() {
        let text = text(&[samples::with_programs()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with(",open_on_cpu_ns,program.bytes"), "{text}");
        assert!(lines[1].ends_with(",12022867") && lines[2].ends_with(','), "{text}");
    }

    /// Check that the rows of several JVMs stand in one order, each with its pid, and that no JVM gives the header alone.
    #[test]
    fn several_jvms() {
        let text = text(&samples::several());
        let pids: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        assert_eq!(pids, ["77", "1234", "1234", "77", "1234", "1234"]);
        let ends: Vec<bool> =
            text.lines().skip(1).map(|line| line.ends_with(",orders-1.2.jar,true,,0,0,0,,,,,,,")).collect();
        assert_eq!(ends, [true, false, false, true, false, false]);
        assert!(text.lines().nth(2).unwrap().ends_with(",com.acme.Main,false,,0,0,0,,,,,,,"), "{text}");
        assert_eq!(self::text(&[]), format!("{HEADER}\n"));
    }

    /// Check that a snapshot without calls gives the header alone.
    #[test]
    fn no_calls() {
        assert_eq!(text(&[samples::snapshot()]), format!("{HEADER}\n"));
    }

    /// Check that every row has as many fields as the header, and that times are empty with `--count-only`.
    #[test]
    fn count_only_has_no_times() {
        let mut snapshot = samples::eventful();
        snapshot.timed = false;
        let text = text(&[snapshot]);
        assert!(text.lines().all(|line| line.split(',').count() == HEADER.split(',').count()), "{text}");
        assert!(text.lines().nth(1).unwrap().contains(",kernel,1000,,0,,,,,,,0,emulated,"), "{text}");
    }

    /// Check that a demoted function says what it is now, how many calls were only counted and how long none was seen.
    #[test]
    fn demoted() {
        let text = text(&[samples::demoted()]);
        let ends: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(",emulated,,").nth(1)).collect();
        assert_eq!(ends[0], "0,1500000000,detached,com.acme.Main,false,,0,0,0,,,,,,,");
        assert_eq!(ends[1], "39000,0,counted,com.acme.Main,false,,0,0,0,,,,,,,");
    }

    /// Check that the estimated time of all calls stands behind what was measured of some, and nowhere else.
    #[test]
    fn some_calls_timed() {
        let text = text(&[samples::of_both_tiers()]);
        let estimated: Vec<&str> = text.lines().skip(1).filter(|line| !line.contains(",,0,0,")).collect();
        assert_eq!(estimated.len(), 1, "{text}");
        assert!(
            estimated[0].contains(",stub,17000,0,0,80000,,") && estimated[0].ends_with(",1380000,0,0,,,,,,,,"),
            "{text}"
        );
    }

    /// Check that what is estimated of a function that is too expensive to watch stands at the end, with its error.
    #[test]
    fn unseen_calls() {
        let mut snapshot = samples::demoted();
        snapshot.methods.truncate(1);
        let measured = &mut snapshot.methods[0];
        measured.unseen = Some(crate::model::Unseen {
            calls: 9_000,
            error_calls: 500,
            total_ns: 1_000_000,
            error_ns: Some(400_000),
            ..Default::default()
        });
        (measured.calls, measured.total_ns) = (1_000, 2_000_000);
        let text = text(&[snapshot]);
        assert!(text.ends_with(",3000000,0,0,0,10000,0.0500,400000,,,,\n"), "{text}");
    }

    /// Check that times are less the probes, and that the row ends with what that was, how far it may be off, and its cost.
    #[test]
    fn less_the_probes() {
        let text = text(&[samples::probed()]);
        let first = text.lines().nth(1).unwrap_or_default();
        assert!(first.contains(",a.Slow,") && first.contains(",3000000,3000000,3000,"), "{text}");
        assert!(first.ends_with(",600000,200000,900000,,,,,,,"), "{text}");
    }

    /// Check quoting: names in a class file may hold commas, quotes and line feeds, and what a spreadsheet runs.
    #[test]
    fn quotes_what_needs_it() {
        assert_eq!(quoted("java.lang.Object"), "java.lang.Object");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"a\""), "\"say \"\"a\"\"\"");
        assert_eq!(quoted("two\nlines\u{1b}[2J"), "two\\u{a}lines\\u{1b}[2J");
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)"] {
            assert_eq!(quoted(formula), format!("\"'{formula}\""));
        }
        assert_eq!(quoted("=HYPERLINK(\"a\")"), "\"'=HYPERLINK(\"\"a\"\")\"");
    }
}
