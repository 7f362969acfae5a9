//! A cgroup that is named as container runtimes name them, removed with all that runs in it.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::child::PATIENCE;

/// One cgroup of version 2. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    id: String,
}

impl Cgroup {
    /// Makes one for a container with a new id; `None` where no hierarchy of version 2 can be written to.
    ///
    /// # Errors
    /// When the mounts of this process cannot be read.
    pub fn new() -> Result<Option<Self>> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let Some(hierarchy) = hierarchy(&mounts) else { return Ok(None) };
        // Each `RandomState` has its own keys; the ids have to differ, no more.
        let id: String = (0..4_u64).map(|word| format!("{:016x}", RandomState::new().hash_one(word))).collect();
        let path = hierarchy.join(format!("docker-{id}.scope"));
        Ok(std::fs::create_dir(&path).is_ok().then_some(Self { path, id }))
    }

    /// The container's id: 64 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The file that a process joins through.
    #[must_use]
    pub fn members(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Kills everything in it, waits until it is empty and removes it.
    fn remove(&self) -> Result<()> {
        std::fs::write(self.path.join("cgroup.kill"), "1").context("cgroup.kill")?;
        let events = self.path.join("cgroup.events");
        let limit = Timespec { tv_sec: PATIENCE.as_secs().try_into()?, tv_nsec: 0 };
        loop {
            // The kernel reports a change since the file was opened.
            let file = File::open(&events)?;
            if std::fs::read_to_string(&events)?.contains("populated 0") {
                return Ok(std::fs::remove_dir(&self.path)?);
            }
            let changed = poll(&mut [PollFd::new(&file, PollFlags::PRI)], Some(&limit))?;
            ensure!(changed > 0, "{} is not empty after {PATIENCE:?}", self.path.display());
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            crate::require::say(&format!("left behind: {}: {error:#}", self.path.display()));
        }
    }
}

/// Where cgroups of version 2 are mounted.
fn hierarchy(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [_, path, "cgroup2", ..] => Some(Path::new(path)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the second version is found beside the first.
    #[test]
    fn finds_the_hierarchy() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(hierarchy(mounts), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n"), None);
    }

    /// Check that a cgroup goes away with what runs in it.
    #[test]
    fn goes_away_with_its_processes() {
        let Some(cgroup) = Cgroup::new().unwrap() else { return };
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        std::fs::write(cgroup.members(), child.id().to_string()).unwrap();
        let path = cgroup.path.clone();
        drop(cgroup);
        assert!(!path.exists());
        assert!(!child.wait().unwrap().success());
    }
}
