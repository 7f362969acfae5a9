//! How much memory a recording may come to, so that a file which somebody has made cannot fill it.
//!
//! It is reckoned before anything is decoded, from how many rows of which kind a part has: a row that takes two bytes in a
//! file, and hardly any when that is compressed, takes a hundred in memory. What a file may take goes by its own size,
//! as far as it has been read: nobody sends somebody a small file that turns out to be large.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use nprof_common::Consumed;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::Error;
use super::limits::{FLOOR, MOST, RATIO};
use crate::model::{
    AlikeTotals, BytesPerCall, CallObject, CallValue, CallValues, EntryTotals, FunctionTotals, KeptInvocation,
    NodeException, NodeUse, PathSum, ProfileFrame, ProfileStack, StackTotals, ThreadName, TimelineCall, TreeCaller,
    TreeMethod, TreeNode, TreeWay,
};

const _: () = assert!(size_of::<NodeUse>() / 2 <= size_of::<NodeException>() / 4);

/// What a shared text takes besides its bytes.
const TEXT: usize = 2 * size_of::<usize>();
/// What the sum of a way takes in its table.
const SUM: usize = size_of::<(u32, PathSum)>() + 1;
/// How many the least table has room for.
const LEAST_TABLE: usize = 4;

/// What a recording may still take.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    floor: usize,
    taken: usize,
    /// How much of the file has been read.
    read: Rc<Cell<usize>>,
}

impl Room {
    /// For a file of which `read` says how much has been read.
    pub(super) fn new(read: &Rc<Cell<usize>>) -> Self {
        Self { most: MOST, floor: FLOOR, taken: 0, read: Rc::clone(read) }
    }

    /// The same with other limits.
    #[cfg(test)]
    pub(super) fn within(most: usize, floor: usize, read: &Rc<Cell<usize>>) -> Self {
        Self { most, floor, ..Self::new(read) }
    }

    /// Takes what a part will take once it is decoded.
    pub(super) fn take(&mut self, part: &[u8]) -> Result<(), Error> {
        let size = size(part).map_err(|source| Error::Part { source })?;
        self.taken = self.taken.saturating_add(size);
        if self.taken > self.most {
            return Err(Error::TooLarge);
        }
        if self.taken > self.floor.saturating_add(self.read.get().saturating_mul(RATIO)) {
            return Err(Error::Inflated);
        }
        Ok(())
    }
}

/// What the rows of a part take in memory, at least what they really do.
fn size(mut part: &[u8]) -> Result<usize, DecodeError> {
    let mut size = 0_usize;
    while !part.is_empty() {
        let (tag, kind) = decode_key(&mut part)?;
        if kind != WireType::LengthDelimited {
            skip_field(kind, tag, &mut part, DecodeContext::default())?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut part)?).unwrap_or(usize::MAX);
        // What is too short is found out when it is decoded.
        part = part.get(length..).unwrap_or_default();
        let (row, byte) = weight(tag);
        // A list that grows has room for as much again.
        size = size.saturating_add(2 * row).saturating_add(length.saturating_mul(byte));
    }
    Ok(size)
}

/// What a row of a part takes by the number of its list, and what each of its bytes may come to.
fn weight(tag: u32) -> (usize, usize) {
    match tag {
        2 => (size_of::<ProfileFrame>(), 1),
        // Numbers of four bytes, which take one in the file.
        3 => (size_of::<ProfileStack>(), 4),
        4 => (size_of::<FunctionTotals>() + size_of::<Consumed>(), 1),
        5..=7 => (size_of::<StackTotals>(), 1),
        8 => (size_of::<TimelineCall>(), 1),
        9 => (size_of::<ThreadName>(), 1),
        // A caller without lines takes two bytes, and each text an allocation.
        12 => (size_of::<TreeMethod>() + 3 * TEXT, size_of::<TreeCaller>() / 2),
        13 => (2 * size_of::<(u32, String)>(), 1),
        // With where it begins, which is found out when all are there.
        14 => (size_of::<TreeWay>() + size_of::<(u32, u32)>(), 1),
        15 => (2 * size_of::<EntryTotals>(), 1),
        // With the least table that holds something.
        16 => (2 * size_of::<AlikeTotals>() + LEAST_TABLE * SUM, 1),
        17 => (2 * SUM, 1),
        18 => (size_of::<KeptInvocation>(), 1),
        // An exception takes four numbers, and what is consumed two.
        19 => (size_of::<(u32, TreeNode)>() + size_of::<u32>(), size_of::<NodeException>() / 4),
        // A bucket takes two bytes in the file.
        20 => (size_of::<BytesPerCall>(), size_of::<(i32, u64)>()),
        21 => (size_of::<CallObject>(), 1),
        // A value takes one byte in the file.
        22 => (size_of::<CallValues>(), size_of::<CallValue>()),
        // Texts and counts without a content: two bytes in the file.
        _ => (0, size_of::<(String, u64)>()),
    }
}

/// A file of which is known how much of it has been read.
#[derive(Debug)]
pub(super) struct Counted<R> {
    file: R,
    read: Rc<Cell<usize>>,
}

impl<R> Counted<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, read: Rc::default() }
    }

    pub(super) fn so_far(&self) -> &Rc<Cell<usize>> {
        &self.read
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.set(self.read.get().saturating_add(read));
        Ok(read)
    }
}
