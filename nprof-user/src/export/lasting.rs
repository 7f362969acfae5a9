//! A library's name as it is at each start of a program: many libraries unpack themselves from a jar under a random
//! name, `libzstd-jni-1.5.5-418338467856899223094.so`, and a series for each would be a new one at each start.

use std::borrow::Cow;

/// Digits in a row that are random, or a time: versions and dates are shorter. Java's temporary files have up to twenty.
const DIGITS: usize = 12;
/// Hexadecimal digits in a row that are random, or a sum: between two that are neither digits nor letters.
const HEX_DIGITS: usize = 16;
/// The parts of a UUID, in digits.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// The name with `*` for what is random in it.
pub(super) fn lasting(name: &str) -> Cow<'_, str> {
    let mut lasting = String::new();
    let mut rest = name;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let random = random_len(before, rest);
        let len = random.unwrap_or_else(|| plain_len(rest).unwrap_or(first.len_utf8()));
        let (part, after) = rest.split_at(len);
        lasting.push_str(if random.is_some() { "*" } else { part });
        (before, rest) = (part.chars().next_back(), after);
    }
    if lasting == name { Cow::Borrowed(name) } else { Cow::Owned(lasting) }
}

/// How many bytes that `text` begins with are random, if any are; `before` stands before them.
fn random_len(before: Option<char>, text: &str) -> Option<usize> {
    let begins_word = !before.is_some_and(char::is_alphanumeric);
    let ends_word = |len: usize| !text[len..].starts_with(char::is_alphanumeric);
    let hex = run(text, |digit| digit.is_ascii_hexdigit());
    let digits = run(text, |digit| digit.is_ascii_digit());
    uuid_len(text).filter(|&len| begins_word && ends_word(len)).or((digits >= DIGITS).then_some(digits)).or((hex
        >= HEX_DIGITS
        && begins_word
        && ends_word(hex))
    .then_some(hex))
}

/// The digits or the letters that `text` begins with, which are taken as a whole.
fn plain_len(text: &str) -> Option<usize> {
    let letters = run(text, |byte| byte.is_ascii_alphabetic());
    Some(letters.max(run(text, |byte| byte.is_ascii_digit()))).filter(|&len| len > 0)
}

fn uuid_len(text: &str) -> Option<usize> {
    let mut end = 0;
    for (part, digits) in UUID.into_iter().enumerate() {
        end += usize::from(part > 0 && text[end..].starts_with('-'));
        let found = run(&text[end..], |digit| digit.is_ascii_hexdigit());
        end += digits;
        if found != digits {
            return None;
        }
    }
    (end == UUID.iter().sum::<usize>() + UUID.len() - 1).then_some(end)
}

fn run(text: &str, wanted: impl Fn(&u8) -> bool) -> usize {
    text.as_bytes().iter().take_while(|byte| wanted(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the names that libraries of well-known programs give their copies, from two starts each.
    #[test]
    fn random_parts_are_left_out() {
        for (first, second, expected) in [
            (
                "libzstd-jni-1.5.5-418338467856899223094.so",
                "libzstd-jni-1.5.5-49223370368547758.so",
                "libzstd-jni-1.5.5-*.so",
            ),
            ("librocksdbjni8731289371293001234.so", "librocksdbjni731289371293001.so", "librocksdbjni*.so"),
            ("jna1234567890123456789.tmp", "jna123456789012345.tmp", "jna*.tmp"),
            (
                "libnetty_tcnative_linux_x86_641234567890123456789.so",
                "libnetty_tcnative_linux_x86_64998877665544332211.so",
                "libnetty_tcnative_linux_x86_*.so",
            ),
            (
                "snappy-1.1.10-7f3bb7ca-4a52-4d8e-9d4c-0123456789ab-libsnappyjava.so",
                "snappy-1.1.10-12345678-1234-1234-1234-123456789012-libsnappyjava.so",
                "snappy-1.1.10-*-libsnappyjava.so",
            ),
            (
                "jansi-2.4.0-8f14e45fceea167a-libjansi.so",
                "jansi-2.4.0-c9f0f895fb98ab91-libjansi.so",
                "jansi-2.4.0-*-libjansi.so",
            ),
        ] {
            assert_eq!((lasting(first), lasting(second)), (expected.into(), expected.into()));
        }
    }

    /// Check that versions, dates, short sums and names that look odd stay as they are.
    #[test]
    fn other_names_stay() {
        for name in [
            "libjava.so",
            "libc.so.6",
            "libgfortran-040039e1.so.5.0.0",
            "libfoo-20261120.so",
            "libdeadbeefdeadbeefs.so",
            "libcrypto.so.1.1",
            "7f3bb7ca-4a52-4d8e-9d4c.so",
            "libnäh-12345678901.so",
            "",
        ] {
            assert_eq!(lasting(name), name);
        }
    }
}
