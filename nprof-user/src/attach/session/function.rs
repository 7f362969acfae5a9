//! What the programs are told of a probe's function: what it returns, its arguments, and what it is for JNI.

use nprof_common::{JniCallee, JniHolds, JniKind, Returns};

use crate::model::{Bound, JniResource, Probe, argument_kinds, jni};

/// What a function returns, if all methods that are bound to it agree.
pub(super) fn returns(probe: &Probe) -> Returns {
    let mut all = probe.methods.iter().map(|known| Returns::of(&known.method.signature));
    let first = all.next().unwrap_or(Returns::Nothing);
    if all.all(|other| other == first) { first } else { Returns::Nothing }
}

/// What the arguments of a function are. Critical functions get theirs in a way of their own.
pub(super) fn kinds(probe: &Probe) -> u64 {
    let is_ordinary = probe.methods.iter().all(|known| known.bound != Bound::Critical);
    if is_ordinary { argument_kinds(probe.methods.iter().map(|known| &known.method)) } else { 0 }
}

/// What is looked at of a probe's function if it is a JNI function.
pub(super) fn kind(probe: &Probe) -> (JniKind, JniHolds, JniCallee) {
    let function = probe.methods.first().filter(|known| known.bound == Bound::JniFunction);
    function.map_or((JniKind::Method, JniHolds::Nothing, JniCallee::Nothing), |function| {
        let name = &function.method.name;
        (jni::kind(name), JniResource::followed(name), jni::callee(name))
    })
}
