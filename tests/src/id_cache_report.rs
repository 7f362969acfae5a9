//! A run of `nprof jni --id-cache`, and the document that it prints.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use crate::child::{Child, Stream};
use crate::nprof::{outcome, spawn};

/// What it says when ids are kept.
const KEEPING: &str = "keeping ids in ";

/// A document.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct IdCacheReport {
    pub elapsed_ns: u64,
    pub id_cache: IdCacheRow,
}

/// What came of keeping ids.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct IdCacheRow {
    pub functions: Vec<IdFunctionRow>,
    pub callers: Vec<IdCallerRow>,
    pub callers_left_out: u32,
    pub functions_behind_others: u32,
}

/// The look-ups by one function.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct IdFunctionRow {
    pub function: String,
    pub hits: u64,
    pub misses: u64,
    pub left_alone: u64,
    pub timed: u64,
    pub hit_ns: Option<f64>,
    pub vm_ns: Option<f64>,
    pub won_ns: Option<i64>,
    pub wrong: u64,
}

/// The look-ups from one place.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in the contract")]
pub struct IdCallerRow {
    pub caller: Option<String>,
    pub hits: u64,
    pub misses: u64,
    pub left_alone: u64,
}

impl IdCacheRow {
    /// A sum over the functions.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&IdFunctionRow) -> u64) -> u64 {
        self.functions.iter().map(of).sum()
    }

    /// All look-ups.
    #[must_use]
    pub fn look_ups(&self) -> u64 {
        self.sum(|row| row.hits + row.misses + row.left_alone)
    }
}

/// A running `nprof jni --id-cache`.
#[derive(Debug)]
pub struct IdCache(Child);

impl IdCache {
    /// Starts it, and waits until ids are kept.
    ///
    /// # Errors
    /// When nprof ends before.
    pub fn start(pid: u32) -> Result<Self> {
        let mut child = spawn(&["jni", "--pid", &pid.to_string(), "--id-cache", "--format", "json"])?;
        child.line_with_prefix(Stream::Stderr, KEEPING)?;
        Ok(Self(child))
    }

    /// Ends it with Ctrl-C and returns what it has printed.
    ///
    /// # Errors
    /// When it does not end with success, or prints something else.
    pub fn finish(self) -> Result<IdCacheRow> {
        self.0.signal(Signal::INT)?;
        self.wait()
    }

    /// The same when it ends by itself.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn wait(self) -> Result<IdCacheRow> {
        let ended = outcome(self.0)?;
        ensure!(ended.code == Some(0), "{ended:?}");
        let report: IdCacheReport = serde_json::from_str(&ended.stdout)
            .with_context(|| format!("not a document of the contract: {}", ended.stdout))?;
        Ok(report.id_cache)
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill()
    }
}
