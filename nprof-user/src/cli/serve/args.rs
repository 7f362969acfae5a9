//! What was typed behind `nprof serve`, and the configuration that it makes together with the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::selection::SelectionArgs;
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
    selection: SelectionArgs,
    /// Only JVMs whose main class or jar matches this glob; may be given several times
    #[arg(long, value_name = "GLOB", help_heading = "JVMs")]
    jvm: Vec<String>,
    /// Leave these JVMs out; may be given several times
    #[arg(long, value_name = "GLOB", help_heading = "JVMs")]
    exclude_jvm: Vec<String>,
    /// Only JVMs of this user, by name or number; may be given several times
    #[arg(long, help_heading = "JVMs")]
    user: Vec<String>,
    /// Load nprof's library into JVMs whose main class or jar matches this glob, and count there by stubs: all calls, at some
    /// tens of nanoseconds each; may be given several times
    #[arg(long, value_name = "GLOB", help_heading = "JVMs")]
    stubs_for: Vec<String>,

    /// Where to answer Prometheus [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Endpoint")]
    listen: Option<String>,
    /// Speak TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Endpoint")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Endpoint")]
    tls_key: Option<PathBuf>,
    /// Ask for one of the users and passwords in this file
    #[arg(long, value_name = "FILE", help_heading = "Endpoint")]
    basic_auth_file: Option<PathBuf>,
    /// Ask for the token in this file
    #[arg(long, value_name = "FILE", help_heading = "Endpoint")]
    bearer_token_file: Option<PathBuf>,
    /// The most connections at a time [default: 32]
    #[arg(long, value_name = "N", help_heading = "Endpoint")]
    max_connections: Option<usize>,

    /// A label for each JVM, such as 'team={env:TEAM|none}'; may be given several times [default: 'jvm={main}']
    #[arg(long, value_name = "NAME=TEMPLATE", value_parser = label, long_help = label_help(), help_heading = "Metrics")]
    label: Vec<(String, String)>,
    /// Tell overloads apart by a label with their signature
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Metrics")]
    with_signature: Option<bool>,
    /// How many methods of a JVM have their own series; the others share one [default: 300]
    #[arg(long, value_name = "N", help_heading = "Metrics")]
    max_series: Option<usize>,
    /// How long the series of a JVM stay after its end [default: 5m]
    #[arg(long, value_name = "TIME", help_heading = "Metrics")]
    keep_ended: Option<String>,

    /// The most that tracing may cost a JVM, as a share of its time, or off [default: 2%]
    #[arg(long, value_name = "SHARE", help_heading = "Cost")]
    max_overhead: Option<String>,
    /// Only count calls: no times, no probe on returns, about 60 % of the cost
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Cost")]
    count_only: Option<bool>,
    /// Trace at most this many functions of a JVM; bound methods go first
    #[arg(long, value_name = "N", help_heading = "Cost")]
    max_methods: Option<usize>,
    /// Trace at most this many functions at a time, of all JVMs together [default: 12288]
    #[arg(long, value_name = "N", help_heading = "Cost")]
    max_total: Option<usize>,

    /// The socket for `nprof ctl` [default: /run/nprof/control.sock]
    #[arg(long, value_name = "PATH", help_heading = "Control")]
    control: Option<PathBuf>,
    /// The group that may use it beside root
    #[arg(long, value_name = "GROUP", help_heading = "Control")]
    control_group: Option<String>,

    /// Read this configuration file [default: /etc/nprof/nprof.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and end
    #[arg(long)]
    pub(super) check_config: bool,
}

impl ServeArgs {
    /// The settings that were typed.
    fn partial(&self) -> Partial {
        let list = |list: &Vec<String>| Some(list.clone()).filter(|list| !list.is_empty());
        let SelectionArgs { patterns, exclude, library } = &self.selection;
        let labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        let mut partial = Partial::default();
        partial.patterns = list(patterns);
        partial.exclude = list(exclude);
        partial.library = list(library);
        partial.jvm = list(&self.jvm);
        partial.exclude_jvm = list(&self.exclude_jvm);
        partial.user = list(&self.user);
        partial.stubs_for = list(&self.stubs_for);
        partial.listen.clone_from(&self.listen);
        partial.label = Some(labels).filter(|labels| !labels.is_empty());
        partial.with_signature = self.with_signature;
        partial.max_series = self.max_series;
        partial.keep_ended.clone_from(&self.keep_ended);
        partial.max_overhead.clone_from(&self.max_overhead);
        partial.count_only = self.count_only;
        partial.max_methods = self.max_methods;
        partial.max_total = self.max_total;
        partial.control.clone_from(&self.control);
        partial.control_group.clone_from(&self.control_group);
        partial.tls_cert.clone_from(&self.tls_cert);
        partial.tls_key.clone_from(&self.tls_key);
        partial.basic_auth_file.clone_from(&self.basic_auth_file);
        partial.bearer_token_file.clone_from(&self.bearer_token_file);
        partial.max_connections = self.max_connections;
        partial
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, template) = text.split_once('=').ok_or("write NAME=TEMPLATE, such as 'team={env:TEAM|none}'")?;
    Ok((name.to_owned(), template.to_owned()))
}

fn label_help() -> String {
    format!(
        "A label for each JVM, such as 'team={{env:TEAM|none}}'; may be given several times [default: 'jvm={{main}}']\n\n\
         TEMPLATE is text with placeholders: {}. What follows a | stands there where there is nothing else. \
         {{property:NAME}} is what -DNAME=VALUE on the JVM's command line says; argument files and JAVA_TOOL_OPTIONS, \
         JDK_JAVA_OPTIONS and _JAVA_OPTIONS are not looked at.",
        crate::discover::TEMPLATE_HELP
    )
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
    let config = match Config::try_from(args.partial().over(file.settings)) {
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
        let line = "P --exclude E --library L --jvm J --exclude-jvm X --user U --stubs-for S --listen A --label a=b=c \
                    --with-signature --max-series 1 --keep-ended 1s --max-overhead off --count-only=false \
                    --max-methods 2 --max-total 4 --control C --control-group G --tls-cert TC --tls-key TK --basic-auth-file B \
                    --bearer-token-file T --max-connections 3";
        let list = |text: &str| Some(vec![text.to_owned()]);
        let text = |text: &str| Some(text.to_owned());
        let mut expected = Partial::default();
        expected.patterns = list("P");
        (expected.exclude, expected.library) = (list("E"), list("L"));
        (expected.jvm, expected.exclude_jvm, expected.user) = (list("J"), list("X"), list("U"));
        expected.stubs_for = list("S");
        (expected.listen, expected.label) = (text("A"), Some([("a".to_owned(), "b=c".to_owned())].into()));
        (expected.with_signature, expected.count_only) = (Some(true), Some(false));
        (expected.max_series, expected.max_methods, expected.max_connections) = (Some(1), Some(2), Some(3));
        expected.max_total = Some(4);
        (expected.keep_ended, expected.max_overhead) = (text("1s"), text("off"));
        (expected.control, expected.control_group) = (Some("C".into()), text("G"));
        (expected.tls_cert, expected.tls_key) = (Some("TC".into()), Some("TK".into()));
        (expected.basic_auth_file, expected.bearer_token_file) = (Some("B".into()), Some("T".into()));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(args(&words).partial(), expected);
        for key in Partial::KEYS.iter().filter(|key| **key != "patterns") {
            assert!(line.contains(&format!("--{key}")), "{key}");
        }
        assert_eq!(args(&[]).partial(), Partial::default());
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
