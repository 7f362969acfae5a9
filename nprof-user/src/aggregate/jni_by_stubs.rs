//! What stubs in the table of JNI functions have counted, and who has called, by the stacks of sampled calls.

use std::collections::HashMap;

use nprof_common::JniCalls;

use crate::model::{
    CollectionsWait, Estimate, JavaName, JniCaller, JniCallers, JniSnapshot, JniSum, JniUse, Profile, Snapshot, Spread,
    StackTotals,
};

/// Of a normal distribution, 19 of 20 are no further from its middle than so many deviations.
const Z: f64 = 1.96;
/// What no one of so many samples has shown is, 19 of 20 times, less than this divided by their number.
const RULE_OF_THREE: f64 = 3.0;

/// The stacks of sampled calls, and how much their sums may be off, by the index of the function.
#[derive(Debug)]
pub struct Recorded {
    /// The stacks.
    pub profile: Profile,
    /// The squares of what each stands for, added up.
    pub spread: HashMap<u32, Spread>,
}

/// What stubs know: how often each function was called and how long that took; and who has called it, estimated from stacks of some of
/// these calls, if there are such.
#[must_use]
pub fn jni_by_stubs(snapshot: Snapshot, recorded: Option<&Recorded>) -> JniSnapshot {
    let uses = snapshot.methods.iter().enumerate().map(|(function, row)| {
        let child_ns = row.total_ns - row.self_ns.unwrap_or(row.total_ns).min(row.total_ns);
        let calls = JniCalls {
            calls: row.calls,
            timed: row.calls.saturating_sub(row.counted).saturating_sub(row.untimed),
            total_ns: row.total_ns,
            child_ns,
            off_ns: row.off_cpu_ns.unwrap_or(0),
            max_ns: row.max_ns,
            ..JniCalls::NONE
        };
        JniUse { method: None, function, calls, error_ns: row.price.inside_error_ns }
    });
    let uses: Vec<JniUse> = uses.filter(|made| made.calls.calls > 0).collect();
    let callers = recorded.map(|recorded| callers(&snapshot, &uses, recorded)).unwrap_or_default();
    JniSnapshot {
        snapshot,
        uses,
        callbacks: Vec::new(),
        critical: Vec::new(),
        collections: CollectionsWait::default(),
        buffers: Vec::new(),
        unseen: Vec::new(),
        tells_members: false,
        is_by_stubs: true,
        callers,
        held: None,
        thrown: Vec::new(),
    }
}

fn callers(snapshot: &Snapshot, uses: &[JniUse], Recorded { profile, spread }: &Recorded) -> JniCallers {
    let mut samples: HashMap<usize, HashMap<Option<JavaName>, Samples>> = HashMap::new();
    for of in &profile.calls {
        let Some(function) = of.function else { continue };
        let callers = samples.entry(function as usize).or_default();
        callers.entry(caller(profile, of.stack)).or_default().add(of);
    }
    let of_use = |made: &JniUse| {
        let index = snapshot.methods.get(made.function)?.index;
        Some(of_function(made, samples.remove(&made.function)?, *spread.get(&index)?))
    };
    let all = uses.iter().filter_map(of_use).flatten().collect();
    JniCallers { all, lost: profile.quality.lost.iter().map(|(_, lost)| lost).sum() }
}

/// Who has called, by a stack that begins there.
fn caller(profile: &Profile, stack: u32) -> Option<JavaName> {
    let frames = &profile.stacks.get(stack as usize)?.frames;
    let mut frames = frames.iter().filter_map(|frame| profile.frames.get(*frame as usize));
    let java = frames.find(|frame| frame.kind.is_java())?;
    Some(JavaName { class: java.scope.clone(), method: java.name.clone(), signature: java.signature.clone() })
}

/// What is known of one function, divided among its callers.
fn of_function(made: &JniUse, callers: HashMap<Option<JavaName>, Samples>, spread: Spread) -> Vec<JniCaller> {
    let mut all = Samples::default();
    callers.values().for_each(|samples| all.merge(samples));
    let sum = JniSum::from(made);
    let calls = Whole::of(all.calls, spread.calls, sum.calls);
    let time = Whole::of(all.self_ns, spread.self_ns, sum.self_ns);
    // What threads ran of their time is spread as their time is.
    let running = Whole { value: all.on_cpu_ns, exact: sum.on_cpu_ns, ..time };
    let row = |(caller, of): (Option<JavaName>, Samples)| {
        let (self_ns, on_cpu_ns) = (time.part(of.self_ns), running.part(of.on_cpu_ns));
        // Each is scaled to its own exact sum.
        let on_cpu_ns = Estimate { value: on_cpu_ns.value.min(self_ns.value), ..on_cpu_ns };
        let calls = calls.part(of.calls);
        JniCaller { function: made.function, caller, samples: of.samples, calls, self_ns, on_cpu_ns }
    };
    let mut rows: Vec<JniCaller> = callers.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.calls.value.cmp(&a.calls.value).then_with(|| a.caller.cmp(&b.caller)));
    rows
}

/// What sampled calls stand for.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    samples: u64,
    calls: f64,
    self_ns: f64,
    on_cpu_ns: f64,
}

impl Samples {
    fn add(&mut self, of: &StackTotals) {
        let on_cpu_ns = (of.self_ns - of.off_cpu_ns).max(0.0);
        self.merge(&Self { samples: of.samples, calls: of.calls, self_ns: of.self_ns, on_cpu_ns });
    }

    fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.calls += other.calls;
        self.self_ns += other.self_ns;
        self.on_cpu_ns += other.on_cpu_ns;
    }
}

/// What all samples of a function stand for.
#[derive(Debug, Clone, Copy)]
struct Whole {
    value: f64,
    /// How many samples that stand for the same would say as much: few where some stand for most of it.
    samples: f64,
    /// What there was.
    exact: u64,
    /// The part of it that no sample stands for: what was chosen and could not be taken, or was only counted.
    missing: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates; the cast saturates"
)]
impl Whole {
    fn of(value: f64, squares: f64, exact: u64) -> Self {
        let samples = if squares > 0.0 { value * value / squares } else { 0.0 };
        Self { value, samples, exact, missing: (1.0 - value / exact.max(1) as f64).max(0.0) }
    }

    /// As much of what there was as `part` is of the whole. The error is never less than what so many samples may have missed, and has
    /// in it what no sample stands for, whoever that belongs to.
    fn part(self, part: f64) -> Estimate {
        if self.value <= 0.0 || self.samples <= 0.0 {
            return Estimate { value: 0, error: self.exact };
        }
        let share = (part / self.value).clamp(0.0, 1.0);
        let (deviation, missed) = ((share * (1.0 - share) / self.samples).sqrt(), RULE_OF_THREE / self.samples);
        // Nobody has less than nothing, and nobody more than all.
        let error = ((Z * deviation).max(missed) + self.missing).min(share.max(1.0 - share));
        let of_exact = |share: f64| (share * self.exact as f64).round() as u64;
        Estimate { value: of_exact(share), error: of_exact(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::testing::{function, snapshot};
    use crate::model::{MethodSnapshot, ProfileFrame, ProfileFrameKind, ProfileStack};

    /// Check that each function with calls is a use of nobody's, with its own time, the part that was not running, and what was only counted.
    #[test]
    fn uses_by_stubs() {
        let mut snapshot = snapshot();
        let row = MethodSnapshot {
            counted: 4,
            self_ns: Some(700),
            off_cpu_ns: Some(200),
            ..function(5, "GetVersion", 10, 1_000)
        };
        snapshot.methods = vec![row, function(6, "FindClass", 0, 0)];
        let jni = jni_by_stubs(snapshot, None);
        assert!(jni.is_by_stubs && !jni.tells_members && jni.uses.len() == 1);
        let made = jni.uses[0];
        let JniCalls { calls, timed, total_ns, .. } = made.calls;
        assert_eq!((made.method, made.function, calls, timed, total_ns), (None, 0, 10, 6, 1_000));
        assert_eq!((made.self_ns(), made.on_cpu_ns()), (700, 500));
    }

    /// Check that calls are divided as the samples say, whoever had called the caller, with an error that shrinks with their number, and that
    /// stacks without Java are a caller of their own.
    #[test]
    fn callers_by_samples() {
        let mut snapshot = snapshot();
        snapshot.methods = vec![function(5, "GetVersion", 1_000, 9_000), function(6, "FindClass", 0, 0)];
        let kinds = [ProfileFrameKind::NativeMethod, ProfileFrameKind::C1, ProfileFrameKind::Marker];
        let frame = |(name, kind): (&str, _)| ProfileFrame {
            kind,
            scope: "a.A".to_owned(),
            name: name.to_owned(),
            signature: "()V".to_owned(),
            line: None,
            hidden: false,
            library: String::new(),
        };
        let frames = ["native", "run", "[no Java]"].into_iter().zip(kinds).map(frame).collect();
        let stack = |frames: &[u32]| ProfileStack { frames: frames.to_vec(), cut: None };
        let stacks = vec![stack(&[0]), stack(&[0, 1]), stack(&[2])];
        let of = |stack, samples: u64| StackTotals {
            stack,
            function: Some(0),
            thread: None,
            samples,
            calls: 10.0 * samples as f64,
            time_ns: 90.0 * samples as f64,
            self_ns: 90.0 * samples as f64,
            off_cpu_ns: 0.0,
        };
        let calls = |factor: u64| vec![of(0, 20 * factor), of(1, 60 * factor), of(2, 20 * factor)];
        let recorded = |factor: u64| Recorded {
            profile: Profile {
                frames: Vec::clone(&frames),
                stacks: stacks.clone(),
                calls: calls(factor),
                ..Profile::default()
            },
            spread: HashMap::from([(5, Spread { calls: 1e4 * factor as f64, self_ns: 8.1e5 * factor as f64 })]),
        };
        let [few, many] = [1, 100].map(|factor| jni_by_stubs(snapshot.clone(), Some(&recorded(factor))).callers.all);
        let named = |caller: &JniCaller| (caller.caller.as_ref().map(|name| name.method.clone()), caller.calls.value);
        let wanted = [(Some("native".to_owned()), 800), (None, 200)];
        assert_eq!(few.iter().map(named).collect::<Vec<_>>(), wanted);
        assert_eq!(many.iter().map(named).collect::<Vec<_>>(), wanted);
        // 1.96 times the root of 0.8 * 0.2 / 100, of 1,000.
        assert_eq!([few[0].calls.error, few[1].calls.error, many[0].calls.error], [78, 78, 8]);
        assert_eq!((few[0].samples, few[0].self_ns.value), (80, 7_200));
        assert!(jni_by_stubs(snapshot, None).callers == JniCallers::default());
    }

    /// Check that what all samples say is not taken for certain, and that those are few of which one stands for nearly everything.
    #[test]
    fn few_samples_are_not_certain() {
        let alike = Whole::of(300.0, 30.0 * 100.0, 300);
        assert_eq!(alike.part(300.0), Estimate { value: 300, error: 30 });
        let one_of_many = Whole::of(10_300.0, 1e8 + 30.0 * 100.0, 10_300);
        assert_eq!(one_of_many.part(300.0), Estimate { value: 300, error: 10_000 });
        let half_lost = Whole::of(300.0, 30.0 * 100.0, 600);
        assert_eq!(half_lost.part(300.0), Estimate { value: 600, error: 360 });
        assert_eq!(Whole::of(0.0, 0.0, 50).part(0.0), Estimate { value: 0, error: 50 });
    }
}
