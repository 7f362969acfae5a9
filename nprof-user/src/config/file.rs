//! The configuration file: read with care, because it decides what a privileged process does.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::thread::capabilities;
use serde::Deserialize;
use strsim::normalized_levenshtein;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::{Partial, Place, Problem};

/// A longer file is no configuration.
const MAX_BYTES: u64 = 1 << 20;
/// The bit of a file's mode that lets everybody write to it.
const WORLD_WRITABLE: u32 = 0o002;
/// Below this likeness, from 0 to 1, a suggestion would only puzzle.
const LEAST_LIKENESS: f64 = 0.5;

/// Why a configuration file is not read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("cannot read the configuration {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is a directory, a device or a pipe.
    #[error("the configuration {} is no regular file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// It is too long.
    #[error("the configuration {} is longer than {MAX_BYTES} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Everybody can change what a privileged nprof does.
    #[error("the configuration {p} can be written by everybody, and nprof has privileges: run `chmod o-w {p}`", p = path.display())]
    WorldWritable {
        /// The file.
        path: PathBuf,
    },
}

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigFile {
    /// The settings that could be understood.
    pub settings: Partial,
    /// What could not.
    pub problems: Vec<Problem>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or must not be trusted. What is wrong inside it are its [`problems`](Self::problems).
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Ok(Self::parse(path, &text(path, is_privileged())?))
    }

    /// Understands the text of the file `path`: all of it, however much is wrong.
    #[must_use]
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut file = Self::default();
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // What stands behind a mistake in the syntax may have been meant for another table.
            file.problems.extend(errors.iter().map(|error| problem(path, text, "", error, 0)));
            return file;
        }
        for (key, value) in root.into_inner() {
            let (name, at) = (key.get_ref().to_string(), key.span().start);
            let place = Place::in_file(path, text, at);
            let Some(known) = Partial::KEYS.iter().find(|known| **known == name) else {
                file.problems.push(Problem { place, says: unknown(&name), key: name });
                continue;
            };
            // Each setting by itself, so that one mistake does not hide the next.
            let alone = Spanned::new(value.span(), DeTable::from_iter([(key, value)]));
            match Partial::deserialize(Deserializer::from(alone)) {
                Ok(setting) => {
                    file.settings = setting.over(file.settings);
                    file.settings.places.insert(known, place);
                }
                Err(error) => file.problems.push(problem(path, text, known, &error, at)),
            }
        }
        file
    }
}

fn problem(path: &Path, text: &str, key: &str, error: &toml::de::Error, at: usize) -> Problem {
    let at = error.span().map_or(at, |span| span.start);
    Problem { place: Place::in_file(path, text, at), key: key.to_owned(), says: error.message().to_owned() }
}

fn unknown(name: &str) -> String {
    let likeness = |key: &&&str| normalized_levenshtein(key, &name.to_lowercase().replace('_', "-"));
    let nearest = Partial::KEYS.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|key| likeness(key) >= LEAST_LIKENESS) {
        Some(nearest) => format!("there is no such key; nearest: {nearest}"),
        None => format!("there is no such key; the keys are {}", Partial::KEYS.join(", ")),
    }
}

/// Whether this thread may do more than its user's others: as root, or by capabilities, as in the systemd unit.
fn is_privileged() -> bool {
    // What cannot be read is taken for the worse.
    rustix::process::geteuid().is_root() || capabilities(None).map_or(true, |sets| !sets.effective.is_empty())
}

/// The text of a file that may be trusted.
fn text(path: &Path, is_privileged: bool) -> Result<String, FileError> {
    let failed = |source| FileError::Io { path: path.to_owned(), source };
    // Not to wait for somebody at the other end of a pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    if is_privileged && found.mode() & WORLD_WRITABLE != 0 {
        return Err(FileError::WorldWritable { path: path.to_owned() });
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_BYTES) {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str) -> ConfigFile {
        ConfigFile::parse(Path::new("n.toml"), text)
    }

    fn problems(text: &str) -> Vec<String> {
        parse(text).problems.iter().map(Problem::to_string).collect()
    }

    /// Check that every key of the table can be written in a file, with its place.
    #[test]
    fn reads_every_key() {
        let text = r#"
            patterns = ["java.util.zip.*"]
            exclude = ["*::init*"]
            library = ["libzip.so"]
            rules = ["java.util.zip.CRC32=count"]
            jvm = ["com.acme.*"]
            exclude-jvm = ["*Test"]
            user = ["app", "1000"]
            stubs-for = ["com.acme.web.*"]
            jni-for = ["com.acme.web.*"]
            listen = "0.0.0.0:9464"
            with-signature = true
            max-series = 100
            keep-ended = "10m"
            profiles = true
            profile-window = "30s"
            slow = "100ms"
            slow-log = "/l"
            max-overhead = "off"
            count-only = false
            no-off-cpu = true
            collect = ["faults", "io"]
            max-methods = 500
            max-total = 5000
            control = "/run/x.sock"
            control-group = "ops"
            tls-cert = "/c"
            tls-key = "/k"
            basic-auth-file = "/b"
            bearer-token-file = "/t"
            max-connections = 4
            otlp-endpoint = "http://localhost:4318"
            otlp-interval = "15s"
            otlp-headers-file = "/h"
            otlp-ca = "/a"
            otlp-profiles = true
            pyroscope-endpoint = "http://localhost:4040"
            pyroscope-headers-file = "/h"
            pyroscope-ca = "/a"
            [label]
            team = "{env:TEAM}"
        "#;
        let file = parse(text);
        assert_eq!(file.problems, []);
        let places: Vec<&str> = file.settings.places.keys().copied().collect();
        let mut keys = Partial::KEYS.to_vec();
        keys.sort_unstable();
        assert_eq!(places, keys);
        assert_eq!(file.settings.user, Some(vec!["app".to_owned(), "1000".to_owned()]));
        assert_eq!(file.settings.label, Some(vec![("team".to_owned(), "{env:TEAM}".to_owned())]));
        let slow = |text: &str| parse(text).settings.slow;
        assert_eq!(
            (file.settings.slow, slow("slow = [\"1s\"]")),
            (slow("slow = \"100ms\""), Some(vec!["1s".to_owned()]))
        );
        assert!(problems("slow = 5")[0].contains("expected a string, or an array of strings"));
    }

    /// Check that the file of the package has every key, and that each can be used as it stands there, with the `#` away.
    #[test]
    fn packaged_file_has_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/nprof.toml");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(problems(&text), [""; 0]);
        let is_setting = |line: &str| {
            line == "[label]"
                || line
                    .split_once(" = ")
                    .is_some_and(|(key, _)| key.bytes().all(|c| c == b'-' || c.is_ascii_lowercase()))
        };
        let used = text.lines().map(|line| line.strip_prefix("# ").filter(|line| is_setting(line)).unwrap_or(line));
        let file = parse(&used.collect::<Vec<_>>().join("\n"));
        assert_eq!(file.problems, []);
        let missing: Vec<&&str> =
            Partial::KEYS.iter().filter(|key| !file.settings.places.contains_key(**key)).collect();
        assert_eq!(missing, [&""; 0]);
    }

    /// Check that all mistakes are found in one go, each with line and column, and that the rest is understood.
    #[test]
    fn finds_every_mistake() {
        let text =
            "max_series = 5\nlisten = 9464\nmax-methods = -1\nwibble = 1\ncontrol = \"/c\"\n[label]\nteam = [1]\n";
        let mut found = problems(text);
        found.sort_unstable();
        assert_eq!(found[0], "n.toml:1:1: max_series: there is no such key; nearest: max-series");
        assert_eq!(found[1], "n.toml:2:10: listen: invalid type: integer `9464`, expected a string");
        assert!(found[2].starts_with("n.toml:3:15: max-methods: invalid value: integer `-1`"), "{}", found[2]);
        assert!(
            found[3].starts_with("n.toml:4:1: wibble: there is no such key; the keys are patterns,"),
            "{}",
            found[3]
        );
        assert!(found[4].starts_with("n.toml:7:8: label: invalid type"), "{}", found[4]);
        assert_eq!(found.len(), 5);
        assert_eq!(parse(text).settings.control, Some("/c".into()));
    }

    /// Check that what is no TOML is told with its place.
    #[test]
    fn finds_broken_syntax() {
        let found = problems("listen = \"a\"\nuser = [\"app\"\nx\n");
        assert!(found[0].starts_with("n.toml:"), "{found:?}");
        let twice = problems("listen = \"a\"\nlisten = \"b\"\n");
        assert!(twice[0].starts_with("n.toml:2:1: duplicate key"), "{twice:?}");
    }

    /// Check that nothing is read that is too long, no file, no text, or open to everybody.
    #[test]
    fn reads_with_care() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.toml");
        assert!(matches!(text(&path, true), Err(FileError::Io { .. })));
        assert!(matches!(text(dir.path(), true), Err(FileError::NotAFile { .. })));
        std::fs::write(&path, "listen = \"x\"").unwrap();
        assert_eq!(text(&path, true).unwrap(), "listen = \"x\"");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(text(&path, true), Err(FileError::WorldWritable { .. })));
        assert!(text(&path, false).is_ok());
        // Privileges need not be those of root.
        assert_eq!(ConfigFile::read(&path).is_err(), is_privileged());
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        assert!(matches!(text(&path, false), Err(FileError::TooLong { .. })));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(matches!(text(&path, false), Err(FileError::Io { .. })));
    }
}
