//! Where invocations go: which are shown, how, and what is said at the end.

use std::io::{self, BufWriter, Stdout, Write as _};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::{Format, Shown, TreeArgs};
use crate::aggregate::{TreeSums, summarize_trees, trees_by_time};
use crate::cli::terminal::stdout_screen;
use crate::model::{Invocation, Jvm, TreeClock, TreePlan, Unfinished};
use crate::render::profile::captions::Captions;
use crate::render::profile::{folded, svg};
use crate::render::tree::{self, ShownInvocation, TreeContext, TreeRun, TreeTimeline};
use crate::trace::TreeTracer;

/// Takes invocations.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    shown: Shown,
    is_whole: bool,
    has_summary: bool,
    context: TreeContext,
    sums: TreeSums,
    jvm: Jvm,
    timeline: Option<TreeTimeline>,
    out: BufWriter<Stdout>,
}

/// Prints the plan alone.
///
/// # Errors
/// If it cannot be written.
pub(super) fn print_plan(args: &TreeArgs, plan: &TreePlan) -> io::Result<()> {
    let context = TreeContext::new(plan.clone(), clock());
    let mut out = BufWriter::new(io::stdout());
    match args.format {
        Format::Json => tree::tree_plan_json(&context, &mut out)?,
        _ => tree::tree_plan(&context, true, stdout_screen(), &mut out)?,
    }
    out.flush()
}

impl Output {
    /// Prints what stands before the first invocation: the plan, for people.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(args: &TreeArgs, tracer: &TreeTracer) -> io::Result<Self> {
        let context = TreeContext::new(tracer.plan().clone(), clock());
        let mut out = BufWriter::new(io::stdout());
        let jvm = tracer.jvm().clone();
        let mut timeline = None;
        match args.format {
            Format::Text => {
                tree::tree_plan(&context, false, stdout_screen(), &mut out)?;
                writeln!(out)?;
            }
            Format::Perfetto => timeline = Some(TreeTimeline::begin(&context, jvm.pid.0, &jvm.main, &mut out)?),
            Format::Json | Format::Folded | Format::Svg => {}
        }
        out.flush()?;
        Ok(Self {
            format: args.format,
            shown: Shown::new(args.min, args.count, None),
            is_whole: args.whole,
            has_summary: args.summary,
            context,
            sums: TreeSums::default(),
            jvm,
            timeline,
            out,
        })
    }

    /// Whether there are as many as were asked for.
    pub(super) fn has_all(&self) -> bool {
        self.shown.has_all()
    }

    /// Takes in an invocation, and shows it if it is one of those that were asked for.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn take(&mut self, invocation: &Invocation, tracer: &TreeTracer) -> io::Result<()> {
        let number = invocation.number;
        self.sums.add(invocation);
        if !self.shown.lets_through(invocation) {
            return Ok(());
        }
        for sum in invocation.nodes.iter().flat_map(|node| &node.exceptions) {
            if let Some(name) = tracer.exception_name(sum.exception) {
                self.context.learn_exception(sum.exception, name.into());
            }
        }
        let thread = tracer.thread_name(invocation.thread);
        let shown = ShownInvocation { number, invocation, thread: thread.as_deref(), marked_ns: None };
        let (context, out) = (&self.context, &mut self.out);
        match self.format {
            Format::Text => tree::tree_text(context, shown, self.is_whole, stdout_screen(), out),
            Format::Json => tree::tree_json(context, shown, out),
            Format::Perfetto => self.timeline.as_mut().map_or(Ok(()), |timeline| timeline.write(context, shown, out)),
            Format::Folded | Format::Svg => Ok(()),
        }
    }

    /// Hands what was printed to whoever reads it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints what is said at the end.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(mut self, unfinished: Unfinished, tracer: &TreeTracer) -> io::Result<()> {
        let summary = summarize_trees(self.sums.totals(), unfinished);
        let losses = tracer.losses().named();
        let (context, out) = (&self.context, &mut self.out);
        let run = TreeRun {
            pid: self.jvm.pid.0,
            main: &self.jvm.main,
            summary: &summary,
            elapsed: tracer.recorded_for(),
            shown: self.shown.count(),
            min_ns: self.shown.min_ns(),
            reached: self.shown.reached(),
            silenced: tracer.silenced(),
            fewer: "--depth, --package",
            remark: None,
            losses: &losses,
        };
        match self.format {
            Format::Text => tree::tree_summary(context, &run, self.has_summary, stdout_screen(), out)?,
            Format::Json => tree::tree_summary_json(context, &run, out)?,
            Format::Perfetto => {
                if let Some(timeline) = self.timeline {
                    timeline.finish(context, &run, out)?;
                }
            }
            Format::Folded => folded::write(&trees_by_time(self.sums.totals(), &context.plan().methods), out)?,
            Format::Svg => {
                let notes = tree::tree_notes(context, &run);
                let captions = Captions { title: tree::tree_title(context, &run), notes };
                svg::write(&trees_by_time(self.sums.totals(), &context.plan().methods), &captions, out)?;
            }
        }
        self.out.flush()
    }
}

/// Now, by both clocks.
pub(in crate::cli) fn clock() -> TreeClock {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let monotonic_ns = seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default();
    TreeClock { wall: Timestamp::now(), monotonic_ns }
}
