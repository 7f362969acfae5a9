//! One native of one library that many traced JVMs have mapped. The kernel keeps one list of probes per site, for all
//! processes: were there one for each JVM, every hit would pass each. One link for all makes it cost the same for any number.

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::serve::Serve;
use nprof_tests::usage::Usage;

/// How many JVMs are traced, one after the other.
const TRACED: [usize; 3] = [1, 10, 50];
/// Calls of a round.
const CALLS: u32 = 100_000;
/// Rounds of which the middle one counts.
const ROUNDS: usize = 9;
/// How much more a call may cost with the most JVMs than with one.
const MOST: f64 = 1.1;

/// Measures and prints what a call costs in one JVM while more and more others are traced, which do nothing.
pub(crate) fn measure(jdk: &Jdk, bars: &mut Bars) -> Result<()> {
    let jar = Jar::of(jdk, "shared", "targets.Bench")?;
    let mut targets = vec![start(jdk, &jar, 0)?];
    ns_per_call(&mut targets[0])?;
    println!("| traced JVMs at a shared site | BPF links | ns per call in one of them |\n| --- | --- | --- |");
    println!("| 0 | 0 | {:.1} |", ns_per_call(&mut targets[0])?);
    let (mut times, mut links) = (Vec::new(), None);
    for jvms in TRACED {
        for number in targets.len()..jvms {
            targets.push(start(jdk, &jar, number)?);
        }
        // A loop that does nothing but call would be far over any budget.
        let args = ["--max-overhead", "off", "--jvm", jar.name(), "targets.Entries::pushFirst"];
        let serve = Serve::start(&args)?;
        let announced = format!("tracing {jvms} methods of {jvms} JVM");
        ensure!(serve.announcement().contains(&announced), "{}", serve.announcement());
        let of_one = *links.get_or_insert(links_of(&serve)?);
        serve.scrape_until("as few links as for one JVM", |_| Ok(links_of(&serve)? == of_one))?;
        times.push(ns_per_call(&mut targets[0])?);
        println!("| {jvms} | {of_one} | {:.1} |", times.last().context("just measured")?);
        ensure!(serve.finish()?.success(), "the service did not end well");
    }
    let [first, .., last] = times[..] else { unreachable!("three measurements") };
    println!();
    bars.add(format!("a call with {} JVMs to one with 1 JVM", TRACED[TRACED.len() - 1]), last / first, MOST);
    Ok(())
}

/// The BPF links of a service: two for the site, on entry and return, and those that any has.
fn links_of(serve: &Serve) -> Result<usize> {
    let [_, _, links] = Usage::of(serve.pid())?.objects;
    Ok(links)
}

/// A JVM that has loaded the native's class: without that it has nothing at the site.
fn start(jdk: &Jdk, jar: &Jar<'_>, number: usize) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::small_bench(jdk, jar.path(), number)?;
    target.run("push 1")?;
    Ok(target)
}

fn ns_per_call(target: &mut RemoteProcess) -> Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(target.took_ns(&format!("push {CALLS}"))? / f64::from(CALLS));
    }
    Ok(median(rounds))
}
