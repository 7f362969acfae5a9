use nprof_common::MethodStats;

use super::*;
use crate::govern::{By, Costs};
use crate::model::{NativeCode, StubPrice, VirtAddr};
use crate::shim::Records;
use crate::trace::stubs::Collected;

const PRICE: StubPrice = StubPrice {
    off_ns: 0.5,
    counted_ns: 1.75,
    passed_ns: 2.0,
    timed_ns: 28.0,
    inside_ns: 8.0,
    inside_error_ns: 1.0,
    cool: 2.0,
    cold_ns: 100.0,
};

fn options() -> StubOptions {
    StubOptions {
        mode: Mode::Time,
        choice: Choice::Nothing,
        time_every: 1,
        price: PRICE,
        collected: Collected::default(),
        wants_all: true,
    }
}

/// Switches of which nobody is told, with these options and the records that they are for.
fn switches(options: StubOptions) -> (StubSwitches, Records) {
    let records = Records::new(8, 1, None).unwrap();
    let reader = Reader::new(records.mapped(), records.mapped(), 1).with_counts_at(records.first_counts());
    (StubSwitches::new(options, reader, Sender::default()), records)
}

fn method(name: &str) -> Method {
    let (class, name, signature) = ("a.A".into(), name.into(), "()V".into());
    Method { id: VirtAddr(1), class, name, signature, code: NativeCode::Unbound }
}

fn count(records: &Records, record: usize, calls: u64) {
    let place = std::mem::offset_of!(MethodStats, entered) / 8;
    records.mapped().store(record * size_of::<MethodStats>() / 8 + place, calls);
}

/// Check that a stub does the least of what the user wants and the governor allows, that it is told how, and that what is off
/// is known to be unwatched.
#[test]
fn the_least_is_done() {
    let (switches, _records) = switches(options());
    switches.meet(7, 2, &method("m"));
    let is = |every| options().watch(7, every);
    assert_eq!((switches.watch(7), switches.traced(2)), (is(Some(1)), Some(Traced::as_wanted(Tracing::Timed))));
    assert_eq!(switches.allow(2, Rung::Sixteenth), Some(Rung::Timed));
    let sampled = switches.traced(2).unwrap();
    assert_eq!((switches.watch(7), sampled.tracing), (is(Some(16)), Tracing::Sampled));
    assert!(sampled.is_demoted() && switches.every(2) == 16);
    switches.want(|record| record == 2, Tracing::Counted);
    assert_eq!((switches.watch(7), switches.every(2)), (is(Some(0)), 0));
    switches.want(|_| true, Tracing::Off);
    assert_eq!(switches.watch(7), is(None));
    let off = switches.traced(2).unwrap();
    assert!(off.tracing == Tracing::Off && !off.is_demoted());
    switches.want(|_| true, Tracing::Timed);
    assert_eq!(switches.allow(2, Rung::Timed), Some(Rung::Sixteenth));
    let watched = switches.traced(2).unwrap();
    assert!(watched.tracing == Tracing::Timed && watched.unwatched > Duration::ZERO, "{watched:?}");
    assert_eq!((switches.allow(3, Rung::Counted), switches.traced(3)), (None, None));
}

/// Check that what is not selected any more is off whatever else is said, and comes back as it was.
#[test]
fn deselected_stubs_do_nothing() {
    let (switches, _records) = switches(options());
    (0..2).for_each(|record| switches.meet(10 + record, record, &method("m")));
    switches.select(|record| record == 1);
    switches.want(|_| true, Tracing::Counted);
    assert_eq!([10, 11].map(|number| switches.watch(number).mode), [Mode::Off as u32, Mode::Count as u32]);
    switches.select(|_| true);
    assert_eq!(switches.watch(10).mode, Mode::Count as u32);
}

/// Check that what users said before holds for methods that get their stubs later, the last rule of several, and that a JVM whose
/// calls are only counted times none.
#[test]
fn rules_hold_for_later_methods() {
    let (timed, _records) = switches(options());
    timed.set_rules(["a.A::*=off", "a.A::m=count"].map(|rule| Rule::parse(rule).unwrap()).to_vec());
    timed.meet(1, 1, &method("m"));
    timed.meet(2, 2, &method("other"));
    assert_eq!([1, 2].map(|number| timed.watch(number).mode), [Mode::Count as u32, Mode::Off as u32]);
    // Before there is a record.
    assert_eq!(timed.first_watch(3, &method("m")).mode, Mode::Count as u32);
    assert_eq!(timed.first_watch(4, &method("other")).mode, Mode::Off as u32);
    let (counted, _records) = switches(StubOptions { mode: Mode::Count, ..options() });
    counted.meet(1, 1, &method("m"));
    counted.want(|_| true, Tracing::Timed);
    assert_eq!(counted.traced(1), Some(Traced::as_wanted(Tracing::Counted)));
}

/// Check that with a wish for one of so many only what is called often is thinned out, that the state is as it was wanted then,
/// and that it stays so with another stub.
#[test]
fn some_calls_of_what_is_called_often() {
    let (switches, records) = switches(StubOptions { time_every: 10, ..options() });
    (0..2).for_each(|record| switches.meet(record, record, &method("m")));
    count(&records, 1, OFTEN);
    switches.thin_out();
    assert_eq!([0, 1].map(|record| switches.every(record)), [1, 10]);
    assert_eq!(switches.traced(1), Some(Traced::as_wanted(Tracing::Timed)));
    switches.renewed(1);
    assert_eq!(switches.every(1), 10);
}

/// Check that the user's own choice of how many calls are timed leaves the governor no finer one, and that slow calls leave it
/// none at all.
#[test]
fn what_the_user_chose_saves_nothing() {
    let rungs = [Rung::Timed, Rung::Sixteenth, Rung::Thousandth, Rung::Counted];
    let costs = |options| {
        let pair = [0.0; 2];
        let stub = switches(options).0.costs();
        let costs = Costs { timed_ns: pair, counted_ns: pair, off_ns: pair, cool: pair, stub };
        rungs.map(|rung| costs.of(rung, By::Stub))
    };
    assert_eq!(costs(options()), [28.0, 3.625, 2.025390625, 1.75]);
    assert_eq!(costs(StubOptions { time_every: 16, ..options() }), [3.625, 3.625, 3.625, 1.75]);
    assert_eq!(costs(StubOptions { choice: Choice::Slow(1_000), ..options() }), [28.0; 4]);
}
