//! The inventory: every native method of a running HotSpot JVM and what it is bound to, from the VM's own tables.
//!
//! HotSpot describes its data structures to debuggers in tables that libjvm exports. This stage finds them
//! (`exports`, `tables`), looks up once what it needs (`layout`), walks loaders and classes (`walk`), picks the native
//! methods (`natives`) and tells the bound ones from the others (`stub`). `refresh` does it again for what has changed:
//! it remembers what there was (`known`, `loaders`) and reads what that holds now (`watch`).
//!
//! Nothing is stopped, written or asked of the VM: it changes while it is read. So every read can fail, every value is
//! checked against another one before it is used, all loops have a limit, and what does not hold is read again later.

mod about;
mod aliases;
mod coalesce;
mod code_room;
mod error;
mod exports;
mod flags;
mod known;
mod layout;
mod loaders;
mod memory;
mod mirrors;
mod names;
mod natives;
mod pages;
mod refresh;
mod share;
mod stub;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod walk;
mod watch;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use about::Version;
pub use code_room::{CodeRoom, code_room};
pub use error::{Error, TableEntry};
pub use flags::{Flag, flags};
pub use memory::{Batch, MemoryError, RemoteMemory};
pub use mirrors::{MirrorOffsets, mirrors};
pub use names::{class_name, decode};

use crate::model::{Library, VirtAddr};
use about::About;
pub(crate) use exports::Exports;
pub(crate) use flags::{FlagLayout, read_flags};
use known::Known;
pub(crate) use layout::{Layout, Lookup, Number};
use loaders::Loaders;
pub(crate) use memory::{Reader, at, is_plausible, number};
pub(crate) use names::is_method_descriptor;
pub(crate) use pages::Pages;
use share::{Purse, Share};
use stub::Stub;
pub(crate) use tables::{Tables, read_int_constants, read_long_constants, read_string};
pub(crate) use walk::{classes_of_boot_loader, lasting_loaders};

/// One JVM whose tables have been read and checked. It remembers what it has seen, within limits.
#[derive(Debug)]
pub struct Vm<M> {
    reader: Reader<M>,
    exports: Exports,
    layout: Layout,
    about: About,
    stub: Stub,
    known: Known,
    /// Whether its classes are not looked at any more because they take too much.
    left_out: bool,
    /// How long it is to be left alone, so that looks take their part of the time.
    pause: Duration,
    loaders: Loaders,
}

impl<M: RemoteMemory> Vm<M> {
    /// Reads the tables of the VM whose memory is `memory` and whose `libjvm` is mapped where that says.
    ///
    /// # Errors
    /// [`Error::NotReady`] in the first milliseconds of a JVM: try again. Everything else stays as it is: the file
    /// cannot be read, the VM has no tables ([`Error::NoTables`]) or is too old ([`Error::MissingEntry`]), or the
    /// process cannot be read ([`Error::Memory`]).
    pub fn open(memory: M, libjvm: &Library) -> Result<Self, Error> {
        Self::with_exports(memory, Exports::of(libjvm)?)
    }

    fn with_exports(memory: M, exports: Exports) -> Result<Self, Error> {
        Self::with_purse(memory, exports, Purse::common())
    }

    /// The same, with a share of other means than those of the whole process.
    fn with_purse(memory: M, exports: Exports, purse: Arc<Purse>) -> Result<Self, Error> {
        let mut reader = Reader::with_share(memory, Share::of(purse));
        let tables = Tables::read(&mut reader, &exports)?;
        Ok(Self {
            layout: Layout::of(&tables)?,
            about: About::of(&tables),
            reader,
            exports,
            stub: Stub::default(),
            known: Known::default(),
            left_out: false,
            pause: Duration::ZERO,
            loaders: Loaders::default(),
        })
    }

    /// Whether its classes are not looked at any more because they take too much. What was found before stands.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// How long to leave it alone after the last look, so that looks at all targets take a small part of a CPU.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// The VM's name and version, as far as it says.
    ///
    /// # Errors
    /// [`Error::Memory`] if the process can no longer be read.
    pub fn version(&mut self) -> Result<Version, Error> {
        Ok(self.about.version(&mut self.reader)?)
    }

    /// The addresses between which the VM puts compiled code, where it says so.
    ///
    /// # Errors
    /// [`Error::Memory`] if the process can no longer be read.
    pub fn code_cache_range(&mut self) -> Result<Option<Range<VirtAddr>>, Error> {
        Ok(self.about.code_cache(&mut self.reader)?)
    }
}
