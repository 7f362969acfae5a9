//! The seam between the inventory and the process that it reads: memory that may be missing, torn or hostile.
//!
//! A [`Batch`] collects small exact pieces that are read in as few system calls as possible. A piece that cannot be
//! read is an answer (`None`), not an error: classes come and go while they are read. An error means that no read
//! will work.

use super::share::Share;
use crate::model::VirtAddr;
pub use crate::sys::remote_memory::MemoryError;

/// Addresses below are the zero page, which nothing of the VM's lies in.
const LOWEST: u64 = 0x1000;
/// User space on x86-64 and aarch64 with 48-bit addresses ends at or before this.
const END: u64 = 1 << 47;

/// Items whose numbers are read together: a batch takes a hundred bytes and more for each.
const ITEMS_AT_ONCE: usize = 1 << 12;

/// The memory of a process, or a stand-in for it.
pub trait RemoteMemory {
    /// Fills `buf` from `addr` on, whole or not at all.
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError>;

    /// Reads every piece of `batch` that can be read.
    ///
    /// # Errors
    /// Only what makes all reads fail (permission, the process has ended); never [`MemoryError::Unreadable`].
    fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        batch.fill(|addr, buf| self.read(addr, buf))
    }

    /// The same, of what stands there now: nothing that was kept of earlier reads will do.
    ///
    /// # Errors
    /// As [`Self::read_batch`].
    fn read_again(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        self.read_batch(batch)
    }

    /// Forgets what it keeps of earlier reads, if it keeps any.
    fn forget(&self) {}
}

impl<M: RemoteMemory + ?Sized> RemoteMemory for &M {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        (**self).read(addr, buf)
    }

    fn read_batch(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        (**self).read_batch(batch)
    }

    fn read_again(&self, batch: &mut Batch) -> Result<(), MemoryError> {
        (**self).read_again(batch)
    }

    fn forget(&self) {
        (**self).forget();
    }
}

/// Whether `addr` may be an address of user space at all.
pub(crate) fn is_plausible(addr: VirtAddr) -> bool {
    (LOWEST..END).contains(&addr.0)
}

/// The address `offset` bytes after `base`. One that would wrap around is not plausible, so it is never read.
pub(crate) fn at(base: VirtAddr, offset: u64) -> VirtAddr {
    VirtAddr(base.0.saturating_add(offset))
}

/// How many bytes `to` lies after `from`; 0 if it does not.
pub(crate) fn distance(from: VirtAddr, to: VirtAddr) -> usize {
    usize::try_from(to.0.saturating_sub(from.0)).unwrap_or(usize::MAX)
}

/// Small pieces of memory, to be read together.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) pieces: Vec<Piece>,
    pub(super) bytes: Vec<u8>,
}

/// One piece of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) addr: VirtAddr,
    /// Where in [`Batch::bytes`] it is put.
    pub(super) start: usize,
    pub(super) len: usize,
    /// Whether it lies where memory can be at all.
    pub(super) plausible: bool,
    pub(super) is_read: bool,
}

impl Batch {
    /// Forgets all pieces and keeps the room that they took.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
    }

    /// Adds `len` bytes at `addr`. Pieces are numbered from 0 in the order in which they are added.
    pub fn push(&mut self, addr: VirtAddr, len: usize) {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.pieces.push(Piece {
            addr,
            start,
            len,
            plausible: is_plausible(addr) && is_plausible(at(addr, len as u64)),
            is_read: false,
        });
    }

    /// Address and size of each piece.
    pub(super) fn spans(&self) -> impl Iterator<Item = (VirtAddr, usize)> + '_ {
        self.pieces.iter().map(|piece| (piece.addr, piece.len))
    }

    /// The bytes of piece `index`, if they could be read.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let piece = self.pieces.get(index).filter(|piece| piece.is_read)?;
        self.bytes.get(piece.start..piece.start + piece.len)
    }

    /// Reads piece after piece with `read`.
    ///
    /// # Errors
    /// The first error that is not [`MemoryError::Unreadable`].
    pub fn fill(
        &mut self,
        mut read: impl FnMut(VirtAddr, &mut [u8]) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        for piece in self.pieces.iter_mut().filter(|piece| piece.plausible) {
            let buf = &mut self.bytes[piece.start..piece.start + piece.len];
            piece.is_read = match read(piece.addr, buf) {
                Ok(()) => true,
                Err(MemoryError::Unreadable { .. }) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }
}

/// A little-endian number of up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A memory with the batch that its reads share.
#[derive(Debug)]
pub(crate) struct Reader<M> {
    memory: M,
    batch: Batch,
    /// What may be taken for what is read, where that is counted.
    share: Option<Share>,
}

impl<M: RemoteMemory> Reader<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, batch: Batch::default(), share: None }
    }

    /// The same, with a share of what is taken for all targets.
    pub(super) fn with_share(memory: M, share: Share) -> Self {
        Self { share: Some(share), ..Self::new(memory) }
    }

    /// Gives back the room of the last reads. To be called when none is to follow for a while: thousands of pieces take
    /// hundreds of kilobytes, for each target.
    pub(super) fn rest(&mut self) {
        self.batch = Batch::default();
    }

    /// The share, if there is one.
    pub(super) fn share(&mut self) -> Option<&mut Share> {
        self.share.as_mut()
    }

    /// Takes so many bytes for something that is read.
    ///
    /// # Errors
    /// If that is too much for one target, or all.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), MemoryError> {
        self.share.as_mut().map_or(Ok(()), |share| share.take(bytes))
    }

    /// Forgets what the memory keeps of earlier reads.
    pub(crate) fn forget(&self) {
        self.memory.forget();
    }

    /// Reads bytes that must be there.
    pub(crate) fn bytes(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        let len = buf.len();
        if is_plausible(addr) && is_plausible(at(addr, len as u64)) {
            return self.memory.read(addr, buf);
        }
        Err(MemoryError::Unreadable { addr, len })
    }

    /// Reads a pointer that must be there.
    pub(crate) fn pointer(&self, addr: VirtAddr) -> Result<VirtAddr, MemoryError> {
        let mut buf = [0; 8];
        self.bytes(addr, &mut buf)?;
        Ok(VirtAddr(u64::from_le_bytes(buf)))
    }

    /// Reads `N` numbers of one to eight bytes, given as address and width: all or `None`.
    pub(crate) fn numbers<const N: usize>(
        &mut self,
        wanted: [(VirtAddr, usize); N],
    ) -> Result<Option<[u64; N]>, MemoryError> {
        self.batch.clear();
        for (addr, width) in wanted {
            self.batch.push(addr, width);
        }
        self.memory.read_batch(&mut self.batch)?;
        Ok(self.group(0))
    }

    /// Reads `N` numbers for each of `items`, in as few batches as memory allows.
    pub(crate) fn numbers_of<T, const N: usize>(
        &mut self,
        items: &[T],
        wanted: impl Fn(&T) -> [(VirtAddr, usize); N],
    ) -> Result<Vec<Option<[u64; N]>>, MemoryError> {
        let mut numbers = Vec::with_capacity(items.len());
        for items in items.chunks(ITEMS_AT_ONCE) {
            self.batch.clear();
            for (addr, width) in items.iter().flat_map(&wanted) {
                self.batch.push(addr, width);
            }
            self.memory.read_batch(&mut self.batch)?;
            numbers.extend((0..items.len()).map(|item| self.group(item * N)));
        }
        Ok(numbers)
    }

    /// Reads the number at each of `places`, as it is now, in one batch.
    pub(crate) fn numbers_again(&mut self, places: &[(VirtAddr, usize)]) -> Result<Vec<Option<u64>>, MemoryError> {
        self.batch.clear();
        for &(addr, width) in places {
            self.batch.push(addr, width);
        }
        self.memory.read_again(&mut self.batch)?;
        Ok((0..places.len()).map(|place| self.batch.get(place).map(number)).collect())
    }

    /// Reads a run of bytes for each of `items`, in one batch, and passes each to `take`, `None` where it is missing.
    pub(crate) fn runs_of<T>(
        &mut self,
        items: &[T],
        wanted: impl Fn(&T) -> (VirtAddr, usize),
        mut take: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), MemoryError> {
        self.batch.clear();
        for item in items {
            let (addr, len) = wanted(item);
            self.batch.push(addr, len);
        }
        self.memory.read_batch(&mut self.batch)?;
        for index in 0..items.len() {
            take(index, self.batch.get(index));
        }
        Ok(())
    }

    /// The `N` numbers from piece `first` on, if all could be read.
    fn group<const N: usize>(&self, first: usize) -> Option<[u64; N]> {
        let mut values = [0; N];
        for (offset, value) in values.iter_mut().enumerate() {
            *value = number(self.batch.get(first + offset)?);
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ramp;

    impl RemoteMemory for Ramp {
        fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
            if addr.0 >= 0x5000 {
                return Err(MemoryError::Unreadable { addr, len: buf.len() });
            }
            for (offset, byte) in buf.iter_mut().enumerate() {
                *byte = u8::try_from((addr.0 + offset as u64) % 256).unwrap();
            }
            Ok(())
        }
    }

    /// Check that numbers are little-endian and that one missing piece voids its group alone.
    #[test]
    fn missing_pieces_void_their_group() {
        let mut reader = Reader::new(Ramp);
        let items = [VirtAddr(0x2001), VirtAddr(0x4ffe), VirtAddr(0x4000)];
        let found = reader.numbers_of(&items, |&addr| [(addr, 2), (at(addr, 2), 1)]).unwrap();
        assert_eq!(found, [Some([0x0201, 3]), None, Some([0x0100, 2])]);
    }

    /// Check that addresses outside of user space are never passed on to the memory.
    #[test]
    fn implausible_addresses_are_not_read() {
        struct Never;
        impl RemoteMemory for Never {
            fn read(&self, addr: VirtAddr, _buf: &mut [u8]) -> Result<(), MemoryError> {
                panic!("read {addr}");
            }
        }
        let mut reader = Reader::new(Never);
        for addr in [0, 0xfff, END - 4, END, u64::MAX - 2] {
            assert_eq!(reader.numbers([(VirtAddr(addr), 8)]).unwrap(), None);
            assert!(reader.pointer(VirtAddr(addr)).is_err());
        }
    }
}
