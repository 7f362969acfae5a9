//! Links that serve many processes: how a hit finds the record of its own.
//!
//! A *member* is a traced process that such links serve. The lower bits of its process id are a slot, which says its *row*; the
//! row and the number of the site say the record. Both are places in arrays, which the verifier turns into a few instructions.

/// Slots of processes; a power of two.
pub const SLOTS: u32 = 1 << 16;
/// The most members.
pub const ROWS: u32 = 128;
/// The most sites that shared links hold, in all libraries together.
pub const SITES: u32 = 1 << 11;

/// What a slot says: a process, and its row. That of nobody is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member(pub u64);

impl Member {
    /// A process with this row.
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32, row: u32) -> Self {
        Self(((tgid as u64) << 32) | row as u64)
    }

    /// The row, if it is the one of this process.
    #[must_use]
    #[inline(always)]
    pub const fn row_of(self, tgid: u32) -> Option<u32> {
        if (self.0 >> 32) as u32 == tgid { Some((self.0 & 0xffff_ffff) as u32) } else { None }
    }
}

/// The slot of a process.
#[must_use]
#[inline(always)]
pub const fn slot(tgid: u32) -> u32 {
    tgid & (SLOTS - 1)
}

/// Where the record stands that a row has for a site. It is 0 if there is none.
#[must_use]
#[inline(always)]
pub const fn place(row: u32, site: u32) -> u32 {
    row * SITES + site
}

/// What is known of processes that hit a shared link and are no members.
pub mod strangers {
    /// The word that counts their hits.
    pub const HITS: u32 = 0;
    /// The word that says whose the last one was, in its upper half, and the number of the site.
    pub const LAST: u32 = 1;
    /// How many words there are.
    pub const WORDS: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a slot is good for the one process that it names.
    #[test]
    fn a_slot_names_its_process() {
        let member = Member::new(SLOTS + 7, ROWS - 1);
        assert_eq!(slot(SLOTS + 7), slot(7));
        assert_eq!((member.row_of(SLOTS + 7), member.row_of(7)), (Some(ROWS - 1), None));
        assert_eq!(Member(0).row_of(7), None);
    }

    /// Check that no two rows have a place in common.
    #[test]
    fn rows_are_apart() {
        assert_eq!(place(0, SITES - 1) + 1, place(1, 0));
        assert_eq!(place(ROWS - 1, SITES - 1) + 1, ROWS * SITES);
    }
}
