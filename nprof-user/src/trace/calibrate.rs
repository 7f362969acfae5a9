//! What a probe costs on this machine: measured on functions of nprof's own, with the programs that trace.

mod inside;

use std::sync::Arc;

use self::inside::Inside;
use super::Error;
use crate::attach::{Engine, Session, Switches, Target};
use crate::collect::Reader;
use crate::discover::Proc;
use crate::govern::Costs;
use crate::model::{FileOffset, Library, LibraryId, Pid, Price, Prices, Probe, ProbeCost, Site, Tracing, VirtAddr};
use crate::sys::cpu_clock::CpuClock;
use crate::sys::probe_target::ProbeTarget;

/// Calls of a round. A round is so short that most are not interrupted.
const CALLS: u64 = 500;
/// Rounds of each measurement, of which the middle one counts.
const ROUNDS: usize = 15;

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

/// Measures what a call of a traced function costs, with nprof itself as the target. It takes almost half a
/// second.
///
/// # Errors
/// If nprof cannot be traced by itself.
pub fn calibrate(proc: &Proc, engine: &Arc<Engine>) -> Result<Calibrated, Error> {
    let pid = Pid(std::process::id());
    let libraries = proc.libraries(pid)?;
    let nothing = [0.0; 2];
    let costs = Costs { timed_ns: nothing, counted_ns: nothing, off_ns: nothing };
    let mut calibrated = Calibrated { costs, prices: Prices::default(), detaches: false };
    let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
    let mut insides = [Inside { ns: 0.0, error_ns: 0.0 }; 2];
    for (place, cost, probe_target) in [
        (0, ProbeCost::Emulated, ProbeTarget::emulated()),
        (1, ProbeCost::SingleStepped, ProbeTarget::single_stepped()),
    ] {
        let probe = probe_on(&libraries, probe_target, cost)
            .ok_or_else(|| Error::Defect { what: "nprof's own code is not mapped".to_owned() })?;
        let bare = ns_per_call(probe_target);
        let mut session = Session::new(Arc::clone(engine), Target { pid, timed: true });
        if let Some((error, _)) = session.attach(&libraries, std::slice::from_ref(&probe)).failed.pop() {
            return Err(error.into());
        }
        let cost_of = |tracing| (ns_in(session.switches(), tracing, probe_target) - bare).max(1.0);
        calibrated.costs.timed_ns[place] = cost_of(Tracing::Timed);
        if let Some(record) = session.switches().record(probe.index) {
            insides[place] = inside::measure(probe_target, &reader, record, bare);
        }
        calibrated.costs.off_ns[place] = cost_of(Tracing::Off);
        // What is only counted for good has no probe on its return.
        session.switches().allow(probe.index, Tracing::Counted);
        session.settle(&libraries, std::slice::from_ref(&probe));
        calibrated.costs.counted_ns[place] =
            (ns_in(session.switches(), Tracing::Counted, probe_target) - bare).max(1.0);
        calibrated.detaches = session.hands_over(&libraries, &probe, CALLS, || probe_target.call(CALLS));
        session.detach();
        session.give_back();
    }
    let [emulated, single_stepped] = [0, 1].map(|place| price(&calibrated.costs, place, insides[place]));
    calibrated.prices = Prices { emulated, single_stepped };
    tracing::debug!("what probes cost here: {calibrated:?}");
    Ok(calibrated)
}

/// What is known of one kind of site, in whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cost is not negative; conversion to u64 saturates"
)]
fn price(costs: &Costs, place: usize, inside: Inside) -> Price {
    let whole = |ns: f64| ns.round() as u64;
    Price {
        timed_ns: whole(costs.timed_ns[place]),
        counted_ns: whole(costs.counted_ns[place]),
        inside_ns: whole(inside.ns),
        inside_error_ns: whole(inside.error_ns),
    }
}

fn ns_in(switches: &Switches, tracing: Tracing, probe_target: ProbeTarget) -> f64 {
    switches.want([0], tracing);
    ns_per_call(probe_target)
}

/// The middle of some rounds, in nanoseconds of CPU time per call: what other threads do on a busy machine meanwhile is no
/// cost of a probe.
fn ns_per_call(probe_target: ProbeTarget) -> f64 {
    let clock = CpuClock::of_this_thread();
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let began = clock.read().unwrap_or_default();
        probe_target.call(CALLS);
        let spent = clock.read().unwrap_or_default().saturating_sub(began);
        *round = spent.as_secs_f64() * 1e9 / CALLS as f64;
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// A probe on the first instruction of a function of this process.
fn probe_on(libraries: &[Library], probe_target: ProbeTarget, cost: ProbeCost) -> Option<Probe> {
    let address = VirtAddr(probe_target.address);
    let (place, mapping) = libraries.iter().enumerate().find_map(|(place, library)| {
        let mapping = library.mappings.iter().find(|mapping| mapping.contains(address))?;
        Some((LibraryId(place), mapping))
    })?;
    let offset = FileOffset(address.0 - mapping.start.0 + mapping.offset.0);
    Some(Probe { index: 0, site: Site { library: place, offset, entry: offset, cost }, methods: Vec::new() })
}
