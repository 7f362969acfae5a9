//! What a process or a thread is called in the trace event format, that of Perfetto and `chrome://tracing`.

use serde::Serialize;

/// The event that says so.
#[derive(Debug, Serialize)]
pub(super) struct TrackName<'a> {
    ph: &'static str,
    pid: u32,
    tid: u64,
    name: &'static str,
    args: Argument<'a>,
}

#[derive(Debug, Serialize)]
struct Argument<'a> {
    name: &'a str,
}

impl<'a> TrackName<'a> {
    pub(super) fn of_process(pid: u32, name: &'a str) -> Self {
        Self::new("process_name", pid, pid.into(), name)
    }

    pub(super) fn of_thread(pid: u32, tid: impl Into<u64>, name: &'a str) -> Self {
        Self::new("thread_name", pid, tid.into(), name)
    }

    fn new(what: &'static str, pid: u32, tid: u64, name: &'a str) -> Self {
        Self { ph: "M", pid, tid, name: what, args: Argument { name } }
    }
}
