//! A JVM that has its classes changed by a test, and the hooks that they call.

use std::ffi::OsStr;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nprof::enhance::Hooks;
use nprof_tests::jdk::{Jdk, OLDEST_SUPPORTED};
use nprof_tests::target;
use tempfile::TempDir;

/// The hooks of `NprofTree.java`.
pub(crate) const HOOKS: Hooks<'static> = Hooks {
    class: "java/lang/NprofTree",
    enter: "enter",
    leave: "leave",
    threw: "threw",
    hands: "hands",
    runs: "runs",
    ran: "ran",
};

/// How long it may take to change all classes of a JDK, in seconds: it only ends what hangs.
const PATIENCE: &str = "600";

/// All classes of a JDK, in one part.
pub(crate) const ALL_OF_JDK: [&str; 3] = ["jdk", "0", "1"];

/// Gives the new class file for one; nothing if it is to stay.
pub(crate) type Change<'a> = dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>> + 'a;

/// Compiled hooks and programs.
pub(crate) struct Prepared {
    directory: TempDir,
}

/// What a JVM said of the classes that were changed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Those that it took.
    pub(crate) taken: usize,
    /// Those that could not be loaded as they are.
    pub(crate) unusable: usize,
    /// Those that it refused, and why.
    pub(crate) errors: Vec<String>,
}

impl Outcome {
    /// Adds what another JVM said.
    pub(crate) fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.unusable += other.unusable;
        self.errors.extend(other.errors);
    }
}

impl Prepared {
    /// Compiles the hooks, and `programs` of `targets/programs`.
    pub(crate) fn new(programs: &[&str]) -> Result<Self> {
        let jdks = Jdk::find_all()?;
        let jdk = jdks.first().context("no JDK to compile with")?;
        let directory = TempDir::new()?;
        let prepared = Self { directory };
        let hooks = target::sources().join("programs/hooks");
        let version = OLDEST_SUPPORTED.to_string();
        let mut javac = Command::new(jdk.tool("javac"));
        javac.args(["-nowarn", "-Xlint:-options", "-source", &version, "-target", &version, "--patch-module"]);
        javac.arg(format!("java.base={}", hooks.display()));
        javac.arg("-d").arg(prepared.hooks()).arg(hooks.join("java/lang/NprofTree.java"));
        succeed(&mut javac)?;
        target::compile_with(jdk, OLDEST_SUPPORTED, programs, &[], &prepared.classes())?;
        Ok(prepared)
    }

    /// Where the hooks are.
    pub(crate) fn hooks(&self) -> PathBuf {
        self.directory.path().join("hooks")
    }

    /// Where the programs are.
    pub(crate) fn classes(&self) -> PathBuf {
        self.directory.path().join("classes")
    }

    /// A JVM that has the hooks in `java.base`, and verifies all classes, those of the JDK too.
    pub(crate) fn java(&self, jdk: &Jdk) -> Command {
        let mut java = Command::new("timeout");
        java.arg(PATIENCE).arg(jdk.tool("java"));
        java.arg("--patch-module").arg(format!("java.base={}", self.hooks().display()));
        java.args([
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:+BytecodeVerificationLocal",
            "-XX:+BytecodeVerificationRemote",
        ]);
        java.env_remove("JAVA_TOOL_OPTIONS").env("LC_ALL", "C.UTF-8");
        java
    }

    /// Has classes changed by `change`, which gives nothing for those that stay.
    pub(crate) fn transform(&self, jdk: &Jdk, what: &[impl AsRef<OsStr>], change: &mut Change<'_>) -> Result<Outcome> {
        let agent = self.agent()?;
        let mut java = self.java(jdk);
        // The VM's own warnings would stand among what the program says.
        java.args(["-Xlog:disable", "--add-modules", "ALL-SYSTEM", "-Xmx1g"])
            .arg(format!("-javaagent:{}", agent.display()));
        java.arg("-cp").arg(&agent).arg("targets.Transformed").args(what);
        let mut process = java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let requests = BufReader::new(process.stdout.take().context("a pipe")?);
        let answers = BufWriter::new(process.stdin.take().context("a pipe")?);
        let outcome = converse(requests, answers, change);
        // It ends by itself when its pipes are closed, and is killed by `timeout` otherwise.
        let status = process.wait()?;
        let outcome = outcome.with_context(|| format!("the JVM ended with {status}"))?;
        ensure!(status.success(), "the JVM ended with {status}");
        Ok(outcome)
    }

    /// The agent as a jar.
    fn agent(&self) -> Result<PathBuf> {
        let path = self.directory.path().join("agent.jar");
        if !path.exists() {
            let jdks = Jdk::find_all()?;
            let manifest = self.directory.path().join("manifest");
            std::fs::write(&manifest, "Premain-Class: targets.Transformed\nCan-Retransform-Classes: true\n")?;
            let mut jar = Command::new(jdks.first().context("no JDK")?.tool("jar"));
            jar.arg("cfm").arg(&path).arg(&manifest).arg("-C").arg(self.classes()).arg(".");
            succeed(&mut jar)?;
        }
        Ok(path)
    }
}

fn converse(mut requests: impl Read, mut answers: impl Write, change: &mut Change<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    loop {
        let mut kind = [0];
        requests.read_exact(&mut kind)?;
        match kind[0] {
            b'C' => {
                let answer = change(&sized(u32_of(&mut requests)?, &mut requests)?)?.unwrap_or_default();
                answers.write_all(&u32::try_from(answer.len())?.to_be_bytes())?;
                answers.write_all(&answer)?;
                answers.flush()?;
            }
            b'E' => {
                let mut length = [0; 2];
                requests.read_exact(&mut length)?;
                let text = sized(u16::from_be_bytes(length).into(), &mut requests)?;
                outcome.errors.push(String::from_utf8_lossy(&text).into_owned());
            }
            b'S' => {
                outcome.taken = u32_of(&mut requests)? as usize;
                outcome.unusable = u32_of(&mut requests)? as usize;
                return Ok(outcome);
            }
            other => bail!("the JVM said {other}"),
        }
    }
}

fn u32_of(from: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn sized(length: u32, from: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Runs a program that must succeed; what it wrote.
pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(out.into_owned())
}

/// The class files of a directory and those below it.
pub(crate) fn class_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(class_files(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "class") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
