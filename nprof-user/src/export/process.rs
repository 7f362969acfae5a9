//! What nprof itself uses, for the usual `process_*` metrics.
//!
//! The crate `prometheus-client` has no collector of that. The one of the crate `prometheus` rounds CPU time down to whole
//! seconds, of which a tracer that is to cost less than 1 % of a core has few.

use procfs::process::{LimitValue, Process};

use super::exposition::Collected;
use super::families::Id;
use super::labels::Labels;
use super::series::Value;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// What the process uses at one moment. What could not be read is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// CPU time, user and system, in nanoseconds.
    pub(super) cpu_ns: Option<u64>,
    pub(super) open_fds: Option<u64>,
    /// The soft limit; `None` also where there is none.
    pub(super) max_fds: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    /// Nanoseconds since 1970.
    pub(super) started_ns: Option<u64>,
}

impl Usage {
    /// Reads it from `/proc/self`.
    pub(super) fn read() -> Self {
        let Ok(process) = Process::myself() else { return Self::default() };
        let open_fds = process.fd_count().ok().and_then(|n| u64::try_from(n).ok());
        let max_fds = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(max) => Some(max),
            LimitValue::Unlimited => None,
        });
        let Ok(stat) = process.stat() else { return Self { open_fds, max_fds, ..Self::default() } };
        let boot_ns = procfs::boot_time_secs().ok().map(|seconds| seconds.saturating_mul(NS_PER_SECOND));
        Self {
            cpu_ns: Some(ticks_ns(stat.utime.saturating_add(stat.stime))),
            open_fds,
            max_fds,
            virtual_bytes: Some(stat.vsize),
            resident_bytes: Some(stat.rss.saturating_mul(procfs::page_size())),
            threads: u64::try_from(stat.num_threads).ok(),
            started_ns: boot_ns.map(|boot| boot.saturating_add(ticks_ns(stat.starttime))),
        }
    }

    /// Adds the metrics.
    pub(super) fn show(&self, out: &mut Collected) {
        let none = Labels::of_host([]);
        let values = [
            (Id::ProcessCpu, self.cpu_ns.map(Value::Nanoseconds)),
            (Id::ProcessOpenFds, self.open_fds.map(Value::Whole)),
            (Id::ProcessMaxFds, self.max_fds.map(Value::Whole)),
            (Id::ProcessVirtualMemory, self.virtual_bytes.map(Value::Whole)),
            (Id::ProcessResidentMemory, self.resident_bytes.map(Value::Whole)),
            (Id::ProcessThreads, self.threads.map(Value::Whole)),
            (Id::ProcessStartTime, self.started_ns.map(Value::Nanoseconds)),
        ];
        for (family, value) in values {
            if let Some(value) = value {
                out.push(family, &none, value);
            }
        }
    }
}

/// Clock ticks in nanoseconds.
fn ticks_ns(ticks: u64) -> u64 {
    ticks.saturating_mul(NS_PER_SECOND / procfs::ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that everything can be read of a process that surely runs, and is plausible.
    #[test]
    fn reads_its_own_usage() {
        let usage = Usage::read();
        assert!(usage.open_fds.unwrap() >= 3);
        assert!(usage.resident_bytes.unwrap() < usage.virtual_bytes.unwrap());
        assert!(usage.threads.unwrap() >= 2, "a test runs on a separate thread");
        let now = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
        let age = now.abs_diff(usage.started_ns.unwrap());
        assert!(age < 3600 * NS_PER_SECOND, "started {age} ns ago");
        assert!(usage.cpu_ns.unwrap() < 3600 * NS_PER_SECOND);
    }
}
