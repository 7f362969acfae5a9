//! `nprof trace --all`: every JVM of the host, those that start later included.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use tokio::time::Instant;

use super::output::Output;
use super::{REDRAW, Stop, TraceArgs, every};
use crate::attach::{Collect, Engine, in_full};
use crate::cli::demoted::{Demoted, TRACED};
use crate::cli::rules;
use crate::cli::terminal::say;
use crate::discover::{JvmFilter, Proc};
use crate::model::{Jvm, Losses, Snapshot};
use crate::render::Scope;
use crate::resolve::rule::Rule;
use crate::resolve::thresholds::Thresholds;
use crate::trace::{Error, Event, Host, Options, SlowWatch, Start, TierWanted, TracedJvm, calibrate};

/// Functions that can be traced at a time, of all JVMs together.
const CAPACITY: u32 = 16_384;
/// How many problems with single JVMs are told at the end; of more the number is.
const PROBLEMS_TOLD: usize = 20;
/// Ended JVMs whose results are kept; of older ones the number is.
const ENDED_KEPT: usize = 256;

/// What there is to print.
#[derive(Default)]
struct Results {
    living: Vec<Arc<TracedJvm>>,
    ended: VecDeque<Snapshot>,
    /// How many ended JVMs are no longer in `ended`.
    forgotten: u64,
    problems: Vec<String>,
    told: usize,
    /// Methods of JVMs that are not traced any more.
    demoted: Demoted,
}

/// Traces all JVMs until there is a reason to stop, then prints what was measured.
pub(super) async fn trace_all(args: &TraceArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::new()?;
    let options = args.options()?;
    if options.collectors.have_results() {
        bail!("`--collect results` is about one JVM, whose exceptions have to be told from results: say `--pid`");
    }
    let (rules, slow) = (options.rules.clone(), options.slow.clone());
    let mut host = open(options)?;
    let mut results = Results::default();
    let stopped = tokio::select! {
        events = host.join_all() => {
            events.into_iter().for_each(|event| results.take_in(event));
            false
        }
        reason = stop.wait(None) => { reason?; true }
    };
    if stopped {
        host.stop().await;
        anyhow::bail!("stopped before anything was traced");
    }
    if !quiet {
        rules::tell_idle(&results.idle(&rules));
        rules::tell_idle(&results.idle(slow.as_ref().map_or(&[], Thresholds::rules)));
        results.announce();
    }
    let mut output = Output::new(args.format, args.view.of(Scope::All), args.interval.is_some());
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let mut redraw = every(args.interval.unwrap_or(REDRAW));
    // Not in order: however many programs start, the picture stays current.
    let result = loop {
        tokio::select! {
            reason = stop.wait(deadline) => break reason,
            event = host.next() => match event {
                Ok(event) => event.into_iter().for_each(|event| results.take_in(event)),
                Err(error) => break Err(error.into()),
            },
            _ = redraw.tick(), if output.is_live() => output.update(&results.snapshots(&host.losses().read()))?,
        }
    };
    host.stop().await;
    result?;
    let snapshots = results.snapshots(&host.losses().read());
    results.end();
    output.finish(&snapshots)?;
    args.save_slow(&snapshots)?;
    if !quiet {
        results.demoted.tell(TRACED);
    }
    results.tell_what_is_missing(if snapshots.is_empty() { host.losses().missed() } else { 0 });
    Ok(ExitCode::SUCCESS)
}

/// The host, which is to keep what tracing costs each JVM within the budget.
fn open(options: Options) -> anyhow::Result<Host> {
    let proc = Proc::host();
    let collect = Collect { shares: proc.may_share_links(), ..options.collected_of_many() };
    let (engine, feeds) = Engine::load_measuring(CAPACITY, &collect)?;
    let calibrated = calibrate(&proc, &engine)?;
    // Nothing else comes by rings: off-CPU times are in the records.
    let slow = options.slow.as_ref().map(|_| SlowWatch::start(proc.clone(), &engine, feeds)).transpose()?;
    let (everyone, wants_stubs) = (JvmFilter::default(), options.tier == TierWanted::Stub);
    // Who cannot have them is traced all the same.
    let options = Options { tier: if wants_stubs { TierWanted::Auto } else { options.tier }, ..options };
    let start = Start { options, jvms: everyone.clone(), stubs_for: wants_stubs.then_some(everyone), jni_for: None };
    Ok(Host::open(proc, start, engine, calibrated)?.with_slow(slow))
}

impl Results {
    /// What there is to say of rules that are about no method of the JVMs that run.
    fn idle<W>(&self, rules: &[Rule<W>]) -> Vec<String> {
        let is_idle = |rule: &&Rule<W>| self.living.iter().all(|traced_jvm| traced_jvm.concerned(rule) == 0);
        let say =
            |rule: &Rule<W>| format!("the rule for `{}` matches no method of the JVMs that run now", rule.pattern);
        rules.iter().filter(|rule| !rule.pattern.is_empty()).filter(is_idle).map(say).collect()
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Joined(traced_jvm) => self.living.push(traced_jvm),
            Event::Ended(traced_jvm, snapshot) => {
                self.living.retain(|living| !Arc::ptr_eq(living, &traced_jvm));
                self.demoted.add(&snapshot, &traced_jvm.spent().unwrap_or_default());
                self.keep(*snapshot);
            }
            Event::Untraced(jvm, error) => self.problem(&jvm, &error),
        }
    }

    /// Keeps the results of a JVM that has ended, if it has any, at the cost of the oldest.
    fn keep(&mut self, snapshot: Snapshot) {
        if snapshot.methods.is_empty() {
            return;
        }
        self.ended.push_back(snapshot);
        if self.ended.len() > ENDED_KEPT {
            self.ended.pop_front();
            self.forgotten += 1;
        }
    }

    /// What was measured of each JVM, ended ones first. Losses are counted for all together: they stand in the first
    /// snapshot, and those of the others are zero.
    fn snapshots(&self, losses: &Losses) -> Vec<Snapshot> {
        let mut snapshots: Vec<Snapshot> = self.ended.iter().cloned().collect();
        snapshots.extend(self.living.iter().map(|traced_jvm| traced_jvm.snapshot()));
        for (place, snapshot) in snapshots.iter_mut().enumerate() {
            snapshot.losses = if place == 0 { losses.clone() } else { none(losses) };
        }
        snapshots
    }

    /// The JVMs that live are not traced any more either.
    fn end(&mut self) {
        for traced_jvm in &self.living {
            self.demoted.add(&traced_jvm.snapshot(), &traced_jvm.spent().unwrap_or_default());
        }
    }

    fn problem(&mut self, jvm: &Jvm, error: &Error) {
        self.told += 1;
        if self.problems.len() < PROBLEMS_TOLD {
            self.problems.push(format!("{} ({}) is not traced: {}", jvm.pid, jvm.main, in_full(error)));
        }
    }

    /// Says that everything is attached that runs now. Scripts wait for this line.
    #[expect(clippy::print_stderr, reason = "the announcement has its own form")]
    fn announce(&self) {
        let methods: usize = self.living.iter().map(|traced_jvm| traced_jvm.methods()).sum();
        let jvms = self.living.len();
        let noun = if jvms == 1 { "JVM" } else { "JVMs" };
        eprintln!("tracing {methods} methods of {jvms} {noun}, and of those that start");
    }

    /// Says which JVMs are not in the results, when nothing is drawn over it any more. `missed` are the starts of
    /// programs that the results do not tell of.
    fn tell_what_is_missing(&self, missed: u64) {
        for problem in &self.problems {
            say(problem);
        }
        if missed > 0 {
            say(format_args!("{missed} starts of programs were not noticed; JVMs may be among them"));
        }
        if self.forgotten > 0 {
            say(format_args!("{} JVMs ended so long ago that their results are left out", self.forgotten));
        }
        if self.told > self.problems.len() {
            say(format_args!("and {} more JVMs are not traced", self.told - self.problems.len()));
        }
    }
}

/// The same reasons, none of which has happened.
fn none(losses: &Losses) -> Losses {
    Losses { counts: losses.counts.iter().map(|(reason, _)| (*reason, 0)).collect() }
}
