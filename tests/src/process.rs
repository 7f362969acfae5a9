//! A target in its own JVM, started with a handshake and driven by commands (`tests/targets/Target.java`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::child::{Child, Stream};
use crate::jdk::Jdk;
use crate::name::MethodName;
use crate::source_tree::SourceTree;
use crate::target::{Targets, compile_with};

/// The environment variable with the number of a target of which there are many.
pub const NUMBER: &str = "NPROF_TEST_NUMBER";

/// A target that has said that it is ready. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct RemoteProcess {
    child: Child,
    pid: u32,
}

/// Calls made to one C function: as the Java code counted them, and as the function itself did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// The methods that are bound to the function.
    pub methods: Vec<MethodName>,
    /// Calls made, by the Java code.
    pub made: u64,
    /// Calls begun, by the C code.
    pub counted: u64,
}

/// Calls that timed themselves from the inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfTimed {
    /// The method.
    pub method: MethodName,
    /// Calls made.
    pub calls: u64,
    /// The sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl RemoteProcess {
    /// Natives of many shapes (`Shapes.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn shapes(jdk: &Jdk) -> Result<Self> {
        Self::shapes_on(jdk, &[])
    }

    /// The same on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn shapes_on(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Shapes").arg(targets.library("libshapes.so")))
    }

    /// The same, started by another program that becomes it: the words before `java` on its command line.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn shapes_by(jdk: &Jdk, launcher: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let plain = java(jdk, &targets.classes());
        let (first, rest) = launcher.split_first().context("a launcher has a name")?;
        let mut command = Command::new(first);
        command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").args(rest);
        command.arg(plain.get_program()).args(plain.get_args());
        Self::start(jdk, command.arg("targets.Shapes").arg(targets.library("libshapes.so")))
    }

    /// Natives with every type of argument and result (`Stubs.java`), on a JVM with these options and variables.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn stubs(jdk: &Jdk, options: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.envs(variables.iter().copied());
        Self::start(jdk, command.args(options).arg("targets.Stubs").arg(targets.library("libstubs.so")))
    }

    /// The same natives in a JVM that has other troubles (`Stressed.java`), with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn stressed(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        let libraries = ["libstubs.so", "libstressed.so"].map(|name| targets.library(name));
        Self::start(jdk, command.args(options).arg("targets.Stressed").args(libraries))
    }

    /// The same from a jar that starts it.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn stressed_from(jdk: &Jdk, jar: &Path, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        let libraries = ["libstubs.so", "libstressed.so"].map(|name| targets.library(name));
        Self::start(jdk, command.args(options).arg("-jar").arg(jar).args(libraries))
    }

    /// The natives of `Shapes.java` from a jar, by whose name it is known then.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn shapes_from(jdk: &Jdk, jar: &Path) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("-jar").arg(jar).arg(targets.library("libshapes.so")))
    }

    /// Libraries and classes that come and go (`LateLibrary.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn late_library(jdk: &Jdk) -> Result<Self> {
        Self::late_library_on(jdk, &[])
    }

    /// The same on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn late_library_on(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.args(options).arg("targets.LateLibrary").arg(targets.library("liblate.so"));
        Self::start(jdk, command.arg(targets.guest_classes()).arg(targets.library("libguest.so")))
    }

    /// The JVM that is observed by the truth agent (`Truth.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn truth(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        let agent = targets.library("libtruth.so");
        // Options have to stand before the class.
        command.arg(format!("-agentpath:{}", agent.display()));
        Self::start(jdk, command.arg("targets.Truth").arg(targets.library("libshapes.so")))
    }

    /// Natives to be timed, and two thousand of them (`Bench.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn bench(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        let libraries = ["libshapes.so", "libmany.so"].map(|name| targets.library(name));
        Self::start(jdk, command.arg("targets.Bench").args(libraries))
    }

    /// The same with thousands of natives that have one function.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn thousands(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("targets.Bench").arg(targets.library("libthousands.so")))
    }

    /// Natives that consume what they are told to (`Consuming.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn consuming(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("targets.Consuming").arg(targets.library("libconsuming.so")))
    }

    /// Natives that consume what they are told to (`Consuming.java`) from a jar, by whose name it is known then.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn consuming_from(jdk: &Jdk, jar: &Path) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("-jar").arg(jar).arg(targets.library("libconsuming.so")))
    }

    /// Natives that call JNI functions (`Asking.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn asking(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Asking").arg(targets.library("libasking.so")))
    }

    /// Natives with faults (`Faulty.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn faulty(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Faulty").arg(targets.library("libfaulty.so")))
    }

    /// Natives that look members up (`Looking.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn looking(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Looking").arg(targets.library("liblooking.so")))
    }

    /// Methods that call each other in known numbers (`Trees.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn trees(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.args(options).arg("targets.Trees"))
    }

    /// Those of `Loaded.java`: as many classes as one likes.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn loaded(jdk: &Jdk) -> Result<Self> {
        Self::start(jdk, java(jdk, &Targets::get()?.classes()).arg("targets.Loaded"))
    }

    /// The natives of `Bench.java` from a jar that starts it, in a JVM that is as small as can be: for tests with many of them, which
    /// tell them apart by [`NUMBER`].
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn small_bench(jdk: &Jdk, jar: &Path, number: usize) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.env(NUMBER, number.to_string());
        command.args(["-Xmx32m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"]).arg(jar);
        let libraries = ["libshapes.so", "libmany.so"].map(|name| targets.library(name));
        Self::start(jdk, command.args(libraries))
    }

    /// Natives that are called at high rates and count their calls in a file (`Soaked.java`), from a jar, in a small JVM with a
    /// [`NUMBER`].
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn soaked(jdk: &Jdk, jar: &Path, number: usize, counts: &Path) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.env(NUMBER, number.to_string());
        command.args(["-Xmx32m", "-XX:+UseSerialGC", "-jar"]).arg(jar).arg(counts);
        let libraries = ["libsoaked.so", "libmany.so"].map(|name| targets.library(name));
        Self::start(jdk, command.args(libraries))
    }

    /// Natives that are called as often as they are told to be (`Governed.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn governed(jdk: &Jdk, jar: &Path) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("-jar").arg(jar).arg(targets.library("libmany.so")))
    }

    /// Threads that are never still (`Interrupted.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn interrupted(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.args(options).arg("targets.Interrupted"))
    }

    /// Threads that wait in a native below stacks of many shapes (`Stacks.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn stacks(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        // The truth is what the VM knows, not what it shows by default.
        command.args(["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames", "-XX:MaxJavaStackTraceDepth=100000"]);
        // A virtual thread that waits in a native keeps its carrier.
        command.arg("-Djdk.virtualThreadScheduler.parallelism=16");
        Self::start(jdk, command.args(options).arg("targets.Stacks").arg(targets.library("libstacks.so")))
    }

    /// Hidden classes, as many as it is told to have (`Hidden.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn hidden(jdk: &Jdk) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.arg("targets.Hidden"))
    }

    /// A native in the middle of another, which others use too (`Twisted.java`): in this copy of `libtwisted.so`, and only
    /// if it is to `twist`.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn twisted(jdk: &Jdk, library: &Path, twist: bool) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        command.arg("targets.Twisted").arg(library).args(twist.then_some("twist"));
        Self::start(jdk, &mut command)
    }

    /// Calls of a native from the bottom of a stack (`Deep.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn deep(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("targets.Deep"))
    }

    /// A native with a critical function (`Critical.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn critical(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Critical").arg(targets.library("libcritical.so")))
    }

    /// Natives that are called from many stacks, and know how often from which (`Callers.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn callers(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        // The truth is what the VM knows, not what it shows by default.
        command.args(["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames"]);
        Self::start(jdk, command.args(options).arg("targets.Callers").arg(targets.library("libcallers.so")))
    }

    /// The Java compiler, which compiles a tree of sources (`Compiler.java`) and writes classes into a directory.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn compiler(jdk: &Jdk, tree: &SourceTree, classes: &Path) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        // A heap that does not change its size is one thing less that changes.
        command.args(["-Xms1g", "-Xmx1g", "targets.Compiler"]);
        Self::start(jdk, command.arg(&tree.directory).arg(classes).args(&tree.options))
    }

    /// Native code that calls Java by the foreign function interface (`programs/Upcalls.java`); it is compiled to `scratch`.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn upcalls(jdk: &Jdk, scratch: &Path) -> Result<Self> {
        let libraries = [Targets::get()?.classes()];
        let classes = compile_with(jdk, jdk.version, &["Upcalls"], &libraries, scratch)?;
        let mut command = java(jdk, Path::new(&std::env::join_paths([&classes, &libraries[0]])?));
        Self::start(jdk, command.args(["--enable-native-access=ALL-UNNAMED", "targets.Upcalls"]))
    }

    /// Any other program that speaks the protocol.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn program(command: &mut Command) -> Result<Self> {
        Self::started(Child::spawn("a program", command)?)
    }

    fn start(jdk: &Jdk, command: &mut Command) -> Result<Self> {
        Self::started(Child::spawn(&format!("target on {jdk}"), command)?)
    }

    fn started(mut child: Child) -> Result<Self> {
        let ready = child.line_with_prefix(Stream::Stdout, "ready ")?;
        let pid = child.pid();
        ensure!(ready == format!("ready {pid}"), "another process answered: {ready}");
        Ok(Self { child, pid })
    }

    /// A target in a pid namespace, where it is the first process; `command` becomes its parent outside.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn in_namespaces(jdk: &Jdk, command: &mut Command) -> Result<Self> {
        let mut child = Child::spawn(&format!("contained target on {jdk}"), command)?;
        let ready = child.line_with_prefix(Stream::Stdout, "ready ")?;
        ensure!(ready == "ready 1", "another process answered: {ready}");
        let parent = child.pid();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let pid = number(children.trim()).with_context(|| format!("not one child of {parent}"))?;
        Ok(Self { child, pid })
    }

    /// Its process id, on the host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it run a command and returns the data lines of its answer.
    ///
    /// # Errors
    /// When the target says that the command failed, or says nothing.
    pub fn run(&mut self, command: &str) -> Result<Vec<String>> {
        self.child.send(&format!("run {command}"))?;
        let mut answer = Vec::new();
        loop {
            let line = self.child.line(Stream::Stdout).with_context(|| format!("running '{command}'"))?;
            match line.split(' ').next() {
                Some("done") => return Ok(answer),
                Some("failed") => bail!(self.child.failure(&line)),
                _ => answer.push(line),
            }
        }
    }

    /// Has it run a command that it never answers.
    ///
    /// # Errors
    /// When the target no longer reads.
    pub fn leave_to(&mut self, command: &str) -> Result<()> {
        self.child.send(&format!("run {command}"))
    }

    /// Makes a known number of calls: `rounds` of `shape` (or `all`) on each of `threads` threads.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn calls(&mut self, shape: &str, threads: u32, rounds: u32) -> Result<Vec<Called>> {
        self.run_and_count(&format!("calls {shape} {threads} {rounds}"))
    }

    /// Runs a command that answers with the calls that it made.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_and_count(&mut self, command: &str) -> Result<Vec<Called>> {
        let mut functions: BTreeMap<u32, Called> = BTreeMap::new();
        for line in self.run(command)? {
            let words: Vec<&str> = line.split(' ').collect();
            let ["made", class, method, signature, made, counter, counted] = words[..] else {
                bail!("not a count: {line}");
            };
            let function = functions.entry(number(counter)?).or_insert_with(|| Called {
                methods: Vec::new(),
                made: 0,
                counted: 0,
            });
            function.methods.push(MethodName::new(class, method, signature));
            function.made += number::<u64>(made)?;
            function.counted = number(counted)?;
        }
        Ok(functions.into_values().collect())
    }

    /// Makes `calls` calls that time themselves: `sleep` with nanoseconds, `work` with iterations as argument.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn self_timed(&mut self, what: &str, calls: u32, argument: u64) -> Result<SelfTimed> {
        let answer = self.run(&format!("{what} {calls} {argument}"))?.join("\n");
        let words: Vec<&str> = answer.split(' ').collect();
        let ["timed", class, method, signature, calls, total_ns, max_ns] = words[..] else {
            bail!("not a time: {answer}");
        };
        Ok(SelfTimed {
            method: MethodName::new(class, method, signature),
            calls: number(calls)?,
            total_ns: number(total_ns)?,
            max_ns: number(max_ns)?,
        })
    }

    /// Nanoseconds per call of the target's smallest native, the best of several runs.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn speed_ns(&mut self, calls: u32) -> Result<f64> {
        let answer = self.run(&format!("speed {calls}"))?.join("\n");
        number(answer.strip_prefix("speed ").with_context(|| format!("not a speed: {answer}"))?)
    }

    /// Ends it the hard way.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()
    }

    /// Ends it cleanly.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub fn exit(self) -> Result<()> {
        self.last_words().map(drop)
    }

    /// Ends it cleanly, and gives what it has said on its standard error.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub fn last_words(mut self) -> Result<String> {
        self.child.send("exit")?;
        let (status, _) = self.child.wait()?;
        ensure!(status.success(), self.child.failure(&format!("ended with {status}")));
        self.child.rest_of_stderr()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }
}

fn java(jdk: &Jdk, classes: &Path) -> Command {
    let mut command = Command::new(jdk.tool("java"));
    // A class file's name is not ASCII; without a UTF-8 locale the VM does not find it.
    command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").args(["-Xmx128m", "-cp"]).arg(classes);
    command
}

fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(text: &str) -> Result<T> {
    text.parse().with_context(|| format!("not a number: {text}"))
}
