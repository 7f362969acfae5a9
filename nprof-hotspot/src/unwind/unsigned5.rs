//! The VM's packed numbers (UNSIGNED5): one to five bytes, small numbers in one. Used by scopes and line tables.

/// Bytes below this end a number.
const LAST_BYTES: u32 = 192;
/// A number has no more bytes.
const MAX_BYTES: u32 = 5;

/// Reads packed numbers from bytes.
#[derive(Debug, Clone)]
pub(super) struct Unsigned5<'a> {
    bytes: &'a [u8],
    /// What each byte is higher by than what it stands for: since JDK 20 zero bytes do not occur.
    excess: u32,
}

impl<'a> Unsigned5<'a> {
    pub(super) fn new(bytes: &'a [u8], excess: u8) -> Self {
        Self { bytes, excess: u32::from(excess) }
    }

    /// The next byte as it is.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// The next number; `None` at the end of the bytes, or where a byte cannot belong to a number.
    pub(super) fn number(&mut self) -> Option<u32> {
        let mut sum: u32 = 0;
        for position in 0..MAX_BYTES {
            let byte = u32::from(self.byte()?);
            let digit = byte.checked_sub(self.excess)?;
            sum = sum.wrapping_add(digit << (6 * position));
            if byte < LAST_BYTES {
                break;
            }
        }
        Some(sum)
    }

    /// The next number as a signed one: the lowest bit is the sign.
    pub(super) fn signed(&mut self) -> Option<i32> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs a number as the VM does.
    fn packed(mut value: u32, excess: u8) -> Vec<u8> {
        let last = LAST_BYTES - u32::from(excess);
        let mut bytes = Vec::new();
        while value >= last && bytes.len() < 4 {
            value -= last;
            bytes.push(u8::try_from(last + value % 64).unwrap() + excess);
            value /= 64;
        }
        bytes.push(u8::try_from(value).unwrap() + excess);
        bytes
    }

    /// Check that what was packed is read again, at every border of length, in both forms.
    #[test]
    fn reads_what_was_packed() {
        for excess in [0, 1] {
            for value in [0, 1, 190, 191, 192, 255, 12_479, 12_480, 65_535, 798_911, 51_130_560, u32::MAX] {
                let bytes = packed(value, excess);
                assert_eq!(Unsigned5::new(&bytes, excess).number(), Some(value), "{bytes:?}");
            }
        }
    }

    /// Check that signs are read.
    #[test]
    fn reads_signs() {
        let signed = |byte| Unsigned5::new(&[byte], 0).signed();
        assert_eq!([signed(0), signed(1), signed(2), signed(3)], [Some(0), Some(-1), Some(1), Some(-2)]);
    }

    /// Check that a cut number and an excluded byte give none.
    #[test]
    fn refuses_damaged_numbers() {
        assert_eq!(Unsigned5::new(&[], 0).number(), None);
        assert_eq!(Unsigned5::new(&[200], 0).number(), None);
        assert_eq!(Unsigned5::new(&[0], 1).number(), None);
    }
}
