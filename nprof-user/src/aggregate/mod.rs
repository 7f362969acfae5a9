//! From samples to what is reported.

mod by_thread;
mod jni;
mod jni_by_stubs;
mod jni_locals;
mod jni_totals;
mod losses;
mod method;
mod narrow;
mod of_threads;
mod per_call;
pub mod quantile;
mod sampled;
mod since;
#[cfg(test)]
pub(crate) mod testing;
mod tiers;
mod tree;
mod weigh;
mod windows;

pub use jni::{CalledSum, HeldThing, JniPairs, ThrownSum, jni};
pub use jni_by_stubs::{Recorded, jni_by_stubs};
pub use jni_totals::{JniRows, jni_totals};
pub use losses::merge_losses;
pub use narrow::narrow;
pub use of_threads::{NoThreads, narrow_to_threads, tells_threads};
pub use sampled::Untimed;
pub use since::Since;
pub use tiers::{ProbeSample, StubSample, id_of, record_of, rows};
pub use tree::{
    NestedCalls, SlowestTrees, TreeSums, Trees, compare_trees, summarize_trees, trees_by_time, weigh_comparison,
    weigh_trees, weigh_trees_all,
};
pub use weigh::{Detail, NotRecorded, open_ns, thread_mark, weigh, weigh_all};
pub use windows::{WindowKey, WindowLimits, Windows, WindowsOf, WindowsTally};
