//! What the agent has done to a JVM is undone, and costs it no time any more. It measures: not beside others.

use anyhow::{Result, ensure};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::on_every_jdk;
use nprof_tests::shim_peer::{Bound, TIME};

use super::{
    CALLS, call_shapes, connect_and_scan, counted, has_thread, must_have_come, records, target, timed, wait_until,
};

/// Check that after the end all natives have their addresses back, nothing is recorded any more, the thread is gone, and
/// calls are as fast as they were; and that the next connection begins at zero.
#[test]
fn leaves_no_trace() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = target(jdk)?;
        target.run("spin 10000000")?;
        let before = fastest(&mut target)?;
        for _ in 0..2 {
            let (mut connection, shapes) = connect_and_scan(jdk, &target, 2)?;
            let all: Vec<Bound> = connection.heard.bound.values().copied().collect();
            connection.watch(&all, TIME)?;
            connection.apply()?;
            call_shapes(&mut target)?;
            let watched = fastest(&mut target)?;
            ensure!(watched > 2.0 * before, "{before} ns, watched {watched} ns");
            connection.detach()?;
            let frozen = records(&connection, &shapes)?;
            ensure!(frozen.iter().copied().all(timed(CALLS)), "{frozen:?}");
            call_shapes(&mut target)?;
            must_have_come(&connection, &shapes, &frozen, counted(0))?;
            wait_until("no thread", || Ok(!has_thread(target.pid())?))?;
            let after = fastest(&mut target)?;
            ensure!(after < before.midpoint(watched), "{before} ns, watched {watched} ns, then {after} ns");
        }
        target.exit()
    })
}

/// Nanoseconds of a call of the smallest native, at best.
fn fastest(target: &mut RemoteProcess) -> Result<f64> {
    const CALLS: f64 = 2e6;
    let mut fastest = f64::MAX;
    for _ in 0..8 {
        fastest = fastest.min(target.took_ns(&format!("spin {CALLS:.0}"))? / CALLS);
    }
    Ok(fastest)
}
