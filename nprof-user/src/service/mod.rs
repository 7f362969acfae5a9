//! `nprof serve` without its sockets: all JVMs of the host are traced, and whoever asks gets an answer.
//!
//! [`Service`] runs the [`Host`] and keeps what is known of its JVMs in [`Shared`], behind one lock. Scrapes work on that on
//! other threads, commands on this one. They read the traced JVMs and mapped memory, and wait for each other, never for a JVM.

mod controlled;
mod pages;
mod shared;

use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_blocking;

pub use shared::Shared;

use crate::attach::Engine;
use crate::config::Config;
use crate::discover::Proc;
use crate::export::Limits;
use crate::trace::{Error, Event, Host, Options, Start, TierWanted, calibrate};

/// The JVMs of a host, as they are to be served.
#[derive(Debug)]
pub struct Service {
    host: Host,
    shared: Arc<Shared>,
}

impl Service {
    /// Loads maps and programs, measures what a probe costs, and begins to listen for JVMs. To be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// If maps and programs cannot be loaded.
    pub async fn open(proc: Proc, config: &Config) -> Result<Self, Error> {
        let engine = Engine::load(u32::try_from(config.max_total).unwrap_or(u32::MAX))?;
        let (measured, own) = (Arc::clone(&engine), proc.clone());
        let calibrated = spawn_blocking(move || calibrate(&own, &measured)).await;
        let calibrated = calibrated.unwrap_or_else(|panic| Err(Error::Defect { what: panic.to_string() }))?;
        let host = Host::open(proc.clone(), start(config), engine, calibrated)?;
        let shared = Shared::new(proc, config, calibrated, &host);
        Ok(Self { host, shared: Arc::new(shared) })
    }

    /// What scrapes and commands work on.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes in the JVMs that run now.
    pub async fn join_all(&mut self) {
        for event in self.host.join_all().await {
            self.take_in(event).await;
        }
        self.shared.is_ready();
    }

    /// Waits until something happens, and does what there is to do. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// If the kernel's news of programs that start cannot be waited for.
    pub async fn next(&mut self) -> Result<(), Error> {
        let event = self.host.next().await?;
        self.shared.is_alive();
        if let Some(event) = event {
            self.take_in(event).await;
        }
        Ok(())
    }

    /// Takes another configuration. No count is lost.
    pub fn reload(&mut self, config: &Config) {
        self.shared.reload(config);
        self.host.restart(start(config));
    }

    /// Stops the tracing of all JVMs.
    pub async fn stop(&mut self) {
        self.host.stop().await;
    }

    async fn take_in(&self, event: Event) {
        match event {
            Event::Joined(traced_jvm) => self.shared.joined(traced_jvm),
            // A scrape may be reading it: not on this thread, which everybody waits for.
            Event::Ended(traced_jvm, snapshot) => {
                let shared = Arc::clone(&self.shared);
                let retired = spawn_blocking(move || shared.ended(&traced_jvm, *snapshot, Instant::now())).await;
                if let Err(panic) = retired {
                    tracing::error!("the results of a JVM that has ended are lost: {panic}");
                }
            }
            Event::Untraced(jvm, error) => self.shared.untraced(*jvm, &error),
        }
    }
}

/// What a configuration means for the host.
fn start(config: &Config) -> Start {
    let options = Options {
        timed: config.timed,
        max_functions: config.max_functions,
        budget: config.max_overhead,
        // A JVM that was started with the shim has been told to have stubs.
        tier: TierWanted::Auto,
        ..Options::by_probes(config.selection.clone())
    };
    Start { options, jvms: config.jvms.clone(), stubs_for: config.stubs_for.clone() }
}

/// What a configuration means for the exporter.
fn limits(config: &Config) -> Limits {
    Limits { series_per_jvm: config.max_series, keep_ended: config.keep_ended, with_signature: config.with_signature }
}
