//! Settings as they were made, in a file or on the command line: any of them may be missing, and none is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::{Place, value};

/// The settings by the heading of their flags. Each row is all that there is to add for one, but for its meaning in
/// [`Config`](super::Config): the text of `--help`, what clap must know beside it, key and flag, and the type.
macro_rules! settings {
    ($($heading:tt {
        $($(#[$doc:meta])* $([$($arg:tt)*])? $key:literal $field:ident: $type:ty $(= $read:literal)?,)*
    })*) => {
        /// Settings as they were made. What each means is said in [`Config`](super::Config).
        #[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Args)]
        #[serde(default, deny_unknown_fields)]
        pub struct Partial {
            $($(
                $(#[$doc])*
                #[serde(rename = $key $(, deserialize_with = $read)?)]
                #[arg(help_heading = $heading $(, $($arg)*)?)]
                pub $field: Option<$type>,
            )*)*
            /// Where in a file a key stands; one that is not in here was given on the command line.
            #[serde(skip)]
            #[arg(skip)]
            pub(super) places: BTreeMap<&'static str, Place>,
        }

        impl Partial {
            /// Every key. Flags have the same names.
            pub const KEYS: &[&str] = &[$($($key),*),*];

            /// These settings, and those of `under` where these say nothing. A list is taken as a whole from one of them.
            #[must_use]
            pub fn over(self, mut under: Self) -> Self {
                let mut places = self.places;
                $($(if let (None, Some(place)) = (&self.$field, under.places.remove($key)) {
                    places.insert($key, place);
                })*)*
                Self { $($($field: self.$field.or(under.$field),)*)* places }
            }
        }
    };
}

settings! {
    None {
        /// Which methods, as globs on class::method; all if there is none
        [value_name = "PATTERN"]
        "patterns" patterns: Vec<String>,
        /// Leave these methods out; may be given several times
        [long, value_name = "PATTERN"]
        "exclude" exclude: Vec<String>,
        /// Only methods whose code is in such a library, as a glob on its file name or path; may be given several times
        [long, value_name = "GLOB"]
        "library" library: Vec<String>,
        /// What to do at the calls of some methods: PATTERN=time, PATTERN=count, PATTERN=exit or PATTERN=off; may be given several
        /// times, of which the last one that matches a method counts
        [long = "rule", alias = "rules", value_name = "PATTERN=WHAT"]
        "rules" rules: Vec<String>,
    }
    "JVMs" {
        /// Only JVMs whose main class or jar matches this glob; may be given several times
        [long, value_name = "GLOB"]
        "jvm" jvm: Vec<String>,
        /// Leave these JVMs out; may be given several times
        [long, value_name = "GLOB"]
        "exclude-jvm" exclude_jvm: Vec<String>,
        /// Only JVMs of this user, by name or number; may be given several times
        [long]
        "user" user: Vec<String>,
        /// Load nprof's library into JVMs whose main class or jar matches this glob, and count there by stubs: all calls, at some
        /// tens of nanoseconds each; may be given several times
        [long, value_name = "GLOB"]
        "stubs-for" stubs_for: Vec<String>,
        /// Trace JNI functions, too, in JVMs whose main class or jar matches this glob ('*' for all): what native code asks of the VM,
        /// what it makes and lets go, look-ups and exceptions; may be given several times
        [long, value_name = "GLOB"]
        "jni-for" jni_for: Vec<String>,
    }
    "Endpoint" {
        /// Where to answer Prometheus [default: 127.0.0.1:9464]
        [long, value_name = "ADDRESS:PORT"]
        "listen" listen: String,
        /// Speak TLS with this certificate chain (PEM)
        [long, value_name = "FILE"]
        "tls-cert" tls_cert: PathBuf,
        /// The certificate's private key (PEM)
        [long, value_name = "FILE"]
        "tls-key" tls_key: PathBuf,
        /// Ask for one of the users and passwords in this file
        [long, value_name = "FILE"]
        "basic-auth-file" basic_auth_file: PathBuf,
        /// Ask for the token in this file
        [long, value_name = "FILE"]
        "bearer-token-file" bearer_token_file: PathBuf,
        /// The most connections at a time [default: 32]
        [long, value_name = "N"]
        "max-connections" max_connections: usize,
    }
    "Push" {
        /// Push the metrics to this OTLP receiver as well, such as http://localhost:4318
        [long, value_name = "URL"]
        "otlp-endpoint" otlp_endpoint: String,
        /// The time from one push to the next [default: 60s]
        [long, value_name = "TIME"]
        "otlp-interval" otlp_interval: String,
        /// Send the headers in this file, such as credentials: lines `Name: value`
        [long, value_name = "FILE"]
        "otlp-headers-file" otlp_headers_file: PathBuf,
        /// Trust these authorities (PEM) instead of the host's
        [long, value_name = "FILE"]
        "otlp-ca" otlp_ca: PathBuf,
        /// Push each window of the profiles there, too
        [long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"]
        "otlp-profiles" otlp_profiles: bool,
        /// Push each window of the profiles to this Pyroscope, such as http://localhost:4040
        [long, value_name = "URL"]
        "pyroscope-endpoint" pyroscope_endpoint: String,
        /// Send the headers in this file there, such as credentials
        [long, value_name = "FILE"]
        "pyroscope-headers-file" pyroscope_headers_file: PathBuf,
        /// Trust these authorities (PEM) there instead of the host's
        [long, value_name = "FILE"]
        "pyroscope-ca" pyroscope_ca: PathBuf,
    }
    "Metrics" {
        /// A label for each JVM, such as 'team={env:TEAM|none}'; may be given several times [default: 'jvm={main}']
        [long, value_name = "NAME=TEMPLATE", value_parser = value::label, long_help = value::label_help()]
        "label" label: Vec<(String, String)> = "value::labels",
        /// Tell overloads apart by a label with their signature
        [long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"]
        "with-signature" with_signature: bool,
        /// How many methods of a JVM have their own series; the others share one [default: 300]
        [long, value_name = "N"]
        "max-series" max_series: usize,
        /// How long the series of a JVM stay after its end [default: 5m]
        [long, value_name = "TIME"]
        "keep-ended" keep_ended: String,
    }
    "Profiles" {
        /// Keep a profile of each JVM, of the last hour, for `nprof flamegraph --from-serve`
        [long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"]
        "profiles" profiles: bool,
        /// How long each of the windows is that a profile is made of [default: 1m]
        [long, value_name = "TIME"]
        "profile-window" profile_window: String,
    }
    "Slow calls" {
        /// Log calls that take this long or longer, such as 100ms, each as a line of JSON with thread, callers, and what it waited
        /// for; may be given several times, with PATTERN=TIME for some methods and PATTERN=off
        [long, value_name = "[PATTERN=]TIME"]
        "slow" slow: Vec<String> = "value::one_or_more",
        /// Append them to this file, which SIGHUP opens again [default: the standard output]
        [long, value_name = "FILE"]
        "slow-log" slow_log: PathBuf,
    }
    "Cost" {
        /// The most that tracing may cost a JVM, as a share of its time, or off [default: 2%]
        [long, value_name = "SHARE"]
        "max-overhead" max_overhead: String,
        /// Only count calls: no times, no probe on returns, about 60 % of the cost
        [long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"]
        "count-only" count_only: bool,
        /// Do not measure how long threads wait inside native methods: no program runs then when CPUs switch threads
        [long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"]
        "no-off-cpu" no_off_cpu: bool,
        /// What to collect of each timed call besides its time, separated by commas: the difference of the thread's own counters
        /// between entry and return
        [long, value_name = "WHAT", value_delimiter = ',', value_parser = value::collector()]
        "collect" collect: Vec<String>,
        /// Trace at most this many functions of a JVM; bound methods go first
        [long, value_name = "N"]
        "max-methods" max_methods: usize,
        /// Trace at most this many functions at a time, of all JVMs together [default: 12288]
        [long, value_name = "N"]
        "max-total" max_total: usize,
    }
    "Control" {
        /// The socket for `nprof ctl` [default: /run/nprof/control.sock]
        [long, value_name = "PATH"]
        "control" control: PathBuf,
        /// The group that may use it beside root
        [long, value_name = "GROUP"]
        "control-group" control_group: String,
    }
}

impl Partial {
    /// Where a setting was made.
    pub(super) fn place(&self, key: &str) -> Place {
        self.places.get(key).cloned().unwrap_or(Place::Flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that flags win, that a list replaces a list, and that the place goes with the setting.
    #[test]
    fn flags_win() {
        let place = Place::File { path: "/f".into(), line: 1, column: 1 };
        let file = Partial {
            patterns: Some(vec!["A".to_owned()]),
            listen: Some("file".to_owned()),
            places: [("patterns", place.clone()), ("listen", place.clone())].into(),
            ..Partial::default()
        };
        let flags = Partial { patterns: Some(vec!["B".to_owned()]), max_series: Some(7), ..Partial::default() };
        let both = flags.over(file);
        assert_eq!(both.patterns, Some(vec!["B".to_owned()]));
        assert_eq!((both.listen.as_deref(), both.max_series), (Some("file"), Some(7)));
        assert_eq!([both.place("patterns"), both.place("listen")], [Place::Flag, place]);
    }
}
