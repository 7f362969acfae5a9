//! What the threads of a JVM ask allocators for: a probe on each function of those that it has mapped, for as long as the budget
//! allows.

use std::sync::Arc;

use super::error::Error;
use crate::attach::Engine;
use crate::collect::Reader;
use crate::discover::Proc;
use crate::govern::{By, Observed, Rung};
use crate::model::{AllocatorSite, Collectors, Jvm, Library, Pid, ProbeCost};
use crate::resolve::allocator_sites;
use crate::sys::probe_link::ProbeLink;

/// What the governor knows the allocators by, for each kind of site. No function and no method with a stub has such a number.
const IDS: [(u32, ProbeCost); 2] = [(1 << 30, ProbeCost::Emulated), ((1 << 30) + 1, ProbeCost::SingleStepped)];

/// Whether the governor means the allocators by a number.
pub(super) fn is_meant(id: u32) -> bool {
    IDS.iter().any(|(of, _)| *of == id)
}

/// The probes on the allocators of a JVM.
#[derive(Debug)]
pub(super) struct Allocations {
    engine: Arc<Engine>,
    groups: Vec<Group>,
}

/// Those of one kind of site.
#[derive(Debug)]
struct Group {
    id: u32,
    cost: ProbeCost,
    /// Where hits are counted.
    record: u32,
    /// Hold the probes.
    links: Vec<ProbeLink>,
}

impl Allocations {
    /// Begins to count what the threads of a JVM ask for; `None` if that is not wanted.
    ///
    /// # Errors
    /// If no allocator is found, or the kernel refuses the probes or would put them into other processes too.
    pub(super) fn watch(
        (proc, jvm): (&Proc, &Jvm),
        engine: &Arc<Engine>,
        collectors: Collectors,
    ) -> Result<Option<Self>, Error> {
        if !collectors.have_allocations() {
            return Ok(None);
        }
        let pid = jvm.pid;
        let found: Vec<(Library, Vec<AllocatorSite>)> = proc.libraries(pid)?.into_iter().map(with_sites).collect();
        let mut allocations = Self { engine: Arc::clone(engine), groups: Vec::new() };
        for (id, cost) in IDS {
            let of_kind = found.iter().map(|(library, sites)| (library, sites.iter().filter(|site| site.cost == cost)));
            let of_kind: Vec<(&Library, Vec<AllocatorSite>)> =
                of_kind.map(|(library, sites)| (library, sites.copied().collect())).collect();
            if of_kind.iter().any(|(_, sites)| !sites.is_empty()) {
                allocations.attach(pid, (id, cost), &of_kind)?;
            }
        }
        if allocations.groups.is_empty() { Err(Error::NoAllocator { pid }) } else { Ok(Some(allocations)) }
    }

    fn attach(
        &mut self,
        pid: Pid,
        (id, cost): (u32, ProbeCost),
        found: &[(&Library, Vec<AllocatorSite>)],
    ) -> Result<(), Error> {
        let record = self.engine.take_for_allocators().ok_or(Error::NoAllocator { pid })?;
        let mut group = Group { id, cost, record, links: Vec::new() };
        let with_sites = found.iter().filter(|(_, sites)| !sites.is_empty());
        let attached = with_sites
            .map(|(library, sites)| self.engine.watch_allocator(pid, library, sites, record))
            .try_for_each(|link| link.map(|link| group.links.push(link)).map_err(Error::from));
        self.groups.push(group);
        attached
    }

    /// For each kind of site the record in which hits are counted, how many there were since the start, and what the governor is
    /// told of them; nothing when the probes have been taken away.
    pub(super) fn observe(&self, reader: &Reader) -> impl Iterator<Item = (u32, u64, Observed)> {
        let groups = self.groups.iter().filter(|group| !group.links.is_empty());
        groups.map(|&Group { id, cost, record, .. }| {
            let (by, wanted) = (By::Probe(cost), Rung::Counted);
            (record, reader.begun(record), Observed { id, by, wanted, tracing: wanted, calls: 0 })
        })
    }

    /// Takes the probes away, for good.
    pub(super) fn stop(&mut self) {
        self.groups.iter_mut().for_each(|group| group.links.clear());
    }
}

impl Drop for Allocations {
    fn drop(&mut self) {
        self.stop();
        self.engine.give_back(self.groups.iter().map(|group| group.record));
    }
}

/// A library with the places at which its allocator is probed, if it has one.
fn with_sites(library: Library) -> (Library, Vec<AllocatorSite>) {
    let sites = allocator_sites(&library.open_path).unwrap_or_else(|error| {
        tracing::debug!("{}: no allocator is looked for: {error}", library.name());
        Vec::new()
    });
    (library, sites)
}
