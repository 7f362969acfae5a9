//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The column, in characters from 1 on.
        column: usize,
    },
    /// On the command line.
    Flag,
}

impl Place {
    /// The place of a byte of a file's text.
    pub(super) fn in_file(path: &std::path::Path, text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self::File {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The key or flag, without dashes in front; empty where the file cannot be read as far as that.
    pub key: String,
    /// What is wrong with it, and what to write instead.
    pub says: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, says } = self;
        match place {
            Place::File { path, line, column } => write!(f, "{}:{line}:{column}: ", path.display())?,
            // Patterns stand on the command line without a flag.
            Place::Flag if key == "patterns" => return write!(f, "{says}"),
            Place::Flag => return write!(f, "--{key}: {says}"),
        }
        if key.is_empty() { f.write_str(says) } else { write!(f, "{key}: {says}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a place is counted in lines and characters, and how a problem reads.
    #[test]
    fn names_the_place() {
        let text = "a = 1\né = 2\n";
        let place = Place::in_file("/etc/n.toml".as_ref(), text, text.find("= 2").unwrap());
        let mut problem = Problem { place, key: "listen".to_owned(), says: "wrong".to_owned() };
        assert_eq!(problem.to_string(), "/etc/n.toml:2:3: listen: wrong");
        problem.key.clear();
        assert_eq!(problem.to_string(), "/etc/n.toml:2:3: wrong");
        let flag =
            |key: &str| Problem { place: Place::Flag, key: key.to_owned(), says: "wrong".to_owned() }.to_string();
        assert_eq!((flag("listen"), flag("patterns")), ("--listen: wrong".to_owned(), "wrong".to_owned()));
    }
}
