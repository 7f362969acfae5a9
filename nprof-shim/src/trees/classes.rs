//! The loaded classes, by number: listed, read, enhanced and restored.
//!
//! A class is referred to by a weak reference: it can be unloaded while nprof knows its number.
//!
//! # How a class file is read
//! The VM keeps none. It makes one when a class is retransformed, and shows it to us; we answer with one that cannot take its place (with
//! another access flag), which it refuses before it stops any thread. What other agents make of the class is in it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::ptr::with_exposed_provenance_mut;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jvmti_bindings::sys::jni::jobject;
use nprof_common::tree::AREA_BYTES;
use nprof_common::wire::{ClassFile, ClassesListed};

use crate::entry;
use crate::jni::Jni;
use crate::jvmti::{self, Class, Jvmti, Loader};

/// What is done with the file of a class when the VM shows it: gives another one, or none.
type Changes = Box<dyn FnMut(Class, &[u8]) -> Option<Vec<u8>>>;

thread_local! {
    /// This thread retransforms. A thread that is not ours sees that without allocating anything.
    static RETRANSFORMS: Cell<bool> = const { Cell::new(false) };
    static CHANGES: RefCell<Option<Changes>> = const { RefCell::new(None) };
}

/// The VM shows the file of a class. What is to take its place, if this is our thread and it is one of those that it changes.
pub(crate) fn class_file_loaded(redefined: Option<Class>, name: Option<&CStr>, file: &[u8]) -> Option<Vec<u8>> {
    if !RETRANSFORMS.get() {
        return None;
    }
    // One that this thread loads on the way is none of these, though the VM shows it as if it were the one that is being changed.
    let redefined = redefined.filter(|class| {
        let signature = entry::name_of_class(class.0);
        name.is_none_or(|name| signature.is_some_and(|signature| is_signature_of(&signature, name.to_bytes())))
    })?;
    CHANGES.with_borrow_mut(|changes| changes.as_mut()?(redefined, file))
}

/// Whether a descriptor is that of the class with this name.
fn is_signature_of(signature: &[u8], name: &[u8]) -> bool {
    signature.strip_prefix(b"L").and_then(|rest| rest.strip_suffix(b";")) == Some(name)
}

/// Retransforms classes, of which the VM shows the files one by one.
fn retransform(jvmti: Jvmti, classes: &[Class], changes: Changes) -> Result<(), jvmti::Error> {
    CHANGES.set(Some(changes));
    RETRANSFORMS.set(true);
    let done = jvmti.notice_class_files(true).and_then(|()| jvmti.retransform(classes));
    let quiet = jvmti.notice_class_files(false);
    RETRANSFORMS.set(false);
    CHANGES.set(None);
    done.and(quiet)
}

/// Whether a class has ever been changed.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether this agent has changed a class since it was loaded.
pub(crate) fn has_changed_classes() -> bool {
    HAS_CHANGED.load(Relaxed)
}

/// The loaded classes, arrays left out. What is kept are weak references.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    listed: Vec<usize>,
    /// What is told of them.
    rows: Vec<Vec<u8>>,
    /// Those that have been enhanced.
    enhanced: BTreeSet<u32>,
}

/// What came of restoring.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Restored {
    pub(crate) restored: usize,
    pub(crate) behind: usize,
}

impl Classes {
    /// Lists what is loaded now. Once classes are enhanced, their numbers stay.
    pub(crate) fn list(&mut self, jvmti: Jvmti, jni: Jni) -> Result<(), jvmti::Error> {
        if !self.enhanced.is_empty() {
            return Ok(());
        }
        self.forget(jni);
        let loaded = jvmti.loaded_classes()?;
        jni.ensure_room(loaded.len());
        let named = |class| Some((class, jvmti.signature_of(class).ok().filter(|name| name.starts_with(b"L"))?));
        let named: Vec<(Class, Vec<u8>)> = loaded.into_iter().filter_map(named).collect();
        let mut identities = Identities::new(jvmti, jni);
        for (class, _) in &named {
            identities.number(class.0);
        }
        let mut loaders = Identities::new(jvmti, jni);
        for (class, name) in &named {
            self.rows.push(row(jvmti, jni, *class, name, (&identities, &mut loaders)));
            // Without memory for the reference the class counts as unloaded.
            self.listed.push(jni.weak(class.0).map_or(0, |weak| weak.expose_provenance()));
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.listed.len()
    }

    /// What is told of classes from a number on, as many as fit into the area, and how many that are.
    pub(crate) fn rows(&self, first: usize) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for row in self.rows.iter().skip(first) {
            if bytes.len() + row.len() > AREA_BYTES {
                break;
            }
            bytes.extend_from_slice(row);
            count += 1;
        }
        (bytes, count)
    }

    /// What is told of the methods of classes, and of how many of them that is.
    pub(crate) fn methods(&self, jvmti: Jvmti, jni: Jni, numbers: &[u32]) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for number in numbers {
            let class = self.class(jni, *number);
            // One that is not prepared yet, or unloaded, has none.
            let methods = class.and_then(|class| jvmti.methods_of(class).ok()).unwrap_or_default();
            class.into_iter().for_each(|class| jni.forget(class));
            let row = methods_row(&methods);
            if bytes.len() + row.len() > AREA_BYTES {
                break;
            }
            bytes.extend(row);
            count += 1;
        }
        (bytes, count)
    }

    /// The file of a class, or why there is none: one of the numbers of [`ClassFile`].
    pub(crate) fn read(&self, jvmti: Jvmti, jni: Jni, number: u32) -> Result<Vec<u8>, u32> {
        let class = self.class(jni, number).ok_or(ClassFile::UNLOADED)?;
        if !jvmti.is_modifiable(class) {
            return Err(ClassFile::UNMODIFIABLE);
        }
        let read = Rc::new(RefCell::new(None));
        let shown = Rc::clone(&read);
        let changes = move |_: Class, file: &[u8]| {
            *shown.borrow_mut() = Some(file.to_vec());
            with_other_flags(file)
        };
        let refused = retransform(jvmti, &[class], Box::new(changes));
        jni.forget(class);
        read.take().ok_or_else(|| refused.err().map_or(0, code))
    }

    /// Enhances classes. `ask` gives the new file of a class, or none if it is to stay as it is. All of them are enhanced, or none, which is
    /// an error of the VM's.
    pub(crate) fn enhance(
        &mut self,
        jvmti: Jvmti,
        jni: Jni,
        numbers: &[u32],
        mut ask: impl FnMut(u32, &[u8]) -> Option<Vec<u8>> + 'static,
    ) -> Result<usize, u32> {
        let class = |&number: &u32| Some((number, self.class(jni, number)?));
        let classes: Vec<(u32, Class)> = numbers.iter().filter_map(class).collect();
        let all: Vec<Class> = classes.iter().map(|&(_, class)| class).collect();
        let changed = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&changed);
        let changes = move |class: Class, file: &[u8]| {
            let (number, _) = *classes.iter().find(|(_, known)| jni.is_same_class(known.0, class.0))?;
            let new = ask(number, file)?;
            noted.borrow_mut().push(number);
            Some(new)
        };
        let done = if all.is_empty() { Ok(()) } else { retransform(jvmti, &all, Box::new(changes)) };
        all.into_iter().for_each(|class| jni.forget(class));
        done.map_err(code)?;
        let changed = changed.take();
        let count = changed.len();
        HAS_CHANGED.fetch_or(count > 0, Relaxed);
        self.enhanced.extend(changed);
        Ok(count)
    }

    /// Gives all enhanced classes the file back that they had, with what other agents change of it.
    pub(crate) fn restore(&mut self, jvmti: Jvmti, jni: Jni) -> Restored {
        let enhanced = std::mem::take(&mut self.enhanced);
        // One that is unloaded by now needs nothing.
        let classes: Vec<Class> = enhanced.iter().filter_map(|&number| self.class(jni, number)).collect();
        let behind = if classes.is_empty() || jvmti.retransform(&classes).is_ok() {
            0
        } else {
            // One of them may be in the way of all.
            classes.iter().filter(|&&class| jvmti.retransform(&[class]).is_err()).count()
        };
        let restored = enhanced.len() - behind;
        classes.into_iter().for_each(|class| jni.forget(class));
        Restored { restored, behind }
    }

    /// Gives all references back.
    pub(crate) fn forget(&mut self, jni: Jni) {
        let listed = std::mem::take(&mut self.listed);
        listed
            .into_iter()
            .filter(|&weak| weak != 0)
            .for_each(|weak| jni.forget_weak(with_exposed_provenance_mut(weak)));
        self.rows.clear();
    }

    /// A class by its number, by a reference that is to be forgotten; `None` if it is unloaded.
    fn class(&self, jni: Jni, number: u32) -> Option<Class> {
        let weak = self.listed.get(number as usize).filter(|&&weak| weak != 0)?;
        jni.local(with_exposed_provenance_mut(*weak))
    }
}

fn code(error: jvmti::Error) -> u32 {
    match error {
        jvmti::Error::Refused { code, .. } => code.unsigned_abs(),
        jvmti::Error::Missing(_) => u32::MAX,
    }
}

/// What is told of a class.
fn row(
    jvmti: Jvmti,
    jni: Jni,
    class: Class,
    name: &[u8],
    (classes, loaders): (&Identities, &mut Identities),
) -> Vec<u8> {
    let modifiable = if jvmti.is_modifiable(class) { ClassesListed::MODIFIABLE } else { 0 };
    let loader = jvmti.loader_of(class).map_or(ClassesListed::BOOT, |loader| match loader {
        Loader::BOOT => ClassesListed::BOOT,
        // These references stay until our thread leaves the VM; there are few.
        Loader(loader) => loaders.number(loader) + 1,
    });
    let found = |class: Class| {
        let number = classes.find(class.0).unwrap_or(ClassesListed::NONE);
        jni.forget(class);
        number
    };
    let parent = jni.superclass(class).map_or(ClassesListed::NONE, found);
    // A class that is not prepared yet does not tell.
    let interfaces: Vec<u32> = jvmti.interfaces_of(class).unwrap_or_default().into_iter().map(found).collect();
    let name = name.strip_prefix(b"L").and_then(|name| name.strip_suffix(b";")).unwrap_or(name);
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let head = [jvmti.modifiers_of(class).unwrap_or(0) & 0xffff | modifiable, loader, parent, length(interfaces.len())];
    let numbers = head.into_iter().chain(interfaces).chain([length(name.len())]);
    let mut row: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
    row.extend_from_slice(name);
    row
}

fn methods_row(methods: &[(u32, CString, CString)]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut row = length(methods.len()).to_vec();
    for (modifiers, name, signature) in methods {
        row.extend((modifiers & 0xffff).to_le_bytes());
        for text in [name, signature] {
            row.extend(length(text.count_bytes()));
            row.extend_from_slice(text.to_bytes());
        }
    }
    row
}

/// Objects with numbers, in the order in which they came.
struct Identities {
    jvmti: Jvmti,
    jni: Jni,
    by_hash: BTreeMap<i32, Vec<(u32, jobject)>>,
    count: u32,
}

impl Identities {
    fn new(jvmti: Jvmti, jni: Jni) -> Self {
        Self { jvmti, jni, by_hash: BTreeMap::new(), count: 0 }
    }

    fn find(&self, object: jobject) -> Option<u32> {
        let alike = self.by_hash.get(&self.jvmti.hash_of(object))?;
        alike.iter().find(|(_, known)| self.jni.is_same_class(*known, object)).map(|&(number, _)| number)
    }

    /// The number of an object, whose reference is kept if it is new.
    fn number(&mut self, object: jobject) -> u32 {
        if let Some(known) = self.find(object) {
            return known;
        }
        let number = self.count;
        self.by_hash.entry(self.jvmti.hash_of(object)).or_default().push((number, object));
        self.count += 1;
        number
    }
}

/// The same file with another access flag of the class; `None` if it is none.
fn with_other_flags(file: &[u8]) -> Option<Vec<u8>> {
    const SYNTHETIC: u8 = 0x10;
    let flags = end_of_constants(file)?;
    let mut other = file.to_vec();
    *other.get_mut(flags)? ^= SYNTHETIC;
    Some(other)
}

/// Where the constants end, and the flags begin.
fn end_of_constants(file: &[u8]) -> Option<usize> {
    let short = |at: usize| Some(usize::from(u16::from_be_bytes([*file.get(at)?, *file.get(at + 1)?])));
    let (mut left, mut at) = (short(8)?.checked_sub(1)?, 10);
    while left > 0 {
        let (length, constants) = match file.get(at)? {
            1 => (2 + short(at + 1)?, 1),
            5 | 6 => (8, 2),
            15 => (3, 1),
            7 | 8 | 16 | 19 | 20 => (2, 1),
            3 | 4 | 9..=12 | 17 | 18 => (4, 1),
            _ => return None,
        };
        at += 1 + length;
        left = left.checked_sub(constants)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class_file::ClassFile as Written;

    /// Check that a class that is loaded on the way is told from the one that is being changed.
    #[test]
    fn what_is_shown() {
        assert!(is_signature_of(b"Ljava/util/concurrent/FutureTask;", b"java/util/concurrent/FutureTask"));
        assert!(!is_signature_of(b"Ljava/util/concurrent/FutureTask;", b"java/lang/Module$ReflectionData"));
        assert!(!is_signature_of(b"[I", b"I"));
    }

    /// Check that only the flags of a class are changed, and that what is no class is left alone.
    #[test]
    fn other_flags() {
        let mut class = Written::new("A");
        class.native_method("m", "()V");
        let file = class.finish();
        let other = with_other_flags(&file).unwrap();
        let differing: Vec<usize> = (0..file.len()).filter(|&at| file[at] != other[at]).collect();
        assert_eq!(differing.len(), 1);
        assert_eq!((file[differing[0]], other[differing[0]]), (0x00, 0x10));
        assert_eq!(file[differing[0] + 1], 0x30);
        for length in 0..differing[0] {
            assert_eq!(with_other_flags(&file[..length]), None);
        }
        assert_eq!(with_other_flags(&[0xff; 64]), None);
    }
}
