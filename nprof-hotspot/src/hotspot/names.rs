//! Names as the VM stores them, made into names as people write them. What cannot be a name is refused: it shows that
//! memory changed while it was read.

/// Decodes the JVM's modified UTF-8 (JVMS 4.4.7): NUL takes two bytes, characters outside of the first plane are two
/// surrogates of three bytes each. `None` if `bytes` are not that. A surrogate without its other half, which the
/// JVM allows and Unicode does not, becomes U+FFFD.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<String> {
    if bytes.is_ascii() {
        return (!bytes.contains(&0)).then(|| bytes.iter().copied().map(char::from).collect());
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((unit, after)) = next_unit(rest) {
        units.push(unit);
        rest = after;
    }
    rest.is_empty().then(|| String::from_utf16_lossy(&units))
}

/// The UTF-16 unit that `bytes` begin with and what follows it.
fn next_unit(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let tail = |byte: u8| (byte & 0xc0 == 0x80).then_some(u16::from(byte & 0x3f));
    match *bytes {
        [first @ 0x01..=0x7f, ref rest @ ..] => Some((u16::from(first), rest)),
        [first @ 0xc0..=0xdf, second, ref rest @ ..] => {
            let unit = u16::from(first & 0x1f) << 6 | tail(second)?;
            (unit >= 0x80 || unit == 0).then_some((unit, rest))
        }
        [first @ 0xe0..=0xef, second, third, ref rest @ ..] => {
            let unit = u16::from(first & 0x0f) << 12 | tail(second)? << 6 | tail(third)?;
            (unit >= 0x800).then_some((unit, rest))
        }
        _ => None,
    }
}

/// What `Class.getName()` says of a class with the internal name `internal`: `java/util/zip/Deflater` gives
/// `java.util.zip.Deflater`. `None` if no class can have that name.
///
/// Hidden classes (lambdas, for one) have a suffix with an address, `Main$$Lambda+0x00007f`, that Java shows after a slash.
#[must_use]
pub fn class_name(internal: &str) -> Option<String> {
    let (name, suffix) = split_hidden(internal);
    let legal = !name.is_empty() && !name.contains(['.', ';', '[']) && name.split('/').all(|part| !part.is_empty());
    if !legal {
        return None;
    }
    let mut dotted = name.replace('/', ".");
    if let Some(suffix) = suffix {
        dotted.push('/');
        dotted.push_str(suffix);
    }
    Some(dotted)
}

/// Splits off the suffix of a hidden class, without its first character: `+` since JDK 15, `/` before.
fn split_hidden(internal: &str) -> (&str, Option<&str>) {
    let Some((name, suffix)) = internal.rsplit_once(['+', '/']) else {
        return (internal, None);
    };
    match suffix.strip_prefix("0x") {
        Some(digits) if is_hexadecimal(digits) => (name, Some(suffix)),
        _ => (internal, None),
    }
}

fn is_hexadecimal(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Whether a native method can have that name (JVMS 4.2.2).
pub(crate) fn is_method_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', ';', '[', '/', '<', '>'])
}

/// Whether `descriptor` is a method descriptor (JVMS 4.3.3).
pub(crate) fn is_method_descriptor(descriptor: &str) -> bool {
    let Some(mut rest) = descriptor.strip_prefix('(') else {
        return false;
    };
    loop {
        if let Some(result) = rest.strip_prefix(')') {
            return result == "V" || skip_type(result) == Some("");
        }
        match skip_type(rest) {
            Some(after) => rest = after,
            None => return false,
        }
    }
}

/// What follows the field descriptor that `text` begins with.
fn skip_type(text: &str) -> Option<&str> {
    let element = text.trim_start_matches('[');
    let dimensions = text.len() - element.len();
    if dimensions > 255 {
        return None;
    }
    if let Some(class) = element.strip_prefix('L') {
        let (name, after) = class.split_once(';')?;
        return (!name.is_empty() && !name.contains(['.', '['])).then_some(after);
    }
    element.strip_prefix(['B', 'C', 'D', 'F', 'I', 'J', 'S', 'Z'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that modified UTF-8 is decoded: two-byte NUL, accents, and a character made of two surrogates.
    #[test]
    fn decodes_modified_utf8() {
        assert_eq!(decode(b"plain"), Some("plain".into()));
        assert_eq!(decode(b"a\xc0\x80b"), Some("a\0b".into()));
        assert_eq!(decode("größe".as_bytes()), Some("größe".into()));
        assert_eq!(decode(b"\xed\xa0\xbd\xed\xb8\x80"), Some("\u{1f600}".into()));
        assert_eq!(decode(b"\xed\xa0\xbd!"), Some("\u{fffd}!".into()));
    }

    /// Check that bytes that are not modified UTF-8 are refused: raw NUL, cut or overlong sequences, four-byte forms.
    #[test]
    fn refuses_other_bytes() {
        for bytes in
            [&b"a\0"[..], b"\x80", b"\xc3", b"\xc3(", b"\xc1\x81", b"\xe0\x80\x80", b"\xf0\x9f\x98\x80", b"\xff"]
        {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }

    /// Check that class names read as `Class.getName()` gives them, those of hidden classes too.
    #[test]
    fn names_classes() {
        let named = |internal| class_name(internal).unwrap_or_default();
        assert_eq!(named("java/util/Map$Entry"), "java.util.Map$Entry");
        assert_eq!(named("Main"), "Main");
        assert_eq!(named("a/Main$$Lambda+0x00007f01c8000a00"), "a.Main$$Lambda/0x00007f01c8000a00");
        assert_eq!(named("a/B$$Lambda$1/0x0000000840060840"), "a.B$$Lambda$1/0x0000000840060840");
        assert_eq!(named("a/C+D"), "a.C+D");
        assert_eq!(named("a/C+0xyz"), "a.C+0xyz");
    }

    /// Check that what cannot name a class is refused.
    #[test]
    fn refuses_other_class_names() {
        for internal in ["", "/A", "a//B", "a/", "a.B", "[I", "La;"] {
            assert_eq!(class_name(internal), None, "{internal}");
        }
    }

    /// Check descriptors of every kind, and near misses.
    #[test]
    fn checks_descriptors() {
        for good in ["()V", "(J[BII)I", "([[Ljava/lang/Object;Z)[J", "()Ljava/lang/String;"] {
            assert!(is_method_descriptor(good), "{good}");
        }
        for bad in ["", "V", "(", "()", "(V)V", "()VV", "(L;)V", "(Ljava)V", "([)V", "(I)V ", "(Q)V"] {
            assert!(!is_method_descriptor(bad), "{bad}");
        }
    }

    /// Check that constructors and names with separators are not taken for native methods.
    #[test]
    fn checks_method_names() {
        assert!(is_method_name("größe$1"));
        for bad in ["", "<init>", "a.b", "a/b", "a;", "[a"] {
            assert!(!is_method_name(bad), "{bad}");
        }
    }
}
