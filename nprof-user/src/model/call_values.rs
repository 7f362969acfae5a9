//! What calls were made with, kept small: of a timeline there are hundreds of thousands. Types are those of the descriptor, and objects that
//! are alike are kept once.

use super::arguments::{Argument, ArgumentObject, ArgumentValue, CallArguments, UnknownArgument, is_reference};
use super::descriptor;

/// What stands in a descriptor in the place of a result that there is none of.
const VOID: &str = "V";

/// An object or a file that calls were made with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CallObject {
    /// The object; `None` if it is about a file descriptor that is a number.
    pub object: Option<ArgumentObject>,
    /// What a file descriptor named, just after the call.
    pub file: Option<String>,
}

/// An argument or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallValue {
    /// A number of any type: its bits.
    Number(u64),
    /// No object.
    Null,
    /// An object, by its number among those of all calls.
    Object(u32),
    /// A file descriptor that is a number, and what there is to say of it, by its number.
    File(u32, u32),
    /// It is not known.
    Unknown(UnknownArgument),
}

/// What one call was made with, and what it has returned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallValues {
    /// The object whose method it is, by its number; `None` of a static method, and where that is not known.
    pub this: Option<u32>,
    /// The arguments in the order of the descriptor; then the result, if there is one, or why there is none.
    pub values: Box<[CallValue]>,
}

impl CallValues {
    /// The same in full, for a method with this descriptor. `None` if it is not that of such a method.
    #[must_use]
    pub fn in_full(&self, signature: &str, objects: &[CallObject]) -> Option<CallArguments> {
        let fields = descriptor::fields(signature)?;
        let (arguments, result) = self.values.split_at_checked(fields.len())?;
        let object = |number: u32| objects.get(number as usize);
        let of = |field: &str, value: CallValue| {
            let (value, about) = match value {
                CallValue::Number(bits) => (number(field, bits), None),
                CallValue::Null => (ArgumentValue::Null, None),
                CallValue::File(bits, about) => (number(field, bits.into()), object(about)),
                CallValue::Unknown(why) => (ArgumentValue::Unknown(why), None),
                CallValue::Object(about) => {
                    let known = object(about).and_then(|about| about.object.clone());
                    let unknown = ArgumentValue::Unknown(UnknownArgument::Heap);
                    (known.map_or(unknown, ArgumentValue::Object), object(about))
                }
            };
            let declared = if field == VOID { "void".to_owned() } else { descriptor::java_type(field) };
            Argument { declared, value, file: about.and_then(|about| about.file.clone()) }
        };
        Some(CallArguments {
            this: self.this.and_then(object).and_then(|this| this.object.clone()),
            arguments: fields.into_iter().zip(arguments).map(|(field, value)| of(field, *value)).collect(),
            result: result.first().map(|value| of(descriptor::result(signature).unwrap_or(VOID), *value)),
        })
    }
}

/// The bits of a register or a word of the stack that belong to a value of a type: those above mean nothing.
#[must_use]
pub fn own_bits(field: &str, word: u64) -> u64 {
    match field {
        "Z" => u64::from(word & 0xff != 0),
        "B" => word & 0xff,
        "C" | "S" => word & 0xffff,
        "I" | "F" => word & 0xffff_ffff,
        _ => word,
    }
}

/// A number by its bits.
#[expect(clippy::cast_possible_truncation, reason = "the bits above are none of its own")]
fn number(field: &str, bits: u64) -> ArgumentValue {
    match field {
        "Z" => ArgumentValue::Boolean(bits as u8 != 0),
        "C" => ArgumentValue::Char(bits as u16),
        "B" => ArgumentValue::Integer((bits as u8).cast_signed().into()),
        "S" => ArgumentValue::Integer((bits as u16).cast_signed().into()),
        "I" => ArgumentValue::Integer((bits as u32).cast_signed().into()),
        "F" => ArgumentValue::Float(bits as u32),
        "D" => ArgumentValue::Double(bits),
        // Nothing that is stored says that a reference is a number.
        field if is_reference(field) => ArgumentValue::Unknown(UnknownArgument::Heap),
        _ => ArgumentValue::Integer(bits.cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each value is what its type makes of its bits, that files are with the numbers they belong to, and that what a
    /// recording may say wrongly is not known.
    #[test]
    fn in_full() {
        let class = |class: &str| ArgumentObject { class: class.to_owned(), length: Some(3), fd: None, contents: None };
        let objects = [
            CallObject { object: Some(class("byte[]")), file: None },
            CallObject { object: None, file: Some("/a".to_owned()) },
        ];
        let values = [
            CallValue::Number(0xffff_fffe),
            CallValue::File(5, 1),
            CallValue::Object(0),
            CallValue::Null,
            CallValue::Object(9),
            CallValue::Number(7),
            CallValue::Number(1),
        ];
        let call = CallValues { this: Some(0), values: values.into() };
        let known = call.in_full("(IILa;La;La;La;)Z", &objects).unwrap();
        let of = |at: usize| (known.arguments[at].value.clone(), known.arguments[at].file.as_deref());
        let heap = ArgumentValue::Unknown(UnknownArgument::Heap);
        assert_eq!((of(0), of(1)), ((ArgumentValue::Integer(-2), None), (ArgumentValue::Integer(5), Some("/a"))));
        assert_eq!((of(2).0, of(3).0), (ArgumentValue::Object(class("byte[]")), ArgumentValue::Null));
        assert_eq!((of(4).0, of(5).0), (heap.clone(), heap));
        assert_eq!(known.this, Some(class("byte[]")));
        assert_eq!(known.result.unwrap().value, ArgumentValue::Boolean(true));
        assert_eq!(call.in_full("(IIIIIIII)V", &objects), None);
        let thrown = CallValues { this: None, values: [CallValue::Unknown(UnknownArgument::Thrown)].into() };
        let result = thrown.in_full("()V", &[]).unwrap().result.unwrap();
        assert_eq!((&*result.declared, result.value), ("void", ArgumentValue::Unknown(UnknownArgument::Thrown)));
    }

    /// Check that nothing is kept of a word but what is the value's.
    #[test]
    fn bits_of_types() {
        let bits = ["Z", "B", "S", "C", "I", "F", "J", "D"].map(|field| own_bits(field, u64::MAX - 1));
        assert_eq!(bits, [1, 0xfe, 0xfffe, 0xfffe, 0xffff_fffe, 0xffff_fffe, u64::MAX - 1, u64::MAX - 1]);
        assert_eq!(own_bits("Z", 0x100), 0);
    }
}
