//! Text that is broken into lines between words.

use crate::render::grid::Screen;
use crate::render::names::width;

/// What is read without turning the head, where nobody says how wide the screen is.
pub(super) const COLUMNS: usize = 80;

/// How many columns lines may take.
pub(super) fn columns(screen: Screen) -> usize {
    screen.columns.unwrap_or(COLUMNS).max(40)
}

/// The text in lines of at most `columns`, those behind the first indented. A word is never broken.
pub(super) fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.trim_start().is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        } else if !line.trim_start().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    /// Check that lines break between words only, and that each but the first is indented.
    #[test]
    fn breaks_between_words() {
        assert_eq!(wrapped("one two three", 80, 2), ["one two three"]);
        assert_eq!(wrapped("one two three four", 9, 2), ["one two", "  three", "  four"]);
        assert_eq!(wrapped("incomprehensible a", 4, 2), ["incomprehensible", "  a"]);
        assert_eq!(wrapped("", 4, 2), [""]);
    }
}
