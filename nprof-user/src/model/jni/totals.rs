//! What native code has asked of one VM, in sums: for whoever keeps them for long, as metrics do.

use super::{JniResource, Resources};
use crate::model::{MethodSnapshot, SharedStr, States};

/// The sums of one VM. Times are as they were measured: the probes' part is in them.
#[derive(Debug, Clone, PartialEq)]
pub struct JniTotals {
    /// The JNI functions that were called, each as a row like a method's, without the histogram.
    pub functions: Vec<MethodSnapshot>,
    /// In which state all are that are traced.
    pub states: States,
    /// How many are not: no probe sees them, or the kernel has refused it.
    pub unseen: usize,
    /// Of functions that look something up, by name: how often that had been found before, and the time in nanoseconds that threads
    /// ran in these calls. Functions of which it is not told are left out.
    pub redundant: Vec<(SharedStr, [u64; 2])>,
    /// What was made and let go: what the VM lets go by itself is left out.
    pub references: Vec<JniReferences>,
    /// How many critical sections have ended, and how long they lasted together, in nanoseconds.
    pub critical: [u64; 2],
    /// Exceptions by native method and class, in no order.
    pub thrown: Vec<JniThrownSum>,
}

/// How much of one kind was made and let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JniReferences {
    /// What.
    pub resource: JniResource,
    /// How much.
    pub sums: Resources,
    /// Whether every call was seen of the functions that make and let it go: then what is made less what is let go is how many there are
    /// more than when tracing began.
    pub is_whole: bool,
}

impl JniReferences {
    /// How many there are more than when tracing began; `None` if not every call was seen.
    #[must_use]
    pub fn live(&self) -> Option<i64> {
        self.is_whole.then(|| self.sums.made.wrapping_sub(self.sums.let_go).cast_signed())
    }
}

/// Exceptions of one class that a native method has left or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniThrownSum {
    /// Class and name of the native method; `None` if none was traced that they are of.
    pub method: Option<(SharedStr, SharedStr)>,
    /// The class of the exceptions as Java names it; `None` if that is not certain.
    pub class: Option<String>,
    /// How many were pending when the method returned.
    pub pending: u64,
    /// How many were cleared before.
    pub cleared: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that it is known how many there are only if every call was seen, also where more were let go than made.
    #[test]
    fn live_references() {
        let of = |made, let_go, is_whole| {
            let sums = Resources { made, let_go, made_before: 0 };
            JniReferences { resource: JniResource::Global, sums, is_whole }.live()
        };
        assert_eq!([of(7, 5, true), of(5, 7, true), of(7, 5, false)], [Some(2), Some(-2), None]);
    }
}
