//! Turns methods into probes, now and each time more of them are found.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::code::Kept;
use super::guard::Guard;
use super::image::{Image, ImageError};
use super::locate::{Function, Libraries};
use super::select::Selection;
use super::site;
use crate::model::{
    Bound, FileOffset, Library, LibraryId, Method, NativeCode, Plan, PlannedMethod, Probe, ProbeCost, Site, SkipReason,
    Skipped, VirtAddr,
};

/// How much may be planned.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many functions may be probed in all (`--max-methods`, or what the maps have room for).
    pub functions: usize,
}

/// What a function is known by: its library and its entry.
type FunctionKey = (LibraryId, FileOffset);

/// Where a function is probed and what that costs, or why it is not.
type Chosen = Result<(FileOffset, ProbeCost), SkipReason>;

/// The plan of one target, which grows with the target.
#[derive(Debug)]
pub struct Planner {
    selection: Selection,
    limits: Limits,
    /// Where probes reach everyone.
    guard: Option<Guard>,
    /// What probes have to find unchanged.
    keep: Kept,
    /// Whether the VM calls critical functions.
    critical: bool,
    libraries: Libraries,
    /// Shared with who lists them, until there are others.
    probes: Arc<Vec<Probe>>,
    /// Indices are never used twice: what was counted under one stays its.
    next_index: u32,
    /// Functions that are planned beside what is limited.
    beside: usize,
    by_function: HashMap<FunctionKey, usize>,
    /// Functions that cannot be probed: they are not tried again, which would cost an index each time.
    refused: HashMap<FunctionKey, SkipReason>,
    /// By method, so that one that becomes traceable is no longer listed.
    skipped: HashMap<VirtAddr, Skipped>,
    /// How often it may have changed.
    changes: u64,
}

impl Planner {
    /// An empty plan for what the user selected. With a guard, only what that lets through is probed.
    #[must_use]
    pub fn new(selection: Selection, limits: Limits, guard: Option<Guard>) -> Self {
        Self {
            selection,
            limits,
            guard,
            keep: Kept::Always,
            critical: false,
            libraries: Libraries::default(),
            probes: Arc::default(),
            next_index: 0,
            beside: 0,
            by_function: HashMap::new(),
            refused: HashMap::new(),
            skipped: HashMap::new(),
            changes: 0,
        }
    }

    /// Whether only what a guard lets through is probed.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Has probes find all arguments of a call as they were at its first instruction.
    pub fn keep_arguments(&mut self) {
        self.keep = Kept::WithArguments;
    }

    /// Says that the VM calls the critical functions of methods that have them: they are planned too, each as a function
    /// with its own index. Where the VM does not, such functions may be called by others, and are not the method's.
    pub fn plan_critical(&mut self) {
        self.critical = true;
    }

    /// Takes in methods that are new or have changed, with what is mapped now. Returns the probes to be added.
    ///
    /// A method that was bound elsewhere stays listed at its old function too: calls were counted there.
    pub fn add(&mut self, methods: &[Method], mapped: &[Library]) -> Vec<Probe> {
        let mut wanted: Vec<(Function, PlannedMethod)> = Vec::new();
        let any_library_is_new = self.libraries.update(mapped);
        self.changes += u64::from(any_library_is_new || !methods.is_empty());
        if any_library_is_new {
            for method in self.unbound() {
                self.want(&method, &mut wanted);
            }
        }
        for method in methods {
            if self.selection.selects(method) {
                self.want(method, &mut wanted);
            }
        }
        // Under a limit, what is bound goes before what may never be called.
        wanted.sort_by_key(|(function, _)| function.bound == Bound::Predicted);
        self.probe(wanted)
    }

    /// Takes in functions that are no methods' and that no pattern selects: those of JNI, each as a method of its own. Those that
    /// are in no library are left out. The libraries have to be known: after the first [`Planner::add`].
    pub fn add_jni(&mut self, functions: &[Method]) {
        self.changes += 1;
        self.beside += functions.len();
        let mut wanted = Vec::with_capacity(functions.len());
        for method in functions {
            if let Ok(function) = self.libraries.locate(method) {
                wanted.push((function, PlannedMethod { method: method.clone(), bound: Bound::JniFunction }));
            }
        }
        self.probe(wanted);
    }

    /// As [`Planner::add`], where `methods` are all that are loaded now: what is kept of others is forgotten, so that
    /// the plan stays small however many classes come and go.
    ///
    /// Probes stay, and where `is_counted` says that calls were counted under an index, so do the names of all
    /// methods that these may have been calls of.
    pub fn renew(&mut self, methods: &[Method], mapped: &[Library], is_counted: impl Fn(u32) -> bool) -> Vec<Probe> {
        let loaded: HashSet<VirtAddr> = methods.iter().map(|method| method.id).collect();
        self.changes += 1;
        self.skipped.clear();
        for probe in Arc::make_mut(&mut self.probes).iter_mut().filter(|probe| !is_counted(probe.index)) {
            if probe.methods.iter().any(|known| loaded.contains(&known.method.id)) {
                probe.methods.retain(|known| loaded.contains(&known.method.id));
            } else {
                probe.methods.truncate(1);
            }
        }
        self.add(methods, mapped)
    }

    /// Changes what the user selects. Probes stay in the plan; methods are looked at again by the next [`Planner::renew`].
    pub fn reselect(&mut self, selection: Selection, limits: Limits) {
        (self.selection, self.limits) = (selection, limits);
    }

    /// Whether a probe's function is one that the user selects. JNI functions are planned for no pattern.
    #[must_use]
    pub fn selects(&self, probe: &Probe) -> bool {
        let is_selected = || probe.methods.iter().any(|known| self.selection.selects(&known.method));
        probe.is_of_jni_function() || self.selects_library(probe.site.library) && is_selected()
    }

    /// Whether a method is one that the user selects; `probe` is the index of its function, if that can have a probe. Of others
    /// it is not known in which library they are.
    #[must_use]
    pub fn selects_method(&self, method: &Method, probe: Option<u32>) -> bool {
        let place = probe.and_then(|index| self.probes.binary_search_by_key(&index, |probe| probe.index).ok());
        let is_in_library = match place {
            Some(place) => self.selects_library(self.probes[place].site.library),
            None => !self.selection.is_limited_to_libraries(),
        };
        is_in_library && self.selection.selects(method)
    }

    /// Whether a method's name is one that the user selects, in whatever library it may be.
    #[must_use]
    pub fn selects_name(&self, method: &Method) -> bool {
        self.selection.selects(method)
    }

    /// Whether every method of every library is selected.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        self.selection.is_all()
    }

    /// Changes how much may be planned from now on.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes probes out of the plan that could not be attached.
    pub fn refuse(&mut self, indices: &[u32], reason: SkipReason) {
        self.changes += 1;
        let indices: HashSet<u32> = indices.iter().copied().collect();
        let is_refused = |probe: &mut Probe| indices.contains(&probe.index);
        for probe in Arc::make_mut(&mut self.probes).extract_if(.., is_refused) {
            self.refused.insert((probe.site.library, probe.site.entry), reason);
            let methods = probe.methods.into_iter();
            self.skipped.extend(methods.map(|method| (method.method.id, Skipped { method, reason })));
        }
        let places = self.probes.iter().enumerate();
        self.by_function = places.map(|(place, probe)| ((probe.site.library, probe.site.entry), place)).collect();
    }

    /// A number that stays as it is for as long as the plan does.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Every probe so far, in the order of the index.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The same, to be kept.
    #[must_use]
    pub fn shared_probes(&self) -> Arc<Vec<Probe>> {
        Arc::clone(&self.probes)
    }

    /// Whether a method that is not in the plan would be, if it was found: usually one whose class is gone already.
    #[must_use]
    pub fn would_take(&self, method: &Method) -> bool {
        let is_over = |skipped: &Skipped| skipped.reason == SkipReason::OverLimit;
        !self.selection.is_limited_to_libraries()
            && self.selection.selects(method)
            && self.room() > 0
            && !self.skipped.get(&method.id).is_some_and(is_over)
    }

    /// What a method was bound to when it was planned last.
    #[must_use]
    pub fn code_of(&self, method: &Method) -> Option<NativeCode> {
        let is_same = |known: &&Method| {
            known.id == method.id
                && (&known.class, &known.name, &known.signature) == (&method.class, &method.name, &method.signature)
        };
        let mut known = self.probes.iter().rev().flat_map(|probe| &probe.methods).map(|known| &known.method);
        known.find(is_same).map(|known| known.code)
    }

    /// Every library so far; what [`Site::library`] points into.
    #[must_use]
    pub fn libraries(&self) -> &[Library] {
        self.libraries.all()
    }

    /// The selected methods that are not probed. Where libraries are selected, a method without code is in none.
    pub fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        let limited = self.selection.is_limited_to_libraries();
        self.skipped.values().filter(move |skipped| !(limited && skipped.reason == SkipReason::Unbound))
    }

    /// The whole plan as a value.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan {
            libraries: self.libraries.all().to_vec(),
            probes: self.probes.to_vec(),
            skipped: self.skipped().cloned().collect(),
        }
    }

    /// The methods that a new library may have code for.
    fn unbound(&self) -> Vec<Method> {
        let unbound = self.skipped.values().filter(|skipped| skipped.reason == SkipReason::Unbound);
        unbound.map(|skipped| skipped.method.method.clone()).collect()
    }

    fn want(&mut self, method: &Method, wanted: &mut Vec<(Function, PlannedMethod)>) {
        match self.libraries.locate(method) {
            Ok(function) => {
                self.skipped.remove(&method.id);
                if !self.selects_library(function.library) {
                    return;
                }
                wanted.push((function, PlannedMethod { method: method.clone(), bound: function.bound }));
                if let Some(function) = self.libraries.critical(method, &function).filter(|_| self.critical) {
                    wanted.push((function, PlannedMethod { method: method.clone(), bound: function.bound }));
                }
            }
            Err(reason) => self.skip_unlocated(method, reason),
        }
    }

    fn selects_library(&self, library: LibraryId) -> bool {
        self.libraries.all().get(library.0).is_some_and(|library| {
            self.selection.selects_library(&library.name())
                || self.selection.selects_library(&library.path.to_string_lossy())
        })
    }

    /// A method without a library is not selected where libraries are; one without code may yet get one, and is kept.
    fn skip_unlocated(&mut self, method: &Method, reason: SkipReason) {
        self.skipped.remove(&method.id);
        if self.selection.is_limited_to_libraries() && reason != SkipReason::Unbound {
            return;
        }
        let bound = if reason == SkipReason::NoFile { Bound::Registered } else { Bound::Unbound };
        self.skip(PlannedMethod { method: method.clone(), bound }, reason);
    }

    fn skip(&mut self, method: PlannedMethod, reason: SkipReason) {
        self.skipped.insert(method.method.id, Skipped { method, reason });
    }

    /// Adds the first method of a function that is not probed yet.
    fn push(&mut self, function: Function, (offset, cost): (FileOffset, ProbeCost), method: PlannedMethod) {
        let Function { library, entry, .. } = function;
        self.by_function.insert((library, entry), self.probes.len());
        let site = Site { library, offset, entry, cost };
        Arc::make_mut(&mut self.probes).push(Probe { index: self.next_index, site, methods: vec![method] });
        self.next_index += 1;
    }

    fn probe(&mut self, wanted: Vec<(Function, PlannedMethod)>) -> Vec<Probe> {
        let first_new = self.probes.len();
        let choices = self.choose_sites(&wanted);
        for (function, method) in wanted {
            let key = function.key();
            if let Some(&place) = self.by_function.get(&key) {
                join(&mut Arc::make_mut(&mut self.probes)[place], method);
            } else if let Some(&reason) = self.refused.get(&key) {
                self.skip(method, reason);
            } else if self.room() == 0 {
                self.skip(method, SkipReason::OverLimit);
            } else {
                match choices.get(&key).copied().unwrap_or(Err(SkipReason::UnreadableLibrary)) {
                    Ok(probe) => self.push(function, probe, method),
                    Err(reason) => {
                        self.refused.insert(key, reason);
                        self.skip(method, reason);
                    }
                }
            }
        }
        self.probes[first_new..].to_vec()
    }

    /// How many functions may still be added.
    fn room(&self) -> usize {
        self.limits.functions.saturating_add(self.beside).saturating_sub(self.next_index as usize)
    }

    /// Chooses the sites of the functions that are new. One that the kernel refuses takes no room, so under a limit
    /// more are looked at than there is room for.
    fn choose_sites(&self, wanted: &[(Function, PlannedMethod)]) -> HashMap<FunctionKey, Chosen> {
        let mut chosen = HashMap::new();
        if self.room() == 0 {
            return chosen;
        }
        let mut by_library: HashMap<LibraryId, Vec<FileOffset>> = HashMap::new();
        let known = |key: &FunctionKey| self.by_function.contains_key(key) || self.refused.contains_key(key);
        for (library, entry) in wanted.iter().map(|(function, _)| function.key()).filter(|key| !known(key)) {
            by_library.entry(library).or_default().push(entry);
        }
        for (library, mut entries) in by_library {
            entries.sort_unstable();
            entries.dedup();
            let Some(image) = self.libraries.image(library) else { continue };
            let choices = choose(image, &entries, self.guard, self.keep).unwrap_or_else(|error| {
                tracing::warn!("{error}: no probes in {}", self.libraries.all()[library.0].path.display());
                Vec::new()
            });
            chosen.extend(choices.into_iter().map(|(entry, choice)| ((library, entry), choice)));
        }
        chosen
    }
}

/// Chooses the sites for functions of one library, in no order. What the guard refuses is not looked at any further.
fn choose(
    image: &Image,
    entries: &[FileOffset],
    guard: Option<Guard>,
    keep: Kept,
) -> Result<Vec<(FileOffset, Chosen)>, ImageError> {
    let refused = guard.map_or(Ok(Vec::new()), |guard| guard.refused(image, entries))?;
    let is_refused: HashSet<FileOffset> = refused.iter().map(|(entry, _)| *entry).collect();
    let left: Vec<FileOffset> = entries.iter().copied().filter(|entry| !is_refused.contains(entry)).collect();
    let choices = site::choose(image, &left, keep)?.into_iter();
    let chosen = choices.map(|choice| (choice.entry, choice.probe.ok_or(SkipReason::RefusedByKernel)));
    Ok(chosen.chain(refused.into_iter().map(|(entry, reason)| (entry, Err(reason)))).collect())
}

impl Function {
    fn key(&self) -> FunctionKey {
        (self.library, self.entry)
    }
}

/// Adds a method to the function that it shares with others. The same class loaded twice is listed once; a method
/// that was predicted and is now bound there, in any of its classes, is no longer called predicted.
fn join(probe: &mut Probe, method: PlannedMethod) {
    let same = |known: &&mut PlannedMethod| {
        let (a, b) = (&known.method, &method.method);
        (&a.class, &a.name, &a.signature) == (&b.class, &b.name, &b.signature)
    };
    match probe.methods.iter_mut().find(same) {
        Some(known) if known.method.id == method.method.id || method.bound < known.bound => *known = method,
        Some(_) => {}
        None => probe.methods.push(method),
    }
}
