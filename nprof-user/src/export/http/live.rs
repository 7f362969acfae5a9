//! What may change while the endpoint runs: certificate, credentials and limits, always as a whole.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::auth::Gate;
use super::{Error, Limits, Options, tls};

/// Options whose files have been read and found good.
pub(super) struct Live {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) gate: Gate,
    pub(super) limits: Limits,
}

impl Live {
    /// Reads and checks everything that `options` name.
    pub(super) fn load(options: &Options) -> Result<Self, Error> {
        check(&options.limits)?;
        let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
        Ok(Self { tls, gate: Gate::load(&options.auth)?, limits: options.limits.clone() })
    }
}

/// Gives a running endpoint new options.
#[derive(Clone)]
pub struct Reloader {
    listen: SocketAddr,
    live: watch::Sender<Arc<Live>>,
}

impl Reloader {
    pub(super) fn new(listen: SocketAddr, live: watch::Sender<Arc<Live>>) -> Self {
        Self { listen, live }
    }

    /// Reads the files again and uses them from now on: the certificate and the limits for new connections, the
    /// credentials for new requests, so that one that was withdrawn ends with the reload. Reads files, so it may block
    /// for a moment.
    ///
    /// # Errors
    ///
    /// Something is wrong with `options` or their files, or they want another address. Then all stays as it was.
    pub fn reload(&self, options: Options) -> Result<(), Error> {
        if options.listen != self.listen {
            return Err(Error::ListenChanged { from: self.listen, to: options.listen });
        }
        self.live.send_replace(Arc::new(Live::load(&options)?));
        Ok(())
    }
}

impl fmt::Debug for Reloader {
    /// Leaves out what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("listen", &self.listen).finish_non_exhaustive()
    }
}

fn check(limits: &Limits) -> Result<(), Error> {
    let Limits { connections, peer_connections, header_bytes, request_time, response_time, idle } = limits;
    for (what, value, least) in [
        ("connections", *connections as u128, 1),
        ("connections of a peer", *peer_connections as u128, 1),
        // Less does not hold what a usual scraper sends.
        ("bytes of headers", *header_bytes as u128, 1024),
        ("milliseconds for a request", request_time.as_millis(), 1),
        ("milliseconds for a response", response_time.as_millis(), 1),
        ("milliseconds between requests", idle.as_millis(), 1),
    ] {
        if value < least {
            return Err(Error::Limit { what, value, least });
        }
    }
    Ok(())
}
