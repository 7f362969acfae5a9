//! What was measured of one program, as a table, and what it promises.

use std::fmt::{Error, Write as _};

use nprof_tests::bars::{Bars, median};
use nprof_tests::slowdown::Slowdown;

use crate::log::Pace;
use crate::round::{Measured, Rounds, STATES};

/// The most that the most expensive window of the start or the end may cost, to that of the same program without nprof, alone or beside a
/// loop: a collection makes some of its own, and so does whoever takes a CPU.
const WINDOW_LIMIT: f64 = 1.1;
/// The states without nprof.
const WITHOUT: [usize; 2] = [0, 1];

/// A row for each state.
pub(crate) fn of(rounds: &Rounds) -> Result<String, Error> {
    let mut text = String::from(
        "| | operations/s | CPU per operation | fewer operations/s | more CPU per operation | most expensive 0.1 s of start, end | \
         slowest of start, end | natives/s | nprof's CPU |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (number, state) in STATES.iter().enumerate() {
        let middle = |value: fn(&Measured) -> f64| median(rounds[number].iter().map(value));
        let cost = Slowdown::of(rounds[number].iter().map(|one| (one.without.cost, one.with.cost)));
        let rate = Slowdown::of(rounds[number].iter().map(|one| (one.with.rate, one.without.rate)));
        let [costly_start, costly_end] = PARTS.map(|part| costliest(rounds, number, part));
        let [slow_start, slow_end] = PARTS.map(|part| slowest(rounds, number, part));
        writeln!(
            text,
            "| {} | {:.0} | {:.1} us | {rate} | {cost} | {costly_start:.2} x, {costly_end:.2} x | {slow_start:.2} x, \
             {slow_end:.2} x | {:.0} | {:.1} % |",
            state.name,
            middle(|one| one.with.rate),
            middle(|one| one.with.cost),
            middle(|one| one.natives),
            100.0 * middle(|one| one.own),
        )?;
    }
    Ok(text)
}

/// What the states of one program promise. Where other processes run beside it, time on the clock is theirs too.
pub(crate) fn bars(program: &str, rounds: &Rounds, bars: &mut Bars) {
    for (number, state) in STATES.iter().enumerate().filter(|(_, state)| state.most_percent.is_finite()) {
        let cost = Slowdown::of(rounds[number].iter().map(|one| (one.without.cost, one.with.cost)));
        bars.add(format!("{program}, {}: more CPU per operation, %", state.name), cost.percent, state.most_percent);
        let worst = |state| PARTS.map(|part| costliest(rounds, state, part)).into_iter().fold(0.0, f64::max);
        bars.add(
            format!("{program}, {}: most expensive 0.1 s of start and end, to that without nprof", state.name),
            worst(number) / WITHOUT.map(worst).into_iter().fold(0.0, f64::max),
            WINDOW_LIMIT,
        );
    }
}

type Part = fn(&Measured) -> &[Pace];
/// Start and end.
const PARTS: [Part; 2] = [|one| &one.start, |one| &one.end];

/// CPU time per operation in the most expensive window, to the time without nprof: of each window the middle of all rounds, for what
/// is expensive in one round alone is chance.
fn costliest(rounds: &Rounds, state: usize, part: Part) -> f64 {
    worst(rounds, state, part, |window, without| window.cost / without.cost)
}

/// How many times slower the slowest is, by the clock.
fn slowest(rounds: &Rounds, state: usize, part: Part) -> f64 {
    worst(rounds, state, part, |window, without| without.rate / window.rate)
}

fn worst(rounds: &Rounds, state: usize, part: Part, ratio: fn(&Pace, &Pace) -> f64) -> f64 {
    let count = rounds[state].iter().map(|one| part(one).len()).min().unwrap_or(0);
    let of_window = |window: usize| rounds[state].iter().map(move |one| ratio(&part(one)[window], &one.without));
    // Nothing is known of what an operation costs where there was none.
    let middle = |window: usize| median(of_window(window).filter(|ratio| !ratio.is_nan()));
    (0..count).map(middle).fold(0.0, f64::max)
}
