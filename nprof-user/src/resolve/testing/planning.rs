//! Checks what becomes of methods in a plan: bound, predicted, shared, limited.

use super::super::select::Selection;
use super::super::{Limits, Planner};
use super::target::{Mapped, NO_LIMIT, at, listed, method, named, offset, planner, skipped, unbound};
use crate::model::{Bound, NativeCode, SkipReason, VirtAddr};

/// Check every reason that a method's code alone gives, and how the others are said to be bound.
#[test]
fn bound_in_every_way() {
    let mut planner = planner();
    let methods = [
        method(1, "Sites", "pushFirst", at("pushFirst")),
        method(2, "Other", "registered", at("movFirst")),
        unbound(3, "Sites", "endbrFirst"),
        unbound(4, "Sites", "nowhere"),
        method(5, "Sites", "generated", NativeCode::Bound(VirtAddr(0x1000))),
        method(6, "java.lang.invoke.MethodHandle", "invokeBasic", NativeCode::Intrinsic),
        method(7, "Other", "trap", at("trapFirst")),
    ];
    let added = planner.add(&methods, &[Mapped::sites().library]);
    assert_eq!(added, planner.probes());
    assert_eq!(
        listed(&planner),
        [
            (0, vec![named("pushFirst", Bound::Export)]),
            (1, vec![named("registered", Bound::Registered)]),
            (2, vec![named("endbrFirst", Bound::Predicted)]),
        ]
    );
    assert_eq!(
        skipped(&planner),
        [
            ("generated".to_owned(), SkipReason::NoFile),
            ("invokeBasic".to_owned(), SkipReason::Intrinsic),
            ("nowhere".to_owned(), SkipReason::Unbound),
            ("trap".to_owned(), SkipReason::RefusedByKernel),
        ]
    );
    let places: Vec<_> = added.iter().map(|probe| (probe.site.entry.0, probe.site.offset.0)).collect();
    let (push, mov, endbr) = (offset("pushFirst"), offset("movFirst"), offset("endbrFirst"));
    assert_eq!(places, [(push, push), (mov, mov + 3), (endbr, endbr + 4)]);
}

/// Check that methods on one function share a probe, and that a class loaded twice is listed once.
#[test]
fn one_probe_per_function() {
    let mut planner = planner();
    let twice = [method(1, "Sites", "pushFirst", at("pushFirst")), method(2, "Sites", "pushFirst", at("pushFirst"))];
    planner.add(&twice, &[Mapped::sites().library]);
    let added = planner.add(&[method(3, "Other", "alias", at("pushFirst"))], &[Mapped::sites().library]);
    assert_eq!(added, []);
    let both = vec![named("pushFirst", Bound::Export), named("alias", Bound::Registered)];
    assert_eq!(listed(&planner), [(0, both)]);
}

/// Check that a predicted method that is bound as foreseen keeps its probe and is no longer called predicted, also if
/// the same class is loaded once more without being bound.
#[test]
fn predicted_then_bound() {
    let mut planner = planner();
    let sites = Mapped::sites();
    let mapped = [sites.library.clone()];
    planner.add(&[unbound(1, "Sites", "pushFirst")], &mapped);
    assert_eq!(listed(&planner), [(0, vec![named("pushFirst", Bound::Predicted)])]);
    assert_eq!(planner.add(&[method(1, "Sites", "pushFirst", at("pushFirst"))], &mapped), []);
    assert_eq!(planner.add(&[unbound(2, "Sites", "pushFirst")], &mapped), []);
    assert_eq!(listed(&planner), [(0, vec![named("pushFirst", Bound::Export)])]);
}

/// Check that a method that is bound elsewhere than predicted, and later registered again, gets a probe each time and
/// stays listed where it was.
#[test]
fn bound_elsewhere() {
    let mut planner = planner();
    let sites = Mapped::sites();
    let mapped = [sites.library.clone()];
    planner.add(&[unbound(1, "Sites", "pushFirst")], &mapped);
    let added = planner.add(&[method(1, "Sites", "pushFirst", at("movFirst"))], &mapped);
    assert_eq!(added.iter().map(|probe| probe.site.entry.0).collect::<Vec<_>>(), [offset("movFirst")]);
    planner.add(&[method(1, "Sites", "pushFirst", at("endbrFirst"))], &mapped);
    assert_eq!(
        listed(&planner),
        [
            (0, vec![named("pushFirst", Bound::Predicted)]),
            (1, vec![named("pushFirst", Bound::Registered)]),
            (2, vec![named("pushFirst", Bound::Registered)]),
        ]
    );
}

/// Check that a method without code is predicted as soon as a library with its name is mapped.
#[test]
fn new_library() {
    let mut planner = planner();
    planner.add(&[unbound(1, "Late", "one")], &[Mapped::sites().library]);
    assert_eq!(skipped(&planner), [("one".to_owned(), SkipReason::Unbound)]);
    let added = planner.add(&[], &[Mapped::sites().library, Mapped::late().library]);
    assert_eq!(added.len(), 1);
    assert_eq!(listed(&planner), [(0, vec![named("one", Bound::Predicted)])]);
    assert_eq!(skipped(&planner), []);
}

/// Check that with `--library` only what is there is probed and listed, whenever the library is loaded.
#[test]
fn library_filter() {
    let selection = Selection::parse(&[], &[], &["liblate.so"]).unwrap();
    let mut planner = Planner::new(selection, NO_LIMIT, None);
    let methods = [
        method(1, "Sites", "pushFirst", at("pushFirst")),
        unbound(2, "Late", "one"),
        unbound(3, "Sites", "nowhere"),
        method(4, "Sites", "generated", NativeCode::Bound(VirtAddr(0x1000))),
        method(5, "java.lang.invoke.MethodHandle", "invokeBasic", NativeCode::Intrinsic),
    ];
    planner.add(&methods, &[Mapped::sites().library]);
    assert_eq!((listed(&planner), skipped(&planner)), (vec![], vec![]));
    planner.add(&[], &[Mapped::sites().library, Mapped::late().library]);
    assert_eq!(listed(&planner), [(0, vec![named("one", Bound::Predicted)])]);
    assert_eq!((skipped(&planner), planner.plan().skipped), (vec![], vec![]));
}

/// Check that under a limit bound methods go first, that the rest is listed, and that a shared function takes no room.
#[test]
fn limits() {
    let mut planner = Planner::new(Selection::default(), Limits { functions: 2 }, None);
    let methods = [
        unbound(1, "Sites", "pushFirst"),
        unbound(2, "Sites", "endbrFirst"),
        method(3, "Sites", "movFirst", at("movFirst")),
    ];
    planner.add(&methods, &[Mapped::sites().library]);
    let first = vec![named("movFirst", Bound::Export)];
    assert_eq!(listed(&planner), [(0, first), (1, vec![named("pushFirst", Bound::Predicted)])]);
    planner.add(&[method(4, "Other", "alias", at("movFirst"))], &[Mapped::sites().library]);
    assert_eq!(planner.probes()[0].methods.len(), 2);
    assert_eq!(skipped(&planner), [("endbrFirst".to_owned(), SkipReason::OverLimit)]);
    planner.limit(NO_LIMIT);
    planner.add(&methods, &[Mapped::sites().library]);
    assert_eq!((planner.probes().len(), skipped(&planner)), (3, vec![]));
}
