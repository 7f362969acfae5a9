//! The file that this library was loaded from, kept open: by its descriptor a later nprof has the VM load it again, also
//! when the file has been deleted.

#![expect(unsafe_code, reason = "asks the dynamic linker where it has put this library")]

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// As much of the file's beginning is compared: the headers of the ELF file and its build id.
const COMPARED: usize = 4_096;

/// Opens the file; `None` when what stands at its path by now is another one.
pub(crate) fn open() -> Option<OwnedFd> {
    let (path, base) = loaded()?;
    let file = File::open(path).ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let inode = inode_at(&maps, base)?;
    let is_it = file.metadata().is_ok_and(|metadata| metadata.ino() == inode)
        && beginning(&file, 0).ok()? == beginning(&File::open("/proc/self/mem").ok()?, base).ok()?;
    is_it.then(|| file.into())
}

/// The descriptor as a number for others, of a file that stays open.
pub(crate) fn number_of(file: Option<&OwnedFd>) -> Option<u32> {
    u32::try_from(file?.as_raw_fd()).ok()
}

/// Where this library was loaded from, and where to.
fn loaded() -> Option<(PathBuf, u64)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let here = (loaded as *const ()).cast::<libc::c_void>();
    // SAFETY: the variable takes what the linker knows of the address.
    if unsafe { libc::dladdr(here, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all its fields may be zero.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's name of the library is a C string, which stays as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((OsStr::from_bytes(name.to_bytes()).into(), info.dli_fbase.addr() as u64))
}

/// The inode of the file that is mapped at an address, by the text of `/proc/PID/maps`.
fn inode_at(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|bound| u64::from_str_radix(bound, 16));
        // After permissions, offset and device.
        (start.ok()?..end.ok()?).contains(&address).then(|| words.nth(3)?.parse().ok())?
    })
}

fn beginning(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; COMPARED];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the program that the tests are in is found.
    #[test]
    fn finds_itself() {
        let file: File = open().unwrap().into();
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        assert_eq!(file.metadata().unwrap().ino(), program.ino());
    }

    /// Check that the inode of the right line is read.
    #[test]
    fn reads_maps() {
        let maps = "1000-2000 r--p 00000000 08:01 17  /lib/a\n2000-3000 rw-p 00000000 00:00 0\n";
        assert_eq!(
            [0xfff, 0x1000, 0x1fff, 0x2000, 0x3000].map(|at| inode_at(maps, at)),
            [None, Some(17), Some(17), Some(0), None]
        );
    }
}
