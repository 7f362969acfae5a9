//! All JVMs of a host together: those that join while it runs, those that end, and what was measured of each.
//!
//! Maps and programs are shared; each JVM has links of its own. What goes wrong with one JVM ends its tracing and that of
//! no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Error, Options, Prepared, Tracer};
use crate::attach::Engine;
use crate::discover::Proc;
use crate::model::{Jvm, Losses, Pid, Snapshot, StartTime};

/// Functions that can be traced at a time, of all JVMs together. Each takes 1.5 kB a shard.
const CAPACITY: u32 = 16_384;
/// Ended JVMs whose results are kept; of older ones the number is.
const ENDED_KEPT: usize = 256;

/// What names a JVM for good.
type Key = (Pid, StartTime);

/// The JVMs that are traced, and those that were.
#[derive(Debug)]
pub struct Fleet {
    proc: Proc,
    options: Options,
    engine: Arc<Engine>,
    tracers: BTreeMap<Key, Tracer>,
    ended: VecDeque<Snapshot>,
    /// How many ended JVMs are no longer in `ended`.
    forgotten: u64,
}

/// A JVM on its way into a fleet: everything that takes time, to be done wherever it holds up nobody.
#[derive(Debug)]
pub struct Joining {
    proc: Proc,
    options: Options,
    engine: Arc<Engine>,
    jvm: Jvm,
}

impl Joining {
    /// Reads the JVM's native methods, plans, and attaches.
    ///
    /// # Errors
    /// As [`Prepared::new`] and [`Prepared::attach`].
    pub fn attach(self) -> Result<Tracer, Error> {
        Prepared::new(self.proc, self.jvm, self.options)?.attach_to(&self.engine)
    }
}

impl Fleet {
    /// A fleet without JVMs.
    ///
    /// # Errors
    /// If the maps and programs cannot be loaded.
    pub fn new(proc: Proc, options: Options) -> Result<Self, Error> {
        let engine = Engine::load(CAPACITY)?;
        Ok(Self { proc, options, engine, tracers: BTreeMap::new(), ended: VecDeque::new(), forgotten: 0 })
    }

    /// Begins to take in a JVM.
    #[must_use]
    pub fn joining(&self, jvm: Jvm) -> Joining {
        Joining { proc: self.proc.clone(), options: self.options.clone(), engine: Arc::clone(&self.engine), jvm }
    }

    /// Takes in a JVM whose probes are attached. One that was there under the same name has been replaced by it in its
    /// process, whose thread lives on: its records are not given to others.
    pub fn join(&mut self, tracer: Tracer) {
        let jvm = tracer.jvm();
        if let Some(mut replaced) = self.tracers.insert((jvm.pid, jvm.start_time), tracer) {
            replaced.stop();
            self.keep(replaced.snapshot());
        }
    }

    /// Takes out a JVM that has ended, and keeps what was measured.
    pub fn end(&mut self, jvm: &Jvm) {
        let Some(tracer) = self.tracers.remove(&(jvm.pid, jvm.start_time)) else { return };
        self.keep(tracer.end());
    }

    /// Keeps the results of a JVM that has ended, if it has any, at the cost of the oldest.
    fn keep(&mut self, snapshot: Snapshot) {
        if snapshot.methods.is_empty() {
            return;
        }
        self.ended.push_back(Snapshot { ended: true, ..snapshot });
        if self.ended.len() > ENDED_KEPT {
            self.ended.pop_front();
            self.forgotten += 1;
        }
    }

    /// How many JVMs are traced now.
    #[must_use]
    pub fn jvms(&self) -> usize {
        self.tracers.len()
    }

    /// How many methods are traced now.
    #[must_use]
    pub fn methods(&self) -> usize {
        self.tracers.values().map(Tracer::methods).sum()
    }

    /// How many JVMs ended so long ago that their results are no longer kept.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Looks for methods that have been bound since, in every JVM where it is time to.
    pub fn refresh(&mut self) {
        for tracer in self.tracers.values_mut().filter(|tracer| tracer.is_due()) {
            if let Err(error) = tracer.refresh() {
                // It may be ending; its end is noticed elsewhere.
                tracing::debug!("process {}: no look for new methods: {error}", tracer.jvm().pid);
            }
        }
    }

    /// Stops the tracing of all JVMs. The records stay readable.
    pub fn stop(&mut self) {
        self.tracers.values_mut().for_each(Tracer::stop);
    }

    /// Everything measured, of each JVM, ended ones first. The kernel counts losses for all together: they stand in the
    /// first snapshot, and those of the others are zero.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let mut snapshots: Vec<Snapshot> = self.ended.iter().cloned().collect();
        snapshots.extend(self.tracers.values().map(Tracer::snapshot));
        let all = self.tracers.values().next().map(Tracer::losses);
        let all = all.or_else(|| self.ended.back().map(|snapshot| snapshot.losses.clone())).unwrap_or_default();
        for (place, snapshot) in snapshots.iter_mut().enumerate() {
            snapshot.losses = if place == 0 { all.clone() } else { none(&all) };
        }
        snapshots
    }
}

/// The same reasons, none of which has happened.
fn none(losses: &Losses) -> Losses {
    Losses { counts: losses.counts.iter().map(|(reason, _)| (*reason, 0)).collect() }
}
