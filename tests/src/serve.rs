//! A running `nprof serve`: its endpoint and its control socket.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::{Child, Stream};
use crate::exposition::Exposition;
use crate::http::{self, Answer};
use crate::nprof::{Outcome, run, spawn};

/// What nprof prints on stderr when everything is attached and the endpoint answers, and what follows.
const SERVING: &str = "serving ";
const AND: &str = "/metrics; tracing ";

/// What a client that wants the old text format accepts.
pub const TEXT: &str = "text/plain;version=0.0.4";
/// What a client that wants OpenMetrics accepts.
pub const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0";
/// What a client that wants protobuf, for native histograms, accepts.
pub const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

pub use crate::nprof::UNGOVERNED;

/// How long to look for something in scrapes before giving up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// How long to wait before scraping again.
const PAUSE: Duration = Duration::from_millis(20);

/// Where a service answers. Threads may share it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: String,
}

/// A running service. Dropping it kills it.
#[derive(Debug)]
pub struct Serve {
    // Killed before its directory is removed.
    child: Child,
    endpoint: Endpoint,
    announcement: String,
    /// What it said before, and nobody has asked for.
    said: Vec<String>,
    control: PathBuf,
    _directory: Option<TempDir>,
}

impl Endpoint {
    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    /// The text of one scrape by a client that accepts `accept`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn scrape(&self, accept: &str) -> Result<String> {
        let answer = self.get("/metrics", &[("Accept", accept)])?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body)
    }

    /// The size of one scrape by a client that accepts `accept` in this content coding, in bytes as they come.
    ///
    /// # Errors
    /// When it is refused.
    pub fn scrape_size(&self, accept: &str, coding: &str) -> Result<usize> {
        let (status, _, body) =
            http::get_bytes(&format!("{}/metrics", self.url), &[], &[("Accept", accept), ("Accept-Encoding", coding)])?;
        ensure!(status == 200, "{status}");
        Ok(body.len())
    }

    /// The samples of one scrape.
    ///
    /// # Errors
    /// When it is refused or is no exposition.
    pub fn samples(&self) -> Result<Exposition> {
        Exposition::parse(&self.scrape(TEXT)?)
    }

    /// Scrapes until a scrape has what is wanted of it, and returns that one. What a JVM does is announced nowhere else.
    ///
    /// # Errors
    /// When it does not come, or what `has_it` returns.
    pub fn scrape_until(&self, what: &str, mut has_it: impl FnMut(&Exposition) -> Result<bool>) -> Result<Exposition> {
        let deadline = Instant::now() + GIVE_UP_AFTER;
        loop {
            let samples = self.samples()?;
            if has_it(&samples)? {
                return Ok(samples);
            }
            ensure!(Instant::now() < deadline, "{what}: not within {GIVE_UP_AFTER:?} in {:#?}", samples.samples);
            std::thread::sleep(PAUSE);
        }
    }

    /// Gets any path with some headers.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        http::get(&format!("{}{path}", self.url), &[], headers)
    }
}

impl Serve {
    /// Starts a service on a free port of the loopback and returns when it answers.
    ///
    /// # Errors
    /// When nprof ends before that.
    pub fn start(args: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        let serve = Self::start_at(&directory.path().join("control.sock"), args)?;
        Ok(Self { _directory: Some(directory), ..serve })
    }

    /// The same with its control socket at this place.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(control: &Path, args: &[&str]) -> Result<Self> {
        let mut child = Self::launch(control, args)?;
        let mut said = Vec::new();
        let announcement = loop {
            let line = child.line(Stream::Stderr)?;
            if line.starts_with(SERVING) {
                break line;
            }
            said.push(line);
        };
        let url = announced_url(&announcement).with_context(|| announcement.clone())?.to_owned();
        Ok(Self {
            child,
            endpoint: Endpoint { url },
            announcement,
            said,
            control: control.to_owned(),
            _directory: None,
        })
    }

    /// Starts a service without waiting for anything.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn launch(control: &Path, args: &[&str]) -> Result<Child> {
        let control = control.to_str().context("a path in UTF-8")?;
        spawn(&[&["serve", "--listen", "127.0.0.1:0", "--control", control], args].concat())
    }

    /// The line that said that everything is attached.
    #[must_use]
    pub fn announcement(&self) -> &str {
        &self.announcement
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The control socket.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.control.clone()
    }

    /// Runs `nprof ctl` against this service.
    ///
    /// # Errors
    /// When it cannot be started or does not end.
    pub fn ctl(&self, args: &[&str]) -> Result<Outcome> {
        run(&[&["ctl", "--control", self.control.to_str().context("a path in UTF-8")?], args].concat())
    }

    /// The same, which must succeed.
    ///
    /// # Errors
    /// When it does not.
    pub fn ctl_succeeds(&self, args: &[&str]) -> Result<String> {
        let outcome = self.ctl(args)?;
        ensure!(outcome.code == Some(0), "ctl {args:?}: {outcome:?}");
        Ok(outcome.stdout)
    }

    /// An error that shows what it has said.
    #[must_use]
    pub fn failure(&self, what: &str) -> anyhow::Error {
        self.child.failure(what)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }

    /// The next line on stderr that begins with `prefix`, those before the announcement included.
    ///
    /// # Errors
    /// When it ends, or does not say so.
    pub fn says(&mut self, prefix: &str) -> Result<String> {
        if let Some(place) = self.said.iter().position(|line| line.starts_with(prefix)) {
            return Ok(self.said.remove(place));
        }
        self.child.line_with_prefix(Stream::Stderr, prefix)
    }

    /// Ends it by SIGTERM, as service managers do.
    ///
    /// # Errors
    /// When it does not end.
    pub fn finish(mut self) -> Result<ExitStatus> {
        self.child.signal(Signal::TERM)?;
        Ok(self.child.wait()?.0)
    }

    /// Ends it the hard way.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()
    }
}

impl Deref for Serve {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// `http://127.0.0.1:PORT` in `serving http://127.0.0.1:PORT/metrics; tracing N methods of M JVMs`.
fn announced_url(announcement: &str) -> Option<&str> {
    let (url, counts) = announcement.strip_prefix(SERVING)?.split_once(AND)?;
    let words: Vec<&str> = counts.split(' ').collect();
    let [methods, "methods" | "method", "of", jvms, "JVMs" | "JVM"] = words[..] else { return None };
    let numbers = methods.parse::<u64>().is_ok() && jvms.parse::<u64>().is_ok();
    (numbers && !url.ends_with(":0")).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the announcement is understood, and others are not.
    #[test]
    fn reads_the_announcement() {
        let url = announced_url("serving http://127.0.0.1:9464/metrics; tracing 12 methods of 3 JVMs");
        assert_eq!(url, Some("http://127.0.0.1:9464"));
        assert_eq!(announced_url("serving http://127.0.0.1:0/metrics; tracing 12 methods of 3 JVMs"), None);
        assert_eq!(announced_url("serving http://127.0.0.1:9464/metrics"), None);
        assert_eq!(announced_url("serving http://127.0.0.1:9464/metrics; tracing x methods of 3 JVMs"), None);
    }
}
