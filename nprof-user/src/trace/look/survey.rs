//! Looks at all functions of a target before any is traced: which are called too often for a probe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::{ASK, Instruments, LOOK, Looker, more};
use crate::attach::{Beside, Session, Target, before_others, beside};
use crate::govern::{By, Costs, Glance, Rung, note_lost};
use crate::model::{Library, Probe};
use crate::trace::leaving::Leaving;

/// What probes do in these looks.
const COUNTED: Rung = Rung::Counted;
/// Functions that are looked at together. The more, the longer are the first of them slowed.
const TOGETHER: usize = 64;
/// How long it takes to see whether a function is called all the time: after that it is so with so many calls.
const MOMENT: Duration = Duration::from_micros(50);
const MANY: u64 = 4;
/// How long such a function is looked at, unless it has cost the target so much by then.
const GLIMPSE: Duration = Duration::from_micros(500);
const ENOUGH: Duration = Duration::from_micros(200);
/// From this share of a core on a function is not left with a probe any longer than that.
const COSTLY: f64 = 0.05;
/// From this one on it is called all the time, and need not be looked at again.
const HOT: f64 = 0.5;
/// How long it takes to put a probe into a target, or out of it, that hits another one all the time: the kernel
/// waits for the lock of its address space, which each hit takes for a moment.
const LOCKED: Duration = Duration::from_millis(4);
/// No more than this share of the time may be lost by such looks.
const SLOWED: f64 = 0.1;
/// How much CPU time a look at many functions sees on average, unless it has cost the target so much by then.
const SURVEY: Duration = Duration::from_millis(3);
const COST: Duration = Duration::from_millis(1);
/// The longest look.
const LONGEST: Duration = Duration::from_millis(10);
/// How long such a look waits for a target that wants a CPU and gets none: it would be traced without being known.
const STARVED: Duration = Duration::from_millis(100);
/// The longest pause that such a look is paid for by.
const PAUSE: Duration = Duration::from_millis(200);

/// A function that is attached to be looked at.
#[derive(Debug, Clone, Copy)]
struct Attached<'a> {
    probe: &'a Probe,
    record: u32,
    since: Instant,
    /// What a call costs the target, in nanoseconds.
    price: f64,
}

/// What came of attaching functions one by one.
struct Batch<'a> {
    /// Those that are not called all the time.
    quiet: Vec<Attached<'a>>,
    /// The one that is: its index, the share of a core that it costs, and what was seen of it.
    costly: Option<(u32, f64, Glance)>,
    /// How many were taken.
    taken: usize,
}

impl Looker {
    /// How often each of these functions is called in a second, counted for some milliseconds, by index. Functions that cannot be
    /// looked at are missing. A call is taken to cost what `costs` say, and no more than the share `budget` of the time
    /// is spent. As long as what is returned with it is kept, functions that are not called often keep their probes.
    ///
    /// Calls come in bursts. A look that ends early because of one sees no fair part of the time, so such functions are looked at
    /// again, at another moment.
    pub(in crate::trace) fn survey(
        &self,
        libraries: &[Library],
        probes: &[Probe],
        budget: f64,
        costs: Costs,
    ) -> (BTreeMap<u32, f64>, Leaving) {
        beside(&self.with.runners, |beside| {
            before_others(|| {
                let with = &self.with;
                let leaving = Leaving::start(with.reader.clone(), with.most_kept());
                let survey = Survey { with, libraries, budget, costs, since: Instant::now(), cpu: with.cpu() };
                let mut seen = survey.look_at(beside, probes, &leaving);
                let again: Vec<Probe> = probes.iter().filter(|probe| survey.is_hasty(probe, &seen)).cloned().collect();
                for (index, glance) in survey.look_at(beside, &again, &leaving) {
                    seen.entry(index).or_default().add(&glance);
                }
                let rate = |probe: &Probe| Some((probe.index, survey.rate(probe, seen.get(&probe.index)?)));
                (probes.iter().filter_map(rate).collect(), leaving)
            })
        })
    }
}

/// The looks at all functions of a target, before any is traced.
struct Survey<'a> {
    with: &'a Instruments,
    libraries: &'a [Library],
    budget: f64,
    costs: Costs,
    since: Instant,
    /// The CPU time of the target then.
    cpu: Duration,
}

impl Survey<'_> {
    fn look_at(&self, beside: &Beside<'_>, probes: &[Probe], leaving: &Leaving) -> BTreeMap<u32, Glance> {
        let (mut seen, mut rest) = (BTreeMap::new(), probes);
        while !rest.is_empty() {
            // Where it ran before it need not run now.
            beside.step_aside();
            let target = Target { timed: false, ..self.with.target };
            let mut session = Session::new(Arc::clone(&self.with.engine), target);
            let Batch { quiet, costly, taken } =
                self.with.attach_quiet(&mut session, self.libraries, rest, &self.costs);
            rest = &rest[taken..];
            let began = Instant::now();
            let mut glances = self.with.count(&quiet, self.length());
            let share_of = |(one, glance): &(Attached<'_>, Glance)| share(glance, one.price);
            let costliest = glances.iter().filter(|seen| share_of(seen) >= COSTLY).map(|(one, _)| one.probe.index);
            session.drop_single(&costliest.collect::<Vec<u32>>());
            // The next batch need not wait for them.
            leaving.take(session, quiet.iter().map(|one| (one.probe.index, one.record)));
            let all: f64 = glances.iter().map(share_of).sum();
            let mut pause = began.elapsed().mul_f64((all / self.budget).clamp(0.0, 1e3));
            self.note_lost(&mut glances);
            seen.extend(glances.into_iter().map(|(one, glance)| (one.probe.index, glance)));
            if let Some((index, share, glance)) = costly {
                pause = pause.max((glance.length + LOCKED).mul_f64(share.min(1.0) / SLOWED));
                seen.insert(index, glance);
            }
            thread::sleep(pause.min(PAUSE));
        }
        seen
    }

    /// What the probes of functions that were looked at together took from those that called each other one.
    fn note_lost(&self, glances: &mut [(Attached<'_>, Glance)]) {
        let prices: Vec<f64> = glances.iter().map(|(one, glance)| self.call_ns(one.probe, glance)).collect();
        note_lost(&mut prices.into_iter().zip(glances.iter_mut().map(|(_, glance)| glance)).collect::<Vec<_>>());
    }

    /// What a call has cost, in nanoseconds.
    fn call_ns(&self, probe: &Probe, glance: &Glance) -> f64 {
        glance.call_ns(&self.costs, COUNTED, by(probe))
    }

    /// The calls per second when nobody looks.
    fn rate(&self, probe: &Probe, glance: &Glance) -> f64 {
        glance.calls_per_second(self.call_ns(probe, glance))
    }

    /// How long the next look is, which is settled before it begins: were it over as soon as the target has used so much CPU time, it
    /// would be short whenever much is called, and see too much.
    fn length(&self) -> Duration {
        SURVEY.div_f64(self.cores().max(0.01)).clamp(SURVEY, LONGEST)
    }

    /// The cores that the target has used since it began.
    fn cores(&self) -> f64 {
        let used = self.with.cpu().saturating_sub(self.cpu);
        used.as_secs_f64() / self.since.elapsed().as_secs_f64().max(0.001)
    }

    /// Whether a look was too short to tell a burst from what goes on all the time.
    fn is_hasty(&self, probe: &Probe, seen: &BTreeMap<u32, Glance>) -> bool {
        seen.get(&probe.index).is_some_and(|glance| is_hasty(glance, price(&self.costs, probe), self.cores()))
    }
}

impl Instruments {
    /// How many functions may keep their probes when they have been counted: each has a record and an open file, which others need, too.
    fn most_kept(&self) -> usize {
        let files =
            getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        (self.engine.room() / 2).min(files / 2)
    }

    /// Attaches functions one by one, until one is called all the time: that one is looked at alone and detached before the
    /// next is attached, which would take the kernel [`LOCKED`] each time.
    fn attach_quiet<'a>(
        &self,
        session: &mut Session,
        libraries: &[Library],
        probes: &'a [Probe],
        costs: &Costs,
    ) -> Batch<'a> {
        let mut batch = Batch { quiet: Vec::new(), costly: None, taken: 0 };
        for probe in probes.iter().take(TOGETHER) {
            batch.taken += 1;
            session.attach(libraries, std::slice::from_ref(probe));
            let Some(record) = session.record(probe.index) else { continue };
            let one = Attached { probe, record, since: Instant::now(), price: price(costs, probe) };
            batch.quiet.push(one);
            thread::sleep(MOMENT);
            self.wait_for_glimpse(one);
            // One that was still when it was attached may be called all the time since.
            if let Some((place, (share, glance))) =
                batch.quiet.iter().enumerate().find_map(|(place, one)| Some((place, self.costly(*one)?)))
            {
                let index = batch.quiet.remove(place).probe.index;
                session.drop_single(&[index]);
                batch.costly = Some((index, share, glance));
                break;
            }
        }
        batch
    }

    /// Waits until enough calls of a function are seen, if it is called at all.
    fn wait_for_glimpse(&self, one: Attached<'_>) {
        if self.reader.begun(one.record) < MANY {
            return;
        }
        while one.since.elapsed() < GLIMPSE && self.cost_ns(one) < ENOUGH.as_secs_f64() * 1e9 {
            thread::sleep(MOMENT);
        }
    }

    /// What a function has cost since it was attached, in nanoseconds.
    fn cost_ns(&self, one: Attached<'_>) -> f64 {
        self.reader.begun(one.record) as f64 * one.price
    }

    /// The share of a core that a function costs, and what was seen of it, if that is too much to leave a probe there any
    /// longer.
    fn costly(&self, one: Attached<'_>) -> Option<(f64, Glance)> {
        let (length, calls) = (one.since.elapsed(), self.reader.begun_by_shard(one.record));
        let glance = Glance { length, calls, ..Glance::default() };
        let share = glance.calls_per_second(one.price) * one.price / 1e9;
        let is_called_all_the_time = glance.all() >= MANY && length < 2 * GLIMPSE && share >= COSTLY;
        (is_called_all_the_time || self.cost_ns(one) >= ENOUGH.as_secs_f64() * 1e9).then_some((share, glance))
    }

    /// Counts calls of functions that have just been attached, for so long.
    fn count<'a>(&self, batch: &[Attached<'a>], length: Duration) -> Vec<(Attached<'a>, Glance)> {
        // They were attached one after the other, and called since.
        let before: Vec<Vec<u64>> = batch.iter().map(|one| self.reader.begun_by_shard(one.record)).collect();
        let calls = |(one, before): (&Attached<'a>, &Vec<u64>)| more(&self.reader.begun_by_shard(one.record), before);
        let spent_ns = || -> f64 {
            batch.iter().zip(&before).map(|seen| calls(seen).iter().sum::<u64>() as f64 * seen.0.price).sum()
        };
        let length = self.wait(length, || spent_ns() >= COST.as_secs_f64() * 1e9);
        let glance = |seen| Glance { length, calls: calls(seen), ..Glance::default() };
        batch.iter().zip(&before).map(|seen| (*seen.0, glance(seen))).collect()
    }

    /// Waits for so long, until there is a reason to end, or while the target gets no CPU. Returns how long that was.
    fn wait(&self, length: Duration, is_enough: impl Fn() -> bool) -> Duration {
        let before = self.cpu();
        let began = Instant::now();
        while !is_enough() {
            let is_starved = || self.cpu().saturating_sub(before) < LOOK && self.runners.want_a_cpu();
            if began.elapsed() < length {
                thread::sleep(ASK);
            } else if began.elapsed() < STARVED && is_starved() {
                thread::sleep(10 * ASK);
            } else {
                break;
            }
        }
        began.elapsed()
    }
}

fn by(probe: &Probe) -> By {
    By::Probe(probe.site.cost)
}

/// What a call costs at least, in nanoseconds.
fn price(costs: &Costs, probe: &Probe) -> f64 {
    costs.of(COUNTED, by(probe))
}

/// The share of a core that a function's calls have cost in a look.
fn share(glance: &Glance, price: f64) -> f64 {
    glance.all() as f64 * price / 1e9 / glance.length.as_secs_f64().max(1e-9)
}

/// Nothing costs more CPU time than a target uses, so what has seemed to was a burst.
fn is_hasty(glance: &Glance, price: f64, cores: f64) -> bool {
    let share = share(glance, price);
    glance.length < LONGEST && share >= COSTLY && (share < HOT || share > cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what a short look has seen is not taken for what goes on all the time, unless the target could be that busy.
    #[test]
    fn bursts_are_looked_at_again() {
        let glance = |calls: u64, length: Duration| Glance { length, calls: vec![0, calls], ..Glance::default() };
        // 5 microseconds of each 100.
        let burst = glance(5, Duration::from_micros(200));
        assert!(is_hasty(&burst, 2_000.0, 1.0));
        assert!(!is_hasty(&burst, 1_000.0, 1.0), "it may cost so much");
        assert!(!is_hasty(&glance(5_000, LONGEST), 2_000.0, 0.1), "that was long enough");
        let many = glance(80, Duration::from_micros(200));
        assert!(!is_hasty(&many, 2_000.0, 0.9), "called all the time");
        assert!(is_hasty(&many, 2_000.0, 0.2), "as the target works for a fifth of the time");
    }
}
