//! What JSON documents about one JVM have in common.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::json::{MeasuredTarget, SCHEMA, nanoseconds};
use crate::model::{JavaName, Method, Snapshot};

/// What a document about one JVM begins with.
#[derive(Serialize)]
pub(super) struct Head<T> {
    schema: u32,
    nprof: &'static str,
    started: String,
    elapsed_ns: u64,
    targets: [T; 1],
}

impl<T> Head<T> {
    pub(super) fn of(target: T, started: Timestamp, elapsed: Duration) -> Self {
        Self {
            schema: SCHEMA,
            nprof: env!("CARGO_PKG_VERSION"),
            started: started.to_string(),
            elapsed_ns: nanoseconds(elapsed),
            targets: [target],
        }
    }
}

impl<'a> Head<MeasuredTarget<'a>> {
    pub(super) fn of_measured(snapshot: &'a Snapshot) -> Self {
        Self::of(MeasuredTarget::of(snapshot), snapshot.started, snapshot.elapsed)
    }
}

/// The names of a Java method; none where it is not known which.
#[derive(Serialize)]
pub(super) struct Names<'a> {
    class: Option<&'a str>,
    method: Option<&'a str>,
    signature: Option<&'a str>,
}

impl<'a> From<Option<&'a Method>> for Names<'a> {
    fn from(of: Option<&'a Method>) -> Self {
        Self { class: of.map(|of| &*of.class), method: of.map(|of| &*of.name), signature: of.map(|of| &*of.signature) }
    }
}

impl<'a> From<Option<&'a JavaName>> for Names<'a> {
    fn from(of: Option<&'a JavaName>) -> Self {
        Self {
            class: of.map(|of| &*of.class),
            method: of.map(|of| &*of.method),
            signature: of.map(|of| &*of.signature),
        }
    }
}
