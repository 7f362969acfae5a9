//! Programs and JVMs that start are noticed as they do, each once, and the noticing leaves nothing in the kernel.

use std::collections::HashSet;
use std::future::Future;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::attach::ExecEvents;
use nprof::discover::{JvmWatch, Proc};
use nprof::model::Pid;
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_kernel, traced_on_every_jdk};
use tokio::time::{timeout, timeout_at};

/// The promise: from a JVM's being ready to its being noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Longer than any time from one look at all processes to the next.
const A_SCAN_LATER: Duration = Duration::from_secs(60);

/// Runs programs, one to three, one after the other in one process; waits for its end and returns which it was.
fn run(programs: usize) -> Result<Pid> {
    let script = ["exit", "exec true", "exec sh -c 'exec true'"][programs - 1];
    let mut child = Command::new("sh").arg("-c").arg(script).spawn()?;
    let pid = Pid(child.id());
    ensure!(child.wait()?.success(), "sh fails");
    Ok(pid)
}

/// What is told up to the start of a process, that of the process included.
async fn told_until(events: &mut ExecEvents, last: Pid) -> Result<Vec<Pid>> {
    let mut told = Vec::new();
    while told.last() != Some(&last) {
        told.push(timeout(PATIENCE, events.next()).await.context("nothing is told any more")??);
    }
    Ok(told)
}

fn wait_for<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test)
}

/// Check that every program that starts is told of once, in order, also when one process runs several; and that the
/// kernel keeps nothing of it afterwards.
#[test]
fn every_program_is_told_of() -> Result<()> {
    on_kernel(|| {
        wait_for(async {
            let before = BpfObjects::held_by(std::process::id())?;
            let mut events = ExecEvents::open()?;
            let mut expected = Vec::new();
            for round in 0..50 {
                let programs = 1 + round % 3;
                expected.extend(vec![run(programs)?; programs]);
            }
            let last = run(1)?;
            let ours: HashSet<Pid> = expected.iter().copied().collect();
            let mut told = told_until(&mut events, last).await?;
            told.retain(|pid| ours.contains(pid));
            assert_eq!(told, expected);
            assert_eq!(events.lost(), 0);
            leaves_nothing(events, &before)
        })
    })
}

/// Check that each start is told of or counted as missed when nobody reads, and that those after it are told again.
#[test]
fn what_does_not_fit_is_counted() -> Result<()> {
    const STARTS: u64 = 4_500;
    on_kernel(|| {
        wait_for(async {
            let mut events = ExecEvents::open()?;
            let script = format!("i=0; while [ $i -lt {STARTS} ]; do /bin/true; i=$((i+1)); done");
            ensure!(Command::new("sh").arg("-c").arg(script).status()?.success(), "sh fails");
            ensure!(events.lost() > 0, "all of {STARTS} fit");
            // Room for one more, which is then the last.
            events.next().await?;
            let last = run(1)?;
            let told = 1 + told_until(&mut events, last).await?.len() as u64;
            // Other programs of the host may have started as well.
            ensure!(told + events.lost() >= STARTS + 2, "{told} told, {} lost", events.lost());
            Ok(())
        })
    })
}

/// The programs of the host, and the JVMs that they become.
struct Host {
    events: ExecEvents,
    watch: JvmWatch,
    proc: Proc,
    /// What has been reported and when.
    reported: Vec<(Pid, Instant)>,
}

impl Host {
    fn open() -> Result<Self> {
        let (events, watch) = (ExecEvents::open()?, JvmWatch::new(Instant::now()));
        Ok(Self { events, watch, proc: Proc::host(), reported: Vec::new() })
    }

    /// Waits for the next piece of news or the next look, and looks.
    async fn step(&mut self) -> Result<()> {
        let due = self.watch.next_look().into();
        if let Ok(started) = timeout_at(due, self.events.next()).await {
            self.watch.candidate(started?, Instant::now());
        }
        self.look(Instant::now());
        Ok(())
    }

    fn look(&mut self, now: Instant) {
        let new = self.watch.look(&self.proc, now);
        self.reported.extend(new.iter().map(|jvm| (jvm.pid, Instant::now())));
    }

    /// When each report of a process was made.
    fn reports(&self, pid: u32) -> Vec<Instant> {
        self.reported.iter().filter(|(reported, _)| reported.0 == pid).map(|(_, at)| *at).collect()
    }
}

/// JVMs, and when each was ready.
fn start_jvms(jdk: &Jdk) -> Result<Vec<(RemoteProcess, Instant)>> {
    (0..3).map(|_| Ok((RemoteProcess::shapes(jdk)?, Instant::now()))).collect()
}

/// Check that JVMs that start are noticed within a second of being ready, each once, also by later looks at all
/// processes; and that the kernel keeps nothing of it afterwards.
#[test]
fn jvms_are_noticed() -> Result<()> {
    traced_on_every_jdk(|jdk| wait_for(notices(jdk)))
}

async fn notices(jdk: &Jdk) -> Result<()> {
    let before = BpfObjects::held_by(std::process::id())?;
    let mut host = Host::open()?;
    let jdk = jdk.clone();
    let mut starting = tokio::task::spawn_blocking(move || start_jvms(&jdk));
    let jvms = loop {
        tokio::select! {
            started = &mut starting => break started??,
            step = host.step() => step?,
        }
    };
    for (jvm, ready) in &jvms {
        let deadline = *ready + NOTICED_WITHIN;
        while host.reports(jvm.pid()).is_empty() {
            timeout_at(deadline.into(), host.step()).await.with_context(|| format!("{} not noticed", jvm.pid()))??;
        }
        ensure!(host.reports(jvm.pid())[0] <= deadline, "{} noticed late", jvm.pid());
    }
    host.look(Instant::now() + A_SCAN_LATER);
    for (jvm, _) in jvms {
        ensure!(host.reports(jvm.pid()).len() == 1, "{} is reported again", jvm.pid());
        jvm.exit()?;
    }
    assert_eq!(host.events.lost(), 0);
    leaves_nothing(host.events, &before)
}

/// Ends the news and looks for what the kernel keeps.
fn leaves_nothing(events: ExecEvents, before: &BpfObjects) -> Result<()> {
    let during = BpfObjects::held_by(std::process::id())?;
    let held = BpfObjects {
        programs: &during.programs - &before.programs,
        maps: &during.maps - &before.maps,
        links: &during.links - &before.links,
    };
    ensure!(!held.programs.is_empty() && !held.maps.is_empty() && !held.links.is_empty(), "holds nothing: {held:?}");
    drop(events);
    let left = held.left_over()?;
    ensure!(left == BpfObjects::default(), "left in the kernel: {left:?}");
    Ok(())
}
