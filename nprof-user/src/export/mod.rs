//! What was measured, as Prometheus metrics: from the [`crate::model::Snapshot`]s of the living JVMs to the bytes that
//! a scrape gets.
//!
//! [`Exporter`] turns snapshots into series: it names them, adds up what shares a name, keeps what has ended, and caps
//! their number. Its [`Exposition`] is a plain value that is encoded as [`Format`] says. What each metric means stands
//! in one table, `families`, which `docs/metrics.md` is made from.
//!
//! The families of JVMs and of nprof itself are in a registry of the crate `prometheus-client`, which writes them as
//! Protobuf. Text and what there is of each method are written here: `docs/decisions/8-what-the-registry-holds.md`.

mod backlog;
mod distribution;
#[cfg(test)]
mod docs;
mod exemplars;
mod exporter;
mod exposition;
mod families;
mod format;
pub mod http;
mod input;
mod labels;
mod lasting;
mod native;
mod process;
mod registered;
pub mod samples;
mod series;
mod totals;

pub use backlog::Backlog;
pub use exporter::Exporter;
pub use exposition::Exposition;
pub use format::{Format, Origin, negotiate};
pub use input::{Host, Limits, Measured};
