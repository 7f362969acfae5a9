//! Pushes profiles, one for each window of a JVM: by OTLP, or to Pyroscope.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::answer;
use super::backoff::part_of;
use super::body::Bodies;
use super::courier::{Channel, Courier, Ended};
use super::news::Subject;
use super::outbox::Outbox;
use super::pyroscope;
use super::receiver::Live;
use super::tally::Tally;
use crate::aggregate::{Detail, weigh_all};
use crate::model::{JvmLabels, Profile, Weight};
use crate::render::profile::pprof;

/// What the pushes at the end may take, all of them.
const LAST: Duration = Duration::from_secs(1);
/// How long one push may take, with its further attempts.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait before a receiver that is away is tried again: as much to twice as much.
const PAUSE: Duration = Duration::from_secs(15);

const SUBJECT: Subject = Subject {
    what: "profiles",
    items: "profiles",
    loss: "nprof goes on trying and keeps the latest ones, up to 16 MiB",
};
const OTLP: Channel =
    Channel { path: "/v1development/profiles", dialect: answer::OTLP_PROFILES, subject: SUBJECT, is_kept: true };
const PYROSCOPE: Channel = Channel { path: pyroscope::PATH, dialect: answer::CONNECT, subject: SUBJECT, is_kept: true };

/// How a window is written.
type Encode = fn(&Profile, &JvmLabels) -> Bodies;

/// Pushes profiles.
#[derive(Debug)]
pub struct Profiles {
    pub(super) courier: Courier,
    outbox: Outbox,
    encode: Encode,
    pub(super) pause: Duration,
}

/// What hands over profiles, from any thread.
#[derive(Debug, Clone)]
pub struct ProfileSink {
    outbox: Outbox,
    encode: Encode,
}

impl ProfileSink {
    /// Has the profile of a window of a JVM with these labels pushed. Encodes it, which takes its time, and waits for no receiver.
    pub fn push(&self, window: &Profile, labels: &JvmLabels) {
        self.outbox.add((self.encode)(window, labels));
    }
}

impl Profiles {
    /// Pushes by OTLP. The specification of profiles is in development, and receivers follow it at their own pace.
    #[must_use]
    pub fn otlp(receiver: &Live, tally: Arc<Tally>) -> Self {
        Self::new(receiver, OTLP, encode_otlp, tally)
    }

    /// Pushes to Pyroscope.
    #[must_use]
    pub fn pyroscope(receiver: &Live, tally: Arc<Tally>) -> Self {
        Self::new(receiver, PYROSCOPE, encode_pyroscope, tally)
    }

    fn new(receiver: &Live, channel: Channel, encode: Encode, tally: Arc<Tally>) -> Self {
        let outbox = Outbox::new(Arc::clone(&tally));
        Self { courier: Courier::new(receiver.subscribe(), channel, tally), outbox, encode, pause: PAUSE }
    }

    /// What profiles are handed to.
    #[must_use]
    pub fn sink(&self) -> ProfileSink {
        ProfileSink { outbox: self.outbox.clone(), encode: self.encode }
    }

    /// Pushes until `stop` ends, and then what still waits, for at most a second.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let outbox = self.outbox.clone();
        let mut pushing = pin!(self.push_for_ever());
        tokio::select! {
            never = &mut pushing => match never {},
            () = stop => {}
        }
        // A push that is under way goes on: sent anew, a window would be there twice.
        tokio::select! {
            never = &mut pushing => match never {},
            () = outbox.emptied() => {}
            () = sleep(LAST) => {}
        }
        let given_up = outbox.give_up();
        if given_up > 0 {
            tracing::warn!("nprof ends, and {given_up} profiles that could not be pushed are lost");
        }
    }

    async fn push_for_ever(&mut self) -> Infallible {
        loop {
            let (number, bodies) = self.outbox.oldest().await;
            match self.courier.deliver(&bodies, Instant::now() + PATIENCE).await {
                Ended::Finally => self.outbox.remove(number),
                Ended::ForNow => sleep((self.pause + part_of(self.pause)).max(self.courier.pause())).await,
            }
        }
    }
}

fn encode_otlp(window: &Profile, labels: &JvmLabels) -> Bodies {
    let mut bodies = Bodies::default();
    // Every recording has its time.
    if let Ok(columns) = weigh_all(window, Weight::Time, Detail::default()) {
        bodies.push(&pprof::otlp(&window.about, labels, &columns), 1);
    }
    bodies
}

fn encode_pyroscope(window: &Profile, labels: &JvmLabels) -> Bodies {
    let mut bodies = Bodies::default();
    let mut file = Vec::new();
    if let Ok(columns) = weigh_all(window, Weight::Time, Detail::default())
        && pprof::write(&window.about, &columns, &mut file).is_ok()
    {
        bodies.push(&pyroscope::request(&window.about, labels, file), 1);
    }
    bodies
}
