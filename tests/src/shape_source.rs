//! Writes natives of many shapes, in Java and C: every type of argument and result, none to 254 arguments.
//!
//! Both sides compute a hash of the arguments; the native's result is made from the C side's, and the Java side
//! compares. The class is `targets.Generated`; its methods are `s0`, `s1`, …, each called and checked by `call0`,
//! `call1`, ….

use std::path::{Path, PathBuf};

use anyhow::Result;

/// The types of an argument: a descriptor's first letter. `L` is an `Object`, `[` an `int[]`.
const ARGUMENTS: [char; 10] = ['Z', 'B', 'C', 'S', 'I', 'J', 'F', 'D', 'L', '['];
/// The types of a result.
const RESULTS: [char; 11] = ['V', 'Z', 'B', 'C', 'S', 'I', 'J', 'F', 'D', 'L', '['];
/// Random mixtures of all types.
const MIXTURES: usize = 160;

/// One native.
#[derive(Debug)]
struct Shape {
    arguments: Vec<char>,
    result: char,
    is_static: bool,
}

/// Writes both sources into a directory and returns their paths, Java first.
///
/// # Errors
/// When they cannot be written.
pub fn write(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let shapes = shapes();
    let (java, c) = (directory.join("Generated.java"), directory.join("generated.c"));
    std::fs::create_dir_all(directory)?;
    std::fs::write(&java, java_source(&shapes))?;
    std::fs::write(&c, c_source(&shapes))?;
    Ok((java, c))
}

/// How many natives there are.
#[must_use]
pub fn count() -> usize {
    shapes().len()
}

fn shapes() -> Vec<Shape> {
    let mut arguments: Vec<Vec<char>> = Vec::new();
    for kind in ['I', 'J', 'F', 'D', 'L'] {
        arguments.extend((0..=12).map(|count| vec![kind; count]));
    }
    let mut random = Random(20);
    for mixture in 0..MIXTURES {
        let most = if mixture % 10 == 0 { 120 } else { 24 };
        let count = 1 + random.below(most);
        arguments.push((0..count).map(|_| ARGUMENTS[random.below(ARGUMENTS.len())]).collect());
    }
    // The most that a method can have: 255 words, with one for `this`, two for each long and double.
    for (kind, count) in [('I', 254), ('F', 254), ('L', 254), ('J', 127), ('D', 127), ('I', 253), ('D', 126)] {
        arguments.push(vec![kind; count]);
    }
    let shape =
        |(number, arguments)| Shape { arguments, result: RESULTS[number % RESULTS.len()], is_static: number % 3 > 0 };
    arguments.into_iter().enumerate().map(shape).collect()
}

fn java_source(shapes: &[Shape]) -> String {
    let mut source = String::from(JAVA_HEAD);
    for (number, shape) in shapes.iter().enumerate() {
        java_shape(&mut source, number, shape);
    }
    let cases: String = (0..shapes.len())
        .map(|number| format!("            case {number}: return call{number}(self, seed);\n"))
        .collect();
    format!(
        "{source}    static final int COUNT = {};\n\n    static boolean call(int number, Generated self, long seed) {{\n        \
         switch (number) {{\n{cases}            default: throw new IllegalArgumentException();\n        }}\n    }}\n}}\n",
        shapes.len()
    )
}

fn java_shape(source: &mut String, number: usize, shape: &Shape) {
    let names: Vec<String> = (0..shape.arguments.len()).map(|place| format!("a{place}")).collect();
    let declared: Vec<String> =
        shape.arguments.iter().zip(&names).map(|(&kind, name)| format!("{} {name}", java_type(kind))).collect();
    let modifier = if shape.is_static { "static " } else { "" };
    let result = java_type(shape.result);
    let mut body = String::new();
    for (place, &kind) in shape.arguments.iter().enumerate() {
        let type_name = java_type(kind);
        let letter = letter(kind);
        push(&mut body, format_args!("        {type_name} a{place} = value{letter}(seed + {place});\n"));
        push(&mut body, format_args!("        h = h * 31 + bits(a{place});\n"));
    }
    let receiver = if shape.is_static { "" } else { "self." };
    let call = format!("{receiver}s{number}({})", names.join(", "));
    let check = match shape.result {
        'V' => format!("{call};\n        return hash() == h"),
        'Z' => format!("return {call} == ((h & 1) != 0)"),
        'L' => format!("return ((int[]) {call}).length == (h & 7)"),
        '[' => format!("return {call}.length == (h & 7)"),
        'F' => format!("return {call} == (float) (int) h"),
        'J' => format!("return {call} == h"),
        _ => format!("return {call} == ({result}) h"),
    };
    push(
        source,
        format_args!(
            "    {modifier}native {result} s{number}({});\n\n    private static boolean call{number}(Generated self, long seed) {{\n        \
             long h = 7;\n{body}        {check};\n    }}\n\n",
            declared.join(", ")
        ),
    );
}

fn c_source(shapes: &[Shape]) -> String {
    let mut source = String::from(C_HEAD);
    for (number, shape) in shapes.iter().enumerate() {
        let mut parameters = String::from("JNIEnv *env, jobject owner");
        let mut body = String::new();
        for (place, &kind) in shape.arguments.iter().enumerate() {
            push(&mut parameters, format_args!(", {} a{place}", c_type(kind)));
            push(&mut body, format_args!("    h = h * 31 + bits{}(env, a{place});\n", letter(kind)));
        }
        let result = match shape.result {
            'V' => "",
            'Z' => "    return h & 1;\n",
            'L' | '[' => "    return (*env)->NewIntArray(env, h & 7);\n",
            'F' => "    return (jfloat)(jint)h;\n",
            'D' => "    return (jdouble)(jlong)h;\n",
            'B' => "    return (jbyte)h;\n",
            'C' => "    return (jchar)h;\n",
            'S' => "    return (jshort)h;\n",
            'I' => "    return (jint)h;\n",
            _ => "    return (jlong)h;\n",
        };
        push(
            &mut source,
            format_args!(
                "JNIEXPORT {} JNICALL Java_targets_Generated_s{number}({parameters}) {{\n    uint64_t h = 7;\n    \
                 (void)env;\n{body}    last = owner == NULL ? ~h : h;\n{result}}}\n\n",
                c_type(shape.result)
            ),
        );
    }
    source
}

fn push(source: &mut String, text: std::fmt::Arguments<'_>) {
    source.push_str(&text.to_string());
}

fn letter(kind: char) -> char {
    if kind == '[' { 'A' } else { kind }
}

fn java_type(kind: char) -> &'static str {
    match kind {
        'V' => "void",
        'Z' => "boolean",
        'B' => "byte",
        'C' => "char",
        'S' => "short",
        'I' => "int",
        'J' => "long",
        'F' => "float",
        'D' => "double",
        'L' => "Object",
        _ => "int[]",
    }
}

fn c_type(kind: char) -> &'static str {
    match kind {
        'V' => "void",
        'Z' => "jboolean",
        'B' => "jbyte",
        'C' => "jchar",
        'S' => "jshort",
        'I' => "jint",
        'J' => "jlong",
        'F' => "jfloat",
        'D' => "jdouble",
        'L' => "jobject",
        _ => "jintArray",
    }
}

const JAVA_HEAD: &str = r"package targets;

/** Generated: natives of many shapes. */
final class Generated {
    private static final int[][] ARRAYS = new int[16][];

    static {
        for (int i = 0; i < 15; i++) {
            ARRAYS[i] = new int[i];
        }
    }

    /** The hash that this thread's latest native computed. */
    static native long hash();

    /** Steele, Lea and Flood's SplitMix64. */
    static long valueJ(long seed) {
        long z = seed * 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    static boolean valueZ(long seed) { return (valueJ(seed) & 1) != 0; }
    static byte valueB(long seed) { return (byte) valueJ(seed); }
    static char valueC(long seed) { return (char) valueJ(seed); }
    static short valueS(long seed) { return (short) valueJ(seed); }
    static int valueI(long seed) { return (int) valueJ(seed); }
    static float valueF(long seed) { return Float.intBitsToFloat((int) (valueJ(seed) >>> 41) | 0x3f800000); }
    static double valueD(long seed) { return Double.longBitsToDouble((valueJ(seed) >>> 12) | 0x3ff0000000000000L); }
    static Object valueL(long seed) { return valueA(seed); }
    static int[] valueA(long seed) { return ARRAYS[(int) valueJ(seed) & 15]; }

    static long bits(boolean value) { return value ? 1 : 0; }
    static long bits(byte value) { return value; }
    static long bits(char value) { return value; }
    static long bits(short value) { return value; }
    static long bits(int value) { return value; }
    static long bits(long value) { return value; }
    static long bits(float value) { return Float.floatToRawIntBits(value); }
    static long bits(double value) { return Double.doubleToRawLongBits(value); }
    static long bits(Object value) { return value == null ? 99 : ((int[]) value).length; }
    static long bits(int[] value) { return bits((Object) value); }

";

const C_HEAD: &str = r"/* Generated: natives of many shapes. */
#include <jni.h>
#include <stdint.h>
#include <string.h>

static __thread uint64_t last;

#define WHOLE(letter, type)                                   \
    static inline uint64_t bits##letter(JNIEnv *env, type a) { \
        (void)env;                                             \
        return (uint64_t)(int64_t)a;                           \
    }

WHOLE(Z, jboolean)
WHOLE(B, jbyte)
WHOLE(C, jchar)
WHOLE(S, jshort)
WHOLE(I, jint)
WHOLE(J, jlong)

static inline uint64_t bitsF(JNIEnv *env, jfloat a) {
    int32_t bits;
    (void)env;
    memcpy(&bits, &a, sizeof bits);
    return (uint64_t)(int64_t)bits;
}

static inline uint64_t bitsD(JNIEnv *env, jdouble a) {
    uint64_t bits;
    (void)env;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

static inline uint64_t bitsA(JNIEnv *env, jintArray a) {
    return a == NULL ? 99 : (uint64_t)(*env)->GetArrayLength(env, a);
}

static inline uint64_t bitsL(JNIEnv *env, jobject a) {
    return bitsA(env, a);
}

JNIEXPORT jlong JNICALL Java_targets_Generated_hash(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    return (jlong)last;
}

";

/// The same shapes each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no shape has more words of arguments than Java allows, that the longest has all of them, and that
    /// every result stands after static and instance methods.
    #[test]
    fn shapes_are_legal() {
        let words = |shape: &Shape| {
            let wide = shape.arguments.iter().filter(|kind| ['J', 'D'].contains(kind)).count();
            shape.arguments.len() + wide + usize::from(!shape.is_static)
        };
        let shapes = shapes();
        assert_eq!(shapes.iter().map(words).max(), Some(255));
        for result in RESULTS {
            for is_static in [true, false] {
                assert!(shapes.iter().any(|shape| (shape.result, shape.is_static) == (result, is_static)), "{result}");
            }
        }
    }
}
