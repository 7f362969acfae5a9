//! The selected methods, as far as stubs are concerned.

use std::collections::HashMap;

use super::functions;
use super::stub_states::Planned;
use crate::model::{Bound as HowBound, Library, Method, NativeCode, PlannedMethod, Probe, SkipReason, VirtAddr};
use crate::resolve::Planner;
use crate::shim::{self, Bound};

/// A method that is selected and that the walk over the classes has not found: it was bound and gone in between, or is a JNI function.
pub(super) fn unplanned(planner: &Planner, bound: &Bound) -> Option<Planned> {
    if let Some(function) = functions::planned(bound) {
        return Some(function);
    }
    let (method, address) = (method(bound)?, bound.address);
    if shim::is_own(&method) || !planner.would_take(&method) {
        return None;
    }
    let library = library_of(planner, address);
    Some(Planned { method: PlannedMethod { method, bound: HowBound::Registered }, probe: None, library })
}

/// The file name of the library that has an address; empty if none has.
pub(super) fn library_of(planner: &Planner, address: VirtAddr) -> String {
    let library = planner.libraries().iter().find(|library| library.holds(address));
    library.map(Library::name).unwrap_or_default()
}

/// Whether a method that is not in the plan may yet get there: its name is selected, and that is all that is known of it.
pub(super) fn may_be_selected(planner: &Planner, bound: &Bound) -> bool {
    // What has no place in the VM's memory, as far as we know, is never found by its name either.
    method(bound).is_none_or(|method| !shim::is_own(&method) && planner.selects_name(&method))
}

fn method(bound: &Bound) -> Option<Method> {
    let Bound { class, name, signature, address, .. } = bound.clone();
    let (class, name, signature) = (class.into(), name.into(), signature.into());
    Some(Method { id: bound.method?, class, name, signature, code: NativeCode::Bound(address) })
}

/// The methods of a plan for which there may be stubs.
pub(super) fn by_id(planner: &Planner) -> HashMap<VirtAddr, Planned> {
    let skipped = planner.skipped().filter(|skipped| skipped.reason != SkipReason::OverLimit);
    let skipped =
        skipped.map(|skipped| Planned { method: skipped.method.clone(), probe: None, library: String::new() });
    let of_probe = |probe: &Probe| {
        let library = planner.libraries().get(probe.site.library.0).map(Library::name).unwrap_or_default();
        let index = probe.index;
        let planned = move |method: &PlannedMethod| Planned {
            method: method.clone(),
            probe: Some(index),
            library: library.clone(),
        };
        // A stub stands before a method's ordinary function, whatever else it has.
        let ordinary = probe.methods.iter().filter(|known| known.bound != HowBound::Critical);
        ordinary.map(planned).collect::<Vec<_>>()
    };
    let probed = planner.probes().iter().flat_map(of_probe);
    skipped.chain(probed).map(|planned| (planned.method.method.id, planned)).collect()
}
