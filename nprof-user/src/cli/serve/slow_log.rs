//! The log of slow calls: each is a line of JSON, in a file or on the standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::config::Config;
use crate::model::{Jvm, SlowCall};
use crate::render::{slow_call_line, slow_calls_dropped_line};
use crate::trace::SlowListener;

/// Who may read a file of the log: names of threads and methods are in it.
const MODE: u32 = 0o640;

/// The log. Lines are whole, whoever writes at the same time.
#[derive(Debug)]
pub(super) struct SlowLog {
    path: Option<PathBuf>,
    /// `None`: the standard output.
    file: Mutex<Option<File>>,
    /// It has been said that it cannot be written.
    has_failed: AtomicBool,
}

impl SlowLog {
    /// Opens it, if the configuration wants slow calls.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open(config: &Config) -> anyhow::Result<Option<Arc<Self>>> {
        if config.slow.is_none() {
            return Ok(None);
        }
        let path = config.slow_log.clone();
        let file = path.as_deref().map(opened).transpose()?;
        Ok(Some(Arc::new(Self { path, file: Mutex::new(file), has_failed: AtomicBool::new(false) })))
    }

    /// Opens the file again: it may have been moved away.
    ///
    /// # Errors
    /// If it cannot be opened; the log goes on in the old one then.
    pub(super) fn reopen(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.path {
            *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened(path)?);
        }
        Ok(())
    }

    fn write(&self, line: &[u8]) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &mut *file {
            Some(file) => file.write_all(line),
            None => io::stdout().lock().write_all(line),
        };
        match written {
            Ok(()) => self.has_failed.store(false, Ordering::Relaxed),
            Err(error) if !self.has_failed.swap(true, Ordering::Relaxed) => {
                tracing::warn!("slow calls are not logged: {error}");
            }
            Err(_) => {}
        }
    }
}

impl SlowListener for SlowLog {
    fn hear(&self, jvm: &Jvm, call: &SlowCall, dropped: u64) {
        self.write(&slow_call_line(jvm, call, dropped));
    }

    fn dropped(&self, jvm: &Jvm, dropped: u64) {
        self.write(&slow_calls_dropped_line(jvm, dropped));
    }
}

fn opened(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(MODE).open(path);
    opened.with_context(|| format!("the log of slow calls cannot be written to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines are appended to what is there, and go to a new file once the old one was moved away.
    #[test]
    fn appends_and_reopens() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("slow.log"), directory.path().join("slow.log.1"));
        std::fs::write(&path, "before\n").unwrap();
        let file = Mutex::new(Some(opened(&path).unwrap()));
        let log = SlowLog { path: Some(path.clone()), file, has_failed: AtomicBool::new(false) };
        log.write(b"one\n");
        std::fs::rename(&path, &moved).unwrap();
        log.write(b"two\n");
        log.reopen().unwrap();
        log.write(b"three\n");
        let text = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!((text(&moved), text(&path)), ("before\none\ntwo\n".to_owned(), "three\n".to_owned()));
    }
}
