//! Sampling does not lie: what is scaled from samples agrees with what the target has counted, within what chance allows.
//!
//! The bounds. Of `n` samples, a path that has the share `p` of all calls is estimated with a variance of at most
//! `2 p (1 - p) / n`: half of the samples are chosen by calls alone, and each of the others only makes it better. The
//! tests allow five times the root of that, which chance exceeds once in a million, and one sample for whole numbers. Chi-square
//! may be what chance exceeds as rarely: its distribution has a longer tail, so that five standard deviations are not enough.

use anyhow::{Result, ensure};
use nprof::model::{FunctionTotals, Profile};
use nprof_tests::require::{say, traced_on_every_jdk};

use crate::callers::{Callers, Truth, function};

/// How much worse than the binomial distribution the samples of calls may be.
const DESIGN: f64 = 2.0;
/// How many standard deviations are chance.
const SIGMAS: f64 = 5.0;
/// How often chance exceeds that many.
const NEVER: f64 = 1e-6;
/// Of so few samples as are expected of a path, chance is not near enough to the normal distribution for chi-square.
const FEWEST_EXPECTED: f64 = 5.0;
/// What may be taken above the pace: the burst after a quiet time, in seconds of the pace, and a step of it.
const BURST_SECONDS: f64 = 0.12;

/// Three paths whose calls are as 1 : 10 : 1000, all of the same native.
const UNEVEN: [&str; 3] = ["rare", "some", "often"];

/// The share of a path and what is chance in an estimate of it from `samples`.
fn bound(share: f64, samples: f64) -> f64 {
    SIGMAS * (DESIGN * share * (1.0 - share) / samples).sqrt() + 1.0 / samples
}

/// Compares the scaled calls of each path with those that were made, and all together.
fn must_agree(profile: &Profile, truth: &Truth, paths: &[&str], native: &str) -> Result<()> {
    let sampled =
        paths.iter().map(|path| Ok(truth.path(path, native)?.sampled(profile))).collect::<Result<Vec<_>>>()?;
    let samples: f64 = sampled.iter().map(|sum| sum.samples as f64).sum();
    let scaled: f64 = sampled.iter().map(|sum| sum.calls).sum();
    let made = truth.calls(native) as f64;
    let mut shares = Vec::new();
    for (path, sum) in paths.iter().zip(&sampled) {
        let (share, found) = (truth.path(path, native)?.calls as f64 / made, sum.calls / scaled);
        let bound = bound(share, samples);
        say(&format!("    {path}: {share:.6} of the calls, {found:.6} estimated +- {bound:.6} from {}", sum.samples));
        ensure!((found - share).abs() <= bound, "{path}: {found} of the calls instead of {share} +- {bound}");
        shares.push((share, found));
    }
    let (chi_square, freedom) = chi_square(&shares, samples);
    let most = DESIGN * most_by_chance(freedom);
    ensure!(chi_square <= most, "chi-square {chi_square} instead of {freedom}, at most {most}");
    Ok(())
}

/// What chi-square exceeds by chance [`NEVER`], at most so often: the bound of Laurent and Massart.
fn most_by_chance(freedom: f64) -> f64 {
    let rarity = -NEVER.ln();
    freedom + 2.0 * (freedom * rarity).sqrt() + 2.0 * rarity
}

/// How far the shares that were found are from those that are true, all together, and in how many degrees of freedom. Paths of too few
/// samples are taken together with the next ones: where a third of a sample is expected, three are found once in three hundred times, and
/// never by a normal distribution.
fn chi_square(shares: &[(f64, f64)], samples: f64) -> (f64, f64) {
    let mut groups = vec![(0.0, 0.0)];
    for (share, found) in shares {
        if groups.last().is_some_and(|(sum, _)| samples * sum >= FEWEST_EXPECTED) {
            groups.push((0.0, 0.0));
        }
        if let Some(last) = groups.last_mut() {
            *last = (last.0 + share, last.1 + found);
        }
    }
    if groups.len() < 2 {
        // Together they are always all.
        return (0.0, 0.0);
    }
    let sum = groups.iter().map(|(share, found)| samples * (found - share).powi(2) / share).sum();
    (sum, groups.len() as f64 - 1.0)
}

/// Check that paths of few samples are taken together, and that those of enough are not: what is off shows there.
#[test]
fn few_samples_are_taken_together() {
    let shares = [(0.001, 0.006), (0.01, 0.01), (0.989, 0.984)];
    let (of_few, freedom) = chi_square(&shares, 200.0);
    assert!(freedom == 0.0 && of_few == 0.0, "{of_few}, {freedom}");
    let (of_some, freedom) = chi_square(&shares, 1_000.0);
    assert!(freedom == 1.0 && (2.0..3.0).contains(&of_some), "{of_some}, {freedom}");
    let (of_many, freedom) = chi_square(&shares, 10_000.0);
    assert!(freedom == 2.0 && of_many > 250.0, "{of_many}, {freedom}");
}

/// Holds if no more stacks were taken than were allowed.
fn must_keep_the_pace(profile: &Profile, max_stacks: f64) -> Result<()> {
    let most = max_stacks * (profile.about.elapsed.as_secs_f64() + BURST_SECONDS);
    let stacks = profile.quality.stacks;
    ensure!(stacks as f64 <= most, "{stacks} stacks in {:?} at {max_stacks} per second", profile.about.elapsed);
    Ok(())
}

/// Holds if what was sampled, scaled by the chances, is near the exact total of the function. Not a statement about the
/// picture, which is scaled to that; but chances that are wrong, or losses that are not even, show here.
fn must_be_near(sum: f64, exact: u64, within: f64, what: &str, function: &FunctionTotals) -> Result<()> {
    let ratio = sum / exact as f64;
    ensure!((ratio - 1.0).abs() <= within, "{what} of {}: {sum} scaled, {exact} exact: {ratio}", function.method);
    Ok(())
}

/// Check that the calls of paths that are as 1 : 10 : 1000 are scaled to what was called, at every pace, which is kept.
#[test]
fn uneven_paths() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        for (tier, max_stacks) in [("kernel", "200"), ("kernel", "1000"), ("kernel", "5000"), ("stub", "1000")] {
            let args = ["--tier", tier, "--max-stacks", max_stacks];
            let (profile, truth) = target.recorded(&args, "rare:1,some:10,often:1000 2 1000000000 1500")?;
            let tick = function(&profile, "tick")?;
            let (taken, lost) = (profile.quality.stacks, &profile.quality.lost);
            say(&format!(
                "JDK {} by {tier}, {max_stacks}/s: {} calls, {taken} stacks, lost {lost:?}",
                jdk.version, tick.calls
            ));
            ensure!(tick.calls == truth.calls("tick"), "{} of {} calls", tick.calls, truth.calls("tick"));
            must_keep_the_pace(&profile, max_stacks.parse()?)?;
            must_agree(&profile, &truth, &UNEVEN, "tick")?;
        }
        target.exit()
    })
}

/// Check the same for many paths that are as 1 : 2 : 3 ... and for stacks of all depths.
#[test]
fn many_paths() -> Result<()> {
    const DEPTHS: [u32; 7] = [5, 17, 40, 90, 150, 220, 300];
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        let paths: Vec<String> =
            DEPTHS.iter().flat_map(|depth| [format!("recursion{depth}"), format!("mutual{depth}")]).collect();
        let wheel: Vec<String> = paths.iter().zip(1..).map(|(path, weight)| format!("{path}:{weight}")).collect();
        let (profile, truth) =
            target.recorded(&["--stack-size", "64k"], &format!("{} 2 1000000000 2500", wheel.join(",")))?;
        say(&format!("JDK {}: {} stacks, lost {:?}", jdk.version, profile.quality.stacks, profile.quality.lost));
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        must_agree(&profile, &truth, &paths, "tick")?;
        target.exit()
    })
}

/// Check that a method that is called once where another one is called fifty thousand times is nearly always seen.
#[test]
fn rare_method_beside_a_flood() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        let (profile, truth) = target.recorded(&[], "often:50000,seldom:1 1 1000000000 3000")?;
        let (rare, often) = (truth.path("seldom", "locked")?, truth.calls("tick"));
        let samples = rare.sampled(&profile).samples;
        say(&format!("JDK {}: {samples} of {} beside {often} calls", jdk.version, rare.calls));
        ensure!(rare.calls >= 4, "too few to prove anything: {}", rare.calls);
        // The first one may come before anything is known of the method, and be left to chance.
        ensure!(10 * samples + 10 >= 9 * rare.calls, "{samples} stacks of {} calls", rare.calls);
        target.exit()
    })
}

/// Check that the time of each path agrees with what the native itself has measured, in order and ratio: many short calls,
/// few long ones, working and sleeping.
#[test]
fn time_by_path() -> Result<()> {
    const PATHS: [&str; 5] = ["spin1", "spin4", "spin16", "nap1", "nap4"];
    traced_on_every_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        for tier in ["kernel", "stub"] {
            time_by_path_of(&mut target, tier, &PATHS)?;
        }
        target.exit()
    })
}

fn time_by_path_of(target: &mut Callers, tier: &str, paths: &[&str]) -> Result<()> {
    let wheel = "spin1:64,spin4:8,spin16:1,nap1:4,nap4:1 2 1000000000 2500";
    let (profile, truth) = target.recorded(&["--tier", tier], wheel)?;
    let work = function(&profile, "work")?;
    ensure!(work.calls == truth.calls("work"), "{} of {} calls", work.calls, truth.calls("work"));
    let mut rows = Vec::new();
    for &name in paths {
        let path = truth.path(name, "work")?;
        rows.push((path.wall_ns as f64, path.sampled(&profile), name));
    }
    let (wall, time): (f64, f64) = rows.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1.time_ns));
    must_be_near(wall, work.total_ns, 0.1, "time by the target's clock", work)?;
    must_be_near(time, work.total_ns, 0.25, "time", work)?;
    for (true_ns, sampled, name) in &rows {
        let ratio = sampled.time_ns / time / (true_ns / wall);
        // No sample stands for more time than a period, so as many as there are say how good they are.
        let bound = SIGMAS * (DESIGN / sampled.samples as f64).sqrt().min(0.1) + 0.05;
        say(&format!("    {name} by {tier}: {ratio:.3} of its share, {} samples +- {bound:.3}", sampled.samples));
        ensure!((ratio - 1.0).abs() <= bound, "{name} has {ratio} times its share, +- {bound}");
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let in_order = rows.windows(2).all(|pair| pair[0].0 * 1.5 > pair[1].0 || pair[0].1.time_ns < pair[1].1.time_ns);
    ensure!(in_order, "not in the order of their times: {rows:?}");
    Ok(())
}
