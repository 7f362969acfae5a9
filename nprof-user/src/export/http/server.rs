//! Listens, takes connections and ends cleanly.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clock::{Clock, Phase, Watched};
use super::live::Live;
use super::respond::Responder;
use super::slots::{ConnectionSlots, Slot};
use super::{Auth, Error, Limits, Options, Pages, Reloader};

/// How long requests that are being answered may take when the endpoint ends.
const GRACE: Duration = Duration::from_secs(3);
/// How long no connection is taken after one could not be, usually for want of descriptors: so that neither the CPU
/// nor the log is kept busy by trying again.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// hyper takes no buffer that is smaller, in bytes.
const LEAST_BUFFER: usize = 8 << 10;

/// The endpoint, which listens but does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    listen: SocketAddr,
    live: watch::Sender<Arc<Live>>,
}

impl Server {
    /// Reads and checks all files, then listens. From here on clients can connect; they are answered when the server
    /// runs. Needs a runtime of tokio with I/O and time.
    ///
    /// # Errors
    ///
    /// What [`super::check`] finds, or the address cannot be had.
    pub async fn bind(options: Options) -> Result<Self, Error> {
        let live = watch::Sender::new(Arc::new(Live::load(&options)?));
        let listen = options.listen;
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let in_the_clear = options.tls.is_none() && !matches!(options.auth, Auth::None);
        if in_the_clear && !address.ip().is_loopback() {
            tracing::warn!("without TLS, credentials for {address} can be read on their way; give a certificate");
        }
        Ok(Self { listener, address, listen, live })
    }

    /// Where it listens: the port is known even if a free one was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What gives it new options while it runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.listen, self.live.clone())
    }

    /// Answers requests until `stop` ends. Then no connection is taken any more, idle ones are closed, and requests
    /// that are being answered have three seconds.
    pub async fn run(self, pages: Arc<dyn Pages>, stop: impl Future<Output = ()>) {
        let Self { listener, live, .. } = self;
        let mut connections = Connections::new(Arc::new(Responder::new(pages, live.subscribe())));
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => connections.take(stream, peer, Arc::clone(&live.borrow())),
                    Err(error) => {
                        tracing::warn!("cannot take a connection: {error}");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        connections.end().await;
    }
}

impl fmt::Debug for Server {
    /// Leaves out what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// All connections of an endpoint.
struct Connections {
    tasks: JoinSet<()>,
    slots: ConnectionSlots,
    responder: Arc<Responder>,
    stopping: watch::Sender<bool>,
}

impl Connections {
    fn new(responder: Arc<Responder>) -> Self {
        Self {
            tasks: JoinSet::new(),
            slots: ConnectionSlots::default(),
            responder,
            stopping: watch::Sender::new(false),
        }
    }

    /// Serves a new connection.
    fn take(&mut self, stream: TcpStream, peer: SocketAddr, live: Arc<Live>) {
        // Those that have ended. A panic in one was its own end only, and its message has been printed.
        while self.tasks.try_join_next().is_some() {}
        let slot = self.slots.take(peer.ip(), &live.limits);
        if slot.is_over_limit() {
            tracing::debug!(
                "{peer}: there are as many connections as nprof takes, this one gets the health pages alone"
            );
        }
        let connection = Connection { peer, slot, live, responder: Arc::clone(&self.responder) };
        self.tasks.spawn(connection.serve(stream, self.stopping.subscribe()));
    }

    /// Waits for all to end; those that take too long are cut off.
    async fn end(mut self) {
        self.stopping.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(GRACE, all).await.is_err() {
            tracing::debug!("{} connections are cut off", self.tasks.len());
            self.tasks.shutdown().await;
        }
    }
}

/// A connection that has been taken.
struct Connection {
    peer: SocketAddr,
    slot: Arc<Slot>,
    live: Arc<Live>,
    responder: Arc<Responder>,
}

impl Connection {
    /// Answers its requests until the client closes it, a limit is reached or the endpoint ends.
    async fn serve(self, stream: TcpStream, stopping: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{}: {error}", self.peer);
        }
        let clock = Clock::start(&self.live.limits);
        tokio::select! {
            () = self.shake_hands(stream, &clock, stopping) => {}
            phase = clock.expired() => tracing::debug!("{}: closed, {}", self.peer, too_long(phase)),
            () = self.slot.left() => tracing::debug!("{}: closed, there is no place for it", self.peer),
        }
    }

    /// Begins TLS, if that is set.
    async fn shake_hands(&self, stream: TcpStream, clock: &Clock, stopping: watch::Receiver<bool>) {
        match &self.live.tls {
            None => self.talk(stream, clock, stopping).await,
            Some(acceptor) => match acceptor.accept(stream).await {
                Ok(stream) => self.talk(stream, clock, stopping).await,
                Err(error) => tracing::debug!("{}: no TLS: {error}", self.peer),
            },
        }
    }

    /// Speaks HTTP.
    async fn talk<S>(&self, stream: S, clock: &Clock, mut stopping: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(async |request| {
            clock.enter(Phase::Work);
            let answer = self.responder.answer(&request, self.peer, &self.slot).await;
            clock.enter(Phase::Send);
            Ok::<_, Infallible>(answer.map(|body| body.timed(clock.sending())))
        });
        let stream = TokioIo::new(Watched::new(stream, clock.clone()));
        let mut connection = pin!(protocol(&self.live.limits).serve_connection(stream, service));
        let stop = async { drop(stopping.wait_for(|stopping| *stopping).await) };
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("{}: {error}", self.peer);
        }
    }
}

/// HTTP/1.1 and 1.0 within the limits. The times are watched by a [`Clock`].
fn protocol(limits: &Limits) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .header_read_timeout(None)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(LEAST_BUFFER))
        // Bodies are written from where they are, not copied into one buffer with the headers.
        .writev(true);
    protocol
}

fn too_long(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "no request came",
        Phase::Request => "the request was not complete in time",
        Phase::Work => "the answer was not ready in time",
        Phase::Send | Phase::Flush => "the answer was not taken in time",
    }
}
