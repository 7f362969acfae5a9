//! What a call was made with and what it returned, for people and in JSON.

use serde::Serialize;
use serde_json::Value;

use super::names;
use crate::model::{Argument, ArgumentObject, ArgumentValue, CallArguments, UnknownArgument};

/// In place of a value that is not known.
const UNKNOWN: &str = "?";

/// `with (byte[8192], 0, 512) on java.io.FileInputStream, returned 512`.
pub(super) fn text(known: Option<&CallArguments>) -> String {
    let Some(CallArguments { this, arguments, result }) = known else {
        return format!(
            "with {UNKNOWN}: the function is of several methods with other arguments, or a critical native"
        );
    };
    let arguments: Vec<String> = arguments.iter().map(argument).collect();
    let mut text = format!("with ({})", arguments.join(", "));
    if let Some(this) = this {
        text.push_str(&format!(" on {}", object(this)));
    }
    match result {
        Some(Argument { value: ArgumentValue::Unknown(UnknownArgument::Thrown), .. }) => text.push_str(", threw"),
        Some(result) => text.push_str(&format!(", returned {}", argument(result))),
        None => {}
    }
    text
}

fn argument(argument: &Argument) -> String {
    let file = argument.file.as_ref().map_or_else(String::new, |file| format!(" ({})", names::printable(file)));
    let value = match &argument.value {
        ArgumentValue::Integer(number) => number.to_string(),
        ArgumentValue::Boolean(value) => value.to_string(),
        ArgumentValue::Char(unit) => character(*unit),
        ArgumentValue::Float(bits) => f32::from_bits(*bits).to_string(),
        ArgumentValue::Double(bits) => f64::from_bits(*bits).to_string(),
        ArgumentValue::Null => "null".to_owned(),
        ArgumentValue::Object(known) => object(known),
        ArgumentValue::Unknown(_) => format!("{} {UNKNOWN}", names::printable(&argument.declared)),
    };
    format!("{value}{file}")
}

fn character(unit: u16) -> String {
    char::from_u32(unit.into()).map_or_else(|| format!("'\\u{unit:04x}'"), |unit| format!("'{}'", unit.escape_debug()))
}

/// `byte[8192]`, `java.nio.DirectByteBuffer[4096]`, `java.io.FileDescriptor 5`, `java.lang.String "abc"...`.
fn object(object: &ArgumentObject) -> String {
    let ArgumentObject { class, length, fd, contents } = object;
    let class = names::printable(class).to_string();
    let mut text = match length {
        // Of an array of arrays it is the outer one's.
        Some(length) => match class.find("[]") {
            Some(at) => format!("{}[{length}]{}", &class[..at], &class[at + 2..]),
            None => format!("{class}[{length}]"),
        },
        None => class,
    };
    if let Some(fd) = fd {
        text.push_str(&format!(" {fd}"));
    }
    if let Some((contents, more)) = contents {
        text.push_str(&format!(" \"{}\"{}", contents.escape_debug(), if *more { "..." } else { "" }));
    }
    text
}

/// The same in JSON.
#[derive(Serialize)]
pub(super) struct Arguments<'a> {
    this: Option<Object<'a>>,
    arguments: Vec<One<'a>>,
    result: Option<One<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    #[serde(rename = "type")]
    declared: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(flatten)]
    object: Option<Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<&'static str>,
}

#[derive(Serialize)]
struct Object<'a> {
    class: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fd: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more: Option<bool>,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(known: &'a CallArguments) -> Self {
        Self {
            this: known.this.as_ref().map(Object::of),
            arguments: known.arguments.iter().map(One::of).collect(),
            result: known.result.as_ref().map(One::of),
        }
    }
}

impl<'a> One<'a> {
    fn of(argument: &'a Argument) -> Self {
        let Argument { declared, value, file } = argument;
        let mut one = Self { declared, value: None, object: None, file: file.as_deref(), unknown: None };
        match value {
            ArgumentValue::Integer(number) => one.value = Some((*number).into()),
            ArgumentValue::Boolean(value) => one.value = Some((*value).into()),
            ArgumentValue::Char(unit) => one.value = Some((*unit).into()),
            ArgumentValue::Float(bits) => one.value = Some(float(f32::from_bits(*bits).into())),
            ArgumentValue::Double(bits) => one.value = Some(float(f64::from_bits(*bits))),
            ArgumentValue::Null => one.value = Some(Value::Null),
            ArgumentValue::Object(object) => one.object = Some(Object::of(object)),
            ArgumentValue::Unknown(why) => one.unknown = Some(why.as_str()),
        }
        one
    }
}

/// A number or, as JSON has none for it, the word for one.
fn float(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

impl<'a> Object<'a> {
    fn of(object: &'a ArgumentObject) -> Self {
        let ArgumentObject { class, length, fd, contents } = object;
        let contents = contents.as_ref();
        Self {
            class,
            length: *length,
            fd: *fd,
            contents: contents.map(|(text, _)| text.as_str()),
            has_more: contents.map(|(_, more)| *more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: ArgumentValue) -> Argument {
        Argument { declared: "a.B".to_owned(), value, file: None }
    }

    fn object(class: &str) -> ArgumentObject {
        ArgumentObject { class: class.to_owned(), length: None, fd: None, contents: None }
    }

    fn known() -> CallArguments {
        let array = ArgumentObject { length: Some(3), ..object("int[][]") };
        let buffer = ArgumentObject { length: Some(4096), ..object("java.nio.DirectByteBuffer") };
        let text = ArgumentObject { contents: Some(("a\"\u{1b}".to_owned(), true)), ..object("java.lang.String") };
        let fd = ArgumentObject { fd: Some(5), ..object("java.io.FileDescriptor") };
        let arguments = vec![
            of(ArgumentValue::Integer(-7)),
            of(ArgumentValue::Boolean(true)),
            of(ArgumentValue::Char(0x41)),
            of(ArgumentValue::Char(0xd800)),
            of(ArgumentValue::Double(1.5_f64.to_bits())),
            of(ArgumentValue::Float(f32::NAN.to_bits())),
            of(ArgumentValue::Null),
            of(ArgumentValue::Object(array)),
            of(ArgumentValue::Object(buffer)),
            of(ArgumentValue::Object(text)),
            Argument { file: Some("/tmp/\u{1b}x".to_owned()), ..of(ArgumentValue::Object(fd)) },
            of(ArgumentValue::Unknown(UnknownArgument::FloatRegister)),
        ];
        CallArguments { this: Some(object("a.C")), arguments, result: Some(of(ArgumentValue::Integer(1))) }
    }

    /// Check how values are written for people, that nothing from the target commands a terminal, and what is said where nothing
    /// is known.
    #[test]
    fn for_people() {
        let expected = "with (-7, true, 'A', '\\ud800', 1.5, NaN, null, int[3][], java.nio.DirectByteBuffer[4096], \
                        java.lang.String \"a\\\"\\u{1b}\"..., java.io.FileDescriptor 5 (/tmp/\\u{1b}x), a.B ?) on a.C, returned 1";
        assert_eq!(text(Some(&known())), expected);
        let thrown = of(ArgumentValue::Unknown(UnknownArgument::Thrown));
        let empty = CallArguments { this: None, arguments: Vec::new(), result: Some(thrown) };
        assert_eq!(text(Some(&empty)), "with (), threw");
        assert!(text(None).starts_with("with ?: "));
    }

    /// Check that JSON says of each value what it is, of each object what is known, and of what is not known why.
    #[test]
    fn in_json() {
        let known = known();
        let json = serde_json::to_value(Arguments::of(&known)).unwrap();
        let arguments = &json["arguments"];
        assert_eq!(arguments[0], serde_json::json!({"type": "a.B", "value": -7}));
        assert_eq!(arguments[3]["value"], 0xd800);
        assert_eq!((&arguments[4]["value"], &arguments[5]["value"]), (&1.5.into(), &"NaN".into()));
        assert_eq!(arguments[6], serde_json::json!({"type": "a.B", "value": null}));
        assert_eq!(arguments[7], serde_json::json!({"type": "a.B", "class": "int[][]", "length": 3}));
        assert_eq!((&arguments[9]["contents"], &arguments[9]["has_more"]), (&"a\"\u{1b}".into(), &true.into()));
        assert_eq!((&arguments[10]["fd"], &arguments[10]["file"]), (&5.into(), &"/tmp/\u{1b}x".into()));
        assert_eq!(arguments[11], serde_json::json!({"type": "a.B", "unknown": "float-register"}));
        assert_eq!((&json["this"]["class"], &json["result"]["value"]), (&"a.C".into(), &1.into()));
    }
}
