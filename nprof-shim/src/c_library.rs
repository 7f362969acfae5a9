//! Makes the library load into JVMs with another C library than that of the machine where it was built: an older glibc, or
//! musl.
//!
//! A container has its own glibc, often years older than the host's. What the linker finds here for a function is its
//! newest version, and a library with one of those does not load where it is not known. For threads and the loader the
//! newest are the same as the oldest, only moved from one file to another in glibc 2.34; a few functions for files were
//! added as such in 2.28 to 2.33, and are system calls. So the build leads each of these to an entry here (`build.rs` has
//! the same list, for the linker's `--wrap`), which goes on to the old one. What stays needs glibc 2.18.
//!
//! musl knows no versions and takes `libc.so.6` for itself, but no other file of glibc's can be had there. So none may be
//! needed: what unwinds panics is linked in, and the two functions that would come from the dynamic linker's own file are
//! written here.

#![cfg(target_env = "gnu")]
#![expect(unsafe_code, reason = "the entries are written in assembler, and take the place of functions in C")]

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::{AtomicPtr, Ordering};

global_asm!(
    include_str!("c_library.s"),
    STAT = const libc::SYS_stat,
    FSTAT = const libc::SYS_fstat,
    LSTAT = const libc::SYS_lstat,
    GETTID = const libc::SYS_gettid,
    STATX = const libc::SYS_statx,
    TLS_ADDRESS = sym tls_address,
    FIND_OBJECT = sym find_object,
);

/// `__tls_get_addr`: where a variable of the thread's is. It is looked for by its name, since to link with it would be to need
/// glibc's linker.
extern "C" fn tls_address(place: *mut c_void) -> *mut c_void {
    static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: the name is a C string. Both C libraries have the function.
        function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tls_get_addr".as_ptr()) };
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        // SAFETY: nothing that follows could work.
        unsafe { libc::abort() };
    }
    // SAFETY: the function of that name has this type.
    let function = unsafe { transmute::<*mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(function) };
    function(place)
}

/// What `_dl_find_object` tells (`struct dl_find_object` of glibc 2.35 on x86-64).
#[repr(C)]
struct Object {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// An address, and what is found out about it.
struct Search {
    address: usize,
    found: Option<Object>,
}

/// `_dl_find_object`, which older versions of glibc and musl do not have: what is loaded at an address, and where its unwind
/// information is. 0 if there is something.
extern "C" fn find_object(address: *mut c_void, result: *mut Object) -> c_int {
    let mut search = Search { address: address.addr(), found: None };
    // SAFETY: the function is called with this variable, and only until this returns.
    unsafe { libc::dl_iterate_phdr(Some(examine), (&raw mut search).cast()) };
    match search.found {
        // SAFETY: the caller's variable.
        Some(object) => unsafe { result.write(object) },
        None => return -1,
    }
    0
}

/// Whether an object is the one that is looked for: then there is no need to go on.
unsafe extern "C" fn examine(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: what `find_object` has passed.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the linker's own description of an object.
    let info = unsafe { &*info };
    // SAFETY: the linker's table, of that length.
    let headers = unsafe { &*slice_from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = usize::try_from(info.dlpi_addr).unwrap_or(0);
    let at = |header: &libc::Elf64_Phdr| base.wrapping_add(usize::try_from(header.p_vaddr).unwrap_or(0));
    let end = |header: &libc::Elf64_Phdr| at(header).wrapping_add(usize::try_from(header.p_memsz).unwrap_or(0));
    let is_loaded = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
    let mut loaded = headers.iter().filter(is_loaded);
    let segment = loaded.find(|header| (at(header)..end(header)).contains(&search.address));
    let unwinding = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    search.found = segment.zip(unwinding).map(|(segment, unwinding)| Object {
        flags: 0,
        map_start: at(segment),
        map_end: end(segment),
        link_map: 0,
        eh_frame: at(unwinding),
        reserved: [0; 7],
    });
    c_int::from(search.found.is_some())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    /// Check that the object of a function is found with its unwind information, and none where nothing is loaded.
    #[test]
    fn finds_objects() {
        let mut object = MaybeUninit::<Object>::uninit();
        let here = find_object as *const () as *mut c_void;
        assert_eq!(find_object(here, object.as_mut_ptr()), 0);
        // SAFETY: it has been written.
        let object = unsafe { object.assume_init() };
        assert!((object.map_start..object.map_end).contains(&here.addr()));
        // SAFETY: the header of the unwind information begins with its version, which is 1.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u8>(object.eh_frame).read() }, 1);
        assert_eq!(find_object(null_mut(), MaybeUninit::<Object>::uninit().as_mut_ptr()), -1);
    }

    /// Check that a thread's variable is where the linker says.
    #[test]
    fn finds_variables_of_threads() {
        // The first module is the program, whose variables begin somewhere.
        let place = [1_usize, 0];
        assert!(!tls_address(place.as_ptr().cast_mut().cast()).is_null());
    }
}
