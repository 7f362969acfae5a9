//! The functions of a JVM whose calls are sampled: what they do, and how likely their stacks are taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nprof_common::Pace;

use super::traced_jvm::Listed;
use super::{TracedJvm, stubs};
use crate::attach::{Engine, fixed_point};
use crate::collect::Reader;
use crate::model::{PlannedMethod, Snapshot, Tier};
use crate::profile::{Flow, Functions, Paces, UNKNOWN};

/// The functions of a JVM, probed ones and those of stubs.
pub(super) struct Sampled {
    traced_jvm: Arc<TracedJvm>,
    engine: Arc<Engine>,
    /// The chances that the records of stubs have, of 2^32: for each call, and for each nanosecond of it; and of how many calls one
    /// is timed.
    chances: BTreeMap<u32, [u64; 3]>,
    /// How likely the stack of a call is taken of a function that has not been called yet, where it is not as usual.
    first_chance: Option<f64>,
}

impl Sampled {
    /// The functions of a JVM that `engine` has programs for.
    pub(super) fn new(traced_jvm: Arc<TracedJvm>, engine: Arc<Engine>) -> Self {
        Self { traced_jvm, engine, chances: BTreeMap::new(), first_chance: None }
    }

    /// The same with this chance of a function that has not been called yet.
    pub(super) fn with_first_chance(self, first_chance: Option<f64>) -> Self {
        Self { first_chance, ..self }
    }
}

impl Functions for Sampled {
    fn first_chance(&self) -> f64 {
        self.first_chance.unwrap_or(UNKNOWN)
    }

    fn flows(&self) -> Vec<Flow> {
        let flow = |reader: &Reader, record, number| Flow {
            record: number,
            calls: reader.begun(record),
            self_ns: reader.self_ns(record),
        };
        let reader = self.traced_jvm.reader();
        let probed = self.traced_jvm.records_of_methods().map(|(_, record)| flow(reader, record, record));
        let listed = self.traced_jvm.listed();
        let of_stub = |stub: &stubs::Listed| {
            let record = stub.about.record;
            Some(flow(self.traced_jvm.stub_records()?.switches.reader(), record, Flow::of_stub(record)))
        };
        probed.chain(listed.stubs.iter().filter_map(of_stub)).collect()
    }

    fn pace(&mut self, paces: &Paces) {
        let mut changed: BTreeMap<u32, u64> = BTreeMap::new();
        for &(number, probability) in &paces.probabilities {
            match Flow::stub(number) {
                Some(record) => drop(changed.insert(record, fixed_point(probability))),
                None => self.engine.set_sample_probability(number, probability),
            }
        }
        let Some(stubs) = self.traced_jvm.stub_records() else { return };
        let period_ns = u64::try_from(paces.period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let per_ns = (Pace::CERTAIN / period_ns).max(1);
        for stub in &self.traced_jvm.listed().stubs {
            let record = stub.about.record;
            // Where one of several calls is timed, the others cannot be chosen.
            let every = u64::from(stubs.switches.every(record).max(1));
            let before = self.chances.get(&record).copied();
            let per_call = changed.remove(&record).or(before.map(|[per_call, ..]| per_call)).unwrap_or_default();
            // Each change is a write for each CPU.
            let chances = [per_call, per_ns, every];
            let is_like_before =
                before.is_some_and(|[call, ns, of]| call == per_call && of == every && ns.abs_diff(per_ns) <= ns / 16);
            if !is_like_before {
                // The period is found by the times of those alone.
                stubs.choices.set(record, per_call.saturating_mul(every), per_ns);
                self.chances.insert(record, chances);
            }
        }
    }
}

/// The rows of a snapshot that records are in, by their numbers as samples have them.
pub(super) fn rows_by_record(traced_jvm: &TracedJvm, snapshot: &Snapshot) -> HashMap<u32, u32> {
    let mut rows: HashMap<u32, u32> = traced_jvm.records().map(|(index, record)| (record, index)).collect();
    rows.extend(rows_of_stubs(&traced_jvm.listed(), snapshot));
    rows
}

/// The rows that the records of stubs are in, by [`Flow::of_stub`]: those that name their method and have calls of stubs.
fn rows_of_stubs(listed: &Listed, snapshot: &Snapshot) -> HashMap<u32, u32> {
    let mut rows: HashMap<[&str; 3], u32> = HashMap::new();
    for row in snapshot.methods.iter().filter(|row| row.tier != Tier::Kernel) {
        rows.extend(row.methods.iter().map(|known| (name_of(known), row.index)));
    }
    let row = |stub: &stubs::Listed| Some((Flow::of_stub(stub.about.record), *rows.get(&name_of(&stub.about.method))?));
    listed.stubs.iter().filter_map(row).collect()
}

fn name_of(known: &PlannedMethod) -> [&str; 3] {
    [&known.method.class, &known.method.name, &known.method.signature]
}
