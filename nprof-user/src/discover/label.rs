//! The labels that tell JVMs apart in metrics: their names, their templates, and what these become for one JVM.
//!
//! The values come from the target's command line, environment and cgroup. All of them are the target's to choose, so
//! they are read within bounds, shortened, and kept free of control characters.

use std::cell::OnceCell;

use super::process::ProcessDir;
use super::template::{LabelTemplate, Source, TemplateError};
use super::{Error, Proc, environ, launch, pod};
use crate::model::{Jvm, JvmLabels};

/// The label that every JVM has.
const JVM: &str = "jvm";

/// The most characters of a value.
const VALUE_CHARS: usize = 256;
/// Digits of a container id in short, as other tools print it.
const CONTAINER_DIGITS: usize = 12;

/// A label that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The name is none in Prometheus.
    #[error("`{name}` is no name of a label: use letters, digits and _, with no digit first and no __ in front")]
    Name {
        /// The name that was given.
        name: String,
    },
    /// nprof's metrics have a label of this name already.
    #[error("the label `{name}` is one that nprof's metrics have already: choose another name")]
    Reserved {
        /// The name that was given.
        name: String,
    },
    /// Two templates for one name.
    #[error("the label `{name}` is given twice: remove one of them")]
    Twice {
        /// The name that was given.
        name: String,
    },
    /// The template cannot be understood.
    #[error("label `{name}`: {problem}")]
    Template {
        /// The label's name.
        name: String,
        /// What is wrong.
        problem: TemplateError,
    },
}

/// The labels of a JVM's metrics, with their templates. The first is `jvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(Vec<(String, LabelTemplate)>);

impl Labels {
    /// Reads names and templates. One named `jvm` replaces the usual `{main}`.
    ///
    /// # Errors
    /// The first that cannot be a label.
    pub fn parse<S: AsRef<str>>(labels: &[(S, S)]) -> Result<Self, LabelError> {
        let mut parsed = Self::default();
        for (at, (name, template)) in labels.iter().enumerate() {
            let (name, template) = (name.as_ref(), template.as_ref());
            check_name(name)?;
            if labels[..at].iter().any(|(earlier, _)| earlier.as_ref() == name) {
                return Err(LabelError::Twice { name: name.to_owned() });
            }
            let template = LabelTemplate::parse(template)
                .map_err(|problem| LabelError::Template { name: name.to_owned(), problem })?;
            match parsed.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, default)) => *default = template,
                None => parsed.0.push((name.to_owned(), template)),
            }
        }
        Ok(parsed)
    }
}

impl Default for Labels {
    /// `jvm` alone, as `{main}`.
    fn default() -> Self {
        Self(vec![(JVM.to_owned(), LabelTemplate::of(Source::Main))])
    }
}

fn check_name(name: &str) -> Result<(), LabelError> {
    let legal = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let first = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    let name_of = || name.to_owned();
    if !legal || !first || name.starts_with("__") {
        return Err(LabelError::Name { name: name_of() });
    }
    if JvmLabels::RESERVED.contains(&name) {
        return Err(LabelError::Reserved { name: name_of() });
    }
    Ok(())
}

impl Proc {
    /// The labels of a JVM. What cannot be read, or is not there, is an empty text or the placeholder's default.
    #[must_use]
    pub fn labels(&self, jvm: &Jvm, labels: &Labels) -> JvmLabels {
        let facts = Facts::new(self, jvm);
        let value = |template: &LabelTemplate| presentable(&template.fill(|source| facts.get(source)));
        JvmLabels(labels.0.iter().map(|(name, template)| (name.clone(), value(template))).collect())
    }
}

/// What is asked of a JVM, each file read once and only if a template needs it.
struct Facts<'a> {
    jvm: &'a Jvm,
    process: ProcessDir,
    environ: OnceCell<Option<Vec<u8>>>,
    arguments: OnceCell<Option<Vec<String>>>,
}

impl<'a> Facts<'a> {
    fn new(proc: &Proc, jvm: &'a Jvm) -> Self {
        Self { jvm, process: proc.process(jvm.pid), environ: OnceCell::new(), arguments: OnceCell::new() }
    }

    fn get(&self, source: &Source) -> Option<String> {
        let jvm = self.jvm;
        let container = || jvm.container.as_deref();
        match source {
            Source::Main => Some(jvm.main.clone()),
            Source::SimpleMain => Some(simple_main(&jvm.main).to_owned()),
            Source::User => Some(jvm.user.clone().unwrap_or_else(|| jvm.uid.to_string())),
            Source::Container => container().map(|id| id.chars().take(CONTAINER_DIGITS).collect()),
            Source::FullContainer => container().map(str::to_owned),
            Source::Version => Some(jvm.vm_version.clone()),
            Source::Pod => pod::pod_uid(&self.read(ProcessDir::cgroup)?),
            Source::Env(name) => {
                let environ = self.environ.get_or_init(|| self.read(ProcessDir::environ));
                environ::variable(environ.as_deref()?, name)
            }
            Source::Property(name) => {
                let arguments = self.arguments.get_or_init(|| self.read(ProcessDir::arguments));
                launch::property(arguments.as_deref()?, name).map(str::to_owned)
            }
        }
    }

    /// What a file of the process says, if it is this JVM's and not that of a later process with its pid.
    fn read<T>(&self, read: impl Fn(&ProcessDir) -> Result<T, Error>) -> Option<T> {
        let is_same = || self.process.start_time().ok() == Some(self.jvm.start_time);
        match read(&self.process) {
            Ok(value) => is_same().then_some(value),
            Err(error) => {
                tracing::debug!("a label of process {} stays empty: {error}", self.jvm.pid);
                None
            }
        }
    }
}

/// The class without package and module; files (`app.jar`, `Hello.java`) as they are.
pub(super) fn simple_main(main: &str) -> &str {
    if main.ends_with(".jar") || main.ends_with(".war") || main.ends_with(".java") {
        return main;
    }
    main.rsplit(['.', '/']).next().unwrap_or(main)
}

/// The text as the value of a label: not too long, and without control characters.
fn presentable(text: &str) -> String {
    text.chars().take(VALUE_CHARS).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_proc::TestProc;
    use super::*;
    use crate::model::Pid;

    const CONTAINER: &str = "8a2b7cdd9a0c3f4e5d6b7a8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7a8b9c0";
    const POD: &str = "0f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8";

    fn host() -> TestProc {
        let host = TestProc::new();
        host.process(Pid(42))
            .uid(1000)
            .args(&["/jdk/bin/java", "-Dtier=gold", "com.acme.Main", "-Dtier=lead"])
            .cgroup(&format!("0::/kubepods/burstable/pod{POD}/{CONTAINER}\n"))
            .maps_libjvm()
            .add();
        host.file("proc/42/environ", "TEAM=pay\u{1b}[2J\0PATH=/bin\0");
        host
    }

    fn values(host: &TestProc, jvm: &Jvm, templates: &[&str]) -> Vec<String> {
        let names: Vec<String> = (0..templates.len()).map(|i| format!("l{i}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(templates.iter().copied()).collect();
        let labels = host.proc().labels(jvm, &Labels::parse(&pairs).unwrap());
        labels.0.into_iter().skip(1).map(|(_, value)| value).collect()
    }

    /// Check every placeholder, each from its own place.
    #[test]
    fn fills_templates() {
        let host = host();
        let jvm = Jvm { vm_version: "17.0.1+2".to_owned(), ..host.proc().jvm(Pid(42)).unwrap() };
        for (template, value) in [
            ("{main}", "com.acme.Main"),
            ("{main:simple}", "Main"),
            ("{user}", "1000"),
            ("{container}", "8a2b7cdd9a0c"),
            ("{container:full}", CONTAINER),
            ("{pod}", POD),
            ("{env:TEAM}", "pay\u{fffd}[2J"),
            ("{env:NONE|-}", "-"),
            ("{property:tier}", "gold"),
            ("{version}", "17.0.1+2"),
        ] {
            assert_eq!(values(&host, &jvm, &[template]), [value], "{template}");
        }
    }

    /// Check that nothing is taken from files that cannot be read, are too long, or are a later process's.
    #[test]
    fn takes_nothing_from_elsewhere() {
        let host = host();
        let jvm = host.proc().jvm(Pid(42)).unwrap();
        let templates = ["{env:TEAM|none}", "{pod}"];
        host.file("proc/42/environ", [b"TEAM=x\0".as_slice(), &vec![b'y'; 6 << 20]].concat());
        assert_eq!(values(&host, &jvm, &templates), ["none", POD]);
        std::fs::remove_file(host.path("proc/42/environ")).unwrap();
        assert_eq!(values(&host, &jvm, &templates), ["none", POD]);
        let later = Jvm { start_time: crate::model::StartTime(1), ..jvm };
        assert_eq!(values(&host, &later, &templates), ["none", ""]);
    }

    /// Check that `jvm` is the first label, is there without being asked for, and can be defined again.
    #[test]
    fn begins_with_jvm() {
        let host = host();
        let jvm = host.proc().jvm(Pid(42)).unwrap();
        let labels = |pairs: &[(&str, &str)]| host.proc().labels(&jvm, &Labels::parse(pairs).unwrap()).0;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(labels(&[]), [pair("jvm", "com.acme.Main")]);
        assert_eq!(labels(&[("a", "x"), ("jvm", "{main:simple}")]), [pair("jvm", "Main"), pair("a", "x")]);
    }

    /// Check that long values are cut between characters, and jars keep their names.
    #[test]
    fn shapes_values() {
        assert_eq!(presentable(&"é".repeat(300)), "é".repeat(256));
        assert_eq!(presentable("a\nb\u{9b}"), "a\u{fffd}b\u{fffd}");
        for (main, simple) in [("shop-1.2.jar", "shop-1.2.jar"), ("m/a.B$C", "B$C"), ("Main", "Main"), ("", "")] {
            assert_eq!(simple_main(main), simple);
        }
    }

    /// Check that what Prometheus or nprof's metrics have no room for is refused by name.
    #[test]
    fn refuses_labels() {
        let error = |pairs: &[(&str, &str)]| Labels::parse(pairs).unwrap_err();
        for name in ["", "1a", "a-b", "__name__", "é", "a b"] {
            assert_eq!(error(&[(name, "x")]), LabelError::Name { name: name.to_owned() });
        }
        for name in JvmLabels::RESERVED {
            assert_eq!(error(&[(name, "x")]), LabelError::Reserved { name: name.to_owned() });
        }
        assert_eq!(error(&[("a", "x"), ("a", "y")]), LabelError::Twice { name: "a".to_owned() });
        assert!(error(&[("a", "{pid}")]).to_string().starts_with("label `a`: template `{pid}` is wrong"));
    }
}
