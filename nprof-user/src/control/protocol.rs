//! What is said over the control socket: a line of JSON for each request and each reply.
//!
//! `{"v":1,"do":"enable","patterns":["java.util.zip.*"]}` is answered by `{"v":1,"ok":{"matched":3,"status":null}}` or
//! by `{"v":1,"error":"…"}`. A request of another version is refused; fields that are not known are passed over.

use serde::{Deserialize, Serialize};

use crate::model::Status;

/// The version of all of this. It rises when an old client would be misunderstood.
pub(super) const VERSION: u32 = 1;
/// The most bytes of a request, with the end of the line.
pub(super) const REQUEST_BYTES: usize = 64 << 10;
/// The most bytes of a reply: the status of a host full of JVMs has room in it.
pub(super) const REPLY_BYTES: usize = 4 << 20;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// The state of everything.
    Status,
    /// See the calls of these methods again, as they were seen before.
    Enable {
        /// Which methods.
        patterns: Vec<String>,
    },
    /// Do not see the calls of these methods.
    Disable {
        /// Which methods.
        patterns: Vec<String>,
    },
    /// See the calls of these methods in this way.
    Mode {
        /// In which.
        mode: Mode,
        /// Which methods.
        patterns: Vec<String>,
    },
}

/// How calls are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are counted.
    Count,
    /// They are counted and timed.
    Time,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// How many functions the patterns match, in all JVMs.
    pub matched: usize,
    /// What was asked for with [`Request::Status`].
    pub status: Option<Status>,
}

#[derive(Serialize)]
struct RequestLine<'a> {
    v: u32,
    #[serde(flatten)]
    request: &'a Request,
}

#[derive(Serialize, Deserialize)]
struct ReplyLine {
    v: u32,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok(Answer),
    Error(String),
}

/// All that is read of a line whose version is not known yet.
#[derive(Deserialize)]
struct Version {
    v: u32,
}

impl Request {
    /// The request as a line.
    pub(super) fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        line(&RequestLine { v: VERSION, request: self })
    }

    /// The request in a line, or what to tell whoever sent it.
    pub(super) fn from_line(line: &[u8]) -> Result<Self, String> {
        check_version(line)?;
        serde_json::from_slice(line).map_err(|error| format!("this request cannot be understood: {error}"))
    }
}

/// A reply as a line. One that has no room in a line is an error in its place.
pub(super) fn reply_line(outcome: Result<Answer, String>) -> Vec<u8> {
    let reply = |outcome| line(&ReplyLine { v: VERSION, outcome });
    let outcome = outcome.map_or_else(Outcome::Error, Outcome::Ok);
    let written = reply(outcome).ok().filter(|line| line.len() <= REPLY_BYTES);
    written
        .or_else(|| reply(Outcome::Error(format!("the answer is longer than {REPLY_BYTES} bytes"))).ok())
        .unwrap_or_default()
}

/// The reply in a line: what came of the request, or what its recipient says against it.
pub(super) fn read_reply(line: &[u8]) -> Result<Result<Answer, String>, String> {
    check_version(line)?;
    let reply: ReplyLine =
        serde_json::from_slice(line).map_err(|error| format!("the reply cannot be understood: {error}"))?;
    Ok(match reply.outcome {
        Outcome::Ok(answer) => Ok(answer),
        Outcome::Error(error) => Err(error),
    })
}

fn check_version(line: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(line) {
        Ok(Version { v: VERSION }) => Ok(()),
        Ok(Version { v }) => Err(format!(
            "version {VERSION} of the control protocol is spoken here (nprof {}), not {v}: use the same nprof at both ends",
            env!("CARGO_PKG_VERSION")
        )),
        Err(error) => Err(format!("this is no line of the control protocol: {error}")),
    }
}

fn line(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check each line as it is written, and that what is written can be read.
    #[test]
    fn writes_and_reads_lines() {
        let patterns = vec!["A::b".to_owned()];
        for (request, text) in [
            (Request::Status, r#"{"v":1,"do":"status"}"#),
            (Request::Enable { patterns: patterns.clone() }, r#"{"v":1,"do":"enable","patterns":["A::b"]}"#),
            (Request::Disable { patterns: patterns.clone() }, r#"{"v":1,"do":"disable","patterns":["A::b"]}"#),
            (
                Request::Mode { mode: Mode::Count, patterns },
                r#"{"v":1,"do":"mode","mode":"count","patterns":["A::b"]}"#,
            ),
        ] {
            let line = request.to_line().unwrap();
            assert_eq!(String::from_utf8_lossy(&line), format!("{text}\n"));
            assert_eq!(Request::from_line(&line), Ok(request));
        }
        let answer = Answer { matched: 3, status: None };
        let line = reply_line(Ok(answer.clone()));
        assert_eq!(String::from_utf8_lossy(&line), "{\"v\":1,\"ok\":{\"matched\":3,\"status\":null}}\n");
        assert_eq!(read_reply(&line), Ok(Ok(answer)));
        assert_eq!(read_reply(&reply_line(Err("no".to_owned()))), Ok(Err("no".to_owned())));
    }

    /// Check that a whole status arrives as it was sent.
    #[test]
    fn carries_a_status() {
        let status = Status::sample();
        let answer = Answer { matched: 0, status: Some(status) };
        assert_eq!(read_reply(&reply_line(Ok(answer.clone()))), Ok(Ok(answer)));
    }

    /// Check that each kind of line that cannot be meant is refused with its reason.
    #[test]
    fn refuses_other_lines() {
        for (line, reason) in [
            ("", "no line of the control protocol"),
            ("nonsense", "no line of the control protocol"),
            ("{}", "missing field `v`"),
            (r#"{"v":2,"do":"status"}"#, "version 1 of the control protocol is spoken here"),
            (r#"{"v":1}"#, "missing field `do`"),
            (r#"{"v":1,"do":"explode"}"#, "unknown variant `explode`"),
            (r#"{"v":1,"do":"enable"}"#, "missing field `patterns`"),
            (r#"{"v":1,"do":"mode","mode":"guess","patterns":[]}"#, "unknown variant `guess`"),
        ] {
            let error = Request::from_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    /// Check that an answer without room in a line becomes an error with room in one.
    #[test]
    fn limits_replies() {
        let status = Status { nprof: "x".repeat(REPLY_BYTES), ..Status::default() };
        let reply = reply_line(Ok(Answer { matched: 0, status: Some(status) }));
        assert!(read_reply(&reply).unwrap().unwrap_err().contains("longer than"));
    }
}
