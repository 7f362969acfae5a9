//! Recognises executables built by GraalVM native-image: they carry their Java heap in a section `.svm_heap`.
//!
//! The file is the target's and may be hostile, and every process of the host is asked: the check reads three small
//! pieces at most and never follows a size without a limit.

use crate::elf::{self, Elf, Limits};
use crate::sys::target_file::TargetFile;

const HEAP_SECTION: &str = ".svm_heap";
/// An executable has some tens of sections; one with more is not looked at.
const LIMITS: Limits = Limits { headers: 1024, names: 64 << 10, symbols: 0 };

/// Whether the file is such an executable. A file that cannot be read or is no 64-bit ELF file is none.
pub(super) fn is_native_image(file: &TargetFile) -> bool {
    let pieces = elf::pieces(file);
    let sections = Elf::parse(&pieces, LIMITS).and_then(|elf| elf.sections());
    sections.is_ok_and(|sections| sections.has(HEAP_SECTION))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn own(file: File) -> TargetFile {
        TargetFile::own(file).unwrap()
    }

    /// An ELF file of nothing but a header, the section names and the headers of two sections, the second of
    /// which holds the names.
    fn elf(section: &[u8], count: u16) -> TargetFile {
        let mut names = b"\0.shstrtab\0".to_vec();
        let section_name = u32::try_from(names.len()).unwrap();
        names.extend_from_slice(section);
        names.push(0);
        names.resize(64, 0);
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&128u64.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for half in [64, 56, 0, 64, count, 1] {
            bytes.extend_from_slice(&u16::to_le_bytes(half));
        }
        bytes.extend_from_slice(&names);
        for name in [section_name, 1] {
            let mut header = name.to_le_bytes().to_vec();
            header.resize(24, 0);
            header.extend_from_slice(&64u64.to_le_bytes());
            header.extend_from_slice(&64u64.to_le_bytes());
            header.resize(64, 0);
            bytes.extend_from_slice(&header);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        own(file)
    }

    /// Check that the section is what makes a native image, not a section whose name only begins like it.
    #[test]
    fn looks_for_the_heap_section() {
        assert!(is_native_image(&elf(b".svm_heap", 2)));
        assert!(!is_native_image(&elf(b".svm_heap2", 2)));
        assert!(!is_native_image(&elf(b".text", 2)));
    }

    /// Check that counts that lie and files that are no ELF are answered with no, not with a panic.
    #[test]
    fn survives_hostile_files() {
        assert!(!is_native_image(&elf(b".svm_heap", u16::MAX)));
        assert!(!is_native_image(&elf(b".svm_heap", 200)));
        assert!(!is_native_image(&elf(b".svm_heap", 0)));
        assert!(!is_native_image(&own(tempfile::tempfile().unwrap())));
    }

    /// Check that an ordinary executable, this test, is none.
    #[test]
    fn ordinary_programs_are_none() {
        assert!(!is_native_image(&own(File::open("/proc/self/exe").unwrap())));
    }
}
