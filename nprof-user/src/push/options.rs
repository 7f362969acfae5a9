//! What a receiver is set up with.

use std::path::PathBuf;

use hyper::Uri;

/// How a receiver is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Scheme, host, perhaps a port, perhaps the path that all others are below.
    pub endpoint: Uri,
    /// A file of headers to send. Others than owner and group must not be able to read it.
    pub headers: Option<PathBuf>,
    /// The authorities (PEM) that may vouch for it, in place of the host's.
    pub ca: Option<PathBuf>,
    /// The setting of `ca`, for advice.
    pub ca_key: &'static str,
}
