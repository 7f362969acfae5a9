//! Calls by how long they took, or by how much they moved.

/// A base-2 exponential histogram of call times in nanoseconds with four buckets per octave: the Prometheus
/// native histogram (and OTLP exponential histogram) of schema 2. Bucket `i` holds the times in
/// `(2^((i-1)/4), 2^(i/4)]` nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Bucket index and number of calls; only buckets with calls, in rising order.
    pub buckets: Vec<(i32, u64)>,
}
