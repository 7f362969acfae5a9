//! What the command line knows about its terminal, and how it talks on stderr.

use std::fmt;
use std::io::{self, IsTerminal};

use crate::render::grid::Screen;
use crate::render::live::Size;

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

/// A text in which what could command the terminal is shown as an escape.
pub(super) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name cannot command the terminal, and that lines stay lines.
    #[test]
    fn disarms_messages() {
        assert_eq!(harmless("a\u{1b}[2J\nb\u{9b}é"), "a\\u{1b}[2J\nb\\u{9b}é");
    }
}
