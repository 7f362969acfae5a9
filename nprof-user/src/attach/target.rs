//! What probes are attached to.

use crate::model::Pid;

/// What to attach to and how.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The process.
    pub pid: Pid,
    /// Time the calls. If not, entries alone are attached and calls are counted.
    pub timed: bool,
}
