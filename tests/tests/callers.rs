//! The target `Callers` and recordings of it: what it knows of its own calls, and what nprof says of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nprof::model::{FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileStack};
use nprof_tests::child::{Child, Stream};
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{Outcome, UNGOVERNED, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use rustix::process::Signal;
use tempfile::TempDir;

/// The class of the natives.
pub(crate) const NATIVES: &str = "targets.CallerNatives";
/// Selects every native that counts its calls.
pub(crate) const COUNTED: [&str; 3] = ["--exclude", "targets.CallerControl::*", "targets.*::*"];

/// How often each path is gone while it is learned: the VM replaces the code behind reflection after 15 calls, and that
/// behind method handles after 127.
const ROUNDS: u32 = 150;

/// A frame: class, method and line, -1 if that is not known and -2 in a native.
pub(crate) type Frame = (String, String, i64);

/// The calls of one native along one path.
#[derive(Debug, Clone)]
pub(crate) struct PathTruth {
    pub(crate) name: String,
    pub(crate) native: String,
    pub(crate) calls: u64,
    /// What the native has measured, if it is one that does.
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    /// Every stack that it was ever called with, the innermost frame first.
    pub(crate) stacks: Vec<Vec<Frame>>,
}

impl PathTruth {
    /// What the samples of calls say of those with one of the path's stacks, for the native itself.
    pub(crate) fn sampled(&self, profile: &Profile) -> Sampled {
        let mut sum = Sampled::default();
        for totals in &profile.calls {
            let told = told(profile, &profile.stacks[totals.stack as usize]);
            if self.stacks.contains(&told) {
                sum.samples += totals.samples;
                sum.calls += totals.calls;
                sum.time_ns += totals.time_ns;
                sum.off_cpu_ns += totals.off_cpu_ns;
            }
        }
        sum
    }
}

/// Sums of samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sampled {
    pub(crate) samples: u64,
    pub(crate) calls: f64,
    pub(crate) time_ns: f64,
    pub(crate) off_cpu_ns: f64,
}

/// What the target knows of its calls.
#[derive(Debug, Clone)]
pub(crate) struct Truth(pub(crate) Vec<PathTruth>);

impl Truth {
    /// Every stack that there can be.
    pub(crate) fn stacks(&self) -> BTreeSet<&[Frame]> {
        self.0.iter().flat_map(|path| &path.stacks).map(Vec::as_slice).collect()
    }

    /// Calls of a native along all paths.
    pub(crate) fn calls(&self, native: &str) -> u64 {
        self.0.iter().filter(|path| path.native == native).map(|path| path.calls).sum()
    }

    /// The calls of a native along a path.
    pub(crate) fn path(&self, name: &str, native: &str) -> Result<&PathTruth> {
        let found = self.0.iter().find(|path| path.name == name && path.native == native);
        found.with_context(|| format!("{native} was not called along {name}"))
    }

    fn read(lines: &[String]) -> Result<Self> {
        let mut paths: Vec<PathTruth> = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let last = paths.last_mut();
            match (&words[..], last) {
                (["path", name, native, calls, wall_ns, cpu_ns], _) => paths.push(PathTruth {
                    name: (*name).to_owned(),
                    native: (*native).to_owned(),
                    calls: calls.parse()?,
                    wall_ns: wall_ns.parse()?,
                    cpu_ns: cpu_ns.parse()?,
                    stacks: Vec::new(),
                }),
                (["stack"], Some(path)) => path.stacks.push(Vec::new()),
                (["at", class, method, line], Some(path)) => {
                    let stack = path.stacks.last_mut().context("a frame without a stack")?;
                    stack.push((class_name(class), (*method).to_owned(), line.parse()?));
                }
                _ => bail!("not the truth: {line}"),
            }
        }
        paths.iter_mut().flat_map(|path| &mut path.stacks).for_each(leave_carrier);
        Ok(Self(paths))
    }
}

/// The running target.
#[derive(Debug)]
pub(crate) struct Callers(RemoteProcess);

impl Callers {
    /// Starts it. It knows how often it calls, not yet from which stacks.
    pub(crate) fn start(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        Ok(Self(RemoteProcess::callers(jdk, options)?))
    }

    /// Starts it from a jar, by whose name a service knows it from all others.
    pub(crate) fn start_from(jar: &Jar<'_>) -> Result<Self> {
        Ok(Self(RemoteProcess::callers_from(jar.jdk(), jar.path())?))
    }

    /// Starts it and has it learn its stacks.
    pub(crate) fn learned(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        Self::start(jdk, options)?.learn()
    }

    /// Has it learn its stacks.
    pub(crate) fn learn(mut self) -> Result<Self> {
        self.run(&format!("learn {ROUNDS}"))?;
        self.truth()?;
        self.cpu_ns()?;
        Ok(self)
    }

    /// What was called since the last time.
    pub(crate) fn truth(&mut self) -> Result<Truth> {
        Truth::read(&self.0.run("truth")?)
    }

    /// The CPU time of all threads that have gone since the last time.
    pub(crate) fn cpu_ns(&mut self) -> Result<u64> {
        let answer = self.0.run("cpu")?.join("\n");
        Ok(answer.strip_prefix("cpu ").with_context(|| format!("not a time: {answer}"))?.parse()?)
    }

    /// Ends it cleanly.
    pub(crate) fn exit(self) -> Result<()> {
        self.0.exit()
    }

    /// Goes along `paths` while it is recorded, and returns the file and what is true.
    pub(crate) fn recorded_file(&mut self, args: &[&str], go: &str) -> Result<(Recorded, Truth)> {
        let recording = Recording::start(self.0.pid(), &[&COUNTED, args].concat())?;
        self.0.run(&format!("go {go}"))?;
        let recorded = recording.finish_file()?;
        Ok((recorded, self.truth()?))
    }

    /// Goes along `paths` while it is recorded, and returns what was recorded and what is true.
    pub(crate) fn recorded(&mut self, args: &[&str], go: &str) -> Result<(Profile, Truth)> {
        let (recorded, truth) = self.recorded_file(args, go)?;
        Ok((recorded.profile()?, truth))
    }
}

impl Deref for Callers {
    type Target = RemoteProcess;

    fn deref(&self) -> &RemoteProcess {
        &self.0
    }
}

impl DerefMut for Callers {
    fn deref_mut(&mut self) -> &mut RemoteProcess {
        &mut self.0
    }
}

/// A running `nprof record` that takes stacks.
#[derive(Debug)]
pub(crate) struct Recording {
    child: Child,
    directory: TempDir,
}

impl Recording {
    /// Starts it and returns when everything is attached.
    pub(crate) fn start(pid: u32, args: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        let (pid, file) = (pid.to_string(), directory.path().join("run.nprof"));
        let file = file.to_str().context("a temporary directory's name is text")?.to_owned();
        let mut child = spawn(&[&["record", "--pid", &pid, "-o", &file], &UNGOVERNED[..], args].concat())?;
        let word = if args.contains(&"--on-cpu") { "sampling " } else { "recording " };
        child.line_with_prefix(Stream::Stderr, word)?;
        Ok(Self { child, directory })
    }

    /// nprof's own process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The file that will be there.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("run.nprof")
    }

    /// Ends it with Ctrl-C and reads the file.
    pub(crate) fn finish(self) -> Result<Profile> {
        self.finish_by(Signal::INT)
    }

    /// Ends it with a signal and reads the file.
    pub(crate) fn finish_by(self, signal: Signal) -> Result<Profile> {
        self.child.signal(signal)?;
        self.wait().map(|(profile, _)| profile)
    }

    /// Ends it with Ctrl-C and leaves the file to be drawn.
    pub(crate) fn finish_file(self) -> Result<Recorded> {
        self.child.signal(Signal::INT)?;
        let outcome = outcome(self.child)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        Ok(Recorded(self.directory))
    }

    /// Waits for it to end by itself and reads the file.
    pub(crate) fn wait(self) -> Result<(Profile, Outcome)> {
        let file = self.file();
        let outcome = outcome(self.child)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        let files = std::fs::read_dir(self.directory.path())?.count();
        ensure!(files == 1, "{files} files instead of one");
        Ok((read(&file)?, outcome))
    }

    /// Ends nprof the hard way.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()
    }
}

/// A finished recording, to be drawn by the binary.
#[derive(Debug)]
pub(crate) struct Recorded(TempDir);

impl Recorded {
    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("run.nprof")
    }

    /// The recording itself.
    pub(crate) fn profile(&self) -> Result<Profile> {
        read(&self.file())
    }

    /// Its stacks, the outermost frame first, and their values.
    pub(crate) fn folded(&self, weight: &str) -> Result<Vec<FoldedStack>> {
        let file = self.file();
        let file = file.to_str().context("a temporary directory's name is text")?;
        let run = run(&["flamegraph", file, "--weight", weight, "--format", "folded"])?;
        ensure!(run.code == Some(0) && run.stderr.is_empty(), "{run:?}");
        run.stdout.lines().map(FoldedStack::read).collect()
    }
}

/// A line of the folded format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoldedStack {
    pub(crate) frames: Vec<String>,
    pub(crate) value: u64,
}

impl FoldedStack {
    pub(crate) fn read(line: &str) -> Result<Self> {
        let (frames, value) = line.rsplit_once(' ').with_context(|| format!("no value: {line}"))?;
        Ok(Self { frames: frames.split(';').map(str::to_owned).collect(), value: value.parse()? })
    }

    /// Whether a frame of it says so; a native function's name is without its library.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame.rsplit_once('`').map_or(frame.as_str(), |(_, name)| name) == name)
    }
}

/// The width of a frame, wherever it is.
pub(crate) fn width(stacks: &[FoldedStack], frame: &str) -> u64 {
    stacks.iter().filter(|stack| stack.has(frame)).map(|stack| stack.value).sum()
}

/// Reads a recording.
pub(crate) fn read(file: &Path) -> Result<Profile> {
    nprof::recording::read(&mut File::open(file)?).with_context(|| format!("{}", file.display()))
}

/// The exact totals of a native of the target.
pub(crate) fn function<'a>(profile: &'a Profile, native: &str) -> Result<&'a FunctionTotals> {
    let mut of = profile.functions.iter();
    of.find(|function| function.class == NATIVES && function.method == native).with_context(|| format!("no {native}"))
}

/// A stack of a recording as the VM would tell it.
pub(crate) fn told(profile: &Profile, stack: &ProfileStack) -> Vec<Frame> {
    let frames = stack.frames.iter().map(|frame| &profile.frames[*frame as usize]);
    let mut told: Vec<Frame> = frames.map(told_frame).collect();
    leave_carrier(&mut told);
    told
}

fn told_frame(frame: &ProfileFrame) -> Frame {
    let unknown = if frame.kind == ProfileFrameKind::NativeMethod { -2 } else { -1 };
    (class_name(&frame.scope), frame.name.clone(), frame.line.map_or(unknown, i64::from))
}

/// Without what differs between classes that are alike: the numbers that the VM gives to hidden ones.
fn class_name(class: &str) -> String {
    match class.split_once('/') {
        Some((name, _)) => format!("{}/", name.trim_end_matches(|c: char| c.is_ascii_digit())),
        None => class.to_owned(),
    }
}

/// The VM leaves out the frames of the thread that carries a virtual one.
fn leave_carrier(stack: &mut Vec<Frame>) {
    let enters = |(class, method, _): &Frame| {
        class == "jdk.internal.vm.Continuation" && ["enterSpecial", "run"].contains(&method.as_str())
    };
    if let Some(at) = stack.iter().position(enters) {
        stack.truncate(at);
    }
}
