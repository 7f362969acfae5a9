//! The user's own programs at the calls of one JVM: which runs at which function, what that costs, and what they have counted.

mod meter;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::meter::Meter;
use crate::attach::{ProgramError, ProgramFiles, Session, UserPrograms, WantedProgram};
use crate::govern::{By, Costs, Programs};
use crate::model::{CallEnd, Method, Price, Probe, ProbeCost, ProgramValues, Tracing};
use crate::resolve::program_rule::ProgramRule;

/// The programs that the user wants to run, and where.
#[derive(Debug, Clone)]
pub struct ProgramOptions {
    rules: Arc<[ProgramRule]>,
    files: Arc<ProgramFiles>,
}

impl ProgramOptions {
    /// Reads the files of some rules.
    ///
    /// # Errors
    /// For a file that holds no such program.
    pub fn read(rules: Vec<ProgramRule>) -> Result<Self, ProgramError> {
        let wanted = |rule: &ProgramRule| {
            let (file, program) = (rule.file.clone(), rule.program.clone());
            WantedProgram { file, program, end: rule.end }
        };
        let files = ProgramFiles::read(&rules.iter().map(wanted).collect::<Vec<WantedProgram>>())?;
        Ok(Self { rules: rules.into(), files: Arc::new(files) })
    }

    /// The names of the objects that results have values of.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.files.names().collect()
    }

    /// What there is to say of rules that are about none of these methods.
    pub(super) fn idle<'a>(&'a self, methods: &'a [Method]) -> impl Iterator<Item = String> + 'a {
        self.rules.iter().filter_map(|rule| rule.unmatched(methods))
    }

    /// Loads the programs for a JVM with room for so many functions.
    ///
    /// # Errors
    /// If the kernel or its verifier refuses something.
    pub(super) fn load(&self, functions: u32, costs: &Costs) -> Result<JvmPrograms, ProgramError> {
        let loaded = Arc::new(self.files.load(functions)?);
        let meter = Mutex::new(Meter::start(&loaded));
        let return_ns = [0, 1].map(|kind| (costs.timed_ns[kind] - costs.counted_ns[kind]).max(0.0));
        Ok(JvmPrograms { rules: Arc::clone(&self.rules), loaded, ends: Mutex::default(), meter, return_ns })
    }
}

/// The numbers of the programs at a function: on its entry, and on its return.
type Ends = [Option<usize>; 2];

/// The programs that run at the calls of a JVM.
#[derive(Debug)]
pub(super) struct JvmPrograms {
    rules: Arc<[ProgramRule]>,
    loaded: Arc<UserPrograms>,
    /// By the function's dense index.
    ends: Mutex<BTreeMap<u32, Ends>>,
    meter: Mutex<Meter>,
    /// What a probe on the return costs by itself, at each kind of site.
    return_ns: [f64; 2],
}

impl JvmPrograms {
    /// Begins to run programs in a session.
    pub(super) fn begin(&self, session: &mut Session) {
        session.begin_programs(Arc::clone(&self.loaded));
    }

    /// Chooses the programs of functions that are about to be attached, and tells the programs their names.
    pub(super) fn choose(&self, probes: &[Probe], session: &mut Session) {
        for probe in probes {
            let ends = CallEnd::ALL.map(|end| chosen(&self.rules, probe, end));
            if let Some(first) = probe.methods.iter().map(|known| &known.method).min_by_key(|method| name_of(method)) {
                self.loaded.name(probe.index, first);
            }
            ends.iter().flatten().for_each(|program| session.run(probe.index, *program));
            lock(&self.ends).insert(probe.index, ends);
        }
    }

    /// Measures again what programs cost, if it is time to.
    pub(super) fn measure(&self) {
        lock(&self.meter).measure(&self.loaded);
    }

    /// Nothing runs for now.
    pub(super) fn rest(&self) {
        lock(&self.meter).rest();
    }

    /// Who sees the calls of a function at a site of this kind of which the user wants so much.
    pub(super) fn by(&self, index: u32, site: ProbeCost, wanted: Tracing) -> By {
        match self.added(index, site, wanted) {
            none if none == Programs::default() => By::Probe(site),
            added => By::ProbeAnd(site, added),
        }
    }

    /// A price with what the programs of a function add.
    pub(super) fn dearer(&self, price: Price, index: u32, site: ProbeCost, wanted: Tracing) -> Price {
        let added = self.added(index, site, wanted);
        let (timed_ns, counted_ns) = (u64::from(added.timed_ns), u64::from(added.counted_ns));
        Price { timed_ns: price.timed_ns + timed_ns, counted_ns: price.counted_ns + counted_ns, ..price }
    }

    /// What the programs have counted.
    pub(super) fn values(&self) -> Vec<ProgramValues> {
        let ends = lock(&self.ends).clone();
        let chosen = ends.iter().flat_map(|(index, ends)| ends.iter().flatten().map(|program| (*index, *program)));
        self.loaded.values(&chosen.collect::<Vec<_>>())
    }

    fn added(&self, index: u32, site: ProbeCost, wanted: Tracing) -> Programs {
        let Some(ends) = lock(&self.ends).get(&index).copied() else { return Programs::default() };
        let return_ns = self.return_ns[usize::from(site == ProbeCost::SingleStepped)];
        lock(&self.meter).added(ends, return_ns, wanted)
    }
}

/// The program of the last rule that is about one of a function's methods.
fn chosen(rules: &[ProgramRule], probe: &Probe, end: CallEnd) -> Option<usize> {
    let is_about = |rule: &ProgramRule| probe.methods.iter().any(|known| rule.selects(&known.method));
    rules.iter().rposition(|rule| rule.end == end && is_about(rule))
}

fn name_of(method: &Method) -> (&str, &str, &str) {
    (&method.class, &method.name, &method.signature)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept there is changed as a whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
