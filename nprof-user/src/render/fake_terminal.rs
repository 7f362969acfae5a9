//! A terminal for the tests of what is drawn on one.

use std::fmt::Write as _;

use super::live::Size;

/// As much of a terminal as the view uses: it prints, moves and clears; what it does not know is a failure.
pub(super) struct Terminal {
    pub(super) size: Size,
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Terminal {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        Self { size: Size { columns, rows }, lines: vec![Vec::new(); usize::from(rows)], row: 0, column: 0 }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = std::str::from_utf8(bytes).unwrap();
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\r' => self.column = 0,
                '\n' => self.line_feed(),
                '\u{1b}' => {
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    self.command(&rest[1..end], &rest[end..=end]);
                    rest = &rest[end + 1..];
                }
                c => self.print(c),
            }
        }
    }

    fn print(&mut self, c: char) {
        assert!(self.column < usize::from(self.size.columns), "a line wraps");
        let line = &mut self.lines[self.row];
        line.resize(line.len().max(self.column + 1), ' ');
        line[self.column] = c;
        self.column += 1;
    }

    fn line_feed(&mut self) {
        self.column = 0;
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.remove(0);
            self.lines.push(Vec::new());
            self.row -= 1;
        }
    }

    fn command(&mut self, argument: &str, name: &str) {
        let number = || argument.parse::<usize>().unwrap();
        match (name, argument) {
            ("A", _) => self.row = self.row.checked_sub(number().max(1)).expect("moves above the screen"),
            ("G", _) => self.column = number() - 1,
            ("H", "1;1") => (self.row, self.column) = (0, 0),
            ("K", "") => self.lines[self.row].truncate(self.column),
            ("J", "") => {
                self.lines[self.row].truncate(self.column);
                self.lines[self.row + 1..].iter_mut().for_each(Vec::clear);
            }
            ("J", "2") => self.lines.iter_mut().for_each(Vec::clear),
            ("h" | "l", "?2026") | ("m", _) => {}
            other => panic!("unknown command {other:?}"),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            writeln!(text, "{}", line.iter().collect::<String>().trim_end()).unwrap();
        }
        text.trim_end().to_owned()
    }
}
