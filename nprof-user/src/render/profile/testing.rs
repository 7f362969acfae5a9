//! Small recordings for the tests of the formats.

use std::time::Duration;

use crate::model::{About, ProfileFrame, ProfileFrameKind, ProfileMode, Unit, Weighed, WeighedStack};

/// What a recording of ten seconds says about itself.
pub(super) fn about(mode: ProfileMode) -> About {
    About {
        nprof: "0.1.0".to_owned(),
        started: "2026-03-01T12:00:00.000000007Z".parse().unwrap(),
        elapsed: Duration::from_millis(10_000),
        mode,
        pid: 1234,
        main: "com.acme.Main".to_owned(),
        vm: "OpenJDK 64-Bit Server VM 17.0.15".to_owned(),
        kernel: "6.18.0".to_owned(),
        host: "box".to_owned(),
        max_stacks: 1000,
        period_ns: matches!(mode, ProfileMode::OnCpu).then_some(10_000_000),
        ..About::default()
    }
}

/// A frame without a signature and a line.
pub(super) fn frame(kind: ProfileFrameKind, scope: &str, name: &str) -> ProfileFrame {
    ProfileFrame {
        kind,
        scope: scope.to_owned(),
        name: name.to_owned(),
        signature: String::new(),
        line: None,
        hidden: false,
        library: String::new(),
    }
}

/// A Java frame with a descriptor and, unless 0, a line.
pub(super) fn java(kind: ProfileFrameKind, class: &str, method: &str, signature: &str, line: u32) -> ProfileFrame {
    ProfileFrame { signature: signature.to_owned(), line: (line > 0).then_some(line), ..frame(kind, class, method) }
}

/// Stacks of `frames` with a value and a number of samples each; the total is their sum.
pub(super) fn weighed(unit: Unit, frames: Vec<ProfileFrame>, stacks: &[(&[u32], u64, u64)]) -> Weighed {
    let stack =
        |&(frames, value, samples): &(&[u32], u64, u64)| WeighedStack { frames: frames.to_vec(), value, samples };
    let total = stacks.iter().map(|(_, value, _)| value).sum();
    Weighed { unit, frames, stacks: stacks.iter().map(stack).collect(), total }
}

/// `Main.run` deflates, in a method that C2 inlined, with native frames inside; and reads in the interpreter. The stack of
/// a third method was cut.
pub(super) fn times() -> Weighed {
    use ProfileFrameKind::{C2, Inlined, Interpreted, Marker, Native, NativeInlined, NativeMethod, Vm};
    let frames = vec![
        java(Interpreted, "com.acme.Main", "run", "()V", 12),
        java(C2, "com.acme.Zip", "pack", "([B)I", 40),
        java(Inlined, "java.util.zip.Deflater", "deflate", "([BII)I", 571),
        java(NativeMethod, "java.util.zip.Deflater", "deflateBytesBytes", "(J[BII[BIIII)J", 0),
        frame(Native, "libz.so.1", "deflate"),
        frame(NativeInlined, "libz.so.1", "std::fill<char>(char*, char)"),
        java(NativeMethod, "java.io.FileInputStream", "readBytes", "([BII)I", 0),
        frame(Vm, "libjvm.so", "jni_GetByteArrayRegion"),
        frame(Marker, "", "[stack cut: the stack is too deep]"),
        java(NativeMethod, "été.日本$\"\\", "<init>", "()V", 0),
    ];
    weighed(
        Unit::Nanoseconds,
        frames,
        &[
            (&[0, 1, 2, 3], 700, 7),
            (&[0, 1, 2, 3, 4], 4_000, 3),
            (&[0, 1, 2, 3, 4, 5], 300, 1),
            (&[0, 6], 2_500_000_000, 40),
            (&[0, 6, 7], 5, 1),
            (&[8, 9], 1, 1),
        ],
    )
}

/// The calls of the same methods. Their frames have other numbers and, in part, other kinds; one stack is only here.
pub(super) fn calls() -> Weighed {
    use ProfileFrameKind::{C1, Inlined, Interpreted, Marker, NativeMethod};
    let frames = vec![
        java(NativeMethod, "java.io.FileInputStream", "readBytes", "([BII)I", 0),
        java(C1, "com.acme.Main", "run", "()V", 12),
        java(C1, "com.acme.Zip", "pack", "([B)I", 40),
        java(Inlined, "java.util.zip.Deflater", "deflate", "([BII)I", 571),
        java(NativeMethod, "java.util.zip.Deflater", "deflateBytesBytes", "(J[BII[BIIII)J", 0),
        frame(Marker, "", "[no stack taken]"),
        java(Interpreted, "java.lang.Runtime", "freeMemory", "()J", 0),
    ];
    weighed(Unit::Calls, frames, &[(&[1, 0], 90, 41), (&[1, 2, 3, 4], 11, 11), (&[5, 6], 2, 0)])
}
