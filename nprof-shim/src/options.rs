//! What the agent is told when it is loaded, and told again by loading it once more.
//!
//! Words, separated by commas: which methods (`all`, `only=com.acme.`, `intrinsics`), what to do at their calls
//! (`mode=off|count|time|every:16`, `threshold=NS`), how to find a shard (`sharding=rseq|rdpid|segment`), and what to
//! do now or later (`detach`, `dump=FILE`, `exit-dump=FILE`). Without methods nothing is watched. With `connect=SOCKET`
//! all of this is decided by the nprof that listens there.

use std::path::PathBuf;

use crate::pool::Mode;

/// What one loading asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The methods to watch; `None` leaves them as they are.
    pub selection: Option<Selection>,
    /// What to do at calls; `None` leaves it as it is.
    pub mode: Option<Mode>,
    /// From how many nanoseconds on a call is slow; `None` leaves it as it is.
    pub threshold_ns: Option<u64>,
    /// The way to find a shard, by name. Only the first loading can choose it.
    pub sharding: Option<String>,
    /// Gives all methods their own addresses back.
    pub detach: bool,
    /// The socket that nprof listens at.
    pub connect: Option<PathBuf>,
    /// Writes the records to this file, after all else.
    pub dump: Option<PathBuf>,
    /// Writes the records to this file when the VM ends.
    pub exit_dump: Option<PathBuf>,
}

/// Which methods are watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Beginnings of class names, with dots; one that is empty begins all.
    pub classes: Vec<String>,
    /// Also those that compiled code seldom calls, because the compiler knows what they do.
    pub intrinsics: bool,
}

/// Why options cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No option has this name.
    #[error(
        "no option '{0}': use all, only=CLASS, intrinsics, mode=, threshold=, sharding=, detach, dump=, exit-dump=, connect="
    )]
    Unknown(String),
    /// The value is not one of the option's.
    #[error("{option}={value} is not {expected}")]
    Value {
        /// The option.
        option: &'static str,
        /// What it was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
}

impl Options {
    /// Reads the words.
    ///
    /// # Errors
    /// When one of them is no option, or its value is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            options.add(word)?;
        }
        Ok(options)
    }

    /// Whether the manner in which methods are watched is to be another.
    pub(crate) fn changes_manner(&self) -> bool {
        self.mode.is_some() || self.threshold_ns.is_some()
    }

    /// Whether anything about methods is to be another.
    pub(crate) fn changes_methods(&self) -> bool {
        self.changes_manner() || self.selection.is_some()
    }

    fn add(&mut self, word: &str) -> Result<(), Error> {
        match word.split_once('=').unwrap_or((word, "")) {
            ("all", "") => self.select().classes.push(String::new()),
            ("only", class) if !class.is_empty() => self.select().classes.push(class.to_owned()),
            ("intrinsics", "") => self.select().intrinsics = true,
            ("mode", mode) => self.mode = Some(parse_mode(mode)?),
            ("threshold", value) => self.threshold_ns = Some(number("threshold", value)?),
            ("sharding", name) => self.sharding = Some(name.to_owned()),
            ("detach", "") => self.detach = true,
            ("connect", socket) if !socket.is_empty() => self.connect = Some(socket.into()),
            ("dump", file) if !file.is_empty() => self.dump = Some(file.into()),
            ("exit-dump", file) if !file.is_empty() => self.exit_dump = Some(file.into()),
            _ => return Err(Error::Unknown(word.to_owned())),
        }
        Ok(())
    }

    fn select(&mut self) -> &mut Selection {
        self.selection.get_or_insert_default()
    }
}

fn parse_mode(text: &str) -> Result<Mode, Error> {
    match (text, text.strip_prefix("every:")) {
        ("off", _) => Ok(Mode::Off),
        ("count", _) => Ok(Mode::Count),
        ("time", _) => Ok(Mode::Time),
        (_, Some(every)) => match every.parse() {
            Ok(every) if every > 0 => Ok(Mode::one_of(every)),
            _ => Err(wrong("mode", text, "every:N with N from 1 on")),
        },
        _ => Err(wrong("mode", text, "off, count, time or every:N")),
    }
}

fn number(option: &'static str, text: &str) -> Result<u64, Error> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => Err(wrong(option, text, "a number of nanoseconds")),
    }
}

fn wrong(option: &'static str, value: &str, expected: &'static str) -> Error {
    Error::Value { option, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every option is read.
    #[test]
    fn reads_options() {
        let text = "only=a.b.,only=c.D,intrinsics,mode=every:16,threshold=5,sharding=rdpid,dump=/d,exit-dump=/e,detach,connect=/s";
        let classes = vec!["a.b.".to_owned(), "c.D".to_owned()];
        let expected = Options {
            selection: Some(Selection { classes, intrinsics: true }),
            mode: Some(Mode::Sample(1 << 28)),
            threshold_ns: Some(5),
            sharding: Some("rdpid".to_owned()),
            detach: true,
            connect: Some("/s".into()),
            dump: Some("/d".into()),
            exit_dump: Some("/e".into()),
        };
        assert_eq!(Options::parse(text), Ok(expected));
        assert_eq!(Options::parse(""), Ok(Options::default()));
    }

    /// Check that what is not understood is named.
    #[test]
    fn refuses_nonsense() {
        for (text, named) in [
            ("al", "al"),
            ("all=1", "all=1"),
            ("only=", "only="),
            ("mode=fast", "mode=fast"),
            ("mode=every:0", "every:N"),
            ("threshold=-1", "threshold=-1"),
        ] {
            let error = Options::parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
