//! Folded stacks: a line per stack, frames from the outermost separated by `;`, then a blank and the value.
//!
//! Read by flamegraph.pl, inferno, speedscope and others. A Java frame carries the mark that perf's and async-profiler's
//! folded files have made known, so that the colours for Java of these tools (`--color=java`) tell its kind: `_[0]`
//! interpreted, `_[1]` compiled by C1, `_[j]` compiled by C2, `_[i]` inlined. A native method has none, which gives it the
//! colour of native code. A native function stands behind its library, as in `` libz.so.1`inflate ``; one without
//! a name says its library itself: `libz.so.1+0x5dc0`.
//!
//! What the format has no escape for is replaced: `;` by `,`, and the blank before a number at the end of a frame, which
//! would be read as a value, by `_`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::labels;
use crate::model::{ProfileFrame, ProfileFrameKind, Weighed};

/// Writes folded stacks, sorted, each text once.
///
/// # Errors
/// Those of `out`.
pub fn write(weighed: &Weighed, out: &mut dyn Write) -> io::Result<()> {
    let frames: Vec<String> = weighed.frames.iter().map(text).collect();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &weighed.stacks {
        let names = stack.frames.iter().filter_map(|&frame| frames.get(frame as usize));
        let names: Vec<&str> = names.map(String::as_str).collect();
        let value = lines.entry(names.join(";")).or_default();
        *value = value.saturating_add(stack.value);
    }
    for (stack, value) in lines.into_iter().filter(|(stack, value)| *value > 0 && !stack.is_empty()) {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

/// A frame in the words of this format.
fn text(frame: &ProfileFrame) -> String {
    let label = labels::label(frame);
    let named = match labels::library(frame) {
        Some(library) if !frame.kind.is_java() => format!("{library}`{label}"),
        _ => label,
    };
    let mut text = named.replace(';', ",") + mark(frame.kind);
    if text.starts_with("# ") {
        // Would be a comment.
        text.replace_range(1..2, "_");
    }
    if let Some(blank) = text.rfind(' ')
        && text[blank + 1..].chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        text.replace_range(blank..=blank, "_");
    }
    text
}

/// What other tools tell the kind by.
fn mark(kind: ProfileFrameKind) -> &'static str {
    match kind {
        ProfileFrameKind::Interpreted => "_[0]",
        ProfileFrameKind::C1 => "_[1]",
        ProfileFrameKind::C2 => "_[j]",
        ProfileFrameKind::Inlined | ProfileFrameKind::NativeInlined => "_[i]",
        ProfileFrameKind::NativeMethod | ProfileFrameKind::Native | ProfileFrameKind::Vm | ProfileFrameKind::Marker => {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::{text, write};
    use crate::model::ProfileFrameKind::{C2, Interpreted, Native, NativeMethod};
    use crate::model::Weighed;

    fn folded(weighed: &Weighed) -> String {
        let mut out = Vec::new();
        write(weighed, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check stacks with frames of each kind and with names that need escapes.
    #[test]
    fn every_kind() {
        samples::assert_golden(
            "every_kind.folded",
            include_str!("golden/every_kind.folded"),
            &folded(&samples::weighed()),
        );
    }

    /// Check that nothing is lost on the way: the values add up to the total, and each line has one value.
    #[test]
    fn values_add_up() {
        let weighed = samples::weighed();
        let sum: u64 =
            folded(&weighed).lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, weighed.total);
    }

    /// Check that a name cannot end its frame, its line or pass for a value or a comment.
    #[test]
    fn names_cannot_break_the_format() {
        for (frame, expected) in [
            (samples::frame(Native, "", "f<[u8; 4]>"), "f<[u8, 4]>"),
            (samples::frame(Native, "libz.so.1", "libz.so.1+0x5dc0"), "libz.so.1+0x5dc0"),
            (samples::frame(NativeMethod, "a.B", "adds 2 and 3"), "a.B.adds 2 and_3"),
            (samples::frame(NativeMethod, "", "adds 3.5"), "adds_3.5"),
            (samples::frame(Interpreted, "a.B", "adds 3"), "a.B.adds 3_[0]"),
            (samples::frame(NativeMethod, "", "# no comment"), "#_no comment"),
            (samples::frame(C2, "a", "b\n1"), "a.b\\u{a}1_[j]"),
        ] {
            assert_eq!(text(&frame), expected);
        }
    }

    /// Check that a recording without calls gives an empty file.
    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(folded(&Weighed::default()), "");
    }
}
