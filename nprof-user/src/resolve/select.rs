//! Which methods and libraries the user asked for. What a pattern means: [`PATTERN_HELP`](super::pattern::PATTERN_HELP).

use std::fmt;

use super::nearest;
pub use super::pattern::SelectError;
use super::pattern::{LibraryPattern, Name, Pattern};
use crate::model::Method;

/// A pattern that selects nothing of what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// The pattern as it was given.
    pub pattern: String,
    /// The names most like it, best first; empty where nothing is alike.
    pub nearest: Vec<String>,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pattern `{}` matches no native method", self.pattern)?;
        for (i, name) in self.nearest.iter().enumerate() {
            f.write_str(if i == 0 { "; nearest: " } else { ", " })?;
            // Names come from the target: what could command a terminal is escaped.
            write!(f, "{}", name.escape_debug())?;
        }
        Ok(())
    }
}

/// Which methods the user asked for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    libraries: Vec<LibraryPattern>,
}

impl Selection {
    /// A selection from the command line's patterns. No `include` selects every method, no `libraries` every library.
    ///
    /// # Errors
    /// The first pattern that is not a legal glob or descriptor.
    pub fn parse<S: AsRef<str>>(include: &[S], exclude: &[S], libraries: &[S]) -> Result<Self, SelectError> {
        let patterns = |list: &[S]| list.iter().map(|p| Pattern::parse(p.as_ref())).collect::<Result<_, _>>();
        Ok(Self {
            include: patterns(include)?,
            exclude: patterns(exclude)?,
            libraries: libraries.iter().map(|p| LibraryPattern::parse(p.as_ref())).collect::<Result<_, _>>()?,
        })
    }

    /// Whether a method is selected: by an include pattern, or because there is none, and by no exclude pattern.
    #[must_use]
    pub fn selects(&self, method: &Method) -> bool {
        let name = Name::of(method);
        (self.include.is_empty() || self.include.iter().any(|p| p.matches(&name)))
            && !self.exclude.iter().any(|p| p.matches(&name))
    }

    /// Whether methods in a library are selected. `name` is its path or its file name.
    #[must_use]
    pub fn selects_library(&self, name: &str) -> bool {
        self.libraries.is_empty() || self.libraries.iter().any(|p| p.matches(name))
    }

    /// Whether only some libraries are selected, so that a method whose library is not known cannot be.
    #[must_use]
    pub fn is_limited_to_libraries(&self) -> bool {
        !self.libraries.is_empty()
    }

    /// Whether every method is selected, as far as that is sure from how it was written.
    #[must_use]
    pub fn is_all(&self) -> bool {
        let names_all = self.include.is_empty() || self.include.iter().any(Pattern::is_any);
        names_all && self.exclude.is_empty() && self.libraries.is_empty()
    }

    /// The include patterns that match none of `methods`, with the names that were perhaps meant.
    #[must_use]
    pub fn unmatched(&self, methods: &[Method]) -> Vec<Unmatched> {
        let mut left: Vec<&Pattern> = self.include.iter().collect();
        for method in methods {
            if left.is_empty() {
                return Vec::new();
            }
            let name = Name::of(method);
            left.retain(|pattern| !pattern.matches(&name));
        }
        left.into_iter()
            .map(|p| Unmatched { pattern: p.text().to_owned(), nearest: nearest::nearest(p.text(), methods) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Selection, Unmatched};
    use crate::model::{Method, NativeCode, VirtAddr};

    fn method(class: &str, name: &str, signature: &str) -> Method {
        Method {
            id: VirtAddr(0),
            class: class.into(),
            name: name.into(),
            signature: signature.into(),
            code: NativeCode::Unbound,
        }
    }

    /// Check that it is known of a selection whether it is of everything.
    #[test]
    fn all_or_not() {
        let is_all = |include: &[&str], exclude: &[&str], libraries: &[&str]| {
            Selection::parse(include, exclude, libraries).unwrap().is_all()
        };
        assert!(is_all(&[], &[], &[]) && is_all(&["a.B", "*"], &[], &[]) && is_all(&["**"], &[], &[]));
        assert!(!is_all(&["a.B"], &[], &[]) && !is_all(&[], &["a.B"], &[]) && !is_all(&[], &[], &["*"]));
    }

    /// Check that exclusion wins and that no pattern selects everything.
    #[test]
    fn exclusion_wins() {
        let selection = Selection::parse(&["java.**"], &["*::get*"], &[]).unwrap();
        assert!(selection.selects(&method("java.lang.A", "set", "()V")));
        assert!(!selection.selects(&method("java.lang.A", "get", "()V")));
        assert!(!selection.selects(&method("sun.misc.A", "set", "()V")));
        assert!(Selection::default().selects(&method("A", "b", "()V")));
    }

    /// Check that a library pattern means the file name, or the path where it has a slash.
    #[test]
    fn library_globs() {
        let selection = Selection::parse(&[], &[], &["libz*.so", "/opt/**/libfoo.so"]).unwrap();
        assert!(selection.selects_library("libzip.so"));
        assert!(selection.selects_library("/usr/lib/jvm/lib/libzip.so"));
        assert!(selection.selects_library("/opt/a/b/libfoo.so"));
        assert!(!selection.selects_library("/usr/lib/libfoo.so"));
        assert!(!selection.selects_library("libfoo.so"));
        assert!(selection.is_limited_to_libraries());
        assert!(Selection::default().selects_library("any"));
    }

    /// Check that exactly the patterns without a match are reported, with a suggestion.
    #[test]
    fn reports_patterns_without_a_match() {
        let methods = [method("java.util.zip.Deflater", "deflate", "()V"), method("java.lang.Object", "wait", "()V")];
        let selection = Selection::parse(&["*::wait", "Deflator::deflate"], &[], &[]).unwrap();
        let unmatched = selection.unmatched(&methods);
        assert_eq!(unmatched.len(), 1);
        assert_eq!(
            unmatched[0].to_string(),
            "pattern `Deflator::deflate` matches no native method; nearest: java.util.zip.Deflater::deflate"
        );
        assert_eq!(selection.unmatched(&[]).len(), 2);
    }

    /// Check that a name suggested to the user cannot command the terminal.
    #[test]
    fn escapes_suggestions() {
        let hostile = Unmatched { pattern: "é".to_owned(), nearest: vec!["é\u{1b}[2J\u{202e}::a".to_owned()] };
        let text = hostile.to_string();
        assert_eq!(text, "pattern `é` matches no native method; nearest: é\\u{1b}[2J\\u{202e}::a");
    }
}
