//! The threads of a process: their numbers and names.

use super::{Error, Proc};
use crate::model::Pid;

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its number in the namespace of the `/proc` that is read: the host's.
    pub tid: u32,
    /// Its number in the process's own namespace.
    pub ns_tid: u32,
    /// Its name, 15 bytes at most.
    pub name: String,
}

impl Proc {
    /// The numbers of a process's threads, on the host.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn tids(&self, pid: Pid) -> Result<Vec<u32>, Error> {
        let path = self.root.join(pid.to_string()).join("task");
        let entries = std::fs::read_dir(&path).map_err(|source| Error::Io { path, source })?;
        let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        Ok(entries.filter_map(number).collect())
    }

    /// One thread of a process; `None` if it is gone.
    #[must_use]
    pub fn thread(&self, pid: Pid, tid: u32) -> Option<Thread> {
        let path = self.root.join(pid.to_string()).join("task").join(tid.to_string()).join("status");
        parse(tid, &std::fs::read_to_string(path).ok()?)
    }
}

fn parse(tid: u32, status: &str) -> Option<Thread> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let name = field("Name:\t")?.to_owned();
    // From the outermost namespace to its own; old kernels do not say.
    let ns_tid = field("NSpid:").and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(tid);
    Some(Thread { tid, ns_tid, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the innermost namespace's number counts, and that a kernel without namespaces does.
    #[test]
    fn reads_numbers() {
        let status = "Name:\tC2 CompilerThre\nUmask:\t0022\nNSpid:\t5123\t17\n";
        let thread = Thread { tid: 5123, ns_tid: 17, name: "C2 CompilerThre".into() };
        assert_eq!(parse(5123, status), Some(thread.clone()));
        assert_eq!(parse(9, "Name:\ta\n").map(|thread| thread.ns_tid), Some(9));
        assert_eq!(parse(9, ""), None);
    }

    /// Check that the threads of this process are found, this one among them.
    #[test]
    fn lists_threads() {
        let (proc, pid) = (Proc::host(), Pid(std::process::id()));
        let tids = proc.tids(pid).unwrap();
        let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(tids.contains(&own), "{tids:?}");
        assert_eq!(proc.thread(pid, own).map(|thread| thread.tid), Some(own));
    }
}
