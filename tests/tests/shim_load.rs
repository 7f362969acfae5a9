//! The shim gets into running JVMs of all sorts, says no where it should, and leaves nothing in their file systems.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::discover::{self, Proc};
use nprof::model::{Jvm, Library, Pid};
use nprof::shim::{self, Connection, Refusal, Wanted, Warning};
use nprof_tests::container::{Container, Root, Sort};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_jdk, say, with_tools};
use nprof_tests::shim::library;
use nprof_tests::target::{Targets, sources};
use rustix::process::Signal;
use tempfile::TempDir;

/// More than any JVM here takes, and little enough for a test that a JVM does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The first JDK that says something of its own about agents.
const SAYS_SOMETHING: u32 = 21;
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A JVM as nprof sees it.
struct Seen {
    proc: Proc,
    jvm: Jvm,
    libjvm: Library,
}

impl Seen {
    fn at(pid: u32) -> Result<Self> {
        let proc = Proc::host();
        let jvm = proc.jvm(Pid(pid))?;
        let libjvm = discover::libjvm(&proc.libraries(jvm.pid)?).context("no libjvm")?.clone();
        Ok(Self { proc, jvm, libjvm })
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { proc: &self.proc, jvm: &self.jvm, libjvm: &self.libjvm, patience: PATIENCE, has_stubs: false }
    }

    fn load(&self) -> Result<Connection> {
        let connection = shim::load(&self.wanted()).with_context(|| format!("loading into {}", self.jvm.pid))?;
        let hello = connection.hello();
        ensure!(hello.stubs > 1_000 && hello.pool_start < hello.pool_end, "{hello:?}");
        Ok(connection)
    }

    /// The files of the shim that are mapped, and whether each is deleted.
    fn shims(&self) -> Result<Vec<bool>> {
        let libraries = self.proc.libraries(self.jvm.pid)?;
        Ok(libraries.iter().filter(|library| library.name().contains("nprof_shim")).map(|shim| shim.deleted).collect())
    }

    /// What nprof could have left in the target's directories.
    fn files(&self) -> Result<BTreeSet<String>> {
        let mut files = BTreeSet::new();
        for directory in ["root/tmp", "root/var/tmp", "root/dev/shm", "cwd"] {
            // A container need not have them all.
            let Ok(entries) = fs::read_dir(Path::new("/proc").join(self.jvm.pid.to_string()).join(directory)) else {
                continue;
            };
            for entry in entries {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name.contains("nprof-") && !name.contains("nprof-tests") || name.contains("attach_pid") {
                    files.insert(format!("{directory}/{name}"));
                }
            }
        }
        Ok(files)
    }

    /// Loads the shim, and checks that nothing but one mapping of a file that is gone stays.
    fn takes_it(&self) -> Result<()> {
        let before = self.files()?;
        for round in 0..2 {
            let connection = self.load().with_context(|| format!("round {round}"))?;
            ensure!(self.shims()? == [true], "not one mapping of a deleted file: {:?}", self.shims()?);
            ensure!(self.files()? == before, "files stay behind: {:?}", self.files()?);
            drop(connection);
        }
        Ok(())
    }

    /// The refusal of a JVM that is not to be asked, which has to come without delay.
    fn refusal(&self) -> Result<Refusal> {
        let began = Instant::now();
        let before = self.files()?;
        let error = shim::load(&self.wanted()).err().context("nothing stood against it")?;
        ensure!(began.elapsed() < Duration::from_secs(5), "{error} after {:?}", began.elapsed());
        ensure!(self.files()? == before && self.shims()?.is_empty(), "something stays: {:?}", self.files()?);
        let shim::Error::Refused(refusal) = error else { return Err(error.into()) };
        ensure!(refusal.advice().is_some_and(|advice| !advice.is_empty()), "no advice: {refusal}");
        Ok(refusal)
    }
}

/// Checks that a target takes the shim, and works on.
fn works_on_with_it(mut target: RemoteProcess) -> Result<String> {
    Seen::at(target.pid())?.takes_it()?;
    target.calls("all", 2, 20)?;
    target.last_words()
}

/// Checks that a JVM with these options refuses, and works on.
fn works_on_without_it(jdk: &Jdk, options: &[&str]) -> Result<Refusal> {
    let mut target = RemoteProcess::shapes_on(jdk, options)?;
    let refusal = Seen::at(target.pid())?.refusal()?;
    target.calls("all", 2, 20)?;
    target.exit()?;
    Ok(refusal)
}

/// How many lines a JVM has said about agents; the target makes it say other things too.
fn about_agents(said: &str) -> usize {
    said.lines().filter(|line| line.contains("agent") || line.contains("AgentLoading")).count()
}

fn open_files() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// Check that a running JVM takes the shim, once however often it is asked, that all files are gone when it has, that
/// nprof keeps none open, and that what the JVM says about it is what nprof has announced.
#[test]
fn a_running_jvm() -> Result<()> {
    on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let seen = Seen::at(target.pid())?;
        let announced = shim::check(&seen.wanted())?.contains(&Warning::Prints { pid: seen.jvm.pid });
        ensure!(announced == (jdk.version >= SAYS_SOMETHING), "{announced}");
        ensure!(shim::find(&seen.proc, &seen.jvm)?.is_none(), "a shim is there already");
        let before = open_files()?;
        seen.takes_it()?;
        ensure!(open_files()? == before, "descriptors stay open");
        ensure!(shim::find(&seen.proc, &seen.jvm)?.is_some_and(|shim| shim.library.deleted), "no shim is found");
        ensure!(shim::check(&seen.wanted())?.is_empty(), "the second time is announced too");
        let said = works_on_with_it(target)?;
        ensure!(about_agents(&said) == if announced { 3 } else { 0 }, "{said}");
        Ok(())
    })
}

/// Check that a JVM that was told to take agents says nothing, and that nprof does not announce that it would.
#[test]
fn a_jvm_that_agrees() -> Result<()> {
    on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes_on(jdk, &["-XX:+EnableDynamicAgentLoading"])?;
        ensure!(shim::check(&Seen::at(target.pid())?.wanted())?.is_empty(), "something is announced");
        let said = works_on_with_it(target)?;
        ensure!(about_agents(&said) == 0, "{said}");
        Ok(())
    })
}

/// Check that the JVM of another user takes the shim.
#[test]
fn another_users() -> Result<()> {
    let classes = Targets::get()?.classes();
    let reads = Command::new(NOBODY[0]).args(&NOBODY[1..]).args(["test", "-r"]).arg(&classes).status()?;
    if !reads.success() {
        say(&format!("not run: shim_load::another_users: that user cannot read {}", classes.display()));
        return Ok(());
    }
    on_every_jdk(|jdk| works_on_with_it(RemoteProcess::shapes_by(jdk, &NOBODY)?).map(drop))
}

/// Check that JVMs in containers take the shim: with namespaces for mounts, process ids and users, and in a plain chroot.
#[test]
fn in_containers() -> Result<()> {
    on_every_jdk(|jdk| {
        for (root, user_namespace) in [(Root::Pivot, false), (Root::Pivot, true), (Root::Chroot, false)] {
            let sort = Sort { root, user_namespace, ..Sort::default() };
            let mut container = Container::start(jdk, &sort)?;
            Seen::at(container.pid())?.takes_it().with_context(|| format!("{sort:?}"))?;
            container.calls("all", 2, 20)?;
        }
        Ok(())
    })
}

/// Check that the shim finds another place where nothing can be executed in `/tmp`.
#[test]
fn noexec_tmp() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut container = Container::start(jdk, &Sort::default())?;
        container.mount(&["-t", "tmpfs", "-o", "noexec,mode=1777", "none", "/tmp"])?;
        Seen::at(container.pid())?.takes_it()?;
        container.calls("all", 2, 20).map(drop)
    })
}

/// Check that a JVM takes the shim that may write to `/tmp` alone, and execute nothing there, as in a container with a read-only
/// root; and that nothing stays mounted.
#[test]
fn read_only_root() -> Result<()> {
    on_every_jdk(|jdk| {
        for user_namespace in [false, true] {
            let sort = Sort { user_namespace, ..Sort::default() };
            let mut container = Container::start(jdk, &sort)?;
            container.harden()?;
            let mounts = PathBuf::from(format!("/proc/{}/mountinfo", container.pid()));
            let before = fs::read_to_string(&mounts)?;
            Seen::at(container.pid())?.takes_it().with_context(|| format!("{sort:?}"))?;
            ensure!(fs::read_to_string(&mounts)? == before, "something stays mounted");
            container.calls("all", 2, 20)?;
        }
        Ok(())
    })
}

/// Check that the library loads on musl, as it was built, and runs there.
#[test]
fn on_musl() -> Result<()> {
    with_tools("musl", &["musl-gcc"], || {
        let directory = TempDir::new()?;
        let (source, host) = (sources().join("musl_host.c"), directory.path().join("host"));
        let compiled = Command::new("musl-gcc").arg("-o").arg(&host).arg(source).status()?;
        ensure!(compiled.success(), "musl-gcc: {compiled}");
        let output = Command::new(&host).arg(library()?).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.contains("no option 'nonsense'"), "{}: {said}", output.status);
        Ok(())
    })
}

/// Check that a JVM that the signal would end is never sent it: it listens without, and when its socket has been taken
/// away it is left alone.
#[test]
fn reduced_signals() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes_on(jdk, &["-Xrs"])?;
        let seen = Seen::at(target.pid())?;
        let socket = format!("/tmp/.java_pid{}", target.pid());
        let kept = format!("{socket}.kept");
        fs::rename(&socket, &kept).context("a JVM that leaves signals alone listens from its start on")?;
        let refusal = seen.refusal();
        fs::rename(&kept, &socket)?;
        let refusal = refusal?;
        ensure!(matches!(refusal, Refusal::ReducedSignals { .. }), "{refusal}");
        target.calls("all", 2, 20)?;
        works_on_with_it(target).map(drop)
    })
}

/// Check that a JVM that was told not to take agents, or not to listen at all, is left alone.
#[test]
fn told_not_to() -> Result<()> {
    on_every_jdk(|jdk| {
        let refusal = works_on_without_it(jdk, &["-XX:+DisableAttachMechanism"])?;
        ensure!(matches!(refusal, Refusal::AttachDisabled { .. }), "{refusal}");
        let refusal = works_on_without_it(jdk, &["-XX:-EnableDynamicAgentLoading"])?;
        ensure!(matches!(refusal, Refusal::AgentsDisabled { .. }), "{refusal}");
        Ok(())
    })
}

/// Check that a stopped process is left alone without delay, and takes the shim when it runs again.
#[test]
fn stopped() -> Result<()> {
    on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        target.signal(Signal::STOP)?;
        let seen = Seen::at(target.pid())?;
        // It stops when the signal reaches it, not when it is sent.
        let deadline = Instant::now() + PATIENCE;
        while seen.proc.standing(seen.jvm.pid)?.halted.is_none() {
            ensure!(Instant::now() < deadline, "it does not stop");
            std::thread::yield_now();
        }
        let refusal = seen.refusal();
        target.signal(Signal::CONT)?;
        let refusal = refusal?;
        ensure!(matches!(refusal, Refusal::Halted { .. }), "{refusal}");
        works_on_with_it(target).map(drop)
    })
}
