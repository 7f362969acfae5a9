//! One pattern of the command line: how it is read and what it matches. [`PATTERN_HELP`] says what it means.
//!
//! The matching is globset's, with the dots of a class name as the separators that `*` does not cross. It works
//! on bytes: `?` and `[..]` stand for one ASCII character, `*` for any text.

use globset::{ErrorKind, Glob, GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};

use crate::model::Method;
use crate::model::descriptor;

/// What users are told about patterns.
pub const PATTERN_HELP: &str = "\
PATTERN is a glob on class::method, such as 'java.util.zip.*', '*::read*' or 'com.acme.**::*'.
  *   any text within one part of the class name
  **  any number of parts: 'com.acme.**' is every class below com.acme
  ?   one character
  [ab] and {x,y}  alternatives
Without '::' it selects all methods of the classes. A class pattern without a dot is compared
with the class's name without its package: 'Deflater', '*::read*'. Nested classes are written
with $: 'Outer$Inner'. A descriptor selects one overload: 'Deflater::init(IIZ)J'.";

/// Memory that a regular expression may take, in bytes.
const MOST_MEMORY: usize = 1 << 20;

/// A pattern that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern `{pattern}` is wrong at character {position}: {reason}")]
pub struct SelectError {
    /// The pattern as it was given.
    pub pattern: String,
    /// Where in it, in characters from 1 on.
    pub position: usize,
    /// What is wrong there, and what to write instead.
    pub reason: String,
}

/// A class's name in the form that patterns are compared with.
#[derive(Debug, Clone)]
pub struct ClassName {
    /// With `/` for the dots.
    slashed: String,
    dotted: String,
}

impl ClassName {
    /// That of a class as `Class.getName()` says it.
    #[must_use]
    pub fn of(class: &str) -> Self {
        Self { slashed: class.replace('.', "/"), dotted: class.to_owned() }
    }

    fn simple(&self) -> &str {
        self.slashed.rsplit('/').next().unwrap_or(&self.slashed)
    }
}

/// A method's name in that form.
pub(super) struct Name<'a> {
    class: ClassName,
    method: &'a Method,
}

impl<'a> Name<'a> {
    pub(super) fn of(method: &'a Method) -> Self {
        Self { class: ClassName::of(&method.class), method }
    }
}

/// What a name is compared with.
#[derive(Debug, Clone)]
enum Matcher {
    Glob(GlobMatcher),
    Regex(Regex),
}

impl Matcher {
    fn is_match(&self, name: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.is_match(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

/// One `class::method` pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    class: Matcher,
    /// The class part has no dot: it is compared with the class's simple name.
    simple: bool,
    method: Option<Matcher>,
    /// A descriptor, or its arguments with both parentheses.
    signature: Option<String>,
}

impl Pattern {
    /// Whether it is written so that it selects whatever there is.
    #[must_use]
    pub fn is_any(&self) -> bool {
        matches!(self.text.as_str(), "*" | "**" | "*::*" | "**::*")
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is no legal glob, or its descriptor none.
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let (class, member) = match text.split_once("::") {
            Some((class, member)) => (class, Some((member, class.len() + 2))),
            None => (text, None),
        };
        let class = Part { pattern: text, start: 0, text: class };
        class.check_filled("class", "* for any class")?;
        class.check_recursive()?;
        let mut parsed = Self {
            text: text.to_owned(),
            class: Matcher::Glob(class.compile(&class.text.replace('.', "/"))?),
            simple: !class.text.contains('.'),
            method: None,
            signature: None,
        };
        if let Some((member, start)) = member {
            let name = &member[..member.find('(').unwrap_or(member.len())];
            let signature = Part { pattern: text, start: start + name.len(), text: &member[name.len()..] };
            let name = Part { pattern: text, start, text: name };
            name.check_filled("method", "* for any method")?;
            name.check_method()?;
            parsed.method = Some(Matcher::Glob(name.compile(name.text)?));
            parsed.signature = signature.into_signature()?;
        }
        Ok(parsed)
    }

    /// Reads a pattern of which both parts, the class and the method, are regular expressions on the whole name.
    ///
    /// # Errors
    /// When a part is no regular expression.
    pub fn regex(text: &str) -> Result<Self, SelectError> {
        let (class, method) = match text.split_once("::") {
            Some((class, method)) => (class, Some(Part { pattern: text, start: class.len() + 2, text: method })),
            None => (text, None),
        };
        Ok(Self {
            text: text.to_owned(),
            class: Part { pattern: text, start: 0, text: class }.compile_regex()?,
            simple: false,
            method: method.map(|method| method.compile_regex()).transpose()?,
            signature: None,
        })
    }

    /// The classes of a package, and of those below it.
    ///
    /// # Errors
    /// When its name is longer than any.
    pub fn package(name: &str) -> Result<Self, SelectError> {
        // The package without a name has none below it.
        Self::regex(&if name.is_empty() { r"[^.]*".to_owned() } else { format!(r"{}\..*", regex::escape(name)) })
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn matches(&self, name: &Name<'_>) -> bool {
        self.matches_method(&name.method.name, &name.method.signature) && self.matches_class(&name.class)
    }

    /// Whether its class part selects a class.
    #[must_use]
    pub fn matches_class(&self, name: &ClassName) -> bool {
        match &self.class {
            Matcher::Glob(glob) => glob.is_match(if self.simple { name.simple() } else { &name.slashed }),
            Matcher::Regex(regex) => regex.is_match(&name.dotted),
        }
    }

    /// Whether its method part selects a method, in whatever class.
    #[must_use]
    pub fn matches_method(&self, name: &str, signature: &str) -> bool {
        // The signature either is complete or ends with the closing parenthesis.
        self.method.as_ref().is_none_or(|method| method.is_match(name))
            && self.signature.as_ref().is_none_or(|s| signature.starts_with(s.as_str()))
    }
}

/// A glob on a library's path, or on its file name where the glob has no slash.
#[derive(Debug, Clone)]
pub(super) struct LibraryPattern {
    glob: GlobMatcher,
    on_path: bool,
}

impl LibraryPattern {
    pub(super) fn parse(text: &str) -> Result<Self, SelectError> {
        let part = Part { pattern: text, start: 0, text };
        part.check_filled("library", "* for any library")?;
        Ok(Self { glob: part.compile(text)?, on_path: text.contains('/') })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let file_name = name.rsplit('/').next().unwrap_or(name);
        self.glob.is_match(if self.on_path { name } else { file_name })
    }
}

/// How much of a thread's name the kernel keeps, in bytes.
const THREAD_NAME: usize = 15;

/// A glob on a thread's name.
#[derive(Debug, Clone)]
pub(super) struct ThreadPattern {
    text: String,
    glob: GlobMatcher,
    /// The same without what the kernel cannot have kept of a name, for names that are as long as it keeps them.
    cut: Option<GlobMatcher>,
}

impl ThreadPattern {
    pub(super) fn parse(text: &str) -> Result<Self, SelectError> {
        let part = Part { pattern: text, start: 0, text };
        part.check_filled("name of the thread", "* for any thread")?;
        // A glob that begins with plain text beyond the limit stands for whatever begins like it.
        let plain = text.find(['*', '?', '[', '{', '\\']).unwrap_or(text.len());
        let cut = text.get(..THREAD_NAME).filter(|_| plain > THREAD_NAME);
        let cut = cut.map(|cut| part.compile_plain(cut)).transpose()?;
        Ok(Self { text: text.to_owned(), glob: part.compile_plain(text)?, cut })
    }

    /// The glob as it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.glob.is_match(name) || self.cut.as_ref().is_some_and(|cut| cut.is_match(name))
    }
}

/// A piece of a pattern, for errors that say where they are.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The whole pattern.
    pattern: &'a str,
    /// Where in it the piece begins, in bytes.
    start: usize,
    text: &'a str,
}

impl Part<'_> {
    /// An error `at` bytes into the piece.
    fn error(&self, at: usize, reason: impl Into<String>) -> SelectError {
        let before = self.pattern.get(..self.start + at).unwrap_or(self.pattern);
        SelectError { pattern: self.pattern.to_owned(), position: before.chars().count() + 1, reason: reason.into() }
    }

    fn check_filled(&self, what: &str, instead: &str) -> Result<(), SelectError> {
        match self.text {
            "" => Err(self.error(0, format!("the {what} is missing; write {instead}"))),
            _ => Ok(()),
        }
    }

    /// globset takes a `**` beside other text for a `*`; here that is refused, since it looks as if it crossed dots.
    fn check_recursive(&self) -> Result<(), SelectError> {
        for (at, _) in self.text.match_indices("**") {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + 2..].chars().next();
            let opens = before.is_none_or(|c| matches!(c, '.' | '/' | '{' | ','));
            let closes = after.is_none_or(|c| matches!(c, '.' | '/' | '}' | ','));
            if !opens || !closes {
                return Err(self.error(at, "** stands for whole parts of a name; write com.acme.** or com.**.Codec*"));
            }
        }
        Ok(())
    }

    fn check_method(&self) -> Result<(), SelectError> {
        if let Some(at) = self.text.find("::") {
            return Err(self.error(at, "there is a second ::; write class::method"));
        }
        match self.text.find(['.', '/', ';']) {
            Some(at) => Err(self.error(at, "a method's name has no dot; write the class in front of the ::")),
            None => Ok(()),
        }
    }

    fn into_signature(self) -> Result<Option<String>, SelectError> {
        if self.text.is_empty() {
            return Ok(None);
        }
        match descriptor::arguments(self.text) {
            Some(_) => Ok(Some(self.text.to_owned())),
            None => Err(self.error(0, "this is no JVM descriptor; write one as javap -s prints it, such as (I[B)J")),
        }
    }

    /// Compiles `glob`, which is this piece with separators translated one to one.
    fn compile(&self, glob: &str) -> Result<GlobMatcher, SelectError> {
        self.build(GlobBuilder::new(glob).literal_separator(true))
    }

    /// Compiles this piece as a regular expression on a whole name.
    fn compile_regex(&self) -> Result<Matcher, SelectError> {
        let wrong = |error: regex::Error| {
            // The first lines of a message show the expression.
            let reason = error.to_string();
            self.error(0, reason.lines().last().unwrap_or_default().trim_start_matches("error: "))
        };
        // What is typed must be whole by itself: `a)|(b` is not.
        Regex::new(self.text).map_err(wrong)?;
        let whole = RegexBuilder::new(&format!("^(?:{})$", self.text)).size_limit(MOST_MEMORY).build();
        whole.map(Matcher::Regex).map_err(wrong)
    }

    /// Compiles a glob on text without separators.
    fn compile_plain(&self, glob: &str) -> Result<GlobMatcher, SelectError> {
        self.build(&GlobBuilder::new(glob))
    }

    fn build(&self, glob: &GlobBuilder<'_>) -> Result<GlobMatcher, SelectError> {
        glob.build()
            .map(|glob: Glob| glob.compile_matcher())
            .map_err(|error| self.error(self.blame(error.kind()), error.kind().to_string()))
    }

    /// Where in the piece globset's complaint points to: it names the kind, not the place.
    fn blame(&self, kind: &ErrorKind) -> usize {
        let found = match kind {
            ErrorKind::UnclosedClass => self.text.rfind('['),
            ErrorKind::InvalidRange(from, to) => self.text.find(&format!("{from}-{to}")),
            ErrorKind::UnopenedAlternates => self.text.find('}'),
            ErrorKind::UnclosedAlternates => self.text.rfind('{'),
            ErrorKind::DanglingEscape => self.text.rfind('\\'),
            _ => None,
        };
        found.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{LibraryPattern, Name, PATTERN_HELP, Pattern};
    use crate::model::{Method, NativeCode, VirtAddr};

    fn selects(pattern: &str, class: &str, name: &str) -> bool {
        let method = Method {
            id: VirtAddr(0),
            class: class.into(),
            name: name.into(),
            signature: "(I[B)J".into(),
            code: NativeCode::Unbound,
        };
        Pattern::parse(pattern).unwrap().matches(&Name::of(&method))
    }

    /// Check that a regular expression is about whole names, that a package has those below it, and that a wrong expression is one.
    #[test]
    fn regexes_and_packages() {
        let selects = |pattern: &Pattern, class: &str, method: &str| {
            pattern.matches_class(&super::ClassName::of(class)) && pattern.matches_method(method, "()V")
        };
        let regex = Pattern::regex(r"com\.acme\..*::(get|put)").unwrap();
        assert!(selects(&regex, "com.acme.Svc", "get") && selects(&regex, "com.acme.a.B", "put"));
        assert!(!selects(&regex, "com.acme.Svc", "getAll") && !selects(&regex, "x.com.acme.Svc", "get"));
        let package = Pattern::package("com.acme").unwrap();
        assert!(selects(&package, "com.acme.A", "a") && selects(&package, "com.acme.b.C$D", "a"));
        assert!(!selects(&package, "com.acmex.A", "a") && !selects(&package, "comXacme.A", "a"));
        let unnamed = Pattern::package("").unwrap();
        assert!(selects(&unnamed, "Main", "a") && !selects(&unnamed, "a.Main", "a"));
        for wrong in ["(", "a)|(b", "a::(", r"\w{9999}"] {
            assert!(!Pattern::regex(wrong).unwrap_err().reason.is_empty(), "{wrong}");
        }
    }

    /// Check what `*`, `**`, `?`, classes and alternatives match in the class part.
    #[test]
    fn class_globs() {
        for (pattern, class, expected) in [
            ("java.util.zip.*", "java.util.zip.Deflater", true),
            ("java.util.*", "java.util.zip.Deflater", false),
            ("java.util.**", "java.util.zip.Deflater", true),
            ("java.util.**", "java.util.Timer", true),
            ("java.util.**", "java.util", false),
            ("java.**.Def*", "java.util.zip.Deflater", true),
            ("**.Deflater", "java.util.zip.Deflater", true),
            ("**.Deflater", "Deflater", true),
            ("**.Deflater", "java.util.zip.XDeflater", false),
            ("java.ut?l.zip.Deflater", "java.util.zip.Deflater", true),
            ("java.util?zip.Deflater", "java.util.zip.Deflater", false),
            ("java.util.zip.[DI]*", "java.util.zip.Inflater", true),
            ("java.util.zip.{De,In}flater", "java.util.zip.Inflater", true),
            ("{sun.**,java.util.**}", "java.util.zip.Inflater", true),
            ("{sun.**,java.nio.**}", "java.util.zip.Inflater", false),
            ("*", "java.util.zip.Deflater", true),
            ("**", "java.util.zip.Deflater", true),
            ("java.util.zip.Deflater", "java_util.zip.Deflater", false),
            ("java.util.zip.deflater", "java.util.zip.Deflater", false),
            ("com.é*.*", "com.été.A", true),
        ] {
            assert_eq!(selects(pattern, class, "m"), expected, "{pattern} on {class}");
        }
    }

    /// Check that a class pattern without a dot means the simple name, nested classes included.
    #[test]
    fn simple_class_names() {
        assert!(selects("Deflater", "java.util.zip.Deflater", "m"));
        assert!(selects("Deflater", "Deflater", "m"));
        assert!(selects("Outer$*::m", "p.Outer$Inner", "m"));
        assert!(!selects("Outer", "p.Outer$Inner", "m"));
        assert!(!selects("zip", "java.util.zip.Deflater", "m"));
    }

    /// Check the method part, with and without a descriptor or its arguments.
    #[test]
    fn method_globs_and_descriptors() {
        for (pattern, expected) in [
            ("*::read*", true),
            ("A::readBytes", true),
            ("A::read", false),
            ("B::read*", false),
            ("*::{read,write}Bytes", true),
            ("A::readBytes(I[B)J", true),
            ("A::read*(I[B)", true),
            ("A::readBytes(I[B)V", false),
            ("A::readBytes(I)", false),
        ] {
            assert_eq!(selects(pattern, "p.A", "readBytes"), expected, "{pattern}");
        }
    }

    /// Check that each kind of wrong pattern is named, with the place.
    #[test]
    fn says_what_is_wrong_and_where() {
        for (pattern, position, reason) in [
            ("::m", 1, "the class is missing"),
            ("", 1, "the class is missing"),
            ("A::", 4, "the method is missing"),
            ("A::(I)V", 4, "the method is missing"),
            ("p.[A::m", 3, "unclosed character class"),
            ("é.A::m[x", 7, "unclosed character class"),
            ("A::[z-a]", 5, "invalid range"),
            ("A::{x", 4, "unclosed alternate"),
            ("A::x}", 5, "unopened alternate"),
            ("A::x\\", 5, "dangling"),
            ("com.acme**::m", 9, "** stands for whole parts"),
            ("A::b::c", 5, "second ::"),
            ("A::b.c", 5, "no dot"),
            ("A::b(int)", 5, "no JVM descriptor"),
        ] {
            let error = Pattern::parse(pattern).unwrap_err();
            assert_eq!((error.pattern.as_str(), error.position), (pattern, position), "{error}");
            assert!(error.reason.contains(reason), "{error}");
        }
        let error = LibraryPattern::parse("lib[.so").unwrap_err();
        assert_eq!(
            error.to_string(),
            "pattern `lib[.so` is wrong at character 4: unclosed character class; missing ']'"
        );
    }

    /// Check that the patterns which the help text names are legal.
    #[test]
    fn help_names_legal_patterns() {
        let quoted: Vec<&str> = PATTERN_HELP.split('\'').skip(1).step_by(2).filter(|p| *p != "::").collect();
        assert!(quoted.len() >= 7, "{quoted:?}");
        for pattern in quoted {
            Pattern::parse(pattern).unwrap();
        }
    }
}
