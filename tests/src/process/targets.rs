//! The targets of the tests, and how each is started.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{NUMBER, RemoteProcess};
use crate::jdk::Jdk;
use crate::source_tree::SourceTree;
use crate::target::{Targets, compile_with};

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

    /// The natives of `Shapes.java` from a jar, by whose name it is known then, on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn shapes_from(jdk: &Jdk, jar: &Path, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("-jar").arg(jar).arg(targets.library("libshapes.so")))
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
        Self::consuming_with(jdk, &[])
    }

    /// The same on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn consuming_with(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.args(options).arg("targets.Consuming").arg(targets.library("libconsuming.so"));
        Self::start(jdk, &mut command)
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

    /// Natives that call all kinds of JNI functions (`Functions.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn functions(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.args(options).arg("targets.Functions").arg(targets.library("libfunctions.so")))
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

    /// A thread that stays inside a native and makes calls there (`Lingering.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn lingering(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("targets.Lingering").arg(targets.library("liblingering.so")))
    }

    /// Methods that call each other in known numbers (`Trees.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn trees(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.args(options).arg("targets.Trees"))
    }

    /// Those of `Handing.java`, with more options of the VM.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn handing(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.args(options).arg("targets.Handing"))
    }

    /// Methods that fill the stack (`Filled.java`), on a JVM with these options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn filled(jdk: &Jdk, options: &[&str]) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        Self::start(jdk, command.args(options).arg("targets.Filled"))
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

    /// A thread that only computes, beside two thousand natives that nobody calls (`Computing.java`).
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn computing(jdk: &Jdk) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        Self::start(jdk, command.arg("targets.Computing").arg(targets.library("libmany.so")))
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

    /// The same from a jar that starts it, by whose name it is known then.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn callers_from(jdk: &Jdk, jar: &Path) -> Result<Self> {
        let targets = Targets::get()?;
        let mut command = java(jdk, &targets.classes());
        command.args(["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames", "-jar"]).arg(jar);
        Self::start(jdk, command.arg(targets.library("libcallers.so")))
    }

    /// The Java compiler, which compiles a tree of sources (`Compiler.java`) and writes classes into a directory, in a VM with options.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn compiler(jdk: &Jdk, options: &[&str], tree: &SourceTree, classes: &Path) -> Result<Self> {
        let mut command = java(jdk, &Targets::get()?.classes());
        // A heap that does not change its size is one thing less that changes.
        command.args(["-Xms1g", "-Xmx1g"]).args(options).arg("targets.Compiler");
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
}

fn java(jdk: &Jdk, classes: &Path) -> Command {
    let mut command = Command::new(jdk.tool("java"));
    // A class file's name is not ASCII; without a UTF-8 locale the VM does not find it.
    command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").args(["-Xmx128m", "-cp"]).arg(classes);
    command
}
