//! A service through a long time in which JVMs come and go, by stubs and by probes: each call is counted, and what the service and
//! its targets hold does not grow.

mod jvm;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use self::jvm::{End, Footprint, NUMBER, Soaked, Tier};
use crate::exposition::Exposition;
use crate::jar::Jar;
use crate::jdk::Jdk;
use crate::process;
use crate::serve::{Serve, UNGOVERNED};
use crate::usage::{Usage, megabytes};

/// JVMs that come and go and are alive at the same time.
const ALIVE: usize = 4;
/// One comes and one goes in each of these.
const ROUND: Duration = Duration::from_secs(1);
/// In so many rounds once the JVMs that stay are checked.
const CHECKED_EVERY: usize = 5;
/// How long ended JVMs stay in scrapes: as long as it takes to look at their counts.
const KEPT: &str = "120s";
/// What own memory may grow by, in bytes: it takes a hundred JVMs until the heap has the shape that it keeps. What nprof
/// knows of one JVM takes about 2 MB, so twenty that are not forgotten would be four times this.
const MEMORY_SLACK: u64 = 10 << 20;
/// What was still on its way, such as a connection that is being closed.
const SLACK: usize = 4;
/// Mappings of a JVM's own that come and go: stacks of the compiler's threads, say.
const MAPPINGS_SLACK: usize = 24;
/// As few rounds are looked at to say what is held at a time.
const FEWEST: usize = 4;

/// What was seen in a soak.
#[derive(Debug, Clone)]
pub struct Soak {
    /// JVMs that came and went.
    pub jvms: usize,
    /// Calls that all of them made, each of which was counted.
    pub calls: u64,
    /// Before the first JVM.
    pub idle: Usage,
    /// At the same point of every round: as many JVMs are traced.
    pub rounds: Vec<Usage>,
    /// After the last JVM.
    pub after: Usage,
    /// What the JVMs that stayed held, each time that they were checked.
    stayed: Vec<Vec<Footprint>>,
}

/// What a soak goes through.
struct Course<'a> {
    jars: Vec<(Tier, Jar<'a>)>,
    serve: Serve,
    /// Where JVMs count their calls.
    directory: TempDir,
    /// One of each JDK, from beginning to end.
    staying: Vec<Soaked>,
    coming: VecDeque<Soaked>,
    started: usize,
    calls: u64,
}

impl Soak {
    /// Serves JVMs that come and go, scraping every round. Of each JDK one stays.
    ///
    /// # Errors
    /// When a scrape fails, a call is not counted, a loss is, or a JVM is not noticed.
    pub fn run(jdks: &[Jdk], length: Duration) -> Result<Self> {
        let mut course = Course::prepare(jdks)?;
        let idle = Usage::of(course.serve.pid())?;
        let went = course.go(jdks.len(), length);
        let (rounds, stayed) = went.map_err(|error| course.serve.failure(&format!("was told of {error:?}")))?;
        let (jvms, calls, serve) = course.end()?;
        let after = settled(&serve, &idle)?;
        ensure!(serve.finish()?.success(), "the service did not end well");
        Ok(Self { jvms, calls, idle, rounds, after, stayed })
    }

    /// After the warm-up of a tenth of the rounds.
    #[must_use]
    pub fn early(&self) -> Usage {
        let tenth = self.rounds.len().div_ceil(10);
        let end = (tenth + self.some()).min(self.rounds.len());
        least(self.rounds.get(tenth..end).unwrap_or_default())
    }

    /// At the end.
    #[must_use]
    pub fn late(&self) -> Usage {
        least(&self.rounds[self.rounds.len().saturating_sub(self.some())..])
    }

    /// How many rounds are looked at each time.
    fn some(&self) -> usize {
        self.rounds.len().div_ceil(10).max(FEWEST)
    }

    /// Checks that nothing has grown, and that nothing of the JVMs is left.
    ///
    /// # Errors
    /// When something has.
    pub fn must_be_flat(&self) -> Result<()> {
        let (early, late) = (self.early(), self.late());
        ensure!(late.anonymous < early.anonymous + MEMORY_SLACK, "memory grew: {self}");
        ensure!(late.descriptors <= early.descriptors + SLACK, "descriptors grew: {self}");
        ensure!(late.threads <= early.threads + SLACK, "threads grew: {self}");
        ensure!(late.bpf == early.bpf, "BPF memory grew: {self}");
        ensure!(late.objects[2] <= early.objects[2] + SLACK, "BPF links grew: {self}");
        ensure!(self.after.objects == self.idle.objects, "BPF objects of ended JVMs are left: {self}");
        ensure!(self.after.descriptors <= self.idle.descriptors, "descriptors of ended JVMs are left: {self}");
        self.stayed.iter().try_for_each(|footprints| must_not_grow(footprints))
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jvms, calls, .. } = self;
        writeln!(f, "{jvms} JVMs, {ALIVE} at a time, made {calls} calls, and each was counted.\n")?;
        writeln!(f, "| | own memory, MB | resident, MB | BPF, MB | descriptors | threads | BPF links |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        let rows = [("before", self.idle), ("early", self.early()), ("late", self.late()), ("after", self.after)];
        for (when, usage) in rows {
            let Usage { anonymous, resident, bpf, descriptors, threads, objects, .. } = usage;
            let [own, resident, bpf] = [anonymous, resident, bpf].map(megabytes);
            let links = objects[2];
            writeln!(f, "| {when} | {own:.1} | {resident:.1} | {bpf:.1} | {descriptors} | {threads} | {links} |")?;
        }
        for footprints in &self.stayed {
            if let [.., last] = footprints[..] {
                writeln!(
                    f,
                    "\nA JVM that stayed, {} times exact: {:?}, then {last:?}.",
                    footprints.len(),
                    warm(footprints)
                )?;
            }
        }
        Ok(())
    }
}

impl<'a> Course<'a> {
    /// Packs a jar for each JDK and tier, and starts the service.
    fn prepare(jdks: &'a [Jdk]) -> Result<Self> {
        let jar = |tier: Tier, jdk| Jar::of(jdk, &format!("soak-{tier:?}"), "targets.Soaked").map(|jar| (tier, jar));
        let jars = Tier::ALL.into_iter().flat_map(|tier| jdks.iter().map(move |jdk| jar(tier, jdk)));
        let jars = jars.collect::<Result<Vec<_>>>()?;
        let label = format!("{NUMBER}={{env:{}}}", process::NUMBER);
        let mut options = [&UNGOVERNED[..], &["--keep-ended", KEPT, "--label", &label]].concat();
        for (tier, jar) in &jars {
            options.extend(["--jvm", jar.name()]);
            if *tier == Tier::Stub {
                options.extend(["--stubs-for", jar.name()]);
            }
        }
        let serve = Serve::start(&[&options[..], &jvm::NATIVES].concat())?;
        serve.samples()?;
        let directory = TempDir::new()?;
        Ok(Self { jars, serve, directory, staying: Vec::new(), coming: VecDeque::new(), started: 0, calls: 0 })
    }

    /// The whole course; what the service held in each round, and the JVMs that stay each time.
    fn go(&mut self, staying: usize, length: Duration) -> Result<(Vec<Usage>, Vec<Vec<Footprint>>)> {
        let (mut rounds, mut stayed) = (Vec::new(), vec![Vec::new(); staying]);
        self.start_staying(staying)?;
        let began = Instant::now();
        // On a machine that is busy with other things too, few rounds would say nothing.
        while began.elapsed() < length || rounds.len() < 2 * FEWEST {
            let round = Instant::now();
            self.one_goes_one_comes()?;
            if self.coming.len() == ALIVE {
                rounds.push(least_until(&self.serve, round + ROUND)?);
            }
            if rounds.len() % CHECKED_EVERY == 1 {
                self.check_staying(&mut stayed)?;
            }
            // The pace, not a synchronisation.
            std::thread::sleep(ROUND.saturating_sub(round.elapsed()));
        }
        self.check_staying(&mut stayed)?;
        Ok((rounds, stayed))
    }

    /// Starts the next JVM by one of the jars, and returns when it is traced and calls.
    fn next(&mut self, jar: usize) -> Result<Soaked> {
        let (tier, jar) = &self.jars[jar % self.jars.len()];
        let mut jvm = Soaked::start(jar, self.started, *tier, self.directory.path())?;
        self.started += 1;
        must_have(&self.serve, self.staying.len() + self.coming.len() + 1)?;
        jvm.begin(&self.serve)?;
        Ok(jvm)
    }

    /// Those by stubs come first among the jars.
    fn start_staying(&mut self, count: usize) -> Result<()> {
        for jar in 0..count {
            let jvm = self.next(jar)?;
            self.staying.push(jvm);
        }
        Ok(())
    }

    fn one_goes_one_comes(&mut self) -> Result<()> {
        if self.coming.len() == ALIVE {
            self.one_goes()?;
        }
        let jvm = self.next(self.started)?;
        self.coming.push_back(jvm);
        Ok(())
    }

    /// The oldest goes, in each of the ways by turns whatever its jar is, and its calls must all have been counted.
    fn one_goes(&mut self) -> Result<()> {
        let Some(jvm) = self.coming.pop_front() else { return Ok(()) };
        let way = End::ALL[self.started / self.jars.len() % End::ALL.len()];
        let calls = jvm.end(way)?;
        must_have(&self.serve, self.staying.len() + self.coming.len())?;
        calls.must_be_seen(&self.serve).with_context(|| format!("{way:?}"))?;
        self.calls += calls.made()?;
        Ok(())
    }

    /// Checks the counts of those that stay, and notes what they hold.
    fn check_staying(&mut self, footprints: &mut [Vec<Footprint>]) -> Result<()> {
        for (jvm, footprints) in self.staying.iter_mut().zip(footprints) {
            jvm.must_be_exact(&self.serve)?;
            footprints.push(jvm.footprint()?);
            jvm.load()?;
        }
        Ok(())
    }

    /// Ends all; gives how many JVMs there were, how many calls they made, and the service.
    fn end(mut self) -> Result<(usize, u64, Serve)> {
        let staying = std::mem::take(&mut self.staying);
        self.coming.extend(staying);
        while !self.coming.is_empty() {
            self.one_goes()?;
        }
        Ok((self.started, self.calls, self.serve))
    }
}

/// What a JVM held when a tenth of the time was over: it has loaded and compiled what it will.
fn warm(footprints: &[Footprint]) -> Option<Footprint> {
    footprints.get(footprints.len().div_ceil(10)).copied()
}

fn must_not_grow(footprints: &[Footprint]) -> Result<()> {
    let (Some(warm), Some(last)) = (warm(footprints), footprints.last()) else { return Ok(()) };
    ensure!(
        last.mappings <= warm.mappings + MAPPINGS_SLACK
            && last.descriptors <= warm.descriptors
            && last.threads <= warm.threads + SLACK,
        "a JVM grew: {warm:?}, then {last:?}"
    );
    Ok(())
}

/// Scrapes until so many JVMs are traced. Nothing may have been lost.
fn must_have(serve: &Serve, jvms: usize) -> Result<()> {
    let traced = |samples: &Exposition| Ok((samples.count("nprof_jvms", &[])?, jvms as u64));
    jvm::until(serve, traced, |seen, alive| seen == alive).context("traced JVMs")?;
    let samples = serve.samples()?;
    let lost: Vec<_> = samples.with("nprof_losses_total", &[]).filter(|sample| sample.value != 0.0).collect();
    ensure!(lost.is_empty(), "{lost:?}");
    Ok(())
}

/// The least that it holds in the rest of a round: the links of the JVM that has ended are closed in the background, which
/// takes the kernel longer than it may take to attach to the next one.
fn least_until(serve: &Serve, end: Instant) -> Result<Usage> {
    let mut seen = vec![Usage::of(serve.pid())?];
    while Instant::now() < end {
        // Nothing announces that they are closed.
        std::thread::sleep(Duration::from_millis(50));
        seen.push(Usage::of(serve.pid())?);
    }
    Ok(least(&seen))
}

/// What it holds when what it closes in the background is closed, or after a while.
fn settled(serve: &Serve, idle: &Usage) -> Result<Usage> {
    let mut usage = Usage::of(serve.pid())?;
    for _ in 0..100 {
        if usage.objects == idle.objects && usage.descriptors <= idle.descriptors {
            break;
        }
        // Nothing announces that it is closed.
        std::thread::sleep(Duration::from_millis(50));
        usage = Usage::of(serve.pid())?;
    }
    Ok(usage)
}

/// The least of each number: what is still being closed, such as the links of the JVM that has just ended, only adds.
fn least(rounds: &[Usage]) -> Usage {
    fn of<T: Ord + Copy + Default>(rounds: &[Usage], number: impl Fn(&Usage) -> T) -> T {
        rounds.iter().map(number).min().unwrap_or_default()
    }
    Usage {
        anonymous: of(rounds, |usage| usage.anonymous),
        resident: of(rounds, |usage| usage.resident),
        peak: of(rounds, |usage| usage.peak),
        bpf: of(rounds, |usage| usage.bpf),
        descriptors: of(rounds, |usage| usage.descriptors),
        threads: of(rounds, |usage| usage.threads),
        objects: [0, 1, 2].map(|kind| of(rounds, |usage| usage.objects[kind])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that growth is seen, and what does not grow passes.
    #[test]
    fn growth_is_seen() {
        let flat = Usage { anonymous: 20 << 20, descriptors: 30, objects: [4, 5, 12], ..Usage::default() };
        let idle = Usage { descriptors: 10, objects: [4, 5, 2], ..Usage::default() };
        let soak = |late: Usage, after: Usage| {
            let rounds = [[flat; 10], [late; 10]].concat();
            Soak { jvms: 20, calls: 0, idle, rounds, after, stayed: Vec::new() }
        };
        assert!(soak(flat, idle).must_be_flat().is_ok());
        assert!(soak(Usage { anonymous: 35 << 20, ..flat }, idle).must_be_flat().is_err());
        assert!(soak(Usage { descriptors: 40, ..flat }, idle).must_be_flat().is_err());
        assert!(soak(Usage { objects: [4, 5, 22], ..flat }, idle).must_be_flat().is_err());
        let mut closing = soak(flat, idle);
        closing.rounds[19] = Usage { descriptors: 38, objects: [4, 5, 20], ..flat };
        assert!(closing.must_be_flat().is_ok(), "the links of a JVM that has ended are being closed");
        assert!(soak(flat, Usage { objects: [4, 5, 3], ..idle }).must_be_flat().is_err());
        assert!(soak(flat, Usage { descriptors: 11, ..idle }).must_be_flat().is_err());
    }

    /// Check that a JVM that has more mappings, descriptors or threads at the end than when it was warm is seen.
    #[test]
    fn a_jvm_that_grows_is_seen() {
        let warm = Footprint { mappings: 300, descriptors: 20, threads: 15 };
        let grows = |last: Footprint| must_not_grow(&[warm, warm, last]).is_err();
        assert!(!grows(warm) && !grows(Footprint { mappings: 310, threads: 17, ..warm }));
        assert!(grows(Footprint { mappings: 330, ..warm }));
        assert!(grows(Footprint { descriptors: 21, ..warm }));
        assert!(grows(Footprint { threads: 20, ..warm }));
    }
}
