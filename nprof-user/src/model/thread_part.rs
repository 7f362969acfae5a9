//! What one thread has of a function's calls and times.

/// One thread's calls of a function. The sum over all threads is the function's [`MethodSnapshot`](super::MethodSnapshot), less what
/// is not known by thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPart {
    /// The thread, on the host.
    pub tid: u32,
    /// What it was called at its last call.
    pub name: String,
    /// Its calls that have ended, and those that were only counted when they began.
    pub calls: u64,
    /// Of `calls`, those that were only counted.
    pub counted: u64,
    /// Of `calls`, those that the times are of.
    pub timed: u64,
    /// The time of these, in nanoseconds, less what their probes have put into it.
    pub total_ns: u64,
    /// `total_ns` less the time in traced calls that they made.
    pub self_ns: u64,
    /// The part of `self_ns` that the thread was not running; `None` where that is not measured.
    pub off_cpu_ns: Option<u64>,
}
