//! What frames are called in files that other tools read.

use std::borrow::Cow;

use crate::model::{ProfileFrame, ProfileFrameKind};
pub(super) use crate::render::names::short;

/// `java.util.zip.Deflater.deflateBytesBytes` for a Java method, its own name for everything else.
pub(super) fn full(frame: &ProfileFrame) -> Cow<'_, str> {
    if frame.kind.is_java() && !frame.scope.is_empty() {
        return Cow::Owned(format!("{}.{}", frame.scope, frame.name));
    }
    Cow::Borrowed(&frame.name)
}

/// The file name of the library that native code is in, a native method's too; empty where there is none or it is not
/// known.
pub(super) fn library(frame: &ProfileFrame) -> &str {
    match frame.kind {
        ProfileFrameKind::Native | ProfileFrameKind::Vm | ProfileFrameKind::NativeInlined => &frame.scope,
        ProfileFrameKind::NativeMethod => &frame.library,
        _ => "",
    }
}

/// Whether it is a function that is called by its place in its library (`libz.so.1+0x5dc0`), as nothing names it.
pub(super) fn is_place(frame: &ProfileFrame) -> bool {
    let place = frame.name.strip_prefix(&*frame.scope).filter(|_| !frame.kind.is_java() && !frame.scope.is_empty());
    place.is_some_and(|place| place.starts_with("+0x"))
}

/// What other tools show beside the name as the file that it is from: class or library, unless the name says it already.
pub(super) fn file(frame: &ProfileFrame) -> &str {
    if is_place(frame) { "" } else { &frame.scope }
}

#[cfg(test)]
mod tests {
    use super::{file, full, is_place, library, short};
    use crate::model::ProfileFrameKind;
    use crate::render::profile::testing::frame;

    /// Check that only Java methods are named with their scope: a library is no part of a function's name.
    #[test]
    fn scope_of_java_methods_only() {
        assert_eq!(full(&frame(ProfileFrameKind::NativeMethod, "a.B", "call")), "a.B.call");
        assert_eq!(full(&frame(ProfileFrameKind::Inlined, "", "call")), "call");
        assert_eq!(full(&frame(ProfileFrameKind::Native, "libz.so.1", "deflate")), "deflate");
        assert_eq!(full(&frame(ProfileFrameKind::Marker, "", "[no stack taken]")), "[no stack taken]");
    }

    /// Check which library a frame is in, and that a function without a name has it once.
    #[test]
    fn libraries() {
        let deflate = frame(ProfileFrameKind::Native, "libz.so.1", "deflate");
        assert_eq!((library(&deflate), file(&deflate), is_place(&deflate)), ("libz.so.1", "libz.so.1", false));
        let place = frame(ProfileFrameKind::Native, "libz.so.1", "libz.so.1+0x5dc0");
        assert_eq!((library(&place), file(&place), is_place(&place)), ("libz.so.1", "", true));
        let mut method = frame(ProfileFrameKind::NativeMethod, "a.B", "a.B+0x1");
        assert_eq!((library(&method), file(&method), is_place(&method)), ("", "a.B", false));
        method.library = "liba.so".to_owned();
        assert_eq!(library(&method), "liba.so");
        assert!(!is_place(&frame(ProfileFrameKind::Native, "", "+0x1")));
        assert_eq!(library(&frame(ProfileFrameKind::C2, "a.B", "call")), "");
    }

    /// Check that the package goes and nothing else does.
    #[test]
    fn short_names_have_no_package() {
        assert_eq!(short("java.util.zip.Deflater", "end"), "Deflater.end");
        assert_eq!(short("a.B$C", "<init>"), "B$C.<init>");
        assert_eq!(short("a.B$$Lambda/0x00007f.12", "run"), "B$$Lambda/0x00007f.12.run");
        assert_eq!(short("Main", "été"), "Main.été");
        assert_eq!(short("", "call"), "call");
        assert_eq!(short("a.", "call"), "call");
    }
}
