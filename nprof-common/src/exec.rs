//! The record of a program's start, as it crosses the ring buffer.

/// A process has begun to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ExecEvent {
    /// The process, in the initial namespace.
    pub tgid: u32,
    /// Always zero: the ring buffer hands out multiples of 8 bytes.
    pub padding: u32,
}

const _: () = assert!(size_of::<ExecEvent>() == 8);

impl ExecEvent {
    /// The record of a process.
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32) -> Self {
        Self { tgid, padding: 0 }
    }

    /// Reads a record as the kernel laid it out; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; size_of::<Self>()] = bytes.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        Some(Self::new(u32::from_ne_bytes([a, b, c, d])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a record is read from where the kernel puts the field, and that no other length is taken for one.
    #[test]
    fn read_from_bytes() {
        let mut bytes = [0xff; size_of::<ExecEvent>()];
        bytes[..4].copy_from_slice(&4_194_304u32.to_ne_bytes());
        assert_eq!(ExecEvent::from_bytes(&bytes), Some(ExecEvent::new(4_194_304)));
        assert_eq!(ExecEvent::from_bytes(&bytes[..7]), None);
        assert_eq!(ExecEvent::from_bytes(&[0; 16]), None);
    }
}
