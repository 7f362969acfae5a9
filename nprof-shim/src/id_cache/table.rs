//! Our functions in the VM's table of functions, and out of it.
//!
//! The VM changes the table while no Java code runs. Between reading and writing it another agent could do the same; nobody can prevent
//! that, and the time is short.

use std::sync::atomic::Ordering;

use super::{Cache, front};
use crate::jvmti::{self, Jvmti};

/// Puts ours in front of what is there. Where ours are behind another agent's from an earlier time, they stay there.
pub(super) fn put(jvmti: Jvmti, cache: &Cache) -> Result<(), jvmti::Error> {
    let mut table = jvmti.function_table()?;
    for (function, ours) in front::addresses().into_iter().enumerate() {
        let (there, original) = (table.look_up(function), &cache.originals[function]);
        let known = original.load(Ordering::Relaxed);
        let is_behind = cache.is_behind[function].load(Ordering::Relaxed) && there != known;
        if there != ours && !is_behind {
            original.store(there, Ordering::Release);
            table.set_look_up(function, ours);
        }
    }
    table.write()
}

/// Puts back what was there, unless somebody else has come since. Tells of how many that is so.
pub(super) fn put_back(jvmti: Jvmti, cache: &Cache) -> Result<usize, jvmti::Error> {
    let mut table = jvmti.function_table()?;
    let mut behind = 0;
    for (function, ours) in front::addresses().into_iter().enumerate() {
        let original = cache.originals[function].load(Ordering::Relaxed);
        let there = table.look_up(function);
        let is_behind = there != ours && there != original;
        if there == ours {
            table.set_look_up(function, original);
        }
        cache.is_behind[function].store(is_behind, Ordering::Relaxed);
        behind += usize::from(is_behind);
    }
    table.write()?;
    Ok(behind)
}
