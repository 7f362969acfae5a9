//! What a check found: of the kernel, of nprof's permissions, or of one JVM.

use std::fmt;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Tracing works, with what the finding says.
    Warn,
    /// Tracing does not work until this is mended.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// One line of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, in a word or two: `kernel`, `capabilities`.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub says: String,
    /// What to do about it, where something can be done.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding that all is well.
    #[must_use]
    pub fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, says: says.into(), fix: None }
    }

    /// A finding that limits tracing, and what to do about it.
    #[must_use]
    pub fn warn(check: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, says: says.into(), fix: Some(fix.into()) }
    }

    /// A finding that prevents tracing, and what to do about it.
    #[must_use]
    pub fn fail(check: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, says: says.into(), fix: Some(fix.into()) }
    }
}
