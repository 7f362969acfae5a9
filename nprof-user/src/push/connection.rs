//! A connection to a receiver: made, used for the requests of one push, and closed.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::error::Failure;
use super::receiver::Receiver;

/// The longest answer that is read. The longest that a receiver has reason to give is a sentence about what it refused.
const ANSWER_BYTES: usize = 64 << 10;

/// An open connection.
pub(super) struct Connection {
    requests: SendRequest<Full<bytes::Bytes>>,
    /// What moves its bytes; ends with it.
    _driver: JoinSet<()>,
}

/// An answer, read as far as that makes sense.
pub(super) struct Answer {
    pub(super) head: hyper::http::response::Parts,
    /// `None` if it is too long.
    pub(super) body: Option<bytes::Bytes>,
}

impl Connection {
    /// The connection that was kept, or another one where the receiver has closed it.
    pub(super) async fn reopen(kept: Option<Self>, receiver: &Receiver) -> Result<Self, Failure> {
        if let Some(mut kept) = kept
            && kept.requests.ready().await.is_ok()
        {
            return Ok(kept);
        }
        Self::open(receiver).await
    }

    /// Connects, and speaks TLS where the endpoint does.
    async fn open(receiver: &Receiver) -> Result<Self, Failure> {
        let tcp = TcpStream::connect((receiver.host.as_str(), receiver.port)).await.map_err(Failure::Unreachable)?;
        match &receiver.tls {
            Some((tls, name)) => Self::over(tls.connect(name.clone(), tcp).await.map_err(Failure::Unreachable)?).await,
            None => Self::over(tcp).await,
        }
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, Failure> {
        let (requests, connection) = handshake(TokioIo::new(stream)).await.map_err(Failure::Broken)?;
        let mut driver = JoinSet::new();
        // How it ends is told to whoever waits for an answer.
        driver.spawn(async move { drop(connection.await) });
        Ok(Self { requests, _driver: driver })
    }

    /// Sends a request and reads the answer.
    pub(super) async fn send(&mut self, request: Request<Full<bytes::Bytes>>) -> Result<Answer, Failure> {
        let answer = self.requests.send_request(request).await.map_err(Failure::Broken)?;
        Ok(read(answer).await)
    }
}

async fn read(answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await.ok().map(|body| body.to_bytes());
    Answer { head, body }
}
