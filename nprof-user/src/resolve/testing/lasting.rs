//! Checks that a plan stays right and small for as long as its target runs: refusals, libraries and classes that come
//! and go.

use super::SITES;
use super::target::{LATE_AT, Mapped, at, listed, method, named, offset, planner, skipped, unbound};
use crate::model::{Bound, NativeCode, SkipReason, VirtAddr};

/// Check that what the kernel refuses is listed with all its methods and the reason, is not planned again however often
/// it is found, and that its index is not given to another.
#[test]
fn refused_for_good() {
    let mut planner = planner();
    let sites = Mapped::sites();
    let mapped = [sites.library.clone()];
    let methods = [
        method(1, "Sites", "pushFirst", at("pushFirst")),
        method(2, "Other", "alias", at("pushFirst")),
        method(3, "Sites", "movFirst", at("movFirst")),
    ];
    planner.add(&methods, &mapped);
    planner.refuse(&[0], SkipReason::RefusedByKernel);
    let refused = ["alias", "pushFirst"].map(|name| (name.to_owned(), SkipReason::RefusedByKernel));
    for _ in 0..3 {
        assert_eq!(skipped(&planner), refused);
        assert_eq!(planner.add(&methods, &mapped), []);
    }
    planner.add(&[method(4, "Sites", "endbrFirst", at("endbrFirst"))], &mapped);
    assert_eq!(planner.probes().iter().map(|probe| probe.index).collect::<Vec<_>>(), [1, 2]);
    planner.add(&[method(5, "Sites", "movFirst", at("movFirst"))], &mapped);
    assert_eq!(planner.probes().len(), 2);
}

/// Check that a library keeps its number and its probes when it is unmapped and mapped again elsewhere, and that
/// nothing is predicted into it meanwhile.
#[test]
fn mapped_again() {
    let mut planner = planner();
    planner.add(&[method(1, "Sites", "pushFirst", at("pushFirst"))], &[Mapped::sites().library]);
    planner.add(&[unbound(2, "Sites", "movFirst")], &[]);
    assert_eq!(skipped(&planner), [("movFirst".to_owned(), SkipReason::Unbound)]);
    let moved = Mapped::sites().at(LATE_AT, SITES.len() as u64);
    let there = NativeCode::Bound(VirtAddr(LATE_AT + offset("pushFirst")));
    planner.add(&[method(3, "Sites", "pushFirst", there)], &[moved.library]);
    assert_eq!(planner.libraries().len(), 1);
    assert_eq!(
        listed(&planner),
        [(0, vec![named("pushFirst", Bound::Export)]), (1, vec![named("movFirst", Bound::Predicted)]),]
    );
}

/// Check that a library that cannot be read costs its methods alone.
#[test]
fn unreadable_library() {
    let mut planner = planner();
    let broken = Mapped::new("libbroken.so", 3, b"no ELF file", LATE_AT);
    let methods = [
        method(1, "Broken", "a", NativeCode::Bound(VirtAddr(LATE_AT + 4))),
        method(2, "Sites", "pushFirst", at("pushFirst")),
    ];
    planner.add(&methods, &[broken.library, Mapped::sites().library]);
    assert_eq!(skipped(&planner), [("a".to_owned(), SkipReason::UnreadableLibrary)]);
    assert_eq!(listed(&planner), [(0, vec![named("pushFirst", Bound::Export)])]);
}

/// Check that what is kept of unloaded classes is forgotten, except for the names that counted calls may belong to.
#[test]
fn forgets_unloaded_classes() {
    let mut planner = planner();
    let sites = Mapped::sites();
    let mapped = [sites.library.clone()];
    let gone = [
        unbound(1, "Gone", "nowhere"),
        method(2, "Gone", "counted", at("pushFirst")),
        method(3, "Gone", "idle", at("movFirst")),
        method(4, "Gone", "alone", at("endbrFirst")),
    ];
    let stay = [
        unbound(5, "Stay", "missing"),
        method(6, "Stay", "pushFirst", at("pushFirst")),
        method(7, "Stay", "movFirst", at("movFirst")),
    ];
    planner.add(&[&gone[..], &stay[..]].concat(), &mapped);
    let is_counted = |index| index == 0;
    assert_eq!(planner.renew(&stay, &mapped, is_counted), []);
    assert_eq!(skipped(&planner), [("missing".to_owned(), SkipReason::Unbound)]);
    assert_eq!(
        listed(&planner),
        [
            (0, vec![named("counted", Bound::Registered), named("pushFirst", Bound::Registered)]),
            (1, vec![named("movFirst", Bound::Registered)]),
            (2, vec![named("alone", Bound::Registered)]),
        ]
    );
}

/// Check that the plan does not grow under class churn on the same functions.
#[test]
fn stays_small_under_churn() {
    let mut planner = planner();
    let sites = Mapped::sites();
    let mapped = [sites.library.clone()];
    for round in 0..200 {
        let class = format!("Generated{round}");
        let methods = [
            method(round * 16, &class, "bound", at("pushFirst")),
            unbound(round * 16 + 1, &class, "unbound"),
            method(round * 16 + 2, &class, "trap", at("trapFirst")),
        ];
        planner.renew(&methods, &mapped, |_| false);
    }
    assert_eq!((planner.probes().len(), planner.skipped().count()), (1, 2));
    // The names of the class before are dropped once the next one is known.
    assert!(planner.probes()[0].methods.len() <= 2);
}
