//! Names that many share.
//!
//! The JVMs of a host have thousands of methods in common, and each name of one is needed in many places. So there is one copy
//! of each text, as long as anybody has it.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// How many texts there are before those that nobody has are first looked for.
const FEW: usize = 4096;

/// The texts that somebody has, and some that nobody has any more.
static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

/// A text that is kept once however often it is needed. It is compared as the text that it is.
///
/// There are many more of these than texts, so that what tells a text's length is with the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedStr(Arc<Box<str>>);

#[derive(Debug, Default)]
struct Pool {
    texts: HashSet<SharedStr>,
    /// How many there were when those were last removed that nobody had.
    kept: usize,
}

impl Pool {
    fn take(&mut self, text: &str) -> SharedStr {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= FEW.max(2 * self.kept) {
            self.texts.retain(|SharedStr(text)| Arc::strong_count(text) > 1);
            self.texts.shrink_to_fit();
            self.kept = self.texts.len();
        }
        let text = SharedStr(Arc::new(text.into()));
        self.texts.insert(text.clone());
        text
    }
}

impl SharedStr {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SharedStr {
    fn from(text: &str) -> Self {
        // A panic in between leaves the pool as it was, or with one text more.
        POOL.lock().unwrap_or_else(PoisonError::into_inner).take(text)
    }
}

impl From<String> for SharedStr {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Borrow<str> for SharedStr {
    fn borrow(&self) -> &str {
        self
    }
}

impl Deref for SharedStr {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SharedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for SharedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<str> for SharedStr {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for SharedStr {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal texts are one, and others are not, and that they compare as texts.
    #[test]
    fn equal_texts_are_one() {
        let (one, same, other) = (
            SharedStr::from("shared_str.rs: one"),
            SharedStr::from("shared_str.rs: one".to_owned()),
            SharedStr::from("two"),
        );
        assert!(Arc::ptr_eq(&one.0, &same.0));
        assert!(one == same && one != other && one < other && one == *"shared_str.rs: one");
        assert_eq!(format!("{one}|{other:>5}|{other:?}"), "shared_str.rs: one|  two|\"two\"");
    }

    /// Check that what nobody has does not stay, however many texts there have been.
    #[test]
    fn unused_texts_go() {
        let mut pool = Pool::default();
        let kept = pool.take("kept");
        for n in 0..20 * FEW {
            pool.take(&n.to_string());
        }
        assert!(pool.texts.len() <= 2 * FEW, "{}", pool.texts.len());
        assert!(Arc::ptr_eq(&kept.0, &pool.take("kept").0));
    }
}
