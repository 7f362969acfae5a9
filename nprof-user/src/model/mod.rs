//! The plain values that flow from stage to stage. They hold no handle, do no I/O and depend on no stage.

mod allocator;
mod arguments;
mod bytes_per_call;
mod call_values;
mod collector;
pub mod descriptor;
mod diagnosis;
pub mod duration;
mod finding;
mod histogram;
mod id_cache;
mod invocation;
pub mod jni;
mod jni_resource;
mod jvm;
mod labels;
mod locker;
mod plan;
mod price;
mod profile;
mod pushes;
mod reach;
mod sample;
mod snapshot;
mod status;
mod thread_part;
mod tree;
mod tree_totals;
mod user_program;

pub use allocator::AllocatorSite;
pub use arguments::{
    ArgsWanted, Argument, ArgumentObject, ArgumentPlace, ArgumentValue, CallArguments, UnknownArgument, argument_kinds,
    argument_places, is_reference,
};
pub use bytes_per_call::BytesPerCall;
pub use call_values::{CallObject, CallValue, CallValues, own_bits};
pub use collector::{COLLECTORS, Collector, Collectors, Column, CountedIn};
pub use diagnosis::{Certainty, CostKind, Diagnosis, Fault, FaultCost};
pub use finding::{Finding, Verdict};
pub use histogram::Histogram;
pub use id_cache::{ID_FUNCTIONS, IdCacheReport, IdFunctionSum, LookUps};
pub use invocation::{
    Difference, EntrySummary, HandOver, Invocation, InvocationGroup, Missing, NodeException, NodeUse, PathDifference,
    PathSum, SlowestInvocation, Submission, TreeCall, TreeNode, TreeSummary, Unfinished,
};
pub use jni::{
    BuffersMade, CollectionWaits, CollectionsWait, CriticalSections, Estimate, JavaName, JniCallPath, JniCallback,
    JniCaller, JniCallers, JniExceptions, JniFamily, JniHeldGroup, JniHeldSnapshot, JniLocalsSnapshot, JniSnapshot,
    JniSum, JniUse, LocalsBeyond, LocalsKnown,
};
pub use jni_resource::{JniReferences, JniResource, Resources};
pub use jvm::{Jvm, JvmKind, StartTime};
pub use labels::JvmLabels;
pub use locker::LockerSites;
pub use nprof_hotspot::model::{
    CutReason, ElfAddr, FileId, FileOffset, Inventory, Library, Mapping, Method, NativeCode, Pid, SharedStr, VirtAddr,
};
pub use plan::{Bound, LibraryId, Plan, PlannedMethod, Probe, ProbeCost, Site, SkipReason, Skipped};
pub use price::{Price, Prices, StubPrice};
pub use profile::{
    About, FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileMode, ProfileStack, Quality, Spread,
    StackTotals, ThreadName, TimelineCall, Unit, Weighed, WeighedStack, Weight,
};
pub use pushes::{PushOutcome, Pushes};
pub use reach::Reach;
pub use sample::Sample;
pub use snapshot::{
    Exemplar, JniThrownSum, JniTotals, Losses, MeanTime, MethodSnapshot, OpenTime, Settled, SlowCall, SlowCalls,
    SlowWait, Snapshot, States, Tier, Traced, Tracing, Unseen,
};
pub use status::{CallCost, FunctionStatus, JvmStatus, ProfilesStatus, Status};
pub use thread_part::ThreadPart;
pub use tree::{
    EndedCall, JniStep, LeftOut, LeftOutReason, TreeCaller, TreeEvent, TreeEventKind, TreeKind, TreeMethod, TreePlan,
    TreeThread,
};
pub use tree_totals::{
    AlikeTotals, EntryComparison, EntryTotals, KeptInvocation, RecordedTrees, TreeClock, TreeComparison, TreeLosses,
    TreeTotals, TreeWay,
};
pub use user_program::{CallEnd, ProgramValues};
