//! What a receiver's answer means.

use std::time::Duration;

use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::http::response::Parts;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message;

use super::connection::Answer;
use super::error::Failure;

/// As many characters of a receiver's own words are told.
const WORDS: usize = 200;
/// Whoever asks for a longer pause is asked again after this one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// What was not taken of a push that was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rejected {
    /// How many points or profiles.
    pub(super) items: u64,
    /// Why, in the receiver's words.
    pub(super) says: String,
}

impl Rejected {
    const NONE: Self = Self { items: 0, says: String::new() };
}

/// Why not, and how long to wait before another attempt if the receiver has said so.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    pub(super) pause: Option<Duration>,
}

/// What a receiver answers when it has taken something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    /// The content type, also of what it is sent.
    pub(super) content_type: &'static str,
    /// Reads what was rejected; `None` if the message is broken.
    pub(super) rejected: fn(&[u8]) -> Option<Rejected>,
}

/// What the answer says. `now` is for a pause that is said by the clock.
pub(super) fn read(answer: &Answer, dialect: Dialect, now: Timestamp) -> Result<Rejected, Refusal> {
    let Answer { head, body } = answer;
    let status = head.status;
    let body = body.as_deref();
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !status.is_success() {
        let says = body.map(|body| words(kind, body)).unwrap_or_default();
        let says = if says.is_empty() { says } else { format!(": {says}") };
        return Err(Refusal { failure: Failure::Refused { status, says }, pause: pause(head, now) });
    }
    let stranger = |what: &str| Refusal { failure: Failure::Stranger { status, what: shown(what) }, pause: None };
    match body {
        None => Err(stranger("more than any receiver has to say")),
        Some([]) => Ok(Rejected::default()),
        Some(body) if is(kind, dialect.content_type) => {
            (dialect.rejected)(body).ok_or_else(|| stranger("a broken message"))
        }
        // Some answer so whatever they were sent.
        Some(_) if is(kind, "application/json") => Ok(Rejected::default()),
        Some(_) if kind.is_empty() => Err(stranger("something unknown")),
        Some(_) => Err(stranger(kind)),
    }
}

/// A receiver of OTLP metrics.
pub(super) const OTLP_METRICS: Dialect = Dialect { content_type: "application/x-protobuf", rejected: of_metrics };
/// A receiver of OTLP profiles.
pub(super) const OTLP_PROFILES: Dialect = Dialect { content_type: "application/x-protobuf", rejected: of_profiles };
/// A service by the Connect protocol with an empty answer.
pub(super) const CONNECT: Dialect = Dialect { content_type: "application/proto", rejected: |_| Some(Rejected::NONE) };

fn of_profiles(body: &[u8]) -> Option<Rejected> {
    let answer = ExportProfilesServiceResponse::decode(body).ok()?;
    let partial = answer.partial_success.unwrap_or_default();
    let items = u64::try_from(partial.rejected_profiles).unwrap_or_default();
    Some(Rejected { items, says: shown(&partial.error_message) })
}

fn of_metrics(body: &[u8]) -> Option<Rejected> {
    let answer = ExportMetricsServiceResponse::decode(body).ok()?;
    let partial = answer.partial_success.unwrap_or_default();
    let items = u64::try_from(partial.rejected_data_points).unwrap_or_default();
    Some(Rejected { items, says: shown(&partial.error_message) })
}

fn is(kind: &str, wanted: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// `google.rpc.Status`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

/// The receiver's own words.
fn words(kind: &str, body: &[u8]) -> String {
    if is(kind, "application/x-protobuf") {
        return Status::decode(body).map(|status| shown(&status.message)).unwrap_or_default();
    }
    let is_text = is(kind, "text/plain") || is(kind, "application/json");
    if is_text { shown(String::from_utf8_lossy(body).trim()) } else { String::new() }
}

/// As it may stand in a line of the log.
fn shown(text: &str) -> String {
    let end = text.char_indices().nth(WORDS);
    match end {
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

/// What `Retry-After` says: seconds, or a date.
fn pause(head: &Parts, now: Timestamp) -> Option<Duration> {
    let said = head.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match said.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_not_seconds) => {
            let until = rfc2822::DateTimeParser::new().parse_timestamp(said).ok()?;
            Duration::try_from(until.duration_since(now)).unwrap_or_default()
        }
    };
    Some(pause.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use hyper::Response;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(784_111_777, 0);

    fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let response =
            headers.iter().fold(Response::builder().status(status), |response, (n, v)| response.header(*n, *v));
        let (head, ()) = response.body(()).unwrap().into_parts();
        Answer { head, body: Some(bytes::Bytes::copy_from_slice(body)) }
    }

    fn of(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<Rejected, Refusal> {
        read(&answer(status, headers, body), OTLP_METRICS, NOW)
    }

    const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

    /// Check what counts as taken: nothing said, an empty message, JSON, and a message that rejects a part.
    #[test]
    fn taken() {
        let none = Rejected::default();
        assert_eq!(of(200, &[], b"").unwrap(), none);
        assert_eq!(of(204, &[PROTOBUF], b"").unwrap(), none);
        assert_eq!(of(200, &[("content-type", "application/json; charset=utf-8")], b"{}").unwrap(), none);
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "too\nold".to_owned() };
        let body = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let partly = of(200, &[PROTOBUF], &body).unwrap();
        assert_eq!(partly, Rejected { items: 3, says: "too\\nold".to_owned() });
    }

    /// Check that 200 from something that is no receiver is no success, and that it is not tried again.
    #[test]
    fn strangers() {
        let html = of(200, &[("content-type", "text/html")], b"<html>log in</html>").unwrap_err().failure;
        assert!(html.to_string().contains("200 OK with text/html: this is no such receiver"), "{html}");
        let broken = of(200, &[PROTOBUF], b"<html>").unwrap_err().failure;
        let mut long = answer(200, &[PROTOBUF], b"");
        long.body = None;
        let long = read(&long, OTLP_METRICS, NOW).unwrap_err().failure;
        assert!(![html, broken, long].iter().any(Failure::is_passing));
    }

    /// Check which refusals pass, what is told of them, and how long a receiver may ask to be left alone.
    #[test]
    fn refused() {
        for (status, passing) in [
            (400, false),
            (401, false),
            (404, false),
            (413, false),
            (429, true),
            (500, false),
            (502, true),
            (503, true),
            (504, true),
            (302, false),
        ] {
            let refusal = of(status, &[("retry-after", "7")], b"").unwrap_err();
            assert_eq!(refusal.failure.is_passing(), passing, "{status}");
            assert_eq!(refusal.pause, Some(Duration::from_secs(7)));
        }
        let words = |kind, body: &[u8]| of(400, &[("content-type", kind)], body).unwrap_err().failure.to_string();
        assert_eq!(words("text/plain", b"bad\x1b[0m "), "it answered 400 Bad Request: bad\\u{1b}[0m");
        let status = Status { message: "no tenant".to_owned() }.encode_to_vec();
        assert_eq!(words("application/x-protobuf", &status), "it answered 400 Bad Request: no tenant");
        assert_eq!(words("text/html", b"<html>"), "it answered 400 Bad Request");
        assert!(words("text/plain", "é".repeat(1000).as_bytes()).chars().count() < 250);
    }

    /// Check pauses by the clock, impossible ones and those that are too long.
    #[test]
    fn pauses() {
        let pause = |said| of(503, &[("retry-after", said)], b"").unwrap_err().pause;
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:40 GMT"), Some(Duration::from_secs(3)));
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:30 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("99999999"), Some(LONGEST_PAUSE));
        assert_eq!(pause("soon"), None);
    }
}
