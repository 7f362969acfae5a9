//! The configuration of `nprof serve`: a file and flags with the same words, checked as a whole before anything starts.
//!
//! File ([`ConfigFile`]) and flags each become a [`Partial`], flags are laid over the file, and the sum is checked
//! ([`Config::try_from`]): what flows out is a [`Config`], or every problem there is, each with its place. Nothing here
//! listens, attaches or talks to a JVM.

mod check;
pub mod duration;
mod file;
mod partial;
mod problem;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use file::{ConfigFile, FileError};
pub use partial::Partial;
pub use problem::{Place, Problem};
pub use value::share;

use crate::discover::{JvmFilter, Labels};
use crate::resolve::select::Selection;

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
    /// The most functions to trace in a JVM.
    pub max_functions: Option<usize>,
    /// The most functions to trace at a time, of all JVMs together. What is counted of each takes 1.5 kB for each of up to
    /// as many CPUs as fit.
    pub max_total: usize,
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
        warnings
    }

    /// The same, with everything that cannot be changed while nprof runs as it is in `old`.
    #[must_use]
    pub fn with_fixed_of(self, old: &Self) -> Self {
        let (control, control_group) = (old.control.clone(), old.control_group.clone());
        let (tls, auth) = (old.tls.clone(), old.auth.clone());
        let (listen, max_connections) = (old.listen, old.max_connections);
        let (timed, max_functions, max_total) = (old.timed, old.max_functions, old.max_total);
        Self { listen, control, control_group, tls, auth, max_connections, timed, max_functions, max_total, ..self }
    }

    /// The keys that differ in `new` and cannot be changed while nprof runs: what they say is bound, opened or attached
    /// at the start.
    #[must_use]
    pub fn fixed_difference(&self, new: &Self) -> Vec<&'static str> {
        let file = |config: &Self, kind: fn(&AuthFile) -> Option<&PathBuf>| kind(&config.auth).cloned();
        let cert = |config: &Self| config.tls.as_ref().map(|(cert, _)| cert.clone());
        let key = |config: &Self| config.tls.as_ref().map(|(_, key)| key.clone());
        let differs = [
            ("listen", self.listen != new.listen),
            ("control", self.control != new.control),
            ("control-group", self.control_group != new.control_group),
            ("tls-cert", cert(self) != cert(new)),
            ("tls-key", key(self) != key(new)),
            ("basic-auth-file", file(self, AuthFile::basic) != file(new, AuthFile::basic)),
            ("bearer-token-file", file(self, AuthFile::bearer) != file(new, AuthFile::bearer)),
            ("max-connections", self.max_connections != new.max_connections),
            ("count-only", self.timed != new.timed),
            ("max-methods", self.max_functions != new.max_functions),
            ("max-total", self.max_total != new.max_total),
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
}
