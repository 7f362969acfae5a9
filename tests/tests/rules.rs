//! What is done at the calls of each method is what the last rule says that matches it.

use anyhow::{Context, Result, ensure};
use nprof_tests::nprof::{self, Trace};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

const CALLS: u64 = 40;

/// Check that in one run methods are timed, counted and left alone as rules say, by probes and by stubs; that what is left alone
/// has no probe, and that a rule for nothing is said.
#[test]
fn each_method_as_its_rule_says() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for tier in ["kernel", "stub"] {
            let mut target = RemoteProcess::consuming(jdk)?;
            // What is bound by now has its place before the first call that counts.
            for what in ["call", "copy", "lock"] {
                target.run(&format!("consume {what} 1 1 1"))?;
            }
            let rules = ["--rule=**=count", "--rule=*::copy=time", "--rule=*::lock=off", "--rule=No=off"];
            let trace = Trace::start(target.pid(), &[&["--tier", tier, "targets.Consuming"], &rules[..]].concat())?;
            for what in ["call", "copy", "lock"] {
                target.run(&format!("consume {what} 1 {CALLS} 1"))?;
            }
            let report = trace.finish()?;
            ensure!(report.losses.values().all(|count| *count == 0), "{tier}: {:?}", report.losses);
            let row = |name: &str| report.methods.iter().find(|row| row.method == name);
            let counted = row("call").with_context(|| format!("{tier}: no row of call"))?;
            let timed = row("copy").with_context(|| format!("{tier}: no row of copy"))?;
            ensure!(
                (counted.calls, counted.counted, &*counted.state) == (CALLS, CALLS, "counted"),
                "{tier}: {counted:?}"
            );
            ensure!((timed.calls, timed.counted, &*timed.state) == (CALLS, 0, "timed"), "{tier}: {timed:?}");
            ensure!(row("lock").is_none(), "{tier}: {:?}", row("lock"));
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that what is no rule is an error, and that a rule for no method is told and does no harm.
#[test]
fn mistakes_are_told() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::consuming(jdk)?;
        let pid = target.pid().to_string();
        let trace = |args: &[&str]| nprof::run(&[&["trace", "--pid", &pid, "-d", "100ms"], args].concat());
        for (rule, says) in [("--rule=copy", "does not say what to do"), ("--rule=copy=guess", "`guess` is nothing")] {
            let run = trace(&[rule])?;
            ensure!(run.code == Some(2) && run.stderr.contains(says), "{run:?}");
        }
        let run = trace(&["targets.Consuming", "--rule=*::kopy=count"])?;
        ensure!(run.code == Some(0) && run.stderr.contains("the rule for `*::kopy` does nothing so far"), "{run:?}");
        target.exit()
    })
}
