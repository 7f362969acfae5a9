//! The table of rules: each is a file, with its test, and a row.

mod array_copies;
mod collections_held_up;
mod exceptions;
mod lock_waits;
mod one_slow_call;
mod page_faults;
mod programs_started;
mod redundant_look_ups;
mod references_kept;
mod single_stepped;
mod small_io;
mod system_calls;
mod tiny_calls;
mod waiting_threads;

use super::Measured;
use crate::model::{Fault, JniSnapshot};

/// Something that can be wrong.
#[derive(Debug)]
pub(super) struct Rule {
    /// The word for it.
    pub(super) name: &'static str,
    /// What it finds.
    pub(super) looks_for: &'static str,
    /// Whether it decides by other numbers than the cost what is too little for a fault.
    pub(super) has_own_threshold: bool,
    /// Finds it.
    pub(super) find: fn(&Measured<'_>) -> Vec<Fault>,
}

/// Every rule. A new one is a file and a row here.
pub(super) const RULES: [Rule; 14] = [
    rule(tiny_calls::NAME, "calls too short to be worth crossing into native code", tiny_calls::find),
    rule(redundant_look_ups::NAME, "ids and classes that are looked up again and again", redundant_look_ups::find),
    Rule {
        has_own_threshold: true,
        ..rule(references_kept::NAME, "references and copies that are not let go", references_kept::find)
    },
    rule(collections_held_up::NAME, "critical sections that collections wait for", collections_held_up::find),
    rule(one_slow_call::NAME, "a single call that took far longer than all others", one_slow_call::find),
    rule(array_copies::NAME, "large arrays that are copied to and fro", array_copies::find),
    rule(small_io::NAME, "reads and writes of few bytes each", small_io::find),
    rule(exceptions::NAME, "exceptions in the ordinary course", exceptions::find),
    rule(lock_waits::NAME, "waits for locks inside of native methods", lock_waits::find),
    rule(waiting_threads::NAME, "many threads that wait in one native method at a time", waiting_threads::find),
    rule(page_faults::NAME, "page faults in native methods", page_faults::find),
    rule(system_calls::NAME, "many system calls in one call", system_calls::find),
    rule(programs_started::NAME, "programs that are started again and again", programs_started::find),
    rule(single_stepped::NAME, "probes at expensive places, which distort what is measured", single_stepped::find),
];

const fn rule(name: &'static str, looks_for: &'static str, find: fn(&Measured<'_>) -> Vec<Fault>) -> Rule {
    Rule { name, looks_for, has_own_threshold: false, find }
}

/// Of which kinds of references it is not known how many are kept.
pub(super) fn unknown_references(jni: &JniSnapshot) -> Vec<&'static str> {
    references_kept::unknown(jni)
}
