//! Names of methods as people see them: safe to print, told apart, and short enough.
//!
//! Names come from the target, which may put anything into them. What could move the cursor, recolour the terminal
//! or reorder the text is printed as an escape such as `\u{1b}`.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::model::Method;
use crate::model::descriptor;

/// What stands for the part of a name that was cut out.
const GAP: char = '…';

/// `class::method`, as it is in the target.
pub(super) fn qualified(method: &Method) -> String {
    format!("{}::{}", method.class, method.name)
}

/// `Deflater.deflateBytesBytes`: without the package.
pub(super) fn short(class: &str, method: &str) -> String {
    // The name of a hidden class ends in `/0x…`; no package begins behind that.
    let named = class.split('/').next().unwrap_or(class);
    let class = named.rfind('.').map_or(class, |dot| &class[dot + 1..]);
    if class.is_empty() { method.to_owned() } else { format!("{class}.{method}") }
}

/// The text with everything invisible escaped.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| {
        if is_unsafe(c) { c.escape_unicode().to_string() } else { c.to_string() }
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Controls, separators of lines, marks of direction, characters without a shape.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A printable `class::method` for each method; overloads also show their arguments, and those that look the same
/// even then their descriptors.
pub(super) fn labels(methods: &[&Method]) -> Vec<String> {
    let mut labels: Vec<String> = methods.iter().map(|m| qualified(m)).collect();
    let short = |m: &Method| descriptor::short_arguments(&m.signature);
    tell_apart(&mut labels, |i| format!("{}{}", qualified(methods[i]), short(methods[i]).unwrap_or_default()));
    tell_apart(&mut labels, |i| format!("{}{}", qualified(methods[i]), methods[i].signature));
    labels.into_iter().map(|label| printable(&label).into_owned()).collect()
}

/// Replaces each label that occurs more than once by its longer form.
pub(super) fn tell_apart(labels: &mut [String], longer: impl Fn(usize) -> String) {
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for label in labels.iter() {
        *uses.entry(label).or_default() += 1;
    }
    let repeated: Vec<usize> = (0..labels.len()).filter(|&i| uses[labels[i].as_str()] > 1).collect();
    for i in repeated {
        labels[i] = longer(i);
    }
}

/// `a < b < ...`: names of whoever has called the one before.
pub(super) fn chain<'a>(names: impl Iterator<Item = &'a String>, most: usize) -> String {
    let mut names = names.map(|name| printable(name));
    let mut text: Vec<String> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    text.extend(names.next().map(|_| "...".to_owned()));
    text.join(" < ")
}

/// How many columns a printable text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The name in at most `columns`: package parts shrink to their initials from the left, as many as need be; if that
/// is not enough, or if it is a jar's name, the middle is cut out.
pub(super) fn fit(name: &str, columns: usize) -> Cow<'_, str> {
    let excess = width(name).saturating_sub(columns);
    if excess == 0 {
        return Cow::Borrowed(name);
    }
    // The dots in `orders-1.2.jar` separate no packages.
    let is_jar = name.split(' ').any(|word| word.ends_with(".jar"));
    Cow::Owned(if is_jar { cut(name, columns) } else { cut(&shorten_packages(name, excess), columns) })
}

fn shorten_packages(name: &str, mut excess: usize) -> String {
    let class_end = name.find("::").unwrap_or(name.len());
    let packages_end = name[..class_end].rfind('.').map_or(0, |dot| dot + 1);
    let mut out = String::with_capacity(name.len());
    for package in name[..packages_end].split_inclusive('.') {
        let initial = package.chars().next().map_or(0, char::len_utf8);
        let part = package.trim_end_matches('.');
        if excess > 0 && part.len() > initial {
            excess = excess.saturating_sub(width(part) - width(&part[..initial]));
            out.push_str(&part[..initial]);
            out.push('.');
        } else {
            out.push_str(package);
        }
    }
    out.push_str(&name[packages_end..]);
    out
}

/// The text in at most `columns`, its middle replaced by a gap where it is longer.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let left = columns.saturating_sub(1);
    let head = prefix(text.chars(), left / 2);
    let tail: Vec<char> = prefix(text.chars().rev(), left - left / 2).chars().collect();
    let gap = (columns > 0).then_some(GAP);
    head.chars().chain(gap).chain(tail.into_iter().rev()).collect()
}

/// The text in at most `columns`, its end left out where it is longer.
pub(super) fn cut_end(text: &str, columns: usize) -> String {
    prefix(text.chars(), columns)
}

/// As many characters as fit into `columns`.
fn prefix(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{cut, cut_end, fit, labels, printable, width};
    use crate::render::samples::method;

    /// Check that only overloads show arguments, and descriptors only where the arguments look the same.
    #[test]
    fn tells_overloads_apart() {
        let methods = [
            method("p.A", "one", "(I)V"),
            method("p.A", "two", "(I)V"),
            method("p.A", "two", "(I[B)V"),
            method("p.A", "three", "(La/X;)V"),
            method("p.A", "three", "(Lb/X;)V"),
            method("p.A", "bad", "()V"),
            method("p.A", "bad", "\u{1b}"),
        ];
        let methods: Vec<_> = methods.iter().collect();
        assert_eq!(
            labels(&methods),
            [
                "p.A::one",
                "p.A::two(int)",
                "p.A::two(int, byte[])",
                "p.A::three(La/X;)V",
                "p.A::three(Lb/X;)V",
                "p.A::bad()",
                "p.A::bad",
            ]
        );
    }

    /// Check that a name can neither send commands to the terminal nor reorder what is printed.
    #[test]
    fn escapes_what_is_not_text() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\n"), "a\\u{1b}[2Jb\\u{202e}c\\u{a}");
        assert_eq!(printable("日本é"), "日本é");
    }

    /// Check that packages shrink only as far as is needed, and only then the middle goes.
    #[test]
    fn shortens_in_steps() {
        let name = "java.util.zip.Deflater::deflateBytesBytes";
        assert_eq!(fit(name, 41), name);
        assert_eq!(fit(name, 40), "j.util.zip.Deflater::deflateBytesBytes");
        assert_eq!(fit(name, 37), "j.u.zip.Deflater::deflateBytesBytes");
        assert_eq!(fit(name, 33), "j.u.z.Deflater::deflateBytesBytes");
        assert_eq!(fit(name, 21), "j.u.z.Defl…BytesBytes");
        assert_eq!(fit("orders-1.2.jar x", 12), "order….jar x");
        assert_eq!(fit("p.A$B::m", 3), "p…m");
        assert_eq!(fit("日本語.A::m", 8), "日.A::m");
    }

    /// Check that no result is wider than asked for, whatever is cut.
    #[test]
    fn never_wider_than_asked() {
        for name in ["a.b.C::d", "日本.語::漢字", "", "::", "...", ".::.", "e\u{301}e\u{301}.x::y"] {
            for columns in 0..12 {
                assert!(width(&fit(name, columns)) <= columns, "{name} in {columns}");
                assert!(width(&cut(name, columns)) <= columns, "{name} in {columns}");
                assert!(width(&cut_end(name, columns)) <= columns, "{name} in {columns}");
            }
        }
    }
}
