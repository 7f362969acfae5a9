//! The threads of a process: their numbers and names, and whether one runs.

use super::{Error, Proc};
use crate::model::Pid;

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its number in the namespace of the `/proc` that is read: the host's.
    pub tid: u32,
    /// Its number in the process's own namespace.
    pub ns_tid: u32,
    /// Whether that namespace is another one, be the number the same.
    pub is_contained: bool,
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

    /// Whether a thread is on a CPU: it has been let on one once more than it has left one. `None` if it is gone, or the kernel does
    /// not say.
    #[must_use]
    pub fn is_on_cpu(&self, pid: Pid, tid: u32) -> Option<bool> {
        let task = self.root.join(pid.to_string()).join("task").join(tid.to_string());
        let read = |file: &str| std::fs::read_to_string(task.join(file)).ok();
        is_on_cpu(&read("status")?, &read("schedstat")?)
    }
}

fn is_on_cpu(status: &str, schedstat: &str) -> Option<bool> {
    let left = |how: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(how)?.strip_prefix("_ctxt_switches:"))?.trim().parse().ok()
    };
    let entered: u64 = schedstat.split_whitespace().nth(2)?.parse().ok()?;
    (entered > 0).then_some(())?;
    Some(entered == left("voluntary")? + left("nonvoluntary")? + 1)
}

fn parse(tid: u32, status: &str) -> Option<Thread> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let name = field("Name:\t")?.to_owned();
    // From the outermost namespace to its own; old kernels do not say.
    let numbers = || field("NSpid:").unwrap_or_default().split_whitespace();
    let ns_tid = numbers().last().and_then(|number| number.parse().ok()).unwrap_or(tid);
    Some(Thread { tid, ns_tid, is_contained: numbers().count() > 1, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the innermost namespace's number counts, and that a kernel without namespaces does.
    #[test]
    fn reads_numbers() {
        let status = "Name:\tC2 CompilerThre\nUmask:\t0022\nNSpid:\t5123\t17\n";
        let thread = Thread { tid: 5123, ns_tid: 17, is_contained: true, name: "C2 CompilerThre".into() };
        assert_eq!(parse(5123, status), Some(thread.clone()));
        let numbers = |status: &str| parse(9, status).map(|thread| (thread.ns_tid, thread.is_contained));
        assert_eq!(numbers("Name:\ta\n"), Some((9, false)));
        assert_eq!(numbers("Name:\ta\nNSpid:\t9\n"), Some((9, false)));
        assert_eq!(numbers("Name:\ta\nNSpid:\t9\t9\n"), Some((9, true)));
        assert_eq!(parse(9, ""), None);
    }

    /// Check that a thread that has come onto a CPU more often than it has left is on one; nothing is said without these numbers.
    #[test]
    fn tells_who_is_on_a_cpu() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n";
        let found = ["5 9 10\n", "5 9 9\n", "0 0 0\n", ""].map(|schedstat| is_on_cpu(status, schedstat));
        assert_eq!(found, [Some(true), Some(false), None, None]);
        assert_eq!(is_on_cpu("Name:\ta\n", "5 9 10\n"), None);
    }

    /// Check that a thread that asks is on a CPU, and one that waits is not.
    #[test]
    fn running_and_waiting() {
        let (proc, pid) = (Proc::host(), Pid(std::process::id()));
        let own = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        // It may leave the CPU between both files.
        assert!((0..100).any(|_| proc.is_on_cpu(pid, own()) == Some(true)));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            tell.send(own()).unwrap();
            ends.recv().unwrap_err();
        });
        let tid = told.recv().unwrap();
        while proc.is_on_cpu(pid, tid) != Some(false) {
            std::thread::yield_now();
        }
        drop(end);
        waiting.join().unwrap();
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
