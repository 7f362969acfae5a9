//! The table of `trace` for people: one row for each function with calls, and the notes that belong to it. Where there
//! may be several JVMs, each row begins with its own.

use std::collections::HashMap;
use std::io::{self, Write};

use super::grid::{Align, Elastic, Grid, Screen, bold, dim};
use super::per_call::PerCall;
use super::rows::Row;
use super::run::{Run, View};
use super::uncertain::Uncertain;
use super::{groups, json, names, notes, order, rows, slow, units};
use crate::model::{self, Bound, Method, MethodSnapshot, Snapshot, Tier, Tracing};

/// How many slow calls are shown.
const SLOW_CALLS: usize = 10;

/// What dim rows are.
pub(super) const DIM: &str = "dim: threads waited for more than 95 % of their time in it";

/// Writes the final table: every function with calls, or the first of them, then the notes, the losses last.
///
/// # Errors
/// What writing to `w` gives.
pub fn table(jvms: &[Snapshot], view: impl Into<View>, screen: Screen, w: &mut impl Write) -> io::Result<()> {
    let run = Run::new(jvms, view);
    let rows = order::all(jvms, run.view.order);
    let (mut grid, left_out) = shown(run, &rows);
    let removed = grid.make_room(screen);
    if jvms.is_empty() {
        writeln!(w, "no JVM yet")?;
    } else if rows.is_empty() {
        writeln!(w, "no calls yet in {}", units::duration(json::nanoseconds(run.elapsed())))?;
    } else {
        // What only waited is there, and does not catch the eye.
        let is_dim = |line: usize| screen.ansi && run.view.by.is_none() && line > 0 && rows[line - 1].only_waited();
        for (place, line) in grid.lines(screen).into_iter().enumerate() {
            writeln!(w, "{}", dim(&line, is_dim(place)))?;
        }
    }
    let slow = slow::lines(run, SLOW_CALLS);
    if !slow.is_empty() {
        writeln!(w)?;
    }
    for line in slow {
        writeln!(w, "{line}")?;
    }
    writeln!(w)?;
    if !removed.is_empty() {
        writeln!(w, "left out, the terminal is too narrow: {}", removed.join(", "))?;
    }
    if let Some(left_out) = left_out {
        writeln!(w, "{left_out}")?;
    }
    let lost = run.losses().total() > 0;
    let listed = listed(run, &rows);
    if screen.ansi && run.view.by.is_none() && rows[..listed].iter().any(Row::only_waited) {
        writeln!(w, "{DIM}")?;
    }
    for line in notes::lines(run, &rows, listed) {
        let warn = screen.ansi && lost && line.starts_with("losses:");
        writeln!(w, "{}", bold(&line, warn))?;
    }
    Ok(())
}

/// What is shown of these rows, and what is left out.
fn shown<'a>(run: Run<'a>, rows: &[Row<'_>]) -> (Grid<'a>, Option<String>) {
    if let Some(by) = run.view.by {
        let (groups, shape) = groups::of(by, run.view.order, rows);
        return groups.grid(shape, run.view.top);
    }
    let (shown, left_out) = rows.split_at(listed(run, rows));
    let rate = |row: &Row<'_>| row.all_calls().rate(|calls| notes::per_second(calls, row.called_for()));
    (grid(run, shown, rate), rest(left_out, rows))
}

/// How many of these rows stand in the table, each by itself or in its group.
fn listed(run: Run<'_>, rows: &[Row<'_>]) -> usize {
    run.view.top.filter(|_| run.view.by.is_none()).map_or(rows.len(), |top| top.min(rows.len()))
}

/// What the rows add up to that are not shown, if there are any.
fn rest(left_out: &[Row<'_>], rows: &[Row<'_>]) -> Option<String> {
    let sum = |rows: &[Row<'_>]| rows.iter().map(Row::weight_ns).fold(0, u64::saturating_add);
    let functions = notes::plural(left_out.len() as u64, "further function");
    let (time_ns, all_ns) = (sum(left_out), sum(rows));
    let share = units::percent(time_ns as f64 / all_ns.max(1) as f64);
    let time = units::duration(time_ns);
    (!left_out.is_empty()).then(|| format!("left out: {functions} with {time}, {share} of the time (--top)"))
}

/// The columns that go first where the screen is narrow.
const EXPENDABLE: &[&str] = &[
    "LIBRARY",
    "TIER",
    "DISK READ ~P50",
    "DISK READ ~P99",
    "DISK WRITTEN ~P50",
    "DISK WRITTEN ~P99",
    "MAPPED ~P50",
    "MAPPED ~P99",
    "ALLOCATED ~P50",
    "ALLOCATED ~P99",
    "READ ~P50",
    "WRITTEN ~P50",
    "RECEIVED ~P50",
    "SENT ~P50",
    "READ ~P99",
    "WRITTEN ~P99",
    "RECEIVED ~P99",
    "SENT ~P99",
    "SELF",
    "~P50",
    "AVG",
    "CALLS/s",
    "MAX",
];

/// What a cell is made of.
struct Line<'a> {
    row: Row<'a>,
    /// Calls per second.
    rate: String,
    label: String,
}

struct Column<'a> {
    title: &'a str,
    align: Align,
    cell: Cell,
}

/// Where a cell's text comes from.
enum Cell {
    Of(fn(&Line<'_>) -> String),
    /// What the calls have consumed.
    Consumed(&'static model::Column),
    /// How many bytes a call consumed: this quantile.
    PerCall(&'static model::Column, f64),
    /// What programs of the user's have counted: those of the object at this place.
    Programs(usize),
}

impl Cell {
    fn text(&self, line: &Line<'_>) -> String {
        match self {
            Self::Of(text) => text(line),
            Self::Consumed(column) => consumed(line, column),
            Self::PerCall(column, q) => per_call(line, column, *q),
            Self::Programs(place) => by_programs(line, *place),
        }
    }
}

/// The rows as cells. `rate` says the calls per second of a row.
pub(super) fn grid<'a, 'b>(run: Run<'b>, rows: &[Row<'a>], rate: impl Fn(&Row<'a>) -> String) -> Grid<'b> {
    let columns = columns(run);
    let lines = rows.iter().zip(labels(rows)).map(|(row, name)| Line {
        row: *row,
        rate: rate(row),
        label: name + &notes::marks(row),
    });
    Grid {
        headers: columns.iter().map(|c| (c.title, c.align)).collect(),
        rows: lines.map(|line| columns.iter().map(|c| c.cell.text(&line)).collect()).collect(),
        elastic: elastic(run, &columns),
        expendable: EXPENDABLE,
    }
}

/// The label of each row, told apart from those of the same JVM.
fn labels(rows: &[Row<'_>]) -> Vec<String> {
    let mut by_process: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        by_process.entry(rows::process(row.snapshot)).or_default().push(at);
    }
    let mut labels = vec![String::new(); rows.len()];
    for of_process in by_process.into_values() {
        let methods: Vec<&Method> = of_process.iter().map(|&at| &rows[at].first.method).collect();
        for (at, label) in of_process.into_iter().zip(names::labels(&methods)) {
            let is_critical = rows[at].first.bound == Bound::Critical;
            labels[at] = if is_critical { format!("{label} (critical)") } else { label };
        }
    }
    labels
}

/// The JVM's name gives way before the method's.
fn elastic(run: Run<'_>, columns: &[Column<'_>]) -> Vec<Elastic> {
    let method = Elastic::names(columns.len() - 1);
    if run.names_jvms() { vec![Elastic::short_names(1), method] } else { vec![method] }
}

/// The columns that say something about this run.
fn columns<'a>(run: Run<'a>) -> Vec<Column<'a>> {
    let right = |title, cell| Column { title, align: Align::Right, cell: Cell::Of(cell) };
    let any = |wanted: fn(&MethodSnapshot) -> bool| run.jvms.iter().flat_map(|jvm| &jvm.methods).any(wanted);
    let left = |title, cell| Column { title, align: Align::Left, cell: Cell::Of(cell) };
    let mut columns = Vec::new();
    if run.names_jvms() {
        columns.push(right("PID", |line| line.row.snapshot.jvm.pid.to_string()));
        columns.push(left("JVM", |line| notes::jvm(line.row.snapshot)));
    }
    columns.push(right("CALLS", |line| line.row.all_calls().count()));
    if any(|m| m.unseen.is_some()) {
        columns.push(right("ERROR", |line| {
            line.row.measured.unseen.map_or_else(String::new, |_unseen| line.row.all_calls().error())
        }));
    }
    columns.push(right("CALLS/s", |line| line.rate.clone()));
    if run.timed() {
        if any(|m| m.off_cpu_ns.is_some()) {
            columns.push(right("ON-CPU", |line| summed(line, line.row.worked())));
        }
        columns.push(right("TOTAL", |line| summed(line, Some(line.row.total()))));
        if any(|m| m.unseen.is_some() || m.estimated_error_ns.is_some()) {
            columns.push(right("ERROR", |line| error_of_total(&line.row)));
        }
        if any(|m| m.self_ns.is_some_and(|self_ns| self_ns != m.total_ns)) {
            columns.push(right("SELF", |line| timed(line, line.row.own())));
        }
        columns.push(right("AVG", |line| summed(line, line.row.average())));
        columns.push(right("~P50", |line| timed(line, line.row.quantile(0.50))));
        columns.push(right("~P99", |line| timed(line, line.row.quantile(0.99))));
        columns.push(right("MAX", |line| timed(line, Some(line.row.longest()))));
    }
    let are_known = any(|m| m.bytes_per_call.is_some());
    columns.extend(run.collectors().columns().flat_map(|column| collected(column, are_known)));
    let counted = |(place, programs): (usize, &'a model::ProgramValues)| Column {
        title: &programs.title,
        align: Align::Right,
        cell: Cell::Programs(place),
    };
    columns.extend(run.programs().iter().enumerate().map(counted));
    if any(|m| m.in_flight > 0) {
        columns.push(right("IN FLIGHT", |line| units::count(line.row.measured.in_flight)));
    }
    if any(|m| m.open.is_some_and(|open| open.self_ns > 0)) {
        columns.push(right("OPEN", |line| of_open(line.row.open_ns())));
        if any(|m| m.off_cpu_ns.is_some()) {
            columns.push(right("OPEN ON-CPU", |line| of_open(line.row.open_on_cpu_ns())));
        }
    }
    if any(|m| m.tier != Tier::Kernel) {
        columns.push(left("TIER", |line| line.row.measured.tier.as_str().to_owned()));
    }
    columns.push(left("LIBRARY", |line| names::printable(&line.row.measured.library).into_owned()));
    columns.push(left("METHOD", |line| line.label.clone()));
    columns
}

/// A time of calls that have not returned, or `-` where there are none, or it is not known.
fn of_open(ns: Option<u64>) -> String {
    ns.filter(|ns| *ns > 0).map_or_else(|| "-".to_owned(), units::duration)
}

/// What the calls consumed; of bytes, where that is known, also how many each did.
fn collected<'a>(column: &'static model::Column, is_known: bool) -> impl Iterator<Item = Column<'a>> {
    let quantiles = column.per_call.filter(|_| is_known).map(|(_, [median, p99])| [(median, 0.50), (p99, 0.99)]);
    let quantiles = quantiles.into_iter().flatten().map(move |(title, q)| (title, Cell::PerCall(column, q)));
    let all = std::iter::once((column.title, Cell::Consumed(column))).chain(quantiles);
    all.map(|(title, cell)| Column { title, align: Align::Right, cell })
}

/// How many bytes a call consumed, or `-` where that is not known.
fn per_call(line: &Line<'_>, column: &model::Column, q: f64) -> String {
    let bytes = PerCall::of(line.row.measured).quantile(column, q);
    bytes.map_or_else(|| "-".to_owned(), |bytes| units::counted(bytes, column.unit))
}

/// What the timed calls consumed, or `-` where that is not known.
fn consumed(line: &Line<'_>, column: &model::Column) -> String {
    // Of calls that are seen at their return alone it is known how they ended.
    let is_seen = line.row.measured.traced.wanted == Tracing::Returned && column.is_of_results();
    let is_known = line.row.timed_calls() > 0 || !line.row.snapshot.timed || is_seen;
    let known = line.row.measured.consumed.as_deref().filter(|_| is_known);
    known.map_or_else(|| "-".to_owned(), |consumed| units::counted(column.own(consumed), column.unit))
}

/// What programs of the user's have counted, in whatever unit; `-` where none of them runs.
fn by_programs(line: &Line<'_>, place: usize) -> String {
    let programs = line.row.snapshot.programs.get(place);
    let value = programs.and_then(|programs| programs.of(line.row.measured.index));
    value.map_or_else(|| "-".to_owned(), units::count)
}

/// A time of the calls that were timed, or `-` where it is not known or none was.
fn timed(line: &Line<'_>, time: Option<Uncertain>) -> String {
    time.filter(|_| line.row.timed_calls() > 0).map_or_else(|| "-".to_owned(), Uncertain::duration)
}

/// The same of a time that may be estimated for calls that nobody timed, if a look has timed one.
fn summed(line: &Line<'_>, time: Option<Uncertain>) -> String {
    time.filter(|_| line.row.timed_calls() > 0 || line.row.estimated_total_ns().is_some())
        .map_or_else(|| "-".to_owned(), Uncertain::duration)
}

/// How far an estimated time may be off, or `-` where nobody knows.
fn error_of_total(row: &Row<'_>) -> String {
    match (row.measured.unseen, row.estimate_error_ns()) {
        (_, Some(_)) => row.total().error(),
        (Some(_), None) => "-".to_owned(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::{Screen, table};
    use crate::model::{MethodSnapshot, OpenTime, Snapshot, Tier};
    use crate::render::{Order, Scope, View, samples};

    fn text(snapshot: &Snapshot, screen: Screen) -> String {
        text_of(from_ref(snapshot), Scope::One, screen)
    }

    fn text_of(jvms: &[Snapshot], scope: Scope, screen: Screen) -> String {
        let mut out = Vec::new();
        table(jvms, scope, screen, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check the whole output for a snapshot with one of everything.
    #[test]
    fn everything() {
        assert_eq!(text(&samples::eventful(), Screen::default()), include_str!("golden/table.txt"));
    }

    /// Check the whole output of a plain run: no column and no note that says nothing.
    #[test]
    fn plain() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![samples::function(0, "a.A", 5, 10_000), samples::function(1, "b.B", 50, 1000)];
        snapshot.traced = 2;
        assert_eq!(text(&snapshot, Screen::default()), include_str!("golden/table_plain.txt"));
    }

    /// Check the whole output with `--count-only`: no times.
    #[test]
    fn count_only() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![samples::function(0, "a.A", 5, 0), samples::function(1, "b.B", 5_000_000, 0)];
        snapshot.timed = false;
        assert_eq!(text(&snapshot, Screen::default()), include_str!("golden/table_count_only.txt"));
    }

    /// Check the whole output where functions were demoted: which numbers are of a part of the calls, and why.
    #[test]
    fn demoted() {
        assert_eq!(text(&samples::demoted(), Screen::default()), include_str!("golden/table_demoted.txt"));
    }

    /// Check the whole output where functions were too expensive to watch: an estimate with its error, and the most that it can be
    /// where it is next to nothing, or less than its error.
    #[test]
    fn estimated() {
        assert_eq!(text(&samples::estimated(), Screen::default()), include_str!("golden/table_estimated.txt"));
        let mut few = samples::estimated();
        few.methods.retain(|row| row.methods[0].method.class == "a.Quiet");
        let few = text(&few, Screen::default());
        assert!(few.contains("\ntotal: at most 1,200 calls to 1 function in 2.50 s (<480/s), "), "{few}");
    }

    /// Check the whole output where both tiers have counted: which, and what is not known of those that stubs did.
    #[test]
    fn both_tiers() {
        assert_eq!(text(&samples::of_both_tiers(), Screen::default()), include_str!("golden/table_tiers.txt"));
        let mut by_stubs = samples::of_both_tiers();
        by_stubs.methods.retain(|row| row.tier == Tier::Stub);
        assert!(text(&by_stubs, Screen::default()).contains("\n~ estimates, within 10 %\n"), "no probe is part of it");
        by_stubs.methods.iter_mut().for_each(|row| row.self_ns = Some(row.total_ns));
        let known = text(&by_stubs, Screen::default());
        assert!(known.contains("\nstub: counted inside the JVM: no probe is part of the times\n"), "{known}");
    }

    /// Check the whole output where probes have been taken off the times: the slow function is the first though the one that
    /// is single-stepped has read as longer, what is lost in the error is said to be less than it, and what tracing cost.
    #[test]
    fn less_the_probes() {
        assert_eq!(text(&samples::probed(), Screen::default()), include_str!("golden/table_probed.txt"));
    }

    /// Check the whole output where it was collected what calls consume: of the timed ones alone.
    #[test]
    fn collected() {
        assert_eq!(text(&samples::collected(), Screen::default()), include_str!("golden/table_collected.txt"));
    }

    /// Check that what programs of the user's have counted has a column of its own, without a number where none of them runs.
    #[test]
    fn values_of_programs() {
        let text = text(&samples::with_programs(), Screen::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("  MAX       BYTES  LIBRARY"), "{text}");
        assert!(lines[1].contains("  12,022,867  ") && lines[1].ends_with("a.A::call"), "{text}");
        assert!(lines[2].contains("           -  lib"), "{text}");
        assert!(text.contains("\nBYTES: what your programs have counted, at the calls that were watched"), "{text}");
    }

    /// Check what a snapshot without calls says.
    #[test]
    fn no_calls() {
        assert_eq!(text(&samples::snapshot(), Screen::default()), include_str!("golden/table_no_calls.txt"));
    }

    /// Check the whole output for several JVMs: rows name theirs, overloads are told apart in each of them alone, what
    /// one JVM's notes already say is not repeated.
    #[test]
    fn several_jvms() {
        assert_eq!(text_of(&samples::several(), Scope::All, Screen::default()), include_str!("golden/table_all.txt"));
    }

    /// Check that a JVM of which some calls are not seen is not taken for idle, and is named where there are others.
    #[test]
    fn downcalls_are_told() {
        let mut jvms = samples::several();
        assert!(!text_of(&jvms, Scope::All, Screen::default()).contains("downcalls"));
        jvms[0].downcalls = true;
        let all = text_of(&jvms, Scope::All, Screen::default());
        assert!(all.contains(&format!("(downcalls) of {}: no native method makes them;", jvms[0].jvm.main)), "{all}");
        let one = text(&Snapshot { downcalls: true, ..samples::snapshot() }, Screen::default());
        assert!(
            one.contains("\nnot seen: calls of native functions by java.lang.foreign (downcalls): no native"),
            "{one}"
        );
    }

    /// Check that where there may be several JVMs a single one is named too, and a mark explained only if it is there.
    #[test]
    fn one_of_all_jvms() {
        let [first, second] = samples::several().try_into().unwrap();
        let text = |jvm| text_of(&[jvm], Scope::All, Screen::default());
        let (running, ended) = (text(first), text(second));
        assert!(running.starts_with(" PID  JVM            ") && !running.contains("JVMs: "), "{running}");
        assert!(!running.contains("this JVM has ended"), "{running}");
        assert!(ended.contains(" 77  orders-1.2.jar x  ") && ended.contains("\nx this JVM has ended\n"), "{ended}");
    }

    /// Check that the first rows alone can be shown, in another order, and that it is said what is missing.
    #[test]
    fn the_first_rows() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![
            samples::function(0, "a.A", 5, 6_000),
            samples::function(1, "b.B", 50, 3_000),
            samples::function(2, "c.C", 1, 1_000),
        ];
        let text = |order, top| first_rows(&snapshot, order, top);
        let two = text(Order::default(), 2);
        assert!(two.lines().nth(2).unwrap().contains("b.B::") && !two.contains("c.C"), "{two}");
        assert!(two.contains("\nleft out: 1 further function with 1.00 us, 10 % of the time (--top)\n"), "{two}");
        let by_calls = text(Order::Calls, 1);
        assert!(by_calls.lines().nth(1).unwrap().contains("b.B::"), "{by_calls}");
        assert!(!text(Order::Calls, 3).contains("left out") && !text(Order::Calls, 9).contains("left out"));
        // A mark that stands nowhere needs no explanation.
        snapshot.methods[2].untimed = 1;
        let explains = |top| first_rows(&snapshot, Order::default(), top).contains("\n? some of its calls");
        assert!(explains(3) && !explains(2));
    }

    fn first_rows(snapshot: &Snapshot, order: Order, top: usize) -> String {
        let mut out = Vec::new();
        let view = View { order, top: Some(top), ..View::from(Scope::One) };
        table(from_ref(snapshot), view, Screen::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check what is said where there was no JVM.
    #[test]
    fn no_jvm() {
        assert_eq!(text_of(&[], Scope::All, Screen::default()), "no JVM yet\n\nlosses: none\n");
    }

    /// Check that on a terminal the JVM's name gives way before the method's.
    #[test]
    fn shortens_jvms_first() {
        let mut jvms = samples::several();
        jvms[0].jvm.main = "com.acme.orders.internal.OrderService".to_owned();
        let narrow = text_of(&jvms, Scope::All, Screen { ansi: false, columns: Some(179) });
        assert!(narrow.lines().take(6).all(|l| crate::render::names::width(l) <= 179), "{narrow}");
        assert!(narrow.contains("1234  c.a.o.i.OrderService  "), "{narrow}");
        assert!(narrow.contains("java.util.zip.Deflater::deflate(long, byte[], int, int)"), "{narrow}");
    }

    /// Check that on a terminal names give way, and on a pipe they never do.
    #[test]
    fn fits_a_terminal() {
        let snapshot = samples::eventful();
        let narrow = text(&snapshot, Screen { ansi: false, columns: Some(110) });
        assert!(narrow.lines().take(5).all(|l| crate::render::names::width(l) <= 110), "{narrow}");
        assert!(narrow.contains("j.u.zip.Deflater::deflate("), "{narrow}");
        assert!(text(&snapshot, Screen::default()).contains("java.util.zip.Deflater::deflate(long, byte[], int, int)"));
    }

    /// Check that on a terminal rows that only waited are dim, with what that means, and no others.
    #[test]
    fn what_only_waited_is_dim() {
        let mut snapshot = samples::snapshot();
        let row = |index, class, off_ns| MethodSnapshot {
            off_cpu_ns: Some(off_ns),
            ..samples::function(index, class, 10, 1_000)
        };
        snapshot.methods = vec![row(0, "a.Works", 10), row(1, "b.Waits", 990)];
        let on_terminal = text(&snapshot, Screen { ansi: true, columns: None });
        let dim: Vec<&str> = on_terminal.lines().filter(|line| line.starts_with("\u{1b}[2m")).collect();
        assert!(dim.len() == 1 && dim[0].contains("b.Waits"), "{on_terminal}");
        assert!(on_terminal.contains("\ndim: "), "{on_terminal}");
        snapshot.methods.truncate(1);
        assert!(!text(&snapshot, Screen { ansi: true, columns: None }).contains("dim: "));
        assert!(!text(&snapshot, Screen::default()).contains('\u{1b}'));
    }

    /// Check that of calls that have not returned it is said how long they have lasted and worked, where that is known.
    #[test]
    fn calls_that_have_not_returned() {
        let mut snapshot = samples::snapshot();
        let row = |index, class, open| MethodSnapshot {
            in_flight: 1,
            open,
            off_cpu_ns: Some(0),
            ..samples::function(index, class, 0, 0)
        };
        let open = OpenTime { calls: 1, self_ns: 4_000_000, off_cpu_ns: Some(1_000_000) };
        snapshot.methods = vec![row(0, "a.Loop", Some(open)), row(1, "b.Stub", None)];
        let shown = text(&snapshot, Screen::default());
        let cells = |line: usize| shown.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(cells(0).ends_with("IN FLIGHT OPEN OPEN ON-CPU LIBRARY METHOD"), "{shown}");
        assert!(cells(1).ends_with(" 1 4.00 ms 3.00 ms liba.so a.Loop::call"), "{shown}");
        assert!(cells(2).ends_with(" 1 - - liba.so b.Stub::call"), "{shown}");
        assert!(shown.contains("\nOPEN is the time of calls that have not returned"), "{shown}");
    }

    /// Check that escape sequences are written only where they are allowed, and change no text.
    #[test]
    fn escapes_only_on_request() {
        let snapshot = samples::eventful();
        let plain = text(&snapshot, Screen::default());
        let bold = text(&snapshot, Screen { ansi: true, columns: None });
        assert!(!plain.contains('\u{1b}'));
        assert_eq!(bold.matches("\u{1b}[1m").count(), 2);
        assert_eq!(bold.replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), plain);
    }
}
