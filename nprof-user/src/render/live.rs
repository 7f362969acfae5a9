//! The live view of `trace` on a terminal: the busiest functions of all its JVMs, redrawn in place.
//!
//! Each frame is one write, cut to the terminal's size, so that nothing wraps, scrolls or flickers. The screen above the
//! frame stays as it was, and no mode of the terminal is changed for longer than one write: a killed nprof leaves
//! nothing behind.

use std::io::{self, Write};

use crossterm::cursor::{MoveTo, MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};

use super::grid::{Grid, Screen, bold, dim};
use super::previous::Previous;
use super::rows::Row;
use super::run::{Run, View};
use super::{Order, groups, json, names, notes, order, slow, table, units, words};
use crate::model::Snapshot;

/// Lines of a frame that are no rows: the headline, the column titles and the state at the bottom.
const FRAME_LINES: usize = 3;

/// How many slow calls are shown.
const SLOW_CALLS: usize = 3;

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

/// What the view remembers from frame to frame.
#[derive(Debug)]
pub struct LiveView {
    view: View,
    /// The terminal at the last frame, and how many lines the frame took there.
    drawn: Option<(Size, u16)>,
    /// What rates are computed from.
    previous: Previous,
}

impl LiveView {
    /// A view that has drawn nothing.
    #[must_use]
    pub fn new(view: impl Into<View>) -> Self {
        Self { view: view.into(), drawn: None, previous: Previous::default() }
    }

    /// Draws the run's JVMs over the last frame, in at most `size`. Rates are those since then.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn draw(&mut self, jvms: &[Snapshot], size: Size, w: &mut impl Write) -> io::Result<()> {
        let lines = self.frame(Run::new(jvms, self.view), size);
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
        self.previous = Previous::of(jvms);
        Ok(())
    }

    /// Replaces the view by the final table, which stays on the screen.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn finish(mut self, jvms: &[Snapshot], size: Size, w: &mut impl Write) -> io::Result<()> {
        let mut out = Vec::with_capacity(4096);
        self.return_to_top(size, &mut out)?;
        queue!(out, Clear(ClearType::FromCursorDown))?;
        let screen = Screen { ansi: true, columns: Some(usize::from(size.columns)) };
        table::table(jvms, self.view, screen, &mut out)?;
        w.write_all(&out)?;
        w.flush()
    }

    /// Moves the cursor to where the last frame began. A terminal that was resized may have wrapped it again: there the
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
    fn frame(&self, run: Run<'_>, size: Size) -> Vec<String> {
        // The last column stays empty: a line that fills it leaves the cursor where terminals disagree.
        let columns = usize::from(size.columns).saturating_sub(1);
        let height = usize::from(size.rows);
        let slow = slow::lines(run, SLOW_CALLS);
        let (grid, waiting, all) = self.grid(run, height.saturating_sub(FRAME_LINES + slow.len()));
        let shown = waiting.len();
        let mut lines = vec![names::cut_end(&self.headline(run), columns)];
        if all > 0 {
            lines.extend(fitted(grid, &waiting, columns));
        } else if !run.jvms.is_empty() {
            lines.push(names::cut_end("no calls yet", columns));
        }
        lines.extend(slow.iter().map(|line| names::cut_end(line, columns)));
        lines.push(names::cut_end(&bottom_line(run, shown, all), columns));
        lines.truncate(height);
        lines
    }

    /// The first rows, which of them only waited, and how many there are in all.
    fn grid<'a>(&self, run: Run<'a>, limit: usize) -> (Grid<'a>, Vec<bool>, usize) {
        if let Some(by) = run.view.by {
            let rows = order::all(run.jvms, run.view.order);
            let (groups, shape) = groups::of(by, run.view.order, &rows);
            let (grid, _) = groups.grid(shape, Some(limit));
            let (waiting, all) = (vec![false; grid.rows.len()], groups.groups.len());
            return (grid, waiting, all);
        }
        let since = |row: &Row<'_>| {
            let seen = self.previous.seen(row.snapshot);
            (seen.calls_since(row.measured), seen.time_since(row.snapshot))
        };
        let (top, all) = match run.view.order {
            // Not that of the whole run, which the column does not show.
            Order::Rate => order::fastest(run.jvms, since, limit),
            order => order::top(run.jvms, order, limit),
        };
        let rate = |row: &Row<'_>| {
            let (calls, time) = since(row);
            let rate = notes::per_second(calls, time);
            // The difference of two bounds is none.
            if row.all_calls().is_lost() { "-".to_owned() } else { units::rate(rate) }
        };
        (table::grid(run, &top, rate), top.iter().map(Row::only_waited).collect(), all)
    }

    fn headline(&self, run: Run<'_>) -> String {
        if run.jvms.is_empty() {
            return "no JVM yet".to_owned();
        }
        let calls: u64 = run.jvms.iter().flat_map(|jvm| &jvm.methods).map(|m| m.calls).sum();
        let new = self.previous.calls_since(run.jvms);
        let since = self.previous.time_since(run.jvms);
        format!(
            "{}: {}{} calls/s, {} calls in {}, {} functions traced",
            measured(run),
            cost(run),
            units::rate(notes::per_second(new, since)),
            units::count(calls),
            units::duration(json::nanoseconds(run.elapsed())),
            units::count(run.traced() as u64),
        )
    }
}

/// Titles and rows, cut to the width of the screen; dim the rows that only waited.
fn fitted(mut grid: Grid<'_>, waiting: &[bool], columns: usize) -> Vec<String> {
    let screen = Screen { ansi: false, columns: Some(columns) };
    grid.make_room(screen);
    let mut lines = grid.lines(screen).into_iter().map(|line| names::cut_end(&line, columns));
    let titles = lines.next().map(|titles| bold(&titles, true));
    titles.into_iter().chain(lines.zip(waiting).map(|(line, waits)| dim(&line, *waits))).collect()
}

/// What tracing costs right now, as a share of the JVM's own CPU time; of several JVMs, the most of any.
fn cost(run: Run<'_>) -> String {
    let most = run.jvms.iter().filter_map(|jvm| jvm.cost_share).reduce(f64::max);
    let bound = if run.jvms.len() > 1 { "at most " } else { "" };
    most.map_or_else(String::new, |share| format!("tracing costs {bound}{}; ", units::percent(share)))
}

/// The JVM's name, or how many there are where rows name theirs.
fn measured(run: Run<'_>) -> String {
    match (run.jvms, run.ended()) {
        ([only], _) if !run.names_jvms() => format!("{} (pid {})", names::printable(&only.jvm.main), only.jvm.pid),
        (jvms, 0) => notes::plural(jvms.len() as u64, "JVM"),
        (jvms, ended) => format!("{} ({} ended)", notes::plural(jvms.len() as u64, "JVM"), units::count(ended as u64)),
    }
}

fn bottom_line(run: Run<'_>, shown: usize, all: usize) -> String {
    let mut line = words::losses_in_short(&run.losses());
    if run.demoted() > 0 {
        let demoted = notes::plural(run.demoted() as u64, "function");
        line.push_str(&format!("; {demoted} demoted to keep the cost of tracing low"));
    }
    if shown < all {
        let what = if run.view.by.is_some() { "rows" } else { "functions" };
        line.push_str(&format!("; {shown} of {} {what} shown", units::count(all as u64)));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;
    use std::time::{Duration, Instant};

    use super::{LiveView, Size};
    use crate::model::{Pid, Snapshot};
    use crate::render::fake_terminal::Terminal;
    use crate::render::previous::Previous;
    use crate::render::{Scope, samples};

    fn draw(terminal: &mut Terminal, view: &mut LiveView, jvms: &[Snapshot]) {
        let mut out = Vec::new();
        view.draw(jvms, terminal.size, &mut out).unwrap();
        terminal.feed(&out);
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
        let mut view = LiveView::new(Scope::One);
        let mut snapshot = functions(3);
        draw(&mut terminal, &mut view, from_ref(&snapshot));
        snapshot.elapsed += Duration::from_secs(1);
        snapshot.methods[1] = samples::function(1, "p.q.C1", 17, 1_000_000);
        snapshot.methods.pop();
        draw(&mut terminal, &mut view, from_ref(&snapshot));
        assert_eq!(terminal.text(), include_str!("golden/live.txt").trim_end());
    }

    /// Check that the view says that functions are demoted, and marks those whose numbers are of a part of the calls.
    #[test]
    fn shows_what_is_demoted() {
        let mut terminal = Terminal::new(120, 12);
        draw(&mut terminal, &mut LiveView::new(Scope::One), &[samples::demoted()]);
        let text = terminal.text();
        for line in ["  a.Hot::call <", "  a.Warm::call #%", "  a.Back::call <%", "  a.Cool::call"] {
            assert!(text.lines().any(|shown| shown.ends_with(line)), "{line}: {text}");
        }
        assert!(text.ends_with("\nlosses: none; 2 functions demoted to keep the cost of tracing low"), "{text}");
    }

    /// Check that the headline says what tracing costs now, of several JVMs the most that it costs one.
    #[test]
    fn shows_what_tracing_costs() {
        let headline = |jvms: &[Snapshot]| {
            let mut terminal = Terminal::new(120, 12);
            draw(&mut terminal, &mut LiveView::new(Scope::One), jvms);
            terminal.text().lines().next().unwrap_or_default().to_owned()
        };
        let one = headline(&[samples::probed()]);
        assert!(one.starts_with("com.acme.Main (pid 1234): tracing costs 3.21 %; "), "{one}");
        let two = headline(&[samples::probed(), samples::demoted()]);
        assert!(two.starts_with("2 JVMs: tracing costs at most 3.21 %; "), "{two}");
        assert!(!headline(&[samples::snapshot()]).contains("costs"));
    }

    /// Check that a frame fits any terminal: nothing wraps, and what is above the frame does not scroll away twice.
    #[test]
    fn fits_any_size() {
        for scope in [Scope::One, Scope::All] {
            for (columns, rows) in (1..130).flat_map(|columns| (1..12).map(move |rows| (columns, rows))) {
                let mut terminal = Terminal::new(columns, rows);
                let mut view = LiveView::new(scope);
                draw(&mut terminal, &mut view, &[functions(20)]);
                let first = terminal.text();
                draw(&mut terminal, &mut view, &[functions(0)]);
                view.previous = Previous::default();
                draw(&mut terminal, &mut view, &[functions(20)]);
                assert_eq!(terminal.text(), first, "{columns} x {rows}, {scope:?}");
            }
        }
    }

    /// Check that after a resize nothing of the old frame is left.
    #[test]
    fn starts_over_after_a_resize() {
        let mut view = LiveView::new(Scope::One);
        draw(&mut Terminal::new(100, 10), &mut view, &[functions(20)]);
        let mut resized = Terminal::new(60, 6);
        resized.feed(b"remains of the old frame");
        draw(&mut resized, &mut view, &[functions(20)]);
        let text = resized.text();
        assert!(text.starts_with("com.acme.Main (pid 1234)") && !text.contains("remains"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    /// Check that the final table takes the frame's place, and that a hostile name commands nothing.
    #[test]
    fn finishes_with_the_table() {
        let mut terminal = Terminal::new(200, 30);
        let mut view = LiveView::new(Scope::One);
        let snapshot = samples::eventful();
        draw(&mut terminal, &mut view, from_ref(&snapshot));
        let size = terminal.size;
        let mut out = Vec::new();
        view.finish(from_ref(&snapshot), size, &mut out).unwrap();
        terminal.feed(&String::from_utf8(out).unwrap().replace('\n', "\r\n").into_bytes());
        let text = terminal.text();
        assert!(text.trim_start().starts_with("CALLS"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("losses: 1,234,567 unreturned"), "{text}");
        assert!(!text.contains("pid 1234") && text.contains("\\u{1b}[2J"), "{text}");
    }

    /// Check the whole screen while JVMs come and end: none, one, then three of which one has ended.
    #[test]
    fn follows_all_jvms() {
        let mut terminal = Terminal::new(110, 12);
        let mut view = LiveView::new(Scope::All);
        draw(&mut terminal, &mut view, &[]);
        assert_eq!(terminal.text(), "no JVM yet\nlosses: none");
        let mut jvms = samples::several();
        draw(&mut terminal, &mut view, &jvms[1..]);
        assert!(terminal.text().starts_with("1 JVM (1 ended): "), "{}", terminal.text());
        let mut newest = functions(2);
        newest.started += Duration::from_secs(2);
        newest.elapsed = Duration::from_millis(500);
        newest.jvm.pid = Pid(4_194_304);
        jvms.push(newest);
        draw(&mut terminal, &mut view, &jvms);
        assert_eq!(terminal.text(), include_str!("golden/live_all.txt").trim_end());
    }

    /// The time of the quickest of many frames: the others were disturbed by whatever else runs.
    fn quickest_frame(jvms: &[Snapshot], scope: Scope) -> Duration {
        let mut view = LiveView::new(scope);
        let size = Size { columns: 120, rows: 50 };
        let frames = (0..100).map(|_| {
            let mut out = Vec::new();
            let start = Instant::now();
            view.draw(jvms, size, &mut out).unwrap();
            start.elapsed()
        });
        frames.min().unwrap()
    }

    /// Check that a frame of 2,000 functions is cheap; in a release build it takes well below a millisecond.
    #[test]
    fn is_cheap_for_many_functions() {
        let frame = quickest_frame(&[functions(2000)], Scope::One);
        println!("one frame of 2,000 functions: {frame:?}");
        assert!(frame < Duration::from_millis(if cfg!(debug_assertions) { 20 } else { 1 }), "{frame:?}");
    }

    /// Check that a frame of 20 JVMs with 500 functions each is cheap; in a release build it takes less than 2 ms.
    #[test]
    fn is_cheap_for_many_jvms() {
        let mut jvms = vec![functions(500); 20];
        for (pid, jvm) in (1..).zip(&mut jvms) {
            jvm.jvm.pid = Pid(pid);
        }
        let frame = quickest_frame(&jvms, Scope::All);
        println!("one frame of 20 JVMs with 500 functions each: {frame:?}");
        assert!(frame < Duration::from_millis(if cfg!(debug_assertions) { 60 } else { 2 }), "{frame:?}");
    }
}
