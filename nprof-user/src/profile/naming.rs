//! Frames as the unwinders find them become frames as a picture shows them.

use std::collections::HashMap;
use std::sync::Arc;

use super::Sums;
use super::frames::{Frames, cut};
use crate::model::{Library, Pid, ProfileFrame, ProfileFrameKind};
use crate::native::{CodeAddress, NativeFrame, Symbolizer};
use crate::unwind::{FrameKind, JavaFrame, JavaStack, MethodName};

/// Different frames that are remembered; beyond, it starts over.
const MAX_KNOWN: usize = 1 << 20;

/// The numbers of stacks, by their names.
#[derive(Debug)]
pub(super) struct Names {
    java: JavaNames,
    native: NativeNames,
}

impl Names {
    pub(super) fn new(pid: Pid) -> Self {
        Self { java: JavaNames::default(), native: NativeNames::new(pid) }
    }

    /// Numbers frames anew from now on: for sums that begin.
    pub(super) fn forget(&mut self) {
        self.java = JavaNames::default();
        self.native.forget();
    }

    /// Takes over what the process has mapped now.
    pub(super) fn set_libraries(&mut self, libraries: &[Library]) {
        self.native.set_libraries(libraries);
    }

    /// The number of a stack that was read. It is counted as one that was taken.
    pub(super) fn number(&mut self, frames: &Frames, sums: &mut Sums) -> u32 {
        if frames.is_guess() {
            sums.note_guess();
        }
        let mut numbers = self.native.number(frames.native(), sums);
        numbers.extend(self.java.number(frames.java(), sums));
        sums.stack(numbers, frames.cut())
    }

    /// The numbers of Java frames.
    pub(super) fn into_java(self) -> JavaNames {
        self.java
    }
}

/// A Java frame: the address of its method's name, how it is executed, and its line.
type JavaKey = (usize, FrameKind, Option<u32>);

/// The numbers of Java frames, found without looking at their names again.
#[derive(Debug, Default)]
pub(super) struct JavaNames {
    /// The name whose address is in the key is kept alive by the value.
    known: HashMap<JavaKey, (Arc<MethodName>, u32)>,
}

impl JavaNames {
    /// The numbers of the frames of a stack, the innermost first.
    pub(super) fn number(&mut self, frames: &[JavaFrame], sums: &mut Sums) -> Vec<u32> {
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        frames.iter().map(|frame| self.frame(frame, sums)).collect()
    }

    /// The numbers of the parts of a stack that begin with a native method, the innermost first.
    pub(super) fn parts(&mut self, java: &JavaStack, sums: &mut Sums) -> Vec<u32> {
        let numbers = self.number(&java.frames, sums);
        let natives = java.frames.iter().enumerate().filter(|(_, frame)| frame.method.is_native);
        natives.map(|(at, _)| sums.part(numbers[at..].to_vec(), cut(java.end))).collect()
    }

    fn frame(&mut self, frame: &JavaFrame, sums: &mut Sums) -> u32 {
        let key = (Arc::as_ptr(&frame.method).addr(), frame.kind, frame.line);
        let new = || (Arc::clone(&frame.method), sums.frame(profile_frame(frame)));
        self.known.entry(key).or_insert_with(new).1
    }
}

/// Names of native code, and the numbers of its frames.
#[derive(Debug)]
struct NativeNames {
    symbolizer: Symbolizer,
    /// By the address of the frames, which the value keeps alive.
    known: HashMap<usize, (Arc<[NativeFrame]>, Vec<u32>)>,
}

impl NativeNames {
    fn new(pid: Pid) -> Self {
        Self { symbolizer: Symbolizer::new(pid), known: HashMap::new() }
    }

    fn set_libraries(&mut self, libraries: &[Library]) {
        self.symbolizer.set_libraries(libraries);
    }

    /// Forgets the numbers.
    fn forget(&mut self) {
        self.known.clear();
    }

    /// The numbers of the frames at some places in code, the innermost first.
    fn number(&mut self, places: &[CodeAddress], sums: &mut Sums) -> Vec<u32> {
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        let mut numbers = Vec::with_capacity(places.len());
        for frames in self.symbolizer.name_all(places) {
            let key = frames.as_ptr().addr();
            let (_, known) = self.known.entry(key).or_insert_with(|| {
                let known = frames.iter().map(|frame| sums.frame(native_frame(frame))).collect();
                (frames, known)
            });
            numbers.extend_from_slice(known);
        }
        numbers
    }
}

fn native_frame(frame: &NativeFrame) -> ProfileFrame {
    let kind = match frame {
        NativeFrame { inlined: true, .. } => ProfileFrameKind::NativeInlined,
        NativeFrame { is_vm: true, .. } => ProfileFrameKind::Vm,
        _ => ProfileFrameKind::Native,
    };
    ProfileFrame {
        kind,
        scope: frame.library.to_string(),
        name: frame.function.to_string(),
        signature: String::new(),
        line: frame.line,
        hidden: false,
        library: String::new(),
    }
}

fn profile_frame(frame: &JavaFrame) -> ProfileFrame {
    let kind = match frame.kind {
        _ if frame.method.is_native => ProfileFrameKind::NativeMethod,
        FrameKind::Interpreted => ProfileFrameKind::Interpreted,
        FrameKind::C1 => ProfileFrameKind::C1,
        FrameKind::C2 => ProfileFrameKind::C2,
        FrameKind::Inlined => ProfileFrameKind::Inlined,
        FrameKind::NativeWrapper => ProfileFrameKind::NativeMethod,
    };
    ProfileFrame {
        kind,
        scope: frame.method.class.to_string(),
        name: frame.method.name.to_string(),
        signature: frame.method.signature.to_string(),
        line: frame.line,
        hidden: frame.hidden,
        library: String::new(),
    }
}
