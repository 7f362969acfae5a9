//! What the tests of the inventory share: recordings of real JVMs, a small VM put together by hand, and the tools that
//! read live ones.

mod corruption;
mod live;
mod loaders_tests;
mod recorded;
pub(crate) mod recording;
mod share_tests;
mod small_vm;
mod small_vm_tests;
