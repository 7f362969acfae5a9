//! Which series a function belongs to. Once given, its seat stays: a counter that lost a function would go backwards.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::export::input::Limits;
use crate::export::lasting::lasting;
use crate::model::{MethodSnapshot, Pid, Snapshot, StartTime};

/// A process, named for good.
type Process = (Pid, StartTime);

/// What tells the series of one group of JVMs apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    class: String,
    method: String,
    library: String,
    /// Only if it is wanted.
    signature: Option<String>,
}

impl Name {
    /// The name of a function: that of its first method by class, name and signature. `None` where the class has no
    /// name, as only the shared series may be named.
    fn of(function: &MethodSnapshot, with_signature: bool) -> Option<Self> {
        let methods = function.methods.iter().map(|planned| &planned.method);
        let first = methods.min_by_key(|m| (&m.class, &m.name, &m.signature)).filter(|m| !m.class.is_empty())?;
        Some(Self {
            class: first.class.clone(),
            method: first.name.clone(),
            library: lasting(&function.library).into_owned(),
            signature: with_signature.then(|| first.signature.clone()),
        })
    }

    /// The name of the series that all methods share that have none of their own.
    pub(super) fn other(with_signature: bool) -> Self {
        let empty = String::new;
        Self { class: empty(), method: "other".to_owned(), library: empty(), signature: with_signature.then(empty) }
    }

    /// The labels that it stands for.
    pub(super) fn labels(self) -> Vec<(&'static str, String)> {
        let Self { class, method, library, signature } = self;
        let mut labels = vec![("class", class), ("method", method), ("library", library)];
        labels.extend(signature.map(|signature| ("signature", signature)));
        labels
    }
}

/// The series of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    /// The series of this number, which is its own or that of several functions of one name.
    Own(usize),
    /// The shared series. The number is a hash of its name: hidden methods are counted, but their names, of which
    /// there may be any number over time, are not kept.
    Shared(u64),
}

/// The functions of one name that have no seat yet, and what they have done.
#[derive(Debug, Default)]
struct Rival {
    total_ns: u64,
    calls: u64,
    functions: Vec<(Process, u32)>,
}

/// The seats of all functions of a group of JVMs.
#[derive(Debug, Default)]
pub(super) struct Seats {
    own: HashMap<Name, usize>,
    of_jvm: HashMap<Process, HashMap<u32, Seat>>,
    hasher: RandomState,
}

impl Seats {
    /// Gives a seat to every function of these JVMs that has none. Gives back the names that have got a series of
    /// their own by that, in the order of their numbers.
    ///
    /// Where more compete than there are series, those with the most time win, and of equal ones those with the most
    /// calls.
    pub(super) fn assign(&mut self, jvms: &[&Snapshot], limits: &Limits) -> Vec<Name> {
        let mut rivals: HashMap<Name, Rival> = HashMap::new();
        for jvm in jvms {
            let process = process(jvm);
            let seats = self.of_jvm.entry(process).or_default();
            for function in &jvm.methods {
                if seats.contains_key(&function.index) {
                    continue;
                }
                match Name::of(function, limits.with_signature) {
                    None => {
                        seats.insert(function.index, Seat::Shared(0));
                    }
                    Some(name) => match self.own.get(&name) {
                        Some(&at) => {
                            seats.insert(function.index, Seat::Own(at));
                        }
                        None => rivals.entry(name).or_default().join(process, function),
                    },
                }
            }
        }
        self.decide(rivals, limits.series_per_jvm)
    }

    fn decide(&mut self, rivals: HashMap<Name, Rival>, series: usize) -> Vec<Name> {
        let mut rivals: Vec<(Name, Rival)> = rivals.into_iter().collect();
        // By name at last, so that the outcome is always the same.
        rivals.sort_unstable_by(|(a, x), (b, y)| {
            (Reverse((x.total_ns, x.calls)), a).cmp(&(Reverse((y.total_ns, y.calls)), b))
        });
        let mut new = Vec::new();
        for (name, rival) in rivals {
            let at = self.own.len();
            let seat = if at < series { Seat::Own(at) } else { Seat::Shared(self.hasher.hash_one(&name)) };
            for (process, index) in rival.functions {
                self.of_jvm.entry(process).or_default().insert(index, seat);
            }
            if matches!(seat, Seat::Own(_)) {
                self.own.insert(name.clone(), at);
                new.push(name);
            }
        }
        new
    }

    /// The seats of a JVM's functions, by their index.
    pub(super) fn of_jvm(&self, jvm: &Snapshot) -> Option<&HashMap<u32, Seat>> {
        self.of_jvm.get(&process(jvm))
    }

    /// Forgets the seats of a JVM that has ended.
    pub(super) fn leave(&mut self, jvm: &Snapshot) {
        self.of_jvm.remove(&process(jvm));
    }

    /// Forgets the seats of all JVMs but these.
    pub(super) fn keep_only(&mut self, jvms: &[&Snapshot]) {
        let living: HashSet<Process> = jvms.iter().map(|jvm| process(jvm)).collect();
        self.of_jvm.retain(|process, _| living.contains(process));
    }

    /// How many methods share the shared series.
    pub(super) fn hidden(&self) -> usize {
        let seats = self.of_jvm.values().flat_map(HashMap::values);
        let hidden: HashSet<u64> = seats
            .filter_map(|seat| match seat {
                Seat::Shared(hash) => Some(*hash),
                Seat::Own(_) => None,
            })
            .collect();
        hidden.len()
    }

    /// Whether no JVM has seats.
    pub(super) fn is_empty(&self) -> bool {
        self.of_jvm.is_empty()
    }
}

impl Rival {
    fn join(&mut self, process: Process, function: &MethodSnapshot) {
        self.total_ns = self.total_ns.saturating_add(function.total_ns);
        self.calls = self.calls.saturating_add(function.calls);
        self.functions.push((process, function.index));
    }
}

fn process(jvm: &Snapshot) -> Process {
    (jvm.jvm.pid, jvm.jvm.start_time)
}
