//! The messages of a recording, with the numbers of their fields. They mirror [`crate::model::Profile`]; a number that was
//! once used keeps its meaning.

use prost::Message;

/// Some rows of a profile. The rows of all parts together, in their order, are the profile.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Part {
    #[prost(message, optional, tag = "1")]
    pub(super) about: Option<About>,
    #[prost(message, repeated, tag = "2")]
    pub(super) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "3")]
    pub(super) stacks: Vec<Stack>,
    #[prost(message, repeated, tag = "4")]
    pub(super) functions: Vec<Function>,
    #[prost(message, repeated, tag = "5")]
    pub(super) calls: Vec<Totals>,
    #[prost(message, repeated, tag = "6")]
    pub(super) open: Vec<Totals>,
    #[prost(message, repeated, tag = "7")]
    pub(super) inside: Vec<Totals>,
    #[prost(message, repeated, tag = "8")]
    pub(super) timeline: Vec<Call>,
    #[prost(message, repeated, tag = "9")]
    pub(super) threads: Vec<Thread>,
    #[prost(message, optional, tag = "10")]
    pub(super) quality: Option<Quality>,
    /// Only where trees were recorded, and then in the first part.
    #[prost(message, optional, tag = "11")]
    pub(super) trees: Option<Trees>,
    #[prost(message, repeated, tag = "12")]
    pub(super) tree_methods: Vec<TreeMethod>,
    #[prost(message, repeated, tag = "13")]
    pub(super) tree_exceptions: Vec<TreeException>,
    #[prost(message, repeated, tag = "14")]
    pub(super) tree_ways: Vec<TreeWay>,
    #[prost(message, repeated, tag = "15")]
    pub(super) tree_entries: Vec<TreeEntry>,
    #[prost(message, repeated, tag = "16")]
    pub(super) tree_groups: Vec<TreeGroup>,
    #[prost(message, repeated, tag = "17")]
    pub(super) tree_sums: Vec<TreeSum>,
    #[prost(message, repeated, tag = "18")]
    pub(super) invocations: Vec<Invocation>,
    /// The nodes of all invocations, one invocation after the other.
    #[prost(message, repeated, tag = "19")]
    pub(super) tree_nodes: Vec<TreeNode>,
    /// Of functions that are in this part or an earlier one.
    #[prost(message, repeated, tag = "20")]
    pub(super) bytes_per_call: Vec<BytesPerCall>,
    #[prost(message, repeated, tag = "21")]
    pub(super) objects: Vec<CallObject>,
    /// Of calls of the timeline that are in this part or an earlier one, as the objects are that they name.
    #[prost(message, repeated, tag = "22")]
    pub(super) call_values: Vec<CallValues>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct About {
    #[prost(string, tag = "1")]
    pub(super) nprof: String,
    #[prost(int64, tag = "2")]
    pub(super) started_seconds: i64,
    #[prost(int32, tag = "3")]
    pub(super) started_nanos: i32,
    #[prost(uint64, tag = "4")]
    pub(super) elapsed_seconds: u64,
    #[prost(uint32, tag = "5")]
    pub(super) elapsed_nanos: u32,
    #[prost(uint32, tag = "6")]
    pub(super) mode: u32,
    #[prost(uint32, tag = "7")]
    pub(super) pid: u32,
    #[prost(string, tag = "8")]
    pub(super) main: String,
    #[prost(string, tag = "9")]
    pub(super) vm: String,
    #[prost(string, tag = "10")]
    pub(super) kernel: String,
    #[prost(string, tag = "11")]
    pub(super) host: String,
    #[prost(string, repeated, tag = "12")]
    pub(super) patterns: Vec<String>,
    #[prost(uint32, tag = "13")]
    pub(super) max_stacks: u32,
    #[prost(uint64, optional, tag = "14")]
    pub(super) period_ns: Option<u64>,
    #[prost(bool, tag = "15")]
    pub(super) off_cpu: bool,
    #[prost(bool, tag = "16")]
    pub(super) native_stacks: bool,
    /// By their names: which columns there are. Names that this nprof does not know are those of a newer one.
    #[prost(string, repeated, tag = "17")]
    pub(super) collectors: Vec<String>,
    #[prost(string, repeated, tag = "18")]
    pub(super) threads: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Frame {
    #[prost(uint32, tag = "1")]
    pub(super) kind: u32,
    #[prost(string, tag = "2")]
    pub(super) scope: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) signature: String,
    #[prost(uint32, optional, tag = "5")]
    pub(super) line: Option<u32>,
    #[prost(bool, tag = "6")]
    pub(super) hidden: bool,
    #[prost(string, tag = "7")]
    pub(super) library: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stack {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) frames: Vec<u32>,
    /// 0 for a complete stack.
    #[prost(uint32, tag = "2")]
    pub(super) cut: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(string, tag = "1")]
    pub(super) class: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(string, tag = "3")]
    pub(super) signature: String,
    #[prost(uint32, tag = "4")]
    pub(super) others: u32,
    #[prost(string, tag = "5")]
    pub(super) library: String,
    #[prost(uint64, tag = "6")]
    pub(super) calls: u64,
    #[prost(uint64, tag = "7")]
    pub(super) untimed: u64,
    /// As it was measured, with the probes' part, like `self_ns`.
    #[prost(uint64, tag = "8")]
    pub(super) total_ns: u64,
    #[prost(uint64, tag = "9")]
    pub(super) self_ns: u64,
    #[prost(uint64, tag = "10")]
    pub(super) off_cpu_ns: u64,
    #[prost(uint64, tag = "11")]
    pub(super) max_ns: u64,
    #[prost(uint64, tag = "12")]
    pub(super) in_flight: u64,
    /// Recordings of before this was known have none.
    #[prost(uint64, tag = "13")]
    pub(super) probe_ns: u64,
    #[prost(uint64, tag = "14")]
    pub(super) probe_error_ns: u64,
    #[prost(bool, tag = "15")]
    pub(super) single_stepped: bool,
    /// Only of functions that were too expensive to watch.
    #[prost(message, optional, tag = "16")]
    pub(super) unseen: Option<Unseen>,
    #[prost(bool, tag = "17")]
    pub(super) self_estimated: bool,
    #[prost(uint64, tag = "18")]
    pub(super) unseen_off_ns: u64,
    #[prost(uint64, tag = "19")]
    pub(super) counted: u64,
    #[prost(uint64, tag = "20")]
    pub(super) traced_after_ns: u64,
    #[prost(uint64, tag = "21")]
    pub(super) unwatched_ns: u64,
    #[prost(bool, tag = "22")]
    pub(super) sampled: bool,
    #[prost(bool, tag = "23")]
    pub(super) only_counted: bool,
    /// What calls have consumed without nested ones: one number for each of [`super::numbers::COUNTERS`]; empty where it is not
    /// known.
    #[prost(uint64, repeated, tag = "24")]
    pub(super) consumed_own: Vec<u64>,
    /// The same with them.
    #[prost(uint64, repeated, tag = "25")]
    pub(super) consumed_total: Vec<u64>,
    /// Whether it is known how many bytes each call has consumed: those that are in no [`BytesPerCall`] have none. Recordings of before
    /// that was known say no.
    #[prost(bool, tag = "26")]
    pub(super) knows_bytes: bool,
}

/// The calls of a function by the bytes that each has consumed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BytesPerCall {
    #[prost(uint32, tag = "1")]
    pub(super) function: u32,
    /// One of [`super::numbers::COUNTERS`].
    #[prost(uint32, tag = "2")]
    pub(super) counter: u32,
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    /// The buckets that have calls, in rising order.
    #[prost(uint32, repeated, tag = "4")]
    pub(super) buckets: Vec<u32>,
    /// The calls of each of them.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) calls: Vec<u64>,
}

/// What nobody saw, estimated.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Unseen {
    #[prost(uint64, tag = "1")]
    pub(super) calls: u64,
    #[prost(uint64, tag = "2")]
    pub(super) error_calls: u64,
    #[prost(uint64, tag = "3")]
    pub(super) total_ns: u64,
    /// Recordings of before this was known have none.
    #[prost(uint64, optional, tag = "4")]
    pub(super) error_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Totals {
    #[prost(uint32, tag = "1")]
    pub(super) stack: u32,
    #[prost(uint32, optional, tag = "2")]
    pub(super) function: Option<u32>,
    #[prost(uint64, tag = "3")]
    pub(super) samples: u64,
    #[prost(double, tag = "4")]
    pub(super) calls: f64,
    #[prost(double, tag = "5")]
    pub(super) time_ns: f64,
    #[prost(double, tag = "6")]
    pub(super) self_ns: f64,
    #[prost(double, tag = "7")]
    pub(super) off_cpu_ns: f64,
    /// Recordings of before this was known have none.
    #[prost(uint32, optional, tag = "8")]
    pub(super) thread: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Call {
    #[prost(uint32, tag = "1")]
    pub(super) tid: u32,
    #[prost(uint32, tag = "2")]
    pub(super) function: u32,
    #[prost(sint64, tag = "3")]
    pub(super) start_ns: i64,
    #[prost(uint64, tag = "4")]
    pub(super) duration_ns: u64,
    #[prost(uint32, optional, tag = "5")]
    pub(super) stack: Option<u32>,
}

/// What a call of the timeline was made with.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CallValues {
    #[prost(uint32, tag = "1")]
    pub(super) call: u32,
    #[prost(uint32, optional, tag = "2")]
    pub(super) this: Option<u32>,
    /// What each value is: [`super::numbers::VALUES`] or, behind these, [`super::numbers::UNKNOWNS`].
    #[prost(uint32, repeated, tag = "3")]
    pub(super) kinds: Vec<u32>,
    /// Of numbers the bits, of objects the index, of files both, the bits first; nothing of others.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) words: Vec<u64>,
}

/// An object or a file that calls were made with.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CallObject {
    #[prost(string, optional, tag = "1")]
    pub(super) class: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
    #[prost(sint32, optional, tag = "3")]
    pub(super) fd: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub(super) file: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(uint32, tag = "1")]
    pub(super) tid: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Quality {
    #[prost(uint64, tag = "1")]
    pub(super) stacks: u64,
    #[prost(uint64, tag = "2")]
    pub(super) complete: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) cut: Vec<Count>,
    #[prost(message, repeated, tag = "4")]
    pub(super) lost: Vec<Count>,
    #[prost(uint64, tag = "5")]
    pub(super) timeline_lost: u64,
    #[prost(message, repeated, tag = "6")]
    pub(super) losses: Vec<Count>,
    #[prost(message, repeated, tag = "7")]
    pub(super) skipped: Vec<Count>,
    /// Recordings of before this was counted have none.
    #[prost(uint64, tag = "8")]
    pub(super) guessed: u64,
    #[prost(uint64, tag = "9")]
    pub(super) open_unsplit: u64,
    #[prost(bool, tag = "10")]
    pub(super) narrowed: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Count {
    #[prost(string, tag = "1")]
    pub(super) reason: String,
    #[prost(uint64, tag = "2")]
    pub(super) number: u64,
}

/// What all trees have in common. Mirrors [`crate::model::RecordedTrees`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct Trees {
    #[prost(int64, tag = "1")]
    pub(super) began_seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) began_nanos: i32,
    #[prost(uint64, tag = "3")]
    pub(super) began_monotonic_ns: u64,
    #[prost(uint64, tag = "4")]
    pub(super) elapsed_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(super) seen: u64,
    #[prost(uint64, tag = "6")]
    pub(super) ways_left_out: u64,
    #[prost(uint32, repeated, tag = "7")]
    pub(super) silenced: Vec<u32>,
    #[prost(uint64, tag = "8")]
    pub(super) begun_before: u64,
    #[prost(uint64, tag = "9")]
    pub(super) still_inside: u64,
    #[prost(uint64, tag = "10")]
    pub(super) died_inside: u64,
    #[prost(uint64, tag = "11")]
    pub(super) lost_beginnings: u64,
    #[prost(uint64, tag = "12")]
    pub(super) crowded: u64,
    #[prost(uint64, tag = "13")]
    pub(super) unknown: u64,
    #[prost(uint64, tag = "14")]
    pub(super) lost_events: u64,
    #[prost(uint64, tag = "15")]
    pub(super) lost_invocations: u64,
    #[prost(uint64, tag = "16")]
    pub(super) without_ring: u64,
    #[prost(uint64, tag = "17")]
    pub(super) lost_waits: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TreeMethod {
    #[prost(string, tag = "1")]
    pub(super) class: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(string, tag = "3")]
    pub(super) signature: String,
    #[prost(uint32, tag = "4")]
    pub(super) kind: u32,
    #[prost(bool, tag = "5")]
    pub(super) is_entry: bool,
    #[prost(uint32, tag = "6")]
    pub(super) depth: u32,
    /// For each caller its number, how many lines there are, and these.
    #[prost(uint32, repeated, tag = "7")]
    pub(super) callers: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TreeException {
    #[prost(uint32, tag = "1")]
    pub(super) number: u32,
    #[prost(string, tag = "2")]
    pub(super) class: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TreeWay {
    #[prost(uint32, optional, tag = "1")]
    pub(super) before: Option<u32>,
    #[prost(uint32, tag = "2")]
    pub(super) method: u32,
}

/// An entry method.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TreeEntry {
    #[prost(uint32, tag = "1")]
    pub(super) method: u32,
    #[prost(uint64, tag = "2")]
    pub(super) incomplete: u64,
    #[prost(uint64, tag = "3")]
    pub(super) failed: u64,
    #[prost(uint64, tag = "4")]
    pub(super) endless: u64,
    #[prost(message, optional, tag = "5")]
    pub(super) slowest: Option<Slowest>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Slowest {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(uint64, tag = "2")]
    pub(super) total_ns: u64,
    #[prost(bool, tag = "3")]
    pub(super) is_virtual: bool,
    #[prost(uint64, tag = "4")]
    pub(super) thread: u64,
    #[prost(uint64, tag = "5")]
    pub(super) started_ns: u64,
}

/// Invocations of an entry method that took about the same time.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TreeGroup {
    #[prost(uint32, tag = "1")]
    pub(super) entry: u32,
    #[prost(uint32, tag = "2")]
    pub(super) bucket: u32,
    #[prost(uint64, tag = "3")]
    pub(super) invocations: u64,
    #[prost(uint64, tag = "4")]
    pub(super) total_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(super) min_ns: u64,
    #[prost(uint64, tag = "6")]
    pub(super) max_ns: u64,
    #[prost(uint64, tag = "7")]
    pub(super) off_ns: u64,
    #[prost(uint64, tag = "8")]
    pub(super) unknown_off: u64,
}

/// What those of one bucket did on one way.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TreeSum {
    #[prost(uint32, tag = "1")]
    pub(super) way: u32,
    #[prost(uint32, tag = "2")]
    pub(super) bucket: u32,
    #[prost(uint64, tag = "3")]
    pub(super) calls: u64,
    #[prost(uint64, tag = "4")]
    pub(super) self_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(super) off_ns: u64,
}

/// Set in the number of a thread that is that in its container.
pub(super) const CONTAINED: u64 = 1 << 32;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Invocation {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(bool, tag = "2")]
    pub(super) is_virtual: bool,
    #[prost(uint64, tag = "3")]
    pub(super) thread: u64,
    #[prost(string, optional, tag = "4")]
    pub(super) thread_name: Option<String>,
    #[prost(uint64, tag = "5")]
    pub(super) started_ns: u64,
    #[prost(bool, tag = "6")]
    pub(super) knows_off: bool,
    /// How many of the nodes are its.
    #[prost(uint32, tag = "7")]
    pub(super) nodes: u32,
    #[prost(uint64, tag = "8")]
    pub(super) lost: u64,
    #[prost(uint64, tag = "9")]
    pub(super) lost_calls: u64,
    #[prost(uint64, tag = "10")]
    pub(super) unbegun: u64,
    #[prost(uint64, tag = "11")]
    pub(super) unended: u64,
    #[prost(uint64, tag = "12")]
    pub(super) cut: u64,
    #[prost(bool, tag = "13")]
    pub(super) is_after_loss: bool,
    #[prost(message, optional, tag = "14")]
    pub(super) submitted_by: Option<Submission>,
    /// Of each task that it has made: the place of its node, its number, how many invocations came of it, and their numbers.
    #[prost(uint64, repeated, tag = "15")]
    pub(super) handed_over: Vec<u64>,
    /// The names of what was collected.
    #[prost(string, repeated, tag = "16")]
    pub(super) collectors: Vec<String>,
    #[prost(bool, tag = "17")]
    pub(super) knows_used: bool,
}

/// Who has made the task that an invocation is part of.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Submission {
    #[prost(uint64, tag = "1")]
    pub(super) invocation: u64,
    #[prost(bool, tag = "2")]
    pub(super) is_virtual: bool,
    #[prost(uint64, tag = "3")]
    pub(super) thread: u64,
    #[prost(uint32, tag = "4")]
    pub(super) method: u32,
    #[prost(uint64, tag = "5")]
    pub(super) at_ns: u64,
    #[prost(bool, tag = "6")]
    pub(super) is_thread: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TreeNode {
    /// How many nodes before it its caller is; 0 for an entry method.
    #[prost(uint32, tag = "1")]
    pub(super) caller_before: u32,
    #[prost(uint32, tag = "2")]
    pub(super) method: u32,
    #[prost(uint64, tag = "3")]
    pub(super) calls: u64,
    #[prost(uint64, tag = "4")]
    pub(super) unended: u64,
    #[prost(uint64, tag = "5")]
    pub(super) total_ns: u64,
    #[prost(uint64, tag = "6")]
    pub(super) min_ns: u64,
    #[prost(uint64, tag = "7")]
    pub(super) max_ns: u64,
    #[prost(uint64, tag = "8")]
    pub(super) nested_ns: u64,
    #[prost(uint64, tag = "9")]
    pub(super) off_ns: u64,
    /// For each class its number, and how many calls were left by it, threw it and caught it.
    #[prost(uint64, repeated, tag = "10")]
    pub(super) exceptions: Vec<u64>,
    /// The number of each counter that has grown, and by how much.
    #[prost(uint64, repeated, tag = "11")]
    pub(super) used: Vec<u64>,
}
