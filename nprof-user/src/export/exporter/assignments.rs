//! Which series a function belongs to. Once given, its series stays: a counter that lost a function would go backwards.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::export::input::Limits;
use crate::export::lasting::lasting;
use crate::model::{MethodSnapshot, Pid, SharedStr, Snapshot, StartTime};

/// A process, named for good.
type Process = (Pid, StartTime);

/// What tells the series of one group of JVMs apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    class: SharedStr,
    method: SharedStr,
    library: SharedStr,
    /// Only if it is wanted.
    signature: Option<SharedStr>,
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
            library: SharedStr::from(&*lasting(&function.library)),
            signature: with_signature.then(|| first.signature.clone()),
        })
    }

    /// The name of the series that all methods share that have none of their own.
    pub(super) fn other(with_signature: bool) -> Self {
        let empty = || SharedStr::from("");
        Self { class: empty(), method: "other".into(), library: empty(), signature: with_signature.then(empty) }
    }

    /// The labels that it stands for.
    pub(super) fn labels(self) -> Vec<(&'static str, SharedStr)> {
        let Self { class, method, library, signature } = self;
        let mut labels = vec![("class", class), ("method", method), ("library", library)];
        labels.extend(signature.map(|signature| ("signature", signature)));
        labels
    }
}

/// The series of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assigned {
    /// The series of this number, which is its own or that of several functions of one name.
    Own(usize),
    /// The shared series. The number is a hash of its name: hidden methods are counted, but their names, of which
    /// there may be any number over time, are not kept.
    Shared(u64),
}

/// The functions of one name that have no series yet, and what they have done.
#[derive(Debug, Default)]
struct Candidate {
    total_ns: u64,
    calls: u64,
    functions: Vec<(Process, u32)>,
}

/// The assignments of all functions of a group of JVMs.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    own: HashMap<Name, usize>,
    of_jvm: HashMap<Process, HashMap<u32, Assigned>>,
    hasher: RandomState,
}

impl Assignments {
    /// Gives a series to every function of these JVMs that has none. Gives back the names that have got a series of
    /// their own by that, in the order of their numbers.
    ///
    /// Where more compete than there are series, those with the most time win, and of equal ones those with the most
    /// calls.
    pub(super) fn assign(&mut self, jvms: &[&Snapshot], limits: &Limits) -> Vec<Name> {
        let mut candidates: HashMap<Name, Candidate> = HashMap::new();
        for jvm in jvms {
            let process = process(jvm);
            let assignments = self.of_jvm.entry(process).or_default();
            for function in &jvm.methods {
                if assignments.contains_key(&function.index) {
                    continue;
                }
                match Name::of(function, limits.with_signature) {
                    None => {
                        assignments.insert(function.index, Assigned::Shared(0));
                    }
                    Some(name) => match self.own.get(&name) {
                        Some(&at) => {
                            assignments.insert(function.index, Assigned::Own(at));
                        }
                        None => candidates.entry(name).or_default().join(process, function),
                    },
                }
            }
        }
        self.decide(candidates, limits.series_per_jvm)
    }

    fn decide(&mut self, candidates: HashMap<Name, Candidate>, series: usize) -> Vec<Name> {
        let mut candidates: Vec<(Name, Candidate)> = candidates.into_iter().collect();
        // By name at last, so that the outcome is always the same.
        candidates.sort_unstable_by(|(a, x), (b, y)| {
            (Reverse((x.total_ns, x.calls)), a).cmp(&(Reverse((y.total_ns, y.calls)), b))
        });
        let mut new = Vec::new();
        for (name, candidate) in candidates {
            let at = self.own.len();
            let assigned = if at < series { Assigned::Own(at) } else { Assigned::Shared(self.hasher.hash_one(&name)) };
            for (process, index) in candidate.functions {
                self.of_jvm.entry(process).or_default().insert(index, assigned);
            }
            if matches!(assigned, Assigned::Own(_)) {
                self.own.insert(name.clone(), at);
                new.push(name);
            }
        }
        new
    }

    /// The assignments of a JVM's functions, by their index.
    pub(super) fn of_jvm(&self, jvm: &Snapshot) -> Option<&HashMap<u32, Assigned>> {
        self.of_jvm.get(&process(jvm))
    }

    /// Forgets the assignments of a JVM that has ended.
    pub(super) fn leave(&mut self, jvm: &Snapshot) {
        self.of_jvm.remove(&process(jvm));
    }

    /// Forgets the assignments of all JVMs but these.
    pub(super) fn keep_only(&mut self, jvms: &[&Snapshot]) {
        let living: HashSet<Process> = jvms.iter().map(|jvm| process(jvm)).collect();
        self.of_jvm.retain(|process, _| living.contains(process));
    }

    /// How many methods share the shared series.
    pub(super) fn hidden(&self) -> usize {
        let assignments = self.of_jvm.values().flat_map(HashMap::values);
        let hidden: HashSet<u64> = assignments
            .filter_map(|assigned| match assigned {
                Assigned::Shared(hash) => Some(*hash),
                Assigned::Own(_) => None,
            })
            .collect();
        hidden.len()
    }

    /// Whether no JVM has assignments.
    pub(super) fn is_empty(&self) -> bool {
        self.of_jvm.is_empty()
    }
}

impl Candidate {
    fn join(&mut self, process: Process, function: &MethodSnapshot) {
        // What is too expensive to watch is not to be hidden for that.
        let unseen_ns = function.unseen.map_or(0, |unseen| unseen.total_ns);
        self.total_ns = self.total_ns.saturating_add(function.total_ns).saturating_add(unseen_ns);
        self.calls = self.calls.saturating_add(function.all_calls());
        self.functions.push((process, function.index));
    }
}

fn process(jvm: &Snapshot) -> Process {
    (jvm.jvm.pid, jvm.jvm.start_time)
}
