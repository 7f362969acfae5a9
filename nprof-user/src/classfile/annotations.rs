//! Whether a method is marked as one that the VM may put code of its own in the place of.

use super::class::MethodInfo;
use super::pool::ConstantPool;
use super::reader::{Malformed, Reader};

/// The attribute with the annotations that a VM keeps.
const ANNOTATIONS: &[u8] = b"RuntimeVisibleAnnotations";
/// What HotSpot's own classes mark such methods with: from JDK 16 on, and before.
const MARKS: [&[u8]; 2] =
    [b"Ljdk/internal/vm/annotation/IntrinsicCandidate;", b"Ljdk/internal/HotSpotIntrinsicCandidate;"];
/// How deep values are nested: compilers do not nest them at all as a rule.
const DEEPEST: u32 = 16;

/// Whether a method is marked so. Of annotations that cannot be read, those before count.
#[must_use]
pub fn is_intrinsic(method: &MethodInfo<'_>, pool: &ConstantPool<'_>) -> bool {
    let Some(attribute) = method.attribute(pool, ANNOTATIONS) else { return false };
    let mut reader = Reader::new(attribute.content);
    let count = reader.u16().unwrap_or(0);
    (0..count)
        .map_while(|_| annotation(&mut reader, 0).ok())
        .any(|class| pool.utf8(class).is_some_and(|class| MARKS.contains(&class)))
}

/// Reads an annotation; its class.
fn annotation(reader: &mut Reader<'_>, depth: u32) -> Result<u16, Malformed> {
    let class = reader.u16()?;
    for _ in 0..reader.u16()? {
        reader.u16()?;
        skip_value(reader, depth)?;
    }
    Ok(class)
}

fn skip_value(reader: &mut Reader<'_>, depth: u32) -> Result<(), Malformed> {
    if depth >= DEEPEST {
        return Err(reader.malformed("values are nested too deep"));
    }
    match reader.u8()? {
        b'e' => reader.take(4).map(drop),
        b'@' => annotation(reader, depth + 1).map(drop),
        b'[' => (0..reader.u16()?).try_for_each(|_| skip_value(reader, depth + 1)),
        _ => reader.u16().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classfile::ClassFile;
    use crate::classfile::testing::Builder;

    /// Check that a marked method is told from others, also behind annotations with values of all kinds, and that what ends too early, or is
    /// nested without end, is taken as far as it goes.
    #[test]
    fn marks_are_found() {
        let mut class = Builder::new(61);
        let [old, new, other] = [
            "Ljdk/internal/HotSpotIntrinsicCandidate;",
            "Ljdk/internal/vm/annotation/IntrinsicCandidate;",
            "Ljava/lang/Deprecated;",
        ]
        .map(|name| class.utf8(name));
        let plain = |class: u16| [class.to_be_bytes(), [0, 0]].concat();
        // An array of a string, an enum and an annotation, and a number.
        let values = [&[0, 2, 0, 1, b'[', 0, 3, b's', 0, 1, b'e', 0, 1, 0, 1, b'@'][..], &plain(other)].concat();
        let valued = [&other.to_be_bytes()[..], &values, &[0, 1, b'I', 0, 1]].concat();
        let endless = [&other.to_be_bytes()[..], &[0, 1, 0, 1], &b"[\0\x01".repeat(99)].concat();
        let cases: [(&str, Vec<Vec<u8>>, bool); 7] = [
            ("none", vec![], false),
            ("old", vec![plain(old)], true),
            ("new", vec![plain(new)], true),
            ("other", vec![plain(other)], false),
            ("behind", vec![valued.clone(), plain(new)], true),
            ("short", vec![valued[..9].to_vec()], false),
            ("endless", vec![endless, plain(new)], false),
        ];
        for (name, annotations, _) in &cases {
            let content =
                [&u16::try_from(annotations.len()).unwrap().to_be_bytes()[..], &annotations.concat()].concat();
            class.annotated_method(name, &content);
        }
        let file = class.finish();
        let parsed = ClassFile::parse(&file).unwrap();
        for (method, (name, _, expected)) in parsed.methods.iter().zip(&cases) {
            assert_eq!(is_intrinsic(method, &parsed.pool), *expected, "{name}");
        }
    }
}
