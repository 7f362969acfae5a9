//! What libraries ask of the VM that others wrote (lz4, snappy, JNA, SQLite's driver) is what an agent counts that stands in front of the
//! VM's functions itself: function by function, to the unit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::{Jdk, OLDEST_SUPPORTED};
use nprof_tests::jni_report::{Jni, JniReport, JniStubReport};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::target::{Targets, compile_with};
use tempfile::TempDir;

/// Debian's jars, and the libraries beside them.
const JARS: [&str; 4] = ["lz4-java", "snappy-java", "jna", "sqlite-jdbc"];
const NATIVES: &str = "/usr/lib/x86_64-linux-gnu/jni";
/// How a library is put to work, and the packages of its classes.
const LIBRARIES: [(&str, &str); 4] =
    [("lz4", "net.jpountz."), ("snappy", "org.xerial.snappy."), ("jna", "com.sun.jna."), ("sqlite", "org.sqlite.")];
const TIMES: u32 = 200;
/// Whose natives read commands, answer, and put the agent's functions into the table. The libraries have none of them called.
const OF_COMMANDS: [&str; 2] = ["java.io.", "targets."];
/// What `Object::getClass` calls, which libraries and commands have called: it is left to the stubs.
const OF_BOTH: &str = "GetObjectClass";
/// What the read calls that waits for a command since before the probes came: whose call that is nobody knows.
const BY_THE_WAITING: &str = "SetByteArrayRegion";

/// Calls by function.
type Calls = BTreeMap<String, u64>;

/// A JVM with the libraries and the agent.
struct Target {
    process: RemoteProcess,
    /// The functions, by their place in the table.
    functions: BTreeMap<usize, String>,
    counts: PathBuf,
    _scratch: TempDir,
}

impl Target {
    /// Starts it, and has each library do everything once: what is loaded, and looked up once, is.
    fn start(jdk: &Jdk) -> Result<Self> {
        let (scratch, targets) = (tempfile::tempdir()?, Targets::get()?);
        let mut path: Vec<PathBuf> =
            JARS.map(|jar| Path::new("/usr/share/java").join(jar).with_extension("jar")).into();
        path.push(targets.classes());
        path.push(compile_with(jdk, OLDEST_SUPPORTED, &["Libraries"], &path, &scratch.path().join("classes"))?);
        let (agent, counts) = (targets.library("libtable.so"), scratch.path().join("counts"));
        let mut java = Command::new(jdk.tool("java"));
        java.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS").arg("-Xmx256m");
        // The VM looks natives up when it compiles them: not at any later time.
        java.arg("-Xbatch");
        java.arg(format!("-agentpath:{}={}", agent.display(), counts.display()));
        java.arg(format!("-Djava.library.path={NATIVES}")).arg("-cp").arg(std::env::join_paths(&path)?);
        let mut process = RemoteProcess::program(java.arg("targets.Libraries").arg(&agent))?;
        for (work, _) in LIBRARIES {
            process.run(&format!("wrapped {work} 20"))?;
        }
        Ok(Self { process, functions: functions(jdk)?, counts, _scratch: scratch })
    }

    /// What the agent has counted so far. It takes no call to know.
    fn counted(&self) -> Result<Calls> {
        let bytes = std::fs::read(&self.counts)?;
        let (words, _) = bytes.as_chunks::<8>();
        let of =
            |(place, function): (&usize, &String)| Some((function.clone(), u64::from_ne_bytes(*words.get(*place)?)));
        Ok(self.functions.iter().filter_map(of).collect())
    }

    /// What it has counted since.
    fn counted_since(&self, before: &Calls) -> Result<Calls> {
        let more = |(function, after): (String, u64)| {
            let calls = after - before[&function];
            (calls > 0).then_some((function, calls))
        };
        Ok(self.counted()?.into_iter().filter_map(more).collect())
    }

    /// Waits until the thread that answers waits for the next command: it calls functions to answer, too.
    fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        // Nothing announces it: there is only looking again.
        while !self.reads()? {
            ensure!(begin.elapsed() < PATIENCE, "nobody waits for commands");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether a thread is reading what it is told.
    fn reads(&self) -> Result<bool> {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.process.pid()))?.flatten();
        Ok(threads.any(|thread| {
            std::fs::read_to_string(thread.path().join("syscall")).is_ok_and(|call| call.starts_with("0 0x0 "))
        }))
    }
}

/// Check that probes on the VM's functions see all that natives of each library call, and no others, but for the functions that they say they do
/// not see. The agent stands in front of these functions just while the library works.
#[test]
fn by_probes() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Target::start(jdk)?;
        for (work, package) in LIBRARIES {
            // A read that begins while the probes come is half seen.
            target.settle()?;
            let before = target.counted()?;
            let jni = Jni::start(target.process.pid(), &["--format", "json"])?;
            target.process.run(&format!("wrapped {work} {TIMES}"))?;
            let (report, mut expected) = (jni.finish()?, target.counted_since(&before)?);
            expected.retain(|function, _| function != OF_BOTH && !report.not_seen.contains(function));
            must_be_alike(&seen_beside_commands(&report), &expected).context(work)?;
            must_lose_nothing(&report.losses)?;
            let its =
                report.methods.iter().filter(|row| row.class.as_ref().is_some_and(|class| class.starts_with(package)));
            let calls: u64 = its.map(|row| row.jni_calls).sum();
            ensure!(calls >= u64::from(TIMES), "{work}: its natives call hardly anything: {:?}", report.methods);
        }
        target.process.exit()
    })
}

/// Check that stubs in the table, in front of the agent's functions, count what it counts, whoever calls.
#[test]
fn by_stubs() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Target::start(jdk)?;
        target.process.run("wrap")?;
        for (work, _) in LIBRARIES {
            target.settle()?;
            let jni = Jni::start(target.process.pid(), &["--tier", "stub", "--format", "json"])?;
            let before = target.counted()?;
            target.process.run(&format!("work {work} {TIMES}"))?;
            target.settle()?;
            let expected = target.counted_since(&before)?;
            let report: JniStubReport = serde_json::from_str(&jni.text()?)?;
            let seen = report.functions.into_iter().map(|(function, row)| (function, row.calls));
            must_be_alike(&seen.filter(|(_, calls)| *calls > 0).collect(), &expected).context(work)?;
            must_lose_nothing(&report.losses)?;
        }
        target.process.exit()
    })
}

/// The table as the JDK's header has it: each function is a pointer, and so is what is reserved.
fn functions(jdk: &Jdk) -> Result<BTreeMap<usize, String>> {
    let header = std::fs::read_to_string(jdk.home.join("include/jni.h"))?;
    let (_, table) = header.split_once("struct JNINativeInterface_ {").context("no table in the header")?;
    let (table, _) = table.split_once("};").context("a table without an end")?;
    let pointers = table.lines().filter_map(|line| {
        let name = line.split_once("JNICALL *").or_else(|| line.split_once("void *reserved"))?.1;
        Some(name.split([')', ';']).next().unwrap_or_default())
    });
    // The names of what is reserved are digits now.
    let named = pointers.enumerate().filter(|(_, name)| name.starts_with(|first: char| first.is_alphabetic()));
    Ok(named.map(|(place, name)| (place, name.to_owned())).collect())
}

/// What was seen of the library's natives, of others that it calls, and of the VM itself; not of those that read a command and answer.
fn seen_beside_commands(report: &JniReport) -> Calls {
    let is_of = |class: &Option<String>, package| class.as_ref().is_some_and(|class| class.starts_with(package));
    let rows = report.methods.iter().filter(|row| !OF_COMMANDS.iter().any(|package| is_of(&row.class, package)));
    let mut seen = Calls::new();
    for (function, made) in rows.flat_map(|row| &row.jni) {
        *seen.entry(function.clone()).or_default() += made.calls;
    }
    seen.remove(OF_BOTH);
    if let Some(calls) = seen.remove(BY_THE_WAITING).filter(|calls| *calls > 1) {
        seen.insert(BY_THE_WAITING.to_owned(), calls - 1);
    }
    seen
}

fn must_be_alike(seen: &Calls, expected: &Calls) -> Result<()> {
    ensure!(expected.values().sum::<u64>() >= u64::from(TIMES), "hardly anything is called: {expected:?}");
    ensure!(seen == expected, "{seen:?}, not {expected:?}");
    Ok(())
}

fn must_lose_nothing(losses: &BTreeMap<String, u64>) -> Result<()> {
    let lost: Vec<_> = losses.iter().filter(|(_, lost)| **lost > 0).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(())
}
