//! Which program of the user's runs at the calls of which methods: `PATTERN=FILE:PROGRAM`.

use std::path::PathBuf;

use super::pattern::SelectError;
use super::select::Selection;
use crate::model::{CallEnd, Method};

/// What users are told about programs of their own.
pub const PROGRAM_HELP: &str = "\
[PATTERN=]FILE[:PROGRAM] names a BPF program for --on-entry and --on-return: FILE is an object, PROGRAM one of its
programs if it has several for that end of calls, PATTERN the methods at whose calls it runs, all of the selected ones if
there is none. Of several that match a method the last one runs.";

/// A program for the calls of some methods.
#[derive(Debug, Clone)]
pub struct ProgramRule {
    /// The end of calls that it runs at.
    pub end: CallEnd,
    /// The object file that it is in.
    pub file: PathBuf,
    /// Its name there, if one was given.
    pub program: Option<String>,
    pattern: String,
    selection: Selection,
}

impl ProgramRule {
    /// Reads a rule. The first `=` ends the pattern, which has none itself; a file that has one needs a pattern before it.
    ///
    /// # Errors
    /// For a pattern that is none, or without a file.
    pub fn parse(text: &str, end: CallEnd) -> Result<Self, SelectError> {
        let (pattern, program) = text.split_once('=').map_or((None, text), |(pattern, rest)| (Some(pattern), rest));
        let selection = pattern.map(|pattern| Selection::parse(&[pattern], &[], &[])).transpose()?;
        let (file, program) = match program.rsplit_once(':') {
            Some((file, name)) if is_name(name) => (file, Some(name.to_owned())),
            _ => (program, None),
        };
        if file.is_empty() {
            let position = text.chars().count() + 1;
            let reason = "there is no file; write [PATTERN=]FILE[:PROGRAM]".to_owned();
            return Err(SelectError { pattern: text.to_owned(), position, reason });
        }
        let pattern = pattern.unwrap_or_default().to_owned();
        Ok(Self { end, file: file.into(), program, pattern, selection: selection.unwrap_or_default() })
    }

    /// Whether the program runs at the calls of a method, if no later rule says otherwise.
    #[must_use]
    pub fn selects(&self, method: &Method) -> bool {
        self.selection.selects(method)
    }

    /// What there is to say if it is about none of these methods.
    #[must_use]
    pub fn unmatched(&self, methods: &[Method]) -> Option<String> {
        let unmatched = self.selection.unmatched(methods).into_iter().next()?;
        Some(format!("{} runs nowhere so far for `{}`: {unmatched}", self.file.display(), self.pattern))
    }
}

/// Whether this can be the name of a program: a file whose name has a colon usually has a dot behind it.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NativeCode, VirtAddr};

    /// Check what of a rule is pattern, file and program, where each may be missing but the file.
    #[test]
    fn reads_rules() {
        let read = |text| {
            let rule = ProgramRule::parse(text, CallEnd::Return).unwrap();
            (rule.pattern, rule.file.display().to_string(), rule.program)
        };
        let expected = |pattern: &str, file: &str, program: Option<&str>| {
            (pattern.to_owned(), file.to_owned(), program.map(str::to_owned))
        };
        for (text, pattern, file, program) in [
            ("a.bpf.o", "", "a.bpf.o", None),
            ("/x/a.bpf.o:left", "", "/x/a.bpf.o", Some("left")),
            ("java.util.zip.*=a.o", "java.util.zip.*", "a.o", None),
            ("Deflater::init(IIZ)J=a.o:one", "Deflater::init(IIZ)J", "a.o", Some("one")),
            ("**=b=c.o", "**", "b=c.o", None),
            ("C:a.o", "", "C:a.o", None),
            ("./a:b/c.o", "", "./a:b/c.o", None),
        ] {
            assert_eq!(read(text), expected(pattern, file, program), "{text}");
        }
    }

    /// Check that a rule is about the methods of its pattern, or about all; and that one that is about none says so.
    #[test]
    fn selects_by_pattern() {
        let (id, name, signature, code) = (VirtAddr(0), "b".into(), "()V".into(), NativeCode::Unbound);
        let method = Method { id, class: "a.Deflater".into(), name, signature, code };
        let rule = |text| ProgramRule::parse(text, CallEnd::Entry).unwrap();
        assert!(rule("x.o").selects(&method) && rule("a.*=x.o").selects(&method) && !rule("c.*=x.o").selects(&method));
        assert_eq!(rule("x.o").unmatched(std::slice::from_ref(&method)), None);
        let says = rule("Deflator=x.o").unmatched(&[method]).unwrap();
        assert!(says.starts_with("x.o runs nowhere so far for `Deflator`: ") && says.contains("a.Deflater"), "{says}");
    }

    /// Check that what is no rule is refused, with where.
    #[test]
    fn refuses_others() {
        for (text, position, says) in
            [("", 1, "there is no file"), ("a::b=", 6, "there is no file"), ("=x.o", 1, "class")]
        {
            let error = ProgramRule::parse(text, CallEnd::Entry).unwrap_err();
            assert!(error.position == position && error.reason.contains(says), "{text}: {error}");
        }
    }
}
