//! The JSON document of `nprof jni`, and a run that gives one.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use crate::child::{Child, Stream};
use crate::nprof::{ATTACHED, UNGOVERNED, outcome, spawn};
use crate::report::TargetRow;

/// A document.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniReport {
    pub schema: u32,
    pub elapsed_ns: u64,
    pub targets: Vec<TargetRow>,
    pub methods: Vec<JniMethodRow>,
    pub functions: BTreeMap<String, JniFunctionRow>,
    pub java: Vec<JavaRow>,
    pub references: BTreeMap<String, ReferencesRow>,
    pub leaks: Option<Vec<LeakRow>>,
    pub locals_beyond: Option<LocalsRow>,
    pub look_ups: LookUpsRow,
    pub exceptions: ExceptionsRow,
    pub critical: Option<CriticalRow>,
    pub collections_wait: Option<bool>,
    pub collections_waited: Option<WaitedRow>,
    pub direct_buffers: BuffersRow,
    pub not_seen: Vec<String>,
    pub losses: BTreeMap<String, u64>,
}

/// A native method; without names for what no traced one has called.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniMethodRow {
    pub class: Option<String>,
    pub method: Option<String>,
    pub signature: Option<String>,
    pub calls: Option<u64>,
    pub total_ns: Option<u64>,
    pub state: Option<String>,
    pub jni_calls: u64,
    pub jni_ns: u64,
    pub jni_on_cpu_ns: u64,
    pub jni: BTreeMap<String, JniUseRow>,
    pub exceptions: Option<ExceptionsRow>,
    pub critical: Option<CriticalRow>,
    pub collections_waited: Option<WaitedRow>,
    pub direct_buffers: BuffersRow,
}

/// The calls of a function by a native method.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniUseRow {
    pub family: String,
    pub calls: u64,
    pub timed: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub on_cpu_ns: u64,
    pub max_ns: u64,
    pub effective: u64,
    pub redundant: Option<u64>,
    pub redundant_ns: Option<u64>,
    pub java: Option<Vec<JavaRow>>,
}

/// A Java method that native code calls; without names where it is not known.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JavaRow {
    pub class: Option<String>,
    pub method: Option<String>,
    pub signature: Option<String>,
    pub calls: u64,
    pub timed: u64,
    pub self_ns: u64,
    pub on_cpu_ns: u64,
    pub max_ns: u64,
}

impl JavaRow {
    /// `class::method` and descriptor, and how often it was called.
    #[must_use]
    pub fn brief(&self) -> (String, u64) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (format!("{}::{}{}", text(&self.class), text(&self.method), text(&self.signature)), self.calls)
    }
}

/// A function, whoever called it.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniFunctionRow {
    pub family: String,
    pub calls: u64,
    pub in_flight: u64,
    pub counted: u64,
    pub total_ns: u64,
    pub self_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
    pub state: String,
    pub wanted: String,
    pub estimated_calls: Option<u64>,
}

/// What a caller has of the calls of a function, estimated; without names where no Java method has called.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniCallerRow {
    pub function: String,
    pub class: Option<String>,
    pub method: Option<String>,
    pub signature: Option<String>,
    pub samples: u64,
    pub calls: u64,
    pub calls_error: u64,
    pub self_ns: u64,
    pub on_cpu_ns: u64,
}

/// A document of `--tier stub`: what came of calls is not told.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct JniStubReport {
    pub tier: String,
    pub methods: Option<Vec<JniMethodRow>>,
    pub functions: BTreeMap<String, JniFunctionRow>,
    pub callers: Vec<JniCallerRow>,
    pub callers_lost: u64,
    pub references: Option<BTreeMap<String, ReferencesRow>>,
    pub look_ups: Option<LookUpsRow>,
    pub exceptions: Option<ExceptionsRow>,
    pub partial: bool,
    pub not_seen: Vec<String>,
    pub losses: BTreeMap<String, u64>,
}

/// How many were made and let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct ReferencesRow {
    pub made: u64,
    pub released: u64,
    pub made_before: Option<u64>,
    pub live: Option<u64>,
    pub exact: Option<bool>,
}

/// Things that were made and not let go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct LeakRow {
    pub kind: String,
    pub class: Option<String>,
    pub method: Option<String>,
    pub function: Option<String>,
    pub count: u64,
    pub elements: u64,
    pub oldest_ns: u64,
    pub youngest_ns: u64,
    pub stack: Vec<String>,
    pub stacks_taken: u64,
    pub stacks: Vec<MadeStackRow>,
}

/// From where in Java things were made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct MadeStackRow {
    pub seen: u64,
    pub frames: Vec<String>,
}

/// Calls that held more local references than there was room for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct LocalsRow {
    pub calls: u64,
    pub most: u64,
    pub exact: bool,
    pub methods: Vec<LocalsOfRow>,
}

/// Those of one native method.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct LocalsOfRow {
    pub class: Option<String>,
    pub method: Option<String>,
    pub signature: Option<String>,
    pub calls: u64,
    pub most: u64,
}

/// All look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct LookUpsRow {
    pub calls: u64,
    pub redundant: u64,
    pub redundant_ns: u64,
    pub not_found: u64,
    pub members_told: bool,
}

/// Exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct ExceptionsRow {
    pub pending: u64,
    pub cleared: u64,
    pub classes: Vec<ExceptionClassRow>,
}

/// Exceptions of one class.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct ExceptionClassRow {
    pub class: Option<String>,
    pub pending: u64,
    pub cleared: u64,
}

impl ExceptionsRow {
    /// So many of these classes were pending, and cleared.
    #[must_use]
    pub fn of(classes: &[(Option<&str>, u64, u64)]) -> Self {
        let row = |&(class, pending, cleared): &(Option<&str>, u64, u64)| ExceptionClassRow {
            class: class.map(str::to_owned),
            pending,
            cleared,
        };
        let sum = |of: fn(&(Option<&str>, u64, u64)) -> u64| classes.iter().map(of).sum();
        Self { pending: sum(|row| row.1), cleared: sum(|row| row.2), classes: classes.iter().map(row).collect() }
    }
}

/// Direct buffers that native code has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct BuffersRow {
    pub made: u64,
    pub bytes: u64,
    pub largest_bytes: u64,
}

/// Collections that waited for the end of critical sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct WaitedRow {
    pub collections: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

/// Critical sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct CriticalRow {
    pub sections: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

impl JniReport {
    /// The row of a native method, or that of all others' calls.
    ///
    /// # Errors
    /// When there is none.
    pub fn method(&self, name: Option<&str>) -> Result<&JniMethodRow> {
        let row = self.methods.iter().find(|row| row.method.as_deref() == name);
        row.with_context(|| format!("no row of {name:?}: {:?}", self.methods))
    }

    /// The calls of each function by a native method.
    ///
    /// # Errors
    /// When it has no row.
    pub fn calls_of(&self, name: Option<&str>) -> Result<BTreeMap<&str, u64>> {
        Ok(self.method(name)?.jni.iter().map(|(function, made)| (function.as_str(), made.calls)).collect())
    }
}

/// A running `nprof jni` with everything attached.
#[derive(Debug)]
pub struct Jni(Child);

impl Jni {
    /// Starts it, at any cost to the target.
    ///
    /// # Errors
    /// When nprof ends before everything is attached.
    pub fn start(pid: u32, args: &[&str]) -> Result<Self> {
        Self::announced(&[&["jni", "--pid", &pid.to_string()], &UNGOVERNED[..], args].concat())
    }

    /// The same within the usual budget.
    ///
    /// # Errors
    /// When nprof ends before everything is attached.
    pub fn start_as_users_do(pid: u32, args: &[&str]) -> Result<Self> {
        Self::announced(&[&["jni", "--pid", &pid.to_string()], args].concat())
    }

    fn announced(args: &[&str]) -> Result<Self> {
        let mut child = spawn(args)?;
        child.line_with_prefix(Stream::Stderr, ATTACHED)?;
        Ok(Self(child))
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill()
    }

    /// Ends it with Ctrl-C and returns what it has printed.
    ///
    /// # Errors
    /// When it does not end with success.
    pub fn text(self) -> Result<String> {
        self.0.signal(Signal::INT)?;
        let ended = outcome(self.0)?;
        ensure!(ended.code == Some(0), "{ended:?}");
        Ok(ended.stdout)
    }

    /// The same of one with `--format json`.
    ///
    /// # Errors
    /// When it has printed something else.
    pub fn finish(self) -> Result<JniReport> {
        let text = self.text()?;
        serde_json::from_str(&text).with_context(|| format!("not a document of the contract: {text}"))
    }
}
