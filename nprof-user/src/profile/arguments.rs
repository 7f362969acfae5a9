//! What a call was made with: words and copies of objects as the programs have taken them, and by a descriptor the values.

use nprof_common::args::RESULT;
use nprof_common::{CallArgs, MadeCall, MadeWith, ObjectHead, Referent};

use crate::model::{
    ArgumentObject, ArgumentPlace, CallArguments, CallObject, CallValue, CallValues, UnknownArgument, argument_places,
    descriptor, is_reference, own_bits,
};
use crate::unwind::{Contents, HeapObject};

/// The class of what a static method gets in the place of an object.
const CLASS: &str = "java/lang/Class";

/// What a call was made with, before it is known which method's it is. Objects have numbers that whoever reads them gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedWords {
    /// Those of them that are the method's, as far as they are known.
    words: Box<[u64]>,
    result: Result<u64, UnknownArgument>,
    /// By word or [`RESULT`]: what is known of objects and files. Nothing is not there.
    known: Box<[(u8, Known)]>,
    /// Whether all methods of the function agree in what its arguments are.
    is_described: bool,
}

/// What is known of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The number of an object, or of a file.
    Object(u32),
    /// Why nothing is.
    No(UnknownArgument),
}

/// The same of a slow call, with its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    words: NotedWords,
    objects: Vec<CallObject>,
}

/// Who says what references lead to, and what file descriptors name.
pub(super) trait Heap {
    /// What the first bytes of an object tell; `None` if it is not certain.
    fn object(&mut self, referent: &Referent) -> Option<HeapObject>;
    /// What a file descriptor names.
    fn file(&mut self, fd: i32) -> Option<String>;
    /// The number of an object; `None` if there are too many.
    fn number(&mut self, object: CallObject) -> Option<u32>;
}

impl Arguments {
    /// As the programs have laid it out.
    pub(super) fn read(
        args: &CallArgs,
        object: impl FnMut(&Referent) -> Option<HeapObject>,
        file: impl FnMut(i32) -> Option<String>,
    ) -> Self {
        let mut heap = OfOneCall { object, file, objects: Vec::new() };
        let words = NotedWords::read(&args.made, |at| Ok(args.referent(at).copied()), &mut heap);
        Self { words, objects: heap.objects }
    }

    /// The values, for a method with this descriptor; `None` if it is not known what they are.
    #[must_use]
    pub fn of(&self, signature: &str) -> Option<CallArguments> {
        self.words.of(signature)?.in_full(signature, &self.objects)
    }
}

/// The objects of one call.
struct OfOneCall<O, F> {
    object: O,
    file: F,
    objects: Vec<CallObject>,
}

impl<O: FnMut(&Referent) -> Option<HeapObject>, F: FnMut(i32) -> Option<String>> Heap for OfOneCall<O, F> {
    fn object(&mut self, referent: &Referent) -> Option<HeapObject> {
        (self.object)(referent)
    }

    fn file(&mut self, fd: i32) -> Option<String> {
        (self.file)(fd)
    }

    fn number(&mut self, object: CallObject) -> Option<u32> {
        self.objects.push(object);
        u32::try_from(self.objects.len() - 1).ok()
    }
}

impl NotedWords {
    /// Of a call of a timeline, as the programs have laid it out.
    pub(super) fn of_timeline(call: &MadeCall, heap: &mut impl Heap) -> Self {
        let referent = |head: &ObjectHead| Referent::without_contents(*head);
        let found = |at: usize| match call.has_place(at) {
            true => Ok(call.object(at).map(referent)),
            false => Err(UnknownArgument::TooMany),
        };
        Self::read(&call.made, found, heap)
    }

    /// `found` is what a reference leads to, as far as it was looked at.
    fn read(
        made: &MadeWith,
        found: impl Fn(usize) -> Result<Option<Referent>, UnknownArgument>,
        heap: &mut impl Heap,
    ) -> Self {
        let used = made.used();
        let result = match (made.has_result, made.has_thrown) {
            (0, _) => Err(UnknownArgument::NotReturned),
            (_, 0) => Ok(made.result),
            _ => Err(UnknownArgument::Thrown),
        };
        let mut known = Vec::new();
        for at in (0..used).chain([RESULT]) {
            let of_word = match (made.is_reference(at), made.word(at).filter(|_| made.is_file(at))) {
                (true, _) => of_reference(at, found(at), heap),
                (false, Some(word)) => of_file(to_int(word), heap),
                (false, None) => None,
            };
            // There are fewer than fifteen.
            known.extend(of_word.and_then(|of| Some((u8::try_from(at).ok()?, of))));
        }
        let words = (0..used).map_while(|at| made.word(at)).collect();
        Self { words, result, known: known.into(), is_described: made.kinds != 0 }
    }

    /// The values, for a method with this descriptor; `None` if it is not known what they are.
    #[must_use]
    pub fn of(&self, signature: &str) -> Option<CallValues> {
        let places = argument_places(signature).filter(|_| self.is_described)?;
        let this = match self.known(0) {
            Some(Known::Object(number)) => Some(number),
            _ => None,
        };
        let arguments = places.into_iter().map(|(field, place)| match place {
            ArgumentPlace::FloatRegister => CallValue::Unknown(UnknownArgument::FloatRegister),
            ArgumentPlace::Above => CallValue::Unknown(UnknownArgument::TooMany),
            ArgumentPlace::Word(at) => match self.words.get(at) {
                Some(word) => self.value(field, at, *word),
                None => CallValue::Unknown(UnknownArgument::NotNoted),
            },
        });
        let result = match (descriptor::result(signature), self.result) {
            // What returns nothing may still have thrown.
            (_, Err(why)) => Some(CallValue::Unknown(why)),
            (None, Ok(_)) => None,
            (Some("F" | "D"), Ok(_)) => Some(CallValue::Unknown(UnknownArgument::FloatRegister)),
            (Some(field), Ok(word)) => Some(self.value(field, RESULT, word)),
        };
        Some(CallValues { this, values: arguments.chain(result).collect() })
    }

    fn value(&self, field: &str, at: usize, word: u64) -> CallValue {
        match (is_reference(field), self.known(at)) {
            (true, _) if word == 0 => CallValue::Null,
            (true, Some(Known::Object(number))) => CallValue::Object(number),
            (true, Some(Known::No(why))) => CallValue::Unknown(why),
            (true, None) => CallValue::Unknown(UnknownArgument::Heap),
            (false, Some(Known::Object(number))) if field == "I" => {
                CallValue::File(to_int(word).cast_unsigned(), number)
            }
            (false, _) => CallValue::Number(own_bits(field, word)),
        }
    }

    fn known(&self, at: usize) -> Option<Known> {
        self.known.iter().find(|(word, _)| usize::from(*word) == at).map(|(_, known)| *known)
    }
}

/// What there is to say of a reference.
fn of_reference(at: usize, found: Result<Option<Referent>, UnknownArgument>, heap: &mut impl Heap) -> Option<Known> {
    let referent = match found {
        Ok(referent) => referent?,
        Err(why) => return Some(Known::No(why)),
    };
    let object = heap.object(&referent)?;
    if at == 0 && object.class == CLASS {
        return None;
    }
    let file = object.file.filter(|fd| *fd >= 0).and_then(|fd| heap.file(fd));
    let number = heap.number(CallObject { object: Some(to_model(&object)), file });
    Some(number.map_or(Known::No(UnknownArgument::TooMany), Known::Object))
}

/// What there is to say of a file descriptor.
fn of_file(fd: i32, heap: &mut impl Heap) -> Option<Known> {
    let file = heap.file(Some(fd).filter(|fd| *fd >= 0)?)?;
    heap.number(CallObject { object: None, file: Some(file) }).map(Known::Object)
}

#[expect(clippy::cast_possible_truncation, reason = "an int is the lower half")]
fn to_int(word: u64) -> i32 {
    (word as u32).cast_signed()
}

fn to_model(object: &HeapObject) -> ArgumentObject {
    let HeapObject { class, length, file, contents } = object;
    let class = if class.starts_with('[') { descriptor::java_type(class) } else { class.replace('/', ".") };
    let contents = contents.as_ref().map(|contents| match contents {
        Contents::Text(text, more) => (text.clone(), *more),
        // A character for each byte: whoever shows them escapes them.
        Contents::Bytes(bytes, more) => (bytes.iter().map(|byte| char::from(*byte)).collect(), *more),
    });
    ArgumentObject { class, length: *length, fd: *file, contents }
}

#[cfg(test)]
mod tests {
    use nprof_common::args::{FILES_SHIFT, USED_SHIFT, WORDS};
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::model::ArgumentValue;

    const METHOD: &str = "(I[BLjava/io/FileDescriptor;ZCSJD)I";
    /// Of this method: two references besides the class.
    const KINDS: u64 = 0b1101 | 8 << USED_SHIFT;

    fn made() -> MadeWith {
        let mut made = MadeWith::new_zeroed();
        (made.known, made.has_result, made.is_still, made.kinds) = (WORDS as u64, 1, 1, KINDS);
        // Of each only the lower bits count.
        made.words[..8].copy_from_slice(&[1, u64::MAX - 4, 2, 3, 0xf00, 0xaaaa_0041, 0xaaaa_ffff, 1 << 40]);
        made.result = 0xffff_ffff_0000_0007;
        made
    }

    fn args(made: MadeWith) -> CallArgs {
        let mut args = CallArgs { made, ..CallArgs::new_zeroed() };
        for at in [2, 3] {
            (args.referents[at].head.bytes, args.referents[at].head.addr) = (64, at as u64);
        }
        args
    }

    fn object(referent: &Referent) -> Option<HeapObject> {
        let plain = HeapObject { class: "java/io/FileDescriptor".into(), length: None, file: Some(5), contents: None };
        match referent.head.addr {
            2 => Some(HeapObject { class: "[B".into(), length: Some(9), file: None, ..plain }),
            _ => Some(plain),
        }
    }

    fn of(args: &CallArgs, signature: &str) -> Option<CallArguments> {
        Arguments::read(args, object, |fd| Some(format!("file {fd}"))).of(signature)
    }

    fn unknown(why: UnknownArgument) -> ArgumentValue {
        ArgumentValue::Unknown(why)
    }

    /// Check that each value is what its type makes of the word, and that no float is made up.
    #[test]
    fn values_by_type() {
        use ArgumentValue::{Boolean, Char, Integer, Object};
        let read = of(&args(made()), METHOD).unwrap();
        let plain = ArgumentObject { class: "byte[]".into(), length: Some(9), fd: None, contents: None };
        let file =
            ArgumentObject { class: "java.io.FileDescriptor".into(), length: None, fd: Some(5), ..plain.clone() };
        let values: Vec<_> = read.arguments.iter().map(|argument| argument.value.clone()).collect();
        let float = unknown(UnknownArgument::FloatRegister);
        let expected = [
            Integer(-5),
            Object(plain),
            Object(file),
            Boolean(false),
            Char(0x41),
            Integer(-1),
            Integer(1 << 40),
            float,
        ];
        assert_eq!(values, expected);
        assert_eq!(read.arguments[2].file.as_deref(), Some("file 5"));
        assert_eq!(read.result.unwrap().value, Integer(7));
        assert_eq!(read.this, None);
    }

    /// Check that what was not taken is not known, that nothing is not something that is not known, and that methods that do not
    /// agree have no arguments.
    #[test]
    fn what_is_not_known() {
        let value = |made: MadeWith, at: usize| of(&args(made), METHOD).unwrap().arguments[at].value.clone();
        let none = MadeWith { known: 0, has_result: 0, ..made() };
        assert_eq!(value(none, 0), unknown(UnknownArgument::NotNoted));
        let result = |made: MadeWith, signature| of(&args(made), signature).unwrap().result;
        assert_eq!(result(none, METHOD).unwrap().value, unknown(UnknownArgument::NotReturned));
        assert_eq!(value(MadeWith { is_still: 0, ..made() }, 1), unknown(UnknownArgument::Heap));
        let mut null = args(made());
        null.made.words[2] = 0;
        null.referents[2].head.bytes = 0;
        assert_eq!(of(&null, METHOD).unwrap().arguments[1].value, ArgumentValue::Null);
        let thrown = MadeWith { has_thrown: 1, ..made() };
        assert_eq!(result(thrown, METHOD).unwrap().value, unknown(UnknownArgument::Thrown));
        assert_eq!(of(&args(MadeWith { kinds: 0, ..made() }), METHOD), None);
        assert_eq!(result(made(), "()V"), None);
        assert_eq!(result(thrown, "()V").unwrap().value, unknown(UnknownArgument::Thrown));
    }

    /// Check that no file is named for a number that is no descriptor.
    #[test]
    fn no_descriptor() {
        let file = |word: u64| {
            let mut made = MadeWith { kinds: 1 | 8 << USED_SHIFT | 1 << (1 + FILES_SHIFT), ..made() };
            made.words[1] = word;
            of(&args(made), METHOD).unwrap().arguments[0].file.clone()
        };
        assert_eq!(
            [file(7), file(u64::MAX), file((-100_i64).cast_unsigned())],
            [Some("file 7".to_owned()), None, None]
        );
    }

    /// Check that a call of a timeline has the same values, that objects beyond those that are looked at are said to be too many, and that
    /// no more words are kept than are the method's.
    #[test]
    fn of_a_timeline() {
        let mut call = MadeCall { made: made(), ..MadeCall::new_zeroed() };
        for (place, addr) in [(1, 2), (2, 3)] {
            (call.objects[place].bytes, call.objects[place].addr) = (64, addr);
        }
        let mut heap = OfOneCall { object, file: |fd| Some(format!("file {fd}")), objects: Vec::new() };
        let noted = NotedWords::of_timeline(&call, &mut heap);
        let values = noted.of(METHOD).unwrap().in_full(METHOD, &heap.objects);
        assert_eq!((values, noted.words.len()), (of(&args(made()), METHOD), 8));
        call.made.kinds = 0xff | 8 << USED_SHIFT;
        let many = NotedWords::of_timeline(&call, &mut heap).of("([B[B[B[B[B[B[B)V").unwrap();
        assert_eq!(many.values[5..], [CallValue::Unknown(UnknownArgument::TooMany); 2]);
        assert_eq!(many.values[3], CallValue::Unknown(UnknownArgument::Heap));
    }
}
