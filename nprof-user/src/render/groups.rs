//! Rows added up by what they belong to: thread, library, package or class.

use std::collections::BTreeMap;

use serde::Serialize;

use super::grid::{Align, Elastic, Grid};
use super::order::Order;
use super::rows::Row;
use super::sum::{Name, Sum};
use super::uncertain::Uncertain;
use super::{by_thread, units};

/// What rows are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The thread that made the calls.
    Thread,
    /// The library with the function.
    Library,
    /// The package of the class.
    Package,
    /// The class.
    Class,
}

impl By {
    /// Every one, with the word for it.
    pub const ALL: [(Self, &str); 4] =
        [(Self::Thread, "thread"), (Self::Library, "library"), (Self::Package, "package"), (Self::Class, "class")];

    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        Self::ALL.iter().find(|(by, _)| *by == self).map_or("", |(_, word)| word)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Thread => "THREAD",
            Self::Library => "LIBRARY",
            Self::Package => "PACKAGE",
            Self::Class => "CLASS",
        }
    }

    /// What a function belongs to that is in a library and of a method of a class; `None` where it belongs to several.
    pub(super) fn name<'a>(self, library: &'a str, class: &'a str) -> Option<&'a str> {
        match self {
            Self::Thread => None,
            Self::Library => Some(library),
            Self::Class => Some(class),
            Self::Package => Some(class.rsplit_once('.').map_or("(no package)", |(package, _)| package)),
        }
    }
}

/// Groups in order.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    by: By,
    pub(super) groups: Vec<(Name<'a>, Sum)>,
}

/// Which columns groups have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Whether there are times.
    pub(super) is_timed: bool,
    /// Whether anything is estimated.
    pub(super) is_estimated: bool,
}

impl<'a> Groups<'a> {
    /// Adds up what belongs together.
    pub(super) fn new(by: By, order: Order, sums: impl Iterator<Item = (Name<'a>, Sum)>) -> Self {
        let mut groups: BTreeMap<Name<'a>, Sum> = BTreeMap::new();
        for (name, sum) in sums {
            groups.entry(name).or_default().add(sum);
        }
        let mut groups: Vec<(Name<'a>, Sum)> = groups.into_iter().collect();
        // They are in the order of their names.
        groups.sort_by_key(|(_, sum)| sum.key(order));
        Self { by, groups }
    }

    /// One line for each of the first groups, and what is to be said of the others.
    pub(super) fn grid(&self, shape: Shape, top: Option<usize>) -> (Grid<'static>, Option<String>) {
        let all_ns = sum_ns(&self.groups);
        let (shown, left_out) = self.groups.split_at(top.unwrap_or(self.groups.len()).min(self.groups.len()));
        let headers = self.headers(shape);
        let grid = Grid {
            rows: shown.iter().map(|group| cells(group, shape, all_ns)).collect(),
            elastic: vec![Elastic::names(headers.len() - 1)],
            headers,
            expendable: &["FUNCTIONS", "SELF"],
        };
        (grid, (!left_out.is_empty()).then(|| rest(left_out, shape, all_ns)))
    }

    fn headers(&self, Shape { is_timed, is_estimated }: Shape) -> Vec<(&'static str, Align)> {
        let right = |title: &'static str| (title, Align::Right);
        let mut headers = vec![right("CALLS")];
        headers.extend(is_estimated.then(|| right("ERROR")));
        headers.push(right("FUNCTIONS"));
        if is_timed {
            headers.push(right("ON-CPU"));
            headers.extend(is_estimated.then(|| right("ERROR")));
            headers.extend([right("SHARE"), right("SELF")]);
        }
        headers.push((self.by.title(), Align::Left));
        headers
    }
}

fn cells((name, sum): &(Name<'_>, Sum), Shape { is_timed, is_estimated }: Shape, all_ns: u64) -> Vec<String> {
    let error = |of: Uncertain| is_estimated.then(|| if of.error == 0 { String::new() } else { of.error() });
    let mut cells = vec![sum.calls.count()];
    cells.extend(error(sum.calls));
    cells.push(units::count(sum.functions));
    if is_timed {
        cells.push(sum.ran.duration());
        cells.extend(error(sum.ran));
        cells.extend([share(sum.ran.value, all_ns), sum.own.duration()]);
    }
    cells.push(name.to_string());
    cells
}

/// What the groups add up to that are not shown.
fn rest(left_out: &[(Name<'_>, Sum)], shape: Shape, all_ns: u64) -> String {
    let plural = |n: u64, what: &str| format!("{} {what}{}", units::count(n), if n == 1 { "" } else { "s" });
    let rows = plural(left_out.len() as u64, "further row");
    let ran_ns = sum_ns(left_out);
    let calls = left_out.iter().map(|(_, sum)| sum.calls.value).fold(0, u64::saturating_add);
    let calls = plural(calls, "call");
    if !shape.is_timed {
        return format!("left out: {rows} with {calls} (--top)");
    }
    format!("left out: {rows} with {calls}, {}, {} of the time (--top)", units::duration(ran_ns), share(ran_ns, all_ns))
}

fn sum_ns(groups: &[(Name<'_>, Sum)]) -> u64 {
    groups.iter().map(|(_, sum)| sum.ran.value).fold(0, u64::saturating_add)
}

fn share(part: u64, all: u64) -> String {
    units::percent(part as f64 / all.max(1) as f64)
}

/// A group in JSON and CSV. Errors are 0 of what is exact; times are missing where nothing is timed.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) name: &'a str,
    /// Only of threads that are told from others of their name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tid: Option<u32>,
    pub(super) functions: u64,
    pub(super) calls: u64,
    pub(super) calls_error: u64,
    pub(super) on_cpu_ns: Option<u64>,
    pub(super) on_cpu_error_ns: Option<u64>,
    pub(super) self_ns: Option<u64>,
}

impl<'a> Groups<'a> {
    /// Every group, in order.
    pub(super) fn documents(&self, shape: Shape) -> Vec<Document<'a>> {
        let timed = |ns: u64| shape.is_timed.then_some(ns);
        let document = |(Name { name, tid }, sum): &(Name<'a>, Sum)| Document {
            name,
            tid: *tid,
            functions: sum.functions,
            calls: sum.calls.value,
            calls_error: sum.calls.error,
            on_cpu_ns: timed(sum.ran.value),
            on_cpu_error_ns: timed(sum.ran.error),
            self_ns: timed(sum.own.value),
        };
        self.groups.iter().map(document).collect()
    }
}

/// The groups of the rows of a run, and which columns they have.
pub(super) fn of<'a>(by: By, order: Order, rows: &'a [Row<'a>]) -> (Groups<'a>, Shape) {
    let is_estimated = |row: &Row<'_>| row.measured.unseen.is_some() || row.measured.estimated_ns.is_some();
    let shape =
        Shape { is_timed: rows.iter().any(|row| row.snapshot.timed), is_estimated: rows.iter().any(is_estimated) };
    if by == By::Thread {
        return (Groups::new(by, order, by_thread::sums(rows).into_iter()), shape);
    }
    let name = |row: &'a Row<'a>| by.name(&row.measured.library, row.first.method.class.as_str()).unwrap_or_default();
    (Groups::new(by, order, rows.iter().map(|row| (name(row).into(), Sum::of(row)))), shape)
}

#[cfg(test)]
mod tests {
    use super::{By, of};
    use crate::model::MethodSnapshot;
    use crate::render::grid::Screen;
    use crate::render::order::{self, Order};
    use crate::render::samples;

    fn lines(by: By, top: Option<usize>) -> (Vec<String>, Option<String>) {
        let mut snapshot = samples::snapshot();
        let row = |index, class: &str, library: &str, total_ns, off_ns| MethodSnapshot {
            library: library.to_owned(),
            off_cpu_ns: Some(off_ns),
            ..samples::function(index, class, 10, total_ns)
        };
        snapshot.methods = vec![
            row(0, "a.b.C", "libx.so", 4_000, 0),
            row(1, "a.b.D", "liby.so", 3_000, 0),
            row(2, "E", "liby.so", 9_000, 8_000),
        ];
        let jvms = [snapshot];
        let rows = order::all(&jvms, Order::default());
        let (groups, shape) = of(by, Order::default(), &rows);
        let (grid, rest) = groups.grid(shape, top);
        (grid.lines(Screen::default()), rest)
    }

    /// Check each way to add up: by work, with what waited in its place, and classes without a package among themselves.
    #[test]
    fn sums_by_work() {
        let by_library = [
            "CALLS  FUNCTIONS   ON-CPU  SHARE     SELF  LIBRARY",
            "   10          1  4.00 us   50 %  4.00 us  libx.so",
            "   20          2  4.00 us   50 %  12.0 us  liby.so",
        ];
        let (mut found, rest) = lines(By::Library, None);
        found[1..].sort();
        assert_eq!((found, rest), (by_library.map(str::to_owned).to_vec(), None));
        let (by_package, _) = lines(By::Package, None);
        assert!(by_package[1].ends_with("7.00 us  87.5 %  7.00 us  a.b"), "{by_package:?}");
        assert!(by_package[2].ends_with("1.00 us  12.5 %  9.00 us  (no package)"), "{by_package:?}");
    }

    /// Check that how far estimates may be off stands behind them, and behind nothing else.
    #[test]
    fn estimates_have_errors() {
        let jvms = [samples::estimated()];
        let rows = order::all(&jvms, Order::default());
        let (groups, shape) = of(By::Class, Order::default(), &rows);
        let (grid, _) = groups.grid(shape, None);
        let titles: Vec<&str> = grid.headers.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles.iter().filter(|title| **title == "ERROR").count(), 2, "{titles:?}");
        let lines = grid.lines(Screen::default());
        assert!(lines.iter().any(|line| line.contains('±')), "{lines:?}");
    }

    /// Check that documents have what tables show, as numbers, and no times where none was measured.
    #[test]
    fn documents_have_numbers() {
        let jvms = [samples::snapshot()];
        let rows = order::all(&jvms, Order::default());
        let (groups, shape) = of(By::Class, Order::default(), &rows);
        assert_eq!(groups.documents(shape).len(), groups.groups.len());
        let mut snapshot = samples::eventful();
        snapshot.timed = false;
        let jvms = [snapshot];
        let rows = order::all(&jvms, Order::default());
        let (groups, shape) = of(By::Library, Order::default(), &rows);
        let documents = groups.documents(shape);
        assert!(!documents.is_empty() && documents.iter().all(|group| group.self_ns.is_none()), "{documents:?}");
        let calls: u64 = documents.iter().map(|group| group.calls).sum();
        assert_eq!(calls, jvms[0].methods.iter().map(|method| method.calls).sum::<u64>());
    }

    /// Check that the first ones are shown where no more are wanted, and that it is said what the others add up to.
    #[test]
    fn the_first_alone() {
        let (found, rest) = lines(By::Class, Some(1));
        assert!(found.len() == 2 && found[1].ends_with("a.b.C"), "{found:?}");
        assert_eq!(rest.unwrap(), "left out: 2 further rows with 20 calls, 4.00 us, 50 % of the time (--top)");
    }
}
