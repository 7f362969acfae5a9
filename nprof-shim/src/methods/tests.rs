//! Which stub answers which method, and where it records.

use std::ffi::CString;

use super::*;

const COUNT: StubOptions = StubOptions { mode: Mode::Count, threshold_ns: u64::MAX, kinds: 0, is_asked: true };

fn name(method: &str) -> MethodName {
    let [class, name, signature] = ["La/B;", method, "(IJ)V"].map(|text| CString::new(text).unwrap());
    MethodName { class, name, signature }
}

fn with_room_for(records: usize) -> Methods {
    let methods = Methods::default();
    methods.replace_records(Some(Records::map_for(records, 1).unwrap()));
    methods
}

/// Check that the same method gets the same stub for the same address, another for another, and one record for both;
/// and that an id that names another method by now gets its own number and record.
#[test]
fn stubs_by_method_and_address() {
    let methods = with_room_for(8);
    let stub = |id, address, method: &str| {
        let number = methods.number_of(MethodId(id), &name(method)).unwrap();
        methods.stub_for(number, address, COUNT).unwrap()
    };
    let first = stub(1, 100, "m");
    assert_eq!(stub(1, 100, "m"), first);
    let second = stub(1, 200, "m");
    assert_ne!(first, second);
    assert_eq!((first.original(), second.original()), (100, 200));
    assert_eq!((first.index(), second.index()), (0, 0));
    assert_ne!(stub(1, 100, "other"), first);
    assert_eq!([0, 1, 2].map(|number| methods.index(number)), [Some(0), Some(1), None]);
}

/// Check that of the stubs of a method the latest counts, also when it is an old one, and no other ever.
#[test]
fn one_counts() {
    let methods = with_room_for(8);
    let number = methods.number_of(MethodId(1), &name("m")).unwrap();
    let stub = |address| methods.stub_for(number, address, COUNT).unwrap();
    let [first, second] = [stub(1), stub(2)];
    let off = || (first.is_off(), second.is_off());
    assert_eq!(off(), (true, false));
    methods.bound_again(first);
    assert_eq!(off(), (false, true));
    methods.change(|options| StubOptions { mode: Mode::Time, ..options });
    assert_eq!(off(), (false, true));
    assert_eq!(stub(2), second);
    assert_eq!(off(), (true, false));
    methods.unwatch(number);
    methods.bound_again(first);
    assert_eq!(off(), (true, true));
}

/// Check that what is wanted is handed out once, and that a method that has a stub counts at once.
#[test]
fn requests() {
    let methods = with_room_for(8);
    let [first, second] = [1, 2].map(|id| methods.number_of(MethodId(id), &name("m")).unwrap());
    let stub = methods.stub_for(first, 5, COUNT).unwrap();
    assert_eq!(methods.take_pending(), []);
    methods.unwatch(first);
    methods.watch(second, COUNT);
    methods.watch(77, COUNT);
    let wanted: Vec<_> = methods.take_pending().iter().map(|wanted| (wanted.number, wanted.options)).collect();
    assert_eq!(wanted, [(first, None), (second, Some(COUNT))]);
    assert_eq!(methods.take_pending(), []);
    assert!(stub.is_off());
    methods.watch(first, COUNT);
    assert!(!stub.is_off());
}

/// Check that new records are given from the first on, to methods that are wanted then.
#[test]
fn new_records() {
    let methods = with_room_for(8);
    let [first, second] = [1, 2].map(|id| methods.number_of(MethodId(id), &name("m")).unwrap());
    let stubs = [first, second].map(|number| methods.stub_for(number, 5, COUNT).unwrap());
    assert_eq!(stubs.map(Stub::index), [0, 1]);
    let old = methods.replace_records(Some(Records::map_for(1, 3).unwrap())).unwrap();
    assert_eq!((old.room(), methods.index(first)), (8, None));
    assert!(stubs.iter().all(|stub| stub.is_off()));
    methods.bound_again(stubs[0]);
    assert!(stubs[0].is_off());
    methods.watch(second, COUNT);
    methods.watch(first, COUNT);
    assert_eq!((methods.index(second), methods.index(first)), (Some(0), None));
    assert_eq!((stubs[1].index(), stubs.map(Stub::is_off)), (0, [true, false]));
}

/// Check that a method without room for its record gets no stub.
#[test]
fn out_of_room() {
    let methods = with_room_for(1);
    let [first, second] = ["a", "b"].map(|method| methods.number_of(MethodId(1), &name(method)).unwrap());
    assert!(methods.stub_for(first, 1, COUNT).is_some());
    assert!(methods.stub_for(second, 1, COUNT).is_none());
}
