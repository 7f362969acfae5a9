//! Merges the pieces of a batch that lie in the same page before they are asked of the kernel.
//!
//! The price of `process_vm_readv` is the pinning of pages, one at least for each span, not the bytes copied. What
//! the VM allocates together lies together, so a third of the pages or less serve a batch. A merge never reaches into
//! a page that none of its pieces needs, so it cannot make a readable piece unreadable.

use std::ops::Range;

use super::memory::{Batch, MemoryError, Piece, RemoteMemory, distance};
use crate::model::VirtAddr;
use crate::sys::remote_memory::{MAX_SPANS, ProcessMemory, Span};

/// The smallest page of the supported machines. Where pages are larger fewer pieces merge, nothing else.
const PAGE: u64 = 4096;

impl RemoteMemory for ProcessMemory {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.read_exact(addr, buf)
    }

    fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        let mut order: Vec<usize> = (0..batch.pieces.len()).filter(|&index| batch.pieces[index].plausible).collect();
        order.sort_unstable_by_key(|&index| batch.pieces[index].addr);
        let merged = merge(&batch.pieces, &order);
        let mut scratch = Vec::new();
        for group in merged.chunks(MAX_SPANS) {
            self.read_group(batch, &order, group, &mut scratch)?;
        }
        Ok(())
    }
}

/// A span and the pieces that it serves, as a range of the order by address.
#[derive(Debug, PartialEq, Eq)]
struct Merged {
    span: Span,
    pieces: Range<usize>,
}

/// Joins neighbours: a piece joins the span before it if it starts in the page in which that span ends.
fn merge(pieces: &[Piece], order: &[usize]) -> Vec<Merged> {
    let mut merged: Vec<Merged> = Vec::new();
    for (position, &index) in order.iter().enumerate() {
        let Piece { addr, len, .. } = pieces[index];
        if let Some(last) = merged.last_mut() {
            let last_byte = last.span.addr.0 + (last.span.len as u64).saturating_sub(1);
            if addr.0 / PAGE <= last_byte / PAGE {
                let reach = distance(last.span.addr, addr) + len;
                last.span.len = last.span.len.max(reach);
                last.pieces.end = position + 1;
                continue;
            }
        }
        merged.push(Merged { span: Span { addr, len }, pieces: position..position + 1 });
    }
    merged
}

impl ProcessMemory {
    /// Reads up to [`MAX_SPANS`] spans and hands their bytes to their pieces.
    fn read_group(
        &self,
        batch: &mut Batch,
        order: &[usize],
        group: &[Merged],
        scratch: &mut Vec<u8>,
    ) -> Result<(), MemoryError> {
        let mut rest = group;
        while !rest.is_empty() {
            let spans: Vec<Span> = rest.iter().map(|merged| merged.span).collect();
            scratch.resize(spans.iter().map(|span| span.len).sum(), 0);
            let read = self.read_spans(&spans, scratch)?;
            let mut start = 0;
            for merged in &rest[..read] {
                let end = start + merged.span.len;
                hand_out(batch, order, merged, &scratch[start..end]);
                start = end;
            }
            if let Some(failed) = rest.get(read) {
                self.read_pieces(batch, &order[failed.pieces.clone()])?;
            }
            rest = rest.get(read + 1..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads one by one the pieces of a span that could not be read whole.
    fn read_pieces(&self, batch: &mut Batch, pieces: &[usize]) -> Result<(), MemoryError> {
        for &index in pieces {
            let piece = &mut batch.pieces[index];
            let buf = &mut batch.bytes[piece.start..piece.start + piece.len];
            piece.is_read = match self.read_exact(piece.addr, buf) {
                Ok(()) => true,
                Err(MemoryError::Unreadable { .. }) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }
}

/// Copies the bytes of a span to the pieces that it serves.
fn hand_out(batch: &mut Batch, order: &[usize], merged: &Merged, bytes: &[u8]) {
    for &index in &order[merged.pieces.clone()] {
        let piece = &mut batch.pieces[index];
        let from = distance(merged.span.addr, piece.addr);
        batch.bytes[piece.start..piece.start + piece.len].copy_from_slice(&bytes[from..from + piece.len]);
        piece.is_read = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspot::memory::number;
    use crate::model::Pid;

    fn merged_spans(wanted: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let mut batch = Batch::default();
        for &(addr, len) in wanted {
            batch.push(VirtAddr(addr), len);
        }
        let order: Vec<usize> = (0..wanted.len()).collect();
        merge(&batch.pieces, &order).iter().map(|merged| (merged.span.addr.0, merged.span.len)).collect()
    }

    /// Check that pieces of one page merge, that overlaps are taken in, and that no page is added.
    #[test]
    fn merges_within_pages() {
        assert_eq!(merged_spans(&[(0x1000, 8), (0x1010, 4), (0x1ff0, 8)]), [(0x1000, 0xff8)]);
        assert_eq!(merged_spans(&[(0x1ff0, 8), (0x2000, 8)]), [(0x1ff0, 8), (0x2000, 8)]);
        assert_eq!(merged_spans(&[(0x1ffc, 8), (0x2100, 8), (0x3000, 8)]), [(0x1ffc, 0x10c), (0x3000, 8)]);
        assert_eq!(merged_spans(&[(0x1000, 64), (0x1008, 8)]), [(0x1000, 64)]);
    }

    /// Check that a batch over our own memory gives each piece its bytes, holes and any order included.
    #[test]
    fn reads_own_memory() {
        let numbers: Vec<u32> = (0..50_000).collect();
        let base = numbers.as_ptr().addr() as u64;
        let mut batch = Batch::default();
        let picks: Vec<u64> = (0..5_000).map(|pick| pick * 7_919 % 50_000).collect();
        for &pick in &picks {
            batch.push(VirtAddr(base + pick * 4), 4);
        }
        batch.push(VirtAddr(0x1000), 8);
        ProcessMemory::new(Pid(std::process::id())).read_batch(&mut batch).unwrap();
        for (index, &pick) in picks.iter().enumerate() {
            assert_eq!(batch.get(index).map(number), Some(pick));
        }
        assert_eq!(batch.get(picks.len()), None);
    }
}
