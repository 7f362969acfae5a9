//! Results for people and for programs. Renderers take plain values and a writer; they decide nothing about files,
//! terminals or colours: the caller says whether there is a terminal, and how wide it is ([`grid::Screen`]).

mod arguments;
mod buckets;
mod by_thread;
mod bytes_per_call;
pub mod check;
mod collected;
pub mod csv;
pub mod diagnosis;
mod document;
pub mod grid;
mod groups;
pub mod jni;
pub mod json;
pub mod live;
mod marks;
pub mod methods;
mod microseconds;
mod names;
mod notes;
mod order;
mod per_call;
mod previous;
pub mod profile;
pub mod ps;
mod rows;
mod run;
mod slow;
mod slow_call;
pub mod slow_timeline;
pub mod status;
mod sum;
pub mod table;
mod track_name;
pub mod tree;
mod uncertain;
pub mod units;
mod words;

pub use groups::By;
pub use names::{is_unsafe, printable};
pub use order::Order;
pub use run::{Scope, View};
pub use slow_call::{slow_call_line, slow_calls_dropped_line};
pub use words::losses;

#[cfg(test)]
mod fake_terminal;
#[cfg(test)]
pub(crate) mod samples;
