//! One round: the program in each state, each next to a time without nprof.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nprof_tests::nprof::Trace;
use nprof_tests::report::Row;
use nprof_tests::usage::cpu_time;

use crate::log::{CpuNotes, Pace, now};
use crate::program::Running;

/// All states.
pub(crate) const STATES: [State; 5] = [
    State { name: "none", beside: Beside::Nothing, most_percent: f64::INFINITY },
    State { name: "a busy loop", beside: Beside::BusyLoop, most_percent: f64::INFINITY },
    State { name: "default", beside: Beside::Nprof(&[]), most_percent: 5.0 },
    State {
        name: "--max-overhead off",
        beside: Beside::Nprof(&["--max-overhead", "off"]),
        most_percent: f64::INFINITY,
    },
    State { name: "--tier stub", beside: Beside::Nprof(&["--tier", "stub"]), most_percent: f64::INFINITY },
];

/// What runs beside the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Beside {
    Nothing,
    /// A thread that takes a CPU where nprof does, at the start and the end, and touches nothing: what a start costs a
    /// program that shares its core with it, whoever it is.
    BusyLoop,
    /// nprof, with these options.
    Nprof(&'static [&'static str]),
}

/// Without nprof, before.
const BEFORE: Duration = Duration::from_millis(1500);
/// From when everything is attached.
const DURING: Duration = Duration::from_secs(4);
/// From then on it is no start any more.
const STARTED: Duration = Duration::from_secs(1);
/// From nprof's end.
const AFTER: Duration = Duration::from_millis(1500);
/// The JVM compiles again then what has had stubs: that is no part of what comes next.
const REST: Duration = Duration::from_secs(1);
/// How long nprof takes a CPU at its start and its end, about.
const START: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_millis(100);
/// A window of the start and of the end.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows before everything was attached, and after; the same for the end.
const AT_START: [u32; 2] = [5, 10];
const AT_END: [u32; 2] = [1, 10];

/// A way to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub name: &'static str,
    beside: Beside,
    /// The most that an operation may cost more.
    pub most_percent: f64,
}

/// What one state measured, beside the same JVM without nprof.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Right before.
    pub without: Pace,
    /// In the long run.
    pub with: Pace,
    /// Window by window.
    pub start: Vec<Pace>,
    pub end: Vec<Pace>,
    /// Calls of natives per second that nprof told of, those that it estimated among them.
    pub natives: f64,
    /// nprof's share of a core.
    pub own: f64,
}

/// By state, what each round measured.
pub(crate) type Rounds = Vec<Vec<Measured>>;

/// Measures all states so often, in an order that changes from round to round. Those that load the shim into the JVM come
/// when the others are done: afterwards it is there, and nprof uses it.
pub(crate) fn measure(running: &mut Running, count: usize) -> Result<Rounds> {
    let mut rounds: Rounds = STATES.iter().map(|_| Vec::new()).collect();
    for group in [false, true] {
        let states: Vec<usize> = (0..STATES.len()).filter(|state| STATES[*state].loads_shim() == group).collect();
        for number in 0..count {
            for step in 0..states.len() {
                let state = states[(number + step) % states.len()];
                rounds[state].push(measured(running, STATES[state].beside).with_context(|| STATES[state].name)?);
            }
        }
    }
    Ok(rounds)
}

impl State {
    fn loads_shim(&self) -> bool {
        matches!(self.beside, Beside::Nprof(options) if options.contains(&"stub"))
    }
}

/// The program before, while and after nprof looks at it.
fn measured(running: &mut Running, beside: Beside) -> Result<Measured> {
    sleep(REST);
    running.log()?;
    let notes = CpuNotes::begin(running.pid());
    sleep(BEFORE);
    let begun = now()?;
    let trace = match beside {
        Beside::Nprof(options) => Some(Trace::start_as_users_do(running.pid(), options)?),
        Beside::BusyLoop => {
            spin(START);
            None
        }
        Beside::Nothing => None,
    };
    let attached = now()?;
    sleep(DURING);
    let own = trace.as_ref().map_or(Ok(0.0), |trace| cpu_time(trace.pid()))?;
    let ending = now()?;
    if beside == Beside::BusyLoop {
        spin(END);
    }
    let report = trace.map(Trace::finish).transpose()?;
    sleep(AFTER);
    let log = notes.with(&running.log()?)?;
    let told = |row: &Row| row.estimated_calls.unwrap_or(row.calls);
    let (elapsed, calls) =
        report.map_or((1, 0), |report| (report.elapsed_ns, report.methods.iter().map(told).sum::<u64>()));
    let windows = |around: u64, [before, after]: [u32; 2]| -> Result<Vec<Pace>> {
        let first = around - nanoseconds(WINDOW * before);
        let at = |number: u32| first + nanoseconds(WINDOW * number);
        (0..before + after).map(|number| log.pace(at(number), at(number + 1))).collect()
    };
    Ok(Measured {
        without: log.pace(begun - nanoseconds(BEFORE) * 9 / 10, begun)?,
        with: log.pace(attached + nanoseconds(STARTED), ending)?,
        start: windows(attached, AT_START)?,
        end: windows(ending, AT_END)?,
        natives: ratio(calls, elapsed) * 1e9,
        own: own / DURING.as_secs_f64(),
    })
}

/// Takes a CPU and does nothing.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "seconds")]
fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
