//! A method's full name, as nprof, the targets and the agent say it.

use std::fmt;

/// Class (dotted, `$` before nested ones), method and JVM descriptor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodName {
    /// `java.util.zip.CRC32`.
    pub class: String,
    /// `updateBytes0`.
    pub method: String,
    /// `(I[BII)I`.
    pub signature: String,
}

impl MethodName {
    /// A name from its parts.
    #[must_use]
    pub fn new(class: &str, method: &str, signature: &str) -> Self {
        Self { class: class.to_owned(), method: method.to_owned(), signature: signature.to_owned() }
    }

    /// `class::method`, which overloads share.
    #[must_use]
    pub fn without_signature(&self) -> String {
        format!("{}::{}", self.class, self.method)
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}{}", self.class, self.method, self.signature)
    }
}
