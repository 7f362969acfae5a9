//! Who has called JNI functions, where stubs have counted: estimated from the stacks of sampled calls.

/// A number that was estimated, and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// The number.
    pub value: u64,
    /// So far off it may be, up or down: 19 of 20 times it is not more.
    pub error: u64,
}

/// A Java method by its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JavaName {
    /// Its class, dotted.
    pub class: String,
    /// Its name.
    pub method: String,
    /// Its descriptor.
    pub signature: String,
}

/// Who has called JNI functions, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JniCallers {
    /// What each caller has of each function: those of one function together, the most calls first.
    pub all: Vec<JniCaller>,
    /// Sampled calls whose stacks could not be taken, so that somebody has called more than it is told.
    pub lost: u64,
}

/// What one caller has of the calls of a JNI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniCaller {
    /// The place of the function in [`super::Snapshot::methods`].
    pub function: usize,
    /// The innermost Java method when the function was called, as a rule a native one; `None` if there was none, or the stack could
    /// not be read so far.
    pub caller: Option<JavaName>,
    /// How many sampled calls say so.
    pub samples: u64,
    /// Its calls.
    pub calls: Estimate,
    /// Their time, without JNI functions that were called meanwhile, in nanoseconds.
    pub self_ns: Estimate,
    /// Of this, the time that the threads were running.
    pub on_cpu_ns: Estimate,
}
