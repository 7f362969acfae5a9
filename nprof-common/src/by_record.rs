//! What is kept for a record and something else: found by one number that has both.

/// The number, of a record and of whatever else it is.
#[must_use]
#[inline(always)]
pub const fn key(other: u32, record: u32) -> u64 {
    (other as u64) << 32 | record as u64
}

/// The other and the record of a number.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
pub const fn of_key(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both come back.
    #[test]
    fn keys() {
        for (tid, record) in [(1, 0), (1 << 22, 7), (u32::MAX, 1 << 23)] {
            assert_eq!(of_key(key(tid, record)), (tid, record));
        }
    }
}
