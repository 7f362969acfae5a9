//! What can be wrong with the set-up of a receiver, and why a push did not arrive.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;

use crate::sys::small_file;

/// Why a receiver cannot be set up. No message holds a part of a secret file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, or must not be used.
    #[error(transparent)]
    File(#[from] small_file::Error),
    /// A line of the headers' file is no header that may be sent.
    #[error("{} line {line}: {what}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it and what to do.
        what: &'static str,
    },
    /// The file of authorities has none.
    #[error("{} has no certificate in PEM format", path.display())]
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// The host has no certificates by which a receiver can be known.
    #[error("this host has no certificates of authorities; install ca-certificates, or name a file with {key}")]
    NoTrust {
        /// The setting that names one.
        key: &'static str,
    },
    /// The endpoint cannot be spoken to.
    #[error("cannot push to {endpoint}: {what}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The TLS library refuses what it was set up with.
    #[error("TLS cannot be set up for {endpoint}")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// What the library says.
        source: tokio_rustls::rustls::Error,
    },
}

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The receiver cannot be reached, or TLS does not come about.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::Error),
    /// The connection broke, or what came back is not HTTP.
    #[error("the connection broke: {0}")]
    Broken(hyper::Error),
    /// No answer in time.
    #[error("no answer in {:.0} s", .0.as_secs_f32())]
    Silent(Duration),
    /// It said no.
    #[error("it answered {status}{says}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// What else it said, after a colon; may be empty.
        says: String,
    },
    /// It said yes, but not as such a receiver does.
    #[error("it answered {status} with {what}: this is no such receiver")]
    Stranger {
        /// The status.
        status: StatusCode,
        /// What came with it.
        what: String,
    },
    /// What to push could not be made.
    #[error("what to push could not be made: {0}")]
    Defect(String),
}

impl Failure {
    /// Whether the same may be taken later: what the specification of OTLP says.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) | Self::Silent(_) => true,
            Self::Refused { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Stranger { .. } | Self::Defect(_) => false,
        }
    }

    /// Whether another body may be taken where this one was not: this one is wrong, or too long.
    pub(super) fn is_of_body(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(status.as_u16(), 400 | 413))
    }
}
