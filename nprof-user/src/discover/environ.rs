//! Variables of a process's environment, from the bytes of `/proc/PID/environ`.
//!
//! These are the variables that the program was started with. What it set itself, it keeps to itself.

/// The value of a variable; of several with one name the first, as `getenv` has it. Bytes that are not text are replaced.
pub(super) fn variable(environ: &[u8], name: &str) -> Option<String> {
    let value = environ
        .split(|b| *b == 0)
        .find_map(|variable| variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the whole name matches, that the first of two counts, and that a value may hold anything.
    #[test]
    fn finds_the_variable() {
        let environ = b"TEAMS=x\0TEAM=a=b\0TEAM=later\0EMPTY=\0ODD\0RAW=\xff\0";
        let value = |name| variable(environ, name);
        assert_eq!(value("TEAM").as_deref(), Some("a=b"));
        assert_eq!(value("EMPTY").as_deref(), Some(""));
        assert_eq!(value("RAW").as_deref(), Some("\u{fffd}"));
        assert_eq!(value("ODD"), None);
        assert_eq!(value("TEA"), None);
        assert_eq!(variable(b"", "TEAM"), None);
    }
}
