//! Two names in a few words, and comparing them with strings of the program.

#![expect(unsafe_code, reason = "reads strings of the program")]

use std::ffi::c_char;

/// Room for two names and what ends them, in words.
pub(super) const WORDS: usize = 28;
const BYTES: usize = 8 * WORDS;
/// No page is smaller.
const PAGE: usize = 4_096;

/// Two strings that each end with a zero byte, each from the beginning of a word on.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Texts {
    words: [u64; WORDS],
    /// How many bytes they have with their ends.
    lengths: [u16; 2],
}

impl Texts {
    /// A copy of two strings; `None` if there is not enough room.
    ///
    /// # Safety
    /// They are C strings.
    pub(super) unsafe fn copy(strings: [*const c_char; 2]) -> Option<Self> {
        let mut texts = Self { words: [0; WORDS], lengths: [0; 2] };
        let mut first = 0;
        for (string, length) in strings.into_iter().zip(&mut texts.lengths) {
            let mut at = 0;
            loop {
                // SAFETY: not beyond the end of the caller's string.
                let byte = unsafe { string.cast::<u8>().wrapping_add(at).read() };
                let place = first + at;
                *texts.words.get_mut(place / 8)? |= u64::from(byte) << (8 * (place % 8));
                at += 1;
                if byte == 0 {
                    break;
                }
            }
            *length = u16::try_from(at).ok()?;
            first = (first + at).next_multiple_of(8);
        }
        Some(texts)
    }

    /// Whether two copies are of the same strings.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.lengths == other.lengths && self.words == other.words
    }

    /// The two strings.
    pub(super) fn strings(&self) -> [*const c_char; 2] {
        let second = self.words_of_first().min(WORDS);
        [self.words.as_ptr().cast(), self.words[second..].as_ptr().cast()]
    }

    fn words_of_first(&self) -> usize {
        usize::from(self.lengths[0]).div_ceil(8)
    }

    /// Whether two strings are the same.
    ///
    /// # Safety
    /// They are C strings.
    #[inline]
    pub(super) unsafe fn are(&self, strings: [*const c_char; 2]) -> bool {
        let (first, second) = self.words.split_at(self.words_of_first().min(WORDS));
        // SAFETY: the caller's string.
        let is_first = unsafe { is_same(strings[0], first, self.lengths[0]) };
        // SAFETY: the caller's string.
        is_first && unsafe { is_same(strings[1], second, self.lengths[1]) }
    }
}

/// A number for how a string begins: for its first 16 bytes, if they are in one page. Programs put one name after another into a buffer.
///
/// # Safety
/// It is a C string.
#[inline]
pub(super) unsafe fn beginning(string: *const c_char) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    if string.addr() % PAGE > PAGE - 16 {
        return 0;
    }
    // SAFETY: in the page that the string begins in.
    let first = unsafe { string.cast::<u64>().read_unaligned() };
    // The lowest bit that is set is the highest of the first byte that is zero.
    let ends = |word: u64| word.wrapping_sub(ONES) & !word & ONES << 7;
    let until = |word: u64| match ends(word) {
        0 => word,
        end => word & (end & end.wrapping_neg()).wrapping_sub(1),
    };
    if ends(first) != 0 {
        return until(first);
    }
    // SAFETY: as above.
    let second = unsafe { string.cast::<u64>().wrapping_add(1).read_unaligned() };
    first ^ until(second).rotate_left(31)
}

/// Whether a string has these bytes, its end among them.
///
/// # Safety
/// It is a C string.
#[inline]
unsafe fn is_same(string: *const c_char, words: &[u64], length: u16) -> bool {
    let length = usize::from(length).min(BYTES);
    let (whole, rest) = (length / 8, length % 8);
    if string.addr() % PAGE + length.next_multiple_of(8) > PAGE {
        // SAFETY: the caller's string.
        return unsafe { is_same_by_bytes(string, words, length) };
    }
    // Words are read that may begin in the string and end behind it, or begin behind it: all in the page that the string begins in.
    let mut differences = 0;
    for (at, word) in words.iter().enumerate().take(whole) {
        // SAFETY: in a page that can be read.
        differences |= unsafe { string.cast::<u64>().wrapping_add(at).read_unaligned() } ^ word;
    }
    if let Some(word) = words.get(whole).filter(|_| rest > 0) {
        // SAFETY: in a page that can be read.
        let last = unsafe { string.cast::<u64>().wrapping_add(whole).read_unaligned() } ^ word;
        differences |= last << (64 - 8 * rest);
    }
    differences == 0
}

/// The same without reading behind the string's end.
///
/// # Safety
/// It is a C string.
unsafe fn is_same_by_bytes(string: *const c_char, words: &[u64], length: usize) -> bool {
    (0..length).all(|at| {
        let word = words.get(at / 8).copied().unwrap_or(0);
        let expected = word.to_le_bytes()[at % 8];
        // SAFETY: all before it were as expected, and none of these was the end.
        unsafe { string.cast::<u8>().wrapping_add(at).read() == expected }
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};
    use std::ptr::null_mut;

    use super::*;

    fn texts(name: &CStr, signature: &CStr) -> Option<Texts> {
        // SAFETY: C strings.
        unsafe { Texts::copy([name.as_ptr(), signature.as_ptr()]) }
    }

    fn are(texts: &Texts, name: &CStr, signature: &CStr) -> bool {
        // SAFETY: C strings.
        unsafe { texts.are([name.as_ptr(), signature.as_ptr()]) }
    }

    /// Check strings of all lengths with themselves, and with what is shorter, longer and different in any byte.
    #[test]
    fn compares_all_lengths() {
        for length in 0..60 {
            let name = CString::new(vec![b'n'; length]).unwrap();
            for other in 0..20 {
                let signature = CString::new(vec![b's'; other]).unwrap();
                let texts = texts(&name, &signature).unwrap();
                assert!(are(&texts, &name, &signature));
                for wrong in [length + 1, length + 8, length.wrapping_sub(1), length / 2] {
                    if wrong != length && wrong < 100 {
                        assert!(!are(&texts, &CString::new(vec![b'n'; wrong]).unwrap(), &signature));
                    }
                }
                for at in 0..other {
                    let mut bytes = vec![b's'; other];
                    bytes[at] = b't';
                    assert!(!are(&texts, &name, &CString::new(bytes).unwrap()));
                }
                let [first, second] = texts.strings();
                // SAFETY: the copy of a C string.
                assert_eq!(unsafe { CStr::from_ptr(first) }, &*name);
                // SAFETY: the copy of a C string.
                assert_eq!(unsafe { CStr::from_ptr(second) }, &*signature);
            }
        }
    }

    /// Check that what is behind a string's end does not count, and its first bytes do.
    #[test]
    fn beginnings() {
        // SAFETY: C strings.
        let number = |bytes: &[u8]| unsafe { beginning(bytes.as_ptr().cast()) };
        for length in 0..15 {
            let [one, other] = [b'a', b'b'].map(|behind| {
                let mut bytes = [behind; 32];
                bytes[..length].fill(b'x');
                bytes[length] = 0;
                bytes
            });
            assert_eq!(number(&one), number(&other), "{length}");
            let mut longer = one;
            longer[length] = b'y';
            longer[length + 1] = 0;
            assert_ne!(number(&one), number(&longer), "{length}");
        }
    }

    /// Check that what does not fit is refused.
    #[test]
    fn has_an_end() {
        let long = CString::new(vec![b'x'; BYTES]).unwrap();
        assert!(texts(&long, c"").is_none() && texts(c"", &long).is_none());
        let most = CString::new(vec![b'x'; BYTES - 9]).unwrap();
        assert!(are(&texts(&most, c"()V").unwrap(), &most, c"()V"));
    }

    /// Check a string at the very end of what can be read: nothing behind it is.
    #[test]
    fn reads_nothing_behind_a_page() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let pages = unsafe { libc::mmap(null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        // SAFETY: its second page, which nobody uses.
        assert_eq!(unsafe { libc::mprotect(pages.wrapping_byte_add(PAGE), PAGE, libc::PROT_NONE) }, 0);
        let texts = texts(c"a name that is longer", c"()V").unwrap();
        for length in 1..20 {
            let string = pages.wrapping_byte_add(PAGE - length).cast::<u8>();
            // SAFETY: its last bytes.
            unsafe { std::slice::from_raw_parts_mut(string, length - 1) }
                .copy_from_slice(&b"a name that is longer"[..length - 1]);
            // SAFETY: its last byte.
            unsafe { string.wrapping_add(length - 1).write(0) };
            // SAFETY: a C string at the end of a page.
            assert!(!unsafe { texts.are([string.cast(), c"()V".as_ptr()]) });
        }
    }
}
