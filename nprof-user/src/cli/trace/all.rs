//! `nprof trace --all`: every JVM of the host, those that start later included.

use std::process::ExitCode;
use std::time::Instant;

use nprof_common::Loss;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::output::Output;
use super::{REDRAW, REFRESH, Stop, TraceArgs, every};
use crate::attach::ExecEvents;
use crate::cli::terminal::say;
use crate::discover::{JvmWatch, Proc};
use crate::model::{Jvm, Snapshot};
use crate::render::Scope;
use crate::sys::process_end::ProcessEnd;
use crate::trace::{Error, Fleet, Options, Tracer};

/// How many problems with single JVMs are told at the end; of more the number is.
const PROBLEMS_TOLD: usize = 20;

/// What becomes of a JVM that was to join.
type Joined = (Jvm, Result<Tracer, Error>);

/// The JVMs on their way in, those inside, and those on their way out.
struct Run {
    proc: Proc,
    fleet: Fleet,
    watch: JvmWatch,
    joining: JoinSet<Joined>,
    ending: JoinSet<Jvm>,
    problems: Vec<String>,
    told: usize,
    /// Starts of programs that the kernel could not tell.
    missed: u64,
}

/// Traces all JVMs until there is a reason to stop, then prints what was measured.
pub(super) async fn trace_all(args: &TraceArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::new()?;
    let options = Options {
        selection: args.selection.parse()?,
        timed: !args.count_only,
        max_functions: args.max_methods.map(|most| most as usize),
    };
    let proc = Proc::host();
    // Before the first look around: what starts from now on is told.
    let mut execs = ExecEvents::open()?;
    let mut run = Run::new(proc, options)?;
    run.look();
    while let Some(joined) = run.joining.join_next().await {
        run.joined(joined);
    }
    if !quiet {
        run.announce();
    }
    let mut output = Output::new(args.format, Scope::All, args.interval.is_some());
    let deadline = args.duration.map(|duration| TokioInstant::now() + duration);
    let (mut refresh, mut redraw) = (every(REFRESH), every(args.interval.unwrap_or(REDRAW)));
    let result = loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => break reason,
            started = execs.next() => match started {
                Ok(pid) => run.watch.candidate(pid, Instant::now()),
                Err(error) => break Err(error.into()),
            },
            () = sleep_until(run.watch.next_look().into()) => run.look(),
            Some(joined) = run.joining.join_next() => run.joined(joined),
            Some(Ok(jvm)) = run.ending.join_next() => run.fleet.end(&jvm),
            _ = refresh.tick() => {
                run.missed(execs.lost());
                run.fleet.refresh();
            }
            _ = redraw.tick(), if output.is_live() => output.update(&run.snapshots())?,
        }
    };
    run.fleet.stop();
    result?;
    output.finish(&run.snapshots())?;
    run.tell_what_is_missing();
    Ok(ExitCode::SUCCESS)
}

impl Run {
    fn new(proc: Proc, options: Options) -> Result<Self, Error> {
        let fleet = Fleet::new(proc.clone(), options)?;
        Ok(Self {
            proc,
            fleet,
            watch: JvmWatch::new(Instant::now()),
            joining: JoinSet::new(),
            ending: JoinSet::new(),
            problems: Vec::new(),
            told: 0,
            missed: 0,
        })
    }

    /// Looks for JVMs that have appeared, and lets them join. Reading and attaching holds up nothing else.
    fn look(&mut self) {
        for jvm in self.watch.look(&self.proc, Instant::now()) {
            if !jvm.kind.is_supported() {
                self.problem(&jvm, &Error::Unsupported { pid: jvm.pid, kind: jvm.kind });
                continue;
            }
            let joining = self.fleet.joining(jvm.clone());
            self.joining.spawn(async move {
                let attached = spawn_blocking(move || joining.attach()).await;
                (jvm, attached.unwrap_or_else(|panic| Err(panicked(&panic))))
            });
        }
    }

    /// Takes in a JVM that is attached, and waits for its end.
    fn joined(&mut self, joined: Result<Joined, JoinError>) {
        match joined {
            Ok((jvm, Ok(tracer))) => {
                self.fleet.join(tracer);
                let end = ProcessEnd::watch(jvm.pid);
                // A pid that is another's by now had its own end before.
                let waits = self.proc.is_same(&jvm);
                self.ending.spawn(async move {
                    if let Ok(end) = end
                        && waits
                        && let Err(error) = end.wait().await
                    {
                        tracing::warn!("process {}: its end cannot be waited for: {error}", jvm.pid);
                    }
                    jvm
                });
            }
            // It was too short-lived to be read.
            Ok((_, Err(Error::Ended { .. }))) => {}
            Ok((jvm, Err(error))) => self.problem(&jvm, &error),
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    /// Takes note of how many starts could not be told, all in all; if there are new ones, somebody has to look.
    fn missed(&mut self, missed: u64) {
        if missed > self.missed {
            self.missed = missed;
            self.watch.missed(Instant::now());
        }
    }

    /// What was measured of each JVM. The missed starts are no JVM's; they stand with the other losses.
    fn snapshots(&self) -> Vec<Snapshot> {
        let mut snapshots = self.fleet.snapshots();
        let counts = snapshots.first_mut().map(|first| &mut first.losses.counts);
        let missed = |count: &&mut (&'static str, u64)| count.0 == Loss::MissedExec.as_str();
        if let Some((_, count)) = counts.and_then(|counts| counts.iter_mut().find(missed)) {
            *count += self.missed;
        }
        snapshots
    }

    fn problem(&mut self, jvm: &Jvm, error: &Error) {
        self.told += 1;
        if self.problems.len() < PROBLEMS_TOLD {
            self.problems.push(format!("{} ({}) is not traced: {error}", jvm.pid, jvm.main));
        }
    }

    /// Says that everything is attached that runs now. Scripts wait for this line.
    #[expect(clippy::print_stderr, reason = "the announcement has a form of its own")]
    fn announce(&self) {
        let (methods, jvms) = (self.fleet.methods(), self.fleet.jvms());
        let noun = if jvms == 1 { "JVM" } else { "JVMs" };
        eprintln!("tracing {methods} methods of {jvms} {noun}, and of those that start");
    }

    /// Says which JVMs are not in the results, when nothing is drawn over it any more.
    fn tell_what_is_missing(&self) {
        for problem in &self.problems {
            say(problem);
        }
        // Otherwise it stands with the losses of the results.
        if self.missed > 0 && self.fleet.snapshots().is_empty() {
            say(format_args!("{} starts of programs were not noticed; JVMs may be among them", self.missed));
        }
        if self.fleet.forgotten() > 0 {
            say(format_args!("{} JVMs ended so long ago that their results are left out", self.fleet.forgotten()));
        }
        if self.told > self.problems.len() {
            say(format_args!("and {} more JVMs are not traced", self.told - self.problems.len()));
        }
    }
}

fn panicked(error: &JoinError) -> Error {
    Error::Defect { what: error.to_string() }
}
