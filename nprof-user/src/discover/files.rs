//! What the file descriptors of a process stand for.

use super::Proc;
use crate::model::Pid;

/// Longer names are cut.
const MAX_NAME: usize = 256;

impl Proc {
    /// What a file descriptor of a process stands for: a path, `socket:[123]`, `pipe:[123]`, `anon_inode:[eventpoll]`. `None` if it
    /// is closed. Nothing is opened, so whatever it stands for, nobody waits for it.
    #[must_use]
    pub fn file(&self, pid: Pid, fd: i32) -> Option<String> {
        let link = self.root.join(pid.to_string()).join("fd").join(fd.to_string());
        let name = std::fs::read_link(link).ok()?;
        Some(name.to_string_lossy().chars().take(MAX_NAME).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    /// Check that an open descriptor has a name, of bounded length, and a closed one none.
    #[test]
    fn names_of_descriptors() {
        let host = TestProc::new();
        host.link("proc/7/fd/5", "socket:[77]");
        host.link("proc/7/fd/6", "a".repeat(300));
        let name = |fd| host.proc().file(Pid(7), fd);
        assert_eq!(name(5).as_deref(), Some("socket:[77]"));
        assert_eq!(name(6).map(|name| name.len()), Some(MAX_NAME));
        assert_eq!((name(4), name(-1)), (None, None));
    }
}
