//! The headers that are sent with each push, from a file that others cannot read: credentials, a tenant.

use std::path::Path;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::Error;
use crate::sys::small_file;

/// What is said about the body and the connection is not the user's to say.
const OWN: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
];

/// Reads lines `Name: value`. Empty ones, and those that begin with `#`, say nothing.
pub(super) fn read(path: &Path) -> Result<HeaderMap, Error> {
    let content = small_file::read_secret(path)?;
    let mut headers = HeaderMap::new();
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let wrong = |what| Error::Header { path: path.to_path_buf(), line: number + 1, what };
        let (name, value) = header(line).map_err(wrong)?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &[u8]) -> Result<(HeaderName, HeaderValue), &'static str> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or("write `Name: value`")?;
    let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
    let name = HeaderName::from_bytes(name).or(Err("what stands before the colon is no name of a header"))?;
    if OWN.contains(&name) {
        return Err("nprof itself sets this header: remove the line");
    }
    let mut value = HeaderValue::from_bytes(value).or(Err("a header's value has no control characters"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::testing::secret;

    fn of(content: &str) -> Result<HeaderMap, Error> {
        let directory = tempfile::tempdir().unwrap();
        read(&secret(directory.path(), content))
    }

    /// Check that headers are read whatever white space is around them, that one may come twice, and that none shows its value.
    #[test]
    fn reads_headers() {
        let headers = of("# who we are\nAuthorization: Bearer a:b=\n\n X-Scope-OrgID :7 \r\nX-A: 1\nx-a: 2\n").unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b=");
        assert_eq!(headers["x-scope-orgid"], "7");
        assert_eq!(headers.get_all("x-a").iter().count(), 2);
        assert!(!format!("{headers:?}").contains("Bearer"));
        assert!(of("").unwrap().is_empty());
    }

    /// Check that a line that is no header is told by its number and not by what is in it.
    #[test]
    fn tells_wrong_lines() {
        for (content, says) in [
            ("A: b\nsecret", "write `Name: value`"),
            ("\nsec ret: x", "no name of a header"),
            ("\nX: sec\x01ret", "no control characters"),
            ("\nContent-Type: secret", "remove the line"),
        ] {
            let error = of(content).unwrap_err().to_string();
            assert!(error.contains(" line 2: ") && error.contains(says), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
