//! Which threads the user asked for, by the names that the kernel has for them.

use super::pattern::{SelectError, ThreadPattern};

/// Which threads; without a pattern all of them.
#[derive(Debug, Clone, Default)]
pub struct ThreadSelection {
    patterns: Vec<ThreadPattern>,
}

impl ThreadSelection {
    /// A selection from globs on names.
    ///
    /// # Errors
    /// The first text that is no glob.
    pub fn parse<S: AsRef<str>>(globs: &[S]) -> Result<Self, SelectError> {
        let patterns = globs.iter().map(|glob| ThreadPattern::parse(glob.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether all threads are meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a thread of this name is selected.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// The globs that match none of these names.
    pub fn unmatched<'a>(&'a self, names: &[&str]) -> impl Iterator<Item = &'a str> {
        let is_unmatched = |pattern: &&ThreadPattern| !names.iter().any(|name| pattern.matches(name));
        self.patterns.iter().filter(is_unmatched).map(ThreadPattern::text).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadSelection;

    /// Check what globs match: whole names, dots and slashes in them included; of a longer name what the kernel keeps of it.
    #[test]
    fn globs_on_names() {
        let selects = |glob: &str, name: &str| ThreadSelection::parse(&[glob]).unwrap().selects(name);
        for (glob, name, expected) in [
            ("java", "java", true),
            ("java", "java2", false),
            ("pool-*", "pool-1-thread-1", true),
            ("*", "a/b.c", true),
            ("Executor task launch worker-*", "Executor task l", true),
            ("Executor task launch worker-*", "Executor task", false),
            ("Executor task m*", "Executor task l", false),
        ] {
            assert_eq!(selects(glob, name), expected, "{glob} {name}");
        }
        assert!(ThreadSelection::default().selects("any") && ThreadSelection::default().is_empty());
        assert!(ThreadSelection::parse(&[""]).is_err() && ThreadSelection::parse(&["[a"]).is_err());
    }

    /// Check that exactly the globs without a match are told.
    #[test]
    fn reports_globs_without_a_match() {
        let threads = ThreadSelection::parse(&["a*", "b*"]).unwrap();
        assert_eq!(threads.unmatched(&["ab", "c"]).collect::<Vec<_>>(), ["b*"]);
    }
}
