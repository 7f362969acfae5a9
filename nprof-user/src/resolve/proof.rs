//! The proof that a probe behind a function's entry means the same as one on it: every call passes there exactly once.
//!
//! Three things could break that. Another function that begins in what lies in between. A direct branch into it, or to
//! the new place itself: the bytes of all code are searched for anything that could be one, or that takes an address
//! there, which finds all of them and some that are none. And a computed jump, whose targets nobody knows: none may be
//! reachable from the entry.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::code;
use super::image::{Image, ImageError};
use crate::model::FileOffset;

/// How far behind the entry a probe may sit, in bytes.
pub(super) const MAX_MOVE: usize = 64;
const _: () = assert!(MAX_MOVE <= nprof_common::Cookie::MAX_DISTANCE as usize);
/// How many instructions are followed in search of a computed jump before the proof is given up: for one move, and for
/// all of a library, which has to end in time however many functions it has.
const MAX_FOLLOWED: usize = 4_000;
const MAX_FOLLOWED_IN_ALL: usize = 1 << 20;
/// Code is decoded in windows of this many bytes.
const WINDOW: usize = 256;
/// Code is searched in windows of this many bytes, for which there is memory.
const SEARCHED: usize = 1 << 20;
/// The longest instruction, and the longest branch that is searched for, in bytes.
const LONGEST: usize = 15;
const LONGEST_BRANCH: usize = 6;

/// A probe that would like to sit at `place` instead of at `entry`, at most [`MAX_MOVE`] bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub entry: FileOffset,
    pub place: FileOffset,
}

impl Move {
    /// Whether control that comes to `target` from elsewhere would pass the place without the entry.
    fn is_broken_at(self, target: FileOffset) -> bool {
        self.entry < target && target <= self.place
    }
}

/// The entries of those moves that are proven. `entries` are those of all functions at hand.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn proven(image: &Image, moves: &[Move], entries: &[FileOffset]) -> Result<HashSet<FileOffset>, ImageError> {
    let mut proven = HashSet::new();
    // Between segments, distances in the file need not be distances in memory: such code cannot be followed.
    if image.code_segments().count() != 1 {
        return Ok(proven);
    }
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    let alone = |step: &&Move| !has_within(&entries, **step) && !has_within(image.functions(), **step);
    let mut moves: Vec<Move> = moves.iter().filter(alone).copied().collect();
    moves.sort_unstable_by_key(|step| step.entry);
    let entered = branched_into(image, &moves)?;
    let mut left = MAX_FOLLOWED_IN_ALL;
    for step in moves.iter().filter(|step| !entered.contains(&step.entry)) {
        let mut walk = Walk::new(image, left.min(MAX_FOLLOWED));
        if !walk.meets_computed_jump(step.entry)? {
            proven.insert(step.entry);
        }
        left = left.saturating_sub(walk.seen.len());
    }
    Ok(proven)
}

/// Whether one of the sorted `functions` begins where it would break a move.
fn has_within(functions: &[FileOffset], step: Move) -> bool {
    let next = functions.partition_point(|function| *function <= step.entry);
    functions.get(next).is_some_and(|function| step.is_broken_at(*function))
}

/// The entries of the moves, sorted by entry, that a direct branch of the file could break. Branches to an entry are
/// calls and do no harm.
fn branched_into(image: &Image, moves: &[Move]) -> Result<HashSet<FileOffset>, ImageError> {
    let mut entered = HashSet::new();
    if moves.is_empty() {
        return Ok(entered);
    }
    for (start, end) in image.code_segments() {
        for window in (start.0..end.0).step_by(SEARCHED) {
            let bytes = image.code(FileOffset(window), SEARCHED + LONGEST_BRANCH - 1)?;
            search_branches(&bytes, FileOffset(window), moves, &mut entered);
        }
    }
    Ok(entered)
}

/// Searches code for bytes that could be a branch that breaks one of the moves, which are sorted by entry.
fn search_branches(bytes: &[u8], start: FileOffset, moves: &[Move], entered: &mut HashSet<FileOffset>) {
    let (Some(first), Some(last)) = (moves.first(), moves.last()) else { return };
    let reach = first.entry.0..=last.entry.0.saturating_add(MAX_MOVE as u64);
    // The first byte alone rules most places out, which saves a third of the time.
    let begins: [bool; 256] = std::array::from_fn(|byte| u8::try_from(byte).is_ok_and(may_begin_branch));
    for position in (0..bytes.len()).filter(|&position| begins[usize::from(bytes[position])]) {
        let Some((length, distance)) = possible_branch(&bytes[position..]) else { continue };
        let target = FileOffset((start.0 + position as u64 + length).wrapping_add_signed(distance));
        if !reach.contains(&target.0) {
            continue;
        }
        let before = moves.partition_point(|step| step.entry < target);
        let near = moves[..before].iter().rev().take_while(|step| target.0 - step.entry.0 <= MAX_MOVE as u64);
        entered.extend(near.filter(|step| step.is_broken_at(target)).map(|step| step.entry));
    }
}

fn may_begin_branch(byte: u8) -> bool {
    matches!(byte, 0xe8 | 0xe9 | 0x0f | 0xc7 | 0x8d | 0xeb | 0x70..=0x7f | 0xe0..=0xe3)
}

/// Length and distance of the branch that begins with these bytes, if they are one, or of an address that is taken.
fn possible_branch(bytes: &[u8]) -> Option<(u64, i64)> {
    let near = |at: usize| {
        let distance = bytes.get(at..at + 4)?;
        Some((at as u64 + 4, i64::from(i32::from_le_bytes(distance.try_into().ok()?))))
    };
    match *bytes {
        // call, jmp
        [0xe8 | 0xe9, ..] => near(1),
        // jcc; xbegin
        [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..] => near(2),
        // lea with a distance from the next instruction, behind its prefix
        [0x8d, operands, ..] if operands & 0xc7 == 0x05 => near(2),
        // jmp short, jcc short, loop and jrcxz
        [0xeb | 0x70..=0x7f | 0xe0..=0xe3, distance, ..] => Some((2, i64::from(distance.cast_signed()))),
        _ => None,
    }
}

/// Follows code along its direct jumps.
struct Walk<'a> {
    image: &'a Image,
    most: usize,
    seen: HashSet<FileOffset>,
    pending: Vec<FileOffset>,
}

impl<'a> Walk<'a> {
    /// A walk over at most `most` instructions.
    fn new(image: &'a Image, most: usize) -> Self {
        Self { image, most, seen: HashSet::new(), pending: Vec::new() }
    }

    /// Whether a computed jump can be reached, or might be: code that is too long to follow, or that is none, counts
    /// as if it had one.
    fn meets_computed_jump(&mut self, entry: FileOffset) -> Result<bool, ImageError> {
        self.pending.push(entry);
        while let Some(start) = self.pending.pop() {
            if self.run_meets_computed_jump(start)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same for the instructions that follow each other from `start` on, up to one that does not go on.
    fn run_meets_computed_jump(&mut self, start: FileOffset) -> Result<bool, ImageError> {
        let (mut at, mut base, mut window) = (start, start, Vec::new());
        while self.seen.insert(at) {
            if at.0 + LONGEST as u64 > base.0 + window.len() as u64 {
                (window, base) = (self.image.code(at, WINDOW)?, at);
            }
            let bytes = usize::try_from(at.0 - base.0).ok().and_then(|used| window.get(used..)).unwrap_or_default();
            let instruction = decode(bytes, at);
            if self.seen.len() > self.most || instruction.is_invalid() || code::is_computed_jump(&instruction) {
                return Ok(true);
            }
            let target = FileOffset(instruction.near_branch_target());
            match instruction.flow_control() {
                FlowControl::ConditionalBranch => self.pending.push(target),
                FlowControl::UnconditionalBranch => {
                    self.pending.push(target);
                    return Ok(false);
                }
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => return Ok(false),
                _ => {}
            }
            at = FileOffset(instruction.next_ip());
        }
        Ok(false)
    }
}

fn decode(bytes: &[u8], at: FileOffset) -> Instruction {
    Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(entry: u64, place: u64) -> Move {
        Move { entry: FileOffset(entry), place: FileOffset(place) }
    }

    /// The entries of the moves that one branch of two bytes, at `at`, breaks.
    fn broken_by(at: u64, distance: i8, moves: &[Move]) -> Vec<u64> {
        let mut entered = HashSet::new();
        search_branches(&[0xeb, distance.cast_unsigned()], FileOffset(at), moves, &mut entered);
        let mut entries: Vec<u64> = entered.into_iter().map(|entry| entry.0).collect();
        entries.sort_unstable();
        entries
    }

    /// Check that a branch breaks a move if it leads behind the entry and not behind the place, to the byte.
    #[test]
    fn where_a_branch_leads() {
        let moves = [step(0x100, 0x108), step(0x140, 0x144)];
        let broken = |target: i16| broken_by(0x110, i8::try_from(target - 0x112).unwrap(), &moves);
        assert!([0xff, 0x100, 0x109, 0x140, 0x145].into_iter().all(|target| broken(target).is_empty()));
        assert_eq!([broken(0x101), broken(0x108)], [[0x100], [0x100]]);
        assert_eq!([broken(0x141), broken(0x144)], [[0x140], [0x140]]);
    }

    /// Check that a branch breaks every one of several moves that lie over each other.
    #[test]
    fn moves_over_each_other() {
        let moves = [step(0x100, 0x10a), step(0x104, 0x10a), step(0x108, 0x10a)];
        assert_eq!(broken_by(0x110, -0xb, &moves), [0x100, 0x104]);
        assert_eq!(broken_by(0x110, -0x8, &moves), [0x100, 0x104, 0x108]);
    }

    /// Check the lengths of all branches, and that the first byte rules none of them out.
    #[test]
    fn every_branch_is_seen() {
        let length = |bytes: &[u8]| possible_branch(bytes).map(|(length, _)| length);
        assert_eq!(length(&[0xe8, 1, 0, 0, 0]), Some(5));
        assert_eq!(length(&[0x0f, 0x84, 1, 0, 0, 0]), Some(6));
        assert_eq!(length(&[0xc7, 0xf8, 1, 0, 0, 0]), Some(6));
        assert_eq!(length(&[0x8d, 0x05, 1, 0, 0, 0]), Some(6));
        assert_eq!(length(&[0x7f, 1]), Some(2));
        assert_eq!([length(&[0xe8, 1, 0, 0]), length(&[0x8d, 0x45, 1, 0, 0, 0])], [None, None]);
        for [first, second] in (0..=u16::MAX).map(u16::to_le_bytes) {
            let is_branch = possible_branch(&[first, second, 0, 0, 0, 0]).is_some();
            assert!(!is_branch || may_begin_branch(first), "{first:x} {second:x}");
        }
    }
}
