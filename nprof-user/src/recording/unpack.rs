//! From the parts of a file to a profile in which every index leads somewhere and every number is one.

use std::time::Duration;

use nprof_common::histogram::BUCKETS;
use nprof_common::{Consumed, Counters};

use super::Error;
use super::checks::{check, is_below, timestamp};
use super::numbers::{COUNTERS, CUT_REASONS, KINDS, MODES, value};
use super::unpack_trees::TreeRows;
use super::values;
use super::wire::{self, Part};
use crate::model::{
    About, BytesPerCall, Collectors, FunctionTotals, Histogram, Profile, ProfileFrame, ProfileStack, Quality, Settled,
    StackTotals, ThreadName, TimelineCall, Unseen,
};

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    profile: Profile,
    trees: TreeRows,
    /// Whether it is said what was recorded.
    is_described: bool,
}

impl Unpacked {
    /// Adds the rows of a part.
    pub(super) fn add(&mut self, mut part: Part) -> Result<(), Error> {
        self.trees.add(&mut part)?;
        let profile = &mut self.profile;
        if let Some(about) = part.about {
            profile.about = self::about(about)?;
            self.is_described = true;
        }
        if let Some(quality) = part.quality {
            profile.quality = self::quality(quality);
        }
        append(&mut profile.frames, part.frames, frame)?;
        append(&mut profile.stacks, part.stacks, stack)?;
        append(&mut profile.functions, part.functions, |row| Ok(function(row)))?;
        for bytes in part.bytes_per_call {
            add_bytes(&mut profile.functions, bytes)?;
        }
        append(&mut profile.calls, part.calls, totals)?;
        append(&mut profile.open, part.open, totals)?;
        append(&mut profile.inside, part.inside, totals)?;
        append(&mut profile.timeline, part.timeline, |row| Ok(call(row)))?;
        profile.objects.extend(part.objects.into_iter().map(values::unpack_object));
        for row in part.call_values {
            values::add(profile, row)?;
        }
        append(&mut profile.threads, part.threads, |row| Ok(ThreadName { tid: row.tid, name: row.name }))
    }

    /// The profile, if it is whole.
    pub(super) fn finish(self) -> Result<Profile, Error> {
        let Self { mut profile, trees, is_described } = self;
        check(is_described, "it does not say what was recorded")?;
        let (frames, stacks) = (profile.frames.len(), profile.stacks.len());
        let (functions, threads) = (profile.functions.len(), profile.threads.len());
        let has_frames = |stack: &ProfileStack| stack.frames.iter().all(|frame| is_below(*frame, frames));
        check(profile.stacks.iter().all(has_frames), "a stack names a frame that is not there")?;
        let is_sound = |totals: &StackTotals| {
            is_below(totals.stack, stacks)
                && totals.function.is_none_or(|function| is_below(function, functions))
                && totals.thread.is_none_or(|thread| is_below(thread, threads))
        };
        let mut totals = profile.calls.iter().chain(&profile.open).chain(&profile.inside);
        check(totals.all(is_sound), "a sample names a stack, function or thread that is not there")?;
        let is_sound = |call: &TimelineCall| {
            is_below(call.function, functions) && call.stack.is_none_or(|stack| is_below(stack, stacks))
        };
        check(profile.timeline.iter().all(is_sound), "a call names a stack or function that is not there")?;
        profile.trees = trees.finish()?.map(Box::new);
        Ok(profile)
    }
}

fn append<T, M>(rows: &mut Vec<T>, messages: Vec<M>, row: impl Fn(M) -> Result<T, Error>) -> Result<(), Error> {
    for message in messages {
        rows.push(row(message)?);
    }
    Ok(())
}

fn about(about: wire::About) -> Result<About, Error> {
    let started = timestamp(about.started_seconds, about.started_nanos)?;
    check(about.elapsed_nanos < 1_000_000_000, "a time that is none")?;
    Ok(About {
        nprof: about.nprof,
        started,
        elapsed: Duration::new(about.elapsed_seconds, about.elapsed_nanos),
        mode: value(&MODES, about.mode).ok_or(Error::Damaged { what: "an unknown mode" })?,
        pid: about.pid,
        main: about.main,
        vm: about.vm,
        kernel: about.kernel,
        host: about.host,
        patterns: about.patterns,
        threads: about.threads,
        max_stacks: about.max_stacks,
        period_ns: about.period_ns,
        off_cpu: about.off_cpu,
        native_stacks: about.native_stacks,
        collectors: Collectors::known(&about.collectors),
    })
}

fn frame(frame: wire::Frame) -> Result<ProfileFrame, Error> {
    Ok(ProfileFrame {
        kind: value(&KINDS, frame.kind).ok_or(Error::Damaged { what: "an unknown kind of frame" })?,
        scope: frame.scope,
        name: frame.name,
        signature: frame.signature,
        line: frame.line,
        hidden: frame.hidden,
        library: frame.library,
    })
}

fn stack(stack: wire::Stack) -> Result<ProfileStack, Error> {
    let unknown = Error::Damaged { what: "an unknown reason for a cut stack" };
    let cut = match stack.cut {
        0 => None,
        cut => Some(value(&CUT_REASONS, cut).ok_or(unknown)?),
    };
    Ok(ProfileStack { frames: stack.frames, cut })
}

fn function(function: wire::Function) -> FunctionTotals {
    FunctionTotals {
        class: function.class,
        method: function.method,
        signature: function.signature,
        others: function.others,
        library: function.library,
        calls: function.calls,
        untimed: function.untimed,
        total_ns: function.total_ns.saturating_sub(function.probe_ns),
        self_ns: function.self_ns.saturating_sub(function.probe_ns),
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
        consumed: consumed(&function.consumed_own, &function.consumed_total),
        bytes_per_call: function.knows_bytes.then(Vec::new),
    }
}

/// Adds what single calls have consumed to the function that it is of. What a newer nprof counts is left out.
fn add_bytes(functions: &mut [FunctionTotals], bytes: wire::BytesPerCall) -> Result<(), Error> {
    let function = functions.get_mut(bytes.function as usize);
    let known = function.and_then(|function| function.bytes_per_call.as_mut());
    let known = known.ok_or(Error::Damaged { what: "bytes of a function that has none" })?;
    let buckets = &bytes.buckets;
    let is_sound = buckets.len() == bytes.calls.len()
        && buckets.iter().is_sorted_by(|one, next| one < next)
        && buckets.last().is_none_or(|last| is_below(*last, BUCKETS));
    check(is_sound, "bytes of calls in a bucket that is none")?;
    let Some(counter) = value(&COUNTERS, bytes.counter) else { return Ok(()) };
    check(known.iter().all(|of| of.counter != counter), "bytes of the same calls twice")?;
    let buckets = bytes.buckets.into_iter().filter_map(|index| i32::try_from(index).ok()).zip(bytes.calls).collect();
    known.push(BytesPerCall { counter, max: bytes.max, histogram: Histogram { buckets } });
    Ok(())
}

fn consumed(own: &[u64], total: &[u64]) -> Option<Box<Consumed>> {
    let counters = |numbers: &[u64]| {
        let mut counters = Counters::default();
        COUNTERS.iter().zip(numbers).for_each(|(counter, number)| counters[*counter as usize] = *number);
        counters
    };
    (!own.is_empty()).then(|| Box::new(Consumed { own: counters(own), total: counters(total) }))
}

fn unseen(wire::Unseen { calls, error_calls, total_ns, error_ns }: wire::Unseen) -> Unseen {
    // Nothing is added to a recording.
    Unseen { calls, error_calls, total_ns, error_ns, settled: Settled { calls, total_ns } }
}

fn totals(totals: wire::Totals) -> Result<StackTotals, Error> {
    let wire::Totals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns } = totals;
    let is_sum = |number: &f64| number.is_finite() && *number >= 0.0;
    check([calls, time_ns, self_ns, off_cpu_ns].iter().all(is_sum), "a sum that is no number")?;
    Ok(StackTotals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns })
}

fn call(call: wire::Call) -> TimelineCall {
    let wire::Call { tid, function, start_ns, duration_ns, stack } = call;
    TimelineCall { tid, function, start_ns, duration_ns, stack, made_with: None }
}

fn quality(quality: wire::Quality) -> Quality {
    Quality {
        stacks: quality.stacks,
        complete: quality.complete,
        cut: counts(quality.cut),
        lost: counts(quality.lost),
        timeline_lost: quality.timeline_lost,
        losses: counts(quality.losses),
        skipped: counts(quality.skipped),
        guessed: quality.guessed,
        open_unsplit: quality.open_unsplit,
        narrowed: quality.narrowed,
    }
}

fn counts(counts: Vec<wire::Count>) -> Vec<(String, u64)> {
    counts.into_iter().map(|count| (count.reason, count.number)).collect()
}
