//! The fields of `/proc/PID/status` that nprof needs.
//!
//! Parsed here and not by `procfs`, which gives up on a process whose name is not UTF-8; a process picks its name.

use crate::model::Pid;

/// What `/proc/PID/status` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// The process's name, at most 15 bytes; escapes are left as the kernel writes them.
    pub(super) comm: String,
    /// The process that the thread with this directory's id belongs to.
    pub(super) tgid: Pid,
    /// Its number in its own namespace of process ids; old kernels do not say.
    pub(super) ns_pid: Option<u32>,
    /// The effective user id.
    pub(super) euid: u32,
    /// Whether any of its user ids, the real and the saved one included, is root's.
    pub(super) has_root: bool,
    /// The effective group id.
    pub(super) egid: u32,
    /// `Z` for a zombie, `X` for a dead process.
    pub(super) state: char,
    /// The effective capabilities, as bits.
    pub(super) cap_eff: u64,
    /// The capabilities that it may make effective, as bits.
    pub(super) cap_permitted: u64,
    /// 0 none, 1 strict, 2 filter.
    pub(super) seccomp: u32,
    /// Which signals the thread holds off, as bits; the first signal is bit 0.
    pub(super) blocked: u64,
    /// Which signals the process ignores.
    pub(super) ignored: u64,
    /// For which signals the process has its own function.
    pub(super) caught: u64,
}

impl Status {
    /// Parses the file; `None` if a field that has always been there is missing.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name: &str| field(name)?.parse::<u32>().ok();
        let effective = |name: &str| field(name)?.split_whitespace().nth(1)?.parse::<u32>().ok();
        let bits = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            comm: field("Name")?.to_owned(),
            tgid: Pid(number("Tgid")?),
            ns_pid: field("NSpid").and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()),
            euid: effective("Uid")?,
            has_root: field("Uid")?.split_whitespace().any(|uid| uid == "0"),
            egid: effective("Gid")?,
            state: field("State")?.chars().next()?,
            cap_eff: bits("CapEff")?,
            cap_permitted: bits("CapPrm").unwrap_or(u64::MAX),
            seccomp: number("Seccomp").unwrap_or(0),
            blocked: bits("SigBlk").unwrap_or(0),
            ignored: bits("SigIgn").unwrap_or(0),
            caught: bits("SigCgt").unwrap_or(0),
        })
    }

    /// Whether the process has ended and only its entry is left.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tjava\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nPid:\t42\n\
        Uid:\t1000\t1001\t1000\t1000\nGid:\t100\t101\t100\t100\nNSpid:\t42\t7\nSigBlk:\t0000000000000004\n\
        SigIgn:\t0000000000000000\nSigCgt:\t0000000181005ccf\nCapEff:\t000001ffffffffff\nSeccomp:\t2\n";

    /// Check that the effective user id is taken, not the real one, and that numbers are read in their base.
    #[test]
    fn reads_the_fields() {
        let status = Status::parse(STATUS).unwrap();
        assert_eq!(status.comm, "java");
        assert_eq!((status.tgid, status.euid, status.egid), (Pid(42), 1001, 101));
        assert_eq!((status.ns_pid, status.blocked, status.caught), (Some(7), 4, 0x1_8100_5ccf));
        assert_eq!(status.cap_eff, 0x1ff_ffff_ffff);
        assert_eq!(status.seccomp, 2);
        assert!(!status.has_ended());
    }

    /// Check that a name that is not UTF-8 does not hide the process.
    #[test]
    fn accepts_any_name() {
        let mut bytes = b"Name:\tj\xff\xfe\n".to_vec();
        bytes.extend_from_slice(&STATUS[STATUS.iter().position(|b| *b == b'\n').unwrap() + 1..]);
        assert_eq!(Status::parse(&bytes).unwrap().tgid, Pid(42));
    }

    /// Check that a file without its fields is refused instead of read as zeros.
    #[test]
    fn refuses_half_a_file() {
        assert_eq!(Status::parse(&STATUS[..40]), None);
    }
}
