//! The HTTP endpoint: what is asked of it goes to [`Pages`], and the answer goes back.
//!
//! | path | what | credentials |
//! | --- | --- | --- |
//! | `/metrics` | the scrape, in the format that the client prefers | if set |
//! | `/` | a short page that links the others | if set |
//! | `/-/healthy`, `/-/ready` | `ok`, or 503 and one line | never |
//!
//! The health pages are open because those who ask (systemd, a kubelet, a load balancer) usually have no credentials,
//! and because the one line tells nothing of a target.
//!
//! A client is not trusted: connections, header sizes and times are limited ([`Limits`]), bodies of requests are not
//! read, and nothing that blocks runs on the threads of the event loop. A panic in a page is that request's 500.
//!
//! A scrape is compressed as its client asks, and sent while it is written: there is never a whole one in memory.

mod auth;
mod body;
mod clock;
mod coding;
mod error;
mod live;
mod page;
mod respond;
mod server;
mod slots;
mod tls;
mod users;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use error::Error;
pub use live::Reloader;
pub use server::Server;

use self::live::Live;
use super::Format;

/// Where the content comes from. All functions are called on threads that may block, perhaps on several at a time.
pub trait Pages: Send + Sync + 'static {
    /// Writes the body of a scrape. `out` takes it as fast as its client does, so no lock may be held meanwhile. At most four
    /// are made at a time; a fifth request waits for one of them.
    ///
    /// # Errors
    ///
    /// What `out` says: usually that the client has gone.
    fn metrics(&self, format: Format, out: &mut dyn Write) -> io::Result<()>;
    /// Whether nprof works.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line. Everybody may read it.
    fn healthy(&self) -> Result<(), String>;
    /// Whether nprof measures already.
    ///
    /// # Errors
    ///
    /// What is missing, in one line. Everybody may read it.
    fn ready(&self) -> Result<(), String>;
    /// Rows of name and value for the short page at `/`.
    fn about(&self) -> Vec<(String, String)>;
}

/// How the endpoint is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The certificate and its key. Without them the endpoint speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Who may read.
    pub auth: Auth,
    /// What a client may take.
    pub limits: Limits,
}

/// The files for TLS, both PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by those that it is signed with.
    pub cert: PathBuf,
    /// The private key of the certificate. Others than owner and group must not be able to read the file.
    pub key: PathBuf,
}

/// Who may read `/metrics` and `/`. Others than owner and group must not be able to read the files.
#[derive(Debug, Clone)]
pub enum Auth {
    /// Everybody.
    None,
    /// Users with a password, from lines `user:hash`, where hash is of bcrypt, as `htpasswd -B` makes it.
    Basic(PathBuf),
    /// Whoever has the token that is in the file. White space around it does not count.
    Bearer(PathBuf),
}

/// What a client may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. For one more the oldest is given up from which no request was admitted; where there is none
    /// such, one more gets the health pages, and 503 for all else.
    /// Of each body at most 576 KiB wait for the client; the rest is made as it takes them.
    pub connections: usize,
    /// The same for the connections from one address.
    pub peer_connections: usize,
    /// Size of a request line with its headers, in bytes. Beyond it the answer is 431.
    pub header_bytes: usize,
    /// From connecting, or from the first byte of a later request, to the end of the headers, the TLS handshake
    /// included.
    pub request_time: Duration,
    /// From the headers of a request to the answer, else 503, and from there until the client has taken all of it.
    pub response_time: Duration,
    /// How long a connection may wait for its next request.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            peer_connections: 16,
            header_bytes: 16 << 10,
            request_time: Duration::from_secs(10),
            response_time: Duration::from_secs(30),
            // Longer than the usual scrape intervals, so that a scraper keeps its connection.
            idle: Duration::from_secs(150),
        }
    }
}

/// Checks whether an endpoint could be set up like this, as far as that can be told without listening: limits make
/// sense, files can be read and are well-formed, and the key is the certificate's.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(options: &Options) -> Result<(), Error> {
    Live::load(options).map(drop)
}
