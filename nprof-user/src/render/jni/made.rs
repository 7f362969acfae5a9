//! What each native method has asked of the VM, put together.

use std::collections::HashMap;

use nprof_common::Counter;

use super::groups::is_function;
use crate::model::{CriticalSections, JniCallback, JniExceptions, JniSnapshot, JniSum, JniUse};

/// What a native method has done; or, of no method's place, what none that is traced has.
#[derive(Debug, Default)]
pub(super) struct Made<'a> {
    pub(super) uses: Vec<&'a JniUse>,
    pub(super) callbacks: Vec<&'a JniCallback>,
    pub(super) sections: Vec<&'a CriticalSections>,
    pub(super) thrown: Vec<&'a JniExceptions>,
}

impl<'a> Made<'a> {
    /// The same of each of them.
    pub(super) fn by_method(jni: &'a JniSnapshot) -> HashMap<Option<usize>, Self> {
        let mut all: HashMap<Option<usize>, Self> = HashMap::new();
        for made in &jni.uses {
            all.entry(made.method).or_default().uses.push(made);
        }
        for callback in &jni.callbacks {
            all.entry(callback.made.method).or_default().callbacks.push(callback);
        }
        let known = if jni.has_all_sections() { &jni.critical[..] } else { &[] };
        for sections in known {
            all.entry(sections.method).or_default().sections.push(sections);
        }
        for thrown in &jni.thrown {
            all.entry(thrown.method).or_default().thrown.push(thrown);
        }
        all
    }

    /// How many exceptions it has left and cleared: those whose class was looked at, or as many as were counted besides, if these are
    /// more. Of what is seen only now and then either may have missed some. `place` is the native method's.
    pub(super) fn exceptions(&self, jni: &JniSnapshot, place: Option<usize>) -> [u64; 2] {
        let row = place.and_then(|place| jni.snapshot.methods.get(place)).filter(|row| !is_function(row));
        let pending = row.and_then(|row| Some(row.consumed.as_ref()?.own[Counter::Exceptions as usize])).unwrap_or(0);
        let clears = self.uses.iter().filter(|made| jni.function(made.function) == "ExceptionClear");
        let cleared = clears.map(|made| JniSum::from(*made).effective).sum::<u64>();
        let sum = |of: fn(&JniExceptions) -> u64| self.thrown.iter().map(|thrown| of(thrown)).sum::<u64>();
        [pending.max(sum(|of| of.pending)), cleared.max(sum(|of| of.cleared))]
    }
}
