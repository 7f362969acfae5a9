//! A histogram in JSON.

use serde::Serialize;

use crate::model::Histogram;

/// The scale of the histogram: 2^2 buckets per octave, as in Prometheus and OTLP.
const HISTOGRAM_SCHEMA: u32 = 2;

/// The buckets with calls, by index.
#[derive(Serialize)]
pub(super) struct Buckets<'a> {
    schema: u32,
    buckets: &'a [(i32, u64)],
}

impl<'a> Buckets<'a> {
    pub(super) fn of(histogram: &'a Histogram) -> Self {
        Self { schema: HISTOGRAM_SCHEMA, buckets: &histogram.buckets }
    }
}
