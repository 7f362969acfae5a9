//! What the threads of several JVMs use at the same time, where stubs count in all of them: each JVM's own, to the unit, in memory
//! that it shares with nobody, and that goes with it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof::attach::{Collect, Engine, Error};
use nprof_common::rows::ROWS;
use nprof_tests::jar::Jar;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::nprof::{Trace, UNGOVERNED};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::{on_kernel, say, traced_on_two_jdks};
use nprof_tests::serve::Serve;

const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
const CALLS: u64 = THREADS * ROUNDS;
/// What each of two JVMs is told to consume in a call, of which its results are a multiple.
const AMOUNTS: [u64; 2] = [33, 21];
/// How long a map may take to be let go of.
const LET_GO_WITHIN: Duration = Duration::from_secs(20);

/// Two JVMs of different versions, with jars of their own.
struct Two<'a> {
    jars: [Jar<'a>; 2],
    targets: [RemoteProcess; 2],
}

impl Two<'_> {
    /// Has each call a native, in both at the same time.
    fn consume(&mut self, what: &str) -> Result<()> {
        let run = |(target, amount): (&mut RemoteProcess, u64)| {
            target.run(&format!("consume {what} {THREADS} {ROUNDS} {amount}")).map(drop)
        };
        let [one, other] = &mut self.targets;
        std::thread::scope(|scope| {
            let beside = scope.spawn(move || run((one, AMOUNTS[0])));
            run((other, AMOUNTS[1]))?;
            beside.join().map_err(|_panic| anyhow::anyhow!("the other has panicked"))?
        })
    }
}

fn with_two(test: impl FnOnce(Two<'_>) -> Result<()>) -> Result<()> {
    traced_on_two_jdks(|jdks| {
        let jar = |place: usize| Jar::of(jdks[place], ["rows-one", "rows-other"][place], "targets.Consuming");
        let jars = [jar(0)?, jar(1)?];
        let target = |place: usize| RemoteProcess::consuming_from(jdks[place], jars[place].path());
        let mut two = Two { targets: [target(0)?, target(1)?], jars };
        // What is done once in a process is done now.
        ["touch", "copy", "lock", "nap"].into_iter().try_for_each(|what| two.consume(what))?;
        test(two)
    })
}

/// The protection and the size of each BPF map that a process has mapped.
fn maps_of(pid: u32) -> Result<Vec<(String, u64)>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let of = |line: &str| -> Option<(String, u64)> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        Some((words.next()?.to_owned(), end? - start?))
    };
    maps.lines().filter(|line| line.contains("bpf-map")).map(|line| of(line).context("a line of maps")).collect()
}

/// Looks until something is so that nothing announces.
fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LET_GO_WITHIN;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}: not within {LET_GO_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Check what a JVM's natives have consumed, and where their time went.
fn must_have(report: &Report, (pid, amount): (u32, u64), tier: &str) -> Result<()> {
    let report = report.of(pid);
    for (what, name, of_one) in [
        ("touch", "faults", amount),
        ("touch", "syscalls", 3),
        ("copy", "read_bytes", amount),
        ("copy", "written_bytes", amount),
        ("lock", "lock_waits", amount),
    ] {
        let row = report.methods.iter().find(|row| row.method == what).with_context(|| format!("no row of {what}"))?;
        let collected = row.collected.as_ref().context("nothing was collected")?;
        let is_right = row.calls == CALLS && row.tier == tier && collected.get(name) == Some(&(of_one * CALLS));
        ensure!(is_right, "{name} should be {}: {row:?}", of_one * CALLS);
    }
    let nap = report.methods.iter().find(|row| row.method == "nap").context("no row of nap")?;
    let (on_cpu_ns, off_cpu_ns) = nap.on_cpu_ns.zip(nap.off_cpu_ns).with_context(|| format!("{nap:?}"))?;
    ensure!(nap.self_ns == Some(on_cpu_ns + off_cpu_ns) && off_cpu_ns > on_cpu_ns, "{nap:?}");
    Ok(())
}

/// Check that stubs in two JVMs, traced together, say of each what it consumed, as probes do.
#[test]
fn all_jvms_have_their_own() -> Result<()> {
    with_two(|mut two| {
        let pids = [two.targets[0].pid(), two.targets[1].pid()];
        for tier in ["kernel", "stub"] {
            let collect = ["--collect", "faults,io,syscalls,locks"];
            let trace = Trace::start_all(&[&["--tier", tier, "targets.Consuming"], &collect[..]].concat())?;
            ["touch", "copy", "lock", "nap"].into_iter().try_for_each(|what| two.consume(what))?;
            if tier == "stub" {
                for pid in pids {
                    let maps = maps_of(pid)?;
                    ensure!(maps == [("r--s".to_owned(), 512 << 10)], "{maps:?}");
                }
            }
            let report = trace.finish()?;
            report.must_be_lossless()?;
            for jvm in pids.into_iter().zip(AMOUNTS) {
                must_have(&report, jvm, tier).with_context(|| format!("by {tier}, in {jvm:?}"))?;
            }
        }
        for pid in pids {
            ensure!(maps_of(pid)?.is_empty(), "{:?}", maps_of(pid)?);
        }
        two.targets.into_iter().try_for_each(RemoteProcess::exit)
    })
}

/// Check that a service says of each JVM what its stubs have collected; that the map of one that ends goes with it, and those of all
/// if the service is killed.
#[test]
fn a_service_leaves_nothing() -> Result<()> {
    with_two(|mut two| {
        let [one, other] = [0, 1].map(|place| two.jars[place].name().to_owned());
        let jvms = ["--jvm", &one, "--jvm", &other, "--stubs-for", &one, "--stubs-for", &other];
        let options = [&UNGOVERNED[..], &jvms, &["--collect", "io", "targets.Consuming"]].concat();
        let serve = Serve::start(&options)?;
        let held = || -> Result<BTreeSet<u32>> { Ok(BpfObjects::held_by(serve.pid())?.maps) };
        two.consume("copy")?;
        two.consume("nap")?;
        let samples = serve.samples()?;
        for (jvm, amount) in [&one, &other].into_iter().zip(AMOUNTS) {
            let of = |method| [("jvm", jvm.as_str()), ("method", method)];
            let read = samples.count("nprof_native_call_read_bytes_total", &of("copy"))?;
            ensure!(read == amount * CALLS, "{jvm}: {read}");
            let seconds = |part: &str| -> Result<f64> {
                let value = samples.value(&format!("nprof_native_call_{part}_seconds_total"), &of("nap"))?;
                value.with_context(|| part.to_owned())
            };
            let (own, on_cpu, off_cpu) = (seconds("self")?, seconds("on_cpu")?, seconds("off_cpu")?);
            ensure!((own - on_cpu - off_cpu).abs() < 1e-9 && off_cpu > on_cpu, "{own} is not {on_cpu} and {off_cpu}");
        }
        let Two { targets: [first, mut second], .. } = two;
        let before = held()?;
        first.exit()?;
        until("the map of a JVM that has ended", || Ok(held()?.len() < before.len()))?;
        let gone = BpfObjects { maps: &before - &held()?, ..BpfObjects::default() };
        ensure!(gone.maps.len() == 1 && gone.left_over()? == BpfObjects::default(), "{gone:?}");
        second.run(&format!("consume copy {THREADS} {ROUNDS} 7"))?;
        let of = [("jvm", other.as_str()), ("method", "copy")];
        let read = serve.samples()?.count("nprof_native_call_read_bytes_total", &of)?;
        ensure!(read == (AMOUNTS[1] + 7) * CALLS, "{read}");
        let all = BpfObjects::held_by(serve.pid())?;
        drop(serve);
        let left = all.left_over()?;
        ensure!(left == BpfObjects::default() && maps_of(second.pid())?.is_empty(), "{left:?}");
        second.run("consume copy 1 10 7")?;
        second.exit()
    })
}

/// Check that JVMs beyond the memory for rows get none and are told so, and that others do again when one has gone.
#[test]
fn memory_is_bounded() -> Result<()> {
    on_kernel(|| {
        let wanted = Collect { off_cpu: true, rows: ROWS, ..Collect::nothing() };
        let (engine, _feeds) = Engine::load_collecting(8, &wanted)?;
        let Some(maps) = engine.row_maps() else {
            say("not run: this kernel puts a probe into every process");
            return Ok(());
        };
        let mut made = (0..32).map(|_jvm| maps.make(1)).collect::<Result<Vec<_>, _>>()?;
        ensure!(matches!(maps.make(1), Err(Error::RowsUsedUp { jvms: 32 })), "more than 64 MiB");
        made.pop();
        maps.make(1)?;
        Ok(())
    })
}
