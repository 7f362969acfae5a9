//! The plain values that flow from stage to stage. They hold no handle, do no I/O and depend on no stage.

pub mod descriptor;
mod finding;
mod jvm;
mod labels;
mod plan;
mod price;
mod profile;
mod reach;
mod sample;
mod snapshot;
mod status;

pub use finding::{Finding, Verdict};
pub use jvm::{Jvm, JvmKind, StartTime};
pub use labels::JvmLabels;
pub use nprof_hotspot::model::{
    CutReason, ElfAddr, FileId, FileOffset, Inventory, Library, Mapping, Method, NativeCode, Pid, VirtAddr,
};
pub use plan::{Bound, LibraryId, Plan, PlannedMethod, Probe, ProbeCost, Site, SkipReason, Skipped};
pub use price::{Price, Prices};
pub use profile::{
    About, FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileMode, ProfileStack, Quality, StackTotals,
    ThreadName, TimelineCall, Unit, Weighed, WeighedStack, Weight,
};
pub use reach::Reach;
pub use sample::Sample;
pub use snapshot::{
    Histogram, Losses, MeanTime, MethodSnapshot, Settled, SlowCall, SlowCalls, Snapshot, States, Tier, Traced, Tracing,
    Unseen,
};
pub use status::{CallCost, FunctionStatus, JvmStatus, Status};
