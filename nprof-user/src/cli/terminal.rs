//! What the command line knows about its terminal, and how it talks on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::render::grid::Screen;
use crate::render::live::Size;
use crate::render::{is_unsafe, printable};

/// What continues a message of nprof's.
const INDENTED: &str = "\n  ";
const ESCAPE: char = '\u{1b}';

/// The screen behind stdout; for a pipe or a file one without colours and without an end of the line.
pub(super) fn stdout_screen() -> Screen {
    if !io::stdout().is_terminal() {
        return Screen::default();
    }
    Screen { ansi: !is_plain(), columns: crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)) }
}

/// Whether what is said on stderr may have colours.
pub(super) fn stderr_is_coloured() -> bool {
    io::stderr().is_terminal() && !is_plain()
}

/// Whether the user wants no colours anywhere.
fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// How large the terminal behind stdout is; a small usual size where nobody knows.
pub(super) fn size() -> Size {
    let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
    Size { columns, rows }
}

/// Tells the user something on stderr: data is on stdout alone. Messages carry names that processes choose; what
/// could command the terminal is shown as an escape.
#[expect(clippy::print_stderr, reason = "the one place that talks")]
pub(super) fn say(message: impl fmt::Display) {
    eprintln!("nprof: {}", harmless(&message.to_string()));
}

/// A text in which what could command the terminal is shown as an escape. A line ends only where the next one is indented:
/// so do lists of nprof's, and nobody else's line can look like one of nprof's.
pub(super) fn harmless(text: &str) -> String {
    let lines: Vec<_> = text.split(INDENTED).map(printable).collect();
    lines.join(INDENTED)
}

/// The log on stderr, of which an event is a line whatever is in it: it comes to [`Write::write`] as a whole.
#[derive(Debug)]
pub(super) struct Log {
    /// Whether the log has colours. Then escapes of ANSI are the log's own: it shows others as text.
    pub(super) is_coloured: bool,
}

impl Log {
    fn line(&self, event: &[u8]) -> String {
        let event = String::from_utf8_lossy(event);
        let mut line = String::with_capacity(event.len());
        for c in event.strip_suffix('\n').unwrap_or(&event).chars() {
            if is_unsafe(c) && !(self.is_coloured && c == ESCAPE) {
                line.extend(c.escape_unicode());
            } else {
                line.push(c);
            }
        }
        line + "\n"
    }
}

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(self.line(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name cannot command the terminal nor begin a line, and that lists stay lists.
    #[test]
    fn disarms_messages() {
        assert_eq!(harmless("a\u{1b}[2J\nnprof: b\u{9b}é\u{202e}"), "a\\u{1b}[2J\\u{a}nprof: b\\u{9b}é\\u{202e}");
        assert_eq!(harmless("wrong:\n  a\n  b\r"), "wrong:\n  a\n  b\\u{d}");
    }

    /// Check that an event of the log is one line, coloured or not, whatever a target has put into it.
    #[test]
    fn disarms_the_log() {
        for (is_coloured, level) in [(false, " WARN"), (true, "\u{1b}[33m WARN\u{1b}[0m")] {
            let event = format!("{level} process 7: well\n WARN forged\r\u{2028}\n");
            let line = Log { is_coloured }.line(event.as_bytes());
            assert_eq!(line, format!("{level} process 7: well\\u{{a}} WARN forged\\u{{d}}\\u{{2028}}\n"));
        }
        assert_eq!(Log { is_coloured: false }.line(b"a\x1b[2J\n"), "a\\u{1b}[2J\n");
    }
}
