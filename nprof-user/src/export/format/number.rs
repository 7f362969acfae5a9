//! Numbers as ASCII text, exact: a time in whole nanoseconds loses nothing on its way to seconds.

use std::io::{self, Write};

/// Decimal digits of the nanoseconds in a second.
const PLACES: usize = 9;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Writes a whole number.
pub(super) fn push_whole(out: &mut impl Write, mut n: u64) -> io::Result<()> {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = digit(n);
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.write_all(&digits[start..])
}

/// Writes nanoseconds as seconds: `0`, `1.5`, `0.000000256`.
pub(super) fn push_seconds(out: &mut impl Write, ns: u64) -> io::Result<()> {
    push_whole(out, ns / NS_PER_SECOND)?;
    let mut fraction = ns % NS_PER_SECOND;
    if fraction == 0 {
        return Ok(());
    }
    let mut digits = [b'.'; PLACES + 1];
    for place in digits[1..].iter_mut().rev() {
        *place = digit(fraction);
        fraction /= 10;
    }
    let length = digits.iter().rposition(|&d| d != b'0').map_or(0, |last| last + 1);
    out.write_all(&digits[..length])
}

/// The last decimal digit.
fn digit(n: u64) -> u8 {
    // The remainder of a division by ten has one byte.
    b'0' + (n % 10).to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check whole numbers at their ends.
    #[test]
    fn whole_numbers() {
        for n in [0, 9, 10, 1_000_000, u64::MAX] {
            let mut out = Vec::new();
            push_whole(&mut out, n).unwrap();
            assert_eq!(out, n.to_string().as_bytes());
        }
    }

    /// Check that every nanosecond is there, and no zero that says nothing.
    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (256, "0.000000256"),
            (1_500_000_000, "1.5"),
            (60_000_000_000, "60"),
            (10_000_000_010, "10.00000001"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            let mut out = Vec::new();
            push_seconds(&mut out, ns).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }
}
