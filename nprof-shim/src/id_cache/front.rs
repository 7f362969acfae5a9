//! Our functions: what native code calls.
//!
//! Each passes on to [`look_up`] where it was called from and which function it is.

#![expect(unsafe_code, reason = "is called by native code in the place of functions of the VM")]

use std::arch::global_asm;
use std::arch::x86_64::_rdtsc;
use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::sync::atomic::Ordering;

use jvmti_bindings::sys::jni::{JNIEnv, jclass};

use super::entries::{Asked, Kept};
use super::rows::{Row, Site};
use super::texts::Texts;
use super::{CACHE, Cache, FUNCTIONS};
use crate::entry;
use crate::jni::Jni;

/// A method or field of the VM's, or null.
type Id = *mut c_void;
/// A function that looks ids up.
type LookUp = unsafe extern "C" fn(*mut JNIEnv, jclass, *const c_char, *const c_char) -> Id;
/// A hit that took more ticks, or an original, was interrupted: its time is nobody's.
const MOST_TICKS: u64 = 1 << 16;

global_asm!(
    ".macro nprof_look_up name, number",
    ".p2align 4",
    ".globl nprof_look_up_\\name",
    ".hidden nprof_look_up_\\name",
    ".type nprof_look_up_\\name, @function",
    "nprof_look_up_\\name:",
    ".cfi_startproc",
    "mov r8, qword ptr [rsp]",
    "mov r9d, \\number",
    "jmp {LOOK_UP}",
    ".cfi_endproc",
    ".size nprof_look_up_\\name, . - nprof_look_up_\\name",
    ".endm",
    ".pushsection .text.nprof_look_up, \"ax\", @progbits",
    "nprof_look_up method, 0",
    "nprof_look_up static_method, 1",
    "nprof_look_up field, 2",
    "nprof_look_up static_field, 3",
    ".popsection",
    LOOK_UP = sym look_up,
);

unsafe extern "C" {
    fn nprof_look_up_method();
    fn nprof_look_up_static_method();
    fn nprof_look_up_field();
    fn nprof_look_up_static_field();
}

/// Where they are, in the order of their numbers.
pub(super) fn addresses() -> [usize; FUNCTIONS] {
    [nprof_look_up_method, nprof_look_up_static_method, nprof_look_up_field, nprof_look_up_static_field]
        .map(|function: unsafe extern "C" fn()| function as usize)
}

/// What a look-up is about.
#[derive(Debug, Clone, Copy)]
struct Call {
    cache: &'static Cache,
    asked: Asked,
    row: &'static Row,
    site: &'static Site,
}

/// Gives what was found before, or asks the original.
unsafe extern "C" fn look_up(
    env: *mut JNIEnv,
    class: jclass,
    name: *const c_char,
    signature: *const c_char,
    caller: usize,
    function: usize,
) -> Id {
    let function = function % FUNCTIONS;
    // It is there since before the table led here.
    let Some(cache) = CACHE.get() else { return std::ptr::null_mut() };
    // SAFETY: the caller's arguments.
    let ask_original = || unsafe { cache.original(function)(env, class, name, signature) };
    if !cache.is_on.load(Ordering::Relaxed) || class.is_null() || name.is_null() || signature.is_null() {
        return ask_original();
    }
    let Some(row) = cache.rows.of(env.addr()) else {
        cache.rows.count_rowless(function);
        return ask_original();
    };
    let site = row.site(caller);
    if row.leaves_alone(function, site) {
        return ask_original();
    }
    if cache.has_pending(env) {
        row.leave(function, site);
        return ask_original();
    }
    // SAFETY: the caller's reference, which is not null.
    let asked = unsafe { Asked::new(env, function, class, [name, signature]) };
    let call = Call { cache, asked, row, site };
    if row.is_timed(function) {
        // SAFETY: the caller's arguments.
        return unsafe { call.timed() };
    }
    // SAFETY: the caller's arguments.
    unsafe { call.usual() }
}

impl Call {
    #[inline]
    unsafe fn usual(self) -> Id {
        // SAFETY: the caller's arguments.
        match unsafe { self.found() } {
            Some(id) => id,
            // SAFETY: as above.
            None => unsafe { self.missed() },
        }
    }

    /// What is kept. A hit is counted.
    #[inline]
    unsafe fn found(&self) -> Option<Id> {
        let Self { cache, asked, row, site } = self;
        row.looking();
        // SAFETY: the thread's row says that it is looking.
        let id = unsafe { cache.entries.find(asked) }.map(|entry| entry.id);
        row.done();
        let id = id?;
        row.hit(asked.function, site);
        Some(std::ptr::with_exposed_provenance_mut(id))
    }

    /// The same with both timed, what is kept and the original. It is the original's answer that counts.
    #[cold]
    unsafe fn timed(self) -> Id {
        let Asked { env, class, strings: [name, signature], function, key } = self.asked;
        let start = ticks();
        // SAFETY: the caller's arguments.
        let Some(kept) = (unsafe { self.found() }) else {
            // SAFETY: as above.
            return unsafe { self.missed() };
        };
        let middle = ticks();
        // SAFETY: the caller's arguments.
        let id = unsafe { self.cache.original(function)(env, class, name, signature) };
        let (hit, original) = (middle.wrapping_sub(start), ticks().wrapping_sub(middle));
        if id != kept {
            self.row.wrong(function);
            self.cache.entries.forget(key);
        } else if hit < MOST_TICKS && original < MOST_TICKS {
            self.row.timed(function, hit, original);
        }
        id
    }

    /// Asks the original, and keeps what it has found.
    #[cold]
    unsafe fn missed(self) -> Id {
        let Self { cache, asked, row, site } = self;
        let Asked { env, class, strings: [name, signature], function, .. } = asked;
        row.miss(function, site);
        // SAFETY: the caller's strings. What is asked is our copy of them, which nobody changes meanwhile: what is kept is what was asked.
        let Some(texts) = (unsafe { Texts::copy(asked.strings) }) else {
            site.in_vain();
            // SAFETY: the caller's arguments.
            return unsafe { cache.original(function)(env, class, name, signature) };
        };
        let [name, signature] = texts.strings();
        // SAFETY: the caller's arguments.
        let id = unsafe { cache.original(function)(env, class, name, signature) };
        let kept = if !id.is_null() && entry::is_initialized(class) {
            // SAFETY: no exception is pending where something was found.
            unsafe {
                cache.entries.keep(&asked, &texts, id.expose_provenance(), || cache.is_on.load(Ordering::Acquire))
            }
        } else {
            Kept::Instead
        };
        if kept == Kept::Instead {
            site.in_vain();
        }
        // SAFETY: the thread's environment.
        if let Some(jni) = unsafe { Jni::passed(env) }.filter(|_| !id.is_null() && cache.entries.is_untidy()) {
            cache.entries.free(cache.rows.inside(), jni);
        }
        id
    }
}

impl Cache {
    #[inline]
    fn original(&self, function: usize) -> LookUp {
        let address = self.places[function].before();
        // SAFETY: what was in the table at the place of such a function.
        unsafe { transmute::<usize, LookUp>(address) }
    }

    /// Whether an exception is pending in a thread.
    #[inline]
    fn has_pending(&self, env: *mut JNIEnv) -> bool {
        let place = env.cast::<usize>().wrapping_byte_offset(self.pending.load(Ordering::Relaxed));
        // SAFETY: nprof has it from the VM's own tables that the thread has its pending exception there.
        unsafe { place.read_volatile() != 0 }
    }
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets all processes use it unless told not to.
    unsafe { _rdtsc() }
}
