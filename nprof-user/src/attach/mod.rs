//! Plan in, attached probes out. What is attached lives as long as the [`Session`] and not longer: the kernel takes
//! everything away when its descriptors are closed, however nprof ends.

mod engine;
mod error;
mod events;
mod features;
mod feeds;
mod linker;
mod links;
mod loss_log;
mod object;
mod reach;
mod session;
mod sites;
mod switches;
mod target;

pub use engine::Engine;
pub use error::{Error, in_full};
pub use events::ExecEvents;
pub use features::probe_uprobe_multi;
pub(crate) use feeds::fixed_point;
pub use feeds::{Collect, Feeds, StackRecord, Taken};
pub use loss_log::{Heard, LossLog, Lost};
pub use reach::reach;
pub use session::{Attached, Session};
pub use switches::{Seen, Switches};
pub use target::Target;
