//! Threads that wait in a native, and what the VM says of their frames.

use anyhow::{Context, Result};
use nprof::unwind::{End, JavaFrame, JavaStack};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

/// A frame as the VM tells it: class, method, and line (-1 unknown, -2 native).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrueFrame {
    class: String,
    method: String,
    line: i64,
}

/// A waiting thread: how it came there, where it is, and its frames.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) shape: String,
    pub(super) rsp: u64,
    pub(super) rbp: u64,
    pub(super) frames: Vec<TrueFrame>,
}

impl Waiting {
    /// Has the target park a thread in each shape.
    pub(super) fn all(target: &mut RemoteProcess, shapes: &str) -> Result<Vec<Self>> {
        let mut waiting: Vec<Self> = Vec::new();
        for line in target.run(&format!("park {shapes}"))? {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["stack", shape, rsp, rbp] => waiting.push(Self {
                    shape: shape.into(),
                    // Java prints them as signed numbers; rbp may hold anything.
                    rsp: rsp.parse::<i64>()?.cast_unsigned(),
                    rbp: rbp.parse::<i64>()?.cast_unsigned(),
                    frames: Vec::new(),
                }),
                ["at", class, method, line] => {
                    let frame = TrueFrame { class: class.into(), method: method.into(), line: line.parse()? };
                    waiting.last_mut().context("a frame without a stack")?.frames.push(frame);
                }
                _ => anyhow::bail!("not a frame: {line}"),
            }
        }
        Ok(waiting)
    }

    /// Whether the VM leaves out the frames of the carrier thread, which are on the same stack.
    fn is_virtual(&self, jdk: &Jdk) -> bool {
        self.shape.starts_with("virtual") && jdk.version >= 21
    }

    /// Where what was found differs from what the VM says.
    pub(super) fn difference(&self, stack: &JavaStack, jdk: &Jdk) -> Option<String> {
        if let Some(difference) = self.difference_within(stack) {
            return Some(difference);
        }
        let expected = self.expected(stack);
        let carrier = stack.frames.get(expected.len()..).unwrap_or_default();
        let right = if self.is_virtual(jdk) && stack.end == End::Complete {
            is_carrier(carrier)
        } else {
            stack.frames.len() == expected.len() || self.is_virtual(jdk)
        };
        let (expected, found) = (expected.len(), stack.frames.len());
        let next = carrier.first().map(told);
        (!right).then(|| format!("{}: {found} frames instead of {expected}, then {next:?}", self.shape))
    }

    /// The frames that have to be there.
    fn expected(&self, stack: &JavaStack) -> &[TrueFrame] {
        match stack.end {
            End::Complete => &self.frames,
            End::Cut(_) => &self.frames[..stack.frames.len().min(self.frames.len())],
        }
    }

    /// The first frame that is another one than the VM says, or that is missing.
    pub(super) fn difference_within(&self, stack: &JavaStack) -> Option<String> {
        let expected = self.expected(stack);
        let differs = |(at, expected): (usize, &TrueFrame)| {
            let found = stack.frames.get(at).map(told);
            (found.as_ref() != Some(expected))
                .then(|| format!("{}: frame {at}: expected {expected:?}, found {found:?}", self.shape))
        };
        expected.iter().enumerate().find_map(differs)
    }
}

/// Whether these are the frames of a thread that runs a virtual thread, down to its first one. The VM shows the entry
/// of a virtual thread as one of its frames until it has been unmounted once.
fn is_carrier(frames: &[JavaFrame]) -> bool {
    let names: Vec<String> = frames.iter().map(|frame| frame.method.to_string()).collect();
    let enter = ["jdk.internal.vm.Continuation.enterSpecial", "jdk.internal.vm.Continuation.run"];
    let enters = names.first().is_some_and(|name| enter.contains(&name.as_str()));
    enters && names.last().is_some_and(|name| name == "java.util.concurrent.ForkJoinWorkerThread.run")
}

/// A frame as the VM would tell it.
fn told(frame: &JavaFrame) -> TrueFrame {
    let line = match frame.line {
        Some(line) => i64::from(line),
        None if frame.method.is_native => -2,
        None => -1,
    };
    TrueFrame { class: frame.method.class.to_string(), method: frame.method.name.to_string(), line }
}
