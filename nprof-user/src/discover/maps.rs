//! `/proc/PID/maps`: which parts of which files a process has mapped.
//!
//! Parsed here and not by `procfs`, which rejects the whole process for one path that is not UTF-8; a container
//! picks its file names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::model::{FileId, FileOffset, Mapping, VirtAddr};

/// Parses the file into its file-backed mappings, in order of address. The error is the line that makes no sense.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, &[u8]> {
    bytes
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| match parse_line(line) {
            Some(Line::File(mapping)) => Some(Ok(mapping)),
            Some(Line::NoFile) => None,
            None => Some(Err(line)),
        })
        .collect()
}

/// One line of the file.
enum Line {
    File(Mapping),
    /// Anonymous memory, or something of the kernel's such as `[vdso]` or `anon_inode:[perf_event]`.
    NoFile,
}

fn parse_line(line: &[u8]) -> Option<Line> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let mapping = Mapping {
        start: VirtAddr(hex(start)?),
        end: VirtAddr(hex(end)?),
        offset: FileOffset(hex(offset)?),
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        file: FileId { major: u32::try_from(hex(major)?).ok()?, minor: u32::try_from(hex(minor)?).ok()?, inode },
        path: fields.next().map(path).unwrap_or_default(),
    };
    let backed = inode != 0 && mapping.path.is_absolute();
    Some(if backed { Line::File(mapping) } else { Line::NoFile })
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// The path at the end of a line: padded with spaces on its left, and with each newline written as `\012`. A path
/// that really holds these four characters comes out wrong; whoever opens it compares the file's identity.
fn path(padded: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = b"\\012";
    let mut rest = padded.trim_ascii_start();
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &[u8]) -> Mapping {
        let mut mappings = parse(line).unwrap();
        assert_eq!(mappings.len(), 1);
        mappings.remove(0)
    }

    /// Check that every field of a line lands where it belongs, in its base.
    #[test]
    fn reads_a_line() {
        let mapping =
            one(b"7f10a0000000-7f10a0001000 r-xp 0001c000 fe:0a 1234                       /usr/lib/libzip.so\n");
        assert_eq!(mapping.start, VirtAddr(0x7f10_a000_0000));
        assert_eq!(mapping.end, VirtAddr(0x7f10_a000_1000));
        assert_eq!(mapping.offset, FileOffset(0x1c000));
        assert!(mapping.executable);
        let file = FileId { major: 0xfe, minor: 0x0a, inode: 1234 };
        assert_eq!(mapping.file, file);
        assert_eq!(mapping.path, PathBuf::from("/usr/lib/libzip.so"));
    }

    /// Check that spaces, newlines and bytes that are not UTF-8 survive in a path.
    #[test]
    fn keeps_odd_paths() {
        let mapping = one(b"1000-2000 r--p 00000000 08:01 7   /opt/my  app\\012/\xff.so (deleted)");
        let path = mapping.path.into_os_string().into_vec();
        assert_eq!(path, b"/opt/my  app\n/\xff.so (deleted)");
    }

    /// Check that memory without a file behind it is left out.
    #[test]
    fn leaves_out_what_no_file_backs() {
        let text: &[u8] = b"1000-2000 rw-p 00000000 00:00 0 \n2000-3000 r-xp 00000000 00:00 0   [vdso]\n\
            3000-4000 rw-s 00000000 00:0d 1054   anon_inode:[perf_event]\n";
        assert_eq!(parse(text).unwrap(), []);
    }

    /// Check that a broken line is reported instead of skipped.
    #[test]
    fn reports_a_broken_line() {
        let text: &[u8] = b"1000-2000 rw-p 00000000 00:00 0 \nnonsense\n";
        assert_eq!(parse(text), Err(&b"nonsense"[..]));
    }
}
