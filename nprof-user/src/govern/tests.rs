//! What the governor promises, proven on a simulated JVM.

mod decisions;

use std::time::Duration;

use super::Rung::{self, Counted, Detached, Off, Sixteenth, SixtyFourth, Thousandth, Timed};
use super::simulated_jvm::{COSTS, Calls, Function, Passed, STUB, SimulatedJvm};
use super::terms::factor;
use super::{Budget, By, Change, Costs, Glance, Governor, Observed, Period, StubCosts, Why};
use crate::model::ProbeCost::{Emulated, SingleStepped};
use crate::model::StubPrice;

/// The budget of most tests.
const BUDGET: f64 = 0.02;

/// A million calls a second, when they cost nothing.
const HOT: Calls = Calls::Loop(1_000.0);

/// Two hundred functions that are called ten times a second.
fn cool() -> impl Iterator<Item = Function> {
    (0..200).map(|_| Function::steady(Calls::PerSecond(10.0)))
}

/// A JVM whose work is one hot function, and the cool ones.
fn one_hot(hot: Function) -> SimulatedJvm {
    SimulatedJvm::new(BUDGET, 0.0, std::iter::once(hot).chain(cool()).collect())
}

fn period(now: u64) -> Period {
    Period { now: seconds(now), length: seconds(1), target_cpu: seconds(1) }
}

fn observed(wanted: Rung, tracing: Rung, calls: u64) -> Observed {
    Observed { id: 3, by: By::Probe(Emulated), wanted, tracing, calls }
}

fn governor() -> Governor {
    Governor::new(COSTS, Some(Budget::once(BUDGET)))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The worst slowdown over any two periods in a row, which is one second.
fn worst_second(passed: &[Passed]) -> f64 {
    let slowdown = |two: &[Passed]| (two[0].cost_ns + two[1].cost_ns) / (two[0].own_ns + two[1].own_ns);
    passed.windows(2).map(slowdown).fold(0.0, f64::max)
}

fn worst(passed: &[Passed]) -> f64 {
    passed.iter().map(Passed::slowdown).fold(0.0, f64::max)
}

/// The most changes within a minute.
fn most_changes(passed: &[Passed]) -> usize {
    passed.windows(120).map(|minute| minute.iter().map(|p| p.changes.len()).sum()).max().expect("more than a minute")
}

/// Check that a hot function is detached after one period, and that from then on the JVM is never slowed down by twice
/// the budget, in no period of ten minutes and with looks, while the cool functions stay timed.
#[test]
fn hot_function_is_detached_at_once() {
    let mut jvm = one_hot(Function::steady(HOT));
    let passed = jvm.run_until(600);
    let [first, rest @ ..] = &*passed else { panic!("no period") };
    assert!(first.slowdown() > 0.9, "{}", first.slowdown());
    let changes: Vec<_> = passed.iter().flat_map(|p| &p.changes).map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(0, Detached)]);
    assert!(worst(rest) < 2.0 * BUDGET, "{}", worst(rest));
    let looks: usize = passed.iter().map(|p| p.looks).sum();
    assert!((300..600).contains(&looks), "{looks} in ten minutes");
    assert!(jvm.functions[1..].iter().all(|function| function.tracing == Timed));
}

/// Check that looks at whatever is hot stay within twice the budget in each second and within a fifth of it in the
/// long run, also if there are many hot functions.
#[test]
fn looks_stay_cheap() {
    for (cost, calls, functions, cores) in [
        (Emulated, Calls::Loop(12.0), 1, 0.0),
        (SingleStepped, Calls::Loop(100.0), 1, 0.0),
        (SingleStepped, HOT, 30, 0.0),
        (SingleStepped, Calls::PerSecond(20_000.0), 200, 1.0),
    ] {
        let hot = (0..functions).map(|_| Function::new(cost, move |_| calls));
        let mut jvm = SimulatedJvm::new(BUDGET, cores, hot.collect());
        let passed = jvm.run_until(300);
        assert!(worst_second(&passed[1..]) < 2.0 * BUDGET, "{calls:?}: {}", worst_second(&passed[1..]));
        let (looks_ns, own_ns) = passed.iter().fold((0.0, 0.0), |(l, o), p| (l + p.looks_ns, o + p.own_ns));
        assert!(looks_ns > 0.0 && looks_ns < 0.201 * BUDGET * own_ns, "{calls:?}: {}", looks_ns / own_ns);
    }
}

/// Check that a function which cools down is timed again within its backoff, and that the budget holds one second
/// after it turns hot again.
#[test]
fn budget_holds_after_each_change() {
    for (cools, within) in [(60, 20), (1_200, 301)] {
        let hot_again = cools + 400;
        let rate = move |now: Duration| {
            let calm = now >= seconds(cools) && now < seconds(hot_again) + Duration::from_millis(330);
            if calm { Calls::PerSecond(100.0) } else { HOT }
        };
        let mut jvm = SimulatedJvm::new(BUDGET, 0.5, vec![Function::new(Emulated, rate)]);
        jvm.run_until(cools);
        assert_eq!(jvm.functions[0].tracing, Detached);
        jvm.run_until(cools + within);
        assert_eq!(jvm.functions[0].tracing, Timed, "hot for {cools} s");
        jvm.run_until(hot_again);
        let passed = jvm.run_until(hot_again + 60);
        assert!(passed[0].slowdown() > BUDGET, "the change must be felt");
        let later: Vec<&Passed> = passed.iter().filter(|p| p.now > seconds(hot_again + 1)).collect();
        assert!(later.iter().filter(|p| p.looks == 0).all(|p| p.slowdown() < BUDGET));
        assert!(later.iter().all(|p| p.slowdown() < 2.0 * BUDGET));
    }
}

/// Check that of many equal functions as many are kept as the budget has room for, and that these stay.
#[test]
fn many_warm_functions_share_the_budget() {
    let warm = (0..500).map(|_| Function::steady(Calls::PerSecond(2_000.0)));
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, warm.collect());
    let passed = jvm.run_until(120);
    assert_eq!(passed[0].changes.len(), 500);
    assert!(worst(&passed[1..]) < 1.2 * BUDGET, "{}", worst(&passed[1..]));
    let later: usize = passed[1..].iter().map(|p| p.changes.len()).sum();
    assert_eq!(later, 0, "nothing flaps");
    let kept = jvm.functions.iter().filter(|function| function.tracing == Counted).count();
    assert_eq!(kept, 20, "2,000 counted calls a second are 0.1 %");
}

/// Check that a function which has cooled down comes back even if others use nearly all of the budget.
#[test]
fn cool_function_comes_back_into_a_full_budget() {
    let rate = |now| if now < seconds(2) { HOT } else { Calls::PerSecond(100.0) };
    let warm = (0..2).map(|_| Function::steady(Calls::PerSecond(9_500.0)));
    let functions = std::iter::once(Function::new(Emulated, rate)).chain(warm).collect();
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, functions);
    jvm.run_until(1);
    assert_eq!(jvm.functions[0].tracing, Detached);
    let passed = jvm.run_until(30);
    assert!(jvm.functions.iter().all(|function| function.tracing == Timed));
    assert!((0.9 * BUDGET..BUDGET).contains(&passed[50].slowdown()), "{}", passed[50].slowdown());
}

/// Check that a rate that swings across the budget at any pace does not make a function flap.
#[test]
fn swinging_rates_do_not_flap() {
    let warm = [Calls::PerSecond(10_000.0), Calls::PerSecond(30_000.0)];
    let hot = [Calls::PerSecond(100.0), HOT];
    for [low, high] in [warm, hot] {
        for half in [1, 2, 3, 4, 5, 7, 10, 20, 30, 31, 40, 60] {
            let rate = move |now: Duration| if (now.as_secs() / half).is_multiple_of(2) { high } else { low };
            let mut jvm = SimulatedJvm::new(BUDGET, 1.0, vec![Function::new(Emulated, rate)]);
            let passed = jvm.run_until(1_200);
            let most = most_changes(&passed);
            assert!(most > 0 && most <= 6, "{high:?} for {half} s: {most}");
            let last = most_changes(&passed[1_200..]);
            assert!(last <= 3, "{high:?} for {half} s: {last} later on");
        }
    }
}

/// Check that noise below the budget changes nothing, and that noise around it does not go on lowering and raising.
#[test]
fn noise_does_not_flap() {
    for (rate, most) in [(9_000.0, 0), (19_000.0, 4)] {
        // A new rate every half second, between half and one and a half of the mean.
        let noisy = move |now: Duration| {
            let random = (now.as_millis() / 500).wrapping_mul(2_654_435_761) % 1_000;
            Calls::PerSecond(rate * (0.5 + f64::from(u16::try_from(random).unwrap()) / 1_000.0))
        };
        let mut jvm = SimulatedJvm::new(BUDGET, 1.0, vec![Function::new(Emulated, noisy)]);
        let passed = jvm.run_until(600);
        assert!(most_changes(&passed) <= most, "{rate}: {}", most_changes(&passed));
    }
}

/// Check that a JVM that does nothing but a few calls keeps them timed, even expensive ones.
#[test]
fn idle_jvm_is_left_alone() {
    for cost in [Emulated, SingleStepped] {
        let few = Function::new(cost, |_| Calls::PerSecond(50.0));
        let mut jvm = SimulatedJvm::new(BUDGET, 0.0, vec![few]);
        assert!(jvm.run_until(600).iter().all(|p| p.changes.is_empty()));
    }
}

/// Check that of two functions called equally often the single-stepped one goes.
#[test]
fn single_stepped_goes_first() {
    let [emulated, single_stepped] =
        [Emulated, SingleStepped].map(|cost| Function::new(cost, |_| Calls::PerSecond(4_000.0)));
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, vec![emulated, single_stepped]);
    jvm.run_until(2);
    assert_eq!(jvm.functions.iter().map(|f| f.tracing).collect::<Vec<_>>(), [Timed, Detached]);
}

/// Check that a changed budget holds after one period, that a greater one brings functions back in seconds, and that
/// none brings back all of them at once.
#[test]
fn budget_changes_at_run_time() {
    let rates = [2_000.0, 8_000.0, 400_000.0];
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, rates.map(|r| Function::steady(Calls::PerSecond(r))).into());
    let states = |jvm: &SimulatedJvm| jvm.functions.iter().map(|f| f.tracing).collect::<Vec<_>>();
    jvm.run_until(1);
    assert_eq!(states(&jvm), [Timed, Timed, Detached]);
    jvm.governor.set_budget(Some(Budget::once(0.005)));
    jvm.run_until(2);
    assert_eq!(states(&jvm), [Timed, Detached, Detached]);
    jvm.run_until(300);
    jvm.governor.set_budget(Some(Budget::once(BUDGET)));
    jvm.run_until(302);
    assert_eq!(states(&jvm), [Timed, Timed, Detached]);
    jvm.governor.set_budget(Some(Budget::once(0.5)));
    jvm.run_until(330);
    assert_eq!(states(&jvm), [Timed, Timed, Counted], "timed, all would be at 41 %: above 70 % of the budget");
    jvm.governor.set_budget(None);
    let passed = jvm.run_until(331);
    assert_eq!(states(&jvm), [Timed, Timed, Timed]);
    assert_eq!(passed[0].changes[0].why, Why::NoBudget);
    assert_eq!(jvm.governor.demoted().count(), 0);
}

/// Check that the estimate is what tracing truly cost, and that it is there without a budget too.
#[test]
fn estimate_is_the_truth() {
    for budget in [Some(Budget::once(BUDGET)), None] {
        let mut jvm = one_hot(Function::steady(HOT));
        jvm.governor.set_budget(budget);
        let passed = jvm.run_until(60);
        let truth_ns: f64 = passed.iter().map(|p| p.cost_ns).sum();
        let spent = jvm.governor.spent().as_secs_f64() * 1e9;
        assert!((spent / truth_ns - 1.0).abs() < 1e-6, "{spent} of {truth_ns}");
        // Not every period has a look, and the share is a mean of some.
        let last = &passed[passed.len() - 8..];
        let [least, most] =
            [f64::min, f64::max].map(|of| last.iter().map(Passed::slowdown).reduce(of).expect("periods"));
        assert!((0.99 * least..=1.01 * most).contains(&jvm.governor.share()), "{}", jvm.governor.share());
    }
}

/// Check what is told of a demoted function, and that it is told until the function is back.
#[test]
fn demotion_is_told() {
    let rate = |now| if now < seconds(8) { HOT } else { Calls::PerSecond(100.0) };
    let mut jvm = one_hot(Function::new(Emulated, rate));
    jvm.cores = 0.5;
    let passed = jvm.run_until(5);
    let change = passed[0].changes[0];
    let demoted: Vec<_> = jvm.governor.demoted().collect();
    let [(0, rate, why)] = demoted[..] else { panic!("{demoted:?}") };
    assert!(why == change.why && (0.9e6..1.1e6).contains(&rate), "the rate is that of the last look: {demoted:?}");
    let Why::OverBudget { share } = change.why else { panic!("{:?}", change.why) };
    assert!((share / passed[0].slowdown() - 1.0).abs() < 1e-6);
    assert!((499_000.0..501_000.0).contains(&change.rate), "{}", change.rate);
    assert!(jvm.governor.is_demoted(0) && !jvm.governor.is_demoted(1));
    jvm.run_until(17);
    assert!(!jvm.governor.is_demoted(0));
}

/// Check that a native with a stub that is called two million times a second is counted to the unit all the time, that after
/// one period the slowdown is within the budget, and that quiet methods, by stubs and by probes, stay timed.
#[test]
fn hot_stub_is_never_left_out() {
    let others = cool().chain((0..200).map(|_| Function::stubbed(|_| Calls::PerSecond(10.0))));
    let hot = Function::stubbed(|_| Calls::Loop(500.0));
    let mut jvm = SimulatedJvm::new(BUDGET, 0.0, std::iter::once(hot).chain(others).collect());
    let passed = jvm.run_until(600);
    assert!(passed[0].slowdown() > 2.0 * BUDGET, "timed, it is over the budget: {}", passed[0].slowdown());
    assert!(worst(&passed[1..]) < BUDGET, "{}", worst(&passed[1..]));
    let changes: Vec<_> = passed.iter().flat_map(|p| &p.changes).map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(0, Sixteenth)]);
    assert!(jvm.functions[1..].iter().all(|function| function.tracing == Timed));
    assert!(passed.iter().all(|p| p.looks == 0), "nothing has to be looked at");
}

/// Check that where tracing is always on, a stub that is hot times fewer calls long before all of the budget is spent, that probes
/// have the rest, and that it times all calls again when there is room by its own limit.
#[test]
fn always_on_stubs_cost_a_tenth() {
    let rate = |now| Calls::PerSecond(if now < seconds(20) { 100_000.0 } else { 30_000.0 });
    let probed = Function::steady(Calls::PerSecond(10_000.0));
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, vec![Function::stubbed(rate), probed]);
    jvm.governor.set_budget(Some(Budget::always(BUDGET)));
    let passed = jvm.run_until(20);
    let changes: Vec<_> = passed.iter().flat_map(|p| &p.changes).collect();
    assert!(matches!(changes[..], [Change { id: 0, why: Why::OverPartOfStubs { .. }, .. }]), "{changes:?}");
    assert_eq!(jvm.functions.iter().map(|f| f.tracing).collect::<Vec<_>>(), [Sixteenth, Timed]);
    jvm.run_until(30);
    assert_eq!(jvm.functions.iter().map(|f| f.tracing).collect::<Vec<_>>(), [Timed; 2]);
}

/// Check that a stub which is over the stubs' part on every rung that times some calls takes nothing from quiet ones, nor from probes that
/// wait for room.
#[test]
fn always_on_hot_stub_leaves_the_quiet_alone() {
    let rate = |now| if now < seconds(5) { HOT } else { Calls::PerSecond(100.0) };
    let hot = Function::stubbed(|_| Calls::PerSecond(4_000_000.0));
    // 0.1 % of the time together, and less than a tenth of the budget.
    let quiet = (0..20).map(|_| Function::stubbed(|_| Calls::PerSecond(2_000.0)));
    let probed = Function::new(Emulated, rate);
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, [hot, probed].into_iter().chain(quiet).collect());
    jvm.governor.set_budget(Some(Budget::always(BUDGET)));
    jvm.run_until(60);
    assert_eq!(jvm.functions[..2].iter().map(|f| f.tracing).collect::<Vec<_>>(), [Thousandth, Timed]);
    assert!(jvm.functions[2..].iter().all(|function| function.tracing == Timed));
}

/// Check that stubs which a program calls now and then, between other work, are taken to cost what they do there.
#[test]
fn rare_stubs_are_dearer() {
    let price = StubPrice { cool: 3.0, ..STUB };
    let costs = Costs { stub: StubCosts { price, ..COSTS.stub }, ..COSTS };
    let cost_of = |calls| {
        let mut governor = Governor::new(costs, None);
        let stub = Observed { id: u32::MAX, by: By::Stub, ..observed(Timed, Timed, calls) };
        governor.decide(period(1), &[stub]);
        // What is told of each method, too.
        assert!(
            (governor.dearer().stubs * 28.0 * factor(calls) / governor.spent().as_nanos() as f64 - 1.0).abs() < 1e-3
        );
        governor.spent().as_nanos() as f64 / factor(calls)
    };
    // A second of CPU time: 10 us from one call to the next and more, and a loop of little else.
    assert!((83.9..84.1).contains(&cost_of(1_000)), "{}", cost_of(1_000));
    assert!((28.0..28.2).contains(&cost_of(30_000_000)), "{}", cost_of(30_000_000));
}

/// Check that stubs which cost too much however few calls they time still count all of them, and that nothing is detached.
#[test]
fn stubs_count_whatever_it_costs() {
    let hot = (0..4).map(|_| Function::stubbed(|_| Calls::Loop(30.0)));
    let quiet = (0..20).map(|_| Function::steady(Calls::PerSecond(1.0)));
    let mut jvm = SimulatedJvm::new(0.002, 0.0, hot.chain(quiet).collect());
    let passed = jvm.run_until(60);
    assert!(jvm.functions[..4].iter().all(|function| function.tracing == Counted));
    assert!(jvm.functions[4..].iter().all(|function| function.tracing == Timed));
    assert_eq!(passed.iter().map(|p| p.changes.len()).sum::<usize>(), 4, "nothing flaps");
}

/// Check that a stub times all calls again when it has cooled down for long enough, and more of them when it has a little, and
/// that it goes down at once when it is hot again.
#[test]
fn stubs_come_back_with_patience() {
    let rate = |now: Duration| match now.as_secs() {
        0..10 => Calls::PerSecond(8e6),
        10..30 => Calls::PerSecond(3e6),
        30..50 => Calls::PerSecond(100.0),
        _ => Calls::PerSecond(8e6),
    };
    let mut jvm = SimulatedJvm::new(BUDGET, 1.0, vec![Function::stubbed(rate)]);
    let mut at = |seconds| {
        jvm.run_until(seconds);
        jvm.functions[0].tracing
    };
    assert_eq!([1, 12, 14, 31, 34, 49, 51].map(&mut at), {
        [SixtyFourth, SixtyFourth, Sixteenth, Sixteenth, Timed, Timed, SixtyFourth]
    });
}

/// Check that probes and stubs share one budget: a method that is hot by its stub leaves no room for a probe that comes later.
#[test]
fn tiers_share_the_budget() {
    let mut governor = governor();
    let stub = Observed { id: u32::MAX, by: By::Stub, ..observed(Timed, Timed, 550_000) };
    assert_eq!(governor.decide(period(1), &[stub]), []);
    let late = [observed(Timed, Timed, 1_000)];
    let changes: Vec<_> = governor.begin(period(1), &late).iter().map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(3, Detached)], "1.5 % of 1.4 % are spent");
}
