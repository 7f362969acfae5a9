//! What is said over the control socket: a line of JSON for each request and each reply.
//!
//! `{"v":1,"do":"rule","rules":["java.util.zip.*=time"]}` is answered by `{"v":1,"ok":{"matched":3,"status":null}}` or
//! by `{"v":1,"error":"…"}`. A request of another version is refused; fields that are not known are passed over. Where a reply says
//! so, bytes follow it.

use serde::{Deserialize, Serialize};

use crate::model::Status;

/// The version of all of this. It rises when an old client would be misunderstood.
pub(super) const VERSION: u32 = 1;
/// The most bytes of a request, with the end of the line.
pub(super) const REQUEST_BYTES: usize = 64 << 10;
/// The most bytes that follow a reply: more than all profiles that are kept take.
pub(super) const FOLLOWING_BYTES: u64 = 64 << 20;
/// The most bytes of a reply: the status of a host full of JVMs has room in it.
pub(super) const REPLY_BYTES: usize = 4 << 20;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// The state of everything.
    Status,
    /// Do this at the calls of these methods.
    Rule {
        /// What at which, `java.util.zip.*=count`; later ones count.
        rules: Vec<String>,
    },
    /// Calls are slow from so long on.
    Slow {
        /// `100ms`, `java.util.zip.*=1ms`, `java.util.zip.*=off`; later ones count.
        slow: Vec<String>,
    },
    /// What a JVM did lately, as the bytes of a recording behind the reply.
    Profile(WantedProfile),
}

/// Which profile is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WantedProfile {
    /// Of the process with this id.
    pub pid: Option<u32>,
    /// Of the JVM whose main class or jar matches this glob.
    pub jvm: Option<String>,
    /// Of so many milliseconds up to now.
    pub last_ms: u64,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// How many functions the rules are about, in all JVMs: the sum over all rules.
    pub matched: usize,
    /// The patterns of rules that are about none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// What was asked for with [`Request::Status`].
    pub status: Option<Status>,
    /// How many bytes of what was asked for with [`Request::Profile`] follow the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<u64>,
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
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
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
        for (request, text) in [
            (Request::Status, r#"{"v":1,"do":"status"}"#),
            (Request::Rule { rules: vec!["A::b=off".to_owned()] }, r#"{"v":1,"do":"rule","rules":["A::b=off"]}"#),
            (Request::Slow { slow: vec!["A::b=1ms".to_owned()] }, r#"{"v":1,"do":"slow","slow":["A::b=1ms"]}"#),
            (
                Request::Profile(WantedProfile { pid: Some(7), jvm: None, last_ms: 60_000 }),
                r#"{"v":1,"do":"profile","pid":7,"jvm":null,"last_ms":60000}"#,
            ),
        ] {
            let line = request.to_line().unwrap();
            assert_eq!(String::from_utf8_lossy(&line), format!("{text}\n"));
            assert_eq!(Request::from_line(&line), Ok(request));
        }
        let answer = Answer { matched: 3, ..Answer::default() };
        let line = reply_line(Ok(answer.clone()));
        assert_eq!(String::from_utf8_lossy(&line), "{\"v\":1,\"ok\":{\"matched\":3,\"status\":null}}\n");
        assert_eq!(read_reply(&line), Ok(Ok(answer)));
        assert_eq!(read_reply(&reply_line(Err("no".to_owned()))), Ok(Err("no".to_owned())));
    }

    /// Check that a whole status arrives as it was sent.
    #[test]
    fn carries_a_status() {
        let status = Status::sample();
        let answer = Answer { status: Some(status), ..Answer::default() };
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
            (r#"{"v":1,"do":"rule"}"#, "missing field `rules`"),
        ] {
            let error = Request::from_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    /// Check that an answer without room in a line becomes an error with room in one.
    #[test]
    fn limits_replies() {
        let status = Status { nprof: "x".repeat(REPLY_BYTES), ..Status::default() };
        let reply = reply_line(Ok(Answer { status: Some(status), ..Answer::default() }));
        assert!(read_reply(&reply).unwrap().unwrap_err().contains("longer than"));
    }
}
