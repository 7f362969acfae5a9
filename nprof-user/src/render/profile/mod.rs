//! Recordings in the formats that pictures and other tools are made of.

mod callers;
pub mod captions;
pub mod chrome;
pub mod diff;
pub mod folded;
mod functions;
mod labels;
mod names;
pub mod order;
pub mod pprof;
pub mod report;
pub mod speedscope;
pub mod svg;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod testing;
