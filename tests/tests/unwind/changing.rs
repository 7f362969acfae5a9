//! The same while methods mean something else than before: classes that go, are redefined, code that is deoptimised.

use anyhow::{Result, ensure};
use nprof_tests::require::{on_every_jdk, rounds};

use super::session::Session;
use super::tally::Tally;
use super::waiting::Waiting;

/// Check that every frame is the VM's own while classes are loaded, compiled and unloaded, so that addresses come to mean other methods.
#[test]
fn agreement_outlasts_class_unloading() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        let mut tally = Tally::default();
        session.target.run("churn 40")?;
        for _ in 0..20 * rounds()? {
            session.compare(jdk, "fresh,inlined,callback3,lambda,stream,reflection,handle", &mut tally)?;
        }
        tally.judge(jdk, "churn")
    })
}

/// Check that methods whose class has been redefined while they wait are still named, whether they were met before or
/// not, and so are those of the new version.
#[test]
fn redefined_methods_are_named() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        for warming in [0, 3_000] {
            session.target.run(&format!("warm {warming} redefined"))?;
            let waiting = Waiting::all(&mut session.target, "redefined,direct")?;
            let mut tally = Tally::default();
            session.look(jdk, &waiting, &mut tally)?;
            session.target.run("redefine")?;
            session.look(jdk, &waiting, &mut tally)?;
            session.renew()?;
            session.look(jdk, &waiting, &mut tally)?;
            session.target.run("release")?;
            session.compare(jdk, "redefined", &mut tally)?;
            tally.judge(jdk, "redefined")?;
        }
        Ok(())
    })
}

/// Check that code that has been deoptimised while it waited is still named.
#[test]
fn deoptimised_frames_are_named() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xbatch"])?;
        let mut tally = Tally::default();
        session.target.run("warm 20000 deoptimised")?;
        session.compare(jdk, "deoptimised,direct", &mut tally)?;
        ensure!(tally.kinds.contains_key("Deoptimised"), "none was deoptimised: nothing was proven: {tally}");
        tally.judge(jdk, "deoptimised")
    })
}
