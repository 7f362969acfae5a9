//! Nanoseconds as the format wants them: microseconds, with decimals.

use serde::{Serialize, Serializer};

/// A time in nanoseconds that is written in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Microseconds(pub(super) u64);

impl Microseconds {
    /// The float that readers make the same nanoseconds of.
    ///
    /// Perfetto multiplies by 1,000 and cuts off the decimals: of 1.001 it makes 1,000.9999999999999 and so 1,000. A call
    /// would then end after the one that holds it, and Perfetto would drop it. Where that happens, a tenth of a nanosecond is
    /// added.
    #[expect(clippy::cast_precision_loss, reason = "the format has floats only; exact below 2^53 ns, 104 days")]
    fn as_float(self) -> f64 {
        let float = self.0 as f64 / 1000.0;
        if (float * 1000.0).trunc() < self.0 as f64 { (self.0 as f64 + 0.1) / 1000.0 } else { float }
    }
}

impl Serialize for Microseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_float())
    }
}

#[cfg(test)]
mod tests {
    use super::Microseconds;

    fn text(ns: u64) -> String {
        serde_json::to_string(&Microseconds(ns)).unwrap()
    }

    /// What Perfetto reads.
    #[expect(clippy::cast_possible_truncation, reason = "that is the point")]
    fn read(text: &str) -> i64 {
        (text.parse::<f64>().unwrap() * 1000.0) as i64
    }

    /// Check the decimals.
    #[test]
    fn three_decimals() {
        let texts = [0, 1, 999, 1_000, 1_500, 12_345_678].map(text);
        assert_eq!(texts, ["0.0", "0.001", "0.999", "1.0", "1.5", "12345.678"]);
    }

    /// Check that a reader that cuts off decimals gets the nanosecond that was meant, for small and for large times.
    #[test]
    fn survives_truncation() {
        assert_eq!(text(1_001), "1.0011");
        let day = 86_400_000_000_000;
        let around = |middle: u64| middle..middle + 20_000;
        for ns in around(0).chain(around(1_000_000_007)).chain(around(3_600_000_000_000)).chain(around(day)) {
            assert_eq!(read(&text(ns)), i64::try_from(ns).unwrap(), "{ns}");
        }
    }

    /// Check that the greatest number is still a number.
    #[test]
    fn greatest() {
        assert_eq!(text(u64::MAX), "1.844674407370955e+16");
    }
}
