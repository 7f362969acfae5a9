//! Columns of text: aligned, and fitted into a terminal where there is one.

use super::names;

/// Columns between two cells.
const GAP: usize = 2;
/// The least that a column which gives way keeps.
const LEAST_WIDTH: usize = 16;
/// What a column of methods should keep.
const READABLE_WIDTH: usize = 32;

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Whether escape sequences (bold, dim) may be written.
    pub ansi: bool,
    /// How many columns there are. `None` for pipes and files: nothing is shortened.
    pub columns: Option<usize>,
}

/// On which side a column's text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A column of names that can be shortened.
#[derive(Clone, Copy)]
pub(super) struct Elastic {
    pub(super) column: usize,
    /// Names narrower than this are hard to tell apart: other columns go first.
    readable: usize,
}

impl Elastic {
    /// For names of methods and classes.
    pub(super) fn names(column: usize) -> Self {
        Self { column, readable: READABLE_WIDTH }
    }

    /// For names that a few letters of are enough.
    pub(super) fn short_names(column: usize) -> Self {
        Self { column, readable: LEAST_WIDTH }
    }
}

/// A table of printable texts.
pub(super) struct Grid<'a> {
    pub(super) headers: Vec<(&'a str, Align)>,
    /// Rows of as many cells as there are headers.
    pub(super) rows: Vec<Vec<String>>,
    /// The columns that are shortened where the screen is too narrow, the first first.
    pub(super) elastic: Vec<Elastic>,
    /// The columns to do without, the first first, where the names would become unreadable.
    pub(super) expendable: &'static [&'static str],
}

impl Grid<'_> {
    /// The header and the rows as lines without trailing blanks.
    pub(super) fn lines(mut self, screen: Screen) -> Vec<String> {
        let mut widths = self.widths();
        if let Some(columns) = screen.columns {
            self.shrink(&mut widths, columns);
        }
        let header: Vec<&str> = self.headers.iter().map(|(title, _)| *title).collect();
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        lines.push(bold(&self.line(&header, &widths), screen.ansi));
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths)));
        lines
    }

    /// Removes expendable columns until the names have room on the screen; returns the titles of those removed.
    pub(super) fn make_room(&mut self, screen: Screen) -> Vec<&'static str> {
        let mut removed = Vec::new();
        let Some(columns) = screen.columns else {
            return removed;
        };
        for title in self.expendable {
            let widths = self.widths();
            let spare =
                |elastic: &Elastic| widths.get(elastic.column).map_or(0, |w| w.saturating_sub(elastic.readable));
            if total_width(&widths) - self.elastic.iter().map(spare).sum::<usize>() <= columns {
                break;
            }
            if let Some(at) = self.headers.iter().position(|(t, _)| t == title) {
                self.remove(at);
                removed.push(*title);
            }
        }
        removed
    }

    fn remove(&mut self, column: usize) {
        self.headers.remove(column);
        for row in self.rows.iter_mut().filter(|row| column < row.len()) {
            row.remove(column);
        }
        for elastic in &mut self.elastic {
            elastic.column -= usize::from(column < elastic.column);
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headers.iter().map(|(title, _)| names::width(title)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(names::width(cell));
            }
        }
        widths
    }

    /// Shortens the elastic columns so that the lines fit into `columns`, if they can.
    fn shrink(&mut self, widths: &mut [usize], columns: usize) {
        for at in 0..self.elastic.len() {
            self.shrink_one(self.elastic[at].column, widths, columns);
        }
    }

    fn shrink_one(&mut self, column: usize, widths: &mut [usize], columns: usize) {
        let total = total_width(widths);
        let Some(width) = widths.get_mut(column) else {
            return;
        };
        let allowed = width.saturating_sub(total.saturating_sub(columns)).max(LEAST_WIDTH);
        if allowed >= *width {
            return;
        }
        *width = 0;
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = names::fit(cell, allowed).into_owned();
            *width = (*width).max(names::width(cell));
        }
        *width = (*width).max(names::width(self.headers[column].0));
    }

    fn line<S: AsRef<str>>(&self, cells: &[S], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, ((cell, width), (_, align))) in cells.iter().zip(widths).zip(&self.headers).enumerate() {
            let cell = cell.as_ref();
            let blanks = width.saturating_sub(names::width(cell));
            let (before, after) = if *align == Align::Right { (blanks, 0) } else { (0, blanks) };
            line.extend(std::iter::repeat_n(' ', before + if i > 0 { GAP } else { 0 }));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', after));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn total_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The text, dim where `ansi` says so.
pub(super) fn dim(text: &str, ansi: bool) -> String {
    use crossterm::style::Stylize as _;
    if ansi { text.dim().to_string() } else { text.to_owned() }
}

/// The text, bold where `ansi` says so.
pub(super) fn bold(text: &str, ansi: bool) -> String {
    use crossterm::style::Stylize as _;
    if ansi { text.bold().to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Align, Elastic, Grid, Screen};

    fn grid() -> Grid<'static> {
        Grid {
            headers: vec![("N", Align::Right), ("NAME", Align::Left), ("END", Align::Left)],
            rows: [["1", "com.example.Thing::call", "x"], ["1,000", "日本.A::b", ""]]
                .map(|row| row.map(str::to_owned).to_vec())
                .to_vec(),
            elastic: vec![Elastic::names(1)],
            expendable: &["END", "N"],
        }
    }

    /// Check alignment, wide characters, and that lines have no trailing blanks.
    #[test]
    fn aligns_columns() {
        assert_eq!(
            grid().lines(Screen::default()),
            ["    N  NAME                     END", "    1  com.example.Thing::call  x", "1,000  日本.A::b",]
        );
    }

    /// Check that only the elastic column gives way to a narrow screen, down to its least width.
    #[test]
    fn shrinks_to_the_screen() {
        let lines = |columns| grid().lines(Screen { ansi: false, columns: Some(columns) });
        assert_eq!(lines(35)[1], "    1  com.example.Thing::call  x");
        assert_eq!(lines(34)[1], "    1  c.example.Thing::call  x");
        assert_eq!(lines(28), ["    N  NAME             END", "    1  c.e.Thing::call  x", "1,000  日本.A::b"]);
        assert_eq!(lines(5), lines(28));
    }

    /// Check that of two elastic columns the first gives way before the second.
    #[test]
    fn shrinks_the_first_column_first() {
        let lines = |columns| {
            let mut grid = grid();
            grid.rows[0][0] = "com.example.another.Program".to_owned();
            grid.headers[0].0 = "JVM";
            grid.elastic = vec![Elastic::short_names(0), Elastic::names(1)];
            grid.lines(Screen { ansi: false, columns: Some(columns) })[1].clone()
        };
        assert_eq!(lines(60), "com.example.another.Program  com.example.Thing::call  x");
        assert_eq!(lines(50), "c.e.another.Program  com.example.Thing::call  x");
        assert_eq!(lines(40), "c.e.a.Program  c.e.Thing::call  x");
    }

    /// Check that columns go in their order, no more than needed, and never on a pipe.
    #[test]
    fn makes_room_for_names() {
        let removed = |columns| {
            let mut grid = grid();
            let removed = grid.make_room(Screen { ansi: false, columns });
            (removed, grid.lines(Screen::default())[2].clone())
        };
        assert_eq!(removed(None), (vec![], "1,000  日本.A::b".to_owned()));
        assert_eq!(removed(Some(35)), (vec![], "1,000  日本.A::b".to_owned()));
        assert_eq!(removed(Some(34)), (vec!["END"], "1,000  日本.A::b".to_owned()));
        assert_eq!(removed(Some(10)), (vec!["END", "N"], "日本.A::b".to_owned()));
    }

    /// Check that the header is bold exactly where escape sequences are allowed.
    #[test]
    fn escapes_only_on_request() {
        let ansi = grid().lines(Screen { ansi: true, columns: None });
        assert!(ansi[0].starts_with("\u{1b}[1m") && ansi[0].ends_with("\u{1b}[0m"), "{:?}", ansi[0]);
        assert_eq!(ansi[1..], grid().lines(Screen::default())[1..]);
    }
}
