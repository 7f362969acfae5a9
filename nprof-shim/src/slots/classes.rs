//! From a method's id to the VM's `Method`, by the class.
//!
//! Up to JDK 25 an id was a pointer to a pointer to the `Method`. From 26 on it is a number that only the VM can resolve. But
//! in all of them the VM's class keeps the ids of its methods, each at the place of the method's number, and the methods
//! with these numbers. So nothing need be known of what an id is; and one that the class does not have is none of its.

#![expect(unsafe_code, reason = "calls a native of the VM by its address")]

use std::sync::{Mutex, PoisonError};

use jvmti_bindings::sys::jni::{JNIEnv, jlong, jobject};

use super::memory::{MOST_BYTES, Memory};
use super::structs::Structs;
use crate::jni::Jni;
use crate::jvmti::{Class, MethodId};

const WORD: usize = size_of::<usize>();
/// Ids that are read at a time.
const IDS: usize = MOST_BYTES / WORD;
/// More methods no class file has.
const MOST_METHODS: usize = 65_536;

/// The ids of the class that was asked for last: classes are gone through one after another, and may have thousands.
#[derive(Debug, Default)]
struct Ids {
    class: usize,
    words: Vec<usize>,
}

/// The native behind `Unsafe.getLong(Object, long)`.
type GetLong = unsafe extern "system" fn(*mut JNIEnv, jobject, jobject, jlong) -> jlong;

/// The VM's classes and their methods.
#[derive(Debug)]
pub(super) struct Classes {
    structs: Structs,
    /// Reads fields of objects as the collector in use wants them to be read.
    reader: Class,
    get_long: MethodId,
    native: Option<GetLong>,
    latest: Mutex<Ids>,
}

// SAFETY: the reference is a global one.
unsafe impl Send for Classes {}
// SAFETY: as above.
unsafe impl Sync for Classes {}

impl Classes {
    /// Gets what is needed to read them.
    pub(super) fn open(jni: Jni, structs: Structs) -> Option<Self> {
        let class = jni.find_class(c"jdk/internal/misc/Unsafe")?;
        let reader = jni.kept(jni.static_object(class, c"getUnsafe", c"()Ljdk/internal/misc/Unsafe;")?)?;
        let get_long = jni.method(class, c"getLong", c"(Ljava/lang/Object;J)J")?;
        Some(Self { structs, reader, get_long, native: None, latest: Mutex::default() })
    }

    /// The method by which fields are read, and its class. It is an application's too.
    pub(super) fn getter(&self, jni: Jni) -> Option<(Class, MethodId)> {
        Some((jni.find_class(c"jdk/internal/misc/Unsafe")?, self.get_long))
    }

    /// From now on that method is called by the address of its native: past any stub, which would count the calls.
    pub(super) fn read_by(&mut self, native: usize) {
        // SAFETY: the VM holds the address for a method with these arguments, and it is not null.
        self.native = (native != 0).then(|| unsafe { std::mem::transmute::<usize, GetLong>(native) });
    }

    /// The address of the VM's method with this id, of this class.
    pub(super) fn method(&self, memory: &Memory, jni: Jni, class: Class, id: MethodId) -> Option<usize> {
        let class = self.class(jni, class)?;
        let number = self.number_of(memory, class, id)?;
        let methods = memory.word(class.checked_add(self.structs.methods)?)?;
        let is_it = |&method: &usize| self.id_number(memory, method) == Some(number);
        // A method's number is its place, unless its class was redefined.
        let at = |place: usize| memory.word(methods.checked_add(self.structs.first_method + place * WORD)?);
        let mut first = [0; 4];
        memory.read(methods, &mut first)?;
        let count = usize::try_from(u32::from_ne_bytes(first)).unwrap_or(0).min(MOST_METHODS);
        let expected = (number < count).then(|| at(number)).flatten().filter(is_it);
        expected.or_else(|| (0..count).map_while(at).find(is_it))
    }

    /// The VM's class.
    fn class(&self, jni: Jni, class: Class) -> Option<usize> {
        let place = jlong::try_from(self.structs.class_in_mirror).ok()?;
        let word = match self.native {
            // SAFETY: the function is the native of `getLong`, which reads a field of the VM's at that place.
            Some(native) => unsafe { native(jni.raw(), self.reader.0, class.0, place) },
            None => jni.call_with_object_and_long(self.reader, self.get_long, class, place)?,
        };
        usize::try_from(word.cast_unsigned()).ok().filter(|&class| class != 0)
    }

    /// The number of the method with this id: the place in the array of ids, before which their count stands.
    fn number_of(&self, memory: &Memory, class: usize, id: MethodId) -> Option<usize> {
        let ids = memory.word(class.checked_add(self.structs.method_ids)?)?;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |words: &[usize]| words.iter().position(|&word| word == id.0);
        let known = place(&latest.words).filter(|_| latest.class == class);
        // The class may be another by now, at the same address.
        let holds = |number: &usize| memory.word(ids.saturating_add((1 + number) * WORD)) == Some(id.0);
        if let Some(number) = known.filter(holds) {
            return Some(number);
        }
        *latest = Ids { class, words: all_ids(memory, ids)? };
        place(&latest.words)
    }

    fn id_number(&self, memory: &Memory, method: usize) -> Option<usize> {
        let constant = memory.word(method.checked_add(self.structs.const_method)?)?;
        memory.half(constant.checked_add(self.structs.id_number)?).map(usize::from)
    }
}

/// All ids of an array, before which their count stands.
fn all_ids(memory: &Memory, ids: usize) -> Option<Vec<usize>> {
    let count = memory.word(ids)?.min(MOST_METHODS);
    let mut found = Vec::with_capacity(count);
    for first in (0..count).step_by(IDS) {
        let mut bytes = [0; MOST_BYTES];
        let bytes = bytes.get_mut(..(count - first).min(IDS) * WORD)?;
        memory.read(ids.checked_add((1 + first) * WORD)?, bytes)?;
        found.extend(bytes.as_chunks().0.iter().copied().map(usize::from_ne_bytes));
    }
    Some(found)
}
