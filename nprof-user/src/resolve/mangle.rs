//! JNI names: from a Java method to the symbol that the VM looks up, and back.
//!
//! The rules are those of the JNI specification, "Resolving Native Method Names". A *short* name is
//! `Java_<class>_<method>`; a *long* name appends `__<arguments>`. The VM tries the short name first.
//! In every part `.` and `/` become `_`, and `_`, `;`, `[` become `_1`, `_2`, `_3`; every other character that is
//! not an ASCII letter or digit becomes `_0xxxx`, one for each UTF-16 code unit, in lower-case hex.
//!
//! A part that begins with a digit 0 to 3 (no Java compiler writes one) would read as an escape. The VM finds no
//! function for such a method, and [`demangle`] never answers with one.

use std::fmt::Write as _;

use crate::model::descriptor;

const PREFIX: &str = "Java_";
const CRITICAL_PREFIX: &str = "JavaCritical_";

/// A method as a JNI symbol names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JniName {
    /// The class, dotted, nested classes with `$`.
    pub class: String,
    /// The method's name.
    pub method: String,
    /// The argument part of the descriptor, such as `J[BII`, where the symbol is a long name.
    pub arguments: Option<String>,
}

/// The short name of a method: `Java_java_util_zip_Deflater_init`. `class` is dotted.
#[must_use]
pub fn jni_short_name(class: &str, method: &str) -> String {
    let mut symbol = String::with_capacity(PREFIX.len() + class.len() + method.len() + 8);
    symbol.push_str(PREFIX);
    push_mangled(&mut symbol, class);
    symbol.push('_');
    push_mangled(&mut symbol, method);
    symbol
}

/// The long name of a method: the short one, `__`, and the arguments of its descriptor.
///
/// A `signature` without parentheses is taken to have no arguments.
#[must_use]
pub fn jni_long_name(class: &str, method: &str, signature: &str) -> String {
    let arguments =
        signature.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(arguments, _)| arguments);
    let mut symbol = jni_short_name(class, method);
    symbol.push_str("__");
    push_mangled(&mut symbol, arguments);
    symbol
}

/// The name of a method's critical function by that of its ordinary one, short or long.
#[must_use]
pub fn critical_name(name: &str) -> String {
    format!("{CRITICAL_PREFIX}{}", name.strip_prefix(PREFIX).unwrap_or(name))
}

/// The method that a symbol stands for, or `None` where it is not the JNI name of any.
///
/// The answer, mangled again, gives `symbol`: an escape that a compiler would not have written is refused.
#[must_use]
pub fn demangle(symbol: &str) -> Option<JniName> {
    let (name, arguments) = split_long(symbol.strip_prefix(PREFIX)?);
    let name = unmangle(name).filter(|name| !name.contains([';', '[']))?;
    let (class, method) = name.rsplit_once('/')?;
    let found = JniName {
        class: class.replace('/', "."),
        method: method.to_owned(),
        arguments: match arguments {
            Some(text) => Some(unmangle(text).filter(|t| descriptor::is_field_list(t))?),
            None => None,
        },
    };
    let again = match &found.arguments {
        Some(arguments) => jni_long_name(&found.class, &found.method, &format!("({arguments})")),
        None => jni_short_name(&found.class, &found.method),
    };
    let complete = !method.is_empty() && class.split('/').all(|segment| !segment.is_empty());
    (complete && again == symbol).then_some(found)
}

/// Appends the mangled form of one part.
fn push_mangled(symbol: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '0'..='9' | 'a'..='z' | 'A'..='Z' => symbol.push(c),
            '.' | '/' => symbol.push('_'),
            '_' => symbol.push_str("_1"),
            ';' => symbol.push_str("_2"),
            '[' => symbol.push_str("_3"),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _infallible = write!(symbol, "_0{unit:04x}");
                }
            }
        }
    }
}

/// Divides a symbol, prefix removed, at the `__` in front of the arguments.
///
/// `__0` and `__1` are a separator and an escaped first character; no argument begins with either.
fn split_long(name: &str) -> (&str, Option<&str>) {
    for (at, _) in name.match_indices("__") {
        let rest = &name[at + 2..];
        if !rest.starts_with(['0', '1']) {
            return (&name[..at], Some(rest));
        }
    }
    (name, None)
}

/// Undoes the escapes of one part; separators come back as `/`.
fn unmangle(part: &str) -> Option<String> {
    let mut units = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c.is_ascii_alphanumeric() {
            units.push(c as u16);
        } else if c == '_' {
            let (unit, length) = unescape(rest)?;
            units.push(unit);
            rest = &rest[length..];
        } else {
            return None;
        }
    }
    String::from_utf16(&units).ok()
}

/// The UTF-16 unit that an underscore and the start of `rest` stand for, and how many bytes of `rest` belong to it.
fn unescape(rest: &str) -> Option<(u16, usize)> {
    Some(match rest.as_bytes().first() {
        Some(b'0') => (u16::from_str_radix(rest.get(1..5)?, 16).ok()?, 5),
        Some(b'1') => (u16::from(b'_'), 1),
        Some(b'2') => (u16::from(b';'), 1),
        Some(b'3') => (u16::from(b'['), 1),
        _ => (u16::from(b'/'), 0),
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::{JniName, demangle, jni_long_name, jni_short_name};

    /// Check the names that the JNI specification and `javac -h` give for every kind of escape.
    #[test]
    fn mangles_as_specified() {
        for (class, method, signature, short, arguments) in [
            ("java.lang.Runtime", "freeMemory", "()J", "Java_java_lang_Runtime_freeMemory", "__"),
            ("p.q.r.A", "f", "(ILjava/lang/String;)D", "Java_p_q_r_A_f", "__ILjava_lang_String_2"),
            ("Outer$Inner", "a_b", "([[I)V", "Java_Outer_00024Inner_a_1b", "___3_3I"),
            ("a._b", "_c_", "(La/_b;)V", "Java_a__1b__1c_1", "__La__1b_2"),
            ("é.Ü", "日本", "()V", "Java__000e9__000dc__065e5_0672c", "__"),
            ("A", "𝄞", "(L𝄞;)V", "Java_A__0d834_0dd1e", "__L_0d834_0dd1e_2"),
        ] {
            assert_eq!(jni_short_name(class, method), short);
            assert_eq!(jni_long_name(class, method, signature), format!("{short}{arguments}"));
        }
    }

    /// Check that a long name and its method are told apart from a class that begins with an underscore.
    #[test]
    fn demangles_what_is_ambiguous_at_first_sight() {
        let named = |class: &str, method: &str, arguments: Option<&str>| {
            Some(JniName {
                class: class.to_owned(),
                method: method.to_owned(),
                arguments: arguments.map(str::to_owned),
            })
        };
        assert_eq!(demangle("Java_a__1b_c"), named("a._b", "c", None));
        assert_eq!(demangle("Java_A_f__"), named("A", "f", Some("")));
        assert_eq!(demangle("Java_A_f___3B"), named("A", "f", Some("[B")));
        assert_eq!(demangle("Java_A_f__La__1b_2"), named("A", "f", Some("La/_b;")));
        assert_eq!(demangle("Java_A__1f"), named("A", "_f", None));
    }

    /// Check that symbols which no compiler writes for a native method give nothing.
    #[test]
    fn refuses_other_symbols() {
        for symbol in [
            "",
            "Java_",
            "Java_A",
            "Java_A_",
            "Java__f",
            "JNI_OnLoad",
            "Java_A_f__Q",
            "Java_A_f__Lx",
            "Java_A_f_0",
            "Java_A_f_00E9",
            "Java_A_f_000E9",
            "Java_A_f_00041",
            "Java_A_f_0002f",
            "Java_A_f_0d834",
            "Java_A_f_2",
            "Java_A_é",
            "Java_A_f_0+123",
            "Java_A_f@@VERS",
            "JavaCritical_A_f",
        ] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
    }

    /// Check that every name made of tricky parts comes back from its short and its long symbol.
    #[test]
    fn comes_back_from_its_symbol() {
        let parts = [
            "a", "_", "__", "_1", "_0", "a_", "$", "a$1", "A0", "x9", "é", "e\u{301}", "日", "𝄞_", "_𝄞", "$_$", "L",
            "_00024", "ſ", "\u{7f}",
        ];
        let arguments = ["", "I", "[B", "[[J", "L_/_;", "L_1/é$𝄞;I", "[La/b;[La/b;Z"];
        for package in parts {
            for simple in parts {
                for method in parts {
                    let class = format!("{package}.{simple}");
                    let mut expected = JniName { class, method: method.to_owned(), arguments: None };
                    let short = jni_short_name(&expected.class, method);
                    assert_eq!(demangle(&short).as_ref(), Some(&expected), "{short}");
                    for list in arguments {
                        let long = jni_long_name(&expected.class, method, &format!("({list})V"));
                        expected.arguments = Some(list.to_owned());
                        assert_eq!(demangle(&long).as_ref(), Some(&expected), "{long}");
                    }
                }
            }
        }
    }

    const SOURCE: &str = r#"
package p_q.é;
public class Tricky {
    native void plain();
    native static long over_loaded(int a, byte[] b);
    native long over_loaded(String[][] s, Tricky t, Inner.$Deep d);
    native int $dollar_1();
    native void 日本𠀀(double d);
    static class Inner { native void in(); static class $Deep { native void _0deep(); } }
}
"#;

    /// The same methods: class, method, descriptor, whether the class overloads the name.
    const METHODS: [(&str, &str, &str, bool); 7] = [
        ("p_q.é.Tricky", "plain", "()V", false),
        ("p_q.é.Tricky", "over_loaded", "(I[B)J", true),
        ("p_q.é.Tricky", "over_loaded", "([[Ljava/lang/String;Lp_q/é/Tricky;Lp_q/é/Tricky$Inner$$Deep;)J", true),
        ("p_q.é.Tricky", "$dollar_1", "()I", false),
        ("p_q.é.Tricky", "日本𠀀", "(D)V", false),
        ("p_q.é.Tricky$Inner", "in", "()V", false),
        ("p_q.é.Tricky$Inner$$Deep", "_0deep", "()V", false),
    ];

    /// Check that the names in the headers that `javac -h` writes are those of this module, for every JDK here.
    #[test]
    fn agrees_with_javac() {
        let compilers = compilers();
        if compilers.is_empty() {
            println!("SKIPPED agrees_with_javac: no JDK under /usr/lib/jvm");
        }
        let mut expected: Vec<String> = METHODS
            .iter()
            .map(|(class, method, signature, overloaded)| match overloaded {
                true => jni_long_name(class, method, signature),
                false => jni_short_name(class, method),
            })
            .collect();
        expected.sort();
        for javac in compilers {
            assert_eq!(header_names(&javac), expected, "{}", javac.display());
        }
    }

    fn compilers() -> Vec<PathBuf> {
        let Ok(homes) = std::fs::read_dir("/usr/lib/jvm") else {
            return Vec::new();
        };
        homes.filter_map(|home| Some(home.ok()?.path().join("bin/javac"))).filter(|javac| javac.is_file()).collect()
    }

    fn header_names(javac: &Path) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("Tricky.java");
        std::fs::write(&source, SOURCE).unwrap();
        let output = Command::new(javac)
            // With a C locale the JVM could not name the class files.
            .env("LC_ALL", "C.UTF-8")
            .args(["-encoding", "UTF-8", "-h"])
            .arg(dir.path())
            .arg("-d")
            .arg(dir.path())
            .arg(&source)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "h") {
                let header = std::fs::read_to_string(path).unwrap();
                names.extend(header.lines().filter_map(|line| {
                    line.split_whitespace().find(|word| word.starts_with("Java_")).map(str::to_owned)
                }));
            }
        }
        names.sort();
        names
    }
}
