//! A service is killed at any moment, again and again, and started again: its JVMs go on with right results, counters never fall
//! unless they begin anew, and nothing is left in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use nprof_tests::code::mappings;
use nprof_tests::exposition::Exposition;
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::process::RemoteProcess;
use nprof_tests::random::Random;
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::serve::{Endpoint, Serve, UNGOVERNED};
use nprof_tests::shape_source;
use nprof_tests::shim::still_stubbed;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::cycles::shim_threads;
use crate::serve::{CALLS, DURATION};
use crate::stubs::{GENERATED, THREADS, call_shapes, must_be_right};

const PATTERN: &str = "targets.Generated::s*";
/// Newer VMs keep the code of calls that were bound anew: there is to be room for that of all rounds.
const CODE: &str = "-XX:ReservedCodeCacheSize=512m";
/// In so many rounds once a service is let live until it has counted exactly.
const EXACT_EVERY: usize = 4;
const ROUNDS: u64 = 10;
/// The longest that a service lives from its start, from when all is attached, and from when it is told to end, in milliseconds.
const STARTS: u64 = 1_500;
const SERVES: u64 = 1_000;
const ENDS: u64 = 150;
/// How long what a killed process leaves to the kernel may take to go.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);
/// A directory of this name was made to load the library. One that is old is removed by the next nprof that loads one.
const LOADING: &str = ".nprof-";
const LONG_AGO: Duration = Duration::from_secs(3_600);
/// What chooses the moments, unless `NPROF_TEST_SEED` says another number.
const SEED: u64 = 0x6e70_726f;

/// Two JVMs, one with stubs and one with probes, and what services had that were killed.
struct Course<'a> {
    jars: [Jar<'a>; 2],
    targets: [RemoteProcess; 2],
    directory: TempDir,
    random: Random,
    /// When the last one that answered had started, in seconds since 1970.
    started: f64,
    objects: BpfObjects,
    children: BTreeSet<u32>,
    /// What the first service, before any was killed, has counted by probes of the same calls.
    by_probes: Option<f64>,
    /// Scrapes of services that were killed later.
    scrapes: usize,
}

/// All counters of calls, by their labels.
type Counters = BTreeMap<String, f64>;

impl<'a> Course<'a> {
    fn start(jdk: &'a Jdk, seed: u64) -> Result<Self> {
        let jar = |name| Jar::of(jdk, name, "targets.Stressed");
        let jars = [jar("killed-stubs")?, jar("killed-probes")?];
        let target = |jar: &Jar<'_>| -> Result<RemoteProcess> {
            let mut target = RemoteProcess::stressed_from(jdk, jar.path(), &[CODE])?;
            call_shapes(&mut target, THREADS, 1)?;
            Ok(target)
        };
        let targets = [target(&jars[0])?, target(&jars[1])?];
        Ok(Self {
            jars,
            targets,
            directory: TempDir::new()?,
            random: Random::new(seed),
            started: 0.0,
            objects: BpfObjects::default(),
            children: BTreeSet::new(),
            by_probes: None,
            scrapes: 0,
        })
    }

    fn options(&self) -> Vec<&str> {
        let [stubs, probes] = [&self.jars[0], &self.jars[1]].map(Jar::name);
        [&UNGOVERNED[..], &["--stubs-for", stubs, "--jvm", stubs, "--jvm", probes, PATTERN]].concat()
    }

    /// Where the control socket is: always the same place, with what the one before has left there.
    fn control(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    fn serve(&mut self) -> Result<Serve> {
        let serve = Serve::start_at(&self.control(), &self.options())?;
        self.note(serve.pid())?;
        Ok(serve)
    }

    /// Notes what a service holds that is about to be killed.
    fn note(&mut self, pid: u32) -> Result<()> {
        // It may be so early that it has nothing, or have ended by itself.
        let BpfObjects { programs, maps, links } = BpfObjects::held_by(pid).unwrap_or_default();
        self.objects.programs.extend(programs);
        self.objects.maps.extend(maps);
        self.objects.links.extend(links);
        self.children.extend(children(pid).unwrap_or_default());
        Ok(())
    }

    /// One service that is killed while it starts, serves or ends, and JVMs that go on meanwhile.
    fn kill_one(&mut self, round: usize) -> Result<()> {
        for target in &mut self.targets {
            target.run("load 2")?;
        }
        match round % 3 {
            0 => self.kill_while_it_starts()?,
            1 => self.kill_while_it_serves()?,
            _ => self.kill_while_it_ends()?,
        }
        for target in &mut self.targets {
            must_be_right(&target.run("unload")?, None)?;
        }
        Ok(())
    }

    fn kill_while_it_starts(&mut self) -> Result<()> {
        let mut child = Serve::launch(&self.control(), &self.options())?;
        // No synchronisation: the moment is to be any.
        std::thread::sleep(self.random.within(STARTS));
        self.note(child.pid())?;
        child.kill()
    }

    fn kill_while_it_serves(&mut self) -> Result<()> {
        let serve = self.serve()?;
        let scraper = scraping(serve.clone());
        std::thread::sleep(self.random.within(SERVES));
        self.note(serve.pid())?;
        serve.kill()?;
        let (scrapes, started) = scraper.join().map_err(|panic| anyhow!("{panic:?}"))??;
        self.scrapes += scrapes;
        self.begins_anew(started)
    }

    fn kill_while_it_ends(&mut self) -> Result<()> {
        let serve = self.serve()?;
        serve.signal(Signal::TERM)?;
        std::thread::sleep(self.random.within(ENDS));
        serve.kill()
    }

    /// Checks that what says that counters begin anew does so. Nothing is known of a service that was killed before a scrape.
    fn begins_anew(&mut self, started: Option<f64>) -> Result<()> {
        let Some(started) = started else { return Ok(()) };
        ensure!(started > self.started, "started at {started}, and the one before at {}", self.started);
        self.started = started;
        Ok(())
    }

    /// Checks that a service that comes after those that were killed counts each call of both JVMs.
    fn must_count_exactly(&mut self) -> Result<Serve> {
        let serve = self.serve()?;
        for target in &mut self.targets {
            call_shapes(target, THREADS, ROUNDS)?;
        }
        let made = THREADS * ROUNDS * u64::try_from(shape_source::count())?;
        let counted = |samples: &Exposition, jvm| -> f64 {
            samples.with(CALLS, &[("jvm", jvm), ("class", GENERATED)]).map(|sample| sample.value).sum()
        };
        for jar in &self.jars {
            gone("calls that are not counted", || Ok(counted(&serve.samples()?, jar.name()) >= made as f64))?;
        }
        // All calls have ended, and each was counted by then.
        let samples = serve.samples()?;
        let [by_stubs, by_probes] = [&self.jars[0], &self.jars[1]].map(|jar| counted(&samples, jar.name()));
        // Some of these functions are a jump to another one, whose probe counts that, too: always as often.
        let expected = *self.by_probes.get_or_insert(by_probes);
        ensure!(
            by_stubs == made as f64 && by_probes == expected,
            "{made} calls: {by_stubs}, {by_probes} of {expected}"
        );
        let lost: Vec<_> = samples.with("nprof_losses_total", &[]).filter(|sample| sample.value != 0.0).collect();
        ensure!(lost.is_empty(), "{lost:?}");
        let started = samples.value("nprof_start_time_seconds", &[])?;
        self.begins_anew(started)?;
        Ok(serve)
    }

    /// Checks that after a clean end nothing is left: not in the JVMs, nor in the kernel, nor among files.
    fn must_leave_nothing(mut self) -> Result<()> {
        let loading = loading(Path::new("/tmp"))?;
        loading.iter().try_for_each(|path| make_old(path))?;
        let serve = self.must_count_exactly()?;
        ensure!(serve.finish()?.success(), "the last service has not ended well");
        for target in &self.targets {
            ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
            let mapped = mappings(target.pid())?;
            let shims = mapped.iter().filter(|m| m.executable && m.library().starts_with("libnprof_shim")).count();
            ensure!(shims <= 1, "the library is loaded {shims} times");
            gone("the library's thread", || Ok(shim_threads(target.pid())? == 0))?;
        }
        let left = self.objects.left_over()?;
        ensure!(left == BpfObjects::default(), "left in the kernel: {left:?}");
        gone("processes of those that were killed", || Ok(self.children.iter().all(|pid| !is_of_nprof(*pid))))?;
        let files: Vec<_> = std::fs::read_dir(self.directory.path())?.collect();
        ensure!(files.is_empty(), "{files:?}");
        ensure!(!loading.iter().any(|path| path.exists()), "left of loading the library: {loading:?}");
        self.targets.into_iter().try_for_each(RemoteProcess::exit)
    }
}

/// Scrapes until the service does not answer any more: no counter may fall. Gives how often it answered, and when it had started.
fn scraping(endpoint: Endpoint) -> JoinHandle<Result<(usize, Option<f64>)>> {
    std::thread::spawn(move || {
        let (mut before, mut scrapes, mut started) = (Counters::new(), 0, None);
        while let Ok(samples) = endpoint.samples() {
            let start = samples.value("nprof_start_time_seconds", &[])?;
            ensure!(started.is_none() || started == start, "{started:?}, then {start:?}");
            let now = counters(&samples);
            for (name, value) in &before {
                let later = now.get(name).with_context(|| format!("{name} is gone"))?;
                ensure!(later >= value, "{name} fell from {value} to {later}");
            }
            (before, started, scrapes) = (now, start, scrapes + 1);
        }
        Ok((scrapes, started))
    })
}

fn counters(samples: &Exposition) -> Counters {
    let count = format!("{DURATION}_count");
    let all = [CALLS, count.as_str()].into_iter().flat_map(|name| samples.with(name, &[]));
    all.map(|sample| (format!("{}{:?}", sample.name, sample.labels), sample.value)).collect()
}

/// The processes that a process has started.
fn children(pid: u32) -> Result<BTreeSet<u32>> {
    let mut children = BTreeSet::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

fn is_of_nprof(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("nprof"))
}

/// Waits until something is gone that goes by itself.
fn gone(what: &str, mut is_gone: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_gone()? {
        ensure!(Instant::now() < deadline, "left: {what}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The directories in which the library was being loaded.
fn loading(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let is_one =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LOADING));
    Ok(entries.collect::<Result<Vec<_>>>()?.into_iter().filter(is_one).collect())
}

/// Makes one as old as it is when somebody comes back later.
fn make_old(path: &Path) -> Result<()> {
    let long_ago = SystemTime::now().duration_since(UNIX_EPOCH)? - LONG_AGO;
    let time = Timespec { tv_sec: long_ago.as_secs().try_into()?, tv_nsec: 0 };
    utimensat(CWD, path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())?;
    Ok(())
}

fn killed(jdk: &Jdk, kills: usize) -> Result<()> {
    let seed = std::env::var("NPROF_TEST_SEED").map_or(Ok(SEED), |text| text.parse()).context("NPROF_TEST_SEED")?;
    say(&format!("{jdk}: {kills} kills, NPROF_TEST_SEED={seed}"));
    let mut course = Course::start(jdk, seed)?;
    ensure!(course.must_count_exactly()?.finish()?.success(), "the first service has not ended well");
    for round in 0..kills {
        course.kill_one(round).with_context(|| format!("kill {round}"))?;
        if round % EXACT_EVERY == EXACT_EVERY - 1 {
            course.must_count_exactly().with_context(|| format!("after kill {round}"))?.kill()?;
        }
    }
    say(&format!("{jdk}: {} scrapes of {kills} services that were killed, and no counter fell", course.scrapes));
    course.must_leave_nothing()
}

/// Check that a service may be killed at any moment, while it starts, serves or ends: the JVMs' results are right, the next one
/// counts each call, no counter falls while its start time is the same, and after a clean end nothing is left.
#[test]
fn three_times() -> Result<()> {
    traced_on_every_jdk(|jdk| killed(jdk, 3))
}

/// Check the same a hundred times.
#[test]
#[ignore = "takes minutes: run it by its name"]
fn a_hundred_times() -> Result<()> {
    traced_on_every_jdk(|jdk| killed(jdk, 100))
}
