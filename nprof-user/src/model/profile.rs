//! What a recording holds: the exact totals of every function, and the stacks of the calls that were sampled.
//!
//! Everything that later renders it needs is here; nothing refers to the process or the machine it was made on.

use std::time::Duration;

use jiff::Timestamp;
use nprof_common::Consumed;
use serde::{Deserialize, Serialize};

use super::{BytesPerCall, CallObject, CallValues, Collectors, CutReason, RecordedTrees, Unseen};

/// A finished recording of one JVM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// What was recorded, where and how.
    pub about: About,
    /// Each different frame once; [`ProfileStack::frames`] are indices of it.
    pub frames: Vec<ProfileFrame>,
    /// Each different stack once; [`StackTotals::stack`] is an index of it.
    pub stacks: Vec<ProfileStack>,
    /// The native functions that were traced and called, with exact totals; [`StackTotals::function`] is an index of it.
    pub functions: Vec<FunctionTotals>,
    /// What the sampled calls that returned say of their stacks, each function and stack once.
    pub calls: Vec<StackTotals>,
    /// Calls that had not returned when the recording ended: their time until then, exact, not sampled.
    pub open: Vec<StackTotals>,
    /// Samples taken inside native methods, with native frames (`--native-stacks`), or of all threads by timer
    /// (`--on-cpu`, where no function belongs to them).
    pub inside: Vec<StackTotals>,
    /// Single calls by the time when they began, where a timeline was asked for.
    pub timeline: Vec<TimelineCall>,
    /// Each different object once that these were made with, where that was asked for: [`CallValues`] have indices of it.
    pub objects: Vec<CallObject>,
    /// The threads that samples and the timeline speak of; [`StackTotals::thread`] is an index of it.
    pub threads: Vec<ThreadName>,
    /// How good all this is.
    pub quality: Quality,
    /// Invocations of Java methods, where trees of them were asked for.
    pub trees: Option<Box<RecordedTrees>>,
}

/// What was recorded, where and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The version of nprof that made the recording.
    pub nprof: String,
    /// Wall-clock time at the start.
    pub started: Timestamp,
    /// Time from the start to the end.
    pub elapsed: Duration,
    /// What was measured.
    pub mode: ProfileMode,
    /// The process id at that time.
    pub pid: u32,
    /// The main class, or the jar's file name.
    pub main: String,
    /// Name and version of the VM.
    pub vm: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The host's name.
    pub host: String,
    /// The patterns that methods were selected by; empty for all.
    pub patterns: Vec<String>,
    /// The globs that threads were selected by, later than it was recorded; empty for all.
    pub threads: Vec<String>,
    /// The most stacks that were to be taken in a second.
    pub max_stacks: u32,
    /// For samples by timer: the time from one to the next on each CPU, in nanoseconds.
    pub period_ns: Option<u64>,
    /// Whether off-CPU time was measured.
    pub off_cpu: bool,
    /// Whether samples inside native methods were taken.
    pub native_stacks: bool,
    /// What was collected of calls besides.
    pub collectors: Collectors,
}

/// What a recording measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileMode {
    /// The calls of native methods: counted and timed exactly, stacks sampled.
    #[default]
    Calls,
    /// Where threads use the CPU, sampled by timer.
    OnCpu,
}

/// What a frame of a picture stands for; each kind has a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileFrameKind {
    /// A Java method in the interpreter.
    Interpreted,
    /// A Java method compiled by C1.
    C1,
    /// A Java method compiled by C2.
    C2,
    /// A Java method that the compiler has inlined into the one that called it.
    Inlined,
    /// A native method: where Java crosses into native code.
    NativeMethod,
    /// A function of a native library.
    Native,
    /// A function of the VM itself (`libjvm`).
    Vm,
    /// A function inlined into a native one.
    NativeInlined,
    /// No code: a thread without Java frames, the place where a stack was cut, a call without a stack. The name says it in
    /// brackets.
    Marker,
}

impl ProfileFrameKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Interpreted,
        Self::C1,
        Self::C2,
        Self::Inlined,
        Self::NativeMethod,
        Self::Native,
        Self::Vm,
        Self::NativeInlined,
        Self::Marker,
    ];

    /// Whether it is a Java method, a native one included.
    #[must_use]
    pub fn is_java(self) -> bool {
        matches!(self, Self::Interpreted | Self::C1 | Self::C2 | Self::Inlined | Self::NativeMethod)
    }
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProfileFrame {
    /// What it is.
    pub kind: ProfileFrameKind,
    /// The class of a Java method, dotted; the file name of a native function's library; empty for a marker.
    pub scope: String,
    /// The method, the demangled function (or `libx.so+0x1234` where it has no name), or the marker's text.
    pub name: String,
    /// The descriptor of a Java method; else empty.
    pub signature: String,
    /// The source line, where it is known.
    pub line: Option<u32>,
    /// Whether the VM itself leaves it out of stack traces (lambda forms, hidden classes).
    pub hidden: bool,
    /// The file name of the library that a native method's function is in, where that was traced; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub library: String,
}

/// The frames of a stack and whether they are all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileStack {
    /// Indices of frames, the innermost first. In [`Profile::calls`] the first is the native method itself.
    pub frames: Vec<u32>,
    /// Why outer frames are missing; `None` if the stack is complete.
    pub cut: Option<CutReason>,
}

/// Exact totals of one native function, from the kernel's records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionTotals {
    /// The class of the first method that is bound to it, dotted.
    pub class: String,
    /// That method's name.
    pub method: String,
    /// Its descriptor.
    pub signature: String,
    /// How many further methods are bound to it.
    pub others: u32,
    /// The library's file name.
    pub library: String,
    /// Calls that have ended.
    pub calls: u64,
    /// Of them, those that have no time (see the losses).
    pub untimed: u64,
    /// Of them, those that were only counted, because timing them was too expensive: their time, where it is known, is in
    /// `unseen`.
    pub counted: u64,
    /// Their wall-clock time, in nanoseconds, less what their own probes have put into it.
    pub total_ns: u64,
    /// The same without the traced native calls that they made.
    pub self_ns: u64,
    /// The part of `self_ns` that their threads were not running, if it was measured.
    pub off_cpu_ns: u64,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
    /// Calls that had not returned at the end.
    pub in_flight: u64,
    /// What has been taken off as the probes' part, off `total_ns` and off `self_ns`; 0 in recordings of before that was
    /// known, whose times have it in them.
    pub probe_ns: u64,
    /// How far `total_ns` and `self_ns` may be off because of what probes cost, in nanoseconds, up or down.
    pub probe_error_ns: u64,
    /// Whether the kernel single-steps an instruction for its probe, which costs about ten times as much as others do.
    pub single_stepped: bool,
    /// Whether `self_ns` is an estimate: stubs counted, and what is left of `total_ns` is what stacks leave of it.
    pub self_estimated: bool,
    /// What it did while it was too expensive to watch or to time, estimated: in none of the numbers above. `None` where every
    /// call was timed.
    pub unseen: Option<Unseen>,
    /// Of the time of `unseen`, the part that threads were not running, in nanoseconds; 0 where no look has told.
    pub unseen_off_ns: u64,
    /// When it was first traced, in nanoseconds from the start; 0 for what was from the start on.
    pub traced_after_ns: u64,
    /// For how long its calls were not seen since then, in nanoseconds.
    pub unwatched_ns: u64,
    /// Whether only some of its calls were timed, and the time is an estimate for all of them.
    pub sampled: bool,
    /// Whether its calls were only counted by the end, because timing them was too expensive.
    pub only_counted: bool,
    /// What the timed calls have consumed besides time; `None` where that is not known.
    pub consumed: Option<Box<Consumed>>,
    /// How many bytes each of them has, of each counter that counts bytes and has any; `None` where that is not known.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
}

impl FunctionTotals {
    /// The calls that times are of.
    #[must_use]
    pub fn timed_calls(&self) -> u64 {
        let estimated =
            self.unseen.filter(Unseen::has_time).map_or(0, |unseen| unseen.calls.saturating_add(self.counted));
        self.seen_and_timed().saturating_add(estimated)
    }

    /// Of the calls that have ended, those that were seen and timed.
    #[must_use]
    pub fn seen_and_timed(&self) -> u64 {
        self.calls.saturating_sub(self.untimed).saturating_sub(self.counted)
    }

    /// How long it took to make [`all_calls`](Self::all_calls) in a recording of this length: late starts are left out, and pauses
    /// of which nothing is estimated.
    #[must_use]
    pub fn called_for(&self, elapsed: Duration) -> Duration {
        let unknown_ns = if self.unseen.is_some() { 0 } else { self.unwatched_ns };
        elapsed.saturating_sub(Duration::from_nanos(self.traced_after_ns.saturating_add(unknown_ns)))
    }

    /// The part of `self_ns` that threads were running, in nanoseconds.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.self_ns.saturating_sub(self.off_cpu_ns)
    }

    /// The same of calls that nobody saw, estimated.
    #[must_use]
    pub fn unseen_on_cpu_ns(&self) -> u64 {
        self.unseen.map_or(0, |unseen| unseen.total_ns.saturating_sub(self.unseen_off_ns))
    }

    /// The calls that have ended, and those that nobody saw, estimated.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.calls.saturating_add(self.unseen.map_or(0, |unseen| unseen.calls))
    }

    /// Their time in nanoseconds: of `total_ns`, `self_ns` or both, which nobody can tell of calls that were not seen.
    #[must_use]
    pub fn all_ns(&self, seen_ns: u64) -> u64 {
        seen_ns.saturating_add(self.unseen.map_or(0, |unseen| unseen.total_ns))
    }

    /// How far [`all_ns`](Self::all_ns) may be off, in nanoseconds; `None` where nothing is estimated or no error is known.
    #[must_use]
    pub fn estimate_error_ns(&self) -> Option<u64> {
        Some(self.unseen?.error_ns?.saturating_add(self.probe_error_ns))
    }

    /// How far [`all_calls`](Self::all_calls) may be off, as a share of it; `None` where every call was counted.
    #[must_use]
    pub fn estimate_error(&self) -> Option<f64> {
        Some(self.unseen?.error_calls as f64 / self.all_calls().max(1) as f64)
    }
}

/// What the samples of one function with one stack, of one thread, add up to.
///
/// A sampled call stands for as many as its chance says (1 / chance). These are the sums of what they stand for: without
/// bias, but not exact; whoever renders them scales each function to its exact totals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StackTotals {
    /// Index of the stack.
    pub stack: u32,
    /// Index of the function that was called; `None` for samples by timer outside of traced functions.
    pub function: Option<u32>,
    /// Index of the thread; `None` where threads were not told apart: in what a service keeps, and in recordings of before that
    /// was known.
    pub thread: Option<u32>,
    /// How many samples there are.
    pub samples: u64,
    /// The calls that they stand for; 0 for samples inside calls.
    pub calls: f64,
    /// The wall-clock time that they stand for, nested traced calls included, in nanoseconds.
    pub time_ns: f64,
    /// The same without nested traced calls.
    pub self_ns: f64,
    /// The part of `self_ns` that the threads were not running.
    pub off_cpu_ns: f64,
}

/// The squares of what the sampled calls of a function stand for, added up: how much a sum of them may be off.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// Of calls.
    pub calls: f64,
    /// Of the time of each without nested calls, in nanoseconds.
    pub self_ns: f64,
}

/// One call of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineCall {
    /// The thread, in the host's numbers.
    pub tid: u32,
    /// Index of the function.
    pub function: u32,
    /// When it began, in nanoseconds from the start of the recording; negative if before.
    pub start_ns: i64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// Index of its stack, if it was sampled.
    pub stack: Option<u32>,
    /// What it was made with; `None` where that was not asked for, or is not known.
    pub made_with: Option<Box<CallValues>>,
}

/// The name of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    /// Its number on the host.
    pub tid: u32,
    /// Its name as the kernel has it, 15 bytes at most; its number where the thread ended before anybody could ask.
    pub name: String,
}

/// How many samples there are and what is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Stacks that were taken.
    pub stacks: u64,
    /// Of them, those that reach the first frame of their thread.
    pub complete: u64,
    /// Those that do not, by reason, most frequent first.
    pub cut: Vec<(String, u64)>,
    /// Of all stacks, those with native frames that were found by a frame pointer, or by what lay on top of the stack, because
    /// code has no unwind information: what is outside of it is probable, not certain.
    pub guessed: u64,
    /// Samples that were chosen and not taken, by reason.
    pub lost: Vec<(String, u64)>,
    /// Calls of the timeline for which there was no room.
    pub timeline_lost: u64,
    /// Losses of the exact totals: reason and number, those above zero.
    pub losses: Vec<(String, u64)>,
    /// Selected methods that were not traced, by reason.
    pub skipped: Vec<(String, u64)>,
    /// Calls in flight at the end that are taken to have waited all the time, because the kernel does not tell.
    pub open_unsplit: u64,
    /// Whether some functions were selected later: then `guessed`, what was lost, `skipped` and `open_unsplit` are of the whole
    /// recording.
    pub narrowed: bool,
}

/// What the width of a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Wall-clock time in native methods. What a native method called back is drawn above it and part of its width.
    #[default]
    Time,
    /// Number of calls.
    Calls,
    /// Wall-clock time without nested native calls: those stand on their own, from the native method on that led to them.
    #[serde(rename = "self")]
    SelfTime,
    /// The part of the time that the thread was running: work.
    OnCpu,
    /// The part of the time that the thread was not running: waiting.
    OffCpu,
}

impl Weight {
    /// What recordings show unless somebody asks for something else: work, where it was told from waiting.
    #[must_use]
    pub fn default_of(about: &About) -> Self {
        if about.mode == ProfileMode::Calls && about.off_cpu { Self::OnCpu } else { Self::Time }
    }
}

/// What [`Weighed::total`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Calls.
    Calls,
}

/// Stacks with one number each: what a flame graph draws.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Weighed {
    /// What the numbers count.
    pub unit: Unit,
    /// Each different frame once.
    pub frames: Vec<ProfileFrame>,
    /// Each different stack once.
    pub stacks: Vec<WeighedStack>,
    /// The sum of all values.
    pub total: u64,
}

/// A stack and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeighedStack {
    /// Indices of [`Weighed::frames`], the outermost first.
    pub frames: Vec<u32>,
    /// The value of the innermost frame itself, what lies above it left out.
    pub value: u64,
    /// How many samples it rests on; 0 for what is known without samples.
    pub samples: u64,
}
