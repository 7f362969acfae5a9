//! Frames as people read them.

use super::super::names;
use crate::model::ProfileFrame;

/// What a box says: `java.util.zip.Deflater.deflate`, with `:123` where the line is known; a native function's name; a
/// marker's text. It holds nothing that is invisible, or that XML cannot hold.
pub(super) fn label(frame: &ProfileFrame) -> String {
    let name = if frame.name.is_empty() { "(no name)" } else { &frame.name };
    let mut text = match frame.kind.is_java() && !frame.scope.is_empty() {
        true => format!("{}.{name}", frame.scope),
        false => name.to_owned(),
    };
    if let Some(line) = frame.line {
        text.push_str(&format!(":{line}"));
    }
    clean(&text)
}

/// The file name of the library that native code is in, a native method's too, unless its label says it.
pub(super) fn library(frame: &ProfileFrame) -> Option<String> {
    let library = super::names::library(frame);
    (!library.is_empty() && !super::names::is_place(frame)).then(|| clean(library))
}

/// The text with what is invisible escaped, and without the two characters that are none.
pub(super) fn clean(text: &str) -> String {
    names::printable(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::super::samples::frame;
    use super::{label, library};
    use crate::model::ProfileFrameKind::{C2, Marker, Native, NativeMethod};

    /// Check what frames of each family are called.
    #[test]
    fn frames_are_named() {
        let mut java = frame(C2, "a.B$C", "<init>");
        assert_eq!(label(&java), "a.B$C.<init>");
        java.line = Some(12);
        assert_eq!(label(&java), "a.B$C.<init>:12");
        assert_eq!(label(&frame(Native, "libz.so.1", "inflate")), "inflate");
        assert_eq!(label(&frame(Marker, "", "[cut]")), "[cut]");
        assert_eq!(label(&frame(NativeMethod, "a.B", "")), "a.B.(no name)");
    }

    /// Check that only native code has a library, and that it is not said twice.
    #[test]
    fn libraries_are_of_native_code() {
        assert_eq!(library(&frame(Native, "libz.so.1", "libz.so.1+0x5dc0")), None);
        assert_eq!(library(&frame(C2, "a.B", "c")), None);
        assert_eq!(library(&frame(Native, "libz.so.1", "inflate")).as_deref(), Some("libz.so.1"));
        assert_eq!(library(&frame(NativeMethod, "a.B", "c")), None);
        assert_eq!(library(&frame(Marker, "", "[cut]")), None);
    }

    /// Check that a name cannot hide anything, nor break XML.
    #[test]
    fn names_from_the_target_are_visible() {
        let evil = frame(Native, "lib\u{1b}.so", "a\nb\u{202e}\u{ffff}ü");
        assert_eq!(label(&evil), "a\\u{a}b\\u{202e}\u{fffd}ü");
        assert_eq!(library(&evil).as_deref(), Some("lib\\u{1b}.so"));
    }
}
