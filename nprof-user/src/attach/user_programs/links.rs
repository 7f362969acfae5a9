//! The links of the user's programs at the functions of one target. They are where the target's own probes are, and go with these.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::UserPrograms;
use super::gates::Gate;
use crate::attach::error::in_full;
use crate::attach::links::{IndexedSite, Links};
use crate::model::{CallEnd, Library, LibraryId, Pid};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};
use crate::sys::probe_link::ProbeLink;

/// A link, which is closed before its gate is free for another.
#[derive(Debug)]
pub(in crate::attach) struct GatedLink {
    _link: ProbeLink,
    gate: Gate,
}

/// The links of one program.
#[derive(Debug, Default)]
struct OfProgram {
    links: Links<GatedLink>,
    /// The functions that they hold.
    held: BTreeSet<u32>,
}

/// Which program runs at which function, and the links by which they do.
#[derive(Debug)]
pub(in crate::attach) struct ProgramLinks {
    programs: Arc<UserPrograms>,
    pid: Pid,
    /// What keeps a link to the process, where the kernel can.
    filter: Option<u32>,
    chosen: BTreeMap<(u32, CallEnd), usize>,
    each: Vec<OfProgram>,
}

impl ProgramLinks {
    pub(in crate::attach) fn new(programs: Arc<UserPrograms>, pid: Pid, filter: Option<u32>) -> Self {
        let each = programs.programs.iter().map(|_program| OfProgram::default()).collect();
        Self { programs, pid, filter, chosen: BTreeMap::new(), each }
    }

    /// Has a program run at a function.
    pub(in crate::attach) fn choose(&mut self, index: u32, program: usize) {
        if let Some(known) = self.programs.programs.get(program) {
            self.chosen.insert((index, known.end), program);
        }
    }

    /// Links the programs for this end of calls at sites of a library, where they are not yet.
    pub(in crate::attach) fn add(&mut self, library: (LibraryId, &Library), sites: &[IndexedSite], end: CallEnd) {
        let mut by_program: BTreeMap<usize, Vec<IndexedSite>> = BTreeMap::new();
        for site in sites {
            if let Some(program) = self.chosen.get(&(site.index, end))
                && !self.each[*program].held.contains(&site.index)
            {
                by_program.entry(*program).or_default().push(*site);
            }
        }
        for (program, sites) in by_program {
            self.add_to(program, library, &sites);
        }
    }

    fn add_to(&mut self, program: usize, library: (LibraryId, &Library), sites: &[IndexedSite]) {
        let Self { programs, pid, filter, each, .. } = self;
        let mut link = |library: &Library, sites: &[IndexedSite]| {
            let gate = programs.gates.take().ok_or(io::ErrorKind::QuotaExceeded)?;
            gate.open(*pid);
            programs.link(program, (library, sites), *filter, gate)
        };
        let (of, name) = (&mut each[program], &programs.programs[program].name);
        match of.links.add(library, sites, &mut link) {
            Ok(outcome) => {
                of.held.extend(outcome.accepted.iter().map(|site| site.index));
                if !outcome.refused.is_empty() {
                    let refused = outcome.refused.len();
                    tracing::warn!(
                        "process {pid}: {name} does not run at {refused} functions: the kernel refuses it there"
                    );
                }
            }
            Err(error) => {
                let (functions, cause) = (sites.len(), in_full(&error));
                tracing::warn!("process {pid}: {name} does not run at {functions} functions: {cause}");
            }
        }
    }

    /// Takes the programs away from all functions of which `stays` says so. What is returned is to be closed.
    pub(in crate::attach) fn keep(
        &mut self,
        libraries: &[Library],
        stays: impl Fn(u32, CallEnd) -> bool,
    ) -> Vec<GatedLink> {
        let mut old = Vec::new();
        for program in 0..self.each.len() {
            let end = self.programs.programs[program].end;
            let unwanted: Vec<u32> =
                self.each[program].held.iter().copied().filter(|index| !stays(*index, end)).collect();
            if !unwanted.is_empty() {
                old.extend(self.take_out(program, libraries, &unwanted));
            }
        }
        old
    }

    /// Gives the functions that share a link with unwanted ones another link, and has that one answer instead.
    fn take_out(&mut self, program: usize, libraries: &[Library], unwanted: &[u32]) -> Vec<GatedLink> {
        let Self { programs, pid, filter, each, .. } = self;
        let mut opened = Vec::new();
        let mut link = |library: &Library, sites: &[IndexedSite]| {
            let gate = programs.gates.take().ok_or(io::ErrorKind::QuotaExceeded)?;
            let number = gate.number;
            let linked = programs.link(program, (library, sites), *filter, gate)?;
            opened.push(number);
            Ok(linked)
        };
        let of = &mut each[program];
        let replaced = of.links.replace(libraries, unwanted, &mut link);
        of.links.links().filter(|link| opened.contains(&link.gate.number)).for_each(|link| link.gate.open(*pid));
        replaced.links.iter().for_each(|link| link.gate.shut());
        of.held.retain(|index| !replaced.dropped.contains(index));
        replaced.links
    }

    /// Has no program run any more, from this moment on.
    pub(in crate::attach) fn shut(&self) {
        self.each.iter().flat_map(|of| of.links.links()).for_each(|link| link.gate.shut());
    }

    /// All links, which this has no more.
    pub(in crate::attach) fn take(&mut self) -> Vec<GatedLink> {
        self.each.iter_mut().for_each(|of| of.held.clear());
        self.each.iter_mut().flat_map(|of| of.links.take()).collect()
    }
}

impl UserPrograms {
    /// A link of a program.
    fn link(
        &self,
        program: usize,
        (library, sites): (&Library, &[IndexedSite]),
        pid: Option<u32>,
        gate: Gate,
    ) -> io::Result<GatedLink> {
        let program = &self.programs[program];
        let path = c_path(&library.open_path)?;
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| u64::from(gate.number) << 32 | u64::from(site.index)).collect();
        let on_return = program.end == CallEnd::Return;
        let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid };
        Ok(GatedLink { _link: link_uprobe_multi(program.fd.as_fd(), to)?, gate })
    }
}
