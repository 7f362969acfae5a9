//! From how long on calls are slow: those of all methods, `10ms`, and those that a pattern selects, `PATTERN=1ms`.

use std::time::Duration;

use super::pattern::SelectError;
use super::rule::Rule;
use crate::model::{Method, duration};

/// What users are told about thresholds of slow calls.
pub const SLOW_HELP: &str = "\
SLOW is TIME, from which on calls are slow, or PATTERN=TIME for the methods that a pattern selects, or PATTERN=off: none of theirs
is. Of several that select a method the last one counts: 10ms '**::read*=100ms' '**::accept*=off'.";

/// From how long on calls are slow.
#[derive(Debug, Clone, Default)]
pub struct Thresholds {
    /// Of methods that no rule selects; `None`: none of theirs is.
    usual: Option<Duration>,
    /// Of the others; the last that selects a method counts.
    rules: Vec<Rule<Option<Duration>>>,
}

impl Thresholds {
    /// Reads them: times, of which the last one is that of all methods without a rule, and rules.
    ///
    /// # Errors
    /// For what is neither.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, SelectError> {
        Self::default().with(texts)
    }

    /// The same, and these, which count more.
    ///
    /// # Errors
    /// For what is neither a time nor a rule.
    pub fn with<T: AsRef<str>>(&self, texts: &[T]) -> Result<Self, SelectError> {
        let mut thresholds = self.clone();
        for text in texts.iter().map(AsRef::as_ref) {
            if text.contains('=') {
                let rule = Rule::read(text, |word| read(word.unwrap_or_default()))?;
                // What was said before of the same methods does not count any more.
                thresholds.rules.retain(|known| known.pattern != rule.pattern);
                thresholds.rules.push(rule);
            } else {
                let wrong = |reason| SelectError { pattern: text.to_owned(), position: 1, reason };
                thresholds.usual = read(text).map_err(wrong)?;
            }
        }
        Ok(thresholds)
    }

    /// The same, without the rules before the last so many.
    #[must_use]
    pub fn limited_to(mut self, rules: usize) -> Self {
        let surplus = self.rules.len().saturating_sub(rules);
        self.rules.drain(..surplus);
        self
    }

    /// From how many nanoseconds on calls of a method are slow; `u64::MAX`: none is.
    #[must_use]
    pub fn of(&self, method: &Method) -> u64 {
        let rule = self.rules.iter().rev().find(|rule| rule.selects(method));
        rule.map_or_else(|| self.usual_ns(), |rule| nanoseconds(rule.wanted))
    }

    /// The same of methods that no rule selects.
    #[must_use]
    pub fn usual_ns(&self) -> u64 {
        nanoseconds(self.usual)
    }

    /// From how many nanoseconds on calls of any method are slow.
    #[must_use]
    pub fn least_ns(&self) -> u64 {
        self.rules.iter().map(|rule| nanoseconds(rule.wanted)).fold(self.usual_ns(), u64::min)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule<Option<Duration>>] {
        &self.rules
    }

    /// The patterns of the rules, and their times in nanoseconds; `None`: none of these calls is slow.
    #[must_use]
    pub fn by_pattern(&self) -> Vec<(String, Option<u64>)> {
        let said = |rule: &Rule<_>| (rule.pattern.clone(), known(nanoseconds(rule.wanted)));
        self.rules.iter().map(said).collect()
    }
}

impl PartialEq for Thresholds {
    fn eq(&self, other: &Self) -> bool {
        (self.usual, self.by_pattern()) == (other.usual, other.by_pattern())
    }
}

/// A threshold as numbers have it that are shown; `None` where no call is slow.
#[must_use]
pub fn known(threshold_ns: u64) -> Option<u64> {
    Some(threshold_ns).filter(|ns| *ns < u64::MAX)
}

fn read(word: &str) -> Result<Option<Duration>, String> {
    if word == "off" {
        return Ok(None);
    }
    duration::parse(word).map(Some).map_err(|reason| format!("`{word}` is no time: {reason}; or off"))
}

fn nanoseconds(threshold: Option<Duration>) -> u64 {
    // With 0 none would be slow.
    threshold.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NativeCode, VirtAddr};

    fn method(class: &str, name: &str) -> Method {
        let (class, name, signature) = (class.into(), name.into(), "()V".into());
        Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound }
    }

    /// Check that the last rule that selects a method counts, and the time without a pattern for all others, wherever it stands.
    #[test]
    fn which_counts() {
        let thresholds = Thresholds::parse(&["a.*=1ms", "10ms", "a.A::b=2us", "a.A::c=off"]).unwrap();
        let of = |class, name| thresholds.of(&method(class, name));
        assert_eq!([of("a.A", "a"), of("a.A", "b"), of("a.A", "c")], [1_000_000, 2_000, u64::MAX]);
        assert_eq!([of("b.A", "b"), thresholds.usual_ns(), thresholds.least_ns()], [10_000_000, 10_000_000, 2_000]);
        let later = thresholds.with(&["a.A::b=5ms", "20ms"]).unwrap();
        assert_eq!([later.of(&method("a.A", "b")), later.usual_ns()], [5_000_000, 20_000_000]);
        let of_patterns = [("a.*", Some(1_000_000)), ("a.A::c", None), ("a.A::b", Some(5_000_000))];
        assert_eq!(later.by_pattern(), of_patterns.map(|(pattern, ns)| (pattern.to_owned(), ns)));
        assert!(later != thresholds && later == later.clone());
        assert_eq!(later.limited_to(1).of(&method("a.A", "c")), 20_000_000);
    }

    /// Check that nothing is slow of methods of which nothing is said.
    #[test]
    fn patterns_alone() {
        let thresholds = Thresholds::parse(&["a.A::b=2us"]).unwrap();
        assert_eq!([thresholds.of(&method("a.A", "c")), thresholds.least_ns()], [u64::MAX, 2_000]);
        assert_eq!(Thresholds::parse::<&str>(&[]).unwrap().least_ns(), u64::MAX);
    }

    /// Check that what is neither a time nor a rule is refused, with where and what to write.
    #[test]
    fn refuses_others() {
        for (text, position, says) in [
            ("10", 1, "`10` is no time: give a number and a unit"),
            ("a::b", 1, "`a::b` is no time"),
            ("a::b=soon", 6, "`soon` is no time: give a number and a unit, such as 10s, 500ms or 1m30s; or off"),
            ("a::b=0s", 6, "longer than nothing"),
            ("=1ms", 1, "the class is missing"),
        ] {
            let error = Thresholds::parse(&[text]).unwrap_err();
            assert!(error.position == position && error.reason.contains(says), "{text}: {error}");
        }
    }
}
