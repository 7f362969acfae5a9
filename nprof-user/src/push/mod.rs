//! What was measured, sent to whoever shall have it: the other direction than a scrape.
//!
//! A [`Receiver`] is where to and as whom: endpoint, TLS, credentials. A `Courier` takes bodies there, tries again where that
//! makes sense, counts what became of each push ([`Tally`]) and says so in the log, but not each time. What is in the bodies is
//! not known here. [`Metrics`] has a body made at an interval; nothing is kept for later, because its counters are cumulative:
//! a push that was lost takes its resolution with it, and no count. [`Profiles`] has no such luck: each window is another one, so
//! they wait in an [`Outbox`] while the receiver is away, as many as there is room for.
//!
//! Nothing here blocks: bodies are made on threads for blocking work, one push is under way at a time and ends before the
//! next one is due, and what a receiver answers is bounded.

mod answer;
mod backoff;
mod body;
mod connection;
mod courier;
mod error;
mod headers;
mod metrics;
mod news;
mod options;
mod outbox;
mod profiles;
mod pyroscope;
mod receiver;
mod tally;
mod trust;
mod windows;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use body::Bodies;
pub use error::Error;
pub use metrics::{Metrics, Source};
pub use options::Options;
pub use outbox::Outbox;
pub use profiles::{ProfileSink, Profiles};
pub use receiver::{Live, Receiver};
pub use tally::{OTLP_METRICS, OTLP_PROFILES, PYROSCOPE, Tally};
pub use windows::{NewWindows, hand_over};
