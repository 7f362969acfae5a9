//! Pushes metrics at an interval, by OTLP over HTTP.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::answer;
use super::backoff::part_of;
use super::body::Bodies;
use super::courier::{Channel, Courier};
use super::news::Subject;
use super::receiver::Live;
use super::tally::Tally;

/// What the push at the end may take, all of it.
const LAST: Duration = Duration::from_secs(1);

const CHANNEL: Channel = Channel {
    path: "/v1/metrics",
    dialect: answer::OTLP_METRICS,
    subject: Subject {
        what: "metrics",
        items: "points",
        loss: "nprof goes on trying. Counters are cumulative: the next push that arrives has every count",
    },
    is_kept: false,
};

/// Makes the bodies of one push: requests of OTLP metrics. Called on threads that may block.
pub type Source = Arc<dyn Fn() -> Bodies + Send + Sync>;

/// Pushes metrics at an interval.
#[derive(Debug)]
pub struct Metrics {
    pub(super) courier: Courier,
    interval: Duration,
}

impl Metrics {
    /// Pushes to what `receiver` is at each time.
    #[must_use]
    pub fn new(receiver: &Live, interval: Duration, tally: Arc<Tally>) -> Self {
        Self { courier: Courier::new(receiver.subscribe(), CHANNEL, tally), interval }
    }

    /// Pushes until `stop` ends, and then once more: what has happened since the last time. That may take a second.
    pub async fn run(mut self, source: Source, stop: impl Future<Output = ()>) {
        {
            let mut stop = std::pin::pin!(stop);
            tokio::select! {
                never = self.push_for_ever(&source) => match never {},
                () = &mut stop => {}
            }
        }
        let last = self.push(&source, Instant::now() + LAST);
        if timeout(LAST, last).await.is_err() {
            tracing::warn!("the last push of metrics did not end within {} s", LAST.as_secs());
        }
    }

    async fn push_for_ever(&mut self, source: &Source) -> std::convert::Infallible {
        // Hosts that start together do not push together.
        let mut ticks = interval_at(Instant::now() + part_of(self.interval), self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = ticks.tick().await;
            self.push(source, due + self.interval).await;
        }
    }

    async fn push(&mut self, source: &Source, deadline: Instant) {
        let source = Arc::clone(source);
        match spawn_blocking(move || source()).await {
            Ok(bodies) => drop(self.courier.deliver(&bodies, deadline).await),
            Err(panic) => self.courier.not_made(panic.to_string()),
        }
    }
}
