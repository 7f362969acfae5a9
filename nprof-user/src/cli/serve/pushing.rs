//! What `nprof serve` pushes, as the configuration wants it.

use std::pin::Pin;
use std::sync::Arc;

use crate::cli::terminal::say;
use crate::config::{Config, PushTo};
use crate::push::{Error, Live, Metrics, OTLP_METRICS, OTLP_PROFILES, Options, PYROSCOPE, Profiles, Source, hand_over};
use crate::service::Shared;

/// The receivers that the configuration names, with their files read.
pub(super) struct Pushing {
    otlp: Option<Live>,
    pyroscope: Option<Live>,
}

/// Something that is pushed until the service ends.
pub(super) type Push = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Pushing {
    /// Reads the files and connects to nothing: a receiver may be away.
    pub(super) fn load(config: &Config) -> Result<Self, Error> {
        let load = |options: Option<Options>| options.as_ref().map(Live::load).transpose();
        let [otlp, pyroscope] = receivers(config);
        Ok(Self { otlp: load(otlp)?, pyroscope: load(pyroscope)? })
    }

    /// Reads the files again. What is wrong leaves all as it was.
    pub(super) fn reload(&self, config: &Config) {
        for (live, options) in [&self.otlp, &self.pyroscope].into_iter().zip(receivers(config)) {
            if let (Some(live), Some(options)) = (live, options)
                && let Err(error) = live.reload(&options)
            {
                say(format_args!("pushes go on as they were: {error}"));
            }
        }
    }

    /// Everything that is pushed, until what `until` gives ends.
    pub(super) fn all<S>(&self, config: &Config, shared: &Arc<Shared>, until: impl Fn() -> S) -> Vec<Push>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let metrics =
            self.metrics(config, shared).map(|(metrics, source)| -> Push { Box::pin(metrics.run(source, until())) });
        let profiles = self.profiles(shared);
        let sinks = profiles.iter().map(Profiles::sink).collect();
        let windows = shared.new_windows().filter(|_| !profiles.is_empty());
        let windows = windows.map(|new| -> Push { Box::pin(hand_over(new, sinks, until())) });
        let profiles = profiles.into_iter().map(|profiles| -> Push { Box::pin(profiles.run(until())) });
        metrics.into_iter().chain(windows).chain(profiles).collect()
    }

    fn metrics(&self, config: &Config, shared: &Arc<Shared>) -> Option<(Metrics, Source)> {
        let interval = config.otlp.as_ref()?.interval;
        let metrics = Metrics::new(self.otlp.as_ref()?, interval, shared.tally(OTLP_METRICS)?);
        Some((metrics, shared.otlp_metrics()))
    }

    /// What pushes profiles: there is a tally of each that is wanted.
    fn profiles(&self, shared: &Shared) -> Vec<Profiles> {
        let otlp = self.otlp.as_ref().zip(shared.tally(OTLP_PROFILES));
        let pyroscope = self.pyroscope.as_ref().zip(shared.tally(PYROSCOPE));
        let otlp = otlp.map(|(live, tally)| Profiles::otlp(live, tally));
        otlp.into_iter().chain(pyroscope.map(|(live, tally)| Profiles::pyroscope(live, tally))).collect()
    }
}

/// How the receivers are set up: by OTLP, and Pyroscope.
fn receivers(config: &Config) -> [Option<Options>; 2] {
    let options = |to: &PushTo, ca_key| {
        let PushTo { endpoint, headers, ca } = to.clone();
        Options { endpoint, headers, ca, ca_key }
    };
    let otlp = config.otlp.as_ref().map(|otlp| options(&otlp.to, "otlp-ca"));
    [otlp, config.pyroscope.as_ref().map(|to| options(to, "pyroscope-ca"))]
}
