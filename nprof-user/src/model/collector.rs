//! What can be collected of calls besides counts and times: the one table of it.

use std::fmt;

use nprof_common::{Consumed, Counter, Counters};

/// Something that the user can have collected, by its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Collector {
    /// The word for it.
    pub name: &'static str,
    /// What it is, for help.
    pub help: &'static str,
    /// What it shows of each function.
    pub columns: &'static [Column],
}

/// One number of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// The word for it in documents.
    pub name: &'static str,
    /// The same in the head of a table.
    pub title: &'static str,
    /// What it is counted in.
    pub unit: CountedIn,
    /// The counters that it is the sum of.
    pub counters: &'static [Counter],
    /// Of bytes: the counter of which it is known how many each call consumed, and what stands above half of the calls, and above 99 of
    /// a hundred.
    pub per_call: Option<(Counter, [&'static str; 2])>,
}

/// What a number is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedIn {
    /// Events.
    Events,
    /// Bytes.
    Bytes,
}

/// Every collector. A new one is a row here, and its counters' source in `attach/counters.rs`.
pub const COLLECTORS: [Collector; 10] = [
    Collector {
        name: "faults",
        help: "page faults, and those that waited for storage",
        columns: &[
            events("faults", "FAULTS", &[Counter::MinorFaults, Counter::MajorFaults]),
            events("major_faults", "MAJOR", &[Counter::MajorFaults]),
        ],
    },
    Collector {
        name: "switches",
        help: "times that the thread left its CPU, and that it was taken off it",
        columns: &[
            events("switches", "SWITCHES", &[Counter::VoluntarySwitches, Counter::InvoluntarySwitches]),
            events("preemptions", "PREEMPTED", &[Counter::InvoluntarySwitches]),
        ],
    },
    Collector {
        name: "io",
        help: "bytes of read(2), write(2) and their kin: of files, pipes and sockets",
        columns: &[
            bytes("read_bytes", "READ", ["READ ~P50", "READ ~P99"], &[Counter::ReadBytes]),
            bytes("written_bytes", "WRITTEN", ["WRITTEN ~P50", "WRITTEN ~P99"], &[Counter::WrittenBytes]),
        ],
    },
    Collector {
        name: "disk",
        help: "bytes that storage had to read, or will have to write",
        columns: &[
            bytes("disk_read_bytes", "DISK READ", ["DISK READ ~P50", "DISK READ ~P99"], &[Counter::DiskReadBytes]),
            bytes(
                "disk_written_bytes",
                "DISK WRITTEN",
                ["DISK WRITTEN ~P50", "DISK WRITTEN ~P99"],
                &[Counter::DiskWrittenBytes],
            ),
        ],
    },
    Collector {
        name: "net",
        help: "bytes received from sockets and sent to them, by whichever system call",
        columns: &[
            bytes("received_bytes", "RECEIVED", ["RECEIVED ~P50", "RECEIVED ~P99"], &[Counter::ReceivedBytes]),
            bytes("sent_bytes", "SENT", ["SENT ~P50", "SENT ~P99"], &[Counter::SentBytes]),
        ],
    },
    Collector {
        name: "syscalls",
        help: "system calls",
        columns: &[events("syscalls", "SYSCALLS", &[Counter::Syscalls])],
    },
    Collector {
        name: "locks",
        help: "waits for a lock or condition of user space (futex)",
        columns: &[events("lock_waits", "LOCK WAITS", &[Counter::LockWaits])],
    },
    Collector {
        name: "mapped",
        help: "bytes of address space asked for by mmap(2) and mremap(2)",
        columns: &[bytes("mapped_bytes", "MAPPED", ["MAPPED ~P50", "MAPPED ~P99"], &[Counter::MappedBytes])],
    },
    Collector {
        name: "alloc",
        help: "bytes asked for by malloc and its kin, and how often: a probe on each, whoever calls it",
        columns: &[
            bytes("alloc_bytes", "ALLOCATED", ["ALLOCATED ~P50", "ALLOCATED ~P99"], &[Counter::AllocBytes]),
            events("allocations", "ALLOCATIONS", &[Counter::Allocations]),
        ],
    },
    Collector {
        name: "results",
        help: "calls that returned zero, false or null, a negative number, or with an exception pending",
        columns: &[
            events("zero_results", "ZERO", &[Counter::ZeroResults]),
            events("negative_results", "NEGATIVE", &[Counter::NegativeResults]),
            events("exceptions", "THROWN", &[Counter::Exceptions]),
        ],
    },
];

const fn events(name: &'static str, title: &'static str, counters: &'static [Counter]) -> Column {
    Column { name, title, unit: CountedIn::Events, counters, per_call: None }
}

const fn bytes(
    name: &'static str,
    title: &'static str,
    quantiles: [&'static str; 2],
    counter: &'static [Counter; 1],
) -> Column {
    Column { name, title, unit: CountedIn::Bytes, counters: counter, per_call: Some((counter[0], quantiles)) }
}

impl Column {
    /// The number, of what calls have consumed without traced calls that they made.
    #[must_use]
    pub fn own(&self, consumed: &Consumed) -> u64 {
        self.of(&consumed.own)
    }

    /// The same with these.
    #[must_use]
    pub fn total(&self, consumed: &Consumed) -> u64 {
        self.of(&consumed.total)
    }

    /// Whether it is about how calls ended.
    #[must_use]
    pub fn is_of_results(&self) -> bool {
        let results = [Counter::ZeroResults, Counter::NegativeResults, Counter::Exceptions];
        self.counters.iter().all(|counter| results.contains(counter))
    }

    /// The number, of these counters.
    #[must_use]
    pub fn of(&self, counters: &Counters) -> u64 {
        self.counters.iter().map(|counter| counters[*counter as usize]).fold(0, u64::saturating_add)
    }
}

/// Some of the [`COLLECTORS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collectors(u32);

impl Collectors {
    /// Those with these names.
    ///
    /// # Errors
    /// The first name that no collector has.
    pub fn named<'a>(names: &[&'a str]) -> Result<Self, &'a str> {
        let bit = |name: &&'a str| Some(1 << COLLECTORS.iter().position(|collector| collector.name == *name)?);
        names.iter().try_fold(Self::default(), |all, name| Ok(Self(all.0 | bit(name).ok_or(*name)?)))
    }

    /// Those of these names that there are.
    #[must_use]
    pub fn known(names: &[String]) -> Self {
        let known = names.iter().filter_map(|name| Self::named(&[name.as_str()]).ok());
        known.fold(Self::default(), Self::and)
    }

    /// These and others.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are among `others`, too.
    #[must_use]
    pub fn shared_with(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether they tell how calls ended.
    #[must_use]
    pub fn have_results(self) -> bool {
        self.counters() & Counter::Exceptions.bit() != 0
    }

    /// Whether they tell what allocators are asked for.
    #[must_use]
    pub fn have_allocations(self) -> bool {
        self.counters() & Counter::OF_ALLOCATORS != 0
    }

    /// These but for what tells that.
    #[must_use]
    pub fn without_allocations(self) -> Self {
        let is_kept = |place: &usize| !Self(1 << place).have_allocations();
        Self((0..COLLECTORS.len()).filter(is_kept).fold(0, |bits, place| bits | self.0 & 1 << place))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The collectors, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = &'static Collector> {
        COLLECTORS.iter().enumerate().filter(move |(place, _)| self.0 >> place & 1 == 1).map(|(_, collector)| collector)
    }

    /// What they show of each function.
    pub fn columns(self) -> impl Iterator<Item = &'static Column> {
        self.iter().flat_map(|collector| collector.columns)
    }

    /// The counters that they need: bits of [`Counter`].
    #[must_use]
    pub fn counters(self) -> u32 {
        self.columns().flat_map(|column| column.counters).fold(0, |bits, counter| bits | counter.bit())
    }
}

impl fmt::Display for Collectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(|collector| collector.name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are understood, in any order, and that one that nothing has is given back.
    #[test]
    fn by_name() {
        let some = Collectors::named(&["syscalls", "faults"]).unwrap();
        assert_eq!(some.to_string(), "faults,syscalls");
        assert_eq!(some.counters(), Counter::MinorFaults.bit() | Counter::MajorFaults.bit() | Counter::Syscalls.bit());
        assert_eq!(Collectors::named(&["faults", "colour"]), Err("colour"));
        assert!(Collectors::named(&[]).is_ok_and(Collectors::is_empty));
        let all = Collectors::named(&["alloc", "mapped", "io"]).unwrap();
        assert!(all.have_allocations() && !some.have_allocations());
        assert_eq!(all.without_allocations().to_string(), "io,mapped");
    }

    /// Check that a column is the sum of its counters, with and without what nested calls consumed.
    #[test]
    fn columns_are_sums() {
        let mut consumed = Consumed::default();
        consumed.total[Counter::MinorFaults as usize] = 7;
        consumed.total[Counter::MajorFaults as usize] = 2;
        consumed.own[Counter::MinorFaults as usize] = 3;
        let faults = COLLECTORS.iter().flat_map(|collector| collector.columns).find(|column| column.name == "faults");
        assert_eq!(faults.map(|faults| (faults.total(&consumed), faults.own(&consumed))), Some((9, 3)));
    }

    /// Check that every counter is shown by a collector, and that no two columns have the same name.
    #[test]
    fn every_counter_is_shown() {
        let all = Collectors(u32::MAX);
        assert_eq!(all.counters(), Counter::ALL.iter().fold(0, |bits, counter| bits | counter.bit()));
        let names: std::collections::BTreeSet<&str> = all.columns().map(|column| column.name).collect();
        assert_eq!(names.len(), all.columns().count());
    }
}
