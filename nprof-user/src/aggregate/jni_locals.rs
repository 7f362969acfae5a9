//! Which calls of native methods held more local references than there was room for, and how well that is known.

use std::cmp::Reverse;
use std::collections::HashMap;

use nprof_common::JniCalls;

use crate::model::{
    Bound, JniFamily, JniLocalsSnapshot, JniResource, LocalsBeyond, LocalsKnown, MethodSnapshot, Snapshot,
};

/// Losses with which not all is known.
const HARMS: [&str; 6] = ["unreturned", "too-deep", "no-frame", "bad-index", "no-jni-room", "no-held-room"];

/// The calls by the place of their native method, as the kernel sums them up: the most that one held is the longest.
pub(super) fn locals(snapshot: &Snapshot, sums: HashMap<Option<usize>, JniCalls>) -> JniLocalsSnapshot {
    let of = |(method, JniCalls { calls, max_ns, .. })| LocalsBeyond { method, calls, most: max_ns };
    let mut beyond: Vec<LocalsBeyond> = sums.into_iter().map(of).collect();
    beyond.sort_by_key(|of| (Reverse((of.most, of.calls)), of.method));
    let is_lost = snapshot.losses.counts.iter().any(|(reason, count)| *count > 0 && HARMS.contains(reason));
    let of_losses = if is_lost { LocalsKnown::Partly } else { LocalsKnown::Exactly };
    let known = snapshot.methods.iter().map(known_by).fold(of_losses, LocalsKnown::min);
    JniLocalsSnapshot { beyond, known }
}

/// How well it is known as far as this native method or function is concerned. One that is only counted still says what it lets go and
/// what it makes room for. But native methods that Java calls meanwhile, which such a function has called, may seem to be its caller.
fn known_by(row: &MethodSnapshot) -> LocalsKnown {
    let is_unwatched = !row.traced.unwatched.is_zero() || row.unseen.is_some();
    let Some(first) = row.methods.first().filter(|_| is_unwatched || row.counted > 0) else {
        return LocalsKnown::Exactly;
    };
    if first.bound != Bound::JniFunction {
        return LocalsKnown::Partly;
    }
    let name = &*first.method.name;
    let makes = JniResource::made_by(name) == Some(JniResource::Local);
    let lets_go = JniResource::let_go_by(name) == Some(JniResource::Local) || name == "PopLocalFrame";
    let is_about_room = lets_go || JniResource::is_room_for_locals(name);
    if may_run_java(name) || is_about_room && is_unwatched {
        LocalsKnown::Not
    } else if makes || is_about_room {
        LocalsKnown::Partly
    } else {
        LocalsKnown::Exactly
    }
}

/// Whether a function may run Java code: what it is to call, and loaders, initialisers and constructors of classes.
fn may_run_java(function: &str) -> bool {
    matches!(JniFamily::of(function), JniFamily::Calls | JniFamily::LookUps)
        || matches!(function, "DefineClass" | "ThrowNew" | "ExceptionDescribe" | "NewDirectByteBuffer")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::aggregate::testing::{function, snapshot};
    use crate::model::Traced;

    /// Check that a function which is only counted harms where it is about local references, and most where it runs Java; and one that was not
    /// seen for some time most where it lets go or makes room.
    #[test]
    fn what_is_known_of_locals() {
        use LocalsKnown::{Exactly, Not, Partly};
        let of = |name: &str, bound, (counted, unwatched)| {
            let mut row = MethodSnapshot { counted, ..function(1, name, 1, 1) };
            row.methods[0].bound = bound;
            row.traced = Traced { unwatched: Duration::from_secs(unwatched), ..row.traced };
            known_by(&row)
        };
        for (name, if_counted, if_unwatched) in [
            ("GetVersion", Exactly, Exactly),
            ("DeleteGlobalRef", Exactly, Exactly),
            ("NewLocalRef", Partly, Partly),
            ("DeleteLocalRef", Partly, Not),
            ("PopLocalFrame", Partly, Not),
            ("EnsureLocalCapacity", Partly, Not),
            ("FindClass", Not, Not),
            ("CallVoidMethod", Not, Not),
            ("NewObjectA", Not, Not),
        ] {
            let known = [(0, 0), (1, 0), (0, 1)].map(|how| of(name, Bound::JniFunction, how));
            assert_eq!(known, [Exactly, if_counted, if_unwatched], "{name}");
        }
        // A native method of that name.
        assert_eq!([(0, 0), (1, 0)].map(|how| of("CallVoidMethod", Bound::Export, how)), [Exactly, Partly]);
    }

    /// Check that those with the most come first, and that a loss is no reason to know nothing.
    #[test]
    fn the_most_first() {
        let sum = |calls, max_ns| JniCalls { calls, max_ns, ..JniCalls::NONE };
        let sums = || HashMap::from([(Some(0), sum(9, 17)), (Some(1), sum(1, 40)), (None, sum(2, 17))]);
        let mut snapshot = snapshot();
        let known = locals(&snapshot, sums());
        let rows: Vec<_> = known.beyond.iter().map(|of| (of.method, of.calls, of.most)).collect();
        assert_eq!(rows, [(Some(1), 1, 40), (Some(0), 9, 17), (None, 2, 17)]);
        assert_eq!(known.known, LocalsKnown::Exactly);
        snapshot.losses.counts = vec![("unseen-release", 1), ("no-held-room", 1)];
        assert_eq!(locals(&snapshot, sums()).known, LocalsKnown::Partly);
    }
}
