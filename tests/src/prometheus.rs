//! The real Prometheus server, scraping one target once a second, and `promtool`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

use crate::child::{Child, PATIENCE, Stream};
use crate::exposition::{Labels, whole};
use crate::http;

/// How often the target is scraped.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait before asking again what has been scraped.
const PAUSE: Duration = Duration::from_millis(200);

/// What Prometheus shows the target to be let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    #[default]
    None,
    /// A user's name and password.
    Basic(String, String),
    /// A token.
    Bearer(String),
}

/// What to scrape, and how.
#[derive(Debug, Clone, Default)]
pub struct Scraping {
    /// Host and port.
    pub target: String,
    /// What to show the target.
    pub credentials: Credentials,
    /// The certificate that vouches for the target; with it, TLS is used.
    pub authority: Option<PathBuf>,
    /// Whether to ask for native histograms.
    pub native_histograms: bool,
}

impl Scraping {
    /// Scrapes in the clear, without credentials.
    #[must_use]
    pub fn plain(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    /// The configuration file. It is JSON, which is YAML, so that nothing in it needs quoting by hand.
    fn config(&self) -> String {
        let interval = format!("{}s", SCRAPE_INTERVAL.as_secs());
        let mut job = json!({ "job_name": "nprof", "static_configs": [{ "targets": [self.target] }] });
        match &self.credentials {
            Credentials::None => {}
            Credentials::Basic(user, password) => {
                job["basic_auth"] = json!({ "username": user, "password": password });
            }
            Credentials::Bearer(token) => job["authorization"] = json!({ "credentials": token }),
        }
        if let Some(authority) = &self.authority {
            job["scheme"] = json!("https");
            job["tls_config"] = json!({ "ca_file": authority });
        }
        let global = json!({ "scrape_interval": interval, "scrape_timeout": interval });
        json!({ "global": global, "scrape_configs": [job] }).to_string()
    }
}

/// A running Prometheus. Dropping it kills it and removes what it has stored.
#[derive(Debug)]
pub struct Prometheus {
    // Killed before the directory that it stores in is removed.
    child: Child,
    url: String,
    _directory: TempDir,
}

/// One series and its value at one moment.
pub type Point = (Labels, f64);
/// One series and its values, each with its time in seconds.
pub type Range = (Labels, Vec<(f64, f64)>);

/// What Prometheus thinks of its target.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// What it gets.
    pub scrape_url: String,
    /// `up`, `down` or `unknown`, which is before the first scrape.
    pub health: String,
    /// Why the last scrape failed; empty when it did not.
    pub last_error: String,
}

#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: serde_json::Value,
}

#[derive(Deserialize)]
struct Found<T> {
    result: Vec<T>,
}

#[derive(Deserialize)]
struct Instant {
    metric: Labels,
    value: (f64, String),
}

#[derive(Deserialize)]
struct Matrix {
    metric: Labels,
    values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Targets {
    active_targets: Vec<Target>,
}

impl Prometheus {
    /// Starts Prometheus on a free port of the loopback and returns when it answers.
    ///
    /// # Errors
    /// When it cannot be started or refuses its configuration.
    pub fn start(scraping: &Scraping) -> Result<Self> {
        let directory = TempDir::new()?;
        let config = directory.path().join("prometheus.yml");
        std::fs::write(&config, scraping.config())?;
        let mut command = Command::new("prometheus");
        command.arg("--config.file").arg(&config).arg("--storage.tsdb.path").arg(directory.path().join("data"));
        command.arg("--web.listen-address=127.0.0.1:0");
        if scraping.native_histograms {
            command.arg("--enable-feature=native-histograms");
        }
        let mut child = Child::spawn("prometheus", &mut command)?;
        let [address, _ready] = until_logged(&mut child, ["Listening on", "Server is ready to receive web requests."])?;
        let address = address.rsplit("address=").next().context("an address")?;
        Ok(Self { child, url: format!("http://{address}"), _directory: directory })
    }

    /// The values of an instant query, now.
    ///
    /// # Errors
    /// When Prometheus refuses the query.
    pub fn query(&self, promql: &str) -> Result<Vec<Point>> {
        let found: Found<Instant> = self.ask("query", &[("query", promql)])?;
        found.result.into_iter().map(|Instant { metric, value }| Ok((metric, value.1.parse()?))).collect()
    }

    /// The samples as they were stored, with the times of their scrapes, that a range selector such as `up[1m]` selects.
    ///
    /// # Errors
    /// When Prometheus refuses the query.
    pub fn stored(&self, selector: &str) -> Result<Vec<Range>> {
        ranges(self.ask("query", &[("query", selector)])?)
    }

    /// The values of a query over a span of time: begin and end in seconds since 1970, and the step in seconds.
    ///
    /// # Errors
    /// When Prometheus refuses the query.
    pub fn query_range(&self, promql: &str, begin: f64, end: f64, step: f64) -> Result<Vec<Range>> {
        let [begin, end, step] = [begin, end, step].map(|number| number.to_string());
        let query = [("query", promql), ("start", &begin), ("end", &end), ("step", &step)];
        ranges(self.ask("query_range", &query)?)
    }

    /// The targets that are scraped.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub fn targets(&self) -> Result<Vec<Target>> {
        Ok(self.ask::<Targets>("targets", &[("state", "active")])?.active_targets)
    }

    /// Waits until the results of `scrapes` scrapes that began after this call are stored.
    ///
    /// Prometheus announces no scrape, so it is asked: as often as makes sense at its interval, and no longer than
    /// these scrapes can take by far. It stores a sample of `up` with each, failed ones too.
    ///
    /// # Errors
    /// When it does not scrape.
    pub fn wait_until_scraped(&self, scrapes: u64) -> Result<()> {
        // One may have begun before.
        let wanted = self.scrapes()? + scrapes + 1;
        let wait = SCRAPE_INTERVAL * u32::try_from(scrapes)? + PATIENCE;
        for _ in 0..wait.as_millis() / PAUSE.as_millis() {
            if self.scrapes()? >= wanted {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        bail!(self.child.failure(&format!("has not scraped {scrapes} times: {:?}", self.targets()?)))
    }

    /// How many scrapes are stored.
    fn scrapes(&self) -> Result<u64> {
        self.query("sum(count_over_time(up[1d]))")?.first().map_or(Ok(0), |(_, count)| whole(*count))
    }

    fn ask<T: DeserializeOwned>(&self, what: &str, query: &[(&str, &str)]) -> Result<T> {
        let answer = http::get(&format!("{}/api/v1/{what}", self.url), query, &[])?;
        let said = || format!("{what} {query:?}: {}", answer.body);
        let envelope: Envelope = serde_json::from_str(&answer.body).with_context(said)?;
        ensure!(envelope.status == "success", "{what} {query:?}: {}", envelope.error);
        serde_json::from_value(envelope.data).with_context(said)
    }
}

fn ranges(found: Found<Matrix>) -> Result<Vec<Range>> {
    let number = |(time, value): (f64, String)| Ok((time, value.parse()?));
    let range = |matrix: Matrix| Ok((matrix.metric, matrix.values.into_iter().map(number).collect::<Result<_>>()?));
    found.result.into_iter().map(range).collect()
}

/// Reads its log until each of these messages has come, in any order: they are written by several threads. Returns their
/// lines.
fn until_logged<const N: usize>(child: &mut Child, messages: [&str; N]) -> Result<[String; N]> {
    let mut lines = messages.map(|_| String::new());
    while lines.iter().any(String::is_empty) {
        let line = child.line(Stream::Stderr).with_context(|| format!("waiting for {messages:?}"))?;
        for (kept, message) in lines.iter_mut().zip(messages) {
            if line.contains(message) {
                kept.clone_from(&line);
            }
        }
    }
    Ok(lines)
}

/// Has `promtool` judge the text of a scrape.
///
/// # Errors
/// What it finds wrong, matters of style included.
pub fn check_metrics(text: &str) -> Result<()> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().context("promtool")?;
    // Dropping the pipe ends it. The answer is small: nobody waits for anybody.
    promtool.stdin.take().context("stdin is a pipe")?.write_all(text.as_bytes())?;
    judged("check metrics", &promtool.wait_with_output()?)
}

/// Has `promtool` judge a file of rules.
///
/// # Errors
/// What it finds wrong.
pub fn check_rules(path: &Path) -> Result<()> {
    judged("check rules", &Command::new("promtool").args(["check", "rules"]).arg(path).output().context("promtool")?)
}

fn judged(what: &str, output: &std::process::Output) -> Result<()> {
    let [said, complaints] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    ensure!(output.status.success(), "promtool {what}: {}\n{said}{complaints}", output.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;
    use crate::require::with_prometheus;

    const METRICS: &str = "# HELP told_total Told.\n# TYPE told_total counter\ntold_total{to=\"you\"} 42\n";

    /// A target that answers every request with the same metrics, if it comes with the header.
    fn target(needed_header: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let status = if request.contains(needed_header) { "200 OK" } else { "401 Unauthorized" };
                let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n");
                let length = METRICS.len();
                write!(stream, "{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{METRICS}").unwrap();
            }
        });
        address
    }

    /// Check that a target is scraped and its values can be queried, at a moment and over time.
    #[test]
    fn scrapes_and_answers() -> Result<()> {
        with_prometheus(|| {
            let prometheus = Prometheus::start(&Scraping::plain(&target("GET")))?;
            prometheus.wait_until_scraped(2)?;
            let found = prometheus.query("told_total{to=\"you\"} - 2")?;
            ensure!(found.len() == 1 && found[0].1 == 40.0 && found[0].0["job"] == "nprof", "{found:?}");
            let now = prometheus.query("vector(time())")?[0].1;
            let over_time = prometheus.query_range("told_total", now - 1.0, now, 1.0)?;
            ensure!(over_time[0].1.len() == 2 && over_time[0].1.iter().all(|point| point.1 == 42.0), "{over_time:?}");
            let stored = prometheus.stored("told_total[1m]")?;
            ensure!(stored[0].1.len() >= 2 && stored[0].1.is_sorted_by(|a, b| a.0 < b.0), "{stored:?}");
            ensure!(prometheus.targets()?[0].health == "up", "{:?}", prometheus.targets()?);
            ensure!(prometheus.query("rate(").is_err(), "nonsense was accepted");
            Ok(())
        })
    }

    /// Check that credentials are shown, and that a target that refuses them is seen to be down.
    #[test]
    fn shows_credentials() -> Result<()> {
        with_prometheus(|| {
            let address = target("Authorization: Bearer secret");
            for (token, health) in [("secret", "up"), ("wrong", "down")] {
                let credentials = Credentials::Bearer(token.into());
                // Who asks for native histograms takes text too.
                let scraping = Scraping { credentials, native_histograms: true, ..Scraping::plain(&address) };
                let prometheus = Prometheus::start(&scraping)?;
                prometheus.wait_until_scraped(1)?;
                ensure!(prometheus.targets()?[0].health == health, "{:?}", prometheus.targets()?);
            }
            Ok(())
        })
    }

    /// Check that what every way of scraping is configured with is accepted by Prometheus.
    #[test]
    fn every_configuration_is_accepted() -> Result<()> {
        with_prometheus(|| {
            let directory = TempDir::new()?;
            let authority = directory.path().join("ca.pem");
            std::fs::write(&authority, "")?;
            let credentials = Credentials::Basic("me \"quoted\"".into(), "secret: #1".into());
            let file = directory.path().join("prometheus.yml");
            let scraping = Scraping { credentials, authority: Some(authority), ..Scraping::plain("127.0.0.1:1") };
            std::fs::write(&file, scraping.config())?;
            judged("check config", &Command::new("promtool").args(["check", "config"]).arg(&file).output()?)
        })
    }

    /// Check that `promtool` accepts what is right and refuses what is not.
    #[test]
    fn promtool_judges() -> Result<()> {
        with_prometheus(|| {
            check_metrics(METRICS)?;
            ensure!(check_metrics(&METRICS.replace("told_total", "told")).is_err(), "a counter without _total");
            let directory = TempDir::new()?;
            let rules = directory.path().join("rules.yml");
            std::fs::write(&rules, "groups: [{name: a, rules: [{alert: B, expr: up == 0}]}]")?;
            check_rules(&rules)?;
            std::fs::write(&rules, "groups: [{name: a, rules: [{alert: B, expr: up ==}]}]")?;
            ensure!(check_rules(&rules).is_err(), "half an expression");
            Ok(())
        })
    }
}
