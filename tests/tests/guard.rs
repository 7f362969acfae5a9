//! A hostile JVM names a place for a probe that would harm others, on a kernel that does not keep probes to one process:
//! links without a filter are what such a kernel makes of all.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nprof::attach::{Collect, Engine, Session, Target, reach};
use nprof::discover::Proc;
use nprof::model::{Pid, Reach, SkipReason};
use nprof::resolve::select::Selection;
use nprof::trace::{Error, Options, Prepared, calibrate};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_kernel, say, traced_on_every_jdk};
use nprof_tests::target::{Targets, cargo_target_dir};
use tempfile::TempDir;

/// What the shared function returns, and what it returns with a breakpoint on its operand.
const RIGHT: &str = "90909090";
const WRONG: &str = "909090cc";
const NOBODY: u32 = 65534;

/// A victim and a JVM that names the middle of an instruction of a library that both use.
struct Scene {
    _directory: TempDir,
    victim: RemoteProcess,
    hostile: RemoteProcess,
}

impl Scene {
    /// `owner`: whose the library is.
    fn new(jdk: &Jdk, owner: u32) -> Result<Self> {
        let directory = TempDir::new_in(cargo_target_dir())?;
        let library = directory.path().join("libtwisted.so");
        std::fs::copy(Targets::get()?.library("libtwisted.so"), &library)?;
        std::fs::set_permissions(&library, Permissions::from_mode(0o755))?;
        chown(&library, Some(owner), Some(owner))?;
        let [victim, hostile] = [false, true].map(|twist| RemoteProcess::twisted(jdk, &library, twist));
        Ok(Self { _directory: directory, victim: victim?, hostile: hostile? })
    }

    fn values(&mut self) -> Result<[String; 2]> {
        Ok([self.victim.run("value")?.concat(), self.hostile.run("value")?.concat()])
    }

    /// The hostile JVM's natives, planned for a kernel of a sort.
    fn prepared(&self, reach: Reach) -> Result<Prepared> {
        let proc = Proc::host();
        let jvm = proc.jvm(Pid(self.hostile.pid()))?;
        let patterns = ["value", "twisted"].map(|name| format!("targets.Twisted::{name}"));
        let selection = Selection::parse(&patterns, &[], &[])?;
        Ok(Prepared::new(proc, jvm, Options { reach: Some(reach), ..Options::by_probes(selection) })?)
    }

    fn exit(self) -> Result<()> {
        self.victim.exit()?;
        self.hostile.exit()
    }
}

/// What attaches without the kernel's filter.
fn unfiltered() -> Result<Arc<Engine>> {
    Ok(Arc::new(Engine::load_reaching(16, &Collect::nothing(), Reach::Everyone)?))
}

/// Check that the kernel under test is found to keep probes to one process, if its release says that it does.
#[test]
fn asks_the_kernel() -> Result<()> {
    on_kernel(|| {
        let version = Proc::host().kernel_version().context("no version")?;
        ensure!(version < "6.10".parse()? || reach()? == Reach::Target, "{version} is found to let probes out");
        Ok(())
    })
}

/// Check that a place in the middle of an instruction is refused with its reason, that the function around it is traced,
/// and that nobody computes anything wrong meanwhile.
#[test]
fn the_middle_of_an_instruction() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut scene = Scene::new(jdk, 0)?;
        let engine = unfiltered()?;
        let calibrated = calibrate(&Proc::host(), &engine)?;
        let mut tracer = scene.prepared(Reach::Everyone)?.attach_to(&engine, calibrated, None)?;
        for _ in 0..5 {
            ensure!(scene.values()? == [RIGHT, RIGHT], "{:?}", scene.values()?);
        }
        tracer.stop();
        let snapshot = tracer.snapshot();
        let skipped: Vec<_> =
            snapshot.skipped.iter().map(|one| (one.method.method.name.as_str(), one.reason)).collect();
        ensure!(skipped == [("twisted", SkipReason::UnprovenStart)], "{skipped:?}");
        let counted: Vec<u64> = snapshot.methods.iter().map(|method| method.calls).collect();
        ensure!(counted == [5], "{counted:?}: of the victim's calls none counts");
        scene.exit()
    })
}

/// Check that nothing is probed in a file that is not the system's, whatever it says of itself.
#[test]
fn a_file_that_anybody_wrote() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut scene = Scene::new(jdk, NOBODY)?;
        let plan = scene.prepared(Reach::Everyone)?.plan();
        let reasons: Vec<SkipReason> = plan.skipped.iter().map(|skipped| skipped.reason).collect();
        ensure!(plan.probes.is_empty() && reasons == [SkipReason::UntrustedFile; 2], "{plan:?}");
        ensure!(scene.values()? == [RIGHT, RIGHT], "{:?}", scene.values()?);
        scene.exit()
    })
}

/// Check that what was planned for a kernel that keeps probes to the target is not attached on one that does not.
#[test]
fn plans_of_another_kernel() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let scene = Scene::new(jdk, 0)?;
        let engine = unfiltered()?;
        let attached = scene.prepared(Reach::Target)?.attach_to(&engine, calibrate(&Proc::host(), &engine)?, None);
        ensure!(matches!(attached, Err(Error::Defect { .. })), "{attached:?}");
        scene.exit()
    })
}

/// Check that the harm is real: that the other tests would see it.
#[test]
fn what_is_guarded_against() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut scene = Scene::new(jdk, 0)?;
        let target = Target { pid: Pid(scene.hostile.pid()), timed: false };
        let mut session = Session::new(unfiltered()?, target);
        // It keeps the library open.
        let prepared = scene.prepared(Reach::Target)?;
        let plan = prepared.plan();
        let twisted = plan.probes.iter().find(|probe| probe.methods[0].method.name == "twisted");
        let twisted = twisted.context("the native is not planned")?;
        ensure!(scene.values()? == [RIGHT, RIGHT], "{:?}", scene.values()?);
        let attached = session.attach(&plan.libraries, std::slice::from_ref(twisted));
        ensure!(attached.attached.len() == 1, "{attached:?}");
        ensure!(scene.values()? == [WRONG, WRONG], "{:?}: no harm was done", scene.values()?);
        session.detach();
        ensure!(scene.values()? == [RIGHT, RIGHT], "{:?}", scene.values()?);
        scene.exit()
    })
}

/// Check that all natives of a JDK are proven: that on such a kernel none is lost for want of it.
#[test]
fn natives_of_the_jdk() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::deep(jdk)?;
        let planned = |reach| -> Result<_> {
            let proc = Proc::host();
            let jvm = proc.jvm(Pid(target.pid()))?;
            let options = Options { reach: Some(reach), ..Options::by_probes(Selection::default()) };
            Ok(Prepared::new(proc, jvm, options)?.plan())
        };
        let (kept, free) = (planned(Reach::Everyone)?, planned(Reach::Target)?);
        let count = |reason| kept.skipped.iter().filter(|skipped| skipped.reason == reason).count();
        let (unproven, untrusted) = (count(SkipReason::UnprovenStart), count(SkipReason::UntrustedFile));
        say(&format!(
            "{jdk}: {} of {} functions are probed, {unproven} methods are unproven, {untrusted} in files that are not root's",
            kept.probes.len(),
            free.probes.len()
        ));
        ensure!(free.probes.len() > 100 && unproven == 0, "{:?}", kept.skipped);
        ensure!(untrusted > 0 || kept.probes.len() == free.probes.len(), "{:?}", kept.skipped);
        target.exit()
    })
}
