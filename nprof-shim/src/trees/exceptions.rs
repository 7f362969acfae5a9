//! Numbers for the classes of exceptions, given when one is thrown for the first time.

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use jvmti_bindings::sys::jni::jobject;
use nprof_common::tree::UNKNOWN_EXCEPTION;

use crate::entry;
use crate::jni::Jni;

/// How many classes get numbers. Exceptions of others are known to be such, and no more.
const MOST: usize = 1_024;

/// A class of exceptions, with its number.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) number: u32,
    /// `Ljava/io/IOException;`.
    pub(crate) class: Vec<u8>,
}

/// The classes that have numbers: one more than their place.
#[derive(Debug)]
pub(super) struct Exceptions {
    /// References that do not keep them from being unloaded.
    classes: Box<[AtomicUsize]>,
    count: AtomicU32,
    names: Mutex<Vec<Named>>,
}

impl Default for Exceptions {
    fn default() -> Self {
        let classes = (0..MOST).map(|_| AtomicUsize::new(0)).collect();
        Self { classes, count: AtomicU32::new(0), names: Mutex::default() }
    }
}

impl Exceptions {
    /// The number of what was thrown. `last` is that of the thread's exception before.
    pub(super) fn number(&self, jni: Jni, thrown: jobject, last: &AtomicU32) -> u32 {
        if thrown.is_null() {
            return UNKNOWN_EXCEPTION;
        }
        let class = jni.class_of(thrown);
        let guess = last.load(Ordering::Relaxed);
        if guess != UNKNOWN_EXCEPTION && self.is(jni, guess, class) {
            return guess;
        }
        let count = self.count.load(Ordering::Acquire);
        let known = (1..=count).find(|&number| self.is(jni, number, class));
        let number = known.unwrap_or_else(|| self.new_number(jni, class));
        last.store(number, Ordering::Relaxed);
        number
    }

    fn is(&self, jni: Jni, number: u32, class: jobject) -> bool {
        let place = (number as usize).checked_sub(1).and_then(|place| self.classes.get(place));
        let address = place.map_or(0, |place| place.load(Ordering::Acquire));
        address != 0 && jni.is_same_class(with_exposed_provenance_mut(address), class)
    }

    /// A number for a class that has none. Where another thread is about to give one, this time there is none: nobody waits.
    #[cold]
    fn new_number(&self, jni: Jni, class: jobject) -> u32 {
        let mut names = match self.names.try_lock() {
            Ok(names) => names,
            Err(TryLockError::Poisoned(names)) => names.into_inner(),
            Err(TryLockError::WouldBlock) => return UNKNOWN_EXCEPTION,
        };
        let count = self.count.load(Ordering::Acquire);
        // Somebody may have been quicker.
        if let Some(known) = (1..=count).find(|&number| self.is(jni, number, class)) {
            return known;
        }
        let Some(place) = self.classes.get(count as usize) else { return UNKNOWN_EXCEPTION };
        let (Some(name), Some(weak)) = (entry::name_of_class(class), jni.weak(class)) else { return UNKNOWN_EXCEPTION };
        let number = count + 1;
        names.push(Named { number, class: name });
        place.store(weak.expose_provenance(), Ordering::Release);
        self.count.store(number, Ordering::Release);
        number
    }

    /// Those that have numbers, from one on.
    pub(super) fn named(&self, from: u32) -> Vec<Named> {
        let names = self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        names.iter().filter(|named| named.number >= from).cloned().collect()
    }
}
