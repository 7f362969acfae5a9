//! Where trees of invocations begin: methods by patterns as everywhere, or by regular expressions on the whole of `class::method`.

use regex::{Regex, RegexBuilder};

use super::select::{SelectError, Selection};
use crate::model::{Method, NativeCode, VirtAddr};

/// Memory that a regular expression may take, in bytes.
const MOST_MEMORY: usize = 1 << 20;

/// Which methods are entry methods.
#[derive(Debug, Clone)]
pub struct Entries(Vec<Entry>);

/// What was typed, and what it means.
#[derive(Debug, Clone)]
struct Entry {
    text: String,
    meaning: Meaning,
}

#[derive(Debug, Clone)]
enum Meaning {
    Pattern(Selection),
    Regex(Regex),
}

/// What was typed means nothing.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// It is no pattern.
    #[error(transparent)]
    Pattern(#[from] SelectError),
    /// It is no regular expression.
    #[error("`{text}` is no regular expression on class::method")]
    Regex {
        /// What was typed.
        text: String,
        /// What is wrong with it.
        #[source]
        source: regex::Error,
    },
}

impl Entries {
    /// Entry methods by patterns.
    ///
    /// # Errors
    /// The first text that is no pattern.
    pub fn patterns(texts: &[String]) -> Result<Self, EntryError> {
        let entry = |text: &String| {
            let meaning = Meaning::Pattern(Selection::parse(&[text], &[], &[])?);
            Ok(Entry { text: text.clone(), meaning })
        };
        texts.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Entry methods by regular expressions.
    ///
    /// # Errors
    /// The first text that is none.
    pub fn regexes(texts: &[String]) -> Result<Self, EntryError> {
        let entry = |text: &String| {
            // What is typed must be whole by itself: `a)|(b` is not.
            let whole = Regex::new(text).and_then(|_| whole(text));
            let regex = whole.map_err(|source| EntryError::Regex { text: text.clone(), source })?;
            Ok(Entry { text: text.clone(), meaning: Meaning::Regex(regex) })
        };
        texts.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a method, by its dotted class, its name and its descriptor, is one.
    #[must_use]
    pub fn selects(&self, class: &str, name: &str, signature: &str) -> bool {
        let method = named(class, name, signature);
        self.0.iter().any(|entry| entry.selects(&method))
    }

    /// What was typed and selects none of these.
    pub fn unmatched<'a>(&'a self, methods: &'a [(&str, &str, &str)]) -> impl Iterator<Item = &'a str> {
        let none = |entry: &&Entry| {
            !methods.iter().any(|(class, name, signature)| entry.selects(&named(class, name, signature)))
        };
        self.0.iter().filter(none).map(|entry| entry.text.as_str())
    }
}

impl Entry {
    fn selects(&self, method: &Method) -> bool {
        match &self.meaning {
            Meaning::Pattern(selection) => selection.selects(method),
            Meaning::Regex(regex) => regex.is_match(&format!("{}::{}", method.class, method.name)),
        }
    }
}

/// An expression that matches from the beginning to the end.
fn whole(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^(?:{text})$")).size_limit(MOST_MEMORY).build()
}

/// A method as patterns want it.
fn named(class: &str, name: &str, signature: &str) -> Method {
    let (class, name, signature) = (class.into(), name.into(), signature.into());
    Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound }
}

#[cfg(test)]
mod tests {
    use super::Entries;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Check that patterns mean what they mean everywhere, and who selects nothing.
    #[test]
    fn patterns_select_methods() {
        let entries = Entries::patterns(&texts(&["com.acme.**::get*", "Svc::put(I)V"])).unwrap();
        assert!(entries.selects("com.acme.a.Svc", "getAll", "()V") && entries.selects("x.Svc", "put", "(I)V"));
        assert!(!entries.selects("com.other.Svc", "get", "()V") && !entries.selects("x.Svc", "put", "(J)V"));
        let unmatched: Vec<_> = entries.unmatched(&[("com.acme.Svc", "get", "()V")]).collect();
        assert_eq!(unmatched, ["Svc::put(I)V"]);
        assert!(Entries::patterns(&texts(&["a::[b"])).is_err());
    }

    /// Check that a regular expression is about the whole name, and that a wrong one is named.
    #[test]
    fn regexes_select_whole_names() {
        let entries = Entries::regexes(&texts(&[r"com\.acme\..*::(get|put)"])).unwrap();
        assert!(entries.selects("com.acme.Svc", "get", "()V") && entries.selects("com.acme.a.B", "put", "(J)V"));
        assert!(!entries.selects("com.acme.Svc", "getAll", "()V") && !entries.selects("x.com.acme.Svc", "get", "()V"));
        for wrong in ["(", "a)|(b", r"\w{999999}"] {
            assert!(Entries::regexes(&texts(&[wrong])).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}
