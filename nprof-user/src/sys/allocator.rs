//! How the C library's allocator treats what was given back to it.
//!
//! By itself it keeps a heap for each thread that ever allocated, and keeps freed blocks of tens of megabytes for the
//! next of that size. nprof has many threads that work in turn, and a scrape makes one such block: each thread that
//! ever answered one would keep its own for good.

/// Blocks from this size on are the system's again as soon as they are freed, in bytes.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

/// Has the allocator keep one heap for all threads, and give back what is large. To be called before there are others.
///
/// Where this is not possible, nprof takes more memory and works as well.
pub fn be_frugal() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)] {
        set(option, value);
    }
}

/// Gives back the free pages between blocks that are in use. To take in a JVM takes a multiple of what is kept of it.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the C library's call")]
    // SAFETY: the call takes a number, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's call")]
fn set(option: libc::c_int, value: libc::c_int) {
    // SAFETY: the call takes two numbers, and refuses those that it does not know.
    let is_set = unsafe { libc::mallopt(option, value) } == 1;
    if !is_set {
        tracing::debug!("the allocator does not know option {option}: nprof may take more memory");
    }
}
