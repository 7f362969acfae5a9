//! From what was sampled and what is known exactly to one number per stack.
//!
//! The samples of a function say how its calls and its time are spread over stacks; the kernel's records say how much
//! there is of both. So each function's stacks are scaled to its exact total, and add up to it to the nanosecond. Every
//! stack has the *own* part of its call: what a call led to in further native methods is drawn above it, as stacks of
//! theirs, so that the whole width of a frame is its whole time.

mod inside;
mod share;
mod tree;

use self::tree::Tree;
use crate::model::{
    FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileMode, ProfileStack, StackTotals, Unit, Unseen,
    Weighed, Weight,
};

/// How much of the frames is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Detail {
    /// Frames of the same method at different lines are different.
    pub lines: bool,
    /// Also show the frames that the VM leaves out of its own stack traces.
    pub hidden: bool,
    /// The thread is the outermost frame; threads of one name are one.
    pub threads: bool,
}

/// The recording does not hold what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// Nobody measured when threads were not running.
    #[error(
        "the recording does not tell work from waiting: it was made with `--no-off-cpu`, or where that cannot be \
         measured; use `--weight time`"
    )]
    OffCpu,
    /// The samples of a timer know of no calls.
    #[error(
        "the recording holds samples of the CPU (`--on-cpu`) and no calls: use `--weight time`, or record again without \
         `--on-cpu`"
    )]
    Calls,
}

/// Gives each stack of a recording its number.
///
/// Stacks come in the order of the recording. Those without a value are left out, as are indices that lead nowhere.
///
/// # Errors
/// If the recording does not hold what `weight` needs.
pub fn weigh(profile: &Profile, weight: Weight, detail: Detail) -> Result<Weighed, NotRecorded> {
    let has_calls = profile.about.mode == ProfileMode::Calls;
    match weight {
        Weight::Calls | Weight::OffCpu if !has_calls => return Err(NotRecorded::Calls),
        Weight::OnCpu | Weight::OffCpu if has_calls && !profile.about.off_cpu => return Err(NotRecorded::OffCpu),
        Weight::Time | Weight::Calls | Weight::SelfTime | Weight::OnCpu | Weight::OffCpu => {}
    }
    let marks = Marks::of(profile);
    let mut weigher = Weigher { profile, weight, detail, marks: &marks, tree: Tree::new(detail.lines) };
    if has_calls {
        weigher.calls();
    } else {
        weigher.samples_by_timer();
    }
    let unit = if weight == Weight::Calls { Unit::Calls } else { Unit::Nanoseconds };
    Ok(weigher.tree.weighed(unit))
}

/// Everything that a recording can be weighed by, for formats that hold more than one number per stack; its time by `time`.
///
/// # Errors
/// If the recording does not hold what `time` needs.
pub fn weigh_all(profile: &Profile, time: Weight, detail: Detail) -> Result<Vec<(Weight, Weighed)>, NotRecorded> {
    let weights: &[Weight] = match profile.about.mode {
        ProfileMode::OnCpu => &[time],
        ProfileMode::Calls if profile.about.off_cpu => &[Weight::Calls, time, Weight::OnCpu, Weight::OffCpu],
        ProfileMode::Calls => &[Weight::Calls, time],
    };
    weights.iter().map(|weight| Ok((*weight, weigh(profile, *weight, detail)?))).collect()
}

/// For each function of a recording, the time of its calls that had not returned at the end, in nanoseconds: without the
/// traced calls that they made, and by on-CPU time the part of it that threads ran. Stacks have it beside the function's exact
/// time.
#[must_use]
pub fn open_ns(profile: &Profile, weight: Weight) -> Vec<u64> {
    let mut open = vec![0_u64; profile.functions.len()];
    for totals in &profile.open {
        if let Some(sum) = totals.function.and_then(|function| open.get_mut(function as usize)) {
            let ns = if weight == Weight::OnCpu { inside::parts(totals)[0] } else { totals.self_ns };
            *sum = sum.saturating_add(share::round(ns));
        }
    }
    open
}

/// The frames that no stack of the recording has.
struct Marks {
    no_stack: ProfileFrame,
    unseen: ProfileFrame,
    /// For each function of the recording, the frame of its method.
    functions: Vec<ProfileFrame>,
    /// For each frame of the recording that is a native method, that it called back.
    called_back: Vec<Option<ProfileFrame>>,
    /// For each stack of the recording, where it was cut.
    cut: Vec<Option<ProfileFrame>>,
    /// For each thread of the recording, that it is one of this name.
    threads: Vec<ProfileFrame>,
}

impl Marks {
    fn of(profile: &Profile) -> Self {
        let called_back = |frame: &ProfileFrame| {
            let method = format!("{}.{}", frame.scope, frame.name);
            (frame.kind == ProfileFrameKind::NativeMethod).then(|| marker(format!("[called back from {method}]")))
        };
        let cut = |stack: &ProfileStack| stack.cut.map(|reason| marker(format!("[stack cut: {reason}]")));
        Self {
            no_stack: marker("[no stack taken]".to_owned()),
            unseen: marker("[estimated: too expensive to watch]".to_owned()),
            functions: profile.functions.iter().map(native_method).collect(),
            called_back: profile.frames.iter().map(called_back).collect(),
            cut: profile.stacks.iter().map(cut).collect(),
            threads: profile.threads.iter().map(|thread| marker(thread_mark(&thread.name))).collect(),
        }
    }
}

/// What the frame of a thread says.
#[must_use]
pub fn thread_mark(name: &str) -> String {
    format!("[thread {name}]")
}

fn marker(name: String) -> ProfileFrame {
    let kind = ProfileFrameKind::Marker;
    let (scope, signature, library) = (String::new(), String::new(), String::new());
    ProfileFrame { kind, scope, name, signature, line: None, hidden: false, library }
}

fn native_method(function: &FunctionTotals) -> ProfileFrame {
    ProfileFrame {
        kind: ProfileFrameKind::NativeMethod,
        scope: function.class.clone(),
        name: function.method.clone(),
        signature: function.signature.clone(),
        line: None,
        hidden: false,
        library: function.library.clone(),
    }
}

/// The stacks of a recording on their way to numbers.
struct Weigher<'a> {
    profile: &'a Profile,
    weight: Weight,
    detail: Detail,
    marks: &'a Marks,
    tree: Tree<'a>,
}

impl<'a> Weigher<'a> {
    /// A recording of calls: the exact total of each function over its samples, then what was still open.
    fn calls(&mut self) {
        let calls = self.by_function(&self.profile.calls);
        let inside = self.by_function(&self.profile.inside);
        for (at, function) in self.profile.functions.iter().enumerate() {
            let from_inside = self.shows_native() && !inside[at].is_empty();
            let samples = if from_inside { &inside[at] } else { &calls[at] };
            let said = match self.weight {
                Weight::OnCpu => inside::running(samples),
                _ if from_inside => inside::times(function, samples),
                _ => samples.iter().map(|sample| self.said(sample)).collect(),
            };
            self.function(at, function, samples, &said);
        }
        // In flight is not in the number of calls, and the times until the end are no estimates.
        if self.weight != Weight::Calls {
            for open in &self.profile.open {
                self.stack(open, share::round(self.said(open)));
            }
        }
    }

    /// Samples by timer stand for themselves: each for the time from one to the next.
    fn samples_by_timer(&mut self) {
        for sample in &self.profile.inside {
            self.stack(sample, share::round(sample.time_ns));
        }
    }

    /// Whether samples from within native methods replace those at their entries.
    fn shows_native(&self) -> bool {
        matches!(self.weight, Weight::Time | Weight::SelfTime | Weight::OnCpu)
    }

    /// The samples of each function.
    fn by_function(&self, samples: &'a [StackTotals]) -> Vec<Vec<&'a StackTotals>> {
        let mut by_function = vec![Vec::new(); self.profile.functions.len()];
        for sample in samples {
            let of = sample.function.and_then(|function| by_function.get_mut(function as usize));
            if let Some(of) = of {
                of.push(sample);
            }
        }
        by_function
    }

    /// Divides the exact total of a function among its samples, in the ratio of what they say.
    fn function(&mut self, at: usize, function: &FunctionTotals, samples: &[&'a StackTotals], said: &[f64]) {
        let total = match self.weight {
            Weight::Time | Weight::SelfTime => function.self_ns,
            Weight::Calls => function.calls,
            Weight::OnCpu => function.on_cpu_ns(),
            Weight::OffCpu => function.off_cpu_ns,
        };
        match share::divide(total, said) {
            Some(values) => samples.iter().zip(values).for_each(|(sample, value)| self.stack(sample, value)),
            None => self.tree.add(&[&self.marks.no_stack, &self.marks.functions[at]], total, 0),
        }
        if let Some(unseen) = function.unseen {
            self.tree.add(&[&self.marks.unseen, &self.marks.functions[at]], self.estimated(function, unseen), 0);
        }
    }

    /// What the weight at hand has of calls that nobody saw.
    fn estimated(&self, function: &FunctionTotals, unseen: Unseen) -> u64 {
        match self.weight {
            Weight::Time | Weight::SelfTime => unseen.total_ns,
            Weight::Calls => unseen.calls,
            Weight::OnCpu => function.unseen_on_cpu_ns(),
            Weight::OffCpu => function.unseen_off_ns.min(unseen.total_ns),
        }
    }

    /// What a sample says of the weight at hand.
    fn said(&self, sample: &StackTotals) -> f64 {
        match self.weight {
            Weight::Time | Weight::SelfTime => sample.self_ns,
            Weight::Calls => sample.calls,
            Weight::OnCpu => inside::parts(sample)[0],
            Weight::OffCpu => sample.off_cpu_ns,
        }
    }

    fn stack(&mut self, sample: &StackTotals, value: u64) {
        if let Some(frames) = self.frames(sample) {
            self.tree.add(&frames, value, sample.samples);
        }
    }

    /// The frames of a sample as they are drawn, the outermost first; `None` if its stack is not there.
    fn frames(&self, sample: &StackTotals) -> Option<Vec<&'a ProfileFrame>> {
        let marks = self.marks;
        let stack = self.profile.stacks.get(sample.stack as usize)?;
        let (taken, called_back) = self.own_part(stack);
        let known = taken.iter().filter_map(|frame| self.profile.frames.get(*frame as usize));
        let mut frames: Vec<&ProfileFrame> = known.filter(|frame| self.is_drawn(frame)).collect();
        if !frames.iter().any(|frame| frame.kind == ProfileFrameKind::NativeMethod) {
            // The stack was cut before its method; which one that is, is known all the same.
            frames.extend(sample.function.and_then(|function| marks.functions.get(function as usize)));
        }
        let cut = marks.cut.get(sample.stack as usize).and_then(Option::as_ref);
        frames.extend(called_back.or(cut));
        let thread = sample.thread.filter(|_| self.detail.threads);
        frames.extend(thread.and_then(|thread| marks.threads.get(thread as usize)));
        frames.reverse();
        Some(frames)
    }

    /// The frames of a stack that are drawn with this weight and, if outer ones are not, who called back.
    fn own_part(&self, stack: &'a ProfileStack) -> (&'a [u32], Option<&'a ProfileFrame>) {
        let called_back = |at: &u32| self.marks.called_back.get(*at as usize).and_then(Option::as_ref);
        if self.weight != Weight::SelfTime || self.profile.about.mode == ProfileMode::OnCpu {
            return (&stack.frames, None);
        }
        let mut native = stack.frames.iter().enumerate().filter_map(|(depth, at)| Some((depth, called_back(at)?)));
        match native.nth(1) {
            Some((depth, mark)) => (&stack.frames[..depth], Some(mark)),
            None => (&stack.frames, None),
        }
    }

    /// Native methods are always drawn: time is theirs.
    fn is_drawn(&self, frame: &ProfileFrame) -> bool {
        self.detail.hidden || !frame.hidden || frame.kind == ProfileFrameKind::NativeMethod
    }
}

#[cfg(test)]
mod tests;
