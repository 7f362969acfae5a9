//! Keeps what is read of a JVM, so that a test can read it again without the JVM.
//!
//! A recording holds exactly the bytes that were asked for, no page around them: two bytes of flags for most methods. In
//! its file addresses are differences in LEB128, and the whole is deflated.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::hotspot::exports::Exports;
use crate::hotspot::memory::{Batch, MemoryError, RemoteMemory, distance};
use crate::model::VirtAddr;

/// Bytes of a process by address. Runs neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) runs: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    /// Adds bytes. Where some are there already, the new ones replace them.
    pub(crate) fn put(&mut self, addr: u64, bytes: &[u8]) {
        let end = addr + bytes.len() as u64;
        let touching: Vec<u64> = self
            .runs
            .range(..=end)
            .rev()
            .take_while(|(start, run)| **start + run.len() as u64 >= addr)
            .map(|(start, _)| *start)
            .collect();
        let start = touching.last().map_or(addr, |first| addr.min(*first));
        let mut joined = Vec::new();
        for old_start in touching.into_iter().rev() {
            let run = self.runs.remove(&old_start).unwrap_or_default();
            lay(&mut joined, gap(start, old_start), &run);
        }
        lay(&mut joined, gap(start, addr), bytes);
        self.runs.insert(start, joined);
    }

    fn bytes(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let (start, run) = self.runs.range(..=addr).next_back()?;
        let from = gap(*start, addr);
        run.get(from..from.checked_add(len)?)
    }
}

fn gap(from: u64, to: u64) -> usize {
    distance(VirtAddr(from), VirtAddr(to))
}

/// Writes `bytes` over `joined` from `from` on.
fn lay(joined: &mut Vec<u8>, from: usize, bytes: &[u8]) {
    let end = from + bytes.len();
    if joined.len() < end {
        joined.resize(end, 0);
    }
    joined[from..end].copy_from_slice(bytes);
}

impl RemoteMemory for Image {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        let len = buf.len();
        let bytes = self.bytes(addr.0, len).ok_or(MemoryError::Unreadable { addr, len })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// A memory that keeps what is read from another one.
#[derive(Debug)]
pub(crate) struct Recording<M> {
    memory: M,
    image: RefCell<Image>,
}

impl<M: RemoteMemory> Recording<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, image: RefCell::default() }
    }

    pub(crate) fn image(&self) -> Image {
        self.image.borrow().clone()
    }
}

impl<M: RemoteMemory> RemoteMemory for Recording<M> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(addr, buf)?;
        self.image.borrow_mut().put(addr.0, buf);
        Ok(())
    }

    fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        self.memory.read_batch(batch)?;
        let mut image = self.image.borrow_mut();
        for (index, piece) in batch.pieces.iter().enumerate() {
            if let Some(bytes) = batch.get(index) {
                image.put(piece.addr.0, bytes);
            }
        }
        Ok(())
    }
}

/// A recorded JVM: what its libjvm exports and what was read of its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) exports: Exports,
    pub(crate) image: Image,
}

impl Recorded {
    /// A recording that is kept with the tests.
    pub(crate) fn fixture(name: &str) -> Self {
        let path = fixture_path(name);
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Self::from_file(&file).unwrap_or_else(|| panic!("{path:?} is no recording"))
    }

    pub(crate) fn to_file(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.exports.text.len() as u64);
        for range in &self.exports.text {
            put_number(&mut out, range.start.0);
            put_number(&mut out, range.end.0);
        }
        let mut variables: Vec<_> = self.exports.variables.iter().collect();
        variables.sort();
        put_number(&mut out, variables.len() as u64);
        for (name, addr) in variables {
            put_bytes(&mut out, name.as_bytes());
            put_number(&mut out, addr.0);
        }
        put_number(&mut out, self.image.runs.len() as u64);
        let mut end = 0;
        for (start, run) in &self.image.runs {
            put_number(&mut out, start - end);
            put_number(&mut out, run.len() as u64);
            end = start + run.len() as u64;
        }
        // All bytes after all addresses: like compresses best next to like.
        out.extend(self.image.runs.values().flatten());
        miniz_oxide::deflate::compress_to_vec(&out, 10)
    }

    fn from_file(file: &[u8]) -> Option<Self> {
        let bytes = miniz_oxide::inflate::decompress_to_vec(file).ok()?;
        let mut rest = &bytes[..];
        let mut recorded = Self::default();
        for _ in 0..take_number(&mut rest)? {
            let start = VirtAddr(take_number(&mut rest)?);
            let end = VirtAddr(take_number(&mut rest)?);
            recorded.exports.text.push(start..end);
        }
        for _ in 0..take_number(&mut rest)? {
            let name = take_bytes(&mut rest)?.to_vec();
            let addr = VirtAddr(take_number(&mut rest)?);
            let name = String::from_utf8(name).ok()?;
            recorded.exports.variables.insert(name, addr);
        }
        let mut runs = Vec::new();
        let mut end = 0;
        for _ in 0..take_number(&mut rest)? {
            let start = end + take_number(&mut rest)?;
            let len = take_number(&mut rest)?;
            end = start + len;
            runs.push((start, gap(0, len)));
        }
        for (start, len) in runs {
            let (run, after) = rest.split_at_checked(len)?;
            recorded.image.runs.insert(start, run.to_vec());
            rest = after;
        }
        rest.is_empty().then_some(recorded)
    }
}

pub(crate) fn fixture_path(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/hotspot/testing/fixtures");
    folder.join(format!("{name}.deflate"))
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = gap(0, take_number(rest)?);
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

/// Check that runs that touch or overlap are joined, newer bytes on top, and that holes stay unreadable.
#[test]
fn image_joins_runs() {
    let mut image = Image::default();
    image.put(0x1000, b"aaaa");
    image.put(0x1008, b"cccc");
    image.put(0x1004, b"bb");
    assert_eq!(image.runs.len(), 2);
    image.put(0x1005, b"BBBC");
    assert_eq!(image.runs[&0x1000], b"aaaabBBBCccc");
    let mut buf = [0; 4];
    image.read(VirtAddr(0x1003), &mut buf).unwrap();
    assert_eq!(&buf, b"abBB");
    assert!(image.read(VirtAddr(0x1009), &mut buf).is_err());
    assert!(image.read(VirtAddr(0xfff), &mut buf).is_err());
}

/// Check that a recording that was written can be read again, and that one that is cut off cannot.
#[test]
fn recordings_survive_their_file() {
    let mut recorded = Recorded::default();
    recorded.exports.text.push(VirtAddr(1)..VirtAddr(0x7fff_0000_0000));
    let variable = ("gHotSpotVMStructs".to_owned(), VirtAddr(0x7000_0000));
    recorded.exports.variables.extend([variable]);
    recorded.image.put(0x1000, b"abc");
    recorded.image.put(0x7fff_0000_0000, &[7; 1000]);
    let file = recorded.to_file();
    assert_eq!(Recorded::from_file(&file), Some(recorded));
    assert_eq!(Recorded::from_file(&file[..file.len() - 1]), None);
}
