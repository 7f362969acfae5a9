//! What the governor decides of single periods and looks.

use super::*;

/// A look that saw so many calls of one busy thread.
fn glance(calls: u64, length: Duration) -> Glance {
    Glance { length, calls: vec![calls], is_timed: true, ..Glance::default() }
}

/// What becomes of a function that shows the same in many looks, the last of them at `now`.
fn looked(governor: &mut Governor, now: u64, id: u32, glance: &Glance) -> Rung {
    (0..30).for_each(|_| assert_eq!(governor.looked(seconds(2), id, glance), Detached));
    governor.looked(seconds(now), id, glance)
}

/// Check that a function is never raised above what the user asked for, and that one which is off stays off.
#[test]
fn wanted_is_the_most() {
    let mut governor = governor();
    assert_eq!(governor.decide(period(1), &[observed(Counted, Counted, 1_000_000)])[0].to, Detached);
    assert_eq!(governor.due_looks().first().copied(), Some(3));
    assert_eq!(looked(&mut governor, 6, 3, &glance(0, seconds(1))), Counted);
    for now in 7..100 {
        assert_eq!(governor.decide(period(now), &[observed(Counted, Counted, 1)]), []);
        assert_eq!(governor.decide(period(now), &[observed(Off, Off, 0)]), []);
    }
}

/// Check that periods without length, counters gone mad and costs that are not numbers give no panic and no `NaN`.
#[test]
fn numbers_stay_numbers() {
    let nan = Costs { timed_ns: [f64::NAN; 2], counted_ns: [f64::INFINITY; 2], off_ns: [-1.0; 2], ..COSTS };
    for costs in [COSTS, nan] {
        for share in [BUDGET, 0.0, f64::NAN, f64::INFINITY] {
            let mut governor = Governor::new(costs, Some(Budget::once(share)));
            for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
                for calls in [0, 1, u64::MAX] {
                    let period = Period { now: seconds(9), length, target_cpu: Duration::ZERO };
                    let changes = governor.decide(period, &[observed(Timed, Timed, calls)]);
                    assert!(changes.iter().all(|change| change.rate.is_finite()));
                    assert!(governor.due_looks().first().copied().is_none_or(|id| id == 3));
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
    assert_eq!(governor.due_looks().first().copied(), Some(3));
    governor.decide(period(9), &[]);
    assert_eq!(governor.looked(seconds(8), 3, &glance(0, seconds(1))), Detached);
    assert_eq!((governor.demoted().count(), governor.due_looks().first().copied()), (0, None));
}

/// Check that a function whose promotion could not be made stays demoted, for however long, and is looked at again.
#[test]
fn failed_promotion_is_not_forgotten() {
    let mut governor = governor();
    governor.decide(period(1), &[observed(Timed, Timed, 1_000_000)]);
    assert_eq!(looked(&mut governor, 7, 3, &glance(0, seconds(1))), Timed);
    for now in 8..100 {
        governor.decide(period(now), &[observed(Timed, Detached, 0)]);
    }
    assert_eq!((governor.demoted().count(), governor.due_looks()), (1, vec![3]));
}

/// Check that a function that the user switches off while it is demoted, and on again after a time, is looked at and comes back, and that
/// nothing is estimated of the time between.
#[test]
fn off_and_on_again_is_not_forgotten() {
    let mut governor = governor();
    governor.decide(period(1), &[observed(Timed, Timed, 1_000_000)]);
    governor.looked(seconds(2), 3, &glance(1_000, seconds(1)));
    for now in 3..10 {
        assert_eq!(governor.decide(period(now), &[observed(Off, Detached, 0)]), []);
        assert_eq!((governor.is_demoted(3), governor.lowered().count(), governor.due_looks()), (false, 1, Vec::new()));
    }
    let unseen = |governor: &Governor, now| governor.unseen(seconds(now))[&3].calls;
    let before = unseen(&governor, 3);
    assert_eq!(unseen(&governor, 10), before);
    assert_eq!(governor.decide(period(10), &[observed(Timed, Detached, 0)]), []);
    assert!(governor.is_demoted(3) && governor.due_looks() == [3]);
    assert!((before + 2_000..before + 2_010).contains(&unseen(&governor, 12)));
    assert_eq!(looked(&mut governor, 20, 3, &glance(0, seconds(1))), Timed);
    // The same of one that is counted.
    assert_eq!(governor.decide(period(21), &[observed(Timed, Timed, 30_000)])[0].to, Counted);
    assert_eq!(governor.decide(period(23), &[observed(Off, Off, 0)]), []);
    let back = (24..60).find_map(|now| governor.decide(period(now), &[observed(Timed, Counted, 1)]).pop());
    assert_eq!(back.map(|change| change.to), Some(Timed));
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
    assert_eq!(governor.due_looks().first().copied(), Some(3));
    governor.missed(seconds(6), 3);
    assert_eq!(governor.due_looks().first().copied(), Some(4));
    assert_eq!(looked(&mut governor, 7, 4, &glance(0, seconds(1))), Timed);
    assert_eq!(governor.due_looks().first().copied(), Some(3));
}

/// Check that of functions that nobody has looked at the one that is called least comes first, and then the others, however often they are
/// called.
#[test]
fn cheap_looks_come_first() {
    let mut governor = governor();
    let calls = [(3, 2_000_000), (4, 200_000), (5, 1_000_000)];
    let seen = calls.map(|(id, calls)| Observed { id, ..observed(Timed, Timed, calls) });
    governor.decide(period(1), &seen);
    let order = [2, 3, 4].map(|now| {
        let next = governor.due_looks()[0];
        governor.missed(seconds(now), next);
        next
    });
    assert_eq!(order, [4, 5, 3]);
}

/// Check that looks have what the budget has left until each function was looked at, and then their part of it.
#[test]
fn what_is_left_is_for_what_nobody_knows() {
    let mut governor = governor();
    let two = [3, 4].map(|id| Observed { id, ..observed(Timed, Timed, 1_000_000) });
    governor.decide(period(1), &two);
    let gone = two.map(|seen| Observed { tracing: Detached, calls: 0, ..seen });
    // In a second looks may cost a fifth of the budget of 20 ms, and 14 ms are left. These cost 10.
    let calls = 10_000;
    let mut look = |now: u64| {
        let next = governor.due_looks();
        assert_eq!(governor.looked(seconds(now), next[0], &glance(calls, seconds(1))), Detached);
        (now + 1..)
            .take_while(|now| {
                governor.decide(period(*now), &gone);
                governor.due_looks().is_empty()
            })
            .count()
    };
    assert_eq!([look(1), look(2), look(9)], [0, 2, 2]);
}

/// Check that a function that was seen beside an expensive one is taken to be called more often by itself than one that was seen alone.
#[test]
fn what_was_seen_was_slowed_by_others() {
    let estimate = |others: u64| {
        let mut governor = governor();
        let other = Observed { id: 4, ..observed(Timed, Timed, others) };
        governor.decide(period(1), &[observed(Timed, Timed, 200_000), other]);
        governor.unseen(seconds(2))[&3].calls
    };
    let (alone, beside) = (estimate(0), estimate(300_000));
    assert!((1.3..3.0).contains(&(factor(beside) / factor(alone))), "{alone} and {beside}");
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
    assert_eq!(governor.due_looks().first().copied(), None);
}

/// Check that rare traps are paid for as what they cost after other work, and quick ones as what they cost in a loop.
#[test]
fn rare_traps_are_dearer() {
    let costs = Costs { cool: [3.0, 1.0], ..COSTS };
    // 10,000 timed calls of a microsecond are 1 % of a second, or 3 %.
    let share_of = |calls, budget| {
        let mut governor = Governor::new(costs, budget);
        let changes = governor.decide(period(1), &[observed(Timed, Timed, calls)]);
        (governor.share(), governor.dearer().sites[0], changes.len())
    };
    let (rare, dearer, _) = share_of(10_000, None);
    assert!((0.0300..0.0315).contains(&rare) && dearer == 3.0, "{rare} {dearer}");
    let (quick, dearer, _) = share_of(950_000, None);
    // The JVM has at least a tenth of a core for itself.
    assert!((9.5..9.7).contains(&quick) && dearer < 1.02, "{quick} {dearer}");
    let of_budget = |share| share_of(10_000, Some(Budget::once(share))).2;
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
    assert_eq!(governor.due_looks().first().copied(), Some(1));
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
        assert_eq!(governor.due_looks().first().copied(), Some(3));
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
    assert_eq!(governor.due_looks().first().copied(), Some(2));
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
