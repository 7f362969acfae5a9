//! Settings as they were made, in a file or on the command line: any of them may be missing, and none is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::Place;

/// The settings, each with its key, from one table: a setting cannot be forgotten in one of the places.
macro_rules! settings {
    ($($(#[doc = $doc:literal])* $key:literal $field:ident: $type:ty,)*) => {
        /// Settings as they were made. What each means is said in [`Config`](super::Config).
        #[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Partial {
            $($(#[doc = $doc])* #[serde(rename = $key)] pub $field: Option<$type>,)*
            /// Where in a file a key stands; one that is not in here was given on the command line.
            #[serde(skip)]
            pub(super) places: BTreeMap<&'static str, Place>,
        }

        impl Partial {
            /// Every key. Flags have the same names.
            pub const KEYS: &[&str] = &[$($key),*];

            /// These settings, and those of `under` where these say nothing. A list is taken as a whole from one of them.
            #[must_use]
            pub fn over(self, mut under: Self) -> Self {
                let mut places = self.places;
                $(if let (None, Some(place)) = (&self.$field, under.places.remove($key)) {
                    places.insert($key, place);
                })*
                Self { $($field: self.$field.or(under.$field),)* places }
            }
        }
    };
}

settings! {
    /// Which methods, as globs on class::method.
    "patterns" patterns: Vec<String>,
    /// Which methods not.
    "exclude" exclude: Vec<String>,
    /// Which libraries.
    "library" library: Vec<String>,
    /// Which JVMs, as globs on the main class or jar.
    "jvm" jvm: Vec<String>,
    /// Which JVMs not.
    "exclude-jvm" exclude_jvm: Vec<String>,
    /// Whose JVMs.
    "user" user: Vec<String>,
    /// Into which JVMs the shim is loaded, as globs on the main class or jar.
    "stubs-for" stubs_for: Vec<String>,
    /// Address and port of the endpoint.
    "listen" listen: String,
    /// Templates of labels by name.
    "label" label: BTreeMap<String, String>,
    /// Whether overloads have their own series.
    "with-signature" with_signature: bool,
    /// Methods of a JVM with their own series.
    "max-series" max_series: usize,
    /// How long series outlive their JVM, such as `5m`.
    "keep-ended" keep_ended: String,
    /// The budget, such as `2%`, or `off`.
    "max-overhead" max_overhead: String,
    /// Whether calls are only counted.
    "count-only" count_only: bool,
    /// The most functions to trace in a JVM.
    "max-methods" max_methods: usize,
    /// The most functions to trace at a time, of all JVMs.
    "max-total" max_total: usize,
    /// The control socket.
    "control" control: PathBuf,
    /// The group that may use it.
    "control-group" control_group: String,
    /// The endpoint's certificate.
    "tls-cert" tls_cert: PathBuf,
    /// Its private key.
    "tls-key" tls_key: PathBuf,
    /// Users and passwords.
    "basic-auth-file" basic_auth_file: PathBuf,
    /// A token.
    "bearer-token-file" bearer_token_file: PathBuf,
    /// The most connections of the endpoint.
    "max-connections" max_connections: usize,
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
