//! Gives up every privilege that nprof does not use, so that a mistake in it is worth less to whoever finds one.
//!
//! Capabilities belong to a thread, not to a process, and new threads inherit those of the thread that makes them.
//! The kernel offers no way to change all threads at once. So they are dropped while there is one thread only, and
//! [`drop_all_but_needed`] refuses to leave others behind with more.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// What nprof uses all along, since JVMs and libraries come at any time. `docs/permissions.md` says what for.
const NEEDED: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CapabilitySet::CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// What was left by [`drop_all_but_needed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Names of the needed capabilities that were there and stay, permitted and effective.
    pub kept: Vec<&'static str>,
    /// Names of the needed capabilities that were not there to begin with.
    pub missing: Vec<&'static str>,
    /// How many capabilities were given up.
    pub dropped: u32,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.kept.is_empty() { "none".to_owned() } else { self.kept.join(", ") };
        write!(f, "capabilities kept: {kept}; dropped: {}", self.dropped)?;
        if !self.missing.is_empty() {
            write!(f, "; never had: {}", self.missing.join(", "))?;
        }
        Ok(())
    }
}

/// Drops all capabilities but the needed ones, for good.
///
/// Afterwards the permitted and the effective set hold what is left of the needed five. The inheritable, ambient and
/// bounding sets are empty and `no_new_privs` is set: nprof starts no programs, and one that was started in its place
/// would get nothing. (The bounding set stays as it was if `CAP_SETPCAP` is not there to change it; with
/// `no_new_privs` it has no effect.)
///
/// To be called when all that needs more is done (sockets bound and given to their group, files opened), and before
/// the first thread is started, that of a runtime included.
///
/// # Errors
/// If there are other threads already (nothing is changed then), or the kernel refuses, which it does only under a
/// seccomp filter that forbids `capset` or `prctl`.
pub fn drop_all_but_needed() -> io::Result<Dropped> {
    let threads = Path::new("/proc/self/task").read_dir()?.count();
    if threads != 1 {
        let why = format!("capabilities can be dropped only before threads are started, and there are {threads}");
        return Err(io::Error::other(why));
    }
    drop_in_this_thread()
}

fn drop_in_this_thread() -> io::Result<Dropped> {
    let before = capabilities(None)?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    empty_bounding_set()?;
    let kept = before.permitted & needed();
    // Last, because emptying the bounding set takes a capability.
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    let names = |are_kept: bool| {
        NEEDED.iter().filter(|(bit, _)| kept.contains(*bit) == are_kept).map(|(_, name)| *name).collect::<Vec<_>>()
    };
    let dropped = before.permitted.difference(kept).bits().count_ones();
    Ok(Dropped { kept: names(true), missing: names(false), dropped })
}

fn needed() -> CapabilitySet {
    NEEDED.iter().fold(CapabilitySet::empty(), |set, (bit, _)| set | *bit)
}

fn empty_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // Beyond the last capability that this kernel knows; or not allowed, which `no_new_privs` makes up for.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// A line of the status of the calling thread.
    fn status(name: &str) -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }

    fn set(name: &str) -> u64 {
        u64::from_str_radix(&status(name), 16).unwrap()
    }

    /// Check that just the needed capabilities stay, nothing can be inherited, and threads that are started later
    /// have no more. Threads that were there before keep theirs, which is why the public function refuses them.
    #[test]
    fn only_the_needed_stay() {
        let before = set("CapPrm");
        let bound = if before & CapabilitySet::SETPCAP.bits() == 0 { set("CapBnd") } else { 0 };
        let (dropped, sets) = thread::spawn(move || {
            let dropped = drop_in_this_thread().unwrap();
            let look = || ["CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs"].map(set);
            let later = thread::spawn(look).join().unwrap();
            assert_eq!(look(), later);
            (dropped, later)
        })
        .join()
        .unwrap();
        // The numbers of include/uapi/linux/capability.h: 39, 38, 19, 40 and 2.
        let kept = before & (1 << 39 | 1 << 38 | 1 << 19 | 1 << 40 | 1 << 2);
        assert_eq!(sets, [kept, kept, 0, 0, bound, 1]);
        assert_eq!(dropped.kept.len(), kept.count_ones() as usize);
        assert_eq!(dropped.kept.len() + dropped.missing.len(), NEEDED.len());
        assert_eq!(dropped.dropped, (before & !kept).count_ones());
        assert_eq!(set("CapPrm"), before);
    }

    /// Check that nothing is dropped while other threads would keep what they have.
    #[test]
    fn other_threads_are_refused() {
        let before = set("CapPrm");
        // A test runs on a separate thread beside the main one.
        let error = drop_all_but_needed().unwrap_err();
        assert!(error.to_string().contains("before threads are started"), "{error}");
        assert_eq!((set("CapPrm"), status("NoNewPrivs").as_str()), (before, "0"));
    }

    /// Check that what stays and what was never there is said by name.
    #[test]
    fn says_what_stays() {
        let dropped = Dropped { kept: vec!["CAP_BPF"], missing: vec!["CAP_PERFMON"], dropped: 7 };
        assert_eq!(dropped.to_string(), "capabilities kept: CAP_BPF; dropped: 7; never had: CAP_PERFMON");
    }
}
