//! How a stub finds the shard of its CPU, and whether it may add without a lock.

#![expect(unsafe_code, reason = "asks the dynamic linker for what the C library says about restartable sequences")]

use std::arch::x86_64::__cpuid_count;
use std::ffi::CStr;

/// Ways to find a shard, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Restartable sequences, without a lock. The number is the offset of each thread's area from its thread pointer.
    Rseq(isize),
    /// The `rdpid` instruction, with a lock.
    Rdpid,
    /// The limit of a segment that the kernel keeps per CPU, with a lock. Slower, and everywhere. (`rdtscp` says the
    /// same, but destroys two registers that carry arguments.)
    SegmentLimit,
}

impl Sharding {
    /// The number that stands for [`Self::Rseq`] in the stubs' settings. The least, as the stubs' code knows.
    pub(crate) const RSEQ: u32 = 0;
    /// The number that stands for [`Self::Rdpid`].
    pub(crate) const RDPID: u32 = 1;

    /// The best that works in this process.
    #[must_use]
    pub fn best() -> Self {
        Self::all().next().unwrap_or(Self::SegmentLimit)
    }

    /// All that work in this process, best first.
    pub fn all() -> impl Iterator<Item = Self> {
        [rseq(), rdpid(), Some(Self::SegmentLimit)].into_iter().flatten()
    }

    /// Its number, as `Hello` says it.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.words().0
    }

    /// Its number, and the offset where it has one, for the stubs' settings.
    pub(crate) const fn words(self) -> (u32, usize) {
        match self {
            Self::Rseq(offset) => (Self::RSEQ, offset.cast_unsigned()),
            Self::Rdpid => (Self::RDPID, 0),
            Self::SegmentLimit => (2, 0),
        }
    }
}

/// Since 2.35 the GNU C library registers each thread with the kernel, and says where; unless it was told not to, or
/// the kernel refused: then the size is zero.
fn rseq() -> Option<Sharding> {
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    // SAFETY: the C library defines this constant as an unsigned int.
    let size = unsafe { size.read() };
    // SAFETY: the C library defines this constant as a ptrdiff_t.
    let offset = unsafe { offset.read() };
    (size > 0).then_some(Sharding::Rseq(offset))
}

fn rdpid() -> Option<Sharding> {
    const LEAF: u32 = 7;
    const RDPID_IN_ECX: u32 = 1 << 22;
    let highest = __cpuid_count(0, 0).eax;
    let has = highest >= LEAF && __cpuid_count(LEAF, 0).ecx & RDPID_IN_ECX != 0;
    has.then_some(Sharding::Rdpid)
}

/// A variable that some library of this process defines.
fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: the name is a C string; the call has no other conditions.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}
