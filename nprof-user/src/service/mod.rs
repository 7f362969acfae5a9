//! `nprof serve` without its sockets: all JVMs of the host are traced, and whoever asks gets an answer.
//!
//! [`Service`] runs the [`Host`] and keeps what is known of its JVMs in [`Shared`], behind one lock. Scrapes work on that on
//! other threads, commands on this one. They read the traced JVMs and mapped memory, and wait for each other, never for a JVM.
//! With `--profiles` each JVM also has a thread that reads its stacks ([`Profiles`]).

mod controlled;
mod ended_labels;
mod pages;
mod pushed;
mod shared;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_blocking;

pub use shared::Shared;

use crate::attach::{Collect, Engine, Feeds};
use crate::config::Config;
use crate::discover::Proc;
use crate::export::Limits;
use crate::govern::Budget;
use crate::sys::allocator;
use crate::trace::{Error, Event, Host, Options, Profiles, SlowListener, SlowWatch, Start, TierWanted, VMS, calibrate};

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
    pub async fn open(proc: Proc, config: &Config, slow_log: Option<Arc<dyn SlowListener>>) -> Result<Self, Error> {
        let functions = u32::try_from(config.max_total).unwrap_or(u32::MAX);
        let (engine, feeds) = load(functions, config, proc.may_share_links())?;
        let (measured, own) = (Arc::clone(&engine), proc.clone());
        let calibrated = spawn_blocking(move || calibrate(&own, &measured)).await;
        let calibrated = calibrated.unwrap_or_else(|panic| Err(Error::Defect { what: panic.to_string() }))?;
        // What probes cost is known by now: no stack was taken meanwhile.
        let (profiles, slow) = match config.profile_window {
            Some(window) => {
                let profiles = Profiles::start(proc.clone(), Arc::clone(&engine), feeds, window)?;
                let slow = config.slow.as_ref().map(|_| profiles.with_slow()).transpose()?;
                (Some(profiles), slow)
            }
            None => (None, config.slow.as_ref().map(|_| SlowWatch::start(proc.clone(), &engine, feeds)).transpose()?),
        };
        let slow = slow.zip(slow_log).map(|(slow, log)| slow.heard_by(log));
        let jni = engine.jni().map(Arc::clone);
        let host = Host::open(proc.clone(), start(config), engine, calibrated)?.with_slow(slow);
        let shared = Shared::new(proc, config, (calibrated, profiles, jni), &host);
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
        allocator::give_back();
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
            spawn_blocking(allocator::give_back);
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

/// Maps and programs for what the configuration wants to be collected.
fn load(functions: u32, config: &Config, shares: bool) -> Result<(Arc<Engine>, Feeds), Error> {
    let stacks = config.profile_window.map_or(Collect::nothing(), |_window| Profiles::collect());
    let stacks = if config.slow.is_some() { SlowWatch::collect_with(stacks) } else { stacks };
    let Collect { off_cpu, counters, rows, at_exit, .. } = start(config).options.collected_of_many();
    let jni = config.jni_for.is_some();
    let vms = if jni { VMS } else { stacks.vms };
    let collect = Collect { off_cpu, counters, rows, shares, at_exit, jni, vms, ..stacks };
    Ok(Engine::load_measuring(functions, &collect)?)
}

/// What a configuration means for the host.
fn start(config: &Config) -> Start {
    let options = Options {
        timed: config.timed,
        rules: config.rules.clone(),
        slow: config.slow.clone(),
        off_cpu: config.off_cpu,
        collectors: config.collectors,
        max_functions: config.max_functions,
        budget: config.max_overhead.map(Budget::always),
        // A JVM that was started with the shim has been told to have stubs.
        tier: TierWanted::Auto,
        ..Options::by_probes(config.selection.clone())
    };
    let (jvms, stubs_for, jni_for) = (config.jvms.clone(), config.stubs_for.clone(), config.jni_for.clone());
    Start { options, jvms, stubs_for, jni_for }
}

/// What a configuration means for the exporter.
fn limits(config: &Config) -> Limits {
    Limits { series_per_jvm: config.max_series, keep_ended: config.keep_ended, with_signature: config.with_signature }
}
