//! `nprof jni --id-cache`: keeps the ids that native code looks up, in the JVM.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

use super::terminal::{self, harmless};
use super::trace::{Stop, every};
use crate::discover::Proc;
use crate::model::{IdCacheReport, Pid};
use crate::render::jni;
use crate::trace::IdCache;

/// How often it is looked whether the shim has said something.
const LOOK: Duration = Duration::from_millis(200);

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdCacheArgs {
    pub(super) pid: Pid,
    pub(super) duration: Option<Duration>,
    pub(super) top: Option<usize>,
    pub(super) is_json: bool,
}

/// Keeps ids until there is a reason to stop, then prints what came of it.
///
/// # Errors
/// If ids cannot be kept in the JVM, or the output cannot be written.
pub(super) fn run(args: IdCacheArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let kept = runtime.block_on(keep(args, quiet));
    // A JVM that was still being read holds up nobody.
    runtime.shutdown_background();
    kept
}

async fn keep(args: IdCacheArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::new()?;
    let proc = Proc::host();
    let jvm = proc.jvm(args.pid)?;
    stop.with_target(&proc, &jvm)?;
    let Some(begun) = stop.unless_stopped(move || IdCache::begin(&proc, jvm)).await? else {
        anyhow::bail!("stopped before anything was done");
    };
    let mut cache = begun?;
    if !quiet {
        announce(&cache);
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let mut look = every(LOOK);
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => break reason?,
            _ = look.tick() => cache.tick()?,
        }
    }
    let jvm = cache.jvm().clone();
    print(args, &cache.finish()?)?;
    if !quiet {
        stop.tell(&jvm);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that ids are kept. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
fn announce(cache: &IdCache) {
    let jvm = cache.jvm();
    eprintln!("keeping ids in {} ({})", jvm.pid, harmless(&jvm.main));
}

fn print(args: IdCacheArgs, report: &IdCacheReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.is_json {
        jni::id_cache_json(report, &mut out)?;
    } else {
        jni::id_cache_table(report, args.top, terminal::stdout_screen(), &mut out)?;
    }
    out.flush()
}
