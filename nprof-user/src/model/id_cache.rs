//! What came of keeping the ids that native code looks up.

use std::time::Duration;

use jiff::Timestamp;

use super::Jvm;

/// The functions that look ids up, in the order of their numbers in the shim.
pub const ID_FUNCTIONS: [&str; 4] = ["GetMethodID", "GetStaticMethodID", "GetFieldID", "GetStaticFieldID"];

/// Look-ups, by how they were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookUps {
    /// With what was kept.
    pub hits: u64,
    /// By the VM, after nothing was found.
    pub misses: u64,
    /// By the VM at once.
    pub left: u64,
}

/// Those of one function, and what hits and the VM's own look-ups took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdFunctionSum {
    /// How many.
    pub look_ups: LookUps,
    /// Of the hits so many were timed, with the VM's own look-up of the same beside each.
    pub timed: u64,
    /// What these hits took, together.
    pub hit_ns: u64,
    /// What the VM's own look-ups took.
    pub original_ns: u64,
    /// So often the VM said something else, which was given to the caller.
    pub wrong: u64,
}

/// What was kept for one JVM.
#[derive(Debug, Clone, PartialEq)]
pub struct IdCacheReport {
    /// When it began.
    pub started: Timestamp,
    /// How long it lasted.
    pub elapsed: Duration,
    /// The JVM.
    pub jvm: Jvm,
    /// By function, as in [`ID_FUNCTIONS`].
    pub functions: [IdFunctionSum; ID_FUNCTIONS.len()],
    /// By place in the program, the busiest first; without a name those that are not told apart.
    pub callers: Vec<(Option<String>, LookUps)>,
    /// So many functions of the shim are left behind those of another agent.
    pub behind: u32,
    /// So many callers are left out.
    pub untold: u32,
}

impl LookUps {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.hits.saturating_add(self.misses).saturating_add(self.left)
    }
}

impl IdFunctionSum {
    /// A hit's mean time and that of the VM's own look-up, in nanoseconds; `None` where none was timed.
    #[must_use]
    pub fn means(&self) -> Option<[f64; 2]> {
        (self.timed > 0).then(|| [self.hit_ns, self.original_ns].map(|ns| ns as f64 / self.timed as f64))
    }

    /// What all hits have saved, in nanoseconds; negative if they took longer than the VM would have. `None` where none was timed.
    #[must_use]
    pub fn won_ns(&self) -> Option<f64> {
        self.means().map(|[hit, original]| self.look_ups.hits as f64 * (original - hit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is won is the difference of the means, for each hit.
    #[test]
    fn wins_the_difference() {
        let look_ups = LookUps { hits: 1_000, misses: 10, left: 5 };
        let sum = IdFunctionSum { look_ups, timed: 4, hit_ns: 120, original_ns: 520, wrong: 0 };
        assert_eq!((look_ups.all(), sum.means(), sum.won_ns()), (1_015, Some([30.0, 130.0]), Some(100_000.0)));
        assert_eq!(IdFunctionSum { timed: 0, ..sum }.won_ns(), None);
    }
}
