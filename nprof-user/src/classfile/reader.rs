//! Reads big-endian numbers out of bytes, and never beyond them.

/// Why bytes are no class file, or no piece of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at byte {at})")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Where, in bytes from the start of what was read.
    pub at: usize,
}

/// A place in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the start of `bytes` on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How much was read.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether all was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// That something is wrong here.
    #[must_use]
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(self.malformed("it ends too early"))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// At the end.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next two bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next two bytes, signed.
    ///
    /// # Errors
    /// At the end.
    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    /// The next four bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next four bytes, signed.
    ///
    /// # Errors
    /// At the end.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// The next bytes, of which the next four say how many they are.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn sized(&mut self) -> Result<&'a [u8], Malformed> {
        let size = self.u32()?;
        self.take(usize::try_from(size).unwrap_or(usize::MAX))
    }
}
