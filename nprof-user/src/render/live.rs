//! The live view of `trace` on a terminal: the busiest functions, redrawn in place.
//!
//! Each frame is one write, cut to the terminal's size, so that nothing wraps, scrolls or flickers. The screen above the
//! frame stays as it was, and no mode of the terminal is changed for longer than one write: a killed nprof leaves
//! nothing behind.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use crossterm::cursor::{MoveTo, MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};

use super::grid::{Screen, bold};
use super::{json, names, notes, rows, table, units, words};
use crate::model::{MethodSnapshot, Snapshot};

/// Lines of a frame that are no rows: the headline, the column titles and the state at the bottom.
const FRAME_LINES: usize = 3;

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

/// What the view remembers from frame to frame.
#[derive(Debug, Default)]
pub struct LiveView {
    /// The terminal at the last frame, and how many lines the frame took there.
    drawn: Option<(Size, u16)>,
    /// The calls of each function at the last snapshot, by index, and when that was.
    previous: HashMap<u32, u64>,
    previous_elapsed: Duration,
}

impl LiveView {
    /// A view that has drawn nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws a snapshot over the last one, in at most `size`. Rates are those since the last snapshot.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn draw(&mut self, snapshot: &Snapshot, size: Size, w: &mut impl Write) -> io::Result<()> {
        let lines = self.frame(snapshot, size);
        let mut out = Vec::with_capacity(4096);
        queue!(out, BeginSynchronizedUpdate)?;
        self.return_to_top(size, &mut out)?;
        for (i, line) in lines.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(line.as_bytes());
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        w.write_all(&out)?;
        w.flush()?;
        self.drawn = u16::try_from(lines.len()).ok().filter(|n| *n > 0).map(|n| (size, n));
        self.remember(snapshot);
        Ok(())
    }

    /// Replaces the view by the final table, which stays on the screen.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn finish(mut self, snapshot: &Snapshot, size: Size, w: &mut impl Write) -> io::Result<()> {
        let mut out = Vec::with_capacity(4096);
        self.return_to_top(size, &mut out)?;
        queue!(out, Clear(ClearType::FromCursorDown))?;
        table::table(snapshot, Screen { ansi: true, columns: Some(usize::from(size.columns)) }, &mut out)?;
        w.write_all(&out)?;
        w.flush()
    }

    /// Moves the cursor to where the last frame began. A terminal that was resized may have wrapped it anew: there the
    /// frame begins at the top of a cleared screen.
    fn return_to_top(&mut self, size: Size, out: &mut Vec<u8>) -> io::Result<()> {
        match self.drawn {
            None => Ok(()),
            Some((drawn_at, _)) if drawn_at != size => {
                queue!(out, Clear(ClearType::All), MoveTo(0, 0))
            }
            // "Up by 0" would move up by 1.
            Some((_, 1)) => queue!(out, MoveToColumn(0)),
            Some((_, lines)) => queue!(out, MoveToColumn(0), MoveUp(lines - 1)),
        }
    }

    /// The lines of a frame, each narrower than the terminal and not more than fit.
    fn frame(&self, snapshot: &Snapshot, size: Size) -> Vec<String> {
        // The last column stays empty: a line that fills it leaves the cursor where terminals disagree.
        let columns = usize::from(size.columns).saturating_sub(1);
        let height = usize::from(size.rows);
        let (top, all) = rows::top(snapshot, height.saturating_sub(FRAME_LINES));
        let since = snapshot.elapsed.saturating_sub(self.previous_elapsed);
        let mut lines = vec![names::cut_end(&self.headline(snapshot, since), columns)];
        if all == 0 {
            lines.push(names::cut_end("no calls yet", columns));
        } else {
            let screen = Screen { ansi: false, columns: Some(columns) };
            let mut grid = table::grid(snapshot, &top, |row| notes::per_second(self.new_calls(row.measured), since));
            grid.make_room(screen);
            let table = grid.lines(screen).into_iter().enumerate();
            lines.extend(table.map(|(i, line)| bold(&names::cut_end(&line, columns), i == 0)));
        }
        lines.push(names::cut_end(&bottom_line(snapshot, top.len(), all), columns));
        lines.truncate(height);
        lines
    }

    fn headline(&self, snapshot: &Snapshot, since: Duration) -> String {
        let calls: u64 = snapshot.methods.iter().map(|m| m.calls).sum();
        let new: u64 = snapshot.methods.iter().map(|m| self.new_calls(m)).sum();
        format!(
            "{} (pid {}): {} calls/s, {} calls in {}, {} functions traced",
            names::printable(&snapshot.jvm.main),
            snapshot.jvm.pid,
            units::rate(notes::per_second(new, since)),
            units::count(calls),
            units::duration(json::nanoseconds(snapshot.elapsed)),
            units::count(snapshot.traced as u64),
        )
    }

    /// The calls of a function since the last snapshot.
    fn new_calls(&self, measured: &MethodSnapshot) -> u64 {
        let before = self.previous.get(&measured.index).copied().unwrap_or(0);
        measured.calls.saturating_sub(before)
    }

    fn remember(&mut self, snapshot: &Snapshot) {
        self.previous.clear();
        self.previous.extend(snapshot.methods.iter().map(|m| (m.index, m.calls)));
        self.previous_elapsed = snapshot.elapsed;
    }
}

fn bottom_line(snapshot: &Snapshot, shown: usize, all: usize) -> String {
    let losses = words::losses_in_short(&snapshot.losses);
    if shown == all { losses } else { format!("{losses}; {shown} of {} functions shown", units::count(all as u64)) }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use super::{LiveView, Size};
    use crate::model::Snapshot;
    use crate::render::samples;

    /// As much of a terminal as the view uses: it prints, moves and clears; what it does not know is a failure.
    struct Terminal {
        size: Size,
        lines: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Terminal {
        fn new(columns: u16, rows: u16) -> Self {
            Self { size: Size { columns, rows }, lines: vec![Vec::new(); usize::from(rows)], row: 0, column: 0 }
        }

        fn feed(&mut self, bytes: &[u8]) {
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

        fn text(&self) -> String {
            let mut text = String::new();
            for line in &self.lines {
                writeln!(text, "{}", line.iter().collect::<String>().trim_end()).unwrap();
            }
            text.trim_end().to_owned()
        }

        fn draw(&mut self, view: &mut LiveView, snapshot: &Snapshot) {
            let mut out = Vec::new();
            view.draw(snapshot, self.size, &mut out).unwrap();
            self.feed(&out);
        }
    }

    fn functions(n: u32) -> Snapshot {
        let mut snapshot = samples::snapshot();
        snapshot.methods =
            (0..n).map(|i| samples::function(i, &format!("p.q.C{i}"), 10, 1000 * u64::from(n - i))).collect();
        snapshot.traced = n as usize;
        snapshot
    }

    /// Check the whole screen after two frames: redrawn in place below what stood there, rates from the difference.
    #[test]
    fn redraws_in_place() {
        let mut terminal = Terminal::new(96, 12);
        terminal.feed(b"$ nprof trace --pid 1234\r\n");
        let mut view = LiveView::new();
        let mut snapshot = functions(3);
        terminal.draw(&mut view, &snapshot);
        snapshot.elapsed += Duration::from_secs(1);
        snapshot.methods[1] = samples::function(1, "p.q.C1", 17, 1_000_000);
        snapshot.methods.pop();
        terminal.draw(&mut view, &snapshot);
        assert_eq!(terminal.text(), include_str!("golden/live.txt").trim_end());
    }

    /// Check that a frame fits any terminal: nothing wraps, and what is above the frame does not scroll away twice.
    #[test]
    fn fits_any_size() {
        for columns in 1..130 {
            for rows in 1..12 {
                let mut terminal = Terminal::new(columns, rows);
                let mut view = LiveView::new();
                terminal.draw(&mut view, &functions(20));
                let first = terminal.text();
                terminal.draw(&mut view, &functions(0));
                view.previous.clear();
                view.previous_elapsed = Duration::ZERO;
                terminal.draw(&mut view, &functions(20));
                assert_eq!(terminal.text(), first, "{columns} x {rows}");
            }
        }
    }

    /// Check that after a resize nothing of the old frame is left.
    #[test]
    fn starts_anew_after_a_resize() {
        let mut view = LiveView::new();
        Terminal::new(100, 10).draw(&mut view, &functions(20));
        let mut resized = Terminal::new(60, 6);
        resized.feed(b"remains of the old frame");
        resized.draw(&mut view, &functions(20));
        let text = resized.text();
        assert!(text.starts_with("com.acme.Main (pid 1234)") && !text.contains("remains"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    /// Check that the final table takes the frame's place, and that a hostile name commands nothing.
    #[test]
    fn finishes_with_the_table() {
        let mut terminal = Terminal::new(200, 30);
        let mut view = LiveView::new();
        let snapshot = samples::eventful();
        terminal.draw(&mut view, &snapshot);
        let size = terminal.size;
        let mut out = Vec::new();
        view.finish(&snapshot, size, &mut out).unwrap();
        terminal.feed(&String::from_utf8(out).unwrap().replace('\n', "\r\n").into_bytes());
        let text = terminal.text();
        assert!(text.trim_start().starts_with("CALLS"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("losses: 1,234,567 unreturned"), "{text}");
        assert!(!text.contains("pid 1234") && text.contains("\\u{1b}[2J"), "{text}");
    }

    /// Check that a frame of 2,000 functions is cheap; in a release build it takes well below a millisecond.
    #[test]
    fn is_cheap_for_many_functions() {
        let snapshot = functions(2000);
        let mut view = LiveView::new();
        let size = Size { columns: 120, rows: 50 };
        // The quickest of many: the others were disturbed by whatever else runs.
        let frames = (0..100).map(|_| {
            let mut out = Vec::new();
            let start = Instant::now();
            view.draw(&snapshot, size, &mut out).unwrap();
            start.elapsed()
        });
        let frame = frames.min().unwrap();
        println!("one frame of 2,000 functions: {frame:?}");
        assert!(frame < Duration::from_millis(if cfg!(debug_assertions) { 20 } else { 1 }), "{frame:?}");
    }
}
