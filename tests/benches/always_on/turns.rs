//! Turns: the same work with stubs in one state after the other.

use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nprof::control::{Request, ask};
use nprof_tests::jdk::Jdk;
use nprof_tests::serve::Serve;

use crate::awake::Awake;
use crate::work::{Running, Work};

/// What is done at a call, and the rule for it. The first costs next to nothing.
pub(crate) const STATES: [(&str, &str); 3] =
    [("off", "*::*=off"), ("count", "*::*=count"), ("count and time", "*::*=time")];
/// The turns of a round: each state is as far from its middle as any other, so that what drifts is not taken for a difference.
const TURNS: [usize; 2 * STATES.len()] = [0, 1, 2, 2, 1, 0];
/// So many turns works a JVM before it is measured, with stubs: then it has compiled what it will compile, however busy the
/// machine is.
const WARM_UP: usize = 1_500;
/// After each so many rounds it is looked at what they say.
const BATCH: usize = 200;
/// The governor looks at longer times than a turn, in a third of which calls are timed: with the whole budget of a service (2 %) it would let
/// them cost three times in each of these turns what it lets them cost a program whose calls are timed all the time.
const THIRD_OF_THE_BUDGET: &str = "0.67%";
/// So many rounds follow that only tell how often natives are called.
const COUNTED: usize = 20;
/// How long the stubs are left alone after they were switched.
const REST: Duration = Duration::from_millis(5);

/// What the turns of one state in one round took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// CPU time of the JVM's Java threads, in seconds.
    pub cpu: f64,
    /// Mean of the turns' 99th percentiles of the time to an answer, in seconds; 0 where nobody waits for one.
    pub p99: f64,
}

/// All rounds.
#[derive(Debug)]
pub(crate) struct Measured {
    pub rounds: Vec<[State; STATES.len()]>,
    /// Calls of natives per second of a turn.
    pub calls: f64,
    /// The share of them that is timed where calls are timed: the budget may have room for some only.
    pub timed: f64,
}

/// Starts the program under a service that puts stubs before all of its natives, and measures until that is enough, at most so many
/// rounds.
pub(crate) fn measure(work: &Work, jdk: &Jdk, most: usize, look: fn(&Measured) -> ControlFlow<()>) -> Result<Measured> {
    let mut running = work.start(jdk)?;
    let _awake = Awake::keep()?;
    let of_main = ["--jvm", running.main, "--stubs-for", running.main];
    let serve = Serve::start(&[&of_main[..], &["--max-overhead", THIRD_OF_THE_BUDGET]].concat())?;
    for _ in 0..WARM_UP {
        running.turn()?;
    }
    let mut measured = Measured { rounds: Vec::new(), calls: 0.0, timed: 0.0 };
    for number in 1..=most {
        measured.rounds.push(round(&mut running, &serve, number)?);
        if number % BATCH == 0 && look(&measured).is_break() {
            break;
        }
    }
    (measured.calls, measured.timed) = calls_per_second(&mut running, &serve)?;
    ensure!(serve.finish()?.success(), "the service has not ended well");
    running.exit()?;
    Ok(measured)
}

/// Which state is the outermost changes from round to round: its turns are next to those of another round.
fn round(running: &mut Running, serve: &Serve, number: usize) -> Result<[State; STATES.len()]> {
    let mut states = [State::default(); STATES.len()];
    for turn in TURNS {
        let state = (turn + number) % STATES.len();
        switch(serve, state)?;
        let took = running.turn()?;
        states[state].cpu += took.cpu / 2.0;
        states[state].p99 += took.p99 / 2.0;
    }
    Ok(states)
}

fn switch(serve: &Serve, state: usize) -> Result<()> {
    ask(&serve.control(), &Request::Rule { rules: vec![STATES[state].1.to_owned()] })?;
    sleep(REST);
    Ok(())
}

/// Calls per second, and the share of them that is timed where they are timed.
fn calls_per_second(running: &mut Running, serve: &Serve) -> Result<(f64, f64)> {
    let counted = || -> Result<[f64; 2]> {
        let samples = serve.samples()?;
        let sum = |name| samples.with(name, &[]).map(|sample| sample.value).sum();
        Ok(["nprof_native_calls_total", "nprof_native_calls_untimed_total"].map(sum))
    };
    let (mut elapsed, mut sums) = (0.0, [0.0; 2]);
    for state in (0..COUNTED).flat_map(|_| 0..STATES.len()) {
        switch(serve, state)?;
        let (before, begun) = (counted()?, Instant::now());
        running.turn()?;
        if state + 1 == STATES.len() {
            elapsed += begun.elapsed().as_secs_f64();
            let after = counted()?;
            [0, 1].into_iter().for_each(|number| sums[number] += after[number] - before[number]);
        }
    }
    let [calls, untimed] = sums;
    ensure!(calls > 0.0, "no call was counted");
    Ok((calls / elapsed, 1.0 - untimed / calls))
}
