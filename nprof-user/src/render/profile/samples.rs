//! Weighed stacks for the tests of the formats, and how these compare with golden files.

use crate::model::{ProfileFrame, ProfileFrameKind, Unit, Weighed, WeighedStack};

/// A frame without signature and line.
pub(super) fn frame(kind: ProfileFrameKind, scope: &str, name: &str) -> ProfileFrame {
    let (scope, name) = (scope.to_owned(), name.to_owned());
    let (signature, library) = (String::new(), String::new());
    ProfileFrame { kind, scope, name, signature, line: None, hidden: false, library }
}

/// Stacks of times with a frame of each kind, and names that need escapes in one format or the other.
pub(super) fn weighed() -> Weighed {
    use ProfileFrameKind::{C1, C2, Inlined, Interpreted, Marker, Native, NativeInlined, NativeMethod, Vm};
    let mut compiled = frame(C2, "com.acme.Größe$\u{1b}\"Q\"", "lambda$main$0");
    compiled.line = Some(42);
    let mut native = frame(NativeMethod, "java.util.zip.Deflater", "deflateBytesBytes");
    native.library = "libzip.so".to_owned();
    let frames = vec![
        frame(Interpreted, "com.acme.Main", "main"),
        frame(C1, "com.acme.Main", "<init>"),
        compiled,
        frame(Inlined, "java.util.zip.Deflater", "deflate"),
        native,
        frame(Native, "libz.so.1", "deflate<[u8; 4]>"),
        frame(Vm, "libjvm.so", "SharedRuntime::complete<A & B>(JavaThread*, int (*)())"),
        frame(NativeInlined, "libz.so.1", "crc32"),
        frame(Marker, "", "[the stack is too deep]"),
        frame(NativeMethod, "java.lang.Thread", "sleep0"),
    ];
    let stack = |frames: &[u32], value, samples| WeighedStack { frames: frames.to_vec(), value, samples };
    let stacks = vec![
        stack(&[0, 1, 2, 3, 4], 250_000_000, 200),
        stack(&[0, 1, 2, 3, 4, 5, 7], 600_000_000, 1034),
        stack(&[0, 1, 2, 3, 4, 6], 50_000_000, 10),
        stack(&[8, 2, 3, 4], 40_000_000, 7),
        stack(&[0, 9], 300_000_000, 0),
    ];
    let total = stacks.iter().map(|stack| stack.value).sum();
    Weighed { unit: Unit::Nanoseconds, frames, stacks, total }
}

/// Compares with a golden file and says the first line that differs. With `NPROF_RENEW=1` in the environment the file is
/// written instead.
pub(super) fn assert_golden(file: &str, golden: &str, actual: &str) {
    if std::env::var_os("NPROF_RENEW").is_some() {
        let path = format!("{}/src/render/profile/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, actual).unwrap();
        return;
    }
    for (number, (expected, line)) in golden.lines().zip(actual.lines()).enumerate() {
        assert_eq!(line, expected, "{file}:{}", number + 1);
    }
    assert_eq!(actual.len(), golden.len(), "{file}: one is longer");
}
