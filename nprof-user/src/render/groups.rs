//! The rows of a run added up by what their methods belong to: library, package or class.

use std::collections::BTreeMap;

use super::grid::{Align, Elastic, Grid};
use super::rows::Row;
use super::uncertain::Uncertain;
use super::{names, units};

/// What rows are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The library with the function.
    Library,
    /// The package of the class.
    Package,
    /// The class.
    Class,
}

impl By {
    /// Every one, with the word for it.
    pub const ALL: [(Self, &str); 3] = [(Self::Library, "library"), (Self::Package, "package"), (Self::Class, "class")];

    fn title(self) -> &'static str {
        match self {
            Self::Library => "LIBRARY",
            Self::Package => "PACKAGE",
            Self::Class => "CLASS",
        }
    }

    /// What a row belongs to.
    fn name<'a>(self, row: &Row<'a>) -> &'a str {
        let class = row.first.method.class.as_str();
        match self {
            Self::Library => &row.measured.library,
            Self::Class => class,
            Self::Package => class.rsplit_once('.').map_or("(no package)", |(package, _)| package),
        }
    }
}

/// What rows add up to.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    functions: u64,
    calls: Uncertain,
    /// The own time in which threads ran; of rows of which that is not known, all of it.
    ran: Uncertain,
    /// The own time, so that no time is counted twice. Of rows of which that is not known it has the calls that they made in it.
    own: Uncertain,
}

impl Sum {
    fn add(&mut self, row: &Row<'_>) {
        let plus = |sum: Uncertain, more: Uncertain| [sum, more].into_iter().sum();
        let own = match row.own() {
            Some(own) if row.measured.unseen.is_none() && row.measured.estimated_ns.is_none() => own,
            _ => row.total(),
        };
        self.functions += 1;
        self.calls = plus(self.calls, row.all_calls());
        self.ran = plus(self.ran, row.worked().unwrap_or(own));
        self.own = plus(self.own, own);
    }
}

/// One line for each group, those that worked longest first, and how many groups there are in all.
pub(super) fn grid(by: By, rows: &[Row<'_>], top: Option<usize>) -> (Grid, usize) {
    let mut groups: BTreeMap<&str, Sum> = BTreeMap::new();
    for row in rows {
        groups.entry(by.name(row)).or_default().add(row);
    }
    let mut groups: Vec<(&str, Sum)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.ran.value, sum.own.value, sum.calls.value)));
    let all_ns = groups.iter().map(|(_, sum)| sum.ran.value).fold(0, u64::saturating_add);
    let is_timed = rows.iter().any(|row| row.snapshot.timed);
    let is_estimated = rows.iter().any(|row| row.measured.unseen.is_some() || row.measured.estimated_ns.is_some());
    let right = |title: &'static str| (title, Align::Right);
    let mut headers = vec![right("CALLS")];
    headers.extend(is_estimated.then(|| right("ERROR")));
    headers.push(right("FUNCTIONS"));
    if is_timed {
        headers.push(right("ON-CPU"));
        headers.extend(is_estimated.then(|| right("ERROR")));
        headers.extend([right("SHARE"), right("SELF")]);
    }
    headers.push((by.title(), Align::Left));
    let line = |(name, sum): &(&str, Sum)| {
        let error = |of: Uncertain| is_estimated.then(|| if of.error == 0 { String::new() } else { of.error() });
        let mut cells = vec![sum.calls.count()];
        cells.extend(error(sum.calls));
        cells.push(units::count(sum.functions));
        if is_timed {
            let share = units::percent(sum.ran.value as f64 / all_ns.max(1) as f64);
            cells.push(sum.ran.duration());
            cells.extend(error(sum.ran));
            cells.extend([share, sum.own.duration()]);
        }
        cells.push(names::printable(name).into_owned());
        cells
    };
    let shown = top.unwrap_or(groups.len());
    let lines = groups.iter().take(shown).map(line).collect();
    let grid = Grid {
        rows: lines,
        elastic: vec![Elastic::names(headers.len() - 1)],
        headers,
        expendable: &["FUNCTIONS", "SELF"],
    };
    (grid, groups.len())
}

#[cfg(test)]
mod tests {
    use super::{By, grid};
    use crate::model::MethodSnapshot;
    use crate::render::grid::Screen;
    use crate::render::order::{self, Order};
    use crate::render::samples;

    fn lines(by: By, top: Option<usize>) -> (Vec<String>, usize) {
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
        let (grid, groups) = grid(by, &order::all(&jvms, Order::default()), top);
        (grid.lines(Screen::default()), groups)
    }

    /// Check each way to add up: by work, with what waited in its place, and classes without a package among themselves.
    #[test]
    fn sums_by_work() {
        let by_library = [
            "CALLS  FUNCTIONS   ON-CPU  SHARE     SELF  LIBRARY",
            "   10          1  4.00 us   50 %  4.00 us  libx.so",
            "   20          2  4.00 us   50 %  12.0 us  liby.so",
        ];
        let (mut found, groups) = lines(By::Library, None);
        found[1..].sort();
        assert_eq!((found, groups), (by_library.map(str::to_owned).to_vec(), 2));
        let (by_package, _) = lines(By::Package, None);
        assert!(by_package[1].ends_with("7.00 us  87.5 %  7.00 us  a.b"), "{by_package:?}");
        assert!(by_package[2].ends_with("1.00 us  12.5 %  9.00 us  (no package)"), "{by_package:?}");
    }

    /// Check that how far estimates may be off stands behind them, and behind nothing else.
    #[test]
    fn estimates_have_errors() {
        let jvms = [samples::estimated()];
        let (grid, _) = grid(By::Class, &order::all(&jvms, Order::default()), None);
        let titles: Vec<&str> = grid.headers.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles.iter().filter(|title| **title == "ERROR").count(), 2, "{titles:?}");
        let lines = grid.lines(Screen::default());
        assert!(lines.iter().any(|line| line.contains('±')), "{lines:?}");
    }

    /// Check that the first ones are shown where no more are wanted, and that it is known how many there are.
    #[test]
    fn the_first_alone() {
        let (found, groups) = lines(By::Class, Some(1));
        assert_eq!((found.len(), groups), (2, 3));
        assert!(found[1].ends_with("a.b.C"), "{found:?}");
    }
}
