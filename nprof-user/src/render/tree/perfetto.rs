//! Invocations as a timeline, in the trace event format that Perfetto and `chrome://tracing` open: a track for each thread, each call
//! from its beginning to its end. Written as invocations end, so that none have to be kept.

use std::collections::HashSet;
use std::io::{self, Write};

use serde::Serialize;

use super::json::kind;
use super::{ShownInvocation, TreeContext, TreeRun, thread_label};
use crate::model::TreeThread;
use crate::render::microseconds::Microseconds;
use crate::render::track_name::TrackName;

/// Numbers of the tracks of virtual threads: numbers of the kernel's threads are lower.
const VIRTUAL: u64 = 1 << 32;
/// The same of threads that are known by their numbers in a container.
const CONTAINED: u64 = 1 << 31;
/// What arrows are called.
const FLOW: &str = "handed over";

/// A timeline that is being written.
#[derive(Debug)]
pub struct TreeTimeline {
    pid: u32,
    origin_ns: u64,
    named: HashSet<TreeThread>,
    calls_left_out: u64,
}

impl TreeTimeline {
    /// Writes the beginning. Times are counted from when the run began.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn begin(context: &TreeContext, pid: u32, main: &str, w: &mut impl Write) -> io::Result<Self> {
        let timeline = Self { pid, origin_ns: context.clock.monotonic_ns, named: HashSet::new(), calls_left_out: 0 };
        w.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        serde_json::to_writer(&mut *w, &TrackName::of_process(pid, main))?;
        Ok(timeline)
    }

    /// Writes the calls of one invocation, which must have been kept.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn write(&mut self, context: &TreeContext, shown: ShownInvocation<'_>, w: &mut impl Write) -> io::Result<()> {
        let invocation = shown.invocation;
        let tid = track(invocation.thread);
        if self.named.insert(invocation.thread) {
            let name = shown.thread.map_or_else(|| thread_label(invocation.thread, None), str::to_owned);
            event(&TrackName::of_thread(self.pid, tid, &name), w)?;
        }
        self.calls_left_out += invocation.missing.calls_left_out;
        if let Some(by) = invocation.submitted_by {
            let at = |at_ns: u64| Microseconds(at_ns.saturating_sub(self.origin_ns));
            let (id, pid) = (shown.number, self.pid);
            event(
                &Flow { ph: "s", bp: None, id, pid, tid: track(by.thread), ts: at(by.at_ns), name: FLOW, cat: FLOW },
                w,
            )?;
            let ts = at(invocation.started_ns);
            event(&Flow { ph: "f", bp: Some("e"), id, pid, tid, ts, name: FLOW, cat: FLOW }, w)?;
        }
        let mut calls: Vec<_> = invocation.calls.iter().collect();
        // Of those that begin together the longest is first: it holds the others.
        calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.duration_ns), call.node));
        for call in calls {
            let method = invocation.nodes[call.node as usize].method;
            let Some(of) = context.method(method) else { continue };
            let start_ns = invocation.started_ns.saturating_sub(self.origin_ns).saturating_add(call.start_ns);
            event(
                &Call {
                    ph: "X",
                    pid: self.pid,
                    tid,
                    ts: Microseconds(start_ns),
                    dur: Microseconds(call.duration_ns),
                    name: context.short(method),
                    cat: kind(of.kind),
                    args: CallArguments { class: &of.class, signature: &of.signature, invocation: shown.number },
                },
                w,
            )?;
        }
        Ok(())
    }

    /// Writes the end.
    ///
    /// # Errors
    /// What writing to `w` gives.
    pub fn finish(self, context: &TreeContext, run: &TreeRun<'_>, w: &mut impl Write) -> io::Result<()> {
        let about = About {
            what: "invocations of entry methods",
            shown: run.shown,
            invocations: run.summary.entries.iter().map(|entry| entry.invocations).sum(),
            calls_left_out: self.calls_left_out,
            events_lost: run.losses.total(),
            started: context.clock.wall.to_string(),
            nprof: env!("CARGO_PKG_VERSION"),
        };
        w.write_all(b"\n],\"otherData\":")?;
        serde_json::to_writer(&mut *w, &about)?;
        w.write_all(b"}\n")
    }
}

fn event(event: &impl Serialize, w: &mut impl Write) -> io::Result<()> {
    w.write_all(b",\n")?;
    Ok(serde_json::to_writer(w, event)?)
}

fn track(thread: TreeThread) -> u64 {
    match thread {
        TreeThread::Platform(tid) => tid.into(),
        TreeThread::Contained(tid) => CONTAINED | u64::from(tid),
        TreeThread::Virtual(id) => VIRTUAL.saturating_add(id),
    }
}

#[derive(Serialize)]
struct Call<'a> {
    ph: &'static str,
    pid: u32,
    tid: u64,
    ts: Microseconds,
    dur: Microseconds,
    name: &'a str,
    cat: &'static str,
    args: CallArguments<'a>,
}

/// An end of an arrow from who has made a task to the invocation that is part of it.
#[derive(Serialize)]
struct Flow {
    ph: &'static str,
    /// The arrow leads to the call around it, not to the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    id: u64,
    pid: u32,
    tid: u64,
    ts: Microseconds,
    name: &'static str,
    cat: &'static str,
}

#[derive(Serialize)]
struct CallArguments<'a> {
    class: &'a str,
    signature: &'a str,
    invocation: u64,
}

/// What the file says about itself.
#[derive(Serialize)]
struct About {
    what: &'static str,
    shown: u64,
    invocations: u64,
    calls_left_out: u64,
    events_lost: u64,
    started: String,
    nprof: &'static str,
}
