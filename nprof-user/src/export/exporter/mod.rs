//! From snapshots to series that Prometheus can rely on: none twice, none that goes backwards, not too many.
//!
//! JVMs with the same labels are a [`Group`], and have their series in common. What an ended JVM has done stays in the
//! group's counters. A group without a living JVM stays for a set time, and is then forgotten as a whole.

mod assignments;
mod group;
mod jni;
#[cfg(test)]
mod jni_tests;
#[cfg(test)]
pub(super) mod samples;
mod series;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk_tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use self::group::Group;
use super::exposition::{Collected, Exposition};
use super::families::Id;
use super::input::{Host, Limits, Measured};
use super::labels::Labels;
use super::process::Usage;
use super::series::Value;
use crate::model::{JvmLabels, ProfilesStatus, PushOutcome, Pushes, Snapshot};

/// How many groups without a living JVM are kept at most; those that ended first go first.
const MAX_ENDED_GROUPS: usize = 256;

/// Keeps what must be remembered from one scrape to the next.
#[derive(Debug)]
pub struct Exporter {
    limits: Limits,
    groups: BTreeMap<Arc<JvmLabels>, Group>,
}

impl Exporter {
    /// An exporter that has seen nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, groups: BTreeMap::new() }
    }

    /// Other limits from now on. Methods that share a series stay there also under a higher limit, because their
    /// shared counter must not fall. If the signature comes or goes, all series start over ([`Exporter::relabel`]).
    pub fn set_limits(&mut self, limits: Limits) {
        if limits.with_signature != self.limits.with_signature {
            self.relabel();
        }
        self.limits = limits;
    }

    /// Takes the last numbers of a JVM that has ended at `now`, or is no longer traced. To be called exactly once per
    /// JVM, which must not be among the living from then on: it would be counted twice.
    pub fn retire(&mut self, measured: Measured, now: Instant) {
        let group = group_of(&mut self.groups, &measured.labels);
        group.retire(&measured.snapshot, &self.limits, now);
        self.bound();
    }

    /// Lets all series start over, under the labels that the next scrape brings: with the full numbers of the living
    /// JVMs, and without those that have ended.
    pub fn relabel(&mut self) {
        self.groups.clear();
    }

    /// The series of one scrape: of the living JVMs, of those that have ended lately, and of nprof itself.
    pub fn collect(&mut self, living: &[Measured], host: &Host, now: Instant) -> Exposition {
        self.collect_with(living, host, &Usage::read(), now)
    }

    /// The same, where a JVM is measured when its series are added up, and that is forgotten then: of all together it would be as
    /// much memory as the series.
    pub fn measure<J>(
        &mut self,
        living: &[(Arc<JvmLabels>, J)],
        measure: impl Fn(&J) -> Snapshot,
        host: &Host,
        now: Instant,
    ) -> Exposition {
        self.add_up(living, measure, now);
        self.show(host, &Usage::read(), now)
    }

    fn collect_with(&mut self, living: &[Measured], host: &Host, usage: &Usage, now: Instant) -> Exposition {
        let living: Vec<_> = living.iter().map(|measured| (Arc::clone(&measured.labels), &measured.snapshot)).collect();
        self.add_up(&living, |snapshot| *snapshot, now);
        self.show(host, usage, now)
    }

    /// Adds up what the living JVMs have done, those with the same labels at a time.
    fn add_up<J, S: Borrow<Snapshot>>(
        &mut self,
        living: &[(Arc<JvmLabels>, J)],
        measure: impl Fn(&J) -> S,
        now: Instant,
    ) {
        let mut jvms: BTreeMap<&JvmLabels, Vec<&J>> = BTreeMap::new();
        for (labels, jvm) in living {
            group_of(&mut self.groups, labels);
            jvms.entry(labels).or_default().push(jvm);
        }
        for (labels, group) in &mut self.groups {
            let measured =
                jvms.get(labels.as_ref()).map(Vec::as_slice).unwrap_or_default().iter().copied().map(&measure);
            let measured: Vec<S> = measured.collect();
            let snapshots: Vec<&Snapshot> = measured.iter().map(Borrow::borrow).collect();
            group.update(&snapshots, &self.limits, now);
        }
    }

    /// All series, once those of the living JVMs have been added up.
    fn show(&mut self, host: &Host, usage: &Usage, now: Instant) -> Exposition {
        let mut out = Collected::new(began(host, usage));
        self.expire(now);
        self.bound();
        for group in self.groups.values() {
            group.show(&mut out);
        }
        self.show_host(host, &mut out);
        usage.show(&mut out);
        out.finish()
    }

    /// Drops the groups that have been without a JVM for too long. Only when all living JVMs are known: others may not
    /// have been seen yet.
    fn expire(&mut self, now: Instant) {
        let keep = self.limits.keep_ended;
        self.groups.retain(|_, group| group.ended().is_none_or(|at| now.saturating_duration_since(at) < keep));
    }

    /// Drops the oldest of the groups without a JVM where there are too many.
    fn bound(&mut self) {
        let ended = self.groups.iter().filter_map(|(labels, group)| Some((group.ended()?, Arc::clone(labels))));
        let mut ended: Vec<(Instant, Arc<JvmLabels>)> = ended.collect();
        let excess = ended.len().saturating_sub(MAX_ENDED_GROUPS);
        ended.sort_unstable();
        for (_, labels) in &ended[..excess] {
            self.groups.remove(labels);
        }
    }

    fn show_host(&self, host: &Host, out: &mut Collected) {
        let none = Labels::of_host([]);
        for (reason, n) in &host.losses.counts {
            out.push(Id::Losses, &Labels::of_host([("reason", reason)]), Value::Whole(*n));
        }
        for (family, n) in [
            (Id::Jvms, as_u64(host.jvms)),
            (Id::UntracedJvms, as_u64(host.untraced_jvms)),
            (Id::JoiningJvms, as_u64(host.joining_jvms)),
            (Id::JoinsGivenUp, host.joins_given_up),
            (Id::ReadsGivenUp, host.reads_given_up),
            (Id::StuckReads, as_u64(host.stuck_reads)),
            (Id::Probes, as_u64(host.probes)),
            (Id::Demotions, host.demotions),
            (Id::Promotions, host.promotions),
            (Id::SeriesLimit, as_u64(self.limits.series_per_jvm)),
        ] {
            out.push(family, &none, Value::Whole(n));
        }
        for pushes in &host.pushes {
            show_pushes(pushes, out);
        }
        if let Some(profiles) = &host.profiles {
            show_profiles(profiles, out);
        }
        if let Some(budget) = host.overhead_budget {
            out.push(Id::OverheadBudget, &none, Value::Share(budget));
        }
        if let Some(ns) = host.probe_cost_ns {
            out.push(Id::ProbeCost, &none, Value::Nanoseconds(ns));
        }
        let started = u64::try_from(host.started.as_nanosecond()).unwrap_or(0);
        out.push(Id::StartTime, &none, Value::Nanoseconds(started));
        let version = Labels::of_host([("version", env!("CARGO_PKG_VERSION"))]);
        out.push(Id::BuildInfo, &version, Value::Whole(1));
    }
}

fn show_pushes(pushes: &Pushes, out: &mut Collected) {
    let target = Labels::of_host([("target", pushes.target)]);
    for (outcome, n) in PushOutcome::ALL.iter().zip(pushes.outcomes) {
        out.push(Id::Pushes, &target.and("outcome", outcome.as_str()), Value::Whole(n));
    }
    out.push(Id::PushRetries, &target, Value::Whole(pushes.retries));
    out.push(Id::PushRejectedItems, &target, Value::Whole(pushes.rejected));
}

/// Since when the counters of nprof itself count: its CPU time from the start of its process on.
fn began(host: &Host, usage: &Usage) -> Timestamp {
    let process = usage.started_ns.and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok());
    process.map_or(host.started, |process| process.min(host.started))
}

fn show_profiles(profiles: &ProfilesStatus, out: &mut Collected) {
    let none = Labels::of_host([]);
    for (family, n) in [
        (Id::ProfileWindows, profiles.windows),
        (Id::ProfileMemory, profiles.bytes),
        (Id::ProfileWindowsDropped, profiles.dropped),
    ] {
        out.push(family, &none, Value::Whole(n));
    }
    for (state, n) in [
        ("taken", profiles.stacks),
        ("over-pace", profiles.over_pace),
        ("no-room", profiles.no_room),
        ("unread", profiles.unread),
    ] {
        out.push(Id::ProfileStacks, &Labels::of_host([("state", state)]), Value::Whole(n));
    }
}

/// The group of these labels, a new one if need be.
fn group_of<'a>(groups: &'a mut BTreeMap<Arc<JvmLabels>, Group>, labels: &Arc<JvmLabels>) -> &'a mut Group {
    groups.entry(Arc::clone(labels)).or_insert_with(|| Group::new(Arc::clone(labels)))
}

/// A number of things that fit in memory.
fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
