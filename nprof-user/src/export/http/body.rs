//! The bodies of answers: of one piece, or made while they are sent.
//!
//! Who makes a body writes to [`Pieces`] on a thread that may block, and does block while the client has [`AHEAD`] pieces to
//! take. When the client has gone, writing fails. So however long a body is and however slowly it is read, a few hundred
//! kilobytes of it are in memory.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

use super::clock::Sending;

/// Bytes of a piece.
pub(super) const PIECE: usize = 64 << 10;
/// Pieces that may wait for the client.
pub(super) const AHEAD: usize = 8;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    /// Tells the clock of the connection, when the body is dropped, that no more of it comes.
    _sending: Option<Sending>,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    /// The first piece, until it is taken, and those that follow.
    Pieces(Bytes, mpsc::Receiver<Piece>),
    /// It is not known how long it would be, and none of it is wanted.
    Unknown,
}

/// A part of a body that is made while it is sent.
#[derive(Debug)]
enum Piece {
    More(Bytes),
    Last(Bytes),
}

/// The end before the last piece: what makes the body has failed.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be made to its end")]
pub(super) struct Broken;

impl Body {
    /// A body that is there.
    pub(super) fn whole(body: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(body.into()), _sending: None }
    }

    /// The body of an answer that has none, where it would have one of unknown length.
    pub(super) fn left_out() -> Self {
        Self { content: Content::Unknown, _sending: None }
    }

    /// The body that is written by `make`, which runs on another thread, as soon as there is some of it. Fails if `make` ends
    /// before.
    pub(super) async fn made(make: impl FnOnce(Pieces)) -> Result<Self, Broken> {
        let (sender, mut pieces) = mpsc::channel(AHEAD);
        make(Pieces { sender, piece: Vec::new() });
        let content = match pieces.recv().await.ok_or(Broken)? {
            Piece::Last(whole) => Content::Whole(whole),
            Piece::More(first) => Content::Pieces(first, pieces),
        };
        Ok(Self { content, _sending: None })
    }

    /// The same, and when it is dropped, the clock knows.
    pub(super) fn timed(self, sending: Sending) -> Self {
        Self { _sending: Some(sending), ..self }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let next = match &mut self.content {
            Content::Unknown => Bytes::new(),
            Content::Whole(all) => std::mem::take(all),
            Content::Pieces(first, _) if !first.is_empty() => std::mem::take(first),
            Content::Pieces(_, rest) => match ready!(rest.poll_recv(cx)) {
                Some(Piece::More(piece)) => piece,
                Some(Piece::Last(piece)) => {
                    self.content = Content::Whole(Bytes::new());
                    piece
                }
                None => return Poll::Ready(Some(Err(Broken))),
            },
        };
        Poll::Ready((!next.is_empty()).then(|| Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(rest) if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Content::Pieces(..) | Content::Unknown => SizeHint::default(),
        }
    }
}

/// Where a body is written to that is sent meanwhile. It has arrived when [`Self::end`] was called.
#[derive(Debug)]
pub(super) struct Pieces {
    sender: mpsc::Sender<Piece>,
    piece: Vec<u8>,
}

impl Pieces {
    /// All has been written.
    pub(super) fn end(self) -> io::Result<()> {
        self.sender.blocking_send(Piece::Last(self.piece.into())).or(Err(gone()))
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only where more follows: so a body of one piece is known to be.
        if self.piece.len() == PIECE {
            let full = std::mem::take(&mut self.piece);
            self.sender.blocking_send(Piece::More(full.into())).or(Err(gone()))?;
        }
        if self.piece.capacity() == 0 {
            self.piece.reserve_exact(PIECE);
        }
        let part = &bytes[..bytes.len().min(PIECE - self.piece.len())];
        self.piece.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a writer is told whose body nobody takes any more.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;
    use tokio::sync::oneshot;
    use tokio::task::spawn_blocking;

    use super::*;

    async fn made(make: impl FnOnce(&mut Pieces) -> bool + Send + 'static) -> Result<Body, Broken> {
        let thread = |mut pieces: Pieces| {
            drop(spawn_blocking(move || {
                if make(&mut pieces) {
                    pieces.end().unwrap()
                }
            }));
        };
        Body::made(thread).await
    }

    /// Check that a body of any length comes whole, and that its length is known if it is of one piece.
    #[tokio::test]
    async fn comes_whole() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 40 * PIECE + 7] {
            let expected: Vec<u8> = (0_u32..).map(|n| n.to_le_bytes()[0]).take(length).collect();
            let bytes = expected.clone();
            let body = made(move |pieces| pieces.write_all(&bytes).is_ok()).await.unwrap();
            assert_eq!(body.size_hint().exact(), (length <= PIECE).then_some(length as u64), "{length}");
            assert!(body.collect().await.unwrap().to_bytes() == expected, "{length}");
        }
    }

    /// Check that one that was not ended does not look whole: before its first piece it is none, later it ends with an error.
    #[tokio::test]
    async fn broken_is_not_whole() {
        assert!(made(|_| false).await.is_err());
        let body = made(|pieces| pieces.write_all(&[0; 5 * PIECE]).is_err()).await.unwrap();
        assert!(body.collect().await.is_err());
    }

    /// Check that a body that is not read is made a few pieces far, and not on when it is given up.
    #[tokio::test]
    async fn maker_waits_for_the_reader() {
        let begun = Arc::new(AtomicUsize::new(0));
        let (counter, (ended, end)) = (Arc::clone(&begun), oneshot::channel());
        let body = made(move |pieces| {
            let mut writes = std::iter::repeat_with(|| {
                counter.fetch_add(1, Ordering::SeqCst);
                pieces.write_all(&[0; PIECE])
            });
            assert!(writes.any(|written| written.is_err()));
            ended.send(()).is_err()
        });
        let body = body.await.unwrap();
        // The first is taken, others wait, one is full and waits for their place, and one is to be written.
        let most = 1 + AHEAD + 2;
        while begun.load(Ordering::SeqCst) < most {
            tokio::task::yield_now().await;
        }
        drop(body);
        end.await.unwrap();
        assert_eq!(begun.load(Ordering::SeqCst), most);
    }
}
