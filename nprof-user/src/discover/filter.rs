//! Which JVMs the user asked for: by what they run and as whom.

use globset::{Glob, GlobMatcher};

use super::label::simple_main;
use crate::model::Jvm;

/// A pattern or a user that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Nothing at all.
    #[error("an empty pattern selects no JVM; write * for any")]
    Empty,
    /// Not a glob.
    #[error("pattern `{pattern}` is no glob: {reason}")]
    Glob {
        /// The pattern as it was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Neither a user's name nor a number.
    #[error("`{user}` is neither a user's name nor a user id: write one as in /etc/passwd")]
    User {
        /// What was given.
        user: String,
    },
}

/// Which JVMs are selected. By default all of them.
///
/// Patterns are globs on the main class or the jar's file name, such as `com.acme.*` or `shop-*.jar`; a pattern that
/// matches the class without its package is good too, or a source file (`java Hello.java`) without its ending. Unlike in
/// patterns of methods, `*` is any text, dots included: the names of jars are full of them.
#[derive(Debug, Clone, Default)]
pub struct JvmFilter {
    include: Vec<GlobMatcher>,
    exclude: Vec<GlobMatcher>,
    users: Vec<String>,
}

impl JvmFilter {
    /// A filter from patterns and from users, by name or number. No `include` selects every JVM, no `users` every user.
    ///
    /// # Errors
    /// The first pattern that is no glob, or the first text that can be no user.
    pub fn parse<S: AsRef<str>>(include: &[S], exclude: &[S], users: &[S]) -> Result<Self, FilterError> {
        let globs = |patterns: &[S]| patterns.iter().map(|p| glob(p.as_ref())).collect::<Result<_, _>>();
        let users = users.iter().map(|user| checked_user(user.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { include: globs(include)?, exclude: globs(exclude)?, users })
    }

    /// Whether a JVM is selected: by an include pattern, or because there is none, and by its user likewise, and by no
    /// exclude pattern.
    #[must_use]
    pub fn selects(&self, jvm: &Jvm) -> bool {
        let names = [Some(&*jvm.main), Some(simple_main(&jvm.main)), jvm.main.strip_suffix(".java")];
        let any =
            |globs: &[GlobMatcher]| globs.iter().any(|glob| names.iter().flatten().any(|name| glob.is_match(name)));
        let uid = jvm.uid.to_string();
        let is_user = |user: &String| *user == uid || Some(user) == jvm.user.as_ref();
        (self.include.is_empty() || any(&self.include))
            && !any(&self.exclude)
            && (self.users.is_empty() || self.users.iter().any(is_user))
    }
}

fn glob(pattern: &str) -> Result<GlobMatcher, FilterError> {
    if pattern.is_empty() {
        return Err(FilterError::Empty);
    }
    let glob = Glob::new(pattern)
        .map_err(|error| FilterError::Glob { pattern: pattern.to_owned(), reason: error.kind().to_string() })?;
    Ok(glob.compile_matcher())
}

fn checked_user(user: &str) -> Result<String, FilterError> {
    // A name of digits only is a number to every tool. What /etc/passwd cannot hold is no name.
    let number_too_large = user.bytes().all(|b| b.is_ascii_digit()) && user.parse::<u32>().is_err();
    let no_name = user.chars().any(|c| c == ':' || c.is_whitespace() || c.is_control());
    if number_too_large || no_name {
        return Err(FilterError::User { user: user.to_owned() });
    }
    Ok(user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JvmKind, Pid, StartTime};

    fn jvm(main: &str, user: Option<&str>) -> Jvm {
        Jvm {
            pid: Pid(1),
            start_time: StartTime(1),
            main: main.to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 1000,
            user: user.map(str::to_owned),
            container: None,
        }
    }

    fn filter(include: &[&str], exclude: &[&str], users: &[&str]) -> JvmFilter {
        JvmFilter::parse(include, exclude, users).unwrap()
    }

    /// Check that globs match the whole name or the class alone, that `*` crosses dots, and that exclusion wins.
    #[test]
    fn selects_by_what_is_run() {
        let by = |include: &[&str], main: &str| filter(include, &[], &[]).selects(&jvm(main, None));
        assert!(by(&[], "anything"));
        assert!(by(&["com.acme.*"], "com.acme.shop.Main"));
        assert!(by(&["Main"], "com.acme.Main"));
        assert!(by(&["Main"], "shop/com.acme.Main"));
        assert!(by(&["x", "shop-*.jar"], "shop-1.2.jar"));
        assert!(by(&["Hello"], "Hello.java"));
        assert!(by(&["Hello.java"], "Hello.java"));
        assert!(!by(&["jar"], "shop-1.2.jar"));
        assert!(!by(&["acme.*"], "com.acme.Main"));
        assert!(!filter(&["com.**"], &["*Test*"], &[]).selects(&jvm("com.acme.TestMain", None)));
    }

    /// Check that a user is known by name or by number.
    #[test]
    fn selects_by_user() {
        for (users, selected) in [(["app"], true), (["1000"], true), (["root"], false), (["100"], false)] {
            assert_eq!(filter(&[], &[], &users).selects(&jvm("M", Some("app"))), selected, "{users:?}");
        }
        assert!(!filter(&[], &[], &["app"]).selects(&jvm("M", None)));
    }

    /// Check that what cannot be meant is refused.
    #[test]
    fn refuses_what_selects_nothing() {
        let error = |include: &[&str], users: &[&str]| JvmFilter::parse(include, &[], users).unwrap_err();
        assert_eq!(error(&[""], &[]), FilterError::Empty);
        assert!(error(&["a[b"], &[]).to_string().contains("unclosed character class"));
        for user in ["", "a b", "a:b", "4294967296"] {
            assert_eq!(error(&[], &[user]), FilterError::User { user: user.to_owned() });
        }
    }
}
