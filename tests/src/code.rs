//! A target's code: where its libraries are mapped, and whether a probe stands in it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The kernel removes probes when the last descriptor is closed, which a killed process does in the background.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// One file-backed mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMapping {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Whether it holds code.
    pub executable: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub path: PathBuf,
}

impl FileMapping {
    /// The file's name without directories.
    #[must_use]
    pub fn library(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// The file-backed mappings of a process.
///
/// # Errors
/// When the process has ended.
pub fn mappings(pid: u32) -> Result<Vec<FileMapping>> {
    let path = format!("/proc/{pid}/maps");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    Ok(text.lines().filter_map(parse_mapping).collect())
}

fn parse_mapping(line: &str) -> Option<FileMapping> {
    let (fields, path) = line.split_once('/')?;
    let words: Vec<&str> = fields.split_whitespace().collect();
    let (start, end) = words.first()?.split_once('-')?;
    Some(FileMapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        executable: words.get(1)?.contains('x'),
        offset: u64::from_str_radix(words.get(2)?, 16).ok()?,
        path: format!("/{path}").into(),
    })
}

/// Library and file offset of an address; `None` when no file backs it.
#[must_use]
pub fn locate(mappings: &[FileMapping], address: u64) -> Option<(String, u64)> {
    let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    Some((mapping.library().to_owned(), address - mapping.start + mapping.offset))
}

/// Those of some places (file offsets in a library) whose first byte differs in memory from the file: a probe is there.
///
/// # Errors
/// When the library is not mapped or cannot be read.
pub fn probed(pid: u32, library: &str, offsets: &[u64]) -> Result<Vec<u64>> {
    let mappings = mappings(pid)?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut probed = Vec::new();
    for &offset in offsets {
        let mapping = mappings
            .iter()
            .filter(|mapping| mapping.executable && mapping.library() == library)
            .find(|mapping| (mapping.offset..mapping.offset + mapping.end - mapping.start).contains(&offset))
            .with_context(|| format!("{library} is not mapped at {offset:#x}"))?;
        let in_memory = byte_at(&memory, offset - mapping.offset + mapping.start)?;
        if in_memory != byte_at(&File::open(&mapping.path)?, offset)? {
            probed.push(offset);
        }
    }
    Ok(probed)
}

/// Waits until no probe stands at the places, and returns those where one still does.
///
/// # Errors
/// As [`probed`].
pub fn still_probed(pid: u32, library: &str, offsets: &[u64]) -> Result<Vec<u64>> {
    let deadline = Instant::now() + REMOVED_WITHIN;
    loop {
        let left = probed(pid, library, offsets)?;
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        // Nothing announces the removal: there is only looking again.
        std::thread::sleep(PAUSE);
    }
}

fn byte_at(file: &File, offset: u64) -> Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).with_context(|| format!("reading a byte at {offset:#x}"))?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7f10-7f20 r-xp 00002000 fe:00 77   /usr/lib/my library.so";

    /// Check that a line of maps is understood, a space in the path included, and lines without a file are left out.
    #[test]
    fn parses_maps() {
        let mapping = parse_mapping(LINE).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset, mapping.executable), (0x7f10, 0x7f20, 0x2000, true));
        assert_eq!(mapping.library(), "my library.so");
        assert_eq!(parse_mapping("7f10-7f20 rw-p 00000000 00:00 0 [heap]"), None);
    }

    /// Check that an address becomes a file offset.
    #[test]
    fn locates_addresses() {
        let mappings = [parse_mapping(LINE).unwrap()];
        assert_eq!(locate(&mappings, 0x7f15), Some(("my library.so".into(), 0x2005)));
        assert_eq!(locate(&mappings, 0x7f20), None);
    }

    /// Check that this test's own code is found to be free of probes.
    #[test]
    fn own_code_carries_no_probe() {
        let own = mappings(std::process::id()).unwrap();
        let code = own.iter().find(|mapping| mapping.executable).unwrap();
        assert_eq!(probed(std::process::id(), code.library(), &[code.offset + 64]).unwrap(), [] as [u64; 0]);
    }
}
