//! What the tests of this stage share: a program with a known stack, built in several ways, that waits in its innermost
//! function and has said with which registers.

mod damage;
mod stacks;
mod statics;
mod symbols;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::{CodeAddress, NativeEnd, NativeFrame, NativeSample, NativeStack, NativeUnwinder, ProbedReturn, Symbolizer};
use crate::discover::Proc;
use crate::model::{Library, Pid, VirtAddr};
use crate::sys::remote_memory::ProcessMemory;

/// How release builds are made.
const USUAL: &[&str] = &["-O2", "-g", "-fomit-frame-pointer"];
/// The functions of the program that have frames, the innermost first.
const FUNCTIONS: [&str; 6] = ["demo::innermost(int)", "inlined", "middle", "realigned", "outer", "run"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/native/testing/fixtures/frames.c")
}

/// The line of the source that says so.
fn line_of(remark: &str) -> u32 {
    let text = std::fs::read_to_string(source()).expect("the source can be read");
    let line = text.lines().position(|line| line.contains(remark)).expect("the source says so");
    u32::try_from(line + 1).expect("a short source")
}

/// The program, for as long as this lives.
struct Program {
    directory: TempDir,
}

impl Program {
    fn build(flags: &[&str]) -> Self {
        let program = Self { directory: TempDir::new().expect("a temporary directory") };
        let mut command = Command::new("cc");
        command.args(flags).args(["-fno-optimize-sibling-calls", "-pthread", "-o"]).arg(program.path()).arg(source());
        assert!(command.status().expect("cc runs").success(), "{command:?}");
        program
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("frames")
    }

    /// Starts it; its known stack is that of its first thread or of another one.
    fn start(&self, in_thread: bool) -> Waiting {
        self.start_as(in_thread.then_some("thread"))
    }

    /// Starts it with what is to come between `main` and its known stack, if it is more than a call.
    fn start_as(&self, way: Option<&str>) -> Waiting {
        let mut command = Command::new(self.path());
        command.args(way).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the program answers");
        let registers: Vec<u64> =
            line.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("hexadecimal digits")).collect();
        let [pc, sp, fp] = registers[..] else { panic!("not three registers: {line}") };
        let memory = ProcessMemory::new(Pid(child.id()));
        let stack = copy(&memory, sp);
        Waiting { child, pc, sp, fp, stack }
    }
}

/// The stack from `sp` on, as far as it goes.
fn copy(memory: &ProcessMemory, sp: u64) -> Vec<u8> {
    let mut stack = Vec::new();
    let mut page = [0; 1 << 10];
    while memory.read_exact(VirtAddr(sp + stack.len() as u64), &mut page).is_ok() && stack.len() < 64 << 10 {
        stack.extend_from_slice(&page);
    }
    stack
}

/// The program, waiting in its innermost function.
struct Waiting {
    child: Child,
    pc: u64,
    sp: u64,
    fp: u64,
    stack: Vec<u8>,
}

impl Waiting {
    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn libraries(&self) -> Vec<Library> {
        Proc::host().libraries(self.pid()).expect("the program runs")
    }

    /// Its libraries, with another file in place of the program's own.
    fn libraries_with(&self, program: &Path) -> Vec<Library> {
        let mut libraries = self.libraries();
        libraries[0].open_path = program.to_owned();
        libraries
    }

    fn unwind_with(&self, libraries: &[Library], stack: &[u8], probed: &[ProbedReturn]) -> NativeStack {
        let mut unwinder = NativeUnwinder::new(self.pid());
        unwinder.set_libraries(libraries);
        unwinder.unwind(&NativeSample { stack, probed, ..self.sample() }, &|_| false)
    }

    fn unwind(&self) -> NativeStack {
        self.unwind_with(&self.libraries(), &self.stack, &[])
    }

    fn sample(&self) -> NativeSample<'_> {
        let (pc, sp, fp) = (VirtAddr(self.pc), VirtAddr(self.sp), Some(VirtAddr(self.fp)));
        NativeSample { pc, sp, fp, stack: &self.stack, stack_base: sp, probed: &[] }
    }

    fn names_with(&self, libraries: &[Library], frames: &[CodeAddress]) -> Vec<NativeFrame> {
        let mut symbolizer = Symbolizer::new(self.pid());
        symbolizer.set_libraries(libraries);
        let named: Vec<Arc<[NativeFrame]>> = symbolizer.name_all(frames);
        named.iter().flat_map(|frames| frames.iter().cloned()).collect()
    }

    fn names(&self, frames: &[CodeAddress]) -> Vec<NativeFrame> {
        self.names_with(&self.libraries(), frames)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // It ends with its input; killing it is for when it does not.
        drop(self.child.stdin.take());
        self.child.wait().expect("the program ends");
    }
}

fn functions(frames: &[NativeFrame]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.function).collect()
}
