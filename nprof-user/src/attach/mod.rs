//! Plan in, attached probes out. What is attached lives as long as the [`Session`] and not longer: the kernel takes
//! everything away when its descriptors are closed, however nprof ends.

mod by_record;
mod counters;
mod engine;
mod error;
mod events;
mod features;
mod feeds;
mod jni;
mod linker;
mod links;
mod loss_log;
mod object;
mod reach;
mod relocate;
mod row_maps;
mod rows;
mod session;
mod sharing;
mod sites;
mod slow;
mod switches;
mod target;
mod user_programs;
mod vm_table;

pub use by_record::{ByteTable, ThreadTable};
pub use engine::Engine;
pub use error::{Error, in_full};
pub use events::ExecEvents;
pub use features::probe_uprobe_multi;
pub(crate) use feeds::fixed_point;
pub use feeds::{Collect, Feeds, PendingPlaces, StackRecord, Taken};
pub use jni::{JniRead, JniTable};
pub use loss_log::{Heard, LossLog, Lost};
pub use reach::reach;
pub use row_maps::{RowMap, RowMaps};
pub use session::{Attached, Session};
pub use sharing::{Neighbours, Terms};
pub use slow::{SlowCount, SlowTable};
pub use switches::{Seen, Switches};
pub use target::Target;
pub use user_programs::{ProgramError, ProgramFiles, Runs, UserPrograms, WantedProgram};
pub use vm_table::VmTable;
