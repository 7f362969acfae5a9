//! What happens to the JVMs of a host.

use std::sync::Arc;

use super::{Error, TracedJvm};
use crate::model::{Jvm, Snapshot};

/// Something that the user of a [`Host`](super::Host) should know of.
#[derive(Debug)]
pub enum Event {
    /// A JVM is traced from now on.
    Joined(Arc<TracedJvm>),
    /// A JVM is not traced any more: these are its last results. They cannot be read after the next call.
    Ended(Arc<TracedJvm>, Box<Snapshot>),
    /// A JVM is not traced.
    Untraced(Box<Jvm>, Error),
}
