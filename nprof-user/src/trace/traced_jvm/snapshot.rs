//! What has been measured until now: a row for each method, and everything that is told beside them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Listed, TracedJvm};
use crate::aggregate;
use crate::attach::JniRead;
use crate::model::{Collectors, MethodSnapshot, Price, Prices, Probe, SlowCalls, Snapshot, States, Traced, Tracing};
use crate::trace::by_record::{OfRecord, Tables};
use crate::trace::jvm_jni::JvmJni;
use crate::trace::programs::JvmPrograms;
use crate::trace::spent::Spent;

impl TracedJvm {
    /// Everything measured from the start to now, or to the end if tracing was stopped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // Before the records: these then have all calls that are known by caller.
        let jni = self.jni.get().map(JvmJni::read);
        let mut snapshot = self.snapshot_with(jni.as_ref());
        // After the records: each call that they say is open has a frame, unless it has ended since.
        self.add_open(&mut snapshot);
        snapshot
    }

    /// The same of native methods alone, whatever is traced beside them.
    pub(in crate::trace) fn snapshot_of_methods(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    /// The same where what the kernel keeps of JNI functions has been read for all JVMs.
    fn snapshot_with(&self, jni: Option<&JniRead>) -> Snapshot {
        let snapshot = self.snapshot_of_all();
        let Some(known) = self.jni.get() else { return snapshot };
        let listed = self.listed();
        let beside = &listed.beside;
        let (functions, methods): (Vec<_>, Vec<_>) =
            snapshot.methods.into_iter().partition(|row| beside.contains(&row.index));
        let records = self.records().map(|(index, record)| (record, index)).collect();
        let states = self.switches.states(|index| beside.contains(&index), |_| None);
        let traced = snapshot.traced.saturating_sub(beside.len());
        let probes = listed.probes.iter().filter(|probe| beside.contains(&probe.index));
        let totals = |read| known.totals(read, (functions, &methods), (records, states), probes);
        let jni = jni.map(|read| Box::new(totals(read)));
        let of_methods = listed.skipped.iter().filter(|skipped| !skipped.method.is_jni_function());
        let skipped = if of_methods.clone().count() == listed.skipped.len() {
            snapshot.skipped
        } else {
            of_methods.cloned().collect()
        };
        Snapshot { methods, traced, jni, skipped, ..snapshot }
    }

    fn snapshot_of_all(&self) -> Snapshot {
        let (listed, end, spent) = {
            let state = self.lock();
            (Arc::clone(&state.listed), state.end, state.spent.clone())
        };
        let elapsed = end.unwrap_or_else(|| self.start.elapsed());
        Snapshot {
            started: self.started,
            methods: self.rows(&listed, spent.as_ref()),
            elapsed,
            jvm: self.jvm.clone(),
            ended: false,
            timed: self.known.timed,
            traced: listed.probes.len() + listed.only_stubbed(),
            states: self.states_of(&listed),
            cost: spent.as_ref().map(|spent| spent.total),
            cpu: spent.as_ref().map(|spent| spent.cpu),
            cost_share: spent.as_ref().map(|spent| spent.share),
            prices: self.prices(spent.as_ref()),
            collectors: self.collectors(spent.as_ref()),
            slow: self.slow_calls(&listed),
            jni: None,
            programs: self.programs().map(JvmPrograms::values).unwrap_or_default(),
            skipped: Arc::clone(&listed.skipped),
            downcalls: listed.downcalls,
            losses: self.reader.losses(),
        }
    }

    /// The same for a scrape, with single calls if it shows these. `jni` is what has been read for all JVMs.
    #[must_use]
    pub fn snapshot_for_scrape(&self, jni: Option<&JniRead>, with_exemplars: bool) -> Snapshot {
        let mut snapshot = self.snapshot_with(jni);
        if let Some((slow, calls)) = self.slow.get().zip(snapshot.slow.as_mut()).filter(|_| with_exemplars) {
            calls.exemplars = slow.show_exemplars();
        }
        snapshot
    }

    /// A function that stubs see is in the least state of its methods.
    pub(super) fn states_of(&self, listed: &Listed) -> States {
        let mut of_functions: HashMap<u32, Traced> = HashMap::new();
        let mut of_methods = Vec::new();
        for stub in listed.stubs.iter().filter(|stub| stub.last.is_none()) {
            let Some(traced) = self.stubs.as_ref().and_then(|stubs| stubs.switches.traced(stub.about.record)) else {
                continue;
            };
            match stub.probe {
                Some(index) => {
                    let least = of_functions.entry(index).or_insert(traced);
                    *least = if traced.tracing < least.tracing { traced } else { *least };
                }
                None => of_methods.push(traced),
            }
        }
        let is_method = |index| !listed.beside.contains(&index);
        let mut states = self.switches.states(is_method, |index| of_functions.get(&index).copied());
        of_methods.into_iter().for_each(|traced| states.add(traced));
        states
    }

    /// What a call of a function costs, with what the user's programs add.
    fn price_of(&self, probe: &Probe, prices: &Prices, traced: Traced) -> Price {
        let (price, site) = (prices.at(probe.site.cost), probe.site.cost);
        // A probe on the return traps twice, as both do.
        let counted_ns = if traced.wanted == Tracing::Returned { price.timed_ns } else { price.counted_ns };
        let price = Price { counted_ns, ..price };
        self.programs().map_or(price, |programs| programs.dearer(price, probe.index, site, traced.wanted))
    }

    /// What is collected: nothing that is not known to the end.
    fn collectors(&self, spent: Option<&Spent>) -> Collectors {
        let all = self.known.collectors;
        if spent.is_some_and(|spent| spent.allocations_end) { all.without_allocations() } else { all }
    }

    /// What calls have cost this JVM, which depends on how often it makes them.
    fn prices(&self, spent: Option<&Spent>) -> Prices {
        self.known.prices.dearer(spent.map_or([1.0; 2], |spent| spent.dearer.sites))
    }

    /// What each function has, and each method that stubs told apart.
    fn rows(&self, listed: &Listed, spent: Option<&Spent>) -> Vec<MethodSnapshot> {
        // Before the records: these then have all calls that are known by thread.
        let mut tables = self.tables.get().map(Tables::read).unwrap_or_default();
        let functions = self.switches.functions();
        let prices = self.prices(spent);
        let mut stubs = self.stub_samples(listed, spent);
        let of_probe = |probe: &Probe| {
            let place = functions.binary_search_by_key(&probe.index, |(index, ..)| *index).ok()?;
            let (_, record, traced) = functions[place];
            let OfRecord { threads, bytes_per_call } = tables.take(record);
            let seen = aggregate::ProbeSample {
                probe,
                library: listed.libraries.get(probe.site.library.0).map_or("", String::as_str),
                price: self.price_of(probe, &prices, traced),
                traced_after: listed.late.get(&probe.index).copied().unwrap_or_default(),
                traced,
                off_cpu: self.measures_off_cpu(),
                stats: self.reader.sample(record).map(|sample| sample.stats),
                unseen: spent.and_then(|spent| spent.unseen_of(probe.index, self.measures_off_cpu())),
                mean: spent.and_then(|spent| spent.means.get(&probe.index).copied()),
                waited: spent.and_then(|spent| spent.waited.get(&probe.index).copied()),
                consumed: self.reader.consumed(record),
                bytes_per_call,
                threads,
            };
            Some(aggregate::rows(Some(&seen), &stubs.remove(&Some(probe.index)).unwrap_or_default()))
        };
        let mut rows: Vec<MethodSnapshot> = listed.probes.iter().filter_map(of_probe).flatten().collect();
        // What is left is of no probe, or not any more.
        rows.extend(stubs.into_values().flat_map(|stubs| aggregate::rows(None, &stubs)));
        rows
    }

    /// What stubs have recorded, by the index of the function.
    fn stub_samples(&self, listed: &Listed, spent: Option<&Spent>) -> HashMap<Option<u32>, Vec<aggregate::StubSample>> {
        let mut samples: HashMap<_, Vec<_>> = HashMap::new();
        let times = spent.map_or(1.0, |spent| spent.dearer.stubs);
        for stub in &listed.stubs {
            let (record, switches) = (stub.about.record, self.stubs.as_ref().map(|stubs| &stubs.switches));
            let now = || switches?.reader().sample(record).map(|sample| sample.stats);
            if let Some(stats) = stub.last.or_else(now) {
                let estimated_ns = switches.and_then(|switches| switches.estimate(record, &stats));
                let traced = switches.and_then(|switches| switches.traced(record)).unwrap_or(stub.about.traced);
                // What was consumed is known as long as the shim is there.
                let consumed = switches.filter(|_| stub.last.is_none()).and_then(|of| of.reader().consumed(record));
                let bytes = |consumed: &_| switches?.reader().bytes_per_call(record, consumed);
                let bytes_per_call = consumed.as_ref().and_then(bytes);
                let about = aggregate::StubSample { consumed, bytes_per_call, ..stub.about.clone() };
                let price = about.price.dearer(times);
                let sample = aggregate::StubSample { stats, estimated_ns, traced, price, ..about };
                samples.entry(stub.probe).or_default().push(sample);
            }
        }
        samples
    }

    fn slow_calls(&self, listed: &Listed) -> Option<SlowCalls> {
        let slow = self.slow.get()?;
        let functions: HashMap<u32, u32> = self.records().map(|(index, record)| (record, index)).collect();
        Some(slow.read(|call| self.method_in(listed, &functions, call)))
    }
}
