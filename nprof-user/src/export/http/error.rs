//! What can be wrong with the set-up of the endpoint. What goes wrong later concerns one connection and is logged.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_rustls::rustls;

use crate::sys::small_file;

/// Why the endpoint cannot be set up. No message holds a part of a secret file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is taken, is not this host's or needs a privilege.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The address cannot change while the endpoint runs.
    #[error("the endpoint listens on {from}; to have it listen on {to}, restart it")]
    ListenChanged {
        /// The address that it was started with.
        from: SocketAddr,
        /// The address that was asked for.
        to: SocketAddr,
    },
    /// A limit makes no sense.
    #[error("the limit of {what} is {value}, but must be at least {least}")]
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The limit that was asked for.
        value: u128,
        /// The least that works.
        least: u128,
    },
    /// A file could not be read, or must not be used.
    #[error(transparent)]
    File(#[from] small_file::Error),
    /// A file for TLS has not what it should have.
    #[error("{} has no {what} in PEM format", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The private key belongs to another certificate.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), cert.display())]
    KeyMismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate or the key cannot be used.
    #[error("cannot use the certificate in {} with the key in {}", cert.display(), key.display())]
    Tls {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What the TLS library says.
        source: rustls::Error,
    },
    /// A line of the users' file cannot be used.
    #[error("{} line {line}: {what}", path.display())]
    User {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it and what to do.
        what: &'static str,
    },
    /// The users' file is empty, so that nobody could read.
    #[error("{} names no user; add one with `htpasswd -B {} USER`", path.display(), path.display())]
    NoUser {
        /// The file.
        path: PathBuf,
    },
    /// The token's file holds no token, or something that a client cannot send.
    #[error("{} must hold one token of printable ASCII without spaces", path.display())]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// The kernel gives no random numbers.
    #[error("the system gives no random numbers, which comparing credentials needs")]
    Random,
}
