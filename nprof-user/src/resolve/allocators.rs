//! The functions of a library by which programs get memory: what it exports under their names, if it has an allocator.

use std::ops::Range;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions};
use nprof_common::alloc::{AllocCookie, Request};

use super::code;
use super::image::{Image, ImageError};
use crate::model::{AllocatorSite, FileOffset};

/// Longer than any instruction, in bytes.
const LONGEST: usize = 15;
/// What processors with control-flow enforcement want to see where a function begins. It changes nothing, and a kernel would
/// single-step it.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The functions, and which of their arguments say how much is asked for. A function that may do its work by jumping to another
/// stands behind it.
const FUNCTIONS: [(&str, Request); 15] = [
    ("malloc", Request::First),
    ("realloc", Request::Second),
    ("aligned_alloc", Request::Second),
    ("memalign", Request::Second),
    ("posix_memalign", Request::Third),
    ("valloc", Request::First),
    ("pvalloc", Request::First),
    ("calloc", Request::FirstBySecond),
    ("reallocarray", Request::SecondByThird),
    // `operator new`, of allocators that have their own. That of libstdc++ calls `malloc`.
    ("_Znwm", Request::First),
    ("_Znam", Request::First),
    ("_ZnwmRKSt9nothrow_t", Request::First),
    ("_ZnamRKSt9nothrow_t", Request::First),
    ("_ZnwmSt11align_val_t", Request::First),
    ("_ZnamSt11align_val_t", Request::First),
];
const _: () = assert!(FUNCTIONS.len() <= AllocCookie::MAX_RANK as usize + 1);

/// A function that a library exports.
struct Function {
    code: Range<FileOffset>,
    request: Request,
    rank: u32,
}

/// Where the functions of the allocator can be probed that the library which `path` opens has; nowhere if it has none.
///
/// # Errors
/// If the file cannot be read or is no plausible 64-bit ELF file.
pub fn allocator_sites(path: &Path) -> Result<Vec<AllocatorSite>, ImageError> {
    let image = Image::open(path)?;
    let extents = image.exported(&FUNCTIONS.map(|(name, _)| name))?;
    let mut functions: Vec<Function> = Vec::new();
    for ((extent, rank), (_, request)) in extents.into_iter().zip(0..).zip(FUNCTIONS) {
        // One function may have several names.
        let Some(code) = extent.filter(|code| functions.iter().all(|known| known.code.start != code.start)) else {
            continue;
        };
        functions.push(Function { code, request, rank });
    }
    if functions.first().is_none_or(|first| first.rank != 0) {
        // What has no `malloc` is no allocator of its own: it has other functions of these names.
        return Ok(Vec::new());
    }
    let all = extent_of_all(&functions);
    functions.iter().filter_map(|function| site(&image, function, &all).transpose()).collect()
}

/// The code of the whole allocator: between its functions lies what they are made of. Functions that are far apart have other code
/// between them, which may well ask them for memory: then only what is known is their own.
fn extent_of_all(functions: &[Function]) -> Option<Range<u64>> {
    let first = functions.iter().map(|function| function.code.start.0).min()?;
    let end = functions.iter().map(|function| function.code.end.0).max()?;
    (end - first <= AllocCookie::MAX_REACH).then_some(first..end)
}

/// The place at the beginning of a function; `None` if the kernel takes no probe there.
fn site(image: &Image, function: &Function, all: &Option<Range<u64>>) -> Result<Option<AllocatorSite>, ImageError> {
    let entry = function.code.start;
    let bytes = image.code(entry, ENDBR64.len() + LONGEST)?;
    let skipped = if bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let offset = FileOffset(entry.0 + skipped as u64);
    let instruction = Decoder::with_ip(64, &bytes[skipped..], offset.0, DecoderOptions::NONE).decode();
    let code = all.clone().unwrap_or(entry.0..function.code.end.0);
    let reach = [offset.0 - code.start, code.end.saturating_sub(offset.0)].map(|far| far.min(AllocCookie::MAX_REACH));
    let cost = code::cost(&instruction, &bytes[skipped..]);
    let (request, rank) = (function.request, function.rank);
    Ok(cost.map(|cost| AllocatorSite { offset, cost, request, rank, reach }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library of this process.
    fn libc() -> std::path::PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_libc = |line: &str| {
            let path = line.split_whitespace().nth(5)?;
            path.rsplit('/').next()?.starts_with("libc.so").then(|| path.into())
        };
        maps.lines().find_map(of_libc).unwrap()
    }

    /// Check that the C library's functions are found, each once and not behind its arguments; that they are one allocator; and
    /// that a library without an allocator has none.
    #[test]
    fn functions_of_the_c_library() {
        let sites = allocator_sites(&libc()).unwrap();
        let ranks: Vec<u32> = sites.iter().map(|site| site.rank).collect();
        assert!(ranks.starts_with(&[0, 1]) && ranks.contains(&7) && ranks.is_sorted(), "{ranks:?}");
        let mut places: Vec<FileOffset> = sites.iter().map(|site| site.offset).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), sites.len());
        assert!(sites.iter().all(|site| site.reach.iter().sum::<u64>() >= 100), "{sites:?}");
        assert!(allocator_sites(&std::env::current_exe().unwrap()).unwrap().is_empty());
    }
}
