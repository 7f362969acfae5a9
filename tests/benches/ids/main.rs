//! What the id cache wins: look-ups alone, in a JVM as it is and with ids kept, in turn.
//!
//! What is judged is the median over the rounds of the ratio within a round. The class is passed by a global reference, and the member is
//! the last of its class.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use anyhow::{Context, Result};
use nprof_tests::bars::{Bars, median};
use nprof_tests::id_cache_report::IdCache;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

const ROUNDS: usize = 9;
const LOOK_UPS: u32 = 1_000_000;
const FUNCTIONS: [&str; 4] = ["GetMethodID", "GetStaticMethodID", "GetFieldID", "GetStaticFieldID"];
const MEMBERS: [u32; 3] = [3, 14, 100];
const CLASSES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// A look-up is to take a quarter of the time that the VM takes, and never longer.
const QUARTER: f64 = 0.25;
const SAME: f64 = 1.0;

/// What is looked up: the number of the function, classes of one name, members of each kind in each.
type Case = (usize, u32, u32);

fn main() -> Result<()> {
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        let cases: Vec<Case> = (0..FUNCTIONS.len())
            .flat_map(|function| MEMBERS.map(|members| (function, 1, members)))
            .chain(CLASSES.map(|classes| (0, classes, 14)))
            .collect();
        let times = measure(&jdk, &cases).with_context(|| format!("on {jdk}"))?;
        println!("## {jdk}\n\nnanoseconds per look-up, medians of {ROUNDS} rounds\n");
        println!("| function | classes | members | the VM | ids kept | ratio |\n| --- | --- | --- | --- | --- | --- |");
        for (&(function, classes, members), times) in cases.iter().zip(&times) {
            let of = |value: &dyn Fn(&[f64; 2]) -> f64| median(times.iter().map(value));
            let (vm, kept, ratio) = (of(&|pair| pair[0]), of(&|pair| pair[1]), of(&|pair| pair[1] / pair[0]));
            let name = FUNCTIONS[function];
            println!("| {name} | {classes} | {members} | {vm:.1} | {kept:.1} | {ratio:.3} |");
            let limit = if classes == 1 { QUARTER } else { SAME };
            bars.add(format!("{name}, {classes} classes, {members} members, {jdk}"), ratio, limit);
        }
        println!();
    }
    println!("{bars}");
    bars.must_be_met()
}

/// For each case the times of all rounds: as it is, and with ids kept.
fn measure(jdk: &Jdk, cases: &[Case]) -> Result<Vec<Vec<[f64; 2]>>> {
    let mut target = RemoteProcess::looking(jdk, &[])?;
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        let plain = pass(&mut target, cases)?;
        let cache = IdCache::start(target.pid())?;
        let kept = pass(&mut target, cases)?;
        cache.finish()?;
        for (times, pair) in times.iter_mut().zip(plain.into_iter().zip(kept)) {
            times.push([pair.0, pair.1]);
        }
    }
    target.exit()?;
    Ok(times)
}

fn pass(target: &mut RemoteProcess, cases: &[Case]) -> Result<Vec<f64>> {
    let time = |&(function, classes, members): &Case| {
        let answer = target.run(&format!("time {classes} {function} {members} {LOOK_UPS}"))?;
        Ok(answer.first().context("no answer")?.parse()?)
    };
    cases.iter().map(time).collect()
}
