//! JVM method descriptors, `(J[BII)I`, and how Java would write them, `(long, byte[], int, int) -> int`.
//!
//! Descriptors come out of the target's memory: what does not follow the grammar gives `None`, never a panic.

/// The limit that the JVM specification sets to the dimensions of an array.
const MAX_DIMENSIONS: usize = 255;

/// The part between the parentheses, where `signature` is a complete descriptor or one without its return type.
#[must_use]
pub fn arguments(signature: &str) -> Option<&str> {
    let (arguments, result) = split(signature)?;
    is_field_list(arguments).then_some(())?;
    (result.is_empty() || result == "V" || field(result).is_some_and(str::is_empty)).then_some(arguments)
}

/// The argument types as in Java source, classes by their simple names: `(int, byte[])`.
#[must_use]
pub fn short_arguments(signature: &str) -> Option<String> {
    let (mut rest, _) = split(signature)?;
    let mut out = String::from("(");
    while !rest.is_empty() {
        let after = field(rest)?;
        if out.len() > 1 {
            out.push_str(", ");
        }
        push_java_type(&mut out, &rest[..rest.len() - after.len()]);
        rest = after;
    }
    out.push(')');
    Some(out)
}

/// The field descriptors of the arguments.
#[must_use]
pub fn fields(signature: &str) -> Option<Vec<&str>> {
    let mut rest = arguments(signature)?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let after = field(rest)?;
        fields.push(&rest[..rest.len() - after.len()]);
        rest = after;
    }
    Some(fields)
}

/// The field descriptor of the result; `None` if there is none.
#[must_use]
pub fn result(signature: &str) -> Option<&str> {
    let (_, result) = split(signature)?;
    field(result)?.is_empty().then_some(result)
}

/// The type of a field descriptor as in Java, classes by their whole names: `java.lang.String[]`.
#[must_use]
pub fn java_type(field: &str) -> String {
    let element = field.trim_start_matches('[');
    let mut out = String::new();
    match element.strip_prefix('L') {
        Some(class) => out.push_str(&class.trim_end_matches(';').replace('/', ".")),
        None => push_java_type(&mut out, element),
    }
    out.push_str(&"[]".repeat((field.len() - element.len()).min(MAX_DIMENSIONS)));
    out
}

/// Arguments and result for people: `(int, byte[]) -> long`; a `void` result is left out.
#[must_use]
pub fn short(signature: &str) -> Option<String> {
    let mut out = short_arguments(signature)?;
    let (_, result) = split(signature)?;
    if result == "V" {
        return Some(out);
    }
    field(result)?.is_empty().then_some(())?;
    out.push_str(" -> ");
    push_java_type(&mut out, result);
    Some(out)
}

/// Whether `text` is a sequence of field descriptors, such as `J[BII`.
pub fn is_field_list(mut text: &str) -> bool {
    while !text.is_empty() {
        match field(text) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    true
}

/// `(arguments)result` in two; the result may be empty.
fn split(signature: &str) -> Option<(&str, &str)> {
    signature.strip_prefix('(')?.split_once(')')
}

/// What follows the field descriptor at the start of `text`, or `None` where there is none.
fn field(text: &str) -> Option<&str> {
    let element = text.trim_start_matches('[');
    if text.len() - element.len() > MAX_DIMENSIONS {
        return None;
    }
    let first = element.chars().next()?;
    match first {
        'B' | 'C' | 'D' | 'F' | 'I' | 'J' | 'S' | 'Z' => Some(&element[1..]),
        'L' => {
            let (class, rest) = element[1..].split_once(';')?;
            let legal = !class.is_empty() && !class.contains(['.', '[', '(', ')']);
            legal.then_some(rest)
        }
        _ => None,
    }
}

/// Appends the Java name of one field descriptor that [`field`] has accepted.
fn push_java_type(out: &mut String, descriptor: &str) {
    let element = descriptor.trim_start_matches('[');
    out.push_str(match element.as_bytes().first() {
        Some(b'B') => "byte",
        Some(b'C') => "char",
        Some(b'D') => "double",
        Some(b'F') => "float",
        Some(b'I') => "int",
        Some(b'J') => "long",
        Some(b'S') => "short",
        Some(b'Z') => "boolean",
        _ => simple_name(element),
    });
    for _ in 0..descriptor.len() - element.len() {
        out.push_str("[]");
    }
}

/// `String` of `Ljava/lang/String;`.
fn simple_name(element: &str) -> &str {
    let class = element.strip_prefix('L').unwrap_or(element).trim_end_matches(';');
    class.rsplit('/').next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::{arguments, fields, java_type, result, short, short_arguments};

    /// Check that every kind of type is written as Java writes it.
    #[test]
    fn writes_java_types() {
        assert_eq!(
            short("(BCDFIJSZ[[I[Ljava/lang/String;LMain$Inner;)J").as_deref(),
            Some("(byte, char, double, float, int, long, short, boolean, int[][], String[], Main$Inner) -> long")
        );
        assert_eq!(short("()V").as_deref(), Some("()"));
        assert_eq!(short_arguments("(I[B)V").as_deref(), Some("(int, byte[])"));
        assert_eq!(short("(LLL;)LLoop;").as_deref(), Some("(LL) -> Loop"));
    }

    /// Check that the return type may be missing where only arguments are asked for.
    #[test]
    fn takes_arguments_apart() {
        assert_eq!(arguments("(J[BII)I"), Some("J[BII"));
        assert_eq!(arguments("(I)"), Some("I"));
        assert_eq!(arguments("()[[Ljava/lang/Object;"), Some(""));
    }

    /// Check that arguments and result are told apart, and have their names in Java.
    #[test]
    fn arguments_one_by_one() {
        assert_eq!(fields("(J[[BLa/b/C;I)[I"), Some(vec!["J", "[[B", "La/b/C;", "I"]));
        assert_eq!((fields("()V"), fields("(Q)V")), (Some(Vec::new()), None));
        assert_eq!((result("()[I"), result("()V"), result("()II")), (Some("[I"), None, None));
        assert_eq!(["I", "[[J", "[La/b/C;"].map(java_type), ["int", "long[][]", "a.b.C[]"]);
    }

    /// Check that what is no descriptor is refused and breaks nothing.
    #[test]
    fn refuses_what_is_no_descriptor() {
        let deep = format!("({}I)V", "[".repeat(256));
        for bad in [
            "",
            "(",
            "()",
            ")V",
            "(int)V",
            "(V)V",
            "([)V",
            "(L;)V",
            "(Ljava/lang/String)V",
            "(I)VV",
            "(I)é",
            "(Lé",
            "(é)V",
            "(I)V ",
            &deep,
        ] {
            assert_eq!(short(bad), None, "{bad}");
        }
        assert_eq!(arguments("(I)VV"), None);
        assert_eq!(arguments("(I)Q"), None);
    }
}
