//! What is kept, found without a lock, and when it may be freed.
//!
//! An entry never changes once it is published. Who replaces one sets it aside; it is freed, and its weak reference given back, when no
//! thread can hold it any more: each row of `rows` says whether its thread is looking. Looking costs no fence: who frees has the kernel
//! put one into all threads (`membarrier`).

#![expect(unsafe_code, reason = "entries are published by pointers; calls the VM and the kernel")]

use std::ffi::c_char;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use jvmti_bindings::sys::jni::{JNIEnv, jclass, jobject};

use super::rows::Look;
use super::texts::{Texts, beginning};
use crate::jni::Jni;
use crate::memory::anonymous;

/// How many sets there are, and entries in each.
const SET_BITS: u32 = 12;
const SETS: usize = 1 << SET_BITS;
const WAYS: usize = 4;
/// When entries that are set aside are looked at, and from how many on nothing new is kept until some are free.
const ASIDE: usize = 64;
const MOST_ASIDE: usize = 1_024;

/// A look-up that has found something.
#[derive(Debug)]
pub(super) struct Entry {
    key: u64,
    function: usize,
    pub(super) id: usize,
    /// A weak reference.
    class: jobject,
    texts: Texts,
}

// SAFETY: a weak reference is good in all threads.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) env: *mut JNIEnv,
    pub(super) function: usize,
    pub(super) class: jclass,
    pub(super) strings: [*const c_char; 2],
    pub(super) key: u64,
}

/// A set.
type Set = [AtomicPtr<Entry>; WAYS];

/// All entries.
#[derive(Debug)]
pub(super) struct Entries {
    sets: &'static [Set],
    aside: Mutex<Aside>,
}

/// An entry that nobody finds any more, and somebody may still hold.
#[derive(Debug)]
struct Gone(NonNull<Entry>);

// SAFETY: entries may be looked at, and freed, in all threads.
unsafe impl Send for Gone {}

/// All of these.
#[derive(Debug, Default)]
struct Aside {
    /// Since the last look at who may hold them.
    new: Vec<Gone>,
    /// Before that, and the threads that were looking then.
    old: Vec<Gone>,
    looking: Vec<Look>,
}

/// What came of keeping something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// There was room.
    Beside,
    /// Something else had to go for it, or there is no room at all.
    Instead,
}

impl Asked {
    /// What is asked for. Where an entry is looked for depends on where the class is at the moment, and where the names are: that is
    /// only a hint, and nothing is taken for found because of it.
    ///
    /// # Safety
    /// `class` is a reference that is not null, and the strings are C strings.
    #[inline]
    pub(super) unsafe fn new(env: *mut JNIEnv, function: usize, class: jclass, strings: [*const c_char; 2]) -> Self {
        const TAG: usize = 7;
        const FACTORS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9];
        let place = class.map_addr(|address| address & !TAG).cast::<usize>();
        // SAFETY: behind a reference without its tag is the address of the object, which the collector may change any time.
        let object = unsafe { place.read_volatile() };
        // SAFETY: the caller's string.
        let name = unsafe { beginning(strings[0]) };
        let parts = [object as u64, strings[0].addr() as u64 ^ name.rotate_left(17), strings[1].addr() as u64];
        let mix = |mixed, (part, factor): (u64, u64)| mixed ^ part.wrapping_mul(factor);
        let mixed = parts.into_iter().zip(FACTORS).fold(function as u64, mix);
        let key = (mixed ^ mixed >> 32).wrapping_mul(FACTORS[0]);
        Self { env, function, class, strings, key }
    }
}

impl Entries {
    pub(super) fn new() -> io::Result<Self> {
        let words = anonymous(SETS * size_of::<Set>())?;
        // SAFETY: zeros, which are null pointers; the memory stays, and nobody else has it.
        let sets = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<Set>(), SETS) };
        Ok(Self { sets, aside: Mutex::default() })
    }

    fn set(&self, key: u64) -> &Set {
        let set = usize::try_from(key >> (u64::BITS - SET_BITS)).unwrap_or(0);
        &self.sets[set % SETS]
    }

    /// What has been found before.
    ///
    /// # Safety
    /// What is asked for are the arguments of a look-up in this thread, whose row says that it is looking as long as the entry is used.
    #[inline]
    pub(super) unsafe fn find(&self, asked: &Asked) -> Option<&Entry> {
        for way in self.set(asked.key) {
            let entry = way.load(Ordering::Acquire);
            // SAFETY: who finds it here while it is looking has it until it is not.
            let Some(entry) = (unsafe { entry.as_ref() }) else { continue };
            if entry.key != asked.key || entry.function != asked.function {
                continue;
            }
            // SAFETY: the caller's strings.
            if unsafe { entry.texts.are(asked.strings) } && entry.is_of(asked) {
                return Some(entry);
            }
        }
        None
    }

    /// Keeps what was found. `is_on` is asked when nothing can come between.
    ///
    /// # Safety
    /// As [`Self::find`]; no exception is pending, and the class is initialised.
    pub(super) unsafe fn keep(&self, asked: &Asked, texts: &Texts, id: usize, is_on: impl Fn() -> bool) -> Kept {
        // SAFETY: the environment of the look-up.
        let jni = unsafe { Jni::passed(asked.env) };
        let Some(class) = jni.and_then(|jni| jni.weak(asked.class)) else { return Kept::Instead };
        let entry = Box::new(Entry { key: asked.key, function: asked.function, id, class, texts: *texts });
        let refused = match self.aside.try_lock() {
            Ok(mut aside) if is_on() && aside.new.len() < MOST_ASIDE => {
                let instead = self.publish(entry, &mut aside);
                return if instead { Kept::Instead } else { Kept::Beside };
            }
            _ => entry,
        };
        // Nobody has seen it.
        jni.into_iter().for_each(|jni| jni.forget_weak(refused.class));
        Kept::Instead
    }

    /// Puts an entry where it is found. Returns whether another had to go.
    fn publish(&self, entry: Box<Entry>, aside: &mut Aside) -> bool {
        let set = self.set(entry.key);
        let is_same = |way: &&AtomicPtr<Entry>| {
            // SAFETY: entries are freed by who has the lock.
            unsafe { way.load(Ordering::Relaxed).as_ref() }.is_none_or(|there| there.is_instead_of(&entry))
        };
        let by_chance = usize::try_from(entry.key).unwrap_or(0) % WAYS;
        let way = set.iter().find(is_same).unwrap_or(&set[by_chance]);
        let before = way.swap(Box::into_raw(entry), Ordering::AcqRel);
        let gone = NonNull::new(before);
        aside.new.extend(gone.map(Gone));
        gone.is_some()
    }

    /// Sets one aside that is wrong.
    pub(super) fn forget(&self, key: u64) {
        let Ok(mut aside) = self.aside.lock() else { return };
        for way in self.set(key) {
            // SAFETY: entries are freed by who has the lock.
            if unsafe { way.load(Ordering::Relaxed).as_ref() }.is_some_and(|there| there.key == key) {
                aside.take(way);
            }
        }
    }

    /// Sets all aside. Nothing is kept any more before.
    pub(super) fn forget_all(&self) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        self.sets.iter().flatten().for_each(|way| aside.take(way));
    }

    /// Whether it is time to free something.
    pub(super) fn is_untidy(&self) -> bool {
        self.aside.try_lock().is_ok_and(|aside| aside.new.len() + aside.old.len() >= ASIDE)
    }

    /// Whether all have been freed.
    pub(super) fn is_empty(&self) -> bool {
        let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.new.is_empty() && aside.old.is_empty()
    }

    /// Frees what nobody can hold any more. `looking` are the threads that are, as they are asked for.
    pub(super) fn free(&self, looking: impl Iterator<Item = Look>, jni: Jni) {
        let Ok(mut aside) = self.aside.try_lock() else { return };
        let mut freed = aside.free_old();
        if aside.old.is_empty() && !aside.new.is_empty() && fence_all() {
            aside.old = std::mem::take(&mut aside.new);
            aside.looking = looking.collect();
            freed.append(&mut aside.free_old());
        }
        drop(aside);
        for Gone(entry) in freed {
            // SAFETY: it was made by `into_raw`, is in no other place, and nobody holds it.
            let entry = unsafe { Box::from_raw(entry.as_ptr()) };
            jni.forget_weak(entry.class);
        }
    }
}

impl Aside {
    /// Frees those that were set aside before the last look, if each thread that was looking then has looked elsewhere since.
    fn free_old(&mut self) -> Vec<Gone> {
        self.looking.retain(Look::goes_on);
        if self.looking.is_empty() { std::mem::take(&mut self.old) } else { Vec::new() }
    }

    fn take(&mut self, way: &AtomicPtr<Entry>) {
        let entry = way.swap(null_mut(), Ordering::AcqRel);
        self.new.extend(NonNull::new(entry).map(Gone));
    }
}

impl Entry {
    /// Whether one is of the same as the other, as far as that is seen without the VM.
    fn is_instead_of(&self, other: &Self) -> bool {
        self.key == other.key && self.function == other.function && self.texts.is_same(&other.texts)
    }

    /// Whether the class that is asked for is its own. The VM says that, whatever its collector does at the moment.
    #[inline]
    fn is_of(&self, asked: &Asked) -> bool {
        // SAFETY: the environment of the look-up.
        unsafe { Jni::passed(asked.env) }.is_some_and(|jni| jni.is_same_class(self.class, asked.class))
    }
}

/// Has each thread of the process that runs pass a fence. `false` if the kernel does not.
fn fence_all() -> bool {
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    let barrier = |command: libc::c_int| {
        // SAFETY: the call has no conditions.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
    };
    barrier(PRIVATE_EXPEDITED) || barrier(REGISTER_PRIVATE_EXPEDITED) && barrier(PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    fn entry(key: u64) -> Box<Entry> {
        // SAFETY: C strings.
        let texts = unsafe { Texts::copy([c"name".as_ptr(), c"()V".as_ptr()]) }.unwrap();
        Box::new(Entry { key, function: 0, id: 7, class: without_provenance_mut(8), texts })
    }

    /// Check that a set is filled before anything has to go, that the same key takes its own place, and that what has gone is kept until
    /// nobody looks.
    #[test]
    fn sets_aside() {
        let entries = Entries::new().unwrap();
        let publish = |key| entries.publish(entry(key), &mut entries.aside.lock().unwrap());
        assert_eq!([1, 2, 3, 4, 5, 2].map(publish), [false, false, false, false, true, true]);
        entries.forget(4);
        assert_eq!(entries.aside.lock().unwrap().new.len(), 3);
        entries.forget_all();
        let mut aside = entries.aside.lock().unwrap();
        assert_eq!(aside.new.len(), 6);
        aside.old = std::mem::take(&mut aside.new);
        assert_eq!(aside.free_old().len(), 6);
        assert!(aside.free_old().is_empty());
    }

    /// Check that the kernel has all threads pass a fence.
    #[test]
    fn fences() {
        assert!(fence_all());
    }
}
