//! What a slow call was made with: words and copies of objects as the programs have taken them, and by a descriptor the values.

use nprof_common::args::{FILES_SHIFT, REFERENCES, RESULT, WORDS};
use nprof_common::{CallArgs, Referent};

use crate::model::{
    Argument, ArgumentObject, ArgumentPlace, ArgumentValue, CallArguments, UnknownArgument, argument_places,
    descriptor, is_reference,
};
use crate::unwind::{Contents, HeapObject};

/// The class of what a static method gets in the place of an object.
const CLASS: &str = "java/lang/Class";

/// What a call was made with, before it is known which method's it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    words: [Option<u64>; WORDS],
    result: Result<u64, UnknownArgument>,
    /// What the words refer to that are references, and the result; `None` also for what is not certain.
    objects: [Option<HeapObject>; REFERENCES],
    /// What the file descriptors stand for among those.
    files: [Option<String>; REFERENCES],
    /// Whether all methods of the function agree in what its arguments are.
    is_known: bool,
}

impl Arguments {
    /// As the programs have laid it out. `object` describes an object, and `file` a file descriptor.
    pub(super) fn read(
        args: &CallArgs,
        mut object: impl FnMut(&Referent) -> Option<HeapObject>,
        mut file: impl FnMut(i32) -> Option<String>,
    ) -> Self {
        let objects: [_; REFERENCES] = std::array::from_fn(|at| args.referent(at).and_then(&mut object));
        let fd_in_word = |word: usize| {
            let is_file = args.kinds >> (word + FILES_SHIFT as usize) & 1 != 0;
            args.word(word).filter(|_| is_file).map(to_int)
        };
        let files = std::array::from_fn(|at| {
            let in_object = objects[at].as_ref().and_then(|object| object.file);
            in_object.or_else(|| fd_in_word(at)).filter(|fd| *fd >= 0).and_then(&mut file)
        });
        let result = match (args.has_result, args.has_thrown) {
            (0, _) => Err(UnknownArgument::NotReturned),
            (_, 0) => Ok(args.result),
            _ => Err(UnknownArgument::Thrown),
        };
        Self { words: std::array::from_fn(|word| args.word(word)), result, objects, files, is_known: args.kinds != 0 }
    }

    /// The values, for a method with this descriptor; `None` if it is not known what they are.
    #[must_use]
    pub fn of(&self, signature: &str) -> Option<CallArguments> {
        let places = argument_places(signature).filter(|_| self.is_known)?;
        let this = self.objects[0].as_ref().filter(|this| this.class != CLASS).map(to_model);
        let result = match (descriptor::result(signature), self.result) {
            // What returns nothing may still have thrown.
            (None, Err(why)) => Some(argument("V", unknown(why), None)),
            (None, Ok(_)) => None,
            (Some(field @ ("F" | "D")), Ok(_)) => Some(argument(field, unknown(UnknownArgument::FloatRegister), None)),
            (Some(field), Ok(word)) => Some(self.value(field, RESULT, word)),
            (Some(field), Err(why)) => Some(argument(field, unknown(why), None)),
        };
        let arguments = places.into_iter().map(|(field, place)| match place {
            ArgumentPlace::FloatRegister => argument(field, unknown(UnknownArgument::FloatRegister), None),
            ArgumentPlace::Above => argument(field, unknown(UnknownArgument::TooMany), None),
            ArgumentPlace::Word(at) => match self.words[at] {
                Some(word) => self.value(field, at, word),
                None => argument(field, unknown(UnknownArgument::NotNoted), None),
            },
        });
        Some(CallArguments { this, arguments: arguments.collect(), result })
    }

    fn value(&self, field: &str, at: usize, word: u64) -> Argument {
        let value = match (is_reference(field), &self.objects[at]) {
            (true, _) if word == 0 => ArgumentValue::Null,
            (true, Some(object)) => ArgumentValue::Object(to_model(object)),
            (true, None) => unknown(UnknownArgument::Heap),
            (false, _) => number(field, word),
        };
        argument(field, value, self.files[at].clone())
    }
}

/// A number as a register or a word of the stack holds it: the bits above its own mean nothing.
#[expect(clippy::cast_possible_truncation, reason = "that is what is meant")]
fn number(field: &str, word: u64) -> ArgumentValue {
    match field {
        "Z" => ArgumentValue::Boolean(word as u8 != 0),
        "C" => ArgumentValue::Char(word as u16),
        "B" => ArgumentValue::Integer((word as u8).cast_signed().into()),
        "S" => ArgumentValue::Integer((word as u16).cast_signed().into()),
        "I" => ArgumentValue::Integer(to_int(word).into()),
        "F" => ArgumentValue::Float(word as u32),
        "D" => ArgumentValue::Double(word),
        _ => ArgumentValue::Integer(word.cast_signed()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an int is the lower half")]
fn to_int(word: u64) -> i32 {
    (word as u32).cast_signed()
}

fn unknown(why: UnknownArgument) -> ArgumentValue {
    ArgumentValue::Unknown(why)
}

fn argument(field: &str, value: ArgumentValue, file: Option<String>) -> Argument {
    Argument { declared: descriptor::java_type(field), value, file }
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
    use zerocopy::FromZeros as _;

    use super::*;

    const METHOD: &str = "(I[BLjava/io/FileDescriptor;ZCSJD)I";

    fn args() -> CallArgs {
        let mut args = CallArgs { known: WORDS as u64, has_result: 1, is_still: 1, kinds: 1, ..CallArgs::new_zeroed() };
        // Of each only the lower bits count.
        args.words[..8].copy_from_slice(&[1, u64::MAX - 4, 2, 3, 0xf00, 0xaaaa_0041, 0xaaaa_ffff, 1 << 40]);
        (args.referents[2].head_bytes, args.referents[3].head_bytes) = (64, 64);
        (args.referents[2].addr, args.referents[3].addr) = (2, 3);
        args.result = 0xffff_ffff_0000_0007;
        args
    }

    fn object(referent: &Referent) -> Option<HeapObject> {
        let plain = HeapObject { class: "java/io/FileDescriptor".into(), length: None, file: Some(5), contents: None };
        match referent.addr {
            2 => Some(HeapObject { class: "[B".into(), length: Some(9), file: None, ..plain }),
            _ => Some(plain),
        }
    }

    fn of(args: &CallArgs, signature: &str) -> Option<CallArguments> {
        Arguments::read(args, object, |fd| Some(format!("file {fd}"))).of(signature)
    }

    /// Check that each value is what its type makes of the word, and that no float is made up.
    #[test]
    fn values_by_type() {
        use ArgumentValue::{Boolean, Char, Integer, Object};
        let read = of(&args(), METHOD).unwrap();
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
        let value = |args: &CallArgs, at: usize| of(args, METHOD).unwrap().arguments[at].value.clone();
        let none = CallArgs { known: 0, has_result: 0, ..args() };
        assert_eq!(value(&none, 0), unknown(UnknownArgument::NotNoted));
        assert_eq!(of(&none, METHOD).unwrap().result.unwrap().value, unknown(UnknownArgument::NotReturned));
        let moving = CallArgs { is_still: 0, ..args() };
        assert_eq!(value(&moving, 1), unknown(UnknownArgument::Heap));
        let mut null = args();
        null.words[2] = 0;
        null.referents[2].head_bytes = 0;
        assert_eq!(value(&null, 1), ArgumentValue::Null);
        let thrown = CallArgs { has_thrown: 1, ..args() };
        assert_eq!(of(&thrown, METHOD).unwrap().result.unwrap().value, unknown(UnknownArgument::Thrown));
        assert_eq!(of(&CallArgs { kinds: 0, ..args() }, METHOD), None);
        assert_eq!(of(&args(), "()V").unwrap().result, None);
        assert_eq!(of(&thrown, "()V").unwrap().result.unwrap().value, unknown(UnknownArgument::Thrown));
    }

    /// Check that no file is named for a number that is no descriptor.
    #[test]
    fn no_descriptor() {
        let file = |word: u64| {
            let mut args = CallArgs { kinds: 1 | 1 << (1 + FILES_SHIFT), ..args() };
            args.words[1] = word;
            of(&args, METHOD).unwrap().arguments[0].file.clone()
        };
        assert_eq!(
            [file(7), file(u64::MAX), file((-100_i64).cast_unsigned())],
            [Some("file 7".to_owned()), None, None]
        );
    }
}
