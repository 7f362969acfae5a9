//! One link for several processes that run one program, every function of which is called a known number of times.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nprof::attach::{Collect, Engine, Neighbours, Session, Target, Terms, reach};
use nprof::collect::Reader;
use nprof::discover::Proc;
use nprof::model::{FileId, FileOffset, Library, LibraryId, Pid, Probe, ProbeCost, Reach, Site, Tracing};
use nprof::resolve::Image;
use nprof_tests::child::{Child, Stream};
use nprof_tests::exposition::Exposition;
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_kernel;
use nprof_tests::serve::Serve;
use nprof_tests::target::{Targets, cargo_target_dir};
use nprof_tests::usage::Usage;
use tempfile::TempDir;

const FUNCTIONS: [&str; 3] = ["leaf", "parent", "tail"];
const LEAF: u32 = 0;
const PARENT: u32 = 1;
const TAIL: u32 = 2;
/// What `p` does: so many threads.
const THREADS: u64 = 64;
/// How long sessions may take until all is as they want it.
const PATIENCE: Duration = Duration::from_secs(180);
/// One for all of them, and none that has to go.
const ONE: (usize, usize) = (1, 0);
const NONE: (usize, usize) = (0, 0);
/// How often functions move in the test of what that does to their counts.
const CHANGES: usize = 4;
const BREAKPOINT: u8 = 0xcc;

/// Asks the host who has a file mapped, and takes everything for proven.
struct Mapped;

impl Neighbours for Mapped {
    fn mapped_by_others(&self, files: &BTreeSet<FileId>, members: &BTreeSet<Pid>) -> BTreeSet<FileId> {
        Proc::host().mapped_by_others(files, members)
    }

    fn proven(&self, _library: &Library, entries: &[FileOffset]) -> BTreeSet<FileOffset> {
        entries.iter().copied().collect()
    }
}

/// A program of its own, in a file that nobody else has mapped.
struct Program {
    _directory: TempDir,
    path: PathBuf,
    engine: Arc<Engine>,
}

impl Program {
    fn new(reach: Reach) -> Result<Self> {
        let directory = TempDir::new_in(cargo_target_dir())?;
        let path = directory.path().canonicalize()?.join("calls");
        std::fs::copy(Targets::get()?.library("calls"), &path)?;
        Ok(Self { _directory: directory, path, engine: Self::engine(reach)? })
    }

    fn engine(reach: Reach) -> Result<Arc<Engine>> {
        let collect = Collect { shares: true, ..Collect::nothing() };
        Ok(Arc::new(Engine::load_reaching(64, &collect, reach)?))
    }

    fn start(&self) -> Result<Child> {
        let mut child = Child::spawn("calls", &mut Command::new(&self.path))?;
        child.line_with_prefix(Stream::Stdout, "ready")?;
        Ok(child)
    }

    /// So many processes, traced by one link.
    fn crowd(&self, processes: usize) -> Result<Crowd> {
        let mut crowd = Crowd { engine: Arc::clone(&self.engine), children: Vec::new(), traced: Vec::new() };
        for _ in 0..processes {
            crowd.join(self)?;
        }
        crowd.settle(ONE)?;
        Ok(crowd)
    }
}

/// Processes that are traced.
struct Crowd {
    engine: Arc<Engine>,
    children: Vec<Child>,
    traced: Vec<Traced>,
}

/// One of them, without the process.
struct Traced {
    session: Session,
    reader: Reader,
    libraries: Vec<Library>,
    probes: Vec<Probe>,
    /// How often it has called each of "leaf" and "parent".
    calls: u64,
}

impl Crowd {
    fn join(&mut self, program: &Program) -> Result<()> {
        let child = program.start()?;
        let pid = Pid(child.pid());
        let libraries = Proc::host().libraries(pid)?;
        let probes = probes(&program.path, &libraries)?;
        let mut session = Session::new(Arc::clone(&self.engine), Target { pid, timed: true });
        session.begin_sharing(Some(Terms(1)));
        let attached = session.attach(&libraries, &probes);
        ensure!(attached.attached.len() == FUNCTIONS.len(), "{attached:?}");
        let reader = Reader::new(self.engine.stats(), self.engine.losses()?, self.engine.shards());
        self.children.push(child);
        self.traced.push(Traced { session, reader, libraries, probes, calls: 0 });
        Ok(())
    }

    /// Lets the sessions do what is due until there are so many shared links and nothing is due.
    fn settle(&mut self, links: (usize, usize)) -> Result<()> {
        let began = Instant::now();
        while self.engine.shared_links() != links || self.traced.iter().any(|one| one.session.is_sharing_due()) {
            self.traced.iter_mut().for_each(Traced::share);
            ensure!(began.elapsed() < PATIENCE, "{:?} shared links, not {links:?}", self.engine.shared_links());
        }
        Ok(())
    }

    /// Has all of them call from many threads, and does something else again and again until they are done.
    fn run_while(&mut self, calls: u64, mut act: impl FnMut(&mut [Traced])) -> Result<()> {
        for (child, traced) in self.children.iter_mut().zip(&mut self.traced) {
            child.send(&format!("p {calls}"))?;
            traced.calls += THREADS * calls;
        }
        let Self { children, traced, .. } = self;
        std::thread::scope(|scope| {
            let wait = |child: &'_ mut Child| child.line_with_prefix(Stream::Stdout, "done").map(drop);
            let waits: Vec<_> = children.iter_mut().map(|child| scope.spawn(move || wait(child))).collect();
            while !waits.iter().all(|wait| wait.is_finished()) {
                act(traced);
            }
            waits.into_iter().try_for_each(|wait| wait.join().map_err(|_panic| anyhow!("a reader panicked"))?)
        })
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        self.run_while(calls, |_| std::thread::yield_now())
    }

    fn is_counted_exactly(&self) -> Result<()> {
        self.traced.iter().try_for_each(Traced::is_counted_exactly)
    }
}

impl Traced {
    /// The calls of a function that have begun.
    fn begun(&self, index: u32) -> Option<u64> {
        Some(self.reader.begun(self.session.record(index)?))
    }

    fn share(&mut self) {
        if self.session.is_sharing_due() {
            self.session.share(&self.libraries, &self.probes, &Mapped);
        }
    }

    fn is_counted_exactly(&self) -> Result<()> {
        for index in [LEAF, PARENT] {
            let record = self.session.record(index).context("no record")?;
            let stats = self.reader.sample(record).context("no sample")?.stats;
            let (timed, all) = (stats.histogram.iter().sum::<u64>(), stats.entered + stats.counted);
            let seen = (all, timed, stats.untimed);
            ensure!(
                seen == (self.calls, stats.entered, 0),
                "{}: {seen:?} of {}",
                FUNCTIONS[index as usize],
                self.calls
            );
        }
        let losses = self.reader.losses();
        ensure!(losses.total() == 0, "{losses:?}");
        Ok(())
    }
}

fn probes(program: &Path, libraries: &[Library]) -> Result<Vec<Probe>> {
    let image = Image::open(program)?;
    let place = libraries.iter().position(|library| library.path == program).context("not mapped")?;
    let probe = |(index, name)| {
        let offset = image.export(&format!("Java_Calls_{name}")).context("no such function")?;
        let site = Site { library: LibraryId(place), offset, entry: offset, cost: ProbeCost::Emulated };
        Ok(Probe { index, site, methods: Vec::new() })
    };
    (0u32..).zip(FUNCTIONS).map(probe).collect()
}

/// Whether the first instruction of "leaf" is a breakpoint in a process.
fn has_probe(program: &Path, child: &Child) -> Result<bool> {
    let libraries = Proc::host().libraries(Pid(child.pid()))?;
    let probe = probes(program, &libraries)?.swap_remove(LEAF as usize);
    let offset = probe.site.offset.0;
    let mappings = &libraries[probe.site.library.0].mappings;
    let mapping = mappings.iter().rfind(|mapping| mapping.offset.0 <= offset).context("no mapping")?;
    let mut byte = [0];
    let memory = File::open(format!("/proc/{}/mem", child.pid()))?;
    memory.read_exact_at(&mut byte, mapping.start.0 + offset - mapping.offset.0)?;
    Ok(byte == [BREAKPOINT])
}

/// Runs a test where BPF programs can be loaded.
fn with_program(test: impl FnOnce(&Program) -> Result<()>) -> Result<()> {
    on_kernel(|| test(&Program::new(reach()?)?))
}

/// Check that each of several processes has exactly its own calls by one link, also where the kernel filters nothing.
#[test]
fn several_processes() -> Result<()> {
    on_kernel(|| {
        for reach in [reach()?, Reach::Everyone] {
            let program = Program::new(reach)?;
            let mut crowd = program.crowd(4)?;
            crowd.run(1_000)?;
            crowd.is_counted_exactly()?;
        }
        Ok(())
    })
}

/// Check that no call is lost or counted twice while functions go to a shared link and back again and again, which they do when
/// one of the processes wants something else.
#[test]
fn to_a_shared_link_and_back() -> Result<()> {
    with_program(|program| {
        let mut crowd = program.crowd(3)?;
        let engine = Arc::clone(&program.engine);
        let (mut changes, mut wants_other) = (0, false);
        while changes < CHANGES {
            crowd.run_while(1_000, |traced| {
                traced.iter_mut().for_each(Traced::share);
                if engine.shared_links() == if wants_other { NONE } else { ONE } {
                    wants_other = !wants_other;
                    traced[0].session.change_terms(Some(Terms(if wants_other { 2 } else { 1 })));
                    changes += 1;
                }
            })?;
        }
        crowd.is_counted_exactly()
    })
}

/// Check that a function is detached in one process and stays in the others, and that all calls of these are counted, also of
/// what had been in the same link.
#[test]
fn one_function_of_one_process_is_detached() -> Result<()> {
    with_program(|program| {
        let mut crowd = program.crowd(3)?;
        crowd.traced[0].session.switches().allow(TAIL, Tracing::Detached);
        let mut has_left = false;
        while !has_left || program.engine.shared_links() != ONE {
            crowd.run_while(1_000, |traced| {
                for one in &mut *traced {
                    one.share();
                    one.session.settle(&one.libraries, &one.probes);
                }
                has_left |= !traced[0].session.switches().has_probe(TAIL);
            })?;
        }
        crowd.is_counted_exactly()?;
        for (child, traced) in crowd.children.iter_mut().zip(&mut crowd.traced) {
            child.send("t 1000")?;
            child.line_with_prefix(Stream::Stdout, "done")?;
            // "tail" jumps to "leaf".
            let calls = [LEAF, PARENT, TAIL].map(|index| traced.begun(index).unwrap_or(0));
            let of_tail = u64::from(traced.session.switches().has_probe(TAIL)) * 1_000;
            ensure!(calls == [traced.calls + 1_000, traced.calls, of_tail], "{calls:?} after {}", traced.calls);
        }
        Ok(())
    })
}

/// Check that a process that joins is served by the link that is there, from the first call on, that one which ends is no harm to
/// the others, and that there is no shared link any more when one lives on without being traced.
#[test]
fn joining_and_leaving() -> Result<()> {
    with_program(|program| {
        let mut crowd = program.crowd(2)?;
        crowd.join(program)?;
        ensure!(crowd.traced[2].session.switches().has_probe(LEAF) && program.engine.shared_links() == ONE);
        crowd.run(500)?;
        crowd.is_counted_exactly()?;
        crowd.children.remove(0).kill()?;
        crowd.traced.remove(0).session.give_back();
        crowd.run(500)?;
        ensure!(program.engine.shared_links() == ONE, "{:?}", program.engine.shared_links());
        crowd.join(program)?;
        crowd.run(500)?;
        crowd.is_counted_exactly()?;
        let mut left = crowd.traced.remove(0);
        left.session.detach();
        let untraced = crowd.children.remove(0);
        crowd.settle(NONE)?;
        crowd.run(500)?;
        crowd.is_counted_exactly()?;
        ensure!(!has_probe(&program.path, &untraced)? && has_probe(&program.path, &crowd.children[0])?);
        Ok(())
    })
}

/// Check that a process which is not traced pays for nothing where it has mapped the file before, and does not for long where it
/// does so later; and that its calls are not counted.
#[test]
fn a_process_that_is_not_traced() -> Result<()> {
    with_program(|program| {
        let mut crowd = program.crowd(2)?;
        let mut stranger = program.start()?;
        ensure!(has_probe(&program.path, &stranger)?, "a link without a filter reaches everyone");
        stranger.send("l 100000")?;
        stranger.line_with_prefix(Stream::Stdout, "done")?;
        crowd.settle(NONE)?;
        ensure!(!has_probe(&program.path, &stranger)? && has_probe(&program.path, &crowd.children[0])?);
        crowd.run(500)?;
        crowd.is_counted_exactly()?;
        drop(crowd);
        // Another engine has never seen the stranger, and looks.
        let mut crowd = Crowd { engine: Program::engine(reach()?)?, children: Vec::new(), traced: Vec::new() };
        crowd.join(program)?;
        crowd.join(program)?;
        crowd.settle(NONE)?;
        crowd.run(500)?;
        ensure!(!has_probe(&program.path, &stranger)?);
        crowd.is_counted_exactly()
    })
}

/// Check that a service traces a native of several JVMs by as few links as of one, and counts every call.
#[test]
fn jvms_of_a_service() -> Result<()> {
    on_kernel(|| {
        let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
        let jar = Jar::of(&jdk, "shared-link", "targets.Bench")?;
        let mut jvms = Vec::new();
        let mut links = Vec::new();
        for number in 0..3 {
            let mut jvm = RemoteProcess::small_bench(&jdk, jar.path(), number)?;
            jvm.run("push 1")?;
            jvms.push(jvm);
            if number == 1 {
                continue;
            }
            let serve = Serve::start(&["--max-overhead", "off", "--jvm", jar.name(), "targets.Entries::pushFirst"])?;
            let links_now = || Ok::<_, anyhow::Error>(Usage::of(serve.pid())?.objects[2]);
            let of_one = *links.first().unwrap_or(&links_now()?);
            links.push(of_one);
            serve.scrape_until("as few links as of one JVM", |_| Ok(links_now()? == of_one))?;
            for (count, jvm) in (1u32..).zip(&mut jvms) {
                jvm.run(&format!("push {}", 1_000 * count))?;
            }
            let calls = 1_000 * (1..=jvms.len()).sum::<usize>();
            let calls_of = |samples: &Exposition| -> f64 {
                samples.with("nprof_native_calls_total", &[]).map(|sample| sample.value).sum()
            };
            let samples = serve.samples()?;
            ensure!(calls_of(&samples) == calls as f64, "{} of {calls}: {samples:?}", calls_of(&samples));
            ensure!(serve.finish()?.success());
        }
        jvms.into_iter().try_for_each(RemoteProcess::exit)
    })
}
