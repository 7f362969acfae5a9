//! The time limits of one connection.
//!
//! A connection waits for a request (`idle`), takes in its headers (`request_time`), makes the answer (limited where
//! it is made) and sends it (`response_time`). hyper has one timer for the first two together, which would either cut
//! off scrapers that keep a connection or be generous to clients that send a byte a minute, and none for the last. So
//! [`Watched`] sees the bytes come and go, and [`Clock::expired`] ends when the phase at hand has lasted too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Limits;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has sent an answer and waits for the next request. What of that came together with the request before is not
    /// seen here, so the next byte begins the phase of the headers.
    Idle,
    /// It shakes hands and takes in the headers of a request.
    Request,
    /// The answer is made.
    Work,
    /// The answer is sent, and perhaps made meanwhile.
    Send,
    /// Nothing is left of the answer but what is on its way. It has what time is left of the phase before.
    Flush,
}

/// The phase of a connection and when it must be over. Clones are the same clock.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    limits: Arc<Limits>,
    now: watch::Sender<(Phase, Option<Instant>)>,
}

impl Clock {
    /// A clock that begins with the first request.
    pub(super) fn start(limits: &Limits) -> Self {
        let clock = Self { limits: Arc::new(limits.clone()), now: watch::Sender::new((Phase::Request, None)) };
        clock.enter(Phase::Request);
        clock
    }

    /// Begins a phase.
    pub(super) fn enter(&self, phase: Phase) {
        // A limit beyond what a clock can show is none.
        let end = self.limit(phase).and_then(|limit| Instant::now().checked_add(limit));
        self.now.send_replace((phase, end));
    }

    /// Begins a phase if the clock is in the one that comes before.
    fn step(&self, from: Phase, to: Phase) {
        if self.now.borrow().0 == from {
            self.enter(to);
        }
    }

    /// What a body holds until there is no more of it.
    pub(super) fn sending(&self) -> Sending {
        Sending(self.clone())
    }

    fn limit(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Idle => Some(self.limits.idle),
            Phase::Request => Some(self.limits.request_time),
            Phase::Work => None,
            Phase::Send | Phase::Flush => Some(self.limits.response_time),
        }
    }

    /// Ends when a phase has lasted too long, and tells which.
    pub(super) async fn expired(&self) -> Phase {
        let mut news = self.now.subscribe();
        loop {
            let (phase, end) = *news.borrow_and_update();
            let over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // There always is a sender: this clock's own.
                _ = news.changed() => {}
                () = over => return phase,
            }
        }
    }
}

/// Tells a clock, when it is dropped, that the last of an answer was handed over.
#[derive(Debug)]
pub(super) struct Sending(Clock);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.now.send_if_modified(|(phase, _end)| {
            let is_sent = *phase == Phase::Send;
            if is_sent {
                *phase = Phase::Flush;
            }
            is_sent
        });
    }
}

/// A stream that tells a clock when a request begins to come and when an answer has been sent.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    clock: Clock,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, clock: Clock) -> Self {
        Self { stream, clock }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.clock.step(Phase::Idle, Phase::Request);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it has. That is all of an answer once it has dropped the body.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.clock.step(Phase::Flush, Phase::Idle);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{advance, pause};

    use super::*;

    fn limits() -> Limits {
        let seconds = Duration::from_secs;
        Limits { request_time: seconds(10), response_time: seconds(30), idle: seconds(150), ..Limits::default() }
    }

    async fn is_over(expired: Pin<&mut impl Future<Output = Phase>>) -> Option<Phase> {
        tokio::select! { biased; phase = expired => Some(phase), () = async {} => None }
    }

    /// Check that each phase lasts as long as its limit says, and that making an answer has none.
    #[tokio::test]
    async fn phases_have_their_limits() {
        pause();
        for (phase, seconds) in [(Phase::Request, 10), (Phase::Send, 30), (Phase::Idle, 150)] {
            let clock = Clock::start(&limits());
            let mut expired = Box::pin(clock.expired());
            clock.enter(Phase::Work);
            assert_eq!(is_over(expired.as_mut()).await, None);
            advance(Duration::from_secs(3600)).await;
            assert_eq!(is_over(expired.as_mut()).await, None, "work has no limit here");
            clock.enter(phase);
            advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(is_over(expired.as_mut()).await, None, "{phase:?}");
            advance(Duration::from_secs(2)).await;
            assert_eq!(is_over(expired.as_mut()).await, Some(phase));
        }
    }

    /// Check that a limit that no clock can show is none.
    #[tokio::test]
    async fn endless_limit_is_no_limit() {
        let clock = Clock::start(&Limits { request_time: Duration::MAX, ..limits() });
        assert_eq!(is_over(Box::pin(clock.expired()).as_mut()).await, None);
    }

    /// Check that the first byte begins a request once, however many follow, and that an answer ends with the flush after the
    /// last of it, for which it gets no more time.
    #[tokio::test]
    async fn bytes_move_the_clock() {
        pause();
        let (mut client, server) = duplex(64);
        let clock = Clock::start(&limits());
        let mut stream = Watched::new(server, clock.clone());
        let phase = || *clock.now.borrow();
        clock.enter(Phase::Idle);
        client.write_all(b"ab").await.unwrap();
        stream.read_u8().await.unwrap();
        let begun = phase();
        assert_eq!(begun.0, Phase::Request);
        advance(Duration::from_secs(5)).await;
        stream.read_u8().await.unwrap();
        assert_eq!(phase(), begun, "a second byte does not put off the end");
        stream.flush().await.unwrap();
        assert_eq!(phase(), begun, "nothing was to be sent");
        let sending = clock.sending();
        clock.enter(Phase::Send);
        let sent = phase();
        stream.flush().await.unwrap();
        assert_eq!(phase(), sent, "more of it comes");
        advance(Duration::from_secs(5)).await;
        drop(sending);
        assert_eq!(phase(), (Phase::Flush, sent.1));
        stream.flush().await.unwrap();
        assert_eq!(phase().0, Phase::Idle);
    }
}
