//! What is pushed: the same exposition that a scrape gets, as OTLP.

use std::sync::Arc;

use jiff::Timestamp;

use super::Shared;
use crate::export::Origin;
use crate::push::{Bodies, Source, Tally};

impl Shared {
    /// What makes the bodies of a push of metrics. It waits for scrapes, as they do for each other, and nothing else waits for it.
    #[must_use]
    pub fn otlp_metrics(self: &Arc<Self>) -> Source {
        let (shared, origin) = (Arc::clone(self), Origin::here());
        Arc::new(move || {
            let exposition = shared.collect(false);
            let mut bodies = Bodies::default();
            exposition.otlp(&origin, Timestamp::now(), |request, points| bodies.push(request, points));
            bodies
        })
    }

    /// Where the outcomes of pushes to a target are counted, if something is pushed there.
    #[must_use]
    pub fn tally(&self, target: &str) -> Option<Arc<Tally>> {
        self.tallies().iter().find(|tally| tally.read().target == target).map(Arc::clone)
    }
}
