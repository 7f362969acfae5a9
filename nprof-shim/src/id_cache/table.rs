//! Our functions in the VM's table of functions, and out of it.

use std::mem::offset_of;

use jvmti_bindings::sys::jni::JNINativeInterface_;

use super::{Cache, FUNCTIONS, front};
use crate::jvmti::{self, Jvmti};

/// The places of the functions that look ids up: of methods, static ones, fields, static ones.
const PLACES: [usize; FUNCTIONS] = [
    offset_of!(JNINativeInterface_, GetMethodID) / size_of::<usize>(),
    offset_of!(JNINativeInterface_, GetStaticMethodID) / size_of::<usize>(),
    offset_of!(JNINativeInterface_, GetFieldID) / size_of::<usize>(),
    offset_of!(JNINativeInterface_, GetStaticFieldID) / size_of::<usize>(),
];

/// Puts ours in front of what is there.
pub(super) fn put(jvmti: Jvmti, cache: &Cache) -> Result<(), jvmti::Error> {
    let mut table = jvmti.function_table()?;
    for ((known, place), ours) in cache.places.iter().zip(PLACES).zip(front::addresses()) {
        known.put(&mut table, place, ours);
    }
    table.write()
}

/// Puts back what was there, unless somebody else has come since. Tells of how many that is so.
pub(super) fn put_back(jvmti: Jvmti, cache: &Cache) -> Result<usize, jvmti::Error> {
    let mut table = jvmti.function_table()?;
    let places = cache.places.iter().zip(PLACES).zip(front::addresses());
    let behind = places.filter(|((known, place), ours)| known.put_back(&mut table, *place, *ours)).count();
    table.write()?;
    Ok(behind)
}
