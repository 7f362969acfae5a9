//! What was typed behind `nprof serve`, and the configuration that it makes together with the file.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::terminal::say;
use crate::config::{Config, ConfigFile, DEFAULT_FILE, Partial, Problem};
use crate::control;

/// Serve the native calls of every JVM on this host as metrics for Prometheus
///
/// Every flag is also a key of the configuration file; flags win. A flag that may be given several times replaces the
/// file's whole list. SIGHUP reads the file again.
#[derive(Debug, Args)]
#[command(after_help = crate::resolve::pattern::PATTERN_HELP)]
pub(in crate::cli) struct ServeArgs {
    #[command(flatten)]
    settings: Partial,

    /// Read this configuration file [default: /etc/nprof/nprof.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and end
    #[arg(long)]
    pub(super) check_config: bool,
}

/// The configuration: the file, if there is one, and over it the flags. To be called again to reload it.
///
/// # Errors
/// If the file cannot be read, and for everything that is wrong with the settings, in one message of a line each.
pub(super) fn load(args: &ServeArgs) -> anyhow::Result<Config> {
    load_over(args, Path::new(DEFAULT_FILE))
}

fn load_over(args: &ServeArgs, default_file: &Path) -> anyhow::Result<Config> {
    let file = match &args.config {
        Some(path) => ConfigFile::read(path)?,
        None if default_file.exists() => ConfigFile::read(default_file)?,
        None => ConfigFile::default(),
    };
    let mut problems = file.problems;
    let config = match Config::try_from(args.settings.clone().over(file.settings)) {
        Ok(config) if problems.is_empty() => config,
        Ok(_) => return Err(wrong(&problems)),
        Err(more) => {
            problems.extend(more);
            problems.sort_by(|a, b| a.place.cmp(&b.place));
            return Err(wrong(&problems));
        }
    };
    if let Some(group) = &config.control_group {
        // The socket will need it. Told now, because this is the check of everything.
        control::group_id(group)?;
    }
    for warning in config.warnings() {
        say(warning);
    }
    Ok(config)
}

fn wrong(problems: &[Problem]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    anyhow::anyhow!("the configuration is wrong:{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn args(line: &[&str]) -> ServeArgs {
        Line::try_parse_from([&["serve"], line].concat()).unwrap_or_else(|error| panic!("{error}")).args
    }

    /// Check that every key has a flag of its name which ends up in the setting of its name.
    #[test]
    fn every_key_is_a_flag() {
        let line = "P --exclude E --library L --rules a=off --jvm J --exclude-jvm X --user U --stubs-for S --jni-for N --listen A --label a=b=c \
                    --with-signature --max-series 1 --keep-ended 1s --max-overhead off --count-only=false --no-off-cpu --collect io,net \
                    --profiles --profile-window 10s --slow 9ms --slow a=8ms --slow-log L \
                    --max-methods 2 --max-total 4 --control C --control-group G --tls-cert TC --tls-key TK --basic-auth-file B \
                    --bearer-token-file T --max-connections 3 --otlp-endpoint O --otlp-interval 2s --otlp-headers-file H \
                    --otlp-ca CA --otlp-profiles --pyroscope-endpoint Y --pyroscope-headers-file YH --pyroscope-ca YC";
        let list = |text: &str| Some(vec![text.to_owned()]);
        let text = |text: &str| Some(text.to_owned());
        let mut expected = Partial::default();
        expected.patterns = list("P");
        (expected.exclude, expected.library) = (list("E"), list("L"));
        (expected.jvm, expected.exclude_jvm, expected.user) = (list("J"), list("X"), list("U"));
        (expected.rules, expected.stubs_for) = (list("a=off"), list("S"));
        expected.jni_for = list("N");
        (expected.listen, expected.label) = (text("A"), Some(vec![("a".to_owned(), "b=c".to_owned())]));
        (expected.with_signature, expected.count_only) = (Some(true), Some(false));
        (expected.no_off_cpu, expected.collect) = (Some(true), Some(vec!["io".to_owned(), "net".to_owned()]));
        (expected.max_series, expected.max_methods, expected.max_connections) = (Some(1), Some(2), Some(3));
        expected.max_total = Some(4);
        (expected.profiles, expected.profile_window) = (Some(true), text("10s"));
        (expected.keep_ended, expected.max_overhead) = (text("1s"), text("off"));
        (expected.control, expected.control_group) = (Some("C".into()), text("G"));
        (expected.tls_cert, expected.tls_key) = (Some("TC".into()), Some("TK".into()));
        (expected.basic_auth_file, expected.bearer_token_file) = (Some("B".into()), Some("T".into()));
        (expected.otlp_endpoint, expected.otlp_interval) = (text("O"), text("2s"));
        (expected.otlp_headers_file, expected.otlp_ca) = (Some("H".into()), Some("CA".into()));
        (expected.otlp_profiles, expected.pyroscope_endpoint) = (Some(true), text("Y"));
        (expected.pyroscope_headers_file, expected.pyroscope_ca) = (Some("YH".into()), Some("YC".into()));
        (expected.slow, expected.slow_log) = (Some(vec!["9ms".to_owned(), "a=8ms".to_owned()]), Some("L".into()));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(args(&words).settings, expected);
        for key in Partial::KEYS.iter().filter(|key| **key != "patterns") {
            assert!(line.contains(&format!("--{key}")), "{key}");
        }
        assert_eq!(args(&[]).settings, Partial::default());
    }

    /// Check that the flags win over the file, and that all problems of both come in one message.
    #[test]
    fn loads_file_and_flags() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.toml");
        std::fs::write(&path, "max-series = 10\nmax-connections = 5\n").unwrap();
        let load = |line: &[&str]| load_over(&args(line), &path);
        let config = load(&["--max-series", "20"]).unwrap();
        assert_eq!((config.max_series, config.max_connections), (20, 5));
        std::fs::write(&path, "max-serie = 10\nmax-connections = 0\n").unwrap();
        let text = format!("{:#}", load(&["--listen", "x", "A::["]).unwrap_err());
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let n = path.display();
        assert_eq!(lines[0], "the configuration is wrong:");
        assert_eq!(lines[1], format!("{n}:1:1: max-serie: there is no such key; nearest: max-series"));
        assert!(lines[2].starts_with(&format!("{n}:2:1: max-connections: 0 is not")), "{text}");
        assert!(lines[3].starts_with("pattern `A::[` is wrong"), "{text}");
        assert!(lines[4].starts_with("--listen: `x`"), "{text}");
        assert_eq!(lines.len(), 5);
    }

    /// Check that the default file may be missing, and a file or group that is named may not.
    #[test]
    fn what_is_named_must_be_there() {
        let missing = Path::new("/no/such/nprof.toml");
        assert!(load_over(&args(&[]), missing).is_ok());
        let error = load_over(&args(&["--config", "/no/such/nprof.toml"]), missing).unwrap_err();
        assert!(error.to_string().contains("/no/such/nprof.toml"));
        let error = load_over(&args(&["--control-group", "no-such-group"]), missing).unwrap_err();
        assert!(error.to_string().contains("no group `no-such-group`"));
    }
}
