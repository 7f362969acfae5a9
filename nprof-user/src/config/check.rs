//! From settings to a configuration: every setting checked, and all of them together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{AuthFile, Config, DEFAULT_CONTROL, Otlp, Partial, Place, Problem, PushTo, duration, value};
use crate::discover::{JvmFilter, Labels};
use crate::model::{COLLECTORS, Collectors, Tracing};
use crate::resolve::rule::{Rule, with_default};
use crate::resolve::select::Selection;
use crate::resolve::thresholds::Thresholds;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);
const DEFAULT_SERIES: usize = 300;
const DEFAULT_KEEP_ENDED: Duration = Duration::from_secs(5 * 60);
const DEFAULT_OVERHEAD: f64 = 0.02;
const DEFAULT_CONNECTIONS: usize = 32;
/// That of OpenTelemetry.
const DEFAULT_PUSH_INTERVAL: Duration = Duration::from_secs(60);
/// A receiver that wants more has another tool in mind.
const LEAST_PUSH_INTERVAL: Duration = Duration::from_secs(1);
/// What is wrong with other settings of a receiver.
const NOT_PUSHED: &str = "nothing is pushed without the endpoint: set it too";
/// Some twenty JVMs, as large as the usual one.
const DEFAULT_TOTAL: usize = 12_288;

const DEFAULT_WINDOW: Duration = Duration::from_secs(60);
/// How long a window of a profile may be: not so short that closing them is all there is to do, nor longer than they are kept.
const WINDOWS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// More series than this of one JVM are more than a Prometheus should be given.
const MOST_SERIES: usize = 100_000;
/// More connections than this are no scrapes.
const MOST_CONNECTIONS: usize = 10_000;
/// The most functions that can be traced.
const MOST_TOTAL: usize = 1_000_000;
const MOST_METHODS: usize = u32::MAX as usize;
/// The most bytes of a socket's path (`sun_path` in `unix(7)`), without the zero byte behind it.
const SOCKET_PATH_BYTES: usize = 107;

impl TryFrom<Partial> for Config {
    /// All of them, in the order of their places.
    type Error = Vec<Problem>;

    /// Checks the settings as a whole. Reads nothing, but looks whether the files that are named are there.
    fn try_from(partial: Partial) -> Result<Self, Self::Error> {
        let mut check = Check { partial: &partial, problems: Vec::new() };
        let config = check.config();
        let mut problems = check.problems;
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// The settings, and what is wrong with those that have been looked at.
struct Check<'a> {
    partial: &'a Partial,
    problems: Vec<Problem>,
}

impl Check<'_> {
    /// The configuration; where there is a problem, with something in its place.
    fn config(&mut self) -> Config {
        let partial = self.partial;
        let number = |n: Option<usize>, default| n.unwrap_or(default);
        let (rules, timed) = self.rules();
        Config {
            selection: self.selection(),
            jvms: self.jvms(),
            stubs_for: self.stubs_for(),
            jni_for: self.jni_for(),
            listen: self.text("listen", partial.listen.as_ref(), value::listen).unwrap_or(DEFAULT_LISTEN),
            labels: self.labels(),
            with_signature: partial.with_signature.unwrap_or_default(),
            max_series: self.within("max-series", number(partial.max_series, DEFAULT_SERIES), MOST_SERIES),
            keep_ended: self
                .text("keep-ended", partial.keep_ended.as_ref(), duration::parse)
                .unwrap_or(DEFAULT_KEEP_ENDED),
            max_overhead: self
                .text("max-overhead", partial.max_overhead.as_ref(), value::share)
                .unwrap_or(Some(DEFAULT_OVERHEAD)),
            timed,
            rules,
            off_cpu: timed && !partial.no_off_cpu.unwrap_or_default(),
            collectors: self.collectors(),
            max_functions: partial.max_methods.map(|most| self.within("max-methods", most, MOST_METHODS)),
            max_total: self.within("max-total", number(partial.max_total, DEFAULT_TOTAL), MOST_TOTAL),
            profile_window: self.profile_window(),
            slow: self.slow(),
            slow_log: partial.slow_log.clone(),
            control: self.control(),
            control_group: self.text("control-group", partial.control_group.as_ref(), value::group),
            tls: self.tls(),
            auth: self.auth(),
            max_connections: self.within(
                "max-connections",
                number(partial.max_connections, DEFAULT_CONNECTIONS),
                MOST_CONNECTIONS,
            ),
            otlp: self.otlp(),
            pyroscope: self.pyroscope(),
        }
    }

    fn problem(&mut self, key: &str, says: impl ToString) {
        let place = self.partial.place(key);
        self.problems.push(Problem { place, key: key.to_owned(), says: says.to_string() });
    }

    /// The value behind a text, if there is one and it is good.
    fn text<T>(&mut self, key: &str, text: Option<&String>, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        match parse(text?) {
            Ok(value) => Some(value),
            Err(says) => {
                self.problem(key, format!("`{}`: {says}", text?));
                None
            }
        }
    }

    fn within(&mut self, key: &str, n: usize, most: usize) -> usize {
        if n == 0 || n > most {
            self.problem(key, format!("{n} is not between 1 and {most}"));
        }
        n
    }

    /// The entries of a list that are good by themselves; the others are problems.
    fn good<E: ToString>(
        &mut self,
        key: &str,
        list: Option<&Vec<String>>,
        test: impl Fn(&str) -> Result<(), E>,
    ) -> Vec<String> {
        let mut good = Vec::new();
        for entry in list.into_iter().flatten() {
            match test(entry) {
                Ok(()) => good.push(entry.clone()),
                Err(error) => self.problem(key, error),
            }
        }
        good
    }

    fn profile_window(&mut self) -> Option<Duration> {
        let partial = self.partial;
        let window = self.text("profile-window", partial.profile_window.as_ref(), |text| {
            let window = duration::parse(text)?;
            if WINDOWS.contains(&window) { Ok(window) } else { Err("give 1s to 1h".to_owned()) }
        });
        if !partial.profiles.unwrap_or_default() {
            return None;
        }
        if !self.rules().1 {
            self.problem("profiles", "there are no stacks where calls are only counted: set count-only to false");
        }
        Some(window.unwrap_or(DEFAULT_WINDOW))
    }

    fn collectors(&mut self) -> Collectors {
        let names: Vec<&str> = self.partial.collect.iter().flatten().map(String::as_str).collect();
        if !names.is_empty() && self.partial.count_only.unwrap_or_default() {
            self.problem(
                "collect",
                "what calls consume is not known where they are only counted: set count-only to false",
            );
        }
        if names.contains(&"results") {
            self.problem(
                "collect",
                "`results` is about one JVM, whose exceptions have to be told from results: leave it out",
            );
        }
        Collectors::named(&names).unwrap_or_else(|name| {
            let known: Vec<&str> = COLLECTORS.iter().map(|collector| collector.name).collect();
            let why = if value::is_hardware(name) { format!("; {}", value::NO_HARDWARE) } else { String::new() };
            self.problem("collect", format!("there is no `{name}`: write {}{why}", known.join(", ")));
            Collectors::default()
        })
    }

    fn slow(&mut self) -> Option<Thresholds> {
        let partial = self.partial;
        let good = self.good("slow", partial.slow.as_ref(), |text| Thresholds::parse(&[text]).map(drop));
        // What is left is good: there is no error that has not been told.
        let slow = Thresholds::parse(&good).ok().filter(|_| !good.is_empty());
        if slow.is_some() && partial.count_only.unwrap_or_default() {
            self.problem("slow", "no call has a time where calls are only counted: set count-only to false");
        }
        if partial.slow.is_none() && partial.slow_log.is_some() {
            self.problem("slow-log", "there is nothing to log: say from when on calls are slow (slow)");
        }
        slow
    }

    fn selection(&mut self) -> Selection {
        let none: [&str; 0] = [];
        let method = |p: &str| Selection::parse(&[p], &none, &none).map(drop);
        let library = |p: &str| Selection::parse(&none, &none, &[p]).map(drop);
        let patterns = self.good("patterns", self.partial.patterns.as_ref(), method);
        let exclude = self.good("exclude", self.partial.exclude.as_ref(), method);
        let libraries = self.good("library", self.partial.library.as_ref(), library);
        // What is left is good: there is no error that has not been told.
        Selection::parse(&patterns, &exclude, &libraries).unwrap_or_default()
    }

    /// The rules, and whether any call is timed.
    fn rules(&mut self) -> (Vec<Rule>, bool) {
        let rules = self.good("rules", self.partial.rules.as_ref(), |rule| Rule::parse(rule).map(drop));
        let rules = rules.iter().filter_map(|rule| Rule::parse(rule).ok()).collect();
        let count_only = self.partial.count_only.unwrap_or_default();
        with_default(rules, if count_only { Tracing::Counted } else { Tracing::Timed })
    }

    fn jvms(&mut self) -> JvmFilter {
        let none: [&str; 0] = [];
        let jvm = |p: &str| JvmFilter::parse(&[p], &none, &none).map(drop);
        let user = |u: &str| JvmFilter::parse(&none, &none, &[u]).map(drop);
        let include = self.good("jvm", self.partial.jvm.as_ref(), jvm);
        let exclude = self.good("exclude-jvm", self.partial.exclude_jvm.as_ref(), jvm);
        let users = self.good("user", self.partial.user.as_ref(), user);
        JvmFilter::parse(&include, &exclude, &users).unwrap_or_default()
    }

    fn stubs_for(&mut self) -> Option<JvmFilter> {
        self.some_jvms("stubs-for", self.partial.stubs_for.as_ref())
    }

    fn jni_for(&mut self) -> Option<JvmFilter> {
        let jni_for = self.some_jvms("jni-for", self.partial.jni_for.as_ref());
        if jni_for.is_some() && self.partial.count_only.unwrap_or_default() {
            self.problem(
                "jni-for",
                "what JNI functions give is not seen where calls are only counted: set count-only to false",
            );
        }
        jni_for
    }

    /// The JVMs that one of these patterns matches; none if there is no pattern, where a filter without any would take all.
    fn some_jvms(&mut self, key: &str, patterns: Option<&Vec<String>>) -> Option<JvmFilter> {
        let none: [&str; 0] = [];
        let include = self.good(key, patterns, |p| JvmFilter::parse(&[p], &none, &none).map(drop));
        if include.is_empty() { None } else { JvmFilter::parse::<String>(&include, &[], &[]).ok() }
    }

    fn labels(&mut self) -> Labels {
        // The last one of a name counts, as it does where one flag is given twice.
        let labels: BTreeMap<&String, &String> =
            self.partial.label.iter().flatten().map(|(name, template)| (name, template)).collect();
        let mut good = Vec::new();
        for (name, template) in labels {
            if self.is_misplaced(name) {
                self.problem(
                    "label",
                    format!("`{name}` stands below [label], which makes it a label: move it above [label]"),
                );
            } else if let Err(error) = Labels::parse(&[(name, template)]) {
                self.problem("label", error);
            } else {
                good.push((name.as_str(), template.as_str()));
            }
        }
        Labels::parse(&good).unwrap_or_default()
    }

    /// Whether a label looks like a setting that slipped into the table in front of it. Two keys are fair names.
    fn is_misplaced(&self, name: &str) -> bool {
        let in_file = self.partial.place("label") != Place::Flag;
        in_file && Partial::KEYS.contains(&name) && name != "jvm" && name != "user"
    }

    fn control(&mut self) -> PathBuf {
        let default = PathBuf::from(DEFAULT_CONTROL);
        let path = self.path("control", self.partial.control.as_ref()).unwrap_or(default);
        if path.as_os_str().len() > SOCKET_PATH_BYTES {
            self.problem("control", format!("the path of a socket has at most {SOCKET_PATH_BYTES} bytes"));
        }
        path
    }

    fn tls(&mut self) -> Option<(PathBuf, PathBuf)> {
        let cert = self.file("tls-cert", self.partial.tls_cert.as_ref());
        let key = self.file("tls-key", self.partial.tls_key.as_ref());
        match (&self.partial.tls_cert, &self.partial.tls_key) {
            (Some(_), None) => self.problem("tls-cert", "a certificate needs its key: set tls-key too"),
            (None, Some(_)) => self.problem("tls-key", "a key needs its certificate: set tls-cert too"),
            _ => {}
        }
        cert.zip(key)
    }

    fn auth(&mut self) -> AuthFile {
        let basic = self.file("basic-auth-file", self.partial.basic_auth_file.as_ref());
        let bearer = self.file("bearer-token-file", self.partial.bearer_token_file.as_ref());
        match (basic, bearer) {
            (Some(_), Some(_)) => {
                self.problem("bearer-token-file", "there is basic-auth-file already: remove one of the two");
                AuthFile::None
            }
            (Some(path), None) => AuthFile::Basic(path),
            (None, Some(path)) => AuthFile::Bearer(path),
            (None, None) => AuthFile::None,
        }
    }

    fn otlp(&mut self) -> Option<Otlp> {
        let partial = self.partial;
        let profiles = partial.otlp_profiles.unwrap_or_default();
        for (key, is_set) in [("otlp-interval", partial.otlp_interval.is_some()), ("otlp-profiles", profiles)] {
            if is_set && partial.otlp_endpoint.is_none() {
                self.problem(key, NOT_PUSHED);
            }
        }
        if profiles {
            self.needs_profiles("otlp-profiles");
        }
        let interval = self.text("otlp-interval", partial.otlp_interval.as_ref(), push_interval);
        let (headers, ca) = (partial.otlp_headers_file.as_ref(), partial.otlp_ca.as_ref());
        let keys = ["otlp-endpoint", "otlp-headers-file", "otlp-ca"];
        let to = self.push_to(keys, partial.otlp_endpoint.as_ref(), headers, ca)?;
        Some(Otlp { to, interval: interval.unwrap_or(DEFAULT_PUSH_INTERVAL), profiles })
    }

    fn pyroscope(&mut self) -> Option<PushTo> {
        let partial = self.partial;
        if partial.pyroscope_endpoint.is_some() {
            self.needs_profiles("pyroscope-endpoint");
        }
        let (headers, ca) = (partial.pyroscope_headers_file.as_ref(), partial.pyroscope_ca.as_ref());
        let keys = ["pyroscope-endpoint", "pyroscope-headers-file", "pyroscope-ca"];
        self.push_to(keys, partial.pyroscope_endpoint.as_ref(), headers, ca)
    }

    fn needs_profiles(&mut self, key: &str) {
        if !self.partial.profiles.unwrap_or_default() {
            self.problem(key, "there are no profiles to push: set profiles too");
        }
    }

    /// Where to push, by these settings, which have these keys.
    fn push_to(
        &mut self,
        keys: [&'static str; 3],
        endpoint: Option<&String>,
        headers: Option<&PathBuf>,
        ca: Option<&PathBuf>,
    ) -> Option<PushTo> {
        let [endpoint_key, headers_key, ca_key] = keys;
        for (key, is_set) in [(headers_key, headers.is_some()), (ca_key, ca.is_some())] {
            if is_set && endpoint.is_none() {
                self.problem(key, NOT_PUSHED);
            }
        }
        let (headers, ca) = (self.file(headers_key, headers), self.file(ca_key, ca));
        let endpoint = self.text(endpoint_key, endpoint, value::endpoint)?;
        if ca.is_some() && endpoint.scheme_str() == Some("http") {
            self.problem(ca_key, format_args!("{endpoint_key} speaks no TLS: write https:// there"));
        }
        Some(PushTo { endpoint, headers, ca })
    }

    /// A file that is there. It is read by those who need it.
    fn file(&mut self, key: &str, path: Option<&PathBuf>) -> Option<PathBuf> {
        let path = self.path(key, path)?;
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => self.problem(key, format!("{} is no regular file", path.display())),
            Err(error) => self.problem(key, format!("{} cannot be opened: {error}", path.display())),
        }
        Some(path)
    }

    /// A path that means the same wherever nprof is started. A shell's user knows where that is.
    fn path(&mut self, key: &str, path: Option<&PathBuf>) -> Option<PathBuf> {
        let path: &Path = path?;
        if path.is_relative() && self.partial.place(key) != Place::Flag {
            self.problem(
                key,
                format!("`{}` is relative to nothing that is known: write the whole path", path.display()),
            );
        }
        Some(path.to_owned())
    }
}

fn push_interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < LEAST_PUSH_INTERVAL { Err("it must be at least 1s".to_owned()) } else { Ok(interval) }
}

#[cfg(test)]
mod tests;
