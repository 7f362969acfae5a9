//! Fields to bytes, and back.

use super::{Error, Part};

/// Fills a buffer. What does not fit is not written, and [`Writer::written`] tells.
#[derive(Debug)]
pub(super) struct Writer<'b> {
    buffer: &'b mut [u8],
    at: usize,
}

impl<'b> Writer<'b> {
    pub(super) fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, at: 0 }
    }

    /// How many bytes were written; `None` if some did not fit.
    pub(super) fn written(self) -> Option<usize> {
        (self.at <= self.buffer.len()).then_some(self.at)
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.at.saturating_add(bytes.len());
        if let Some(place) = self.buffer.get_mut(self.at..end) {
            place.copy_from_slice(bytes);
        }
        self.at = end;
    }
}

/// Takes fields off a packet.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes have not been taken.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// A field that is the last: nothing may follow.
    pub(super) fn last<T: Part<'a>>(mut self) -> Result<T, Error> {
        let part = T::read(&mut self)?;
        if self.bytes.is_empty() { Ok(part) } else { Err(Error::Length) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Error::Length)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Error::Length)?;
        self.bytes = rest;
        Ok(*taken)
    }
}

/// A message without fields.
impl<'a> Part<'a> for () {
    fn write(&self, _to: &mut Writer<'_>) {}

    fn read(_from: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(())
    }
}

impl<'a> Part<'a> for u32 {
    fn write(&self, to: &mut Writer<'_>) {
        to.put(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        from.array().map(Self::from_le_bytes)
    }
}

impl<'a> Part<'a> for u64 {
    fn write(&self, to: &mut Writer<'_>) {
        to.put(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        from.array().map(Self::from_le_bytes)
    }
}

/// 32 bits: 0 or 1.
impl<'a> Part<'a> for bool {
    fn write(&self, to: &mut Writer<'_>) {
        u32::from(*self).write(to);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        match u32::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Value),
        }
    }
}

/// A text.
impl<'a> Part<'a> for &'a [u8] {
    fn write(&self, to: &mut Writer<'_>) {
        // A length that 32 bits cannot hold fits into no packet: what stands for it does not matter.
        u32::try_from(self.len()).unwrap_or(u32::MAX).write(to);
        to.put(self);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        let length = u32::read(from)?;
        from.take(usize::try_from(length).or(Err(Error::Length))?)
    }
}
