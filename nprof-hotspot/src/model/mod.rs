//! Plain values: addresses, files and methods. They hold no handle and do no I/O.

mod address;
mod cut;
mod library;
mod method;
mod pid;
mod shared_str;

pub use address::{ElfAddr, FileOffset, VirtAddr};
pub use cut::CutReason;
pub use library::{FileId, Library, Mapping};
pub use method::{Inventory, Method, NativeCode};
pub use pid::Pid;
pub use shared_str::SharedStr;
