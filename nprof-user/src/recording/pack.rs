//! From a profile to the parts of a file.

use nprof_common::Counters;

use super::numbers::{COUNTERS, CUT_REASONS, KINDS, MODES, number};
use super::pack_trees;
use super::rows::rows;
use super::values;
use super::wire::{self, Part};
use crate::model::{
    About, BytesPerCall, FunctionTotals, Profile, ProfileFrame, ProfileStack, Quality, StackTotals, ThreadName,
    TimelineCall, Unseen,
};

/// Gives each part of a profile to `each`, in order.
///
/// # Errors
/// The first one of `each`; no part comes after it.
pub(super) fn parts<E>(profile: &Profile, mut each: impl FnMut(Part) -> Result<(), E>) -> Result<(), E> {
    let each = &mut each;
    let (about, quality) = (about(&profile.about), quality(&profile.quality));
    let trees = profile.trees.as_deref();
    let of_trees = trees.map(pack_trees::about);
    each(Part { about: Some(about), quality: Some(quality), trees: of_trees, ..Part::default() })?;
    rows(&profile.frames, frame, |frames| each(Part { frames, ..Part::default() }))?;
    rows(&profile.stacks, stack, |stacks| each(Part { stacks, ..Part::default() }))?;
    rows(&profile.functions, function, |functions| each(Part { functions, ..Part::default() }))?;
    rows(&bytes(profile), bytes_per_call, |bytes_per_call| each(Part { bytes_per_call, ..Part::default() }))?;
    rows(&profile.calls, totals, |calls| each(Part { calls, ..Part::default() }))?;
    rows(&profile.open, totals, |open| each(Part { open, ..Part::default() }))?;
    rows(&profile.inside, totals, |inside| each(Part { inside, ..Part::default() }))?;
    rows(&profile.timeline, call, |timeline| each(Part { timeline, ..Part::default() }))?;
    rows(&profile.objects, values::pack_object, |objects| each(Part { objects, ..Part::default() }))?;
    rows(values::all(profile), values::pack, |call_values| each(Part { call_values, ..Part::default() }))?;
    rows(&profile.threads, thread, |threads| each(Part { threads, ..Part::default() }))?;
    trees.map_or(Ok(()), |trees| pack_trees::parts(trees, each))
}

fn about(about: &About) -> wire::About {
    wire::About {
        nprof: about.nprof.clone(),
        started_seconds: about.started.as_second(),
        started_nanos: about.started.subsec_nanosecond(),
        elapsed_seconds: about.elapsed.as_secs(),
        elapsed_nanos: about.elapsed.subsec_nanos(),
        mode: number(&MODES, &about.mode),
        pid: about.pid,
        main: about.main.clone(),
        vm: about.vm.clone(),
        kernel: about.kernel.clone(),
        host: about.host.clone(),
        patterns: about.patterns.clone(),
        threads: about.threads.clone(),
        max_stacks: about.max_stacks,
        period_ns: about.period_ns,
        off_cpu: about.off_cpu,
        native_stacks: about.native_stacks,
        collectors: about.collectors.iter().map(|collector| collector.name.to_owned()).collect(),
    }
}

fn frame(frame: &ProfileFrame) -> wire::Frame {
    wire::Frame {
        kind: number(&KINDS, &frame.kind),
        scope: frame.scope.clone(),
        name: frame.name.clone(),
        signature: frame.signature.clone(),
        line: frame.line,
        hidden: frame.hidden,
        library: frame.library.clone(),
    }
}

fn stack(stack: &ProfileStack) -> wire::Stack {
    let cut = stack.cut.map_or(0, |reason| number(&CUT_REASONS, &reason));
    wire::Stack { frames: stack.frames.clone(), cut }
}

fn function(function: &FunctionTotals) -> wire::Function {
    wire::Function {
        class: function.class.clone(),
        method: function.method.clone(),
        signature: function.signature.clone(),
        others: function.others,
        library: function.library.clone(),
        calls: function.calls,
        untimed: function.untimed,
        total_ns: function.total_ns.saturating_add(function.probe_ns),
        self_ns: function.self_ns.saturating_add(function.probe_ns),
        off_cpu_ns: function.off_cpu_ns,
        max_ns: function.max_ns,
        in_flight: function.in_flight,
        probe_ns: function.probe_ns,
        probe_error_ns: function.probe_error_ns,
        single_stepped: function.single_stepped,
        self_estimated: function.self_estimated,
        unseen: function.unseen.map(unseen),
        unseen_off_ns: function.unseen_off_ns,
        counted: function.counted,
        traced_after_ns: function.traced_after_ns,
        unwatched_ns: function.unwatched_ns,
        sampled: function.sampled,
        only_counted: function.only_counted,
        consumed_own: counters(function.consumed.as_ref().map(|consumed| &consumed.own)),
        consumed_total: counters(function.consumed.as_ref().map(|consumed| &consumed.total)),
        knows_bytes: function.bytes_per_call.is_some(),
    }
}

/// What calls have consumed one by one, each with the function that it is of.
fn bytes(profile: &Profile) -> Vec<(u32, &BytesPerCall)> {
    let functions = (0..).zip(&profile.functions);
    functions.flat_map(|(place, of)| of.bytes_per_call.iter().flatten().map(move |bytes| (place, bytes))).collect()
}

fn bytes_per_call(&(function, bytes): &(u32, &BytesPerCall)) -> wire::BytesPerCall {
    let BytesPerCall { counter, max, histogram } = bytes;
    let (buckets, calls) = histogram.buckets.iter().map(|&(index, calls)| (index.unsigned_abs(), calls)).unzip();
    wire::BytesPerCall { function, counter: number(&COUNTERS, counter), max: *max, buckets, calls }
}

fn counters(of: Option<&Counters>) -> Vec<u64> {
    let in_order = |counters: &Counters| COUNTERS.map(|counter| counters[counter as usize]).to_vec();
    of.map(in_order).unwrap_or_default()
}

fn unseen(Unseen { calls, error_calls, total_ns, error_ns, settled: _ }: Unseen) -> wire::Unseen {
    wire::Unseen { calls, error_calls, total_ns, error_ns }
}

fn totals(totals: &StackTotals) -> wire::Totals {
    let StackTotals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns } = *totals;
    wire::Totals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns }
}

fn call(call: &TimelineCall) -> wire::Call {
    let TimelineCall { tid, function, start_ns, duration_ns, stack, made_with: _ } = *call;
    wire::Call { tid, function, start_ns, duration_ns, stack }
}

fn thread(thread: &ThreadName) -> wire::Thread {
    wire::Thread { tid: thread.tid, name: thread.name.clone() }
}

fn quality(quality: &Quality) -> wire::Quality {
    wire::Quality {
        stacks: quality.stacks,
        complete: quality.complete,
        cut: counts(&quality.cut),
        lost: counts(&quality.lost),
        timeline_lost: quality.timeline_lost,
        losses: counts(&quality.losses),
        skipped: counts(&quality.skipped),
        guessed: quality.guessed,
        open_unsplit: quality.open_unsplit,
        narrowed: quality.narrowed,
    }
}

fn counts(counts: &[(String, u64)]) -> Vec<wire::Count> {
    let count = |(reason, number): &(String, u64)| wire::Count { reason: reason.clone(), number: *number };
    counts.iter().map(count).collect()
}
