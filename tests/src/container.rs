//! Targets in containers: their own namespaces, an overlay as root, another user, a cgroup with a container's id.
//! Made with what util-linux has; no container runtime is needed.
//!
//! Everything that is mounted is mounted in the container's own namespace and vanishes with it; the cgroup and the
//! directories are removed when the container is dropped, also by a test that fails. Of a test process that is killed an
//! empty cgroup and two directories under the temporary one stay; the target ends with its stdin.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::cgroup::Cgroup;
use crate::jdk::Jdk;
use crate::process::RemoteProcess;
use crate::target::Targets;

/// Runs as root in a separate mount namespace.
const SETUP: &str = include_str!("container_setup.sh");

/// The user that containers run as: a number without a name.
pub const UID: u32 = 12345;

/// Where in the overlay the target's files lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// In the image.
    Lower,
    /// As if the container had written them.
    Upper,
}

/// How the container enters its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The overlay is the root of the mount namespace.
    Pivot,
    /// The overlay is one of the mounts in the namespace.
    Chroot,
}

/// What sort of container to start.
#[derive(Debug, Clone)]
pub struct Sort {
    /// Where its files lie.
    pub layer: Layer,
    /// How it enters its root.
    pub root: Root,
    /// Whether it has a user namespace too, in which it is root.
    pub user_namespace: bool,
    /// The directory, as the container sees it, of the target's classes and library.
    pub app: PathBuf,
    /// The class that is the target.
    pub main: &'static str,
}

impl Default for Sort {
    /// As containers mostly are, with its files where the host has none, and natives of many shapes.
    fn default() -> Self {
        Self {
            layer: Layer::Lower,
            root: Root::Pivot,
            user_namespace: false,
            app: "/srv/nprof-tests/app".into(),
            main: "targets.Shapes",
        }
    }
}

/// A target that runs in a container. Dropping it ends it and takes everything away.
#[derive(Debug)]
pub struct Container {
    // The order is that of dropping: what the processes use goes after them.
    target: RemoteProcess,
    cgroup: Option<Cgroup>,
    base: TempDir,
    _image: TempDir,
    app: PathBuf,
}

impl Container {
    /// Starts a container and returns when the target in it is ready.
    ///
    /// # Errors
    /// When it cannot be set up or the target does not start.
    pub fn start(jdk: &Jdk, sort: &Sort) -> Result<Self> {
        let (image, base) = (image(&sort.app)?, TempDir::new()?);
        let cgroup = Cgroup::new()?;
        let target = RemoteProcess::in_namespaces(jdk, &mut command(jdk, sort, &image, &base, cgroup.as_ref())?)?;
        Ok(Self { target, cgroup, base, _image: image, app: sort.app.clone() })
    }

    /// The container's id; `None` where the host has no cgroups of version 2 to be had.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.cgroup.as_ref().map(Cgroup::id)
    }

    /// The target's library as the container sees it.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.app.join("libshapes.so")
    }

    /// Deletes the target's library inside the container.
    ///
    /// # Errors
    /// When it is not there.
    pub fn delete_library(&self) -> Result<()> {
        let inside = PathBuf::from(format!("/proc/{}/root", self.pid())).join(self.library().strip_prefix("/")?);
        std::fs::remove_file(&inside).with_context(|| format!("{}", inside.display()))
    }

    /// Takes the container's file systems out of its mount namespace while it runs on them. Only with
    /// [`Root::Chroot`]: the root of a namespace cannot be unmounted.
    ///
    /// # Errors
    /// When they are not mounted.
    pub fn unmount_root(&self) -> Result<()> {
        self.enter(&["umount", "--lazy", "--recursive"], &[self.base.path()])
    }

    /// Makes it one of the hardened sort: its root cannot be written to, and where it may write nothing can be executed. Not with
    /// [`Root::Chroot`].
    ///
    /// # Errors
    /// As [`Self::mount`].
    pub fn harden(&self) -> Result<()> {
        for directory in ["/tmp", "/dev/shm"] {
            self.mount(&["-t", "tmpfs", "-o", "noexec,mode=1777", "none", directory])?;
        }
        self.mount(&["-o", "remount,bind,ro", "/"])
    }

    /// Mounts something in it. Not with [`Root::Chroot`], where paths are those of the host.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(&self, args: &[&str]) -> Result<()> {
        self.enter(&["mount"], args)
    }
}

impl Container {
    /// Runs a command in its mount namespace.
    fn enter(&self, command: &[&str], args: &[impl AsRef<OsStr>]) -> Result<()> {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &self.pid().to_string(), "--mount"]).args(command).args(args);
        let output = nsenter.output().context("nsenter")?;
        ensure!(output.status.success(), "{nsenter:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Deref for Container {
    type Target = RemoteProcess;

    fn deref(&self) -> &RemoteProcess {
        &self.target
    }
}

impl DerefMut for Container {
    fn deref_mut(&mut self) -> &mut RemoteProcess {
        &mut self.target
    }
}

/// The container's own files: the target under the path `app`, readable for every user.
fn image(app: &Path) -> Result<TempDir> {
    let image = TempDir::new()?;
    let directory = image.path().join(app.strip_prefix("/").context("the path of the target is absolute")?);
    std::fs::create_dir_all(&directory)?;
    let targets = Targets::get()?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(targets.classes()).arg(targets.library("libshapes.so")).arg(&directory);
    ensure!(copy.status()?.success(), "{copy:?}");
    let mut permit = Command::new("chmod");
    ensure!(permit.args(["-R", "a+rX"]).arg(image.path()).status()?.success(), "{permit:?}");
    Ok(image)
}

/// The command that becomes the target's parent.
fn command(jdk: &Jdk, sort: &Sort, image: &TempDir, base: &TempDir, cgroup: Option<&Cgroup>) -> Result<Command> {
    let mut command = Command::new("/bin/sh");
    // A process joins by itself, so that its children are born in the cgroup.
    command.args(["-euc", "if [ -n \"$CGROUP\" ]; then echo 0 >\"$CGROUP\"; fi; exec unshare --mount \"$@\"", "sh"]);
    command.args(["/bin/sh", "-c", SETUP, "setup"]);
    command.arg(jdk.tool("java")).args(["-Xmx128m", "-cp"]).arg(sort.app.join("classes"));
    // Other targets do not look at it.
    command.arg(sort.main).arg(sort.app.join("libshapes.so"));
    let word = |yes, word, other| if yes { word } else { other };
    command.env("LC_ALL", "C.UTF-8").env_remove("JAVA_TOOL_OPTIONS");
    command.env("CGROUP", cgroup.map(Cgroup::members).unwrap_or_default());
    command.env("IMAGE", image.path().canonicalize()?).env("BASE", base.path().canonicalize()?).env("JDK", &jdk.home);
    command.env("LAYER", word(sort.layer == Layer::Upper, "upper", "lower"));
    command.env("ROOT", word(sort.root == Root::Pivot, "pivot", "chroot"));
    command.env("USER_NAMESPACE", word(sort.user_namespace, "yes", "no")).env("OUTER_UID", UID.to_string());
    Ok(command)
}
