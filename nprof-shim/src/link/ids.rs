//! The id cache, for nprof: when it begins and ends, and what came of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nprof_common::wire::{FromShim, IdCaller, IdFunction, IdsForgotten};

use super::Link;
use crate::agent::Agent;
use crate::id_cache::{self, Report};
use crate::jni::Jni;

/// So many callers are told, those that have asked most: fewer where nobody waits until there is room.
const MOST_CALLERS: usize = 1_000;
const MOST_AT_END: usize = 100;

/// Keeps ids from now on, as long as the connection is there.
pub(super) fn begin(agent: &Agent, link: &Link, pending: i64) -> Result<(), id_cache::Error> {
    let pending = isize::try_from(pending).unwrap_or(0);
    id_cache::begin(agent, pending)?;
    link.keeps_ids.store(true, Ordering::Release);
    link.answer(&FromShim::IdsKept);
    Ok(())
}

/// Keeps none any more, and tells what came of it.
pub(super) fn end(agent: &Agent, link: &Arc<Link>, jni: Jni) {
    if link.keeps_ids.swap(false, Ordering::AcqRel)
        && let Some(report) = id_cache::end(agent, jni)
    {
        tell(agent, &report, MOST_CALLERS, |message| {
            link.answer(message);
        });
    }
}

/// The same when nobody listens any more.
pub(super) fn orphaned(agent: &Agent, link: &Arc<Link>) {
    if link.keeps_ids.swap(false, Ordering::AcqRel) && agent.stage.is_live() {
        // If the VM does not let us in, ours only pass on what they are asked as soon as it is their turn.
        let _ended = agent.vm.visit(|jni| id_cache::end(agent, jni));
    }
}

/// The same when the VM ends, which nobody is kept waiting for.
pub(crate) fn end_with_vm(agent: &Agent, link: &Link) {
    if link.keeps_ids.swap(false, Ordering::AcqRel)
        && let Some(report) = id_cache::end_with_vm()
    {
        tell(agent, &report, MOST_AT_END, |message| link.send(message));
    }
}

fn tell(agent: &Agent, report: &Report, most: usize, send: impl Fn(&FromShim<'_>)) {
    for (function, sum) in (0..).zip(&report.sums.functions) {
        send(&FromShim::IdFunction(IdFunction {
            function,
            hits: sum.hits,
            misses: sum.misses,
            left: sum.left,
            timed: sum.timed,
            hit_ns: agent.nanoseconds(sum.hit_ticks),
            original_ns: agent.nanoseconds(sum.original_ticks),
            wrong: sum.wrong,
        }));
    }
    let mut callers: Vec<_> = report.sums.callers.iter().collect();
    callers.sort_unstable_by_key(|(_, asked)| std::cmp::Reverse(asked.hits + asked.misses + asked.left));
    for &(&address, asked) in callers.iter().take(most) {
        let (address, hits, misses, left) = (address as u64, asked.hits, asked.misses, asked.left);
        send(&FromShim::IdCaller(IdCaller { address, hits, misses, left }));
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let untold = callers.len().saturating_sub(most);
    send(&FromShim::IdsForgotten(IdsForgotten { behind: count(report.behind), untold: count(untold) }));
}
