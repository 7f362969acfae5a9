//! Objects that a native method was given or has returned, as far as their first bytes tell: class, length of an array, and what
//! matters of a buffer and of a file descriptor.
//!
//! The bytes were copied while no collector stopped the program and none had begun since, so they are of one object. Its class
//! may be gone a moment later, with its loader, when the heap is collected: if that has begun meanwhile, nothing is said.

use std::collections::HashMap;

use nprof_common::{HeapPlaces, Referent};

use super::Unwinder;
use super::classes::read_class;
use super::layout::{CodeLayout, field};
use super::objects::Objects;
use super::symbols::read_texts;
use crate::hotspot::{Number, Reader, RemoteMemory, at, classes_of_boot_loader};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// More classes than stand above any class of buffers.
const MAX_PARENTS: usize = 16;
const BYTES: &str = "[B";
const CHARS: &str = "[C";

/// An object of the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapObject {
    /// Its class as the VM names it: `java/io/File`, `[B`.
    pub class: String,
    /// Of an array its length, of a buffer its capacity.
    pub length: Option<u32>,
    /// Of a `java.io.FileDescriptor` the descriptor; negative if it is closed.
    pub file: Option<i32>,
    /// The first bytes or characters, where they were copied.
    pub contents: Option<Contents>,
}

/// What is in a string, or in an array of bytes or characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Characters, and whether there are more.
    Text(String, bool),
    /// Bytes, and whether there are more.
    Bytes(Vec<u8>, bool),
}

/// Classes of which more is told than their names, and where their fields lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToldClasses {
    /// `java.lang.String`, and its fields `value` and `coder`.
    string: Option<(VirtAddr, [u64; 2])>,
    /// `java.nio.Buffer`, and its field `capacity`.
    buffer: Option<(VirtAddr, u64)>,
    /// `java.io.FileDescriptor`, and its field `fd`.
    descriptor: Option<(VirtAddr, u64)>,
}

impl<M: RemoteMemory> Unwinder<M> {
    /// How the programs follow references; `None` where what they find would not be certain.
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn heap_places(&mut self) -> Result<Option<HeapPlaces>, MemoryError> {
        self.reader.forget();
        let Some((counter, collections)) = self.counter.zip(self.layout.collections) else {
            return Ok(None);
        };
        let Some(stopped) = collections.stopped else {
            return Ok(None);
        };
        let heap = VirtAddr(counter.0.wrapping_sub(collections.total.offset));
        let Some((objects, told)) = self.objects_and_told()? else {
            return Ok(None);
        };
        let Some([reference_bytes, reference_base, reference_shift]) = objects.plain_references() else {
            return Ok(None);
        };
        let string = told.string.and_then(|(klass, [value, _])| Some((objects.class_word(klass)?, value)));
        let ([class_word, class_mask, string_class], string_value) = string.unwrap_or_default();
        Ok(Some(HeapPlaces {
            stopped: at(heap, stopped).0,
            class_word,
            class_mask,
            string_class,
            string_value,
            reference_bytes,
            reference_base,
            reference_shift,
        }))
    }

    /// What the first bytes of an object tell; `None` if that is not certain. `collections` is how many collections had begun
    /// when they were copied.
    ///
    /// # Errors
    /// As [`Self::heap_places`].
    pub fn object(&mut self, copied: &Referent, collections: u64) -> Result<Option<HeapObject>, MemoryError> {
        self.forget_classes();
        self.next_object(copied, collections)
    }

    /// The same of one of many objects: what was read of a class holds until the next collection, or until
    /// [`Self::forget_classes`].
    ///
    /// # Errors
    /// As [`Self::heap_places`].
    pub fn next_object(&mut self, copied: &Referent, collections: u64) -> Result<Option<HeapObject>, MemoryError> {
        if self.known.classes.at != collections || self.known.classes.by_address.is_empty() {
            self.known.classes = RecentClasses { at: collections, by_address: HashMap::new() };
            self.reader.forget();
            if self.objects_and_told()?.is_none() {
                return Ok(None);
            }
        }
        let Self { reader, layout, known, counter, .. } = self;
        let (Some(objects), Some(told), Some(counter)) = (&known.objects, known.told, counter) else {
            return Ok(None);
        };
        let mut reading = Reading { reader, layout, objects, told };
        let Some(klass) = reading.klass(copied) else {
            return Ok(None);
        };
        if let Some(class) = known.classes.by_address.get(&klass) {
            return Ok(class.as_ref().map(|class| reading.described(class, copied)));
        }
        reading.reader.forget();
        let class = reading.class(klass)?;
        let now = reading.reader.numbers_again(&[(*counter, 4)])?;
        if now.first() != Some(&Some(collections)) {
            return Ok(None);
        }
        let object = class.as_ref().map(|class| reading.described(class, copied));
        known.classes.by_address.insert(klass, class);
        Ok(object)
    }

    /// Reads classes anew. To be called every few milliseconds while there are objects to be named: some collectors unload classes in
    /// pauses that they do not count.
    pub fn forget_classes(&mut self) {
        self.known.classes.by_address.clear();
    }

    /// The same of an object whose class is known to be loaded still, because the object is: collections do not matter.
    ///
    /// # Errors
    /// As [`Self::heap_places`].
    pub fn living_object(&mut self, copied: &Referent) -> Result<Option<HeapObject>, MemoryError> {
        self.reader.forget();
        if self.objects_and_told()?.is_none() {
            return Ok(None);
        }
        let Self { reader, layout, known, .. } = self;
        let (Some(objects), Some(told)) = (&known.objects, known.told) else {
            return Ok(None);
        };
        Reading { reader, layout, objects, told }.object(copied)
    }

    /// How objects lie, and the classes of which more is told. Both stay as they are for the life of the VM.
    fn objects_and_told(&mut self) -> Result<Option<(&Objects, ToldClasses)>, MemoryError> {
        let Self { reader, layout, known, .. } = self;
        if known.objects.is_none() {
            known.objects = Objects::of(reader, layout)?;
        }
        // A VM that has only just been started does not have all of them.
        if !known.told.is_some_and(|told| told.is_complete()) && known.objects.is_some() {
            known.told = Some(ToldClasses::find(reader, layout)?);
        }
        Ok(known.objects.as_ref().zip(known.told))
    }
}

impl ToldClasses {
    fn is_complete(&self) -> bool {
        self.string.is_some() && self.buffer.is_some() && self.descriptor.is_some()
    }

    fn find<M: RemoteMemory>(reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Self, MemoryError> {
        let names = ["java/lang/String", "java/nio/Buffer", "java/io/FileDescriptor"];
        let [string, buffer, descriptor] = classes_of_boot_loader(reader, &layout.names, names)?;
        let mut offset = |klass: Option<VirtAddr>, name: &str| -> Result<Option<(VirtAddr, u64)>, MemoryError> {
            let Some(klass) = klass else { return Ok(None) };
            let class = read_class(reader, layout, klass)?;
            Ok(class.and_then(|class| Some((klass, class.offset(name)?))))
        };
        let value = offset(string, "java/lang/String.value")?;
        let coder = offset(string, "java/lang/String.coder")?;
        Ok(Self {
            string: value.zip(coder).map(|((klass, value), (_, coder))| (klass, [value, coder])),
            buffer: offset(buffer, "java/nio/Buffer.capacity")?,
            descriptor: offset(descriptor, "java/io/FileDescriptor.fd")?,
        })
    }
}

/// What was read of classes since a collection.
#[derive(Debug, Default)]
pub(super) struct RecentClasses {
    /// How many collections had begun.
    at: u64,
    /// By address; `None` where there is no class.
    by_address: HashMap<VirtAddr, Option<ObjectClass>>,
}

/// What matters of a class to tell of its objects.
#[derive(Debug, Clone)]
struct ObjectClass {
    name: String,
    kind: ClassKind,
}

/// What is told of an object, and where that lies in it.
#[derive(Debug, Clone, Copy)]
enum ClassKind {
    Array,
    Descriptor { fd: u64 },
    String { coder: u64 },
    Buffer { capacity: u64 },
    Other,
}

/// Reads what one object refers to outside of the heap.
struct Reading<'a, M> {
    reader: &'a mut Reader<M>,
    layout: &'a CodeLayout,
    objects: &'a Objects,
    told: ToldClasses,
}

impl<M: RemoteMemory> Reading<'_, M> {
    fn object(&mut self, copied: &Referent) -> Result<Option<HeapObject>, MemoryError> {
        let Some(klass) = self.klass(copied) else {
            return Ok(None);
        };
        let class = self.class(klass)?;
        Ok(class.map(|class| self.described(&class, copied)))
    }

    fn klass(&self, copied: &Referent) -> Option<VirtAddr> {
        let (klass, _) = self.objects.klass(VirtAddr(copied.head.addr), copied.head.known())?;
        Some(klass)
    }

    fn class(&mut self, klass: VirtAddr) -> Result<Option<ObjectClass>, MemoryError> {
        let Some(name) = self.name(klass)? else {
            return Ok(None);
        };
        let kind = if name.starts_with('[') {
            ClassKind::Array
        } else if let Some((_, fd)) = self.told.descriptor.filter(|(descriptor, _)| *descriptor == klass) {
            ClassKind::Descriptor { fd }
        } else if let Some((_, [_, coder])) = self.told.string.filter(|(string, _)| *string == klass) {
            ClassKind::String { coder }
        } else if let Some((buffer, capacity)) = self.told.buffer
            && self.is_below(klass, buffer)?
        {
            ClassKind::Buffer { capacity }
        } else {
            ClassKind::Other
        };
        Ok(Some(ObjectClass { name, kind }))
    }

    fn described(&self, class: &ObjectClass, copied: &Referent) -> HeapObject {
        let head = copied.head.known();
        let length = |offset| int(head, offset).and_then(|length| u32::try_from(length).ok());
        let mut object = HeapObject { class: class.name.clone(), length: None, file: None, contents: None };
        match class.kind {
            ClassKind::Array => {
                object.length = length(self.objects.array_length());
                object.contents = self.array(&class.name, copied.contents());
            }
            ClassKind::Descriptor { fd } => object.file = int(head, fd),
            ClassKind::String { coder } => {
                object.contents = self.string(field(head, Number { offset: coder, width: 1 }), copied.contents());
            }
            ClassKind::Buffer { capacity } => object.length = length(capacity),
            ClassKind::Other => {}
        }
        object
    }

    fn name(&mut self, klass: VirtAddr) -> Result<Option<String>, MemoryError> {
        let Some([name]) = self.reader.numbers([(at(klass, self.layout.names.klass.name), 8)])? else {
            return Ok(None);
        };
        let texts = read_texts(self.reader, &self.layout.names, &[VirtAddr(name)])?;
        Ok(texts.into_iter().next().flatten().filter(|name| !name.is_empty()))
    }

    /// Whether a class is another one or one below it.
    fn is_below(&mut self, mut klass: VirtAddr, above: VirtAddr) -> Result<bool, MemoryError> {
        let Some(layout) = &self.layout.objects else {
            return Ok(false);
        };
        for _ in 0..MAX_PARENTS {
            if klass == above {
                return Ok(true);
            }
            match self.reader.numbers([(at(klass, layout.class.parent), 8)])? {
                Some([parent]) if parent != 0 => klass = VirtAddr(parent),
                _ => break,
            }
        }
        Ok(false)
    }

    /// The contents of a string, by the bytes of the array that it is kept in and what they are.
    fn string(&self, coder: Option<u64>, array: &[u8]) -> Option<Contents> {
        let (bytes, more) = self.elements(array, 1)?;
        match coder? {
            0 => Some(Contents::Text(bytes.iter().map(|byte| char::from(*byte)).collect(), more)),
            1 => Some(Contents::Text(utf16(bytes), more)),
            _ => None,
        }
    }

    fn array(&self, class: &str, array: &[u8]) -> Option<Contents> {
        match class {
            BYTES => self.elements(array, 1).map(|(bytes, more)| Contents::Bytes(bytes.to_vec(), more)),
            CHARS => self.elements(array, 2).map(|(bytes, more)| Contents::Text(utf16(bytes), more)),
            _ => None,
        }
    }

    /// The bytes of the elements of an array, as far as they were copied, and whether there are more.
    fn elements<'b>(&self, array: &'b [u8], width: u64) -> Option<(&'b [u8], bool)> {
        let length_at = self.objects.array_length();
        let length = u64::try_from(int(array, length_at)?).ok()?.checked_mul(width)?;
        let start = (length_at + 4).next_multiple_of(self.layout.versioned.array_alignment);
        let bytes = array.get(usize::try_from(start).ok()?..)?;
        let known = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        Some((&bytes[..known], (known as u64) < length))
    }
}

fn int(bytes: &[u8], offset: u64) -> Option<i32> {
    let value = field(bytes, Number { offset, width: 4 })?;
    u32::try_from(value).ok().map(u32::cast_signed)
}

fn utf16(bytes: &[u8]) -> String {
    let units = bytes.as_chunks().0.iter().copied().map(u16::from_le_bytes);
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::ObjectHead;

    use super::super::testing::SmallVm;
    use super::*;

    const NAMES: [(u64, &str); 4] =
        [(0x5_4000, "[B"), (0x5_4100, "java/lang/String"), (0x5_4200, "java/io/FileDescriptor"), (0x5_4300, "[C")];

    fn vm() -> SmallVm {
        let vm = SmallVm::new();
        for (klass, name) in NAMES {
            vm.word(klass + 8, klass + 0x80);
            vm.put(klass + 0x80, &[u8::try_from(name.len()).unwrap(), 0]);
            vm.put(klass + 0x82, name.as_bytes());
        }
        vm
    }

    fn told() -> ToldClasses {
        let [_, (string, _), (descriptor, _), _] = NAMES;
        let at = |klass, offset| Some((VirtAddr(klass), offset));
        ToldClasses { string: Some((VirtAddr(string), [12, 16])), buffer: None, descriptor: at(descriptor, 12) }
    }

    /// An object of a class, with what follows that in its second word, and the beginning of its contents.
    fn copied(klass: u64, next: u64, contents: &[u64]) -> Referent {
        let words = [1, klass | next << 32, 0, 0, 0, 0, 0, 0];
        let mut copied = Referent::without_contents(ObjectHead { addr: 0x8000, bytes: 64, words });
        copied.contents[..contents.len()].copy_from_slice(contents);
        copied.content_bytes = if contents.is_empty() { 0 } else { 24 };
        copied
    }

    fn object(copied: &Referent) -> Option<HeapObject> {
        let vm = vm();
        let mut unwinder = vm.unwinder();
        let Unwinder { reader, layout, .. } = &mut unwinder;
        Reading { reader, layout, objects: &Objects::small(), told: told() }.object(copied).unwrap()
    }

    /// Check what is told of objects of each kind, and that an object without a class is none.
    #[test]
    fn objects_by_class() {
        let plain = |class: &str| HeapObject { class: class.to_owned(), length: None, file: None, contents: None };
        assert_eq!(object(&copied(0x5_0000, 0, &[])), Some(plain("a/B")));
        assert_eq!(object(&copied(0x5_4000, 9, &[])), Some(HeapObject { length: Some(9), ..plain("[B") }));
        assert_eq!(object(&copied(0x5_4000, u64::from(u32::MAX), &[])), Some(plain("[B")));
        let descriptor = HeapObject { file: Some(5), ..plain("java/io/FileDescriptor") };
        assert_eq!(object(&copied(0x5_4200, 5, &[])), Some(descriptor));
        assert_eq!(object(&copied(0x7_7000, 5, &[])), None);
        let head = copied(0x5_0000, 0, &[]).head;
        assert_eq!(object(&Referent::without_contents(ObjectHead { words: [3; 8], ..head })), None);
        assert_eq!(object(&Referent::without_contents(ObjectHead { bytes: 8, ..head })), None);
    }

    /// Check that contents end where the array does or the copy, and that the two forms of strings are told apart.
    #[test]
    fn contents() {
        let contents = |copied: &Referent| object(copied).unwrap().contents;
        let bytes = u64::from_le_bytes(*b"abcdefgh");
        let array = |length: u64| [1, 0x5_4000 | length << 32, bytes];
        let text = |text: &str, more| Some(Contents::Text(text.to_owned(), more));
        assert_eq!(contents(&copied(0x5_4000, 3, &array(3))), Some(Contents::Bytes(b"abc".to_vec(), false)));
        assert_eq!(contents(&copied(0x5_4000, 9, &array(9))), Some(Contents::Bytes(b"abcdefgh".to_vec(), true)));
        let mut string = copied(0x5_4100, 0, &array(3));
        assert_eq!(contents(&string), text("abc", false));
        string.head.words[2] = 1;
        (string.contents[1], string.contents[2]) = (0x5_4000 | 4 << 32, 0x5416_0041);
        assert_eq!(contents(&string), text("A\u{5416}", false));
        string.head.words[2] = 7;
        assert_eq!(contents(&string), None);
        assert_eq!(contents(&copied(0x5_4300, 8, &[1, 0x5_4300 | 8 << 32, 0xd800_0041])), text("A\u{fffd}\0\0", true));
    }

    /// Check that nothing is said of an object if a collection has begun since it was copied.
    #[test]
    fn only_before_the_next_collection() {
        let vm = vm();
        vm.word(0x5_9000, 0x5_a000);
        vm.put(0x5_a040, &[7, 0, 0, 0]);
        let mut unwinder = vm.unwinder();
        (unwinder.known.objects, unwinder.known.told) =
            (Some(Objects::small()), Some(ToldClasses { buffer: Some((VirtAddr(0x5_4000), 0)), ..told() }));
        let copied = copied(0x5_4000, 9, &[]);
        assert!(unwinder.object(&copied, 7).unwrap().is_some());
        assert_eq!(unwinder.object(&copied, 6).unwrap(), None);
        // What was read before it began is no less certain for that, but only of what was copied before, and only for a moment.
        assert!(unwinder.next_object(&copied, 7).unwrap().is_some());
        vm.put(0x5_a040, &[8, 0, 0, 0]);
        assert!(unwinder.next_object(&copied, 7).unwrap().is_some());
        unwinder.forget_classes();
        assert_eq!(unwinder.next_object(&copied, 7).unwrap(), None);
        assert!(unwinder.next_object(&copied, 8).unwrap().is_some());
    }
}
