//! Base-2 exponential buckets with four per octave: schema 2 of Prometheus native histograms and of OTLP.
//!
//! Bucket `i` holds the values in `(2^((i-1)/4), 2^(i/4)]`. The bounds are powers of the fourth root of two, so
//! they are compared as integers scaled by 2^63: exact, and without a division.

/// Number of buckets of a record. The last one also holds everything above its bound, 2^45 ns or 9.7 hours.
pub const BUCKETS: usize = 181;

/// Buckets per octave: 2^schema.
pub const PER_OCTAVE: u32 = 4;

/// Larger values are counted with this one, in the last bucket.
pub const LARGEST: u64 = (1 << 45) - 1;

/// 2^62 times 2^(0/4), 2^(1/4), 2^(2/4) and 2^(3/4), rounded down. A scaled integer that is greater than the rounded
/// bound is greater than the bound.
pub const QUARTERS: [u64; 4] =
    [0x4000_0000_0000_0000, 0x4c1b_f828_c6dc_54b7, 0x5a82_7999_fcef_3242, 0x6ba2_7e65_6b4e_b57a];

/// A multiplier that puts another number into the highest six bits for each of the 64 values below, and the exponents
/// by these numbers.
const HASH: u64 = 0x03f7_9d71_b4cb_0a89;
static EXPONENTS: [u8; 64] = exponents();

/// The bucket of `value` (nanoseconds). Zero and one share bucket 0.
///
/// Almost without branches: in the kernel this runs on values that the branch predictor cannot guess, and each branch
/// doubles what the verifier has to walk through.
#[must_use]
#[inline(always)]
pub fn bucket_of(value: u64) -> u32 {
    let value = if value > LARGEST { LARGEST } else { value | u64::from(value == 0) };
    let exponent = exponent_of(value);
    let mantissa = value << (62 - exponent);
    let above = QUARTERS.map(|bound| is_greater(mantissa, bound));
    let bucket = u64::from(PER_OCTAVE) * exponent + above[0] + above[1] + above[2] + above[3];
    (bucket & 0xff) as u32
}

/// The place of the highest bit of a value from 1 to [`LARGEST`]. The target has no instruction that counts leading
/// zeros: all bits below the highest are set, which leaves 64 values to tell apart.
#[inline(always)]
fn exponent_of(value: u64) -> u64 {
    let mut filled = value;
    let mut step = 1;
    while step < 64 {
        filled |= filled >> step;
        step *= 2;
    }
    let place = (filled.wrapping_mul(HASH) >> 58) as usize;
    // The values below 2^46 have exponents up to 45, which the verifier cannot know of the table.
    u64::from(EXPONENTS[place & 63]) & 63
}

const fn exponents() -> [u8; 64] {
    let mut exponents = [0; 64];
    let mut exponent = 0;
    while exponent < 64 {
        let filled = u64::MAX >> (63 - exponent);
        exponents[(filled.wrapping_mul(HASH) >> 58) as usize] = exponent;
        exponent += 1;
    }
    exponents
}

/// 1 if `a` is greater than `b`; both below 2^63. The borrow of the subtraction is the answer.
#[inline(always)]
const fn is_greater(a: u64, b: u64) -> u64 {
    b.wrapping_sub(a) >> 63
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last bucket.
    const LAST: u32 = 180;
    const _: () = assert!(LAST as usize == BUCKETS - 1);

    /// The bucket by its definition, in exact arithmetic: the least `i` with `value^4 <= 2^i`.
    fn by_definition(value: u64) -> u32 {
        let mut bucket = 0;
        while bucket < LAST && !fourth_power_at_most(value, bucket) {
            bucket += 1;
        }
        bucket
    }

    /// Whether `value^4 <= 2^exponent`. `value` below 2^64 needs 256 bits: compared as the square of a square.
    fn fourth_power_at_most(value: u64, exponent: u32) -> bool {
        let square = u128::from(value) * u128::from(value);
        // square^2 <= 2^e  <=>  square <= floor(sqrt(2^e)); for odd e the root is not an integer.
        if exponent.is_multiple_of(2) {
            return exponent / 2 >= 128 || square <= 1u128 << (exponent / 2);
        }
        let (high, low) = (square >> 64, square & u128::from(u64::MAX));
        // square^2 = high^2 * 2^128 + 2 * high * low * 2^64 + low^2, compared limb by limb.
        let low2 = low * low;
        let cross = high * low;
        let (middle, carry) = (cross << 65).overflowing_add(low2);
        let upper = high * high + (cross >> 63) + u128::from(carry);
        if exponent >= 128 { upper < 1u128 << (exponent - 128) } else { upper == 0 && middle < 1u128 << exponent }
    }

    /// Check that each bound, its neighbours and many values between fall into the bucket of the definition.
    #[test]
    fn agrees_with_definition() {
        let mut value = 2u64;
        for octave in 0..46 {
            for candidate in [(1 << octave) - 1, 1 << octave, (1 << octave) + 1] {
                assert_eq!(bucket_of(candidate), by_definition(candidate.max(1)), "value {candidate}");
            }
            for _ in 0..2_000 {
                value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let candidate = (1 << octave) + (value >> 1) % (1 << octave);
                assert_eq!(bucket_of(candidate), by_definition(candidate), "value {candidate}");
            }
        }
    }

    /// Check that every bound rounded to an integer is on the right side: the values where a slip would show.
    #[test]
    fn exact_at_every_bound() {
        for bucket in 1..LAST {
            let mut low = 1u64;
            let mut high = 1u64 << 47;
            while low < high {
                let middle = u64::midpoint(low, high) + 1;
                if fourth_power_at_most(middle, bucket) {
                    low = middle
                } else {
                    high = middle - 1
                }
                if high == low {
                    break;
                }
            }
            assert!(bucket_of(low) <= bucket, "bound of {bucket}");
            assert!(bucket_of(low + 1) > bucket, "above the bound of {bucket}");
        }
    }

    /// Check that what no bucket can hold goes to the last one.
    #[test]
    fn clamps() {
        assert_eq!(bucket_of(u64::MAX), LAST);
        assert_eq!((bucket_of(0), bucket_of(1), bucket_of(2), bucket_of(3)), (0, 0, 4, 7));
    }
}
