use nprof_common::Mode;

use super::*;
use crate::model::NativeCode;

const NOW: Duration = Duration::from_secs(60);

fn ledger() -> Ledger {
    Ledger::new(Manner { mode: Mode::Time, threshold_ns: u64::MAX, time_every: 16 })
}

fn method(id: u64, class: &str, name: &str) -> Method {
    let (class, name, signature) = (class.to_owned(), name.to_owned(), "()V".to_owned());
    Method { id: VirtAddr(id), class, name, signature, code: NativeCode::Unbound }
}

fn planned(id: u64, class: &str, name: &str) -> (VirtAddr, Planned) {
    let method = PlannedMethod { method: method(id, class, name), bound: HowBound::Predicted };
    (VirtAddr(id), Planned { method, probe: Some(7), library: "liba.so".to_owned() })
}

/// Method `number` of class `a.A`, whose `Method` is at the same number.
fn bound(number: u32, how: How, index: Option<u32>) -> Bound {
    Bound {
        number,
        how,
        index,
        method: Some(VirtAddr(u64::from(number))),
        address: VirtAddr(0x1000 + u64::from(number)),
        class: "a.A".to_owned(),
        name: format!("m{number}"),
        signature: "()V".to_owned(),
    }
}

fn plan(numbers: &[u64]) -> Known<'static> {
    known(numbers.iter().map(|&number| planned(number, "a.A", &format!("m{number}"))))
}

fn known(planned: impl IntoIterator<Item = (VirtAddr, Planned)>) -> Known<'static> {
    Known { by_id: planned.into_iter().collect(), others: &|_| None }
}

fn watch(number: u32) -> ToShim {
    ToShim::Watch(Watch { number, mode: Mode::Time as u32, chance: 0, threshold_ns: u64::MAX })
}

fn sample(number: u32) -> ToShim {
    ToShim::Watch(Watch { number, mode: 3, chance: 1 << 28, threshold_ns: u64::MAX })
}

fn stubbed(number: u32, index: u32) -> Stubbed {
    Stubbed { number, index, entry: 0 }
}

fn standing(ledger: &Ledger, number: u64) -> Standing {
    ledger.standing(&plan(&[number]).by_id[&VirtAddr(number)].method, true)
}

/// Check that selected methods are watched by one order, others are left alone, and that each has the standing that the
/// answer gives it.
#[test]
fn selected_methods_get_stubs() {
    let mut ledger = ledger();
    (1..=3).for_each(|number| ledger.bound(bound(number, How::Found, None), Duration::ZERO).unwrap());
    let plan = plan(&[1, 2]);
    let orders = ledger.decide(&plan, true, Duration::ZERO, |_| false);
    assert_eq!(orders, [watch(1), watch(2), ToShim::Apply(1)]);
    assert!(!ledger.is_settled() && standing(&ledger, 1) == Standing::Probed);
    ledger.stubbed(&stubbed(1, 5));
    ledger.applied(1);
    assert!(ledger.is_settled());
    assert_eq!([1, 2].map(|number| standing(&ledger, number)), [Standing::Stubbed, Standing::Probed]);
    // What was refused is not asked for again.
    assert_eq!(ledger.decide(&plan, true, NOW, |_| false), []);
    let recorded: Vec<(u32, u32)> = ledger.recorded().map(|(entry, _, index)| (entry.bound.number, index)).collect();
    assert_eq!(recorded, [(1, 5)]);
}

/// Check that what was lost of the shim's answers is learnt from a scan, and that a method that is bound to another address
/// is to get a stub for that.
#[test]
fn lost_answers_and_new_addresses() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Found, None), Duration::ZERO).unwrap();
    assert_eq!(ledger.decide(&plan(&[1]), true, Duration::ZERO, |_| false), [watch(1), ToShim::Apply(1)]);
    ledger.bound(bound(1, How::Found, Some(4)), NOW).unwrap();
    assert_eq!(standing(&ledger, 1), Standing::Stubbed);
    ledger.bound(bound(1, How::Event, None), NOW).unwrap();
    assert_eq!(standing(&ledger, 1), Standing::Probed);
    assert_eq!(ledger.decide(&plan(&[1]), true, NOW, |_| false), [watch(1), ToShim::Apply(2)]);
}

/// Check that a method that is bound with a stub keeps it if it is selected, counted from its first call on; and that one
/// of which the plan does not come to know loses it, but not at once.
#[test]
fn stubs_of_late_methods() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    ledger.bound(bound(2, How::Event, Some(1)), NOW).unwrap();
    assert_eq!(ledger.decide(&plan(&[1]), true, NOW, |_| false), []);
    assert_eq!(standing(&ledger, 1), Standing::Stubbed);
    assert_eq!(ledger.recorded().map(|(entry, ..)| entry.since).collect::<Vec<_>>(), [Duration::ZERO]);
    assert!(ledger.has_doubts());
    let orders = ledger.decide(&plan(&[1]), true, NOW + GRACE, |_| false);
    assert_eq!(orders, [ToShim::Unwatch(2), ToShim::Apply(1)]);
    assert!(!ledger.has_doubts());
}

/// Check that stubs of an earlier nprof are watched again or taken back.
#[test]
fn stubs_of_an_earlier_nprof() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Found, Some(0)), Duration::ZERO).unwrap();
    ledger.bound(bound(2, How::Found, Some(1)), Duration::ZERO).unwrap();
    assert_eq!(ledger.decide(&plan(&[1]), true, Duration::ZERO, |_| false), [watch(1), ToShim::Apply(1)]);
    ledger.applied(1);
    assert_eq!(standing(&ledger, 1), Standing::Stubbed);
    assert_eq!(ledger.decide(&plan(&[1]), true, GRACE, |_| false), [ToShim::Unwatch(2), ToShim::Apply(2)]);
}

/// Check the way back to probes and to stubs again, and that it is remembered who may have seen calls.
#[test]
fn back_and_forth() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    let plan = plan(&[1]);
    assert_eq!(ledger.decide(&plan, true, NOW, |_| false), []);
    ledger.probed(7);
    let was_probed = |ledger: &Ledger| ledger.recorded().all(|(entry, ..)| entry.was_probed);
    assert!(!was_probed(&ledger));
    assert_eq!(ledger.decide(&plan, false, NOW, |_| false), [ToShim::Unwatch(1), ToShim::Apply(1)]);
    assert_eq!(standing(&ledger, 1), Standing::Probed);
    ledger.probed(7);
    assert!(was_probed(&ledger));
    ledger.applied(1);
    assert_eq!(ledger.decide(&plan, true, NOW, |_| true), [watch(1), ToShim::Apply(2)]);
    ledger.applied(2);
    assert_eq!(standing(&ledger, 1), Standing::Stubbed);
}

/// Check that methods that are not called as natives get no stub, and that unbound methods wait for theirs.
#[test]
fn who_gets_no_stub() {
    let mut ledger = ledger();
    let (id, candidate) = planned(9, "java.lang.invoke.MethodHandle", "linkToStatic");
    let class = "java.lang.invoke.MethodHandle".to_owned();
    let found = Bound { class, name: "linkToStatic".to_owned(), ..bound(9, How::Found, None) };
    assert_eq!(ledger.standing(&candidate.method, true), Standing::Probed);
    ledger.bound(found, Duration::ZERO).unwrap();
    assert_eq!(ledger.decide(&known([(id, candidate)]), true, Duration::ZERO, |_| false), []);
    assert_eq!(standing(&ledger, 4), Standing::Awaited);
    let unbound = &plan(&[4]).by_id[&VirtAddr(4)].method;
    assert_eq!(ledger.standing(unbound, false), Standing::Probed);
}

/// Check that memory of the VM that belongs to another method by now gives neither a stub nor an address.
#[test]
fn another_method_at_the_same_place() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    assert_eq!(ledger.original(&method(1, "a.A", "m1")), Some(VirtAddr(0x1001)));
    assert_eq!(ledger.original(&method(1, "a.A", "other")), None);
    let (id, other) = planned(1, "b.B", "m1");
    assert_eq!(ledger.decide(&known([(id, other.clone())]), true, NOW, |_| false), []);
    assert_eq!(ledger.standing(&other.method, true), Standing::Awaited);
    ledger.bound(Bound { class: "b.B".to_owned(), ..bound(1, How::Event, Some(3)) }, NOW).unwrap();
    assert_eq!(ledger.decide(&known([(id, other.clone())]), true, NOW, |_| false), []);
    assert_eq!(ledger.standing(&other.method, true), Standing::Stubbed);
}

/// Check that nothing is left to a shim that is gone.
#[test]
fn the_end_of_the_shim() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    assert_eq!(ledger.decide(&plan(&[1]), true, NOW, |_| false), []);
    ledger.give_up();
    assert_eq!(standing(&ledger, 1), Standing::Probed);
    assert_eq!(ledger.recorded().count(), 1);
    assert_eq!(ledger.decide(&plan(&[1]), false, NOW, |_| false), []);
}

/// Check that a method of which only the shim has heard is one like others if it is selected, and is the plan's own as soon
/// as that has it.
#[test]
fn a_class_that_was_there_in_between() {
    let mut ledger = ledger();
    ledger.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    let (id, met) = planned(1, "a.A", "m1");
    let met = Planned { probe: None, ..met };
    let others = |_: &Bound| Some(met.clone());
    let plan = Known { by_id: HashMap::new(), others: &others };
    assert_eq!(ledger.decide(&plan, true, NOW, |_| false), []);
    let probes = |ledger: &Ledger| ledger.recorded().map(|(_, planned, _)| planned.probe).collect::<Vec<_>>();
    assert_eq!(probes(&ledger), [None]);
    let plan = known([(id, Planned { probe: Some(7), ..met.clone() })]);
    assert_eq!(ledger.decide(&plan, true, NOW, |_| false), []);
    assert_eq!((probes(&ledger), standing(&ledger, 1)), (vec![Some(7)], Standing::Stubbed));
}

/// Check that of a method that has been called often only some calls are timed, which is ordered once and stays so when it
/// has been with probes in between; and that a new stub, which times each call, is thinned out again.
#[test]
fn some_calls_of_what_is_called_often() {
    let mut ledger = ledger();
    (1..=2).for_each(|number| ledger.bound(bound(number, How::Found, None), Duration::ZERO).unwrap());
    let plan = plan(&[1, 2]);
    let often = |record: u32| (record == 5).then_some(Timed { calls: 1000, total_ns: 70_000 });
    ledger.decide(&plan, true, Duration::ZERO, |_| false);
    assert_eq!(ledger.thin_out(often), [], "without a stub");
    (1..=2).for_each(|number| ledger.stubbed(&stubbed(number, 4 + number)));
    ledger.applied(1);
    assert_eq!(ledger.thin_out(often), [sample(1)]);
    assert_eq!(ledger.thin_out(often), []);
    assert!(ledger.is_settled(), "there is nothing to bind");
    let sampled: Vec<Option<u64>> = ledger.recorded().map(|(entry, ..)| Some(entry.sampled?.calls)).collect();
    assert_eq!(sampled, [Some(1000), None]);
    ledger.decide(&plan, false, NOW, |_| false);
    let orders = ledger.decide(&plan, true, NOW, |_| false);
    assert_eq!(orders, [sample(1), watch(2), ToShim::Apply(3)]);
    ledger.applied(3);
    ledger.bound(bound(1, How::Event, Some(5)), NOW).unwrap();
    assert_eq!(ledger.thin_out(often), [sample(1)]);
}

/// Check that a target cannot fill memory with methods, be they many or have they long names, and that what is told once more
/// does not count twice.
#[test]
fn methods_are_bounded() {
    let mut many = ledger();
    let told = (0..).take_while(|&number| many.bound(bound(number, How::Event, None), NOW).is_ok()).count();
    assert_eq!((told, many.entries.len()), (MOST_METHODS, MOST_METHODS));
    assert_eq!(many.bound(bound(7, How::Found, None), NOW), Ok(()));

    let mut long = ledger();
    let name = |length| Bound { class: "a".repeat(length), ..bound(1, How::Event, None) };
    for _ in 0..1000 {
        long.bound(name(1 << 20), NOW).unwrap();
    }
    let told = (2..).take_while(|&number| long.bound(Bound { number, ..name(1 << 16) }, NOW).is_ok()).count();
    assert!((MOST_BYTES >> 18..MOST_BYTES >> 17).contains(&told), "{told}");
}
