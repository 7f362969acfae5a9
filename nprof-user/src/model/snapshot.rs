//! What was measured, at one moment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nprof_common::{Consumed, Counters};
use serde::{Deserialize, Serialize};

use super::{
    BytesPerCall, CallArguments, Collectors, Histogram, JniReferences, Jvm, Method, PlannedMethod, Price, Prices,
    ProbeCost, ProgramValues, SharedStr, SkipReason, Skipped, ThreadPart,
};

/// Who counted calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Probes of the kernel.
    Kernel,
    /// Stubs in the target.
    Stub,
    /// The one for some time, the other for some. Each call was counted by one of them.
    Both,
}

impl Tier {
    /// The word for documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Stub => "stub",
            Self::Both => "kernel+stub",
        }
    }
}

/// What was measured of one native function, or of one method where stubs told the methods of a function apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodSnapshot {
    /// The dense index of the function; of a row that only stubs have counted, a number that no function has.
    pub index: u32,
    /// Who counted what follows.
    pub tier: Tier,
    /// The methods bound to the function; never empty. More than one: what follows is their sum.
    pub methods: Vec<PlannedMethod>,
    /// The library's file name.
    pub library: String,
    /// What a hit costs at the site of the probe; `None` where there was none.
    pub cost: Option<ProbeCost>,
    /// When its probe was attached, from the start of the measurement on; zero for those attached at the start.
    pub traced_after: Duration,
    /// Whether its calls are timed, counted, or not seen at all. If they were unwatched for a time, the numbers are
    /// less than what the JVM did.
    pub traced: Traced,
    /// Calls that have ended, by a return or otherwise, and those that were only counted when they began.
    pub calls: u64,
    /// Of `calls`, those that were only counted: they are in none of the times. All of them with `--count-only`.
    pub counted: u64,
    /// Calls that have begun and not ended. Always 0 with `--count-only`.
    pub in_flight: u64,
    /// How long the calls in flight have lasted; `None` where that is not known: stubs have begun some, or nobody has looked.
    pub open: Option<OpenTime>,
    /// Of `calls`, those whose end was not seen and whose time is therefore in none of the fields below
    /// (left by `longjmp`, nested too deep). Each is also a loss.
    pub untimed: u64,
    /// Wall-clock time of the timed calls, in nanoseconds, less what their own probes have put into it.
    pub total_ns: u64,
    /// The time of the calls that were only counted, estimated from those that were timed: one of several
    /// (`--time-every`, `--max-overhead` with stubs), or those of short looks (`--max-overhead` with probes). `None` where nothing is estimated.
    pub estimated_ns: Option<u64>,
    /// How far that may be off, where looks have timed calls.
    pub estimated_error_ns: Option<u64>,
    /// What it did while nobody watched, estimated; `None` where it was watched all the time, or is never looked at.
    pub unseen: Option<Unseen>,
    /// `total_ns` less the time spent in other calls that they made and that were traced; `None` where stubs counted that do not
    /// know who calls whom, because nothing is collected.
    pub self_ns: Option<u64>,
    /// What has been taken off as the part of probes and stubs, off `total_ns` and off `self_ns`: with it they are what was measured.
    pub probe_ns: u64,
    /// How far `total_ns` and `self_ns` may be off because of what probes and stubs cost, in nanoseconds, up or down.
    pub probe_error_ns: u64,
    /// What the probes of one of its calls cost, or the stub where only stubs counted.
    pub price: Price,
    /// What its probes and stubs have cost the JVM's threads at all its calls, in nanoseconds; `None` where that is not known.
    pub cost_ns: Option<u64>,
    /// The part of `self_ns` that the threads were not running; `None` where it is not measured.
    pub off_cpu_ns: Option<u64>,
    /// The same of the time that is estimated; `None` also where nothing is known of it.
    pub estimated_off_ns: Option<u64>,
    /// What the timed calls have consumed besides time; `None` where that is not collected.
    pub consumed: Option<Box<Consumed>>,
    /// How many bytes each of them moved, of each number of bytes of which a call moved any; `None` where that is not collected, or stubs
    /// have timed calls.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
    /// What each thread has of this, by thread number; `None` where threads are not told apart. What it lacks is not known by thread.
    pub threads: Option<Vec<ThreadPart>>,
    /// The longest timed call, in nanoseconds, less what its probes have put into it.
    pub max_ns: u64,
    /// The timed calls by duration as it was measured: the part of probes is in it. Its counts add up to `calls - counted - untimed`.
    pub histogram: Histogram,
}

/// The calls of a function that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTime {
    /// How many there are.
    pub calls: u64,
    /// How long they have lasted until now, or until the end, without traced calls that they made, in nanoseconds, as measured.
    pub self_ns: u64,
    /// The part of that in which their threads did not run; `None` where it is not known of each.
    pub off_cpu_ns: Option<u64>,
}

impl Default for OpenTime {
    fn default() -> Self {
        Self { calls: 0, self_ns: 0, off_cpu_ns: Some(0) }
    }
}

impl OpenTime {
    /// The part in which their threads ran.
    #[must_use]
    pub fn on_cpu_ns(&self) -> Option<u64> {
        Some(self.self_ns.saturating_sub(self.off_cpu_ns?))
    }
}

/// What a function did while it was too expensive to watch, estimated from short looks at it (`--max-overhead`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unseen {
    /// Calls that nobody counted.
    pub calls: u64,
    /// How far `calls` may be off: one standard deviation of chance, and all that is not known of a probe's cost.
    pub error_calls: u64,
    /// Their time in nanoseconds; 0 where no look has timed a call.
    pub total_ns: u64,
    /// How far `total_ns` may be off: as `calls` may, and as the calls that were timed may differ from others. `None` where no look
    /// has timed a call, and in recordings of before that was known.
    pub error_ns: Option<u64>,
    /// Of these, what no later look takes back: up to the last one.
    pub settled: Settled,
}

/// The mean time of calls that short looks have timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanTime {
    /// In nanoseconds, without what probes put into it.
    pub ns: f64,
    /// How far that may be off: one standard deviation of chance, and what is not known of the probes' part.
    pub error_ns: f64,
}

/// The part of an estimate that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// The calls.
    pub calls: u64,
    /// Their time in nanoseconds.
    pub total_ns: u64,
}

impl Unseen {
    /// Whether a look has timed a call.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.total_ns > 0 || self.error_ns.is_some()
    }
}

impl MethodSnapshot {
    /// The calls that were counted, and those that are estimated of the time in which nobody watched.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.calls.saturating_add(self.unseen.map_or(0, |unseen| unseen.calls))
    }
}

/// A call that took longer than the user wants to hear nothing of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCall {
    /// When it ended.
    pub ended: Timestamp,
    /// The same in nanoseconds of the kernel's monotonic clock: exact among calls.
    pub ended_ns: u64,
    /// The method.
    pub method: Method,
    /// How long it took, in nanoseconds.
    pub time_ns: u64,
    /// Of this, how long its thread was not running; `None` where that is not known: stubs do not measure it.
    pub off_cpu_ns: Option<u64>,
    /// What it consumed besides time, with the calls that it made; `None` where that is not collected, and where a stub timed it.
    pub consumed: Option<Box<Counters>>,
    /// What it was made with; the outer `None` where nobody asks for that, the inner one where it is not known which method's the call
    /// is.
    pub arguments: Option<Option<Box<CallArguments>>>,
    /// The longest time that its thread was not running; `None` if there was none worth a look, or it is not known.
    pub wait: Option<SlowWait>,
    /// Whether a stub has timed it.
    pub by_stub: bool,
    /// The thread, on the host.
    pub tid: u32,
    /// The thread's name; empty if it is not known.
    pub thread: String,
    /// Who called, the innermost first: class, method and line. Empty if it is not known.
    pub callers: Vec<String>,
}

/// The slow calls of a JVM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlowCalls {
    /// From which time on a call is slow, in nanoseconds; `None`: only calls of some methods are.
    pub threshold_ns: Option<u64>,
    /// The same of methods that patterns select, the last one that counts being the last; `None`: none of their calls is.
    pub by_pattern: Vec<(String, Option<u64>)>,
    /// How many there were.
    pub total: u64,
    /// Of these, those that came too fast to be looked at: they may be slower than the slowest that are known.
    pub unread: u64,
    /// The slowest of them, the slowest first.
    pub slowest: Vec<SlowCall>,
    /// Single calls for whoever scrapes; see [`Exemplar`].
    pub exemplars: Vec<Exemplar>,
}

/// A slow call that stands for those of its method that took about as long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemplar {
    /// The method.
    pub method: Method,
    /// How long it took, in nanoseconds, as it was measured: like the buckets of histograms.
    pub time_ns: u64,
    /// When it ended.
    pub ended: Timestamp,
    /// The thread's name; empty if it is not known.
    pub thread: String,
    /// Who called: class, method and line. Empty if it is not known.
    pub caller: String,
}

/// A time that a thread was not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowWait {
    /// How long it was, in nanoseconds.
    pub ns: u64,
    /// The functions of the kernel where the thread left the CPU, the innermost first.
    pub frames: Vec<String>,
}

/// What is done at a function's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracing {
    /// There is no probe: calls cost nothing and are not seen.
    Detached,
    /// Nothing, because the user wants that. There may be a probe, which does nothing.
    Off,
    /// Calls are counted when they return, and how they ended where that is collected: there is no probe on the entry. With a stub they
    /// are counted when they begin.
    Returned,
    /// Calls are counted when they begin.
    Counted,
    /// Calls are counted, and some of them timed: one of several.
    Sampled,
    /// Calls are counted and timed.
    Timed,
}

impl Tracing {
    /// Every state.
    pub const ALL: [Self; 6] = [Self::Detached, Self::Off, Self::Returned, Self::Counted, Self::Sampled, Self::Timed];

    /// What users can order, with the word for it.
    pub const ORDERS: [(&str, Self); 4] =
        [("off", Self::Off), ("exit", Self::Returned), ("count", Self::Counted), ("time", Self::Timed)];

    /// The word for JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Off => "off",
            Self::Returned => "returned",
            Self::Counted => "counted",
            Self::Sampled => "sampled",
            Self::Timed => "timed",
        }
    }

    /// Whether calls are seen.
    #[must_use]
    pub fn is_watched(self) -> bool {
        self >= Self::Returned
    }
}

impl fmt::Display for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a function is traced at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// What is done at its calls.
    pub tracing: Tracing,
    /// What the user wants to be done.
    pub wanted: Tracing,
    /// For how long its calls have not been seen since it was first traced.
    pub unwatched: Duration,
}

impl Traced {
    /// As it was asked for, from the start on.
    #[must_use]
    pub fn as_wanted(wanted: Tracing) -> Self {
        Self { tracing: wanted, wanted, unwatched: Duration::ZERO }
    }

    /// Whether it gets less than the user asked for. A function that is to be off misses nothing.
    #[must_use]
    pub fn is_demoted(&self) -> bool {
        self.tracing < self.wanted && self.wanted.is_watched()
    }
}

/// How many functions of a JVM are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct States {
    /// By [`Tracing`], in the order of [`Tracing::ALL`].
    pub functions: [usize; Tracing::ALL.len()],
    /// Those that are in a lesser state than was asked for.
    pub demoted: usize,
}

impl States {
    /// Takes in a function.
    pub fn add(&mut self, traced: Traced) {
        self.functions[traced.tracing as usize] += 1;
        self.demoted += usize::from(traced.is_demoted());
    }
}

/// Events that were not measured as they should have been, by reason. All are zero in a clean run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// Reason (from `nprof_common::Loss`) and number; every reason is listed, zero ones too.
    pub counts: Vec<(&'static str, u64)>,
}

impl Losses {
    /// The sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }
}

/// Everything measured of one JVM from the start to now.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Wall-clock time at the start of the measurement.
    pub started: Timestamp,
    /// Time since then.
    pub elapsed: Duration,
    /// The JVM.
    pub jvm: Jvm,
    /// Whether the JVM has ended. A trace of one JVM leaves it open: its end ends the trace.
    pub ended: bool,
    /// Whether calls were timed, or only counted (`--count-only`).
    pub timed: bool,
    /// Functions with calls that ended or are in flight.
    pub methods: Vec<MethodSnapshot>,
    /// How many functions are traced, those without calls included.
    pub traced: usize,
    /// In which state these are.
    pub states: States,
    /// The estimated time that tracing has cost the JVM's threads, if the cost of a probe is known.
    pub cost: Option<Duration>,
    /// The CPU time that the JVM has used while that was estimated, by all its threads.
    pub cpu: Option<Duration>,
    /// What tracing has cost lately, as a share of the JVM's own CPU time.
    pub cost_share: Option<f64>,
    /// What probes cost, at each kind of site.
    pub prices: Prices,
    /// What is collected of calls besides counts and times.
    pub collectors: Collectors,
    /// The calls that were slow, if these are looked for.
    pub slow: Option<SlowCalls>,
    /// What native code has asked of the VM, where JNI functions are traced beside native methods.
    pub jni: Option<Box<JniTotals>>,
    /// What programs of the user's have counted, an entry for each object that shows something.
    pub programs: Vec<ProgramValues>,
    /// Selected methods that are not traced.
    pub skipped: Arc<[Skipped]>,
    /// Whether the JVM has linked native functions by `java.lang.foreign`: calls of those are no native methods' and are
    /// not seen.
    pub downcalls: bool,
    /// What went wrong in the measurement.
    pub losses: Losses,
}

/// What native code has asked of one VM, in sums: for whoever keeps them for long, as metrics do. Times are as they were measured: the probes' part is in them.
#[derive(Debug, Clone, PartialEq)]
pub struct JniTotals {
    /// The JNI functions that were called, each as a row like a method's, without the histogram.
    pub functions: Vec<MethodSnapshot>,
    /// In which state all are that are traced.
    pub states: States,
    /// How many are not: no probe sees them, or the kernel has refused it.
    pub unseen: usize,
    /// Of functions that look something up, by name: how often that had been found before, and the time in nanoseconds that threads
    /// ran in these calls. Functions of which it is not told are left out.
    pub redundant: Vec<(SharedStr, [u64; 2])>,
    /// What was made and let go: what the VM lets go by itself is left out.
    pub references: Vec<JniReferences>,
    /// How many critical sections have ended, and how long they lasted together, in nanoseconds.
    pub critical: [u64; 2],
    /// Exceptions by native method and class, in no order.
    pub thrown: Vec<JniThrownSum>,
}

/// Exceptions of one class that a native method has left or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniThrownSum {
    /// Class and name of the native method; `None` if none was traced that they are of.
    pub method: Option<(SharedStr, SharedStr)>,
    /// The class of the exceptions as Java names it; `None` if that is not certain.
    pub class: Option<String>,
    /// How many were pending when the method returned.
    pub pending: u64,
    /// How many were cleared before.
    pub cleared: u64,
}

impl MethodSnapshot {
    /// The calls that the times are of: those that have ended, were not only counted, and whose end was seen.
    #[must_use]
    pub fn timed_calls(&self) -> u64 {
        self.calls.saturating_sub(self.counted).saturating_sub(self.untimed)
    }
}

impl Snapshot {
    /// The skipped methods of one reason.
    pub fn skipped_for(&self, reason: SkipReason) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(move |s| s.reason == reason)
    }
}
