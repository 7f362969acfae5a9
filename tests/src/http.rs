//! Requests to services on this machine. Every status is an answer, and nothing is waited for without a limit.

use anyhow::{Context, Result};
use ureq::Agent;

use crate::child::PATIENCE;

/// The largest answer that is read.
const MOST_BYTES: u64 = 64 << 20;

/// What a service answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header `Content-Type`; empty without one.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// Gets a URL with query parameters, which are encoded here, and headers.
///
/// # Errors
/// When there is no answer, or its body is not text.
pub fn get(url: &str, query: &[(&str, &str)], headers: &[(&str, &str)]) -> Result<Answer> {
    let (status, content_type, body) = get_bytes(url, query, headers)?;
    let body = String::from_utf8(body).with_context(|| url.to_owned())?;
    Ok(Answer { status, content_type, body })
}

/// The same for answers that are no text: the status code, the content type and the body.
///
/// # Errors
/// When there is no answer.
pub fn get_bytes(url: &str, query: &[(&str, &str)], headers: &[(&str, &str)]) -> Result<(u16, String, Vec<u8>)> {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
    let mut request = config.new_agent().get(url).query_pairs(query.iter().copied());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.call().with_context(|| url.to_owned())?;
    let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let body = response.body_mut().with_config().limit(MOST_BYTES).read_to_vec().with_context(|| url.to_owned())?;
    Ok((response.status().as_u16(), content_type, body))
}
