//! Java objects in the heap of a running VM: what class they are of, and where their references lead. They move, so all
//! that is read of them comes with assumptions.

use std::collections::HashMap;
use std::sync::Arc;

use nprof_common::FrozenPlaces;

use super::assumption::Assumption;
use super::classes::{Class, read_class};
use super::layout::{CodeLayout, field};
use super::object_layout::ObjectLayout;
use crate::hotspot::{Number, Reader, RemoteMemory, at, is_plausible, read_flags};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// As much of an object as is read: the fields of those that are met here lie within.
const OBJECT_BYTES: usize = 256;
/// The lowest bits of a mark word whose object has been moved.
const FORWARDED: u64 = 0b11;
/// Those bits of a coloured pointer that are no part of the address, whatever its colour.
const COLOUR_BITS: u64 = 0xffff;
/// Those of them that say how far the address is shifted.
const SHIFT_BITS: u64 = 0xf000;
/// Classes of threads, continuations and chunks; beyond, something is wrong and the cache starts over.
const MAX_CLASSES: usize = 1 << 10;

/// How an object says what class it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    Wide {
        offset: u64,
    },
    Narrow {
        offset: u64,
        base: u64,
        shift: u32,
    },
    /// In the upper bits of the mark word.
    InMark {
        first_bit: u32,
        base: u64,
        shift: u32,
    },
}

/// How one object refers to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Narrow {
        base: u64,
        shift: u32,
    },
    /// By the collector Z: where its mask of bad colours and its shift are.
    Coloured {
        bad_mask: VirtAddr,
        shift: VirtAddr,
    },
}

/// The colours that are good at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Colours {
    bad_mask: u64,
    shift: u64,
}

/// Where a reference leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    Null,
    To(VirtAddr),
    /// To where the object was before the collector moved things; it may have been moved.
    Stale,
}

/// How objects lie in this VM, and the classes that have been met.
#[derive(Debug)]
pub(super) struct Objects {
    header: Header,
    form: Form,
    /// Whether the collector moves objects while the program runs, and leaves word at their old places.
    leaves_word: bool,
    classes: HashMap<VirtAddr, Arc<Class>>,
}

/// An object as it was read.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) addr: VirtAddr,
    pub(super) class: Arc<Class>,
    bytes: Vec<u8>,
    /// What shows that it is still the same, as far as its fields were looked at.
    pub(super) assumptions: Vec<Assumption>,
}

impl Object {
    /// The value of a field of one to eight bytes; `None` if it has no such field.
    pub(super) fn number(&mut self, name: &str, width: usize) -> Option<u64> {
        let offset = self.class.offset(name)?;
        let value = field(&self.bytes, Number { offset, width })?;
        self.assumptions.push(Assumption { addr: at(self.addr, offset), width, value });
        Some(value)
    }
}

impl Objects {
    /// Of a small VM: classes are named by 32 bits, and references have their full width.
    #[cfg(test)]
    pub(super) fn small() -> Self {
        let header = Header::Narrow { offset: 8, base: 0, shift: 0 };
        Self { header, form: Form::Plain, leaves_word: false, classes: HashMap::new() }
    }

    /// Finds out how objects lie; `None` if that is not known of this VM.
    pub(super) fn of<M: RemoteMemory>(
        reader: &mut Reader<M>,
        layout: &CodeLayout,
    ) -> Result<Option<Self>, MemoryError> {
        let Some(layout) = &layout.objects else {
            return Ok(None);
        };
        let names = [
            "UseCompressedClassPointers",
            "UseCompactObjectHeaders",
            "UseCompressedOops",
            "UseZGC",
            "ZGenerational",
            "UseShenandoahGC",
        ];
        let Some(flags) = read_flags(reader, &layout.flags, names)? else {
            return Ok(None);
        };
        let [narrow_klass, compact, narrow_oops, z, generational, shenandoah] =
            flags.map(|flag| flag.map(|flag| flag.is_on));
        let objects = &layout.objects;
        let variables = [objects.narrow_klass, objects.narrow_oop];
        let [[klass_base, klass_shift], [oop_base, oop_shift]] = variables.map(|[base, shift]| [(base, 8), (shift, 4)]);
        let Some([klass_base, klass_shift, oop_base, oop_shift]) =
            reader.numbers([klass_base, klass_shift, oop_base, oop_shift])?
        else {
            return Ok(None);
        };
        let offset = objects.klass_offset;
        // What is not compressed has no shift, or one that makes no sense.
        let narrow = shift(klass_shift).map(|shift| Header::Narrow { offset, base: klass_base, shift });
        let header = match (compact, narrow_klass) {
            (Some(true), _) => objects.klass_in_mark.zip(shift(klass_shift)).map(|(first_bit, shift)| Header::InMark {
                first_bit,
                base: klass_base,
                shift,
            }),
            (_, Some(false)) => Some(Header::Wide { offset }),
            // Versions without the flag have no wide ones.
            (_, Some(true) | None) => narrow,
        };
        // Z without generations colours in another way.
        let form = match (z, narrow_oops) {
            (Some(true), _) if generational == Some(false) => None,
            (Some(true), _) => coloured(reader, objects)?,
            (_, Some(true)) => shift(oop_shift).map(|shift| Form::Narrow { base: oop_base, shift }),
            (_, Some(false)) => Some(Form::Plain),
            (_, None) => None,
        };
        let leaves_word = shenandoah == Some(true);
        Ok(header.zip(form).map(|(header, form)| Self { header, form, leaves_word, classes: HashMap::new() }))
    }

    /// How many bytes a reference takes in an object.
    pub(super) fn reference_bytes(&self) -> usize {
        if matches!(self.form, Form::Narrow { .. }) { 4 } else { 8 }
    }

    /// How references are written, as the programs in the kernel have to know it. `None` if colours are not what those
    /// take them for: of four bits the one that is set says how many stand below the address.
    pub(super) fn references(&self, colours: Colours) -> Option<FrozenPlaces> {
        let moves = u64::from(self.leaves_word);
        let plain = FrozenPlaces { reference_bytes: 8, moves, ..FrozenPlaces::default() };
        match self.form {
            Form::Plain => Some(plain),
            Form::Narrow { base, shift } => {
                Some(FrozenPlaces { reference_bytes: 4, reference_base: base, reference_shift: shift.into(), ..plain })
            }
            Form::Coloured { bad_mask, .. } => {
                let good = !colours.bad_mask & SHIFT_BITS;
                let is_known = good.is_power_of_two() && u64::from(good.trailing_zeros()) + 1 == colours.shift;
                is_known.then_some(FrozenPlaces { bad_colours: bad_mask.0, ..plain })
            }
        }
    }

    /// The colours that are good now. Other collectors than Z have none.
    pub(super) fn colours<M: RemoteMemory>(&self, reader: &mut Reader<M>) -> Result<Option<Colours>, MemoryError> {
        let Form::Coloured { bad_mask, shift } = self.form else {
            return Ok(Some(Colours::default()));
        };
        let read = reader.numbers([(bad_mask, 8), (shift, 8)])?;
        Ok(read.filter(|[_, shift]| *shift < 64).map(|[bad_mask, shift]| Colours { bad_mask, shift }))
    }

    /// Where a reference leads that was read from an object.
    pub(super) fn within(&self, value: u64, colours: Colours) -> Reference {
        match self.form {
            Form::Narrow { .. } if value == 0 => Reference::Null,
            Form::Narrow { base, shift } => Reference::To(at(VirtAddr(base), value << shift)),
            Form::Plain | Form::Coloured { .. } => self.outside(value, colours),
        }
    }

    /// The same for a reference that lies outside of the heap, where none is compressed.
    pub(super) fn outside(&self, value: u64, colours: Colours) -> Reference {
        match self.form {
            Form::Coloured { .. } if value & !COLOUR_BITS == 0 => Reference::Null,
            Form::Coloured { .. } if value & colours.bad_mask != 0 => Reference::Stale,
            Form::Coloured { .. } => Reference::To(VirtAddr(value >> colours.shift)),
            _ if value == 0 => Reference::Null,
            _ => Reference::To(VirtAddr(value)),
        }
    }

    /// Reads the object at `addr`; `None` if there is none, or if it is about to be moved.
    pub(super) fn read<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        addr: VirtAddr,
    ) -> Result<Option<Object>, MemoryError> {
        if !is_plausible(addr) || !addr.0.is_multiple_of(8) {
            return Ok(None);
        }
        let mut found = None;
        reader.runs_of(&[(addr, OBJECT_BYTES)], |run| *run, |_, bytes| found = bytes.map(<[u8]>::to_vec))?;
        let Some(bytes) = found else {
            return Ok(None);
        };
        let Some((klass, assumption)) = self.klass(addr, &bytes) else {
            return Ok(None);
        };
        let known = self.classes.get(&klass).map(Arc::clone);
        let class = match known {
            Some(class) => class,
            None => match read_class(reader, layout, klass)? {
                Some(class) => self.remember(klass, class),
                None => return Ok(None),
            },
        };
        Ok(Some(Object { addr, class, bytes, assumptions: vec![assumption] }))
    }

    fn remember(&mut self, klass: VirtAddr, class: Arc<Class>) -> Arc<Class> {
        if self.classes.len() >= MAX_CLASSES {
            self.classes.clear();
        }
        self.classes.insert(klass, Arc::clone(&class));
        class
    }

    /// Where in an array its length stands.
    pub(super) fn array_length(&self) -> u64 {
        match self.header {
            Header::Wide { offset } => offset + 8,
            Header::Narrow { offset, .. } => offset + 4,
            Header::InMark { .. } => 8,
        }
    }

    /// Which of the first two words of an object names its class, by its place in bytes; the bits of it that do so, and what they
    /// are for this class. `None` if the class cannot be that of an object.
    pub(super) fn class_word(&self, klass: VirtAddr) -> Option<[u64; 3]> {
        let narrow = |base: u64, shift: u32| Some(klass.0.checked_sub(base)? >> shift);
        match self.header {
            Header::Wide { offset: 8 } => Some([8, u64::MAX, klass.0]),
            Header::Narrow { offset: 8, base, shift } => Some([8, u64::from(u32::MAX), narrow(base, shift)?]),
            Header::InMark { first_bit, base, shift } => {
                let above = u64::MAX.checked_shl(first_bit)?;
                Some([0, above, narrow(base, shift)? << first_bit])
            }
            Header::Wide { .. } | Header::Narrow { .. } => None,
        }
    }

    /// How references in objects are written, if handles lead to where objects are: bytes, base and shift. The collector Z has
    /// handles lead to old places for a while, and nothing shows which of them do.
    pub(super) fn plain_references(&self) -> Option<[u64; 3]> {
        match self.form {
            Form::Plain => Some([8, 0, 0]),
            Form::Narrow { base, shift } => Some([4, base, shift.into()]),
            Form::Coloured { .. } => None,
        }
    }

    /// The class of an object that begins with `bytes`, and what says so.
    pub(super) fn klass(&self, addr: VirtAddr, bytes: &[u8]) -> Option<(VirtAddr, Assumption)> {
        let mark = field(bytes, Number { offset: 0, width: 8 })?;
        if mark & FORWARDED == FORWARDED {
            return None;
        }
        let wide = |offset, width| Some((field(bytes, Number { offset, width })?, offset, width));
        let (klass, (value, offset, width)) = match self.header {
            Header::Wide { offset } => {
                let found = wide(offset, 8)?;
                (found.0, found)
            }
            Header::Narrow { offset, base, shift } => {
                let found = wide(offset, 4)?;
                (base.checked_add(found.0 << shift)?, found)
            }
            // The lower half of the mark word changes when the object is locked.
            Header::InMark { first_bit, base, shift } => {
                (base.checked_add(mark.checked_shr(first_bit)? << shift)?, wide(4, 4)?)
            }
        };
        let klass = VirtAddr(klass);
        is_plausible(klass).then_some((klass, Assumption { addr: at(addr, offset), width, value }))
    }
}

/// A shift of a compressed pointer: those that there are, are below.
fn shift(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|shift| *shift < 32)
}

fn coloured<M: RemoteMemory>(reader: &mut Reader<M>, layout: &ObjectLayout) -> Result<Option<Form>, MemoryError> {
    let Some(colours) = &layout.colours else {
        return Ok(None);
    };
    let Some([instance]) = reader.numbers([(colours.instance, 8)])? else {
        return Ok(None);
    };
    let fields = [colours.bad_mask, colours.shift].map(|field| (at(VirtAddr(instance), field), 8));
    let variables = reader.numbers(fields)?;
    Ok(variables.map(|[bad_mask, shift]| Form::Coloured { bad_mask: VirtAddr(bad_mask), shift: VirtAddr(shift) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(header: Header, form: Form) -> Objects {
        Objects { header, form, leaves_word: false, classes: HashMap::new() }
    }

    /// Check that compressed references are widened, that coloured ones lose their colour, and that old colours show.
    #[test]
    fn resolves_references() {
        let header = Header::Wide { offset: 8 };
        let none = Colours::default();
        let narrow = objects(header, Form::Narrow { base: 0x1000, shift: 3 });
        assert_eq!(narrow.within(2, none), Reference::To(VirtAddr(0x1010)));
        assert_eq!(narrow.within(0, none), Reference::Null);
        assert_eq!(narrow.outside(0x5000, none), Reference::To(VirtAddr(0x5000)));
        let z = objects(header, Form::Coloured { bad_mask: VirtAddr(0), shift: VirtAddr(0) });
        let colours = Colours { bad_mask: 0xe000, shift: 13 };
        assert_eq!(z.within(0x4_0000_2000 << 13 | 0x1010, colours), Reference::To(VirtAddr(0x4_0000_2000)));
        assert_eq!(z.within(0x4_0000_2000 << 13 | 0x2010, colours), Reference::Stale);
        assert_eq!(z.within(0x2010, colours), Reference::Null);
        assert!(z.references(Colours { bad_mask: 0xe000, shift: 13 }).is_some());
        assert_eq!(z.references(Colours { bad_mask: 0xd000, shift: 13 }), None);
        assert_eq!(narrow.references(none).unwrap().reference_base, 0x1000);
    }

    /// Check that the class is found in every form of header, and that an object that is being moved has none.
    #[test]
    fn finds_the_class() {
        let bytes = |mark: u64, next: u64| [mark.to_le_bytes(), next.to_le_bytes()].concat();
        let class = |header, bytes: &[u8]| {
            objects(header, Form::Plain)
                .klass(VirtAddr(0x8000), bytes)
                .map(|(klass, assumption)| (klass.0, assumption.value))
        };
        let narrow = Header::Narrow { offset: 8, base: 0x10_0000, shift: 3 };
        let in_mark = Header::InMark { first_bit: 42, base: 0x10_0000, shift: 10 };
        assert_eq!(class(Header::Wide { offset: 8 }, &bytes(1, 0x7_0000)), Some((0x7_0000, 0x7_0000)));
        assert_eq!(class(narrow, &bytes(1, 0xffff_ffff_0000_0002)), Some((0x10_0010, 2)));
        assert_eq!(class(in_mark, &bytes(5 << 42 | 1, 0)), Some((0x10_1400, 5 << 10)));
        assert_eq!(class(narrow, &bytes(3, 2)), None);
    }

    /// Check that the programs are told of a class what its objects begin with, and where arrays have their length.
    #[test]
    fn class_words() {
        let klass = VirtAddr(0x10_1400);
        let of = |header| (objects(header, Form::Plain).class_word(klass), objects(header, Form::Plain).array_length());
        let narrow = |offset| Header::Narrow { offset, base: 0x10_0000, shift: 3 };
        assert_eq!(of(narrow(8)), (Some([8, 0xffff_ffff, 0x280]), 12));
        assert_eq!(of(narrow(16)).0, None);
        assert_eq!(of(Header::Wide { offset: 8 }), (Some([8, u64::MAX, 0x10_1400]), 16));
        let in_mark = Header::InMark { first_bit: 42, base: 0x10_0000, shift: 10 };
        assert_eq!(of(in_mark), (Some([0, u64::MAX << 42, 5 << 42]), 8));
    }
}
