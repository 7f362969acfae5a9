use nprof_common::Mode;
use nprof_common::wire::Watch;

use super::*;
use crate::model::{NativeCode, StubPrice};
use crate::trace::chosen::Choice;
use crate::trace::stubs::Collected;

const NOW: Duration = Duration::from_secs(60);

fn stub_states() -> StubStates {
    let price = StubPrice::default();
    StubStates::new(StubOptions {
        mode: Mode::Time,
        choice: Choice::Nothing,
        time_every: 16,
        price,
        collected: Collected::default(),
        wants_all: true,
    })
}

fn method(id: u64, class: &str, name: &str) -> Method {
    let (class, name, signature) = (class.into(), name.into(), "()V".into());
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
    Known { by_id: planned.into_iter().collect(), others: &|_| None, may_be: &|_| true, library_of: &|_| String::new() }
}

fn watch(number: u32) -> ToShim {
    ToShim::Watch(Watch { number, mode: Mode::Time as u32, probability: 0, threshold_ns: u64::MAX, kinds: 0 })
}

fn stubbed(number: u32, index: u32) -> Stubbed {
    Stubbed { number, index, entry: 0 }
}

fn standing(stub_states: &StubStates, number: u64) -> Standing {
    stub_states.standing(&plan(&[number]).by_id[&VirtAddr(number)].method, true)
}

/// Check that selected methods are watched by one order, others are left alone, and that each has the standing that the
/// answer gives it.
#[test]
fn selected_methods_get_stubs() {
    let mut stub_states = stub_states();
    (1..=3).for_each(|number| stub_states.bound(bound(number, How::Found, None), Duration::ZERO).unwrap());
    let plan = plan(&[1, 2]);
    let orders = stub_states.decide(&plan, true, Duration::ZERO, |_| false);
    assert_eq!(orders, [watch(1), watch(2), ToShim::Apply(1)]);
    assert!(!stub_states.is_settled() && standing(&stub_states, 1) == Standing::Probed);
    stub_states.stubbed(&stubbed(1, 5));
    stub_states.applied(1);
    assert!(stub_states.is_settled());
    assert_eq!([1, 2].map(|number| standing(&stub_states, number)), [Standing::Stubbed, Standing::Probed]);
    // What was refused is not asked for again.
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), []);
    let recorded: Vec<(u32, u32)> =
        stub_states.recorded().map(|(entry, _, index)| (entry.bound.number, index)).collect();
    assert_eq!(recorded, [(1, 5)]);
}

/// Check that what was lost of the shim's answers is learnt from a scan, and that a method that is bound to another address
/// is to get a stub for that.
#[test]
fn lost_answers_and_new_addresses() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Found, None), Duration::ZERO).unwrap();
    assert_eq!(stub_states.decide(&plan(&[1]), true, Duration::ZERO, |_| false), [watch(1), ToShim::Apply(1)]);
    stub_states.bound(bound(1, How::Found, Some(4)), NOW).unwrap();
    assert_eq!(standing(&stub_states, 1), Standing::Stubbed);
    stub_states.bound(bound(1, How::Event, None), NOW).unwrap();
    assert_eq!(standing(&stub_states, 1), Standing::Probed);
    assert_eq!(stub_states.decide(&plan(&[1]), true, NOW, |_| false), [watch(1), ToShim::Apply(2)]);
}

/// Check that a method that is bound with a stub keeps it if it is selected, counted from its first call on; and that one
/// of which the plan does not come to know loses it, but not at once.
#[test]
fn stubs_of_late_methods() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    stub_states.bound(bound(2, How::Event, Some(1)), NOW).unwrap();
    assert_eq!(stub_states.decide(&plan(&[1]), true, NOW, |_| false), []);
    assert_eq!(standing(&stub_states, 1), Standing::Stubbed);
    assert_eq!(stub_states.recorded().map(|(entry, ..)| entry.since).collect::<Vec<_>>(), [Duration::ZERO]);
    assert!(stub_states.has_doubts());
    assert_eq!(stub_states.undecided().map(|bound| bound.number).collect::<Vec<_>>(), [2]);
    let orders = stub_states.decide(&plan(&[1]), true, NOW + GRACE, |_| false);
    assert_eq!(orders, [ToShim::Unwatch(2), ToShim::Apply(1)]);
    assert!(!stub_states.has_doubts());
}

/// Check that a method that was bound with a stub loses it at once if its name is not selected, whenever it is bound, and that its
/// record is known to be of nobody's.
#[test]
fn stubs_that_nobody_wants() {
    let mut stub_states = stub_states();
    let plan = Known { may_be: &|bound| bound.number != 2, ..plan(&[1]) };
    (1..=3).for_each(|number| stub_states.bound(bound(number, How::Event, Some(number)), NOW).unwrap());
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), [ToShim::Unwatch(2), ToShim::Apply(1)]);
    assert_eq!((stub_states.unselected().collect::<Vec<_>>(), stub_states.has_doubts()), (vec![2], true));
    stub_states.bound(bound(2, How::Event, Some(2)), NOW).unwrap();
    assert_eq!(stub_states.unselected().count(), 0);
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), [ToShim::Unwatch(2), ToShim::Apply(2)]);
    assert_eq!(stub_states.decide(&plan, true, NOW + GRACE, |_| false), [ToShim::Unwatch(3), ToShim::Apply(3)]);
    assert_eq!(stub_states.unselected().collect::<Vec<_>>(), [2, 3]);
}

/// Check that stubs of an earlier nprof are watched again or taken back.
#[test]
fn stubs_of_an_earlier_nprof() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Found, Some(0)), Duration::ZERO).unwrap();
    stub_states.bound(bound(2, How::Found, Some(1)), Duration::ZERO).unwrap();
    assert_eq!(stub_states.decide(&plan(&[1]), true, Duration::ZERO, |_| false), [watch(1), ToShim::Apply(1)]);
    stub_states.applied(1);
    assert_eq!(standing(&stub_states, 1), Standing::Stubbed);
    assert_eq!(stub_states.decide(&plan(&[1]), true, GRACE, |_| false), [ToShim::Unwatch(2), ToShim::Apply(2)]);
}

/// Check the way back to probes and to stubs again, and that it is remembered who may have seen calls.
#[test]
fn back_and_forth() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    let plan = plan(&[1]);
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), []);
    stub_states.probed(7);
    let was_probed = |stub_states: &StubStates| stub_states.recorded().all(|(entry, ..)| entry.was_probed);
    assert!(!was_probed(&stub_states));
    assert_eq!(stub_states.decide(&plan, false, NOW, |_| false), [ToShim::Unwatch(1), ToShim::Apply(1)]);
    assert_eq!(standing(&stub_states, 1), Standing::Probed);
    stub_states.probed(7);
    assert!(was_probed(&stub_states));
    stub_states.applied(1);
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| true), [watch(1), ToShim::Apply(2)]);
    stub_states.applied(2);
    assert_eq!(standing(&stub_states, 1), Standing::Stubbed);
}

/// Check that methods that are not called as natives get no stub, and that unbound methods wait for theirs.
#[test]
fn who_gets_no_stub() {
    let mut stub_states = stub_states();
    let (id, candidate) = planned(9, "java.lang.invoke.MethodHandle", "linkToStatic");
    let class = "java.lang.invoke.MethodHandle".to_owned();
    let found = Bound { class, name: "linkToStatic".to_owned(), ..bound(9, How::Found, None) };
    assert_eq!(stub_states.standing(&candidate.method, true), Standing::Probed);
    stub_states.bound(found, Duration::ZERO).unwrap();
    assert_eq!(stub_states.decide(&known([(id, candidate)]), true, Duration::ZERO, |_| false), []);
    assert_eq!(standing(&stub_states, 4), Standing::Awaited);
    let unbound = &plan(&[4]).by_id[&VirtAddr(4)].method;
    assert_eq!(stub_states.standing(unbound, false), Standing::Probed);
}

/// Check that memory of the VM that belongs to another method by now gives neither a stub nor an address.
#[test]
fn another_method_at_the_same_place() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    assert_eq!(stub_states.original(&method(1, "a.A", "m1")), Some(VirtAddr(0x1001)));
    assert_eq!(stub_states.original(&method(1, "a.A", "other")), None);
    let (id, other) = planned(1, "b.B", "m1");
    assert_eq!(stub_states.decide(&known([(id, other.clone())]), true, NOW, |_| false), []);
    assert_eq!(stub_states.standing(&other.method, true), Standing::Awaited);
    stub_states.bound(Bound { class: "b.B".to_owned(), ..bound(1, How::Event, Some(3)) }, NOW).unwrap();
    assert_eq!(stub_states.decide(&known([(id, other.clone())]), true, NOW, |_| false), []);
    assert_eq!(stub_states.standing(&other.method, true), Standing::Stubbed);
}

/// Check that nothing is left to a shim that is gone.
#[test]
fn the_end_of_the_shim() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    assert_eq!(stub_states.decide(&plan(&[1]), true, NOW, |_| false), []);
    stub_states.give_up();
    assert_eq!(standing(&stub_states, 1), Standing::Probed);
    assert_eq!(stub_states.recorded().count(), 1);
    assert_eq!(stub_states.decide(&plan(&[1]), false, NOW, |_| false), []);
}

/// Check that a method of which only the shim has heard is one like others if it is selected, and is the plan's own as soon
/// as that has it.
#[test]
fn a_class_that_was_there_in_between() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    let (id, met) = planned(1, "a.A", "m1");
    let met = Planned { probe: None, ..met };
    let others = |_: &Bound| Some(met.clone());
    let plan = Known { others: &others, ..plan(&[]) };
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), []);
    let probes =
        |stub_states: &StubStates| stub_states.recorded().map(|(_, planned, _)| planned.probe).collect::<Vec<_>>();
    assert_eq!(probes(&stub_states), [None]);
    let plan = known([(id, Planned { probe: Some(7), ..met.clone() })]);
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), []);
    assert_eq!((probes(&stub_states), standing(&stub_states, 1)), (vec![Some(7)], Standing::Stubbed));
}

/// Check that a method that had no code when it was planned has the library of what it is bound to.
#[test]
fn library_of_a_late_one() {
    let mut stub_states = stub_states();
    stub_states.bound(bound(1, How::Event, Some(0)), NOW).unwrap();
    stub_states.bound(bound(2, How::Event, Some(1)), NOW).unwrap();
    let (first, unbound) = planned(1, "a.A", "m1");
    let unbound = Planned { library: String::new(), probe: None, ..unbound };
    let (second, known) = planned(2, "a.A", "m2");
    let plan = Known {
        library_of: &|address| format!("at {address:?}"),
        ..self::known([(first, unbound), (second, known.clone())])
    };
    assert_eq!(stub_states.decide(&plan, true, NOW, |_| false), []);
    let libraries: Vec<String> = stub_states.recorded().map(|(_, planned, _)| planned.library.clone()).collect();
    assert_eq!(libraries, [format!("at {:?}", bound(1, How::Event, None).address), known.library]);
}

/// Check that a target cannot fill memory with methods, be they many or have they long names, and that what is told once more
/// does not count twice.
#[test]
fn methods_are_bounded() {
    let mut many = stub_states();
    let told = (0..).take_while(|&number| many.bound(bound(number, How::Event, None), NOW).is_ok()).count();
    assert_eq!((told, many.entries.len()), (MOST_METHODS, MOST_METHODS));
    assert_eq!(many.bound(bound(7, How::Found, None), NOW), Ok(()));

    let mut long = stub_states();
    let name = |length| Bound { class: "a".repeat(length), ..bound(1, How::Event, None) };
    for _ in 0..1000 {
        long.bound(name(1 << 20), NOW).unwrap();
    }
    let told = (2..).take_while(|&number| long.bound(Bound { number, ..name(1 << 16) }, NOW).is_ok()).count();
    assert!((MOST_BYTES >> 18..MOST_BYTES >> 17).contains(&told), "{told}");
}
