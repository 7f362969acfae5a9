//! Which rows the records of both tiers make.
//!
//! A probe sees a function, whatever method was called; a stub sees one method. Where all methods of a function go by one
//! name, both are one row. Where they do not, what the probe saw is a row of the function, and what stubs saw is a row
//! for each name. Each call was counted by one tier, so rows never overlap.

use std::time::Duration;

use nprof_common::{Consumed, MethodStats, ThreadCalls};

use super::method::{About, Recorded, method, sum};
use super::per_call;
use crate::model::{BytesPerCall, MeanTime, MethodSnapshot, PlannedMethod, Price, Probe, StubPrice, Traced, Unseen};

/// What a stub has recorded of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct StubSample {
    /// The number of its record among those of stubs.
    pub record: u32,
    /// The method.
    pub method: PlannedMethod,
    /// Whether probes have ever seen its calls, or may have.
    pub was_probed: bool,
    /// The file name of its library; empty if it is in none.
    pub library: String,
    /// When it got its stub, from the start of the measurement on; zero for the first ones.
    pub traced_after: Duration,
    /// What is done at its calls.
    pub traced: Traced,
    /// The record.
    pub stats: MethodStats,
    /// The time of the calls that were only counted, in nanoseconds, if it is estimated.
    pub estimated_ns: Option<u64>,
    /// What its stub costs.
    pub price: StubPrice,
    /// Whether it is measured how long threads do not run.
    pub off_cpu: bool,
    /// Whether it is known which calls are nested in which.
    pub nested: bool,
    /// What its calls have consumed besides time, where that is collected.
    pub consumed: Option<Consumed>,
    /// How many bytes each of them moved, where that is collected.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
}

impl StubSample {
    fn bytes(&self) -> per_call::Recorded<'_> {
        per_call::Recorded { consumed: self.consumed.as_ref(), bytes: self.bytes_per_call.as_deref() }
    }

    /// A number for it that no function has.
    #[must_use]
    pub fn id(&self) -> u32 {
        id_of(self.record)
    }
}

/// A number for a method with a stub that no function has, by its record.
#[must_use]
pub fn id_of(record: u32) -> u32 {
    u32::MAX - record
}

/// The record of the method with this number.
#[must_use]
pub fn record_of(id: u32) -> u32 {
    u32::MAX - id
}

/// What is known of the function of a probe, and what the probe has recorded.
#[derive(Debug, Clone)]
pub struct ProbeSample<'a> {
    /// The function.
    pub probe: &'a Probe,
    /// The file name of its library.
    pub library: &'a str,
    /// What the probes of one call cost.
    pub price: Price,
    /// When its probe was attached, from the start of the measurement on; zero for the first ones.
    pub traced_after: Duration,
    /// What is done at its calls.
    pub traced: Traced,
    /// Whether it is measured how long threads do not run.
    pub off_cpu: bool,
    /// The record; `None` if nothing is in it.
    pub stats: Option<MethodStats>,
    /// What is estimated of the time in which nobody watched.
    pub unseen: Option<Unseen>,
    /// How long the calls took that were only counted, as far as is known.
    pub mean: Option<MeanTime>,
    /// In which share of the time that is estimated threads did not run, as far as is known.
    pub waited: Option<f64>,
    /// What its calls have consumed besides time, where that is collected.
    pub consumed: Option<Consumed>,
    /// How many bytes each of them moved, where that is collected.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
    /// Its calls by thread, where these are told apart.
    pub threads: Option<Vec<(u32, ThreadCalls)>>,
}

/// The rows of a function and of those of its methods that have stubs. Without a function: of methods that only stubs see.
#[must_use]
pub fn rows(seen: Option<&ProbeSample<'_>>, stubs: &[StubSample]) -> Vec<MethodSnapshot> {
    let mut groups = by_name(stubs);
    let Some(seen) = seen else { return groups.iter().map(stub_row).collect() };
    let own = only_name(seen.probe).and_then(|name| groups.iter().position(|stub| is_same_name(&stub.method, name)));
    let of_function = match own.map(|place| groups.remove(place)) {
        Some(stub) => Some(merged(seen, &stub)),
        None if seen.stats.is_none() && seen.unseen.is_none() => None,
        None => {
            let stats = seen.stats.unwrap_or(MethodStats::ZERO);
            Some(method(Recorded::Kernel(&stats), function(seen, stubs)))
        }
    };
    of_function.into_iter().chain(groups.iter().map(stub_row)).collect()
}

/// A method of a function all of whose methods go by the same name.
fn only_name(probe: &Probe) -> Option<&PlannedMethod> {
    let first = probe.methods.first()?;
    probe.methods.iter().all(|known| is_same_name(known, first)).then_some(first)
}

/// The stubs of methods of the same name as one: a class may have been loaded again, or by several loaders.
fn by_name(stubs: &[StubSample]) -> Vec<StubSample> {
    let mut groups: Vec<StubSample> = Vec::new();
    for stub in stubs {
        match groups.iter_mut().find(|known| is_same_name(&known.method, &stub.method)) {
            Some(known) => {
                known.stats = sum(&known.stats, &stub.stats);
                known.estimated_ns = sum_of_known(known.estimated_ns, stub.estimated_ns);
                known.traced_after = known.traced_after.min(stub.traced_after);
                known.bytes_per_call = per_call::sum(known.bytes(), stub.bytes());
                known.consumed = known.consumed.zip(stub.consumed).map(|(one, other)| one.and(&other));
            }
            None => groups.push(stub.clone()),
        }
    }
    groups
}

/// The time of the calls that a stub only counted, without what it put into those that tell it: a nanosecond of each stays.
fn net_estimate(stub: &StubSample) -> Option<u64> {
    let [inside_ns, _] = stub.price.inside(stub.stats.counted);
    stub.estimated_ns.map(|ns| ns.saturating_sub(inside_ns).max(stub.stats.counted.min(ns)))
}

fn sum_of_known(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.map_or(other, |one| Some(one.saturating_add(other.unwrap_or(0))))
}

fn is_same_name(one: &PlannedMethod, other: &PlannedMethod) -> bool {
    let (one, other) = (&one.method, &other.method);
    (&one.class, &one.name, &one.signature) == (&other.class, &other.name, &other.signature)
}

fn stub_row(stub: &StubSample) -> MethodSnapshot {
    let about = About {
        index: stub.id(),
        methods: vec![stub.method.clone()],
        library: stub.library.clone(),
        cost: None,
        price: Price::default(),
        stub_price: stub.price,
        traced_after: stub.traced_after,
        traced: stub.traced,
        off_cpu: stub.off_cpu,
        nested: stub.nested,
        estimated_ns: net_estimate(stub),
        estimated_error_ns: None,
        unseen: None,
        waited: waited(stub),
        consumed: stub.consumed.map(Box::new),
        bytes_per_call: stub.bytes_per_call.clone(),
        threads: None,
    };
    method(Recorded::Stub(&stub.stats), about)
}

/// Which share of their time calls of a stub waited. Those that are only counted are taken to wait as those that are timed do.
fn waited(stub: &StubSample) -> Option<f64> {
    stub.off_cpu.then(|| stub.stats.off_ns as f64 / stub.stats.total_ns.max(1) as f64)
}

/// What the function's only name has, by its probe and by its stub.
fn merged(seen: &ProbeSample<'_>, stub: &StubSample) -> MethodSnapshot {
    let recorded = match &seen.stats {
        Some(kernel) => Recorded::Both(kernel, &stub.stats),
        None => Recorded::Stub(&stub.stats),
    };
    let traced_after = seen.traced_after.min(stub.traced_after);
    let about = function(seen, &[]);
    let estimated_ns = sum_of_known(net_estimate(stub), about.estimated_ns);
    let off_cpu = stub.off_cpu && (about.off_cpu || seen.stats.is_none());
    let consumed = match seen.stats {
        Some(_) => seen.consumed.zip(stub.consumed).map(|(one, other)| one.and(&other)),
        None => stub.consumed,
    };
    let of_probe = per_call::Recorded { consumed: seen.consumed.as_ref(), bytes: seen.bytes_per_call.as_deref() };
    let bytes_per_call = match seen.stats {
        Some(_) => per_call::sum(of_probe, stub.bytes()),
        None => stub.bytes_per_call.clone(),
    };
    let (nested, consumed) = (stub.nested, consumed.map(Box::new));
    let (stub_price, traced, waited) = (stub.price, stub.traced, about.waited.or_else(|| waited(stub)));
    let about = About { traced_after, traced, estimated_ns, stub_price, off_cpu, nested, waited, ..about };
    method(recorded, About { consumed, bytes_per_call, ..about })
}

/// The row of a function, under the names of those methods whose calls its probe may have seen.
fn function(seen: &ProbeSample<'_>, stubs: &[StubSample]) -> About {
    let probe = seen.probe;
    let is_only_stubbed =
        |known: &&PlannedMethod| stubs.iter().any(|stub| !stub.was_probed && stub.method.method.id == known.method.id);
    let mut methods: Vec<PlannedMethod> =
        probe.methods.iter().filter(|known| !is_only_stubbed(known)).cloned().collect();
    if methods.is_empty() {
        methods.clone_from(&probe.methods);
    }
    let counted = seen.stats.map_or(0, |stats| stats.counted);
    let mean = seen.mean.filter(|_| counted > 0);
    About {
        index: probe.index,
        methods,
        library: seen.library.to_owned(),
        cost: Some(probe.site.cost),
        price: seen.price,
        stub_price: StubPrice::default(),
        traced_after: seen.traced_after,
        traced: seen.traced,
        off_cpu: seen.off_cpu,
        nested: true,
        estimated_ns: mean.map(|mean| times(mean.ns, counted)),
        estimated_error_ns: mean.map(|mean| times(mean.error_ns, counted)),
        unseen: seen.unseen,
        waited: seen.waited,
        consumed: seen.consumed.map(Box::new),
        bytes_per_call: seen.bytes_per_call.clone(),
        threads: seen.threads.clone(),
    }
}

/// A mean, so many times.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn times(mean_ns: f64, calls: u64) -> u64 {
    (mean_ns.max(0.0) * calls as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::*;
    use crate::model::{
        Bound, FileOffset, Histogram, LibraryId, Method, NativeCode, ProbeCost, Site, Tier, Tracing, VirtAddr,
    };

    fn planned(id: u64, name: &str) -> PlannedMethod {
        let (class, name, signature) = ("a.A".into(), name.into(), "()V".into());
        PlannedMethod {
            method: Method { id: VirtAddr(id), class, name, signature, code: NativeCode::Unbound },
            bound: Bound::Export,
        }
    }

    fn probe(names: &[&str]) -> Probe {
        let offset = FileOffset(0x40);
        let site = Site { library: LibraryId(0), offset, entry: offset, cost: ProbeCost::Emulated };
        Probe { index: 7, site, methods: (1..).zip(names).map(|(id, name)| planned(id, name)).collect() }
    }

    fn counted(counted: u64) -> MethodStats {
        MethodStats { counted, ..MethodStats::ZERO }
    }

    fn seen(probe: &Probe, calls: u64) -> ProbeSample<'_> {
        let (traced_after, traced) = (Duration::ZERO, Traced::as_wanted(Tracing::Timed));
        let (price, stats) = (Price::default(), (calls > 0).then(|| counted(calls)));
        ProbeSample {
            probe,
            library: "liba.so",
            price,
            traced_after,
            traced,
            off_cpu: false,
            stats,
            unseen: None,
            mean: None,
            waited: None,
            consumed: None,
            bytes_per_call: None,
            threads: None,
        }
    }

    fn stub(record: u32, id: u64, name: &str, calls: u64, was_probed: bool) -> StubSample {
        StubSample {
            record,
            method: planned(id, name),
            was_probed,
            library: "liba.so".to_owned(),
            traced_after: Duration::from_secs(u64::from(record)),
            traced: Traced::as_wanted(Tracing::Timed),
            stats: counted(calls),
            estimated_ns: None,
            price: StubPrice { passed_ns: 2.0, ..StubPrice::default() },
            off_cpu: false,
            nested: false,
            consumed: None,
            bytes_per_call: None,
        }
    }

    /// What identifies the rows: tier, first name, number of names, calls.
    fn shown(rows: &[MethodSnapshot]) -> Vec<(Tier, &str, usize, u64)> {
        rows.iter().map(|row| (row.tier, row.methods[0].method.name.as_str(), row.methods.len(), row.calls)).collect()
    }

    /// Check that a function with one method is one row under its own index, whoever counted; also when its class was
    /// loaded twice.
    #[test]
    fn one_name_is_one_row() {
        let one = probe(&["m"]);
        assert_eq!(shown(&rows(Some(&seen(&one, 5)), &[])), [(Tier::Kernel, "m", 1, 5)]);
        assert_eq!(shown(&rows(Some(&seen(&one, 5)), &[stub(0, 1, "m", 7, true)])), [(Tier::Both, "m", 1, 12)]);
        assert_eq!(shown(&rows(Some(&seen(&one, 0)), &[stub(0, 1, "m", 7, false)])), [(Tier::Stub, "m", 1, 7)]);
        assert!(rows(Some(&seen(&one, 0)), &[]).is_empty());
        let unseen = ProbeSample { unseen: Some(Unseen::default()), ..seen(&one, 0) };
        assert_eq!(shown(&rows(Some(&unseen), &[])), [(Tier::Kernel, "m", 1, 0)]);
        let twice = probe(&["m", "m"]);
        let both = [stub(0, 1, "m", 7, true), stub(1, 2, "m", 3, true)];
        let merged = rows(Some(&seen(&twice, 5)), &both);
        assert_eq!(shown(&merged), [(Tier::Both, "m", 2, 15)]);
        assert_eq!((merged[0].index, merged[0].traced_after), (7, Duration::ZERO));
    }

    /// Check that methods that share a function have their own rows where stubs counted, beside the function's row,
    /// which names those that its probe may have seen; and that no call is in two rows.
    #[test]
    fn stubs_tell_methods_apart() {
        let shared = probe(&["a", "b", "c"]);
        let stubs = [stub(3, 1, "a", 10, false), stub(4, 2, "b", 20, true)];
        let rows = rows(Some(&seen(&shared, 5)), &stubs);
        assert_eq!(shown(&rows), [(Tier::Kernel, "b", 2, 5), (Tier::Stub, "a", 1, 10), (Tier::Stub, "b", 1, 20)]);
        let mut indices: Vec<u32> = rows.iter().map(|row| row.index).collect();
        indices.dedup();
        assert_eq!(indices.len(), 3);
    }

    /// Check that estimated times are of the methods that they were made for, and are summed up where these are one row.
    #[test]
    fn estimates_are_summed_up() {
        let estimated = |record, id, estimated_ns| StubSample { estimated_ns, ..stub(record, id, "m", 7, false) };
        let stubs = [estimated(0, 1, Some(300)), estimated(1, 2, None), estimated(2, 3, Some(50))];
        assert_eq!(rows(None, &stubs)[0].estimated_ns, Some(350));
        assert_eq!(rows(Some(&seen(&probe(&["m"]), 5)), &stubs)[0].estimated_ns, Some(350));
        let apart = rows(Some(&seen(&probe(&["other"]), 5)), &stubs);
        assert_eq!(apart.iter().map(|row| row.estimated_ns).collect::<Vec<_>>(), [None, Some(350)]);
    }

    /// Check that calls that stubs only counted are taken to wait as the others do, whether their function has a row or not.
    #[test]
    fn counted_calls_wait_too() {
        let stats = MethodStats { total_ns: 400, off_ns: 300, counted: 7, ..MethodStats::ZERO };
        let stubs = [StubSample { stats, off_cpu: true, estimated_ns: Some(1_000), ..stub(0, 1, "m", 7, false) }];
        assert_eq!(rows(None, &stubs)[0].estimated_off_ns, Some(750));
        assert_eq!(rows(Some(&seen(&probe(&["m"]), 0)), &stubs)[0].estimated_off_ns, Some(750));
    }

    /// Check that what a stub puts into the times that are known is in none that is estimated from them.
    #[test]
    fn estimates_are_net() {
        let price = StubPrice { inside_ns: 8.0, ..StubPrice::default() };
        let estimated = |estimated_ns| {
            rows(None, &[StubSample { estimated_ns, price, ..stub(0, 1, "m", 10, false) }])[0].estimated_ns
        };
        assert_eq!([Some(300), Some(85), Some(3), None].map(estimated), [Some(220), Some(10), Some(3), None]);
    }

    /// Check that calls that were only counted have the time that looks have found for them, with its error, and none without.
    #[test]
    fn looks_time_counted_calls() {
        let (one, mean) = (probe(&["m"]), MeanTime { ns: 250.4, error_ns: 50.0 });
        let counted = MethodStats { counted: 1_000, ..MethodStats::ZERO };
        let found = |stats, mean| {
            let all = rows(Some(&ProbeSample { stats: Some(stats), mean, ..seen(&one, 0) }), &[]);
            (all[0].estimated_ns, all[0].estimated_error_ns)
        };
        assert_eq!(found(counted, Some(mean)), (Some(250_400), Some(50_000)));
        assert_eq!(found(counted, None), (None, None));
        assert_eq!(found(MethodStats::ZERO, Some(mean)), (None, None));
    }

    /// Check that how much each call moved is known of calls of both tiers, and of a class that was loaded twice, but for what the kernel had
    /// no room for; and of nothing where one of them does not know.
    #[test]
    fn bytes_of_both_tiers() {
        let moved = |calls| {
            let histogram = Histogram { buckets: vec![(27, calls)] };
            Some(vec![BytesPerCall { counter: Counter::ReadBytes, max: 100 + calls, histogram }])
        };
        let mut consumed = Consumed::default();
        consumed.total[Counter::ReadBytes as usize] = 500;
        let consumed = Some(consumed);
        let stub = |id, bytes_per_call| StubSample { consumed, bytes_per_call, ..stub(0, id, "m", 7, true) };
        let (one, stubs) = (probe(&["m"]), [stub(1, moved(2)), stub(2, moved(3))]);
        let of = |calls, bytes_per_call, stubs: &[StubSample]| {
            let seen = ProbeSample { consumed, bytes_per_call, ..seen(&one, calls) };
            rows(Some(&seen), stubs)[0].bytes_per_call.clone()
        };
        let both = of(5, moved(4), &stubs).unwrap();
        assert_eq!((both[0].max, &both[0].histogram.buckets[..]), (104, &[(27, 9)][..]));
        assert_eq!(of(0, Some(Vec::new()), &stubs).unwrap()[0].histogram.buckets, [(27, 5)]);
        assert_eq!(of(5, Some(Vec::new()), &stubs), Some(Vec::new()));
        assert_eq!([of(5, None, &stubs), of(5, moved(1), &[stub(1, None)])], [None, None]);
    }

    /// Check that methods that only stubs can see are rows too.
    #[test]
    fn methods_without_a_function() {
        let rows = rows(None, &[stub(0, 9, "generated", 4, false)]);
        assert_eq!(shown(&rows), [(Tier::Stub, "generated", 1, 4)]);
        assert_eq!(rows[0].cost, None);
    }
}
