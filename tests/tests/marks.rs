//! A stub's mark is good for one call: natives that go on to a native function by themselves, with the mark still in its
//! register, and every way in which the calls of one function are shared between its stub and its probe.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof::trace::Tracer;
use nprof_common::Mode;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

use crate::tiers::{SOON, counted, moved, traced_by_stubs};

const THREADS: u32 = 4;
const ROUNDS: u32 = 250;

/// Calls of each method by the name of the method, over all rows.
type Calls = BTreeMap<String, u64>;

fn seen(tracer: &Tracer) -> Calls {
    let of_onward =
        |(name, (calls, _)): (MethodName, (u64, _))| (name.class == "targets.Onward").then_some((name.method, calls));
    counted(&tracer.snapshot()).into_iter().filter_map(of_onward).collect()
}

/// Has the natives called, and checks how many calls of each are seen by that: those that the VM made, which are as many
/// for each of them, and with `others` those that the functions made themselves.
fn must_see(tracer: &Tracer, target: &mut RemoteProcess, others: bool, when: &str) -> Result<()> {
    let before = seen(tracer);
    let called = target.calls("onward", THREADS, ROUNDS)?;
    let by_vm = u64::from(THREADS * ROUNDS);
    ensure!(called.len() == 4 && called.iter().all(|function| function.made == function.counted), "{called:?}");
    let after = seen(tracer);
    for function in called {
        let name = &function.methods[0].method;
        let calls = after.get(name).context("no row")? - before.get(name).unwrap_or(&0);
        let expected = if others { function.made } else { by_vm };
        ensure!(calls == expected, "{when}: {calls} calls of {name} were seen, of {expected}");
    }
    Ok(())
}

/// Moves all methods, of which there are so many, from probes to stubs, and returns before the probes are taken away: both
/// are there until the tracer is asked to go on.
fn moved_to_both(tracer: &mut Tracer, methods: usize) -> Result<()> {
    let deadline = Instant::now() + SOON;
    tracer.prefer_stubs(true);
    while tracer.stubs() < methods {
        ensure!(Instant::now() < deadline, "no stubs within {SOON:?}");
        tracer.tick();
        thread::yield_now();
    }
    ensure!(!tracer.is_settled(), "the probes went as soon as the stubs had come");
    Ok(())
}

fn goes_on(jdk: &Jdk, mode: Mode, time_every: u32) -> Result<()> {
    let mut target = RemoteProcess::shapes_on(jdk, &[])?;
    // Bound now, all are there from the start.
    target.calls("onward", 1, 1)?;
    let mut tracer = traced_by_stubs(&target, mode, time_every)?;
    let methods = tracer.stubs();
    must_see(&tracer, &mut target, false, "stubs alone")?;
    for _ in 0..2 {
        tracer.prefer_stubs(false);
        must_see(&tracer, &mut target, true, "probes come, stubs may still be there")?;
        moved(&mut tracer, false)?;
        must_see(&tracer, &mut target, true, "probes alone")?;
        moved_to_both(&mut tracer, methods)?;
        must_see(&tracer, &mut target, true, "stubs and probes")?;
        moved(&mut tracer, true)?;
        must_see(&tracer, &mut target, false, "stubs alone again")?;
    }
    let losses = tracer.snapshot().losses;
    ensure!(losses.total() == 0, "{losses:?}");
    tracer.stop();
    target.exit()
}

/// Check that a function that is called, jumped to or entered again by another traced function is counted by its probe,
/// whoever counted the first call, while stubs and probes take over from one another; in each mode of the stubs.
#[test]
fn a_native_that_goes_on() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for (mode, time_every) in [(Mode::Count, 1), (Mode::Time, 1), (Mode::Time, 16)] {
            goes_on(jdk, mode, time_every).with_context(|| format!("{mode:?}, one of {time_every} timed"))?;
        }
        Ok(())
    })
}
