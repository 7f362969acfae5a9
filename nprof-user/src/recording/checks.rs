//! What is checked of everything that a file says.

use jiff::Timestamp;

use super::Error;

/// Whether an index leads into a list of this length.
pub(super) fn is_below(index: u32, length: usize) -> bool {
    (index as usize) < length
}

/// Something must be so in a recording.
pub(super) fn check(holds: bool, what: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Damaged { what }) }
}

/// A moment, if it is one.
pub(super) fn timestamp(seconds: i64, nanos: i32) -> Result<Timestamp, Error> {
    Timestamp::new(seconds, nanos).map_err(|_none| Error::Damaged { what: "a time that is none" })
}
