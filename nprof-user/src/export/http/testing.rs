//! For tests: pages that do as they are told, a running endpoint, and a client that sees each byte.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

/// No test waits longer for anything: a test that hangs is to fail.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pages whose metrics are written by a function.
pub(super) struct Fake {
    metrics: Box<Metrics>,
    sick: Mutex<Option<String>>,
}

type Metrics = dyn Fn(Format, &mut dyn Write) -> io::Result<()> + Send + Sync;

impl Fake {
    pub(super) fn new(metrics: impl Fn(Format) -> Vec<u8> + Send + Sync + 'static) -> Arc<Self> {
        Self::writing(move |format, out| out.write_all(&metrics(format)))
    }

    fn writing(metrics: impl Fn(Format, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { metrics: Box::new(metrics), sick: Mutex::new(None) })
    }

    /// The metrics say the format that was asked for.
    pub(super) fn plain() -> Arc<Self> {
        Self::new(|format| format!("{format:?}\n").into_bytes())
    }

    /// Random metrics, too many for one piece, which cannot be written to their end.
    pub(super) fn breaking() -> Arc<Self> {
        Self::writing(|_, out| {
            let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            (0..400_000).try_for_each(|n| out.write_all(&random(n)))?;
            Err(io::Error::other("broken"))
        })
    }

    /// Metrics of so many bytes, written by and by, and how many were.
    pub(super) fn counting(bytes: usize) -> (Arc<Self>, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let pages = Self::writing(move |_, out| {
            let mut parts = (0..bytes).step_by(1 << 10);
            parts.try_for_each(|_| {
                counter.fetch_add(1 << 10, Ordering::SeqCst);
                out.write_all(&[0; 1 << 10])
            })
        });
        (pages, made)
    }

    pub(super) fn fall_sick(&self, with: &str) {
        *self.sick.lock().unwrap() = Some(with.to_owned());
    }

    fn state(&self) -> Result<(), String> {
        self.sick.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

impl Pages for Fake {
    fn metrics(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        (self.metrics)(format, out)
    }

    fn healthy(&self) -> Result<(), String> {
        self.state()
    }

    fn ready(&self) -> Result<(), String> {
        self.state()
    }

    fn about(&self) -> Vec<(String, String)> {
        vec![("version".to_owned(), "<1>".to_owned())]
    }
}

/// Options for a free port on loopback, with limits that no test reaches unless it means to.
pub(super) fn options(auth: Auth) -> Options {
    let limits = Limits { request_time: PATIENCE, response_time: PATIENCE, idle: PATIENCE, ..Limits::default() };
    Options { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls: None, auth, limits }
}

/// The same with other limits.
pub(super) fn limited(change: impl FnOnce(&mut Limits)) -> Options {
    let mut options = options(Auth::None);
    change(&mut options.limits);
    options
}

/// Writes a file that only its owner may read.
pub(super) fn secret(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A running endpoint.
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) reloader: Reloader,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Endpoint {
    pub(super) async fn start(options: Options, pages: Arc<Fake>) -> Self {
        let server = Server::bind(options).await.unwrap();
        let (address, reloader) = (server.address(), server.reloader());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(pages, async { drop(stopped.await) }));
        Self { address, reloader, stop: Some(stop), task }
    }

    pub(super) async fn connect(&self) -> Client<TcpStream> {
        Client(within(TcpStream::connect(self.address)).await.unwrap())
    }

    /// The answer to one GET on a separate connection.
    pub(super) async fn get(&self, path: &str, headers: &str) -> Reply {
        self.connect().await.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).await
    }

    /// Has the endpoint stop, as a signal would.
    pub(super) fn begin_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has.
    pub(super) async fn ended(self) {
        within(self.task).await.unwrap();
    }
}

/// The client's end of a connection.
pub(super) struct Client<S>(pub(super) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) async fn send(&mut self, bytes: &str) {
        within(self.0.write_all(bytes.as_bytes())).await.unwrap();
        within(self.0.flush()).await.unwrap();
    }

    /// Sends a request and reads the answer, and no byte more.
    pub(super) async fn ask(&mut self, request: &str) -> Reply {
        self.send(request).await;
        let mut reply = self.head().await;
        if request.starts_with("HEAD") {
            return reply;
        }
        if reply.is_chunked() {
            while self.chunk(&mut reply.body).await > 0 {}
        } else {
            reply.body = vec![0; reply.length()];
            within(self.0.read_exact(&mut reply.body)).await.unwrap();
        }
        reply
    }

    /// Reads a chunk (RFC 9112, section 7.1) behind `body`, and gives its length; that of the last is 0.
    async fn chunk(&mut self, body: &mut Vec<u8>) -> usize {
        let length = usize::from_str_radix(self.line().await.trim_end(), 16).unwrap();
        let begin = body.len();
        body.resize(begin + length, 0);
        within(self.0.read_exact(&mut body[begin..])).await.unwrap();
        assert_eq!(self.line().await, "\r\n");
        length
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.push(within(self.0.read_u8()).await.unwrap());
        }
        String::from_utf8(line).unwrap()
    }

    /// Reads an answer as far as its empty line.
    pub(super) async fn head(&mut self) -> Reply {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.0.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head, body: Vec::new() }
    }

    /// Reads until the other end closes, and gives what came.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is cut off with bytes on their way is closed just as well.
        drop(within(self.0.read_to_end(&mut rest)).await);
        rest
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// The value of a header, which must be there once.
    pub(super) fn header(&self, name: &str) -> &str {
        let mut values = self.head.lines().filter_map(|line| line.split_once(": ")).filter(|(n, _)| *n == name);
        let (_, value) = values.next().unwrap_or_else(|| panic!("no {name} in {}", self.head));
        assert!(values.next().is_none(), "{name} twice in {}", self.head);
        value
    }

    /// Whether a header is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.head.lines().filter_map(|line| line.split_once(": ")).any(|(n, _)| n == name)
    }

    /// Whether its length was not known when it was begun.
    pub(super) fn is_chunked(&self) -> bool {
        self.has("transfer-encoding") && self.header("transfer-encoding") == "chunked"
    }

    pub(super) fn length(&self) -> usize {
        self.header("content-length").parse().unwrap()
    }

    pub(super) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

/// What comes of something that must not take for ever.
pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("this takes too long")
}
