//! What the governor promises, proven on a simulated JVM.

use std::time::Duration;

use super::Rung::{self, Counted, Detached, Off, Sixteenth, Timed};
use super::simulated_jvm::{COSTS, Calls, Function, Passed, SimulatedJvm};
use super::{Budget, By, Glance, Governor, Observed, Period, Why};
use crate::model::ProbeCost::{Emulated, SingleStepped};

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
    jvm.governor.set_budget(Some(Budget { share: 0.005 }));
    jvm.run_until(2);
    assert_eq!(states(&jvm), [Timed, Detached, Detached]);
    jvm.run_until(300);
    jvm.governor.set_budget(Some(Budget { share: BUDGET }));
    jvm.run_until(302);
    assert_eq!(states(&jvm), [Timed, Timed, Detached]);
    jvm.governor.set_budget(Some(Budget { share: 0.5 }));
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
    for budget in [Some(Budget { share: BUDGET }), None] {
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

fn period(now: u64) -> Period {
    Period { now: seconds(now), length: seconds(1), target_cpu: seconds(1) }
}

fn observed(wanted: Rung, tracing: Rung, calls: u64) -> Observed {
    Observed { id: 3, by: By::Probe(Emulated), wanted, tracing, calls }
}

/// A look that saw so many calls of one busy thread.
fn glance(calls: u64, length: Duration) -> Glance {
    Glance { length, calls: vec![calls], is_timed: true, ..Glance::default() }
}

/// What becomes of a function that shows the same in many looks, the last of them at `now`.
fn looked(governor: &mut Governor, now: u64, id: u32, glance: &Glance) -> Rung {
    (0..30).for_each(|_| assert_eq!(governor.looked(seconds(2), id, glance), Detached));
    governor.looked(seconds(now), id, glance)
}

fn governor() -> Governor {
    Governor::new(COSTS, Some(Budget { share: BUDGET }))
}

/// Check that a function is never raised above what the user asked for, and that one which is off stays off.
#[test]
fn wanted_is_the_most() {
    let mut governor = governor();
    assert_eq!(governor.decide(period(1), &[observed(Counted, Counted, 1_000_000)])[0].to, Detached);
    assert_eq!(governor.due_look(), Some(3));
    assert_eq!(looked(&mut governor, 6, 3, &glance(0, seconds(1))), Counted);
    for now in 7..100 {
        assert_eq!(governor.decide(period(now), &[observed(Counted, Counted, 1)]), []);
        assert_eq!(governor.decide(period(now), &[observed(Off, Off, 0)]), []);
    }
}

/// Check that periods without length, counters gone mad and costs that are not numbers give no panic and no `NaN`.
#[test]
fn numbers_stay_numbers() {
    let nan = super::Costs { timed_ns: [f64::NAN; 2], counted_ns: [f64::INFINITY; 2], off_ns: [-1.0; 2], ..COSTS };
    for costs in [COSTS, nan] {
        for share in [BUDGET, 0.0, f64::NAN, f64::INFINITY] {
            let mut governor = Governor::new(costs, Some(Budget { share }));
            for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
                for calls in [0, 1, u64::MAX] {
                    let period = Period { now: seconds(9), length, target_cpu: Duration::ZERO };
                    let changes = governor.decide(period, &[observed(Timed, Timed, calls)]);
                    assert!(changes.iter().all(|change| change.rate.is_finite()));
                    assert!(governor.due_look().is_none_or(|id| id == 3));
                    governor.looked(Duration::ZERO, 3, &glance(calls, length));
                }
            }
            assert!(governor.share().is_finite());
            assert!(governor.spent() < Duration::MAX);
        }
    }
}

/// Check that a function that is gone is forgotten with its look.
#[test]
fn forgets_what_is_gone() {
    let mut governor = governor();
    let hot = [observed(Timed, Timed, 1_000_000)];
    governor.decide(period(1), &hot);
    assert!(governor.is_demoted(3));
    governor.decide(period(2), &[]);
    assert!(!governor.is_demoted(3));
    governor.decide(period(3), &hot);
    assert_eq!(governor.due_look(), Some(3));
    governor.decide(period(9), &[]);
    assert_eq!(governor.looked(seconds(8), 3, &glance(0, seconds(1))), Detached);
    assert_eq!((governor.demoted().count(), governor.due_look()), (0, None));
}

/// Check that a change which the caller could not make is asked for again.
#[test]
fn failed_change_is_repeated() {
    let mut governor = governor();
    let hot = [observed(Timed, Timed, 1_000_000)];
    let first = governor.decide(period(1), &hot);
    assert_eq!((first.len(), first[0].to), (1, Detached));
    assert_eq!(governor.decide(period(2), &hot), first);
}

/// Check that a function that cannot be looked at does not hold up those that can.
#[test]
fn missed_look_is_made_after_the_others() {
    let mut governor = governor();
    let two = [3, 4].map(|id| Observed { id, ..observed(Timed, Timed, 1_000_000) });
    governor.decide(period(1), &two);
    assert_eq!(governor.due_look(), Some(3));
    governor.missed(seconds(6), 3);
    assert_eq!(governor.due_look(), Some(4));
    assert_eq!(looked(&mut governor, 7, 4, &glance(0, seconds(1))), Timed);
    assert_eq!(governor.due_look(), Some(3));
}

/// Check that two functions that are looked at in one period do not get the same room.
#[test]
fn looks_share_the_room() {
    let mut governor = governor();
    let two = [3, 4].map(|id| Observed { id, ..observed(Timed, Timed, 100_000) });
    governor.decide(period(1), &two);
    // Timed, 10,000 calls a second are 60 % of the budget.
    let answers = [3, 4].map(|id| looked(&mut governor, 6, id, &glance(100, Duration::from_millis(10))));
    assert_eq!(answers, [Timed, Detached]);
}

/// Check that looks at a target that got no CPU bring nothing back: it may call as often as before as soon as it gets one.
#[test]
fn starved_looks_prove_nothing() {
    let mut governor = governor();
    governor.decide(period(1), &[observed(Timed, Timed, 1_000_000)]);
    let starved = Glance { is_starved: true, ..glance(0, seconds(1)) };
    assert_eq!(looked(&mut governor, 30, 3, &starved), Detached);
    assert_eq!(looked(&mut governor, 31, 3, &glance(0, seconds(1))), Timed);
}

/// Check that what a look cost is in the share of its period.
#[test]
fn looks_are_in_the_share() {
    let share = |calls| {
        let mut governor = governor();
        governor.decide(period(1), &[observed(Timed, Timed, 1_000_000)]);
        governor.looked(seconds(2), 3, &glance(calls, Duration::from_millis(20)));
        governor.decide(period(2), &[observed(Timed, Detached, 0)]);
        governor.share()
    };
    assert!(share(20_000) > share(0) + 0.003, "10 ms in a second, smoothed over three");
}

/// Check that a period over the budget makes all functions wait again, also those that did not cause it.
#[test]
fn waits_again_after_a_period_over_the_budget() {
    let mut governor = governor();
    let mut states = [Timed, Timed];
    let raised = [[25_000, 0], [1_000, 0], [1_000, 0], [1_000, 30_000], [1_000, 0], [1_000, 0], [1_000, 0]]
        .into_iter()
        .zip(1..)
        .filter_map(|(calls, now)| {
            let function = |id: u32| Observed { id, ..observed(Timed, states[id as usize], calls[id as usize]) };
            let changes = governor.decide(period(now), &[function(0), function(1)]);
            changes.iter().for_each(|change| states[change.id as usize] = change.to);
            changes.iter().any(|change| change.id == 0 && change.to == Timed).then_some(now)
        });
    assert_eq!(raised.collect::<Vec<_>>(), [7]);
}

/// Check that without a budget nothing is lowered, and only what the governor itself lowered is given back.
#[test]
fn without_a_budget_nothing_changes() {
    let mut governor = Governor::new(COSTS, None);
    assert_eq!(governor.decide(period(1), &[observed(Timed, Timed, 1_000_000)]), []);
    assert_eq!(governor.decide(period(2), &[observed(Timed, Detached, 0)]), []);
    assert_eq!(governor.due_look(), None);
}

/// Check that rare traps are paid for as what they cost after other work, and quick ones as what they cost in a loop.
#[test]
fn rare_traps_are_dearer() {
    let costs = super::Costs { cool: [3.0, 1.0], ..COSTS };
    // 10,000 timed calls of a microsecond are 1 % of a second, or 3 %.
    let share_of = |calls, budget| {
        let mut governor = Governor::new(costs, budget);
        let changes = governor.decide(period(1), &[observed(Timed, Timed, calls)]);
        (governor.share(), governor.dearer()[0], changes.len())
    };
    let (rare, dearer, _) = share_of(10_000, None);
    assert!((0.0300..0.0315).contains(&rare) && dearer == 3.0, "{rare} {dearer}");
    let (quick, dearer, _) = share_of(950_000, None);
    // The JVM has at least a tenth of a core for itself.
    assert!((9.5..9.7).contains(&quick) && dearer < 1.02, "{quick} {dearer}");
    let of_budget = |share| share_of(10_000, Some(Budget { share })).2;
    assert_eq!([of_budget(0.02), of_budget(0.04)], [1, 0]);
}

/// Check that what is too expensive is not attached to begin with, that the rest is as it is wanted, and that what comes later only
/// gets the room that is left.
#[test]
fn begins_within_the_budget() {
    let mut governor = governor();
    let calls = [10, 2_000_000, 5_000, 0];
    let all: Vec<_> = (0..).zip(calls).map(|(id, calls)| Observed { id, ..observed(Timed, Timed, calls) }).collect();
    let changes: Vec<_> = governor.begin(period(0), &all).iter().map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(1, Detached)]);
    assert_eq!(governor.due_look(), Some(1));
    let late: Vec<_> = [6, 7].map(|id| Observed { id, ..observed(Timed, Timed, 5_000) }).into();
    let changes: Vec<_> = governor.begin(period(1), &late).iter().map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(6, Counted)]);
    let mut boundless = Governor::new(COSTS, None);
    assert_eq!(boundless.begin(period(0), &all), []);
}

/// Check that looks at a counted function tell how long its calls take, leave it as it is and do not add to its calls, and that
/// it takes its turn with detached ones.
#[test]
fn counted_calls_have_times() {
    let mut governor = governor();
    let two = [Observed { id: 2, ..observed(Timed, Timed, 1_000_000) }, observed(Timed, Timed, 20_000)];
    let changes: Vec<_> = governor.begin(period(0), &two).iter().map(|change| (change.id, change.to)).collect();
    assert_eq!(changes, [(2, Detached), (3, Counted)]);
    assert!(governor.means().is_empty());
    for (now, mean_ns) in [(1, 500), (3, 700)] {
        governor.missed(seconds(now), 2);
        assert_eq!(governor.due_look(), Some(3));
        let timed = Glance { timed: 10, total_ns: 10 * mean_ns, ..glance(10, Duration::from_millis(1)) };
        assert_eq!(governor.looked(seconds(now), 3, &timed), Counted);
        governor.decide(
            period(now + 1),
            &[Observed { tracing: Detached, calls: 0, ..two[0] }, observed(Timed, Counted, 9)],
        );
    }
    let mean = governor.means()[&3];
    assert!(mean.ns == 600.0 && (100.0..300.0).contains(&mean.error_ns), "{mean:?}");
    assert!(!governor.unseen(seconds(9)).contains_key(&3));
    assert_eq!(governor.due_look(), Some(2));
}

/// Check that the calls of a function that is never watched are known all the same, steady ones and those of a function that
/// is hot for the first second only, and that the truth is within what is said to be the error.
#[test]
fn unseen_calls_are_estimated() {
    let early = |now: Duration| if now < seconds(2) { Calls::PerSecond(90_000.0) } else { Calls::PerSecond(9_000.0) };
    for hot in [Function::steady(Calls::Loop(400.0)), Function::new(Emulated, early)] {
        let mut jvm = SimulatedJvm::new(0.005, 1.0, vec![hot]);
        jvm.run_until(1);
        assert_eq!(jvm.functions[0].tracing, Detached);
        jvm.made = vec![0];
        let before = jvm.governor.unseen(jvm.now).get(&0).map_or(0, |unseen| unseen.calls);
        jvm.run_until(20);
        let made = i64::try_from(jvm.made[0]).unwrap();
        let mut unseen = jvm.governor.unseen(jvm.now)[&0];
        unseen.calls -= before;
        let (calls, error) = (i64::try_from(unseen.calls).unwrap(), i64::try_from(unseen.error_calls).unwrap());
        assert!((calls - made).abs() < 2 * error, "{made} calls, {unseen:?}");
        assert!(error < made / 2, "{made} calls, {unseen:?}");
    }
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
        [Rung::SixtyFourth, Rung::SixtyFourth, Sixteenth, Sixteenth, Timed, Timed, Rung::SixtyFourth]
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
