//! The BPF programs on a program without a JVM, every function of which is called a known number of times.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nprof::attach::{Collect, Engine, Seen, Session, Target};
use nprof::collect::Reader;
use nprof::discover::Proc;
use nprof::model::{
    ArgsWanted, COLLECTORS, Collectors, FileId, FileOffset, Library, LibraryId, Losses, Pid, Probe, ProbeCost, Sample,
    Site, Tracing,
};
use nprof::resolve::Image;
use nprof::trace::calibrate;
use nprof_common::rows::ROWS;
use nprof_common::{Loss, SLOTS};
use nprof_tests::child::{Child, Stream};
use nprof_tests::require::on_kernel;
use nprof_tests::target::Targets;

const FUNCTIONS: [&str; 6] = ["leaf", "parent", "nest", "outer", "tail", "moved"];
/// How far behind the entry of the last of them its probe sits.
const MOVED_BY: u64 = 3;
/// From one tick of a CPU to the next.
const PERIOD: Duration = Duration::from_millis(10);

/// The program, with a probe on each of its functions.
struct Traced {
    child: Child,
    session: Session,
    reader: Reader,
    libraries: [Library; 1],
    probes: Vec<Probe>,
}

impl Traced {
    fn start() -> Result<Self> {
        let program = Targets::get()?.library("calls");
        let mut child = Child::spawn("calls", &mut Command::new(&program))?;
        child.line_with_prefix(Stream::Stdout, "ready")?;
        let engine = Engine::load(FUNCTIONS.len().try_into()?)?;
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        let mut session = Session::new(engine, Target { pid: Pid(child.pid()), timed: true });
        let (libraries, probes) = ([library(program.clone())], probes(&program)?);
        let attached = session.attach(&libraries, &probes);
        ensure!(attached.attached.len() == FUNCTIONS.len(), "{attached:?}");
        Ok(Self { child, session, reader, libraries, probes })
    }

    fn run(&mut self, command: &str) -> Result<()> {
        self.child.send(command)?;
        self.child.line_with_prefix(Stream::Stdout, "done")?;
        Ok(())
    }

    /// Runs a command, and does something else again and again until it is done.
    fn run_while(&mut self, command: &str, mut act: impl FnMut(&mut Session, &[Library], &[Probe])) -> Result<()> {
        self.child.send(command)?;
        let Self { child, session, libraries, probes, .. } = self;
        std::thread::scope(|scope| {
            let done = scope.spawn(|| child.line_with_prefix(Stream::Stdout, "done"));
            while !done.is_finished() {
                act(session, libraries, probes);
            }
            done.join().map_err(|_panic| anyhow!("the reader panicked"))?.map(|_| ())
        })
    }

    /// What was recorded, by function.
    fn finish(mut self) -> (HashMap<&'static str, Sample>, Losses) {
        self.session.detach();
        let samples = (0u32..)
            .zip(FUNCTIONS)
            .filter_map(|(index, name)| Some((name, self.reader.sample(self.session.record(index)?)?)));
        (samples.collect(), self.reader.losses())
    }
}

/// Calls begun, ended with a time, and ended without.
fn counts(sample: &Sample) -> (u64, u64, u64) {
    (sample.stats.entered, sample.stats.histogram.iter().sum(), sample.stats.untimed)
}

fn lost(losses: &Losses, loss: Loss) -> u64 {
    losses.counts.iter().find(|(name, _)| *name == loss.as_str()).map_or(0, |(_, count)| *count)
}

fn library(program: PathBuf) -> Library {
    let file = FileId { major: 0, minor: 0, inode: 0 };
    Library { file, path: program.clone(), deleted: false, open_path: program, mappings: Vec::new() }
}

fn probes(program: &Path) -> Result<Vec<Probe>> {
    let image = Image::open(program)?;
    let probe = |(index, name)| {
        let entry = image.export(&format!("Java_Calls_{name}")).context("no such function")?;
        let offset = FileOffset(entry.0 + if name == "moved" { MOVED_BY } else { 0 });
        let site = Site { library: LibraryId(0), offset, entry, cost: ProbeCost::Emulated };
        Ok(Probe { index, site, methods: Vec::new() })
    };
    (0u32..).zip(FUNCTIONS).map(probe).collect()
}

/// Runs a test where BPF programs can be loaded.
fn traced(test: impl FnOnce(Traced) -> Result<()>) -> Result<()> {
    on_kernel(|| test(Traced::start()?))
}

/// Check that nested calls are counted to the unit from one thread and from 64, and that self time leaves out callees.
#[test]
fn counts_and_self_time() -> Result<()> {
    traced(|mut target| {
        target.run("l 1000")?;
        target.run("p 2000")?;
        let (samples, losses) = target.finish();
        let calls = 1_000 + 64 * 2_000;
        assert_eq!(counts(&samples["leaf"]), (calls, calls, 0));
        assert_eq!(counts(&samples["parent"]), (calls, calls, 0));
        assert_eq!(samples["parent"].stats.child_ns, samples["leaf"].stats.total_ns);
        assert_eq!(samples["leaf"].stats.child_ns, 0);
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that calls which a stub has counted are passed over where stubs are said to be, in either lane and while a
/// function is handed over, and that others are counted all the same.
#[test]
fn calls_that_a_stub_has_counted() -> Result<()> {
    traced(|mut target| {
        target.run("s 100")?;
        target.session.switches().expect_stubs(true);
        target.run("s 1000")?;
        target.run("l 20")?;
        // The link that "leaf" shares with others is made again.
        target.session.switches().allow(index_of("tail"), Tracing::Detached);
        assert!(target.session.settle(&target.libraries, &target.probes));
        target.run("s 1000")?;
        target.run("l 3")?;
        target.session.switches().expect_stubs(false);
        target.run("s 4000")?;
        let (samples, losses) = target.finish();
        let calls = 100 + 20 + 3 + 4000;
        assert_eq!(counts(&samples["leaf"]), (calls, calls, 0));
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that the mark of a call is good for that call alone: what a marked function calls with the mark still there is
/// counted, be it another one, by a call or a jump, or itself; also with a probe behind the entry.
#[test]
fn calls_that_a_marked_call_makes() -> Result<()> {
    traced(|mut target| {
        target.session.switches().expect_stubs(true);
        for tracing in [Tracing::Timed, Tracing::Counted] {
            target.session.switches().want((0..).take(FUNCTIONS.len()), tracing);
            for command in ["S 1000", "T 200", "N 10", "M 4000", "v 30"] {
                target.run(command)?;
            }
        }
        let (samples, losses) = target.finish();
        for (name, calls) in [("parent", 0), ("tail", 0), ("leaf", 1_200), ("nest", 9), ("moved", 30)] {
            let seen = samples.get(name).map(|sample| (counts(sample), sample.stats.counted));
            assert_eq!(seen, (calls > 0).then_some(((calls, calls, 0), calls)), "{name}");
        }
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that a function that is left to stubs has no probe, that those of others stay exact meanwhile, and that it gets
/// its probe back.
#[test]
fn leaving_a_function_to_stubs() -> Result<()> {
    traced(|mut target| {
        let leaf = index_of("leaf");
        target.session.switches().expect_stubs(true);
        target.run("p 10")?;
        for seen in [Seen::ByStubs, Seen::ByBoth, Seen::ByProbes] {
            target.session.switches().see([leaf], seen);
            let mut settled = false;
            target.run_while("p 1000", |session, libraries, probes| settled |= session.settle(libraries, probes))?;
            ensure!(settled == (seen != Seen::ByProbes), "{seen:?}");
            let traced = target.session.switches().traced(leaf).context("it is traced")?;
            ensure!(traced.tracing == Tracing::Timed && traced.unwatched.is_zero(), "{traced:?}");
        }
        let (samples, losses) = target.finish();
        let (seen, all) = (counts(&samples["leaf"]).0, counts(&samples["parent"]).0);
        ensure!(all == 64 * 3_010 && (64 * 1_010..64 * 3_010).contains(&seen), "{seen} of {all}");
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that recursion is followed to the kernel's limit, and that what is deeper is counted and said to be lost.
#[test]
fn recursion() -> Result<()> {
    traced(|mut target| {
        target.run("n 64")?;
        target.run("n 100")?;
        let (samples, losses) = target.finish();
        assert_eq!(counts(&samples["nest"]), (164, 128, 36));
        assert_eq!((lost(&losses, Loss::TooDeep), losses.total()), (36, 36));
        Ok(())
    })
}

/// Check that a function that jumps to another as its last act ends together with it, and that neither is lost.
#[test]
fn tail_calls() -> Result<()> {
    traced(|mut target| {
        target.run("t 5000")?;
        let (samples, losses) = target.finish();
        assert_eq!(counts(&samples["tail"]), (5_000, 5_000, 0));
        assert_eq!(counts(&samples["leaf"]), (5_000, 5_000, 0));
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that calls left by `longjmp` are counted and said to be untimed, and do not disturb those that follow.
#[test]
fn long_jumps() -> Result<()> {
    traced(|mut target| {
        target.run("j 1000")?;
        target.run("l 1000")?;
        let (samples, losses) = target.finish();
        // The last one left is noticed by the first call above it on the stack; there was none.
        let (begun, timed, untimed) = counts(&samples["outer"]);
        assert_eq!((begun, timed), (1_000, 0));
        assert!((999..=1_000).contains(&untimed), "{untimed}");
        assert_eq!(counts(&samples["parent"]), (1_000, 1_000, 0));
        assert_eq!((lost(&losses, Loss::Unreturned), losses.total()), (untimed, untimed));
        Ok(())
    })
}

/// Check that a call in which its thread ends lasts until then.
#[test]
fn threads_that_end_inside() -> Result<()> {
    traced(|mut target| {
        target.run("d 500")?;
        let (samples, losses) = target.finish();
        assert_eq!(counts(&samples["outer"]), (500, 500, 0));
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check more threads inside at once than there are slots: those whose slot is taken lose nothing, twice.
#[test]
fn more_threads_than_slots() -> Result<()> {
    traced(|mut target| {
        let threads = SLOTS + 300;
        target.run(&format!("m {threads}"))?;
        target.run(&format!("m {threads}"))?;
        let (samples, losses) = target.finish();
        let calls = 2 * u64::from(threads);
        assert_eq!((losses.total(), &losses), (0, &losses));
        assert_eq!(counts(&samples["outer"]), (calls, calls, 0));
        assert_eq!(counts(&samples["leaf"]), (calls, calls, 0));
        assert_eq!(samples["outer"].stats.child_ns, samples["leaf"].stats.total_ns);
        Ok(())
    })
}

/// The index of a function.
fn index_of(name: &str) -> u32 {
    (0u32..).zip(FUNCTIONS).find(|(_, function)| *function == name).map_or(u32::MAX, |(index, _)| index)
}

/// How often the probes of a function go or come in the test of what others lose by it.
const CHANGES: usize = 12;

/// Check that taking a function's probes away and putting them back, again and again, neither loses a call of the others
/// nor counts one twice, whether they are timed or counted.
#[test]
fn others_are_exact_while_one_goes_and_comes() -> Result<()> {
    for tracing in [Tracing::Timed, Tracing::Counted] {
        traced(|mut target| {
            target.session.switches().want((0..).take(FUNCTIONS.len()), tracing);
            let (mut changes, mut calls) = (0, 0);
            while changes < CHANGES {
                target.run_while("p 10000", |session, libraries, probes| {
                    let allowed = if changes % 2 == 0 { Tracing::Detached } else { Tracing::Timed };
                    session.switches().allow(index_of("tail"), allowed);
                    assert!(session.settle(libraries, probes));
                    changes += 1;
                })?;
                calls += 64 * 10_000;
            }
            let (samples, losses) = target.finish();
            for function in ["leaf", "parent"] {
                let stats = &samples[function].stats;
                let (timed, counted) = if tracing == Tracing::Timed { (calls, 0) } else { (0, calls) };
                assert_eq!((counts(&samples[function]), stats.counted), ((timed, timed, 0), counted), "{function}");
            }
            assert_eq!(losses.total(), 0);
            Ok(())
        })?;
    }
    Ok(())
}

/// Check that a function which is counted for a while, and then timed again, leaves no call without its return: each is counted once,
/// with its time or without, and nothing is lost.
#[test]
fn a_counted_function_is_timed_again() -> Result<()> {
    traced(|mut target| {
        let (mut changes, mut calls) = (0, 0);
        while changes < CHANGES {
            target.run_while("p 10000", |session, libraries, probes| {
                for allowed in [Tracing::Counted, Tracing::Timed] {
                    session.switches().allow(index_of("leaf"), allowed);
                    session.settle(libraries, probes);
                }
                changes += 1;
            })?;
            calls += 64 * 10_000;
        }
        // Each change may have been over before the first call, or after the last one.
        for allowed in [Tracing::Counted, Tracing::Timed] {
            target.session.switches().allow(index_of("leaf"), allowed);
            target.session.settle(&target.libraries, &target.probes);
            target.run("p 10")?;
            calls += 64 * 10;
        }
        let (samples, losses) = target.finish();
        let (entered, timed, untimed) = counts(&samples["leaf"]);
        let counted = samples["leaf"].stats.counted;
        assert_eq!((entered + counted, timed, untimed), (calls, entered, 0));
        assert!(timed > 0 && counted > 0, "{timed} timed, {counted} counted");
        assert_eq!(losses.total(), 0);
        Ok(())
    })
}

/// Check that the kernel's verifier takes the programs, whatever they collect.
#[test]
fn loads_whatever_is_collected() -> Result<()> {
    on_kernel(|| {
        let taking = Collect { stack_bytes: 32 << 10, max_stacks: 100, period: PERIOD, ..Collect::nothing() };
        let slow = Collect { slow: true, args: ArgsWanted::Contents, ..taking };
        let counters =
            Collectors::named(&COLLECTORS.each_ref().map(|collector| collector.name)).unwrap_or_default().counters();
        let collects: [(&str, Collect); 11] = [
            ("what calls consume", Collect { counters, ..Collect::nothing() }),
            ("off-CPU times", Collect { off_cpu: true, ..Collect::nothing() }),
            ("off-CPU times for stubs", Collect { off_cpu: true, rows: ROWS, ..Collect::nothing() }),
            ("what calls of stubs consume", Collect { counters, rows: ROWS, ..Collect::nothing() }),
            ("calls", Collect { calls: true, ..Collect::nothing() }),
            ("stacks of calls", Collect { returns: true, ..taking }),
            ("stacks of stubs", Collect { stubs: true, ..taking }),
            ("slow calls with arguments", Collect { off_cpu: true, stubs: true, ..slow }),
            ("stacks inside", Collect { inside: true, ..taking }),
            ("stacks everywhere", Collect { everywhere: true, ..taking }),
            (
                "everything",
                Collect {
                    off_cpu: true,
                    calls: true,
                    returns: true,
                    stubs: true,
                    inside: true,
                    everywhere: true,
                    counters,
                    rows: ROWS,
                    ..taking
                },
            ),
        ];
        for (what, collect) in collects {
            for stack_bytes in [0, 8 << 10, 32 << 10, u32::MAX] {
                Engine::load_collecting(8, &Collect { stack_bytes, ..collect })
                    .with_context(|| format!("{what}, {stack_bytes} bytes of a stack"))?;
            }
        }
        Ok(())
    })
}

/// Check that nprof finds out what a probe costs here, and that a function can be detached without loss to others.
#[test]
fn calibration() -> Result<()> {
    on_kernel(|| {
        let governing = calibrate(&Proc::host(), &Engine::load(8)?)?;
        let costs = governing.costs;
        for place in [0, 1] {
            ensure!(costs.counted_ns[place] > 10.0, "a probe costs something: {costs:?}");
        }
        ensure!(costs.timed_ns[0] > costs.counted_ns[0], "two probes cost more than one: {costs:?}");
        ensure!(governing.detaches, "the probes of a hit run in another order than expected");
        Ok(())
    })
}
