//! JVMs in containers: other namespaces, another user, files that the host does not have. They are found, named, listed
//! and counted as those beside them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nprof_tests::container::{Container, Layer, Root, Sort, UID};
use nprof_tests::name::MethodName;
use nprof_tests::nprof::{Trace, methods, ps};
use nprof_tests::process::{Called, RemoteProcess};
use nprof_tests::report::ListedMethod;
use nprof_tests::require::{say, traced_on_every_jdk};
use nprof_tests::shim::still_stubbed;
use nprof_tests::target::Targets;
use rustix::fs::inotify;
use tempfile::TempDir;

use crate::TARGETS;
use crate::record_trees::must_be_recorded;
use crate::tiers::{must_add_up, must_be_stubbed};
use crate::tree::follow_in;
use crate::tree_cli::must_be_lines;

/// What is said of a method that has nothing to do with where its JVM runs.
type Said = (Option<String>, Option<u64>, Option<u64>, String, Option<String>);

fn said(method: &ListedMethod) -> (MethodName, Said) {
    let ListedMethod { library, offset, entry, bound, reason, .. } = method.clone();
    (method.name(), (library, offset, entry, bound, reason))
}

/// Runs `before` and then all checks on a container of the sort, with every JDK. (`trace --all` is checked in `all.rs`.)
fn contained(sort: &Sort, before: impl Fn(&Container) -> Result<()>) -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut outside = RemoteProcess::shapes(jdk)?;
        let mut inside = Container::start(jdk, sort)?;
        before(&inside)?;
        is_shown(&inside).context("ps")?;
        is_listed_as(&inside, &outside).context("methods")?;
        is_counted_alone(&mut inside, &mut outside).context("trace --pid")?;
        shares_a_library(&mut inside, &mut outside).context("trace of the JDK")
    })
}

/// Checks that `ps` shows the container's host pid, main class, user and id.
fn is_shown(container: &Container) -> Result<()> {
    let list = ps()?;
    let row = list.jvms.iter().find(|row| row.pid == container.pid());
    let row = row.with_context(|| format!("no {} in {list:?}", container.pid()))?;
    ensure!(row.main == "targets.Shapes" && row.supported && row.problem.is_none(), "{row:?}");
    ensure!((row.uid, row.user.as_deref()) == (UID, None), "{row:?}");
    match container.id() {
        Some(id) => ensure!(row.container.as_deref() == Some(id), "not {id}: {row:?}"),
        None => say("not checked: the container's id: no cgroups of version 2 to write to"),
    }
    Ok(())
}

/// Checks that `methods` says of every method what it says of it in a JVM on the host.
fn is_listed_as(inside: &Container, outside: &RemoteProcess) -> Result<()> {
    let listed = |pid| -> Result<BTreeMap<_, _>> { Ok(methods(pid, &[TARGETS])?.methods.iter().map(said).collect()) };
    let (inside, outside) = (listed(inside.pid())?, listed(outside.pid())?);
    ensure!(outside.len() > 20, "too few to prove anything: {outside:?}");
    ensure!(inside == outside, "inside: {inside:#?}\noutside: {outside:#?}");
    Ok(())
}

/// Checks that its calls are counted to the unit, and those of the JVM outside are not counted.
fn is_counted_alone(inside: &mut Container, outside: &mut RemoteProcess) -> Result<()> {
    for shape in ["all", "dying"] {
        let trace = Trace::start(inside.pid(), &[TARGETS])?;
        outside.calls(shape, 2, 10)?;
        let called = inside.calls(shape, 2, 200)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        report.must_be_lossless()?;
    }
    Ok(())
}

/// Checks that calls into a library that both have from the host's disk, seen by one through an overlay, are told apart
/// too: the probe is in a file that other processes have mapped.
fn shares_a_library(inside: &mut Container, outside: &mut RemoteProcess) -> Result<()> {
    let collect = MethodName::new("java.lang.Runtime", "gc", "()V");
    for (pid, calls) in [(inside.pid(), 3), (outside.pid(), 2)] {
        let trace = Trace::start(pid, &["java.lang.Runtime::gc"])?;
        (0..3).try_for_each(|_| inside.run("collect").map(drop))?;
        (0..2).try_for_each(|_| outside.run("collect").map(drop))?;
        let report = trace.finish()?;
        report.must_equal(&[Called { methods: vec![collect.clone()], made: calls, counted: calls }])?;
        report.must_be_lossless()?;
    }
    Ok(())
}

/// Check a container as they mostly are, with its files in its image.
#[test]
fn with_the_library_in_the_image() -> Result<()> {
    contained(&Sort::default(), |_| Ok(()))
}

/// Check a container that has written its library itself, to a path that the host does not have.
#[test]
fn with_a_library_of_its_own() -> Result<()> {
    contained(&Sort { layer: Layer::Upper, ..Sort::default() }, |container| {
        ensure!(!container.library().exists(), "the host has {}", container.library().display());
        Ok(())
    })
}

/// A file of the host that has the path of a container's library, and who opens it.
pub(crate) struct Decoy {
    _directory: TempDir,
    path: PathBuf,
    watch: OwnedFd,
}

impl Decoy {
    pub(crate) fn new() -> Result<Self> {
        let directory = TempDir::new()?;
        let path = directory.path().canonicalize()?.join("libshapes.so");
        std::fs::copy(Targets::get()?.library("liblate.so"), &path)?;
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN)?;
        Ok(Self { _directory: directory, path, watch })
    }

    /// A container with its target at the same path.
    pub(crate) fn sort(&self, layer: Layer) -> Result<Sort> {
        let app = self.path.parent().context("a directory")?.to_owned();
        Ok(Sort { layer, app, ..Sort::default() })
    }

    /// Checks that nobody has opened it.
    pub(crate) fn must_be_unopened(&self) -> Result<()> {
        let nothing = rustix::io::read(&self.watch, &mut [0; 4096]);
        ensure!(nothing == Err(rustix::io::Errno::AGAIN), "the host's file was opened");
        // A watch that sees nothing must be able to see something.
        drop(std::fs::File::open(&self.path)?);
        ensure!(rustix::io::read(&self.watch, &mut [0; 4096])? > 0, "the watch does not work");
        Ok(())
    }
}

/// Check that the host's file of the same path is neither taken for the container's nor opened at all.
#[test]
fn with_another_file_at_the_same_path_on_the_host() -> Result<()> {
    let decoy = Decoy::new()?;
    for layer in [Layer::Upper, Layer::Lower] {
        contained(&decoy.sort(layer)?, |_| Ok(()))?;
    }
    decoy.must_be_unopened()
}

/// Check a container whose library was deleted after it was loaded.
#[test]
fn with_a_deleted_library() -> Result<()> {
    for layer in [Layer::Upper, Layer::Lower] {
        contained(&Sort { layer, ..Sort::default() }, Container::delete_library)?;
    }
    Ok(())
}

/// Check a container that has not changed the root of its mount namespace.
#[test]
fn in_a_chroot() -> Result<()> {
    contained(&Sort { root: Root::Chroot, ..Sort::default() }, |_| Ok(()))
}

/// Check a container whose file systems have been unmounted under it.
#[test]
fn with_its_root_unmounted() -> Result<()> {
    for layer in [Layer::Upper, Layer::Lower] {
        contained(&Sort { layer, root: Root::Chroot, ..Sort::default() }, |container| {
            container.unmount_root()?;
            let mounts = PathBuf::from(format!("/proc/{}/mountinfo", container.pid()));
            let mounts = std::fs::read_to_string(mounts)?;
            ensure!(!mounts.contains("overlay"), "still mounted: {mounts}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Check a container with a user namespace, in which it is root.
#[test]
fn in_a_user_namespace() -> Result<()> {
    for layer in [Layer::Upper, Layer::Lower] {
        contained(&Sort { layer, user_namespace: true, ..Sort::default() }, |_| Ok(()))?;
    }
    Ok(())
}

/// Check that stubs count the calls in containers of all sorts to the unit, and are gone afterwards.
#[test]
fn by_stubs() -> Result<()> {
    let sorts = [
        Sort::default(),
        Sort { layer: Layer::Upper, ..Sort::default() },
        Sort { root: Root::Chroot, ..Sort::default() },
        Sort { user_namespace: true, ..Sort::default() },
    ];
    traced_on_every_jdk(|jdk| {
        for sort in &sorts {
            let mut container = Container::start(jdk, sort)?;
            let trace = Trace::start(container.pid(), &["--tier", "stub", TARGETS])?;
            let called = container.calls("all", 2, 200)?;
            let report = trace.finish()?;
            must_add_up(&report, &called)?;
            must_be_stubbed(&report, &called)?;
            ensure!(still_stubbed(container.pid())?.is_empty(), "stubs are left");
        }
        Ok(())
    })
}

/// Check that stubs count exactly where the JVM has no `/proc`, also when nprof comes again and the shim's library has to be
/// found by its path.
#[test]
fn by_stubs_without_proc() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut container = Container::start(jdk, &Sort { root: Root::Chroot, ..Sort::default() })?;
        container.unmount_root()?;
        for _ in 0..2 {
            let trace = Trace::start(container.pid(), &["--tier", "stub", TARGETS])?;
            let called = container.calls("all", 2, 200)?;
            let report = trace.finish()?;
            must_add_up(&report, &called)?;
            must_be_stubbed(&report, &called)?;
            ensure!(still_stubbed(container.pid())?.is_empty(), "stubs are left");
        }
        Ok(())
    })
}

/// Checks what trees are about in a container: what is told, printed and recorded is exact, and classes are restored. (How waiting is told
/// from work is checked in `waiting.rs`.)
fn has_trees(sort: &Sort, before: impl Fn(&Container) -> Result<()>) -> Result<()> {
    let sort = Sort { main: "targets.Trees", ..sort.clone() };
    traced_on_every_jdk(|jdk| {
        let mut container = Container::start(jdk, &sort)?;
        before(&container)?;
        follow_in(&mut container, 4, "platform").context("of the library")?;
        must_be_lines(&mut container).context("of `nprof tree`")?;
        must_be_recorded(&mut container).context("of `nprof record --tree`")
    })
}

/// Check trees in containers as they mostly are, and with a user namespace.
#[test]
fn trees() -> Result<()> {
    for user_namespace in [false, true] {
        has_trees(&Sort { user_namespace, ..Sort::default() }, |_| Ok(()))?;
    }
    Ok(())
}

/// Check trees where the root is read-only, and nothing may be executed where the JVM may write.
#[test]
fn trees_in_a_hardened_one() -> Result<()> {
    has_trees(&Sort { user_namespace: true, ..Sort::default() }, Container::harden)
}

/// Check trees where the JVM has no `/proc`.
#[test]
fn trees_without_proc() -> Result<()> {
    has_trees(&Sort { root: Root::Chroot, ..Sort::default() }, Container::unmount_root)
}
