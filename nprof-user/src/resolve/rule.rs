//! What users say is to be done at the calls of methods: `PATTERN=count`, in one syntax everywhere.

use super::pattern::SelectError;
use super::select::Selection;
use crate::model::{Method, Tracing};

/// What users are told about rules.
pub const RULE_HELP: &str = "\
RULE is PATTERN=WHAT, where PATTERN is one like those for methods and WHAT is done at their calls:
  time   count and time each
  count  count each
  exit   count each when it returns, and how it ended
  off    nothing
Of several rules that match a method the last one counts: '**=count' 'java.util.zip.*=time'.";

/// What some methods are to have, those that are bound later included: by default what is done at their calls. Of several rules
/// that select a method the last one counts.
#[derive(Debug, Clone)]
pub struct Rule<W = Tracing> {
    /// The pattern as it was given; empty for all methods.
    pub pattern: String,
    /// What they are to have; of calls [`Tracing::Timed`], [`Tracing::Counted`] [`Tracing::Returned`] or [`Tracing::Off`].
    pub wanted: W,
    selection: Selection,
}

impl Rule {
    /// Reads a rule about what is done at calls.
    ///
    /// # Errors
    /// For what is no rule, or a pattern that is none.
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let words = || Tracing::ORDERS.map(|(word, _)| format!("PATTERN={word}")).join(", ");
        Self::read(text, |word| {
            let Some(word) = word else { return Err(format!("it does not say what to do; write {}", words())) };
            let known = Tracing::ORDERS.iter().find(|(known, _)| *known == word);
            known
                .map(|(_, wanted)| *wanted)
                .ok_or_else(|| format!("`{word}` is nothing that can be done; write {}", words()))
        })
    }

    /// The rule for all methods.
    #[must_use]
    pub fn for_all(wanted: Tracing) -> Self {
        Self { selection: Selection::default(), pattern: String::new(), wanted }
    }
}

impl<W> Rule<W> {
    /// Reads a rule in the syntax of all of them, `PATTERN=WORD`. `wanted` knows what a word means, or what to write instead, also
    /// where there is none.
    ///
    /// # Errors
    /// For what is no rule, or a pattern that is none.
    pub(super) fn read(text: &str, wanted: impl Fn(Option<&str>) -> Result<W, String>) -> Result<Self, SelectError> {
        let wrong = |at: usize, reason: String| {
            let position = text.get(..at).unwrap_or(text).chars().count() + 1;
            SelectError { pattern: text.to_owned(), position, reason }
        };
        let (pattern, word) = text.rsplit_once('=').map_or((text, None), |(pattern, word)| (pattern, Some(word)));
        let at = pattern.len() + usize::from(word.is_some());
        Self::of(pattern, wanted(word).map_err(|reason| wrong(at, reason))?)
    }

    /// The rule for the methods that a pattern selects.
    ///
    /// # Errors
    /// For a pattern that is none.
    pub fn of(pattern: &str, wanted: W) -> Result<Self, SelectError> {
        Ok(Self { selection: Selection::parse(&[pattern], &[], &[])?, pattern: pattern.to_owned(), wanted })
    }

    /// Whether it is about a method.
    #[must_use]
    pub fn selects(&self, method: &Method) -> bool {
        self.selection.selects(method)
    }

    /// What there is to say if it is about none of these methods.
    #[must_use]
    pub fn unmatched(&self, methods: &[Method]) -> Option<String> {
        let unmatched = self.selection.unmatched(methods).into_iter().next()?;
        Some(format!("the rule for `{}` does nothing so far: {unmatched}", self.pattern))
    }
}

/// Some rules, and what is done by default; and whether any call is timed. Only then there are probes on entries and returns.
#[must_use]
pub fn with_default(rules: Vec<Rule>, default: Tracing) -> (Vec<Rule>, bool) {
    let is_timed = default == Tracing::Timed || rules.iter().any(|rule| rule.wanted == Tracing::Timed);
    let usual = if is_timed { Tracing::Timed } else { Tracing::Counted };
    let default = (default != usual).then(|| Rule::for_all(default));
    (default.into_iter().chain(rules).collect(), is_timed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NativeCode, VirtAddr};

    fn method(class: &str, name: &str) -> Method {
        let (class, name, signature) = (class.into(), name.into(), "()V".into());
        Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound }
    }

    /// Check each thing that a rule can say, and which methods it is said of.
    #[test]
    fn reads_rules() {
        for (text, wanted) in [
            ("a.*::b=time", Tracing::Timed),
            ("a.*::b=count", Tracing::Counted),
            ("a.*::b=exit", Tracing::Returned),
            ("a.*::b=off", Tracing::Off),
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!((rule.wanted, rule.pattern.as_str()), (wanted, "a.*::b"));
            assert!(rule.selects(&method("a.A", "b")) && !rule.selects(&method("a.A", "c")));
            assert_eq!(rule.unmatched(&[method("a.A", "b")]), None);
        }
        let nothing = Rule::parse("Deflator=off").unwrap().unmatched(&[method("a.Deflater", "b")]).unwrap();
        assert!(
            nothing.starts_with("the rule for `Deflator` does nothing so far") && nothing.contains("a.Deflater"),
            "{nothing}"
        );
    }

    /// Check that what is no rule is refused, with where and what to write.
    #[test]
    fn refuses_others() {
        for (text, position, says) in [
            ("a::b", 5, "does not say what to do; write PATTERN=off, PATTERN=exit, PATTERN=count, PATTERN=time"),
            ("a::b=guess", 6, "`guess` is nothing that can be done"),
            ("=off", 1, "the class is missing"),
            ("a::[=off", 4, ""),
        ] {
            let error = Rule::parse(text).unwrap_err();
            assert!(error.position == position && error.reason.contains(says), "{text}: {error}");
        }
    }

    /// Check that calls are timed if anything is to be, all others being counted then where only that is wanted.
    #[test]
    fn default_of_all() {
        let rules = |text: &[&str]| text.iter().map(|rule| Rule::parse(rule).unwrap()).collect::<Vec<_>>();
        let (none, is_timed) = with_default(rules(&[]), Tracing::Counted);
        assert!(none.is_empty() && !is_timed);
        let (off, is_timed) = with_default(rules(&["a=off"]), Tracing::Counted);
        assert!(off.len() == 1 && !is_timed);
        let (some, is_timed) = with_default(rules(&["a=off", "b=time"]), Tracing::Counted);
        assert!(
            some.len() == 3 && is_timed && some[0].wanted == Tracing::Counted && some[0].selects(&method("x.Y", "z"))
        );
        let (all, is_timed) = with_default(rules(&["a=count"]), Tracing::Timed);
        assert!(all.len() == 1 && is_timed);
        let (exits, is_timed) = with_default(rules(&["a=count"]), Tracing::Returned);
        assert!(exits.len() == 2 && !is_timed && exits[0].wanted == Tracing::Returned);
        assert!(with_default(rules(&["a=time"]), Tracing::Returned).1);
    }
}
