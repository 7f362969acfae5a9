//! A small recording for tests.

use std::time::Duration;

use crate::model::{About, FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileStack, StackTotals};

/// Ten seconds in which `main` called `run`, and that `read` at two lines, which called back into `copy`.
pub(super) fn profile() -> Profile {
    let frame = |kind, scope: &str, name: &str, line| ProfileFrame {
        kind,
        scope: scope.to_owned(),
        name: name.to_owned(),
        signature: "()V".to_owned(),
        line,
        hidden: false,
        library: String::new(),
    };
    let stack = |frames: &[u32]| ProfileStack { frames: frames.to_vec(), cut: None };
    let totals = |stack, function, time: f64| StackTotals {
        stack,
        function: Some(function),
        thread: None,
        samples: 1,
        calls: 1.0,
        time_ns: time,
        self_ns: time,
        off_cpu_ns: 0.0,
    };
    Profile {
        about: About { elapsed: Duration::from_secs(10), main: "a.M".to_owned(), ..About::default() },
        frames: vec![
            frame(ProfileFrameKind::Interpreted, "a.M", "main", Some(1)),
            frame(ProfileFrameKind::C2, "a.M", "run", Some(2)),
            frame(ProfileFrameKind::C2, "a.M", "run", Some(3)),
            frame(ProfileFrameKind::NativeMethod, "a.N", "read", None),
            frame(ProfileFrameKind::NativeMethod, "a.N", "copy", None),
        ],
        stacks: vec![stack(&[3, 1, 0]), stack(&[3, 2, 0]), stack(&[4, 3, 1, 0])],
        functions: vec![
            FunctionTotals { untimed: 0, ..function("copy", 10, 1_000_000, 1_000_000, 200_000) },
            FunctionTotals { untimed: 1, ..function("read", 20, 3_000_000, 2_000_000, 500_000) },
        ],
        calls: vec![totals(0, 1, 30.0), totals(1, 1, 10.0), totals(2, 0, 5.0)],
        ..Profile::default()
    }
}

fn function(method: &str, calls: u64, total_ns: u64, self_ns: u64, max_ns: u64) -> FunctionTotals {
    let (class, signature, library) = ("a.N".to_owned(), "()V".to_owned(), "liba.so".to_owned());
    let function = FunctionTotals { class, signature, library, method: method.to_owned(), ..FunctionTotals::default() };
    FunctionTotals { calls, total_ns, self_ns, max_ns, ..function }
}
