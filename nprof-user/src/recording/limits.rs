//! What a file may become in memory.

/// What any recording may take: a timeline of the most calls that nprof records takes half of it.
pub(super) const MOST: usize = 1 << 30;
/// What a recording may take however small its file is.
pub(super) const FLOOR: usize = 64 << 20;
/// How many times the size of its file a larger one may take. Timelines take 10 to 30 times as much, deep stacks that are
/// much alike 300 times.
pub(super) const RATIO: usize = 512;
