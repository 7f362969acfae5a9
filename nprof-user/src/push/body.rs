//! What is pushed: compressed bodies of requests, and not too many.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The most that one push takes in memory, compressed: some million points.
const MOST_BYTES: usize = 32 << 20;

/// The bodies of one push.
#[derive(Debug, Clone, Default)]
pub struct Bodies {
    pub(super) gzipped: Vec<Bytes>,
    /// What they take, compressed.
    pub(super) bytes: usize,
    /// How many points or profiles did not fit.
    pub(super) left_out: u64,
}

impl Bodies {
    /// The bodies, compressed.
    #[must_use]
    pub fn gzipped(&self) -> &[Bytes] {
        &self.gzipped
    }

    /// Compresses a body of this many points or profiles and adds it, if there is room.
    pub fn push(&mut self, body: &[u8], items: u64) {
        if self.bytes >= MOST_BYTES {
            self.left_out += items;
            return;
        }
        // Nothing that writes to memory fails.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let gzipped = encoder.write_all(body).and_then(|()| encoder.finish()).unwrap_or_default();
        self.bytes += gzipped.len();
        self.gzipped.push(gzipped.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what does not fit is counted.
    #[test]
    fn bounded() {
        let mut bodies = Bodies::default();
        bodies.push(b"one", 2);
        bodies.bytes = MOST_BYTES;
        bodies.push(b"two", 3);
        bodies.push(b"three", 4);
        assert_eq!((bodies.gzipped.len(), bodies.left_out), (1, 7));
    }
}
