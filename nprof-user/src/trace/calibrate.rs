//! What a probe costs on this machine: measured on functions of nprof's own, with the programs that trace.

mod caches;
mod cool;
mod inside;
mod stubs;

use std::sync::Arc;
use std::thread;

use self::inside::Inside;
use super::Error;
use crate::attach::{Engine, Session, Target};
use crate::collect::Reader;
use crate::discover::Proc;
use crate::govern::{Costs, StubCosts};
use crate::model::{
    FileOffset, Library, LibraryId, Pid, Price, Prices, Probe, ProbeCost, Site, StubPrice, Tracing, VirtAddr,
};
use crate::sys::cpu_clock::CpuClock;
use crate::sys::probe_target::ProbeTarget;

/// Calls of a round, for each kind of site: a millisecond, so that most are not interrupted and one that is does not look as
/// if each call took longer.
const CALLS: [u64; 2] = [1000, 100];
/// Rounds of each measurement, of which the middle one counts.
const ROUNDS: usize = 15;
/// The kinds of sites, in the order in which they are measured.
const KINDS: [ProbeCost; 2] = [ProbeCost::Emulated, ProbeCost::SingleStepped];

/// What probes cost on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Calibrated {
    /// What one call costs.
    pub costs: Costs,
    /// The same, with what of it is part of the times that are measured.
    pub prices: Prices,
    /// Whether a function can be detached without losing calls of others.
    pub detaches: bool,
}

impl Calibrated {
    /// The same for a target where stubs cost this.
    pub(super) fn with_stubs(self, stub: StubCosts) -> Self {
        Self { costs: Costs { stub, ..self.costs }, ..self }
    }
}

/// What stubs cost that find their CPU's part of a record in the way of this number, as the shim says it, with or without what
/// threads use being collected. Measured at the first time.
pub(super) fn calibrate_stubs(sharding: u32, collects: bool) -> StubPrice {
    let prices = stubs::measure(collects);
    prices.get(sharding as usize).or(prices.last()).copied().unwrap_or_default()
}

/// Measures what a call of a traced function costs, with nprof itself as the target. It takes a fifth of a second, most of
/// which the kernel needs to detach a probe; what is left at the end is detached meanwhile.
///
/// # Errors
/// If nprof cannot be traced by itself.
pub fn calibrate(proc: &Proc, engine: &Arc<Engine>) -> Result<Calibrated, Error> {
    let pid = Pid(std::process::id());
    let libraries = proc.libraries(pid)?;
    let functions = [ProbeTarget::emulated(), ProbeTarget::single_stepped()];
    let probes = KINDS
        .iter()
        .zip(functions)
        .zip(0..)
        .filter_map(|((&cost, function), index)| probe_on(&libraries, function, cost, index));
    let probes: Vec<Probe> = probes.collect();
    if probes.len() != KINDS.len() {
        return Err(Error::Defect { what: "nprof's own code is not mapped".to_owned() });
    }
    let bare = per_call(functions);
    let untraced = cool::call_ns(functions[0]);
    let mut session = Session::new(Arc::clone(engine), Target { pid, timed: true });
    if let Some((error, _)) = session.attach(&libraries, &probes).failed.pop() {
        return Err(error.into());
    }
    let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
    let with = |tracing| {
        session.switches().want(0..2, tracing);
        per_call(functions)
    };
    let timed = with(Tracing::Timed);
    let insides = [0, 1].map(|kind| {
        let record = session.record(probes[kind].index)?;
        Some(inside::measure(functions[kind], &reader, record, bare[kind].ns))
    });
    let cool = [0, 1].map(|kind| cool::times(functions[kind], timed[kind].ns - bare[kind].ns, untraced));
    let off = with(Tracing::Off);
    // What is only counted for good has no probe on its return.
    probes.iter().for_each(|probe| session.switches().allow(probe.index, Tracing::Counted));
    session.settle(&libraries, &probes);
    session.switches().want(0..2, Tracing::Counted);
    let counted = per_call(functions);
    let detaches = session.hands_over(&libraries, &probes[0], CALLS[0], || functions[0].call(CALLS[0]));
    thread::spawn(move || session.give_back());
    let cost = |with: [PerCall; 2]| [0, 1].map(|kind| (with[kind].ns - bare[kind].ns).max(1.0));
    // Each target says how its stubs work.
    let stub = StubCosts::default();
    let costs = Costs { timed_ns: cost(timed), counted_ns: cost(counted), off_ns: cost(off), cool, stub };
    let insides = [0, 1].map(|kind| {
        let varies = [timed[kind], off[kind], counted[kind]].map(PerCall::varies).into_iter().fold(0.0, f64::max);
        insides[kind].unwrap_or_default().varying(varies)
    });
    let insides = [insides[0], insides[1].reaching(most_inside(&costs, insides[0]))];
    let [emulated, single_stepped] = [0, 1].map(|kind| price(&costs, kind, insides[kind]));
    let calibrated = Calibrated { costs, prices: Prices { emulated, single_stepped }, detaches };
    tracing::debug!("what probes cost here: {calibrated:?}");
    Ok(calibrated)
}

/// What loops of calls say of the part at a single-stepped site, where the emulated one has this part: outside of it is the same
/// at both, so that the rest of a call is inside. Some hosts take half as long again to step an instruction from one moment to the
/// next; the loops and the single calls, from which the part is known, have then been measured at two speeds. A call
/// that is only counted takes no longer than one that is timed, unless it was such a moment.
fn most_inside(costs: &Costs, emulated: Inside) -> f64 {
    let outside_ns = (costs.timed_ns[0] - emulated.ns).max(0.0);
    costs.timed_ns[1].max(costs.counted_ns[1]) - outside_ns
}

/// What is known of one kind of site, in whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cost is not negative; conversion to u64 saturates"
)]
fn price(costs: &Costs, kind: usize, inside: Inside) -> Price {
    let whole = |ns: f64| ns.round() as u64;
    let inside_ns = whole(inside.ns);
    Price {
        // The whole is measured in a loop of nothing else, its part also after other work, where traps take longer. At a
        // single-stepped site the part is nearly all, and could be more than the whole. The rest is not nothing.
        timed_ns: whole(costs.timed_ns[kind]).max(inside_ns.saturating_add(1)),
        counted_ns: whole(costs.counted_ns[kind]),
        inside_ns,
        inside_error_ns: whole(inside.error_ns),
    }
}

/// What a call takes of CPU time, in nanoseconds: what other threads do on a busy machine meanwhile is no cost of a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PerCall {
    /// In the middle one of some rounds.
    ns: f64,
    /// In one that a fifth of them are slower than. On some hosts a trap takes half as long again from one moment to the next.
    slow_ns: f64,
}

impl PerCall {
    fn of(function: ProbeTarget, calls: u64) -> Self {
        let clock = CpuClock::of_this_thread();
        let mut rounds = [0.0; ROUNDS];
        for round in &mut rounds {
            let began = clock.read().unwrap_or_default();
            function.call(calls);
            let spent = clock.read().unwrap_or_default().saturating_sub(began);
            *round = spent.as_secs_f64() * 1e9 / calls as f64;
        }
        rounds.sort_by(f64::total_cmp);
        Self { ns: rounds[ROUNDS / 2], slow_ns: rounds[ROUNDS * 4 / 5] }
    }

    /// How much longer it takes at times, as a share of what it takes.
    fn varies(self) -> f64 {
        if self.ns > 0.0 { self.slow_ns / self.ns - 1.0 } else { 0.0 }
    }
}

fn per_call(functions: [ProbeTarget; 2]) -> [PerCall; 2] {
    [0, 1].map(|kind| PerCall::of(functions[kind], CALLS[kind]))
}

/// A probe on the first instruction of a function of this process.
fn probe_on(libraries: &[Library], probe_target: ProbeTarget, cost: ProbeCost, index: u32) -> Option<Probe> {
    let address = VirtAddr(probe_target.address);
    let (place, mapping) = libraries.iter().enumerate().find_map(|(place, library)| {
        let mapping = library.mappings.iter().find(|mapping| mapping.contains(address))?;
        Some((LibraryId(place), mapping))
    })?;
    let offset = FileOffset(address.0 - mapping.start.0 + mapping.offset.0);
    Some(Probe { index, site: Site { library: place, offset, entry: offset, cost }, methods: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the part of the cost that is inside the times is never more than the whole.
    #[test]
    fn a_part_is_less_than_the_whole() {
        let stub = StubCosts::default();
        let costs = Costs {
            timed_ns: [900.0, 11_020.0],
            counted_ns: [500.0, 6_000.0],
            off_ns: [400.0, 5_000.0],
            cool: [1.0; 2],
            stub,
        };
        let price = |kind, ns| price(&costs, kind, Inside { ns, error_ns: ns / 3.0 });
        assert_eq!((price(0, 400.0).timed_ns, price(0, 400.0).inside_ns), (900, 400));
        assert_eq!((price(1, 12_226.0).timed_ns, price(1, 12_226.0).inside_ns), (12_227, 12_226));
    }

    /// Check that a part that was measured while the host was quick is said to be off by as much as the loops took longer, those
    /// of timed or of counted calls, and that nothing is where they agree.
    #[test]
    fn two_speeds_are_an_error() {
        let emulated = Inside { ns: 400.0, error_ns: 120.0 };
        let costs = |timed, counted| Costs {
            timed_ns: [900.0, timed],
            counted_ns: [500.0, counted],
            off_ns: [400.0, 5_000.0],
            cool: [1.0; 2],
            stub: StubCosts::default(),
        };
        let quick = Inside { ns: 12_500.0, error_ns: 3_750.0 };
        let error_ns = |costs: &Costs| quick.reaching(most_inside(costs, emulated)).error_ns;
        assert_eq!(error_ns(&costs(20_000.0, 12_000.0)), 7_000.0);
        assert_eq!(error_ns(&costs(13_000.0, 17_500.0)), 4_500.0);
        assert_eq!(error_ns(&costs(13_000.0, 12_000.0)), 3_750.0);
    }
}
