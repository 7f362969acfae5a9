//! Takes bodies to a receiver: tries again where that makes sense, counts, and says what has to be said.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{self, Dialect, Refusal, Rejected};
use super::backoff::Backoff;
use super::body::Bodies;
use super::connection::Connection;
use super::error::Failure;
use super::news::{News, Subject};
use super::receiver::Receiver;
use super::tally::Tally;
use crate::model::PushOutcome;

/// One attempt: connecting, TLS, sending and the answer.
const ATTEMPT: Duration = Duration::from_secs(10);

/// What is pushed, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel {
    /// Below the endpoint.
    pub(super) path: &'static str,
    pub(super) dialect: Dialect,
    pub(super) subject: Subject,
    /// Whether what cannot be taken there now is kept by whoever pushes it, and so has not failed.
    pub(super) is_kept: bool,
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was taken or refused, or nothing is kept.
    Finally,
    /// It may be taken later.
    ForNow,
}

/// Takes bodies to a receiver.
#[derive(Debug)]
pub(super) struct Courier {
    receiver: watch::Receiver<Arc<Receiver>>,
    channel: Channel,
    tally: Arc<Tally>,
    news: News,
    /// Until when the receiver has asked to be left alone.
    not_before: Option<Instant>,
    pub(super) first_pause: Duration,
}

impl Courier {
    pub(super) fn new(receiver: watch::Receiver<Arc<Receiver>>, channel: Channel, tally: Arc<Tally>) -> Self {
        let news = News::new(channel.subject);
        Self { receiver, channel, tally, news, not_before: None, first_pause: Backoff::FIRST }
    }

    /// How long it makes no sense to try again, if the receiver has asked for a pause.
    pub(super) fn pause(&self) -> Duration {
        self.not_before.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Takes the bodies of one push there, and gives up at the deadline. While pushes fail, each has one attempt.
    pub(super) async fn deliver(&mut self, bodies: &Bodies, deadline: Instant) -> Ended {
        if !self.pause().is_zero() {
            return self.deferred();
        }
        let receiver = Arc::clone(&self.receiver.borrow());
        let (rejected, failed) = self.deliver_each(&receiver, bodies, deadline).await;
        self.tally.rejected(rejected.items + bodies.left_out);
        say(self.news.left_out(bodies.left_out, std::time::Instant::now()));
        match failed {
            Some(failure) => return self.failed(&receiver, &failure),
            None => self.delivered(&receiver, &rejected, bodies.left_out),
        }
        Ended::Finally
    }

    /// What was rejected of all bodies, and why the first one failed that did.
    async fn deliver_each(
        &mut self,
        receiver: &Receiver,
        bodies: &Bodies,
        deadline: Instant,
    ) -> (Rejected, Option<Failure>) {
        let (mut rejected, mut failed) = (Rejected::default(), None);
        let mut connection = None;
        for body in &bodies.gzipped {
            match self.deliver_one(receiver, &mut connection, body, deadline).await {
                Ok(more) if more.items > 0 => rejected = Rejected { items: rejected.items + more.items, ..more },
                Ok(_) => {}
                Err(failure) => {
                    let goes_on = failure.is_of_body();
                    failed.get_or_insert(failure);
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        (rejected, failed)
    }

    /// What to push could not be made.
    pub(super) fn not_made(&mut self, why: String) {
        let receiver = Arc::clone(&self.receiver.borrow());
        self.failed(&receiver, &Failure::Defect(why));
    }

    async fn deliver_one(
        &mut self,
        receiver: &Receiver,
        connection: &mut Option<Connection>,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Rejected, Failure> {
        let mut backoff = Backoff::new(self.first_pause);
        loop {
            let Refusal { failure, pause } = match self.attempt(receiver, connection, body, deadline).await {
                Ok(rejected) => {
                    self.not_before = None;
                    return Ok(rejected);
                }
                Err(refusal) => refusal,
            };
            self.not_before = pause.map(|pause| Instant::now() + pause);
            let pause = backoff.next().max(pause.unwrap_or_default());
            if self.news.is_trouble() || !failure.is_passing() || Instant::now() + pause >= deadline {
                return Err(failure);
            }
            tracing::debug!("a push to {receiver} is tried again in {pause:?}: {failure}");
            sleep(pause).await;
            self.tally.tried_again();
        }
    }

    async fn attempt(
        &self,
        receiver: &Receiver,
        connection: &mut Option<Connection>,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Rejected, Refusal> {
        let limit = ATTEMPT.min(deadline.saturating_duration_since(Instant::now()));
        match timeout(limit, self.exchange(receiver, connection, body)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Refusal { failure: Failure::Silent(limit), pause: None }),
        }
    }

    async fn exchange(
        &self,
        receiver: &Receiver,
        connection: &mut Option<Connection>,
        body: &Bytes,
    ) -> Result<Rejected, Refusal> {
        let unasked = |failure| Refusal { failure, pause: None };
        let mut open = Connection::reopen(connection.take(), receiver).await.map_err(unasked)?;
        let Channel { path, dialect, .. } = self.channel;
        let answer = open.send(receiver.request(path, dialect.content_type, body)).await.map_err(unasked)?;
        *connection = Some(open);
        answer::read(&answer, dialect, Timestamp::now())
    }

    fn deferred(&self) -> Ended {
        if self.channel.is_kept {
            return Ended::ForNow;
        }
        self.tally.ended(PushOutcome::Deferred);
        Ended::Finally
    }

    fn failed(&mut self, receiver: &Receiver, failure: &Failure) -> Ended {
        say(self.news.failed(receiver.endpoint(), failure, std::time::Instant::now()));
        if self.channel.is_kept && failure.is_passing() {
            return Ended::ForNow;
        }
        self.tally.ended(PushOutcome::Failed);
        Ended::Finally
    }

    fn delivered(&mut self, receiver: &Receiver, rejected: &Rejected, left_out: u64) {
        let is_whole = rejected.items == 0 && left_out == 0;
        self.tally.ended(if is_whole { PushOutcome::Delivered } else { PushOutcome::Partial });
        say(self.news.delivered(receiver.endpoint(), rejected, std::time::Instant::now()));
    }
}

/// News are there for whoever must know: not for `-v` alone, good ones included.
fn say(news: impl IntoIterator<Item = String>) {
    for line in news {
        tracing::warn!("{line}");
    }
}
