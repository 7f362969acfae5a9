//! Numbers for people: times in three significant digits, counts exact with thousands separators.

use crate::model::CountedIn;

/// Units from the smallest up: nanoseconds in one, and the value at which the next takes over.
const UNITS: [(f64, f64, &str); 5] =
    [(1e3, 999.5, "us"), (1e6, 999.5, "ms"), (1e9, 59.95, "s"), (60e9, 59.95, "min"), (3600e9, f64::INFINITY, "h")];

/// A time in nanoseconds: `999 ns`, `1.24 us`, `12.4 ms`, `59.9 s`, `2.50 min`, `1,234 h`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub fn duration(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let ns = ns as f64;
    let in_unit = |&&(size, limit, _): &&(f64, f64, &str)| ns / size < limit;
    // The last unit has no limit.
    let (size, _, unit) = UNITS.iter().find(in_unit).unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{} {unit}", three_digits(ns / size))
}

/// A number of bytes, in powers of 1024: `999 B`, `1.24 KiB`, `12.4 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut size = n as f64 / 1024.0;
    let mut unit = 0;
    while size >= 999.5 && unit < UNITS.len() - 1 {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{} {}", three_digits(size), UNITS[unit])
}

/// A number as what it is counted in.
#[must_use]
pub fn counted(n: u64, unit: CountedIn) -> String {
    match unit {
        CountedIn::Events => count(n),
        CountedIn::Bytes => bytes(n),
    }
}

/// A share as a percentage: `2 %`, `0.25 %`; with its first digit where two are none, `0.003 %`: what there is little of is not nothing.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let mut texts = (2..=MOST_DIGITS).map(|digits| format!("{percent:.digits$}"));
    let is_something = |text: &String| text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let text = texts.find(is_something).unwrap_or_else(|| format!("{percent:.2}"));
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Digits behind the point of a percentage.
const MOST_DIGITS: usize = 6;

/// A whole number with thousands separators: `1,234,567`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate per second: `0`, `0.25`, `12.5`, `1,234`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    if per_second > 0.0 { three_digits(per_second) } else { "0".to_owned() }
}

/// An error as a share of what it is the error of: `± 3.00 %`.
pub fn error(share: f64) -> String {
    format!("± {} %", three_digits((share * 100.0).max(0.01)))
}

/// At least three significant digits, never an exponent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; conversion to u64 saturates"
)]
fn three_digits(value: f64) -> String {
    // The limits lie where rounding would carry into the next digit.
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration, percent, rate};

    /// Check that zeros behind the point go, and that what is there is never shown as nothing unless it is next to nothing.
    #[test]
    fn percentages() {
        for (share, text) in [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.02, "2 %"),
            (0.0025, "0.25 %"),
            (-0.5, "-50 %"),
            (0.000_034, "0.003 %"),
            (0.000_000_3, "0.00003 %"),
            (1e-12, "0 %"),
            (f64::NAN, "NaN %"),
        ] {
            assert_eq!(percent(share), text, "{share}");
        }
    }

    /// Check each unit, and the values at which rounding carries into the next digit or unit.
    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 us"),
            (1244, "1.24 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (3_400_000, "3.40 ms"),
            (1_000_000_000, "1.00 s"),
            (59_949_000_000, "59.9 s"),
            (59_950_000_000, "1.00 min"),
            (150_000_000_000, "2.50 min"),
            (3_597_000_000_000, "1.00 h"),
            (4_444_444_000_000_000, "1,235 h"),
            (u64::MAX, "5,124,096 h"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    /// Check the units of bytes, and where the next one takes over.
    #[test]
    fn sizes() {
        let sizes = [0, 1023, 1024, 1_500, 1_023_500, 10 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 KiB", "1.46 KiB", "0.98 MiB", "10.0 MiB", "16,384 PiB"]);
    }

    /// Check the separators of counts, which are never rounded.
    #[test]
    fn counts() {
        assert_eq!(["0", "999", "1,000"], [count(0), count(999), count(1000)].each_ref().map(String::as_str));
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    /// Check rates from rare to frequent, and what a division by no time would give.
    #[test]
    fn rates() {
        let texts = [0.0, 0.25, 12.54, 1234.4, 1e7, f64::NAN].map(rate);
        assert_eq!(texts, ["0", "0.25", "12.5", "1,234", "10,000,000", "0"]);
    }
}
