//! Windows that follow each other as one profile: the exact sums of their numbers.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::Timestamp;
use nprof_common::Consumed;

use super::compact::{FunctionName, Stack, Window};
use super::shared::Shared;
use crate::aggregate::per_call;
use crate::model::{BytesPerCall, FunctionTotals, Profile, ProfileFrame, ProfileStack, Quality, StackTotals, Unseen};

/// Adds windows up, the earliest first.
pub(super) fn merge(windows: &[&Window]) -> Profile {
    let mut merger = Merger::default();
    for window in windows {
        merger.add(window);
    }
    merger.finish(windows)
}

/// Values by number, in the order in which they were met.
#[derive(Debug)]
struct Numbers<T> {
    by_value: HashMap<Shared<T>, u32>,
    values: Vec<Shared<T>>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { by_value: HashMap::new(), values: Vec::new() }
    }
}

impl<T> Numbers<T> {
    fn number(&mut self, value: &Shared<T>) -> u32 {
        let Self { by_value, values } = self;
        *by_value.entry(value.clone()).or_insert_with(|| {
            values.push(value.clone());
            u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

#[derive(Debug, Default)]
struct Merger {
    stacks: Numbers<Stack>,
    names: Numbers<FunctionName>,
    /// By the number of the name.
    functions: Vec<FunctionTotals>,
    /// By function and stack.
    calls: HashMap<(Option<u32>, u32), StackTotals>,
    quality: Quality,
    /// When the first window began.
    started: Option<Timestamp>,
}

impl Merger {
    fn add(&mut self, window: &Window) {
        let started = *self.started.get_or_insert(window.started());
        let after_ns = u64::try_from(window.started().duration_since(started).as_nanos()).unwrap_or_default();
        // How many calls have begun and not ended is known of the end of the last window.
        self.functions.iter_mut().for_each(|function| function.in_flight = 0);
        let functions: Vec<u32> = window.functions.iter().map(|(name, of)| self.function(name, of, after_ns)).collect();
        let stacks: Vec<u32> = window.stacks.iter().map(|stack| self.stacks.number(stack)).collect();
        for of in &window.calls {
            let function = of.function.and_then(|function| functions.get(function as usize).copied());
            let Some(&stack) = stacks.get(of.stack as usize) else { continue };
            let sum = self.calls.entry((function, stack)).or_insert(StackTotals {
                stack,
                function,
                thread: None,
                samples: 0,
                calls: 0.0,
                time_ns: 0.0,
                self_ns: 0.0,
                off_cpu_ns: 0.0,
            });
            sum.samples += of.samples;
            sum.calls += of.calls;
            sum.time_ns += of.time_ns;
            sum.self_ns += of.self_ns;
            sum.off_cpu_ns += of.off_cpu_ns;
        }
        add_quality(&mut self.quality, &window.quality);
    }

    /// Adds a function of a window that began so long after the first one.
    fn function(&mut self, name: &Shared<FunctionName>, totals: &FunctionTotals, after_ns: u64) -> u32 {
        let number = self.names.number(name);
        match self.functions.get_mut(number as usize) {
            Some(sum) => add_totals(sum, totals),
            None => {
                let late_ns = totals.traced_after_ns;
                let traced_after_ns = if late_ns == 0 { 0 } else { late_ns.saturating_add(after_ns) };
                self.functions.push(FunctionTotals { traced_after_ns, ..totals.clone() });
            }
        }
        number
    }

    fn finish(self, windows: &[&Window]) -> Profile {
        let mut about = windows.last().map(|last| last.about().clone()).unwrap_or_default();
        if let (Some(first), Some(last)) = (windows.first(), windows.last()) {
            about.started = first.started();
            about.off_cpu = windows.iter().all(|window| window.about().off_cpu);
            about.elapsed = last.until().duration_since(first.started()).try_into().unwrap_or_default();
        }
        let mut frames = Numbers::<ProfileFrame>::default();
        let stack = |stack: &Shared<Stack>| ProfileStack {
            frames: stack.frames.iter().map(|frame| frames.number(frame)).collect(),
            cut: stack.cut,
        };
        let stacks = self.stacks.values.iter().map(stack).collect();
        let functions = self.names.values.iter().zip(self.functions).map(|(name, totals)| named(name, totals));
        let mut calls: Vec<StackTotals> = self.calls.into_values().collect();
        calls.sort_unstable_by_key(|totals| (totals.function, totals.stack));
        Profile {
            about,
            stacks,
            functions: functions.collect(),
            calls,
            frames: frames.values.iter().map(|frame| ProfileFrame::clone(frame)).collect(),
            quality: self.quality,
            ..Profile::default()
        }
    }
}

fn named(name: &FunctionName, totals: FunctionTotals) -> FunctionTotals {
    let FunctionName { class, method, signature, library, others } = name;
    FunctionTotals {
        class: class.clone(),
        method: method.clone(),
        signature: signature.clone(),
        library: library.clone(),
        others: *others,
        ..totals
    }
}

/// The bytes of the calls of both. To be asked before what both have consumed is added up.
fn bytes_per_call(one: &FunctionTotals, other: &FunctionTotals) -> Option<Vec<BytesPerCall>> {
    let [one, other] = [one, other].map(|function| per_call::Recorded {
        consumed: function.consumed.as_deref(),
        bytes: function.bytes_per_call.as_deref(),
    });
    per_call::sum(one, other)
}

fn add_totals(sum: &mut FunctionTotals, more: &FunctionTotals) {
    for (sum, more) in [
        (&mut sum.calls, more.calls),
        (&mut sum.untimed, more.untimed),
        (&mut sum.counted, more.counted),
        (&mut sum.total_ns, more.total_ns),
        (&mut sum.self_ns, more.self_ns),
        (&mut sum.off_cpu_ns, more.off_cpu_ns),
        (&mut sum.probe_ns, more.probe_ns),
        (&mut sum.probe_error_ns, more.probe_error_ns),
        (&mut sum.unseen_off_ns, more.unseen_off_ns),
        (&mut sum.in_flight, more.in_flight),
        (&mut sum.unwatched_ns, more.unwatched_ns),
    ] {
        *sum = sum.saturating_add(more);
    }
    sum.max_ns = sum.max_ns.max(more.max_ns);
    sum.single_stepped |= more.single_stepped;
    sum.self_estimated |= more.self_estimated;
    sum.sampled |= more.sampled;
    sum.bytes_per_call = bytes_per_call(sum, more);
    match (&mut sum.consumed, &more.consumed) {
        (Some(sum), Some(more)) => add_consumed(sum, more),
        (None, Some(more)) => sum.consumed = Some(more.clone()),
        (_, None) => {}
    }
    // That is of the end.
    sum.only_counted = more.only_counted;
    sum.unseen = match (sum.unseen, more.unseen) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    };
}

fn add_consumed(sum: &mut Consumed, more: &Consumed) {
    sum.total.iter_mut().zip(more.total).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    sum.own.iter_mut().zip(more.own).for_each(|(sum, more)| *sum = sum.saturating_add(more));
}

/// Two estimates as one: what is not known of a cost is the same in both, so errors add up.
fn both(one: Unseen, other: Unseen) -> Unseen {
    let error_ns = match (one.error_ns, other.error_ns) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    Unseen {
        calls: one.calls.saturating_add(other.calls),
        error_calls: one.error_calls.saturating_add(other.error_calls),
        total_ns: one.total_ns.saturating_add(other.total_ns),
        error_ns,
        ..one
    }
}

fn add_quality(sum: &mut Quality, more: &Quality) {
    sum.stacks += more.stacks;
    sum.complete += more.complete;
    sum.guessed += more.guessed;
    for (sum, more) in [(&mut sum.cut, &more.cut), (&mut sum.lost, &more.lost), (&mut sum.losses, &more.losses)] {
        add_counts(sum, more);
    }
    sum.cut.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    // How many methods are not traced is known of the end.
    sum.skipped.clone_from(&more.skipped);
}

fn add_counts<K: Clone + Hash + Eq>(sum: &mut Vec<(K, u64)>, more: &[(K, u64)]) {
    for (reason, count) in more {
        match sum.iter_mut().find(|(known, _)| known == reason) {
            Some((_, sum)) => *sum += count,
            None => sum.push((reason.clone(), *count)),
        }
    }
}
