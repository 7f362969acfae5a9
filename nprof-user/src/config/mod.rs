//! The configuration of `nprof serve`: a file and flags with the same words, checked as a whole before anything starts.
//!
//! File ([`ConfigFile`]) and flags each become a [`Partial`], flags are laid over the file, and the sum is checked
//! ([`Config::try_from`]): what flows out is a [`Config`], or every problem there is, each with its place. Nothing here
//! listens, attaches or talks to a JVM.

mod check;
mod file;
mod partial;
mod problem;
mod value;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;

pub use file::{ConfigFile, FileError};
pub use partial::Partial;
pub use problem::{Place, Problem};
pub use value::{collector, share};

pub use crate::model::duration;

use crate::discover::{JvmFilter, Labels};
use crate::model::{Collectors, Tracing};
use crate::resolve::rule::Rule;
use crate::resolve::select::Selection;
use crate::resolve::thresholds::Thresholds;

/// Where the file is unless the user names another.
pub const DEFAULT_FILE: &str = "/etc/nprof/nprof.toml";
/// Where the control socket is unless the user names another.
pub const DEFAULT_CONTROL: &str = "/run/nprof/control.sock";

/// How `nprof serve` is to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which methods.
    pub selection: Selection,
    /// Which JVMs.
    pub jvms: JvmFilter,
    /// Into which of them the shim is loaded; into none if not said.
    pub stubs_for: Option<JvmFilter>,
    /// Of which of them JNI functions are traced, too; of none if not said.
    pub jni_for: Option<JvmFilter>,
    /// Where to answer Prometheus.
    pub listen: SocketAddr,
    /// The labels of each JVM.
    pub labels: Labels,
    /// Whether overloads have their own series, told apart by their signatures.
    pub with_signature: bool,
    /// How many methods of a JVM have their own series.
    pub max_series: usize,
    /// How long the series of a JVM stay after its end.
    pub keep_ended: Duration,
    /// The most that tracing may cost a JVM, as a share of its time: 0.02 is 2 %. `None` for any cost.
    pub max_overhead: Option<f64>,
    /// Whether calls are timed, or only counted.
    pub timed: bool,
    /// What is done at the calls of some methods instead; the last one that selects a method counts.
    pub rules: Vec<Rule>,
    /// Whether it is measured how long threads do not run within timed calls.
    pub off_cpu: bool,
    /// What else is collected of timed calls.
    pub collectors: Collectors,
    /// The most functions to trace in a JVM.
    pub max_functions: Option<usize>,
    /// The most functions to trace at a time, of all JVMs together. What is counted of each takes 1.5 kB for each of up to
    /// as many CPUs as fit.
    pub max_total: usize,
    /// Whether each JVM has a profile, and how long its windows are.
    pub profile_window: Option<Duration>,
    /// From when on calls are slow, and logged; none are if not said.
    pub slow: Option<Thresholds>,
    /// The file of that log, if it is not the standard output.
    pub slow_log: Option<PathBuf>,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it beside root.
    pub control_group: Option<String>,
    /// Certificate chain and private key (PEM), if the endpoint speaks TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Who may scrape.
    pub auth: AuthFile,
    /// The most connections of the endpoint at a time.
    pub max_connections: usize,
    /// Where to push metrics by OTLP, if anywhere.
    pub otlp: Option<Otlp>,
    /// Where to push profiles for Pyroscope, if anywhere.
    pub pyroscope: Option<PushTo>,
}

/// What to push by OTLP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// Where.
    pub to: PushTo,
    /// The time from one push of metrics to the next.
    pub interval: Duration,
    /// Whether profiles are pushed as well.
    pub profiles: bool,
}

/// Where to push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTo {
    /// Scheme, host, perhaps port and path.
    pub endpoint: Uri,
    /// A file of headers to send.
    pub headers: Option<PathBuf>,
    /// The authorities (PEM) that may vouch for it, in place of the host's.
    pub ca: Option<PathBuf>,
}

impl PushTo {
    /// Whether the way there is on this host alone.
    fn is_local(&self) -> bool {
        let host = self.endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

/// Where it is written down who may scrape.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AuthFile {
    /// Everybody may.
    #[default]
    None,
    /// A file of users and passwords.
    Basic(PathBuf),
    /// A file with a token.
    Bearer(PathBuf),
}

impl Config {
    /// What can be done, but hardly should: for the log.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.listen.ip().is_loopback() {
            let missing = match (&self.tls, &self.auth) {
                (None, AuthFile::None) => {
                    Some("without TLS and without authentication: everybody who reaches it can read it")
                }
                (None, _) => Some("without TLS: the password or token can be read on the way"),
                (Some(_), AuthFile::None) => Some("without authentication: everybody who reaches it can read it"),
                (Some(_), _) => None,
            };
            let fix = "set tls-cert and tls-key, and basic-auth-file or bearer-token-file, or listen on 127.0.0.1";
            warnings.extend(missing.map(|missing| format!("{} is served {missing}; {fix}", self.listen)));
        }
        let receivers = self.otlp.iter().map(|otlp| &otlp.to).chain(&self.pyroscope);
        let tells = |to: &&PushTo| to.headers.is_some() && to.endpoint.scheme_str() == Some("http") && !to.is_local();
        warnings.extend(receivers.filter(tells).map(|PushTo { endpoint, .. }| {
            format!("{endpoint} is pushed to without TLS: the headers can be read on the way; use https")
        }));
        warnings
    }

    /// The same, with everything that cannot be changed while nprof runs as it is in `old`.
    #[must_use]
    pub fn with_fixed_of(self, old: &Self) -> Self {
        let (control, control_group) = (old.control.clone(), old.control_group.clone());
        let (tls, auth) = (old.tls.clone(), old.auth.clone());
        let (listen, max_connections) = (old.listen, old.max_connections);
        let (otlp, pyroscope) = (old.otlp.clone(), old.pyroscope.clone());
        let (timed, max_functions, max_total) = (old.timed, old.max_functions, old.max_total);
        let (off_cpu, collectors) = (old.off_cpu, old.collectors);
        let (profile_window, slow, slow_log) = (old.profile_window, old.slow.clone(), old.slow_log.clone());
        let fixed = Self { listen, control, control_group, tls, auth, max_connections, slow, slow_log, ..self };
        let rules = if old.moves_probes(&fixed) { old.rules.clone() } else { fixed.rules.clone() };
        let jni_for = if old.traces_jni(&fixed) { old.jni_for.clone() } else { fixed.jni_for.clone() };
        Self {
            jni_for,
            otlp,
            pyroscope,
            timed,
            rules,
            off_cpu,
            collectors,
            max_functions,
            max_total,
            profile_window,
            ..fixed
        }
    }

    /// Whether other rules have calls counted at their return, or might not any more: probes are not moved while methods are called.
    fn moves_probes(&self, new: &Self) -> bool {
        let said = |config: &Self| -> Vec<(String, Tracing)> {
            config.rules.iter().map(|rule| (rule.pattern.clone(), rule.wanted)).collect()
        };
        let (old, new) = (said(self), said(new));
        old != new && old.iter().chain(&new).any(|(_, wanted)| *wanted == Tracing::Returned)
    }

    /// Whether JNI functions are traced and might not be any more, or the other way round: what is kept of them is made at the start.
    fn traces_jni(&self, new: &Self) -> bool {
        self.jni_for.is_some() != new.jni_for.is_some()
    }

    /// The keys that differ in `new` and cannot be changed while nprof runs: what they say is bound, opened or attached
    /// at the start.
    #[must_use]
    pub fn fixed_difference(&self, new: &Self) -> Vec<&'static str> {
        let file = |config: &Self, kind: fn(&AuthFile) -> Option<&PathBuf>| kind(&config.auth).cloned();
        let cert = |config: &Self| config.tls.as_ref().map(|(cert, _)| cert.clone());
        let key = |config: &Self| config.tls.as_ref().map(|(_, key)| key.clone());
        let of_otlp = |config: &Self| config.otlp.as_ref().map(|otlp| (otlp.interval, otlp.profiles));
        let [to, new_to] =
            [self, new].map(|config| [config.otlp.as_ref().map(|otlp| &otlp.to), config.pyroscope.as_ref()]);
        let endpoint = |to: Option<&PushTo>| to.map(|to| to.endpoint.clone());
        let headers = |to: Option<&PushTo>| to.and_then(|to| to.headers.clone());
        let authorities = |to: Option<&PushTo>| to.and_then(|to| to.ca.clone());
        let differs = [
            ("listen", self.listen != new.listen),
            ("control", self.control != new.control),
            ("control-group", self.control_group != new.control_group),
            ("tls-cert", cert(self) != cert(new)),
            ("tls-key", key(self) != key(new)),
            ("basic-auth-file", file(self, AuthFile::basic) != file(new, AuthFile::basic)),
            ("bearer-token-file", file(self, AuthFile::bearer) != file(new, AuthFile::bearer)),
            ("max-connections", self.max_connections != new.max_connections),
            ("otlp-endpoint", endpoint(to[0]) != endpoint(new_to[0])),
            ("otlp-interval", of_otlp(self).map(|of| of.0) != of_otlp(new).map(|of| of.0)),
            ("otlp-profiles", of_otlp(self).map(|of| of.1) != of_otlp(new).map(|of| of.1)),
            ("otlp-headers-file", headers(to[0]) != headers(new_to[0])),
            ("otlp-ca", authorities(to[0]) != authorities(new_to[0])),
            ("pyroscope-endpoint", endpoint(to[1]) != endpoint(new_to[1])),
            ("pyroscope-headers-file", headers(to[1]) != headers(new_to[1])),
            ("pyroscope-ca", authorities(to[1]) != authorities(new_to[1])),
            ("count-only", self.timed != new.timed),
            ("rules", self.moves_probes(new)),
            ("jni-for", self.traces_jni(new)),
            ("no-off-cpu", self.timed && new.timed && self.off_cpu != new.off_cpu),
            ("collect", self.collectors != new.collectors),
            ("slow", self.slow != new.slow),
            ("slow-log", self.slow_log != new.slow_log),
            ("max-methods", self.max_functions != new.max_functions),
            ("max-total", self.max_total != new.max_total),
            ("profiles", self.profile_window.is_some() != new.profile_window.is_some()),
            ("profile-window", self.profile_window.zip(new.profile_window).is_some_and(|(old, new)| old != new)),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

impl AuthFile {
    fn basic(&self) -> Option<&PathBuf> {
        if let Self::Basic(path) = self { Some(path) } else { None }
    }

    fn bearer(&self) -> Option<&PathBuf> {
        if let Self::Bearer(path) = self { Some(path) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::try_from(Partial::default()).unwrap()
    }

    /// Check that an endpoint which others reach is warned about unless it has both TLS and authentication.
    #[test]
    fn warns_of_an_open_endpoint() {
        let mut config = config();
        assert_eq!(config.warnings(), [""; 0]);
        config.listen = "0.0.0.0:9464".parse().unwrap();
        assert!(config.warnings()[0].contains("without TLS and without authentication"));
        config.auth = AuthFile::Bearer("/t".into());
        assert!(config.warnings()[0].contains("on the way"));
        config.tls = Some(("/c".into(), "/k".into()));
        assert_eq!(config.warnings(), [""; 0]);
        config.auth = AuthFile::None;
        assert!(config.warnings()[0].contains("served without authentication"));
    }

    /// Check that headers in the clear are warned about, unless they stay on the host.
    #[test]
    fn warns_of_headers_in_the_clear() {
        let warnings = |endpoint: &str, headers: Option<&str>| {
            let (headers, endpoint) = (headers.map(PathBuf::from), endpoint.parse().unwrap());
            Config { pyroscope: Some(PushTo { endpoint, headers, ca: None }), ..config() }.warnings()
        };
        assert!(warnings("http://otlp.acme.com", Some("/h"))[0].contains("the headers can be read on the way"));
        for local in ["http://localhost:4318", "http://127.0.0.1:4318", "http://[::1]:4318", "https://otlp.acme.com"] {
            assert_eq!(warnings(local, Some("/h")), [""; 0]);
        }
        assert_eq!(warnings("http://otlp.acme.com", None), [""; 0]);
    }

    /// Check that exactly the fixed keys that differ are named.
    #[test]
    fn tells_what_cannot_change() {
        let (old, mut new) = (config(), config());
        new.max_series += 1;
        new.max_overhead = None;
        assert_eq!(old.fixed_difference(&new), [""; 0]);
        new.listen.set_port(1);
        new.tls = Some(("/c".into(), "/k".into()));
        new.auth = AuthFile::Basic("/b".into());
        assert_eq!(old.fixed_difference(&new), ["listen", "tls-cert", "tls-key", "basic-auth-file"]);
    }

    /// Check that for which JVMs JNI functions are traced can be changed while nprof runs, and whether they are at all cannot.
    #[test]
    fn jni_that_is_fixed() {
        let with = |jni_for: Option<&str>| {
            let none: [&str; 0] = [];
            let jni_for = jni_for.map(|pattern| JvmFilter::parse(&[pattern], &none, &none).unwrap());
            Config { jni_for, ..config() }
        };
        let changed = |old: Option<&str>, new: Option<&str>| {
            let (old, new) = (with(old), with(new));
            let is_fixed = old.fixed_difference(&new) == ["jni-for"];
            (is_fixed, new.with_fixed_of(&old).jni_for.is_some())
        };
        assert_eq!(changed(None, Some("a")), (true, false));
        assert_eq!(changed(Some("a"), None), (true, true));
        assert_eq!(changed(Some("a"), Some("b")), (false, true));
    }

    /// Check that rules can be changed while nprof runs, unless calls are counted at their return by any of them.
    #[test]
    fn rules_that_are_fixed() {
        let with = |rules: &[&str]| {
            let rules = rules.iter().map(|rule| Rule::parse(rule).unwrap()).collect();
            Config { rules, ..config() }
        };
        let changed = |old: &[&str], new: &[&str]| {
            let (old, new) = (with(old), with(new));
            let is_fixed = old.fixed_difference(&new) == ["rules"];
            let kept = new.with_fixed_of(&old).rules;
            let patterns: Vec<String> = kept.into_iter().map(|rule| rule.pattern).collect();
            (is_fixed, patterns.concat())
        };
        assert_eq!(changed(&["a=off"], &["b=time"]), (false, "b".to_owned()));
        assert_eq!(changed(&["a=off"], &["b=exit"]), (true, "a".to_owned()));
        assert_eq!(changed(&["a=exit"], &["b=off"]), (true, "a".to_owned()));
        assert_eq!(changed(&["a=exit"], &["a=exit"]), (false, "a".to_owned()));
    }
}
