//! What a configuration may say, and what is said of what it may not.

use super::*;
use crate::config::ConfigFile;

fn problems(text: &str) -> Vec<String> {
    let file = ConfigFile::parse(Path::new("n.toml"), text);
    assert_eq!(file.problems, []);
    Config::try_from(file.settings).unwrap_err().iter().map(Problem::to_string).collect()
}

/// Check what holds where nothing is set.
#[test]
fn has_defaults() {
    let config = Config::try_from(Partial::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9464");
    assert_eq!((config.max_series, config.max_connections, config.max_functions), (300, 32, None));
    assert_eq!((config.keep_ended, config.max_overhead), (Duration::from_secs(300), Some(0.02)));
    assert_eq!((config.timed, config.with_signature, config.max_total), (true, false, 12_288));
    assert_eq!(config.control, Path::new("/run/nprof/control.sock"));
    assert_eq!((config.tls, config.auth, config.control_group), (None, AuthFile::None, None));
    assert!(config.stubs_for.is_none() && config.otlp.is_none());
}

/// Check that a whole configuration arrives where it belongs.
#[test]
fn takes_every_setting() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key, token, headers] = ["cert", "key", "token", "headers"].map(|name| dir.path().join(name));
    for path in [&cert, &key, &token, &headers] {
        std::fs::write(path, "").unwrap();
    }
    let text = format!(
        "listen = '[::1]:1'\nwith-signature = true\nmax-series = 5\nkeep-ended = '90s'\nmax-overhead = '0.5 %'\n\
         count-only = true\nmax-methods = 7\nmax-total = 9\ncontrol = '/c'\ncontrol-group = 'ops'\nmax-connections = 2\n\
         stubs-for = ['com.acme.*']\notlp-endpoint = 'https://[::1]:4318'\notlp-interval = '15s'\n\
         otlp-headers-file = '{}'\notlp-ca = '{}'\ntls-cert = '{}'\ntls-key = '{}'\nbearer-token-file = '{}'\nlabel.team = '{{user}}'\n",
        headers.display(),
        cert.display(),
        cert.display(),
        key.display(),
        token.display()
    );
    let file = ConfigFile::parse(Path::new("n.toml"), &text);
    assert_eq!(file.problems, []);
    let config = Config::try_from(file.settings).unwrap();
    assert_eq!((config.listen.to_string().as_str(), config.with_signature), ("[::1]:1", true));
    assert_eq!((config.max_series, config.keep_ended), (5, Duration::from_secs(90)));
    assert_eq!((config.max_overhead, config.timed, config.max_functions), (Some(0.005), false, Some(7)));
    assert_eq!((config.control, config.control_group.as_deref()), (PathBuf::from("/c"), Some("ops")));
    let (endpoint, interval) = ("https://[::1]:4318".parse().unwrap(), Duration::from_secs(15));
    assert_eq!(
        config.otlp,
        Some(Otlp {
            to: PushTo { endpoint, headers: Some(headers), ca: Some(cert.clone()) },
            interval,
            profiles: false
        })
    );
    assert_eq!((config.tls, config.auth), (Some((cert, key)), AuthFile::Bearer(token)));
    assert_eq!((config.max_connections, config.max_total), (2, 9));
    assert!(config.stubs_for.is_some());
    assert_eq!(config.labels, Labels::parse(&[("team", "{user}")]).unwrap());
}

/// Check that every problem is told at once, in order, each with its line and what to write.
#[test]
fn tells_every_problem() {
    let text = "patterns = ['A::[', 'ok', '']\njvm = ['']\nuser = ['a b']\nlisten = 'localhost'\nmax-series = 0\n\
                keep-ended = 'soon'\nmax-overhead = '2'\ncontrol = 'here'\ncontrol-group = ''\n\
                tls-cert = '/no/such/cert'\nmax-connections = 99999\nmax-methods = 0\n\
                [label]\nle = 'x'\nteam = '{pid}'\n";
    let found = problems(text);
    let expected = [
        ("n.toml:1:1: patterns: ", "unclosed character class"),
        ("n.toml:1:1: patterns: ", "the class is missing"),
        ("n.toml:2:1: jvm: ", "write *"),
        ("n.toml:3:1: user: ", "/etc/passwd"),
        ("n.toml:4:1: listen: `localhost`: ", "127.0.0.1:9464"),
        ("n.toml:5:1: max-series: ", "between 1 and"),
        ("n.toml:6:1: keep-ended: `soon`: ", "10s"),
        ("n.toml:7:1: max-overhead: `2`: ", "such as 2%"),
        ("n.toml:8:1: control: ", "write the whole path"),
        ("n.toml:9:1: control-group: ", "/etc/group"),
        ("n.toml:10:1: tls-cert: ", "cannot be opened"),
        ("n.toml:10:1: tls-cert: ", "set tls-key too"),
        ("n.toml:11:1: max-connections: ", "between 1 and"),
        ("n.toml:12:1: max-methods: ", "between 1 and"),
        ("n.toml:13:2: label: ", "choose another name"),
        ("n.toml:13:2: label: ", "a process id never comes back"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (place, says)) in found.iter().zip(expected) {
        assert!(found.starts_with(place) && found.contains(says), "{found}\n{place} {says}");
    }
}

/// Check that what slipped into the table of labels is noticed, and that fair names of labels are not.
#[test]
fn notices_settings_among_the_labels() {
    let found = problems("[label]\nuser = '{user}'\nlisten = '0.0.0.0:1'\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`listen` stands below [label]"), "{found:?}");
}

/// Check that collectors are known by name, that a wrong name is told with the right ones, and that nothing is collected of calls
/// that are only counted.
#[test]
fn checks_collectors() {
    let file = ConfigFile::parse(Path::new("n.toml"), "collect = ['io', 'faults']\n");
    let config = Config::try_from(file.settings).unwrap();
    assert_eq!((config.collectors.to_string().as_str(), config.off_cpu), ("faults,io", true));
    let found = problems("collect = ['colour']\n");
    assert!(found[0].contains("collect: there is no `colour`: write faults, switches, io"), "{found:?}");
    let found = problems("collect = ['hw']\n");
    assert!(
        found[0].contains("there is no `hw`: write faults, ") && found[0].contains("`perf stat --tid TID`"),
        "{found:?}"
    );
    let found = problems("collect = ['io']\ncount-only = true\n");
    assert!(found.len() == 1 && found[0].contains("set count-only to false"), "{found:?}");
}

/// Check that nothing about pushes is taken without effect: no endpoint, no TLS for the authorities, an interval of no use.
#[test]
fn checks_pushes() {
    let found = problems("otlp-interval = '5s'\notlp-headers-file = '/etc/passwd'\notlp-ca = '/etc/passwd'\n");
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|problem| problem.ends_with(NOT_PUSHED)));
    let found = problems("otlp-endpoint = 'http://a'\notlp-interval = '10ms'\notlp-ca = '/etc/passwd'\n");
    assert!(found[0].contains("otlp-interval: `10ms`: it must be at least 1s"), "{found:?}");
    assert!(found[1].contains("otlp-ca: otlp-endpoint speaks no TLS"), "{found:?}");
    assert!(problems("otlp-endpoint = 'a:1'\n")[0].contains("such as http://localhost:4318"));
    let found = problems("otlp-profiles = true\npyroscope-endpoint = 'http://a'\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found.iter().filter(|problem| problem.contains("set profiles too")).count(), 2, "{found:?}");
}

/// Check that profiles are pushed where the settings say, and the receiver's own files are taken.
#[test]
fn pushes_profiles() {
    let text = "profiles = true\notlp-endpoint = 'http://a'\notlp-profiles = true\npyroscope-endpoint = 'https://b:1'\n\
                pyroscope-ca = '/etc/passwd'\n";
    let file = ConfigFile::parse(Path::new("n.toml"), text);
    let config = Config::try_from(file.settings).unwrap();
    assert!(config.otlp.is_some_and(|otlp| otlp.profiles && otlp.to.endpoint == "http://a/"));
    let (endpoint, ca) = ("https://b:1".parse().unwrap(), Some("/etc/passwd".into()));
    assert_eq!(config.pyroscope, Some(PushTo { endpoint, headers: None, ca }));
}

/// Check that flags are named as flags, may use relative paths, and exclude each other like keys.
#[test]
fn checks_flags() {
    let flags = Partial {
        listen: Some("x".to_owned()),
        control: Some("here".into()),
        basic_auth_file: Some("/dev/null".into()),
        bearer_token_file: Some("/dev/null".into()),
        ..Partial::default()
    };
    let found: Vec<String> = Config::try_from(flags).unwrap_err().iter().map(Problem::to_string).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].starts_with("--listen: `x`: "), "{found:?}");
    assert!(found[1].starts_with("--basic-auth-file: /dev/null is no regular file"), "{found:?}");
    assert!(found[3].starts_with("--bearer-token-file: there is basic-auth-file already"), "{found:?}");
}
