//! Where to push and as whom: an endpoint, how TLS knows it, and what is shown to it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Version};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::options::Options;
use super::{Error, headers, trust};

/// A receiver whose files have been read and found good.
pub struct Receiver {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    endpoint: String,
    /// What stands before each path; empty, or without a slash at its end.
    base: String,
    authority: HeaderValue,
    headers: HeaderMap,
}

impl Receiver {
    /// Reads and checks everything that `options` name. Connects to nothing.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(options: &Options) -> Result<Self, Error> {
        let uri = &options.endpoint;
        let endpoint = uri.to_string();
        let wrong = |what| Error::Endpoint { endpoint: uri.to_string(), what };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        let is_secure = uri.scheme_str() == Some("https");
        // As the resolver and TLS want an address of IPv6, which an URL has in brackets.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = if is_secure {
            let name = ServerName::try_from(host.clone()).or(Err(wrong("no certificate can be for such a host")))?;
            Some((trust::connector(options)?, name))
        } else {
            None
        };
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            tls,
            base: uri.path().trim_end_matches('/').to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).or(Err(wrong("it names no host")))?,
            headers: options.headers.as_deref().map(headers::read).transpose()?.unwrap_or_default(),
            endpoint,
        })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A request that pushes a body to a path below the endpoint.
    pub(super) fn request(&self, path: &str, content_type: &'static str, gzipped: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(gzipped.clone()));
        *request.method_mut() = hyper::Method::POST;
        *request.version_mut() = Version::HTTP_11;
        // Both parts were checked when they were read.
        *request.uri_mut() = format!("{}{path}", self.base).parse().unwrap_or_default();
        let of_request = request.headers_mut();
        *of_request = self.headers.clone();
        of_request.insert(header::HOST, self.authority.clone());
        of_request.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        of_request.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        of_request.insert(header::USER_AGENT, HeaderValue::from_static(concat!("nprof/", env!("CARGO_PKG_VERSION"))));
        request
    }
}

/// A receiver whose files may be read again while it is pushed to.
#[derive(Debug)]
pub struct Live(watch::Sender<Arc<Receiver>>);

impl Live {
    /// Reads and checks everything that `options` name. Connects to nothing.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(options: &Options) -> Result<Self, Error> {
        Ok(Self(watch::Sender::new(Arc::new(Receiver::load(options)?))))
    }

    /// Reads the files again and uses them from the next push on. Reads files, so it may block for a moment.
    ///
    /// # Errors
    /// Something is wrong with them. Then all stays as it was.
    pub fn reload(&self, options: &Options) -> Result<(), Error> {
        self.0.send_replace(Arc::new(Receiver::load(options)?));
        Ok(())
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Receiver>> {
        self.0.subscribe()
    }
}

impl fmt::Display for Receiver {
    /// Its endpoint, which has no secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint)
    }
}

impl fmt::Debug for Receiver {
    /// Leaves out what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
