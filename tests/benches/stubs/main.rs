//! What a stub costs: a loop over an empty native with no agent, in each mode of the agent and after it has left, from
//! one thread and from two; the same native traced by `nprof trace`, by stubs and by probes of the kernel; bpftrace; and
//! two readings of the time stamp counter, in one run.
//!
//! Absolute times differ from machine to machine and from minute to minute. So every round measures everything, and
//! what is judged is the median over the rounds of the difference within a round.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod round;

use anyhow::{Context, Result};
use nprof_tests::bars::{Bars, median};
use nprof_tests::bpftrace::Bpftrace;
use nprof_tests::jdk::Jdk;

use self::round::{ALL_COLLECTED, COUNT, DETACHED, FULL, Round, SLOW, STATES, TIME, TRACED, Target, WITHOUT_WAITING};

const ROUNDS: usize = 9;
/// At most so many nanoseconds more, in the first three states, with one thread.
const LIMITS: [f64; 3] = [2.0, 4.0, 6.0];
/// What it may add to a call to know what its thread used, in nanoseconds: for one collector, and for eight.
const COLLECTOR: f64 = 12.0;
const COLLECTORS: f64 = 8.0 * COLLECTOR;
/// What stubs may add to a call, as a part of what the kernel's probes add: they are to be 15 times as cheap.
const PART_OF_PROBES: f64 = 0.066;

fn main() -> Result<()> {
    let mut bars = Bars::default();
    if !Bpftrace::is_installed() {
        println!("bpftrace is not installed: its rows are left out\n");
    }
    for jdk in Jdk::find_all()? {
        let rounds = measure(&jdk).with_context(|| format!("on {jdk}"))?;
        print(&jdk, &rounds);
        judge(&rounds, &mut bars);
    }
    println!("{bars}");
    bars.must_be_met()
}

fn measure(jdk: &Jdk) -> Result<Vec<Round>> {
    let mut targets = Target::start_all(jdk)?;
    let rounds = (0..ROUNDS).map(|_| Round::measure(jdk, &mut targets)).collect::<Result<_>>()?;
    targets.into_iter().try_for_each(Target::exit)?;
    Ok(rounds)
}

fn print(jdk: &Jdk, rounds: &[Round]) {
    println!("## {jdk}\n\nnanoseconds per call, median (least to most) of {ROUNDS} rounds\n");
    println!("| | 1 thread | 2 threads |\n| --- | --- | --- |");
    let row = |name: &str, one: Vec<f64>, two: Vec<f64>| println!("| {name} | {} | {} |", spread(one), spread(two));
    let all = |value: &dyn Fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    row("two readings of the counter", all(&|round| round.readings), Vec::new());
    row("no agent", all(&|round| round.without[0]), all(&|round| round.without[1]));
    for (place, (name, _)) in STATES.into_iter().enumerate() {
        row(&format!("agent, {name}"), all(&|round| round.with[place][0]), all(&|round| round.with[place][1]));
    }
    for (place, traced) in TRACED.into_iter().enumerate() {
        row(traced.name, all(&|round| round.traced[place]), Vec::new());
    }
    row(
        "bpftrace, uprobe and uretprobe that count",
        rounds.iter().filter_map(|round| round.bpftrace).collect(),
        vec![],
    );
    // Of no bar: whoever wants to know what calls are made with pays for it.
    let [by_stubs, by_probes] = SLOW.map(|slow| spread(all(&|round| round.more(slow + 1, slow))));
    println!("\n`--args` adds to a call by stubs {by_stubs} ns, by probes {by_probes} ns (within a round).\n");
}

/// The middle of what was measured and its extremes; nothing of nothing.
fn spread(times: Vec<f64>) -> String {
    let (least, most) =
        times.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &time| (least.min(time), most.max(time)));
    if times.is_empty() { String::new() } else { format!("{:.1} ({least:.1} to {most:.1})", median(times)) }
}

fn judge(rounds: &[Round], bars: &mut Bars) {
    let added = |state: usize, threads: usize| median(rounds.iter().map(|round| round.added(state, threads)));
    let names = ["off adds, ns", "count adds, ns", "every 16th timed adds, ns"];
    for (state, (name, limit)) in names.into_iter().zip(LIMITS).enumerate() {
        bars.add(name, added(state, 0), limit);
    }
    bars.add("count adds with two threads, ns", added(COUNT, 1), 2.0 * LIMITS[COUNT]);
    bars.add("a detached agent adds, ns", added(DETACHED, 0), 1.0);
    bars.add(
        "time adds, to two readings",
        median(rounds.iter().map(|round| round.added(TIME, 0) / round.readings)),
        1.6,
    );
    let to_probes = |stubs: usize| median(rounds.iter().map(|round| round.stubs_to_probes(stubs)));
    let more = |way: usize, other: usize| median(rounds.iter().map(|round| round.more(way, other)));
    bars.add("work and waiting add, ns", more(FULL, WITHOUT_WAITING), COLLECTOR);
    bars.add("that and all collectors add, ns", more(ALL_COLLECTED, WITHOUT_WAITING), COLLECTORS);
    bars.add("count by stubs adds, to count by probes", to_probes(0), PART_OF_PROBES);
    bars.add("time by stubs adds, to time by probes", to_probes(1), PART_OF_PROBES);
}
