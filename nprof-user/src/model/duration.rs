//! Lengths of time as a user types them: `10s`, `500ms`, `1m30s`.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads a length of time that is longer than nothing.
///
/// # Errors
/// What to write instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unclear = "give a number and a unit, such as 10s, 500ms or 1m30s";
    let signed: SignedDuration = text.parse().map_err(|_error| unclear.to_owned())?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("it must be longer than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what users type, and that what cannot be a length of time is refused.
    #[test]
    fn reads_lengths_of_time() {
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "10", "0s", "-1s", "soon"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
